// Copyright The DI Orchestrator Authors.
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"io"
	"net/http"
	"os"
	"strconv"
	"strings"

	"opendilab.org/di-orchestrator/test/workload/cartpole/diserver"
)

// maxAnswer is the maximum size of an answer that runCall prints.
const maxAnswer = 1 << 20

// callAnswer is the output of runCall.
type callAnswer struct {
	Status int    `json:"status"`
	Body   string `json:"body"`
}

// runWait does nothing until it is asked to stop.
func runWait(ctx context.Context, _ *process, _ []string) error {
	<-ctx.Done()
	return ctx.Err()
}

// exitError ends the process with an exit code.
type exitError int

// Error implements error.
func (e exitError) Error() string { return "exit code " + strconv.Itoa(int(e)) }

// runExit ends at once with an exit code.
func runExit(_ context.Context, _ *process, args []string) error {
	if len(args) != 1 {
		return fmt.Errorf("exit: got %d arguments, want the exit code", len(args))
	}
	code, err := strconv.Atoi(args[0])
	if err != nil || code < 0 || code > 255 {
		return fmt.Errorf("exit: got %q, want an exit code from 0 to 255", args[0])
	}
	if code == 0 {
		return nil
	}
	return exitError(code)
}

// runCall makes one call of di-server from this pod and prints the answer, also a refusal.
func runCall(ctx context.Context, p *process, args []string) error {
	flags := flag.NewFlagSet("call", flag.ContinueOnError)
	flags.SetOutput(p.stdout)
	withToken := flags.Bool("token", false, "send the pod's token; without it di-server knows the pod by its address, as a deployed client")
	headers := http.Header{}
	flags.Func("header", "NAME: VALUE: send this header, too", func(text string) error {
		name, value, found := strings.Cut(text, ": ")
		if !found {
			return errors.New("has no colon and space: must be NAME: VALUE")
		}
		headers.Set(name, value)
		return nil
	})
	if err := flags.Parse(args); err != nil {
		return err
	}
	if flags.NArg() != 3 {
		return fmt.Errorf("call: got %q, want METHOD PATH BODY", flags.Args())
	}
	base := cmp.Or(p.getenv("DI_SERVER_URL"), p.getenv("KUBERNETES_SERVER_URL"))
	if !strings.Contains(base, "://") {
		base = "http://" + base
	}
	request, err := http.NewRequestWithContext(ctx, flags.Arg(0), base+flags.Arg(1), strings.NewReader(flags.Arg(2)))
	if err != nil {
		return fmt.Errorf("call: %w", err)
	}
	request.Header = headers
	if *withToken {
		token, err := os.ReadFile(diserver.TokenFile)
		if err != nil {
			return fmt.Errorf("call: read the token: %w", err)
		}
		request.Header.Set("Authorization", "Bearer "+strings.TrimSpace(string(token)))
	}
	response, err := p.client.Do(request)
	if err != nil {
		return fmt.Errorf("call: %w", err)
	}
	defer response.Body.Close() //nolint:errcheck // nothing is lost with a body that was read
	content, err := io.ReadAll(http.MaxBytesReader(nil, response.Body, maxAnswer))
	if err != nil {
		return fmt.Errorf("call: read the answer: %w", err)
	}
	return json.NewEncoder(p.stdout).Encode(callAnswer{Status: response.StatusCode, Body: string(content)})
}
