// Copyright The DI Orchestrator Authors.
// SPDX-License-Identifier: Apache-2.0

//go:build e2e

package e2e

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"strings"
	"time"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"

	"opendilab.org/di-orchestrator/test/testkit/pace"
)

// startProbers starts probers that run until expectNoFailure stops them or the spec ends.
func startProbers(probers ...*pace.Prober) {
	GinkgoHelper()
	for _, p := range probers {
		p.Start(context.Background())
		DeferCleanup(p.Stop)
	}
}

// expectNoFailure stops probers, reports their results and expects that no call failed.
func expectNoFailure(during string, probers ...*pace.Prober) {
	GinkgoHelper()
	var failures []string
	for _, p := range probers {
		p.Stop()
		tally := p.Take()
		AddReportEntry(fmt.Sprintf("%s: %s: %d calls, %d failed, the slowest took %s", during, p.Name, tally.Calls(), tally.Failed, tally.Slowest.Round(time.Millisecond)))
		Expect(tally.Calls()).To(BeNumerically(">", 0), p.Name)
		for _, failure := range tally.Failures {
			failures = append(failures, p.Name+": "+failure)
		}
	}
	Expect(strings.Join(failures, "\n")).To(BeEmpty(), during)
}

// send sends one request and reads its answer, which must be a success.
func send(ctx context.Context, sender *http.Client, method, url string, header http.Header, body any) error {
	encoded, err := json.Marshal(body)
	if err != nil {
		return fmt.Errorf("encoding the request: %w", err)
	}
	request, err := http.NewRequestWithContext(ctx, method, url, bytes.NewReader(encoded))
	if err != nil {
		return fmt.Errorf("making the request: %w", err)
	}
	request.Header = header.Clone()
	response, err := sender.Do(request)
	if err != nil {
		return err
	}
	defer response.Body.Close() //nolint:errcheck // nothing is lost with a body that was read
	answer, err := io.ReadAll(response.Body)
	if err != nil {
		return fmt.Errorf("reading the answer: %w", err)
	}
	if response.StatusCode >= http.StatusBadRequest {
		return fmt.Errorf("status %d: %s", response.StatusCode, answer)
	}
	return nil
}
