// Copyright The DI Orchestrator Authors.
// SPDX-License-Identifier: Apache-2.0

// Command conversion measures what conversion costs, each figure beside a
// reference that is measured in the same run. It is run by make bench-conversion.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"os/signal"
	"slices"
	"strings"

	"github.com/go-logr/logr"
	"sigs.k8s.io/controller-runtime/pkg/log"
)

// section is one table of the report.
type section struct {
	name string
	run  func(ctx context.Context, out io.Writer) error
}

// sections are the tables in the order in which they are printed.
func sections() []section {
	return []section{
		{"reviews", reviews},
		{"cold", runCold},
		{"writes", runWrites},
	}
}

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt)
	only := flag.String("only", "", "comma-separated names of the sections to run; all when empty")
	endpoint := flag.String("serve", "", "serve this endpoint to another process of this program")
	heap := flag.Int("heap", 0, "bytes that the served endpoint's process has in its heap besides")
	flag.Parse()
	log.SetLogger(logr.Discard())
	var err error
	if *endpoint != "" {
		err = serve(*endpoint, *heap, os.Stdin, os.Stdout)
	} else {
		err = run(ctx, os.Stdout, *only)
	}
	stop()
	if err != nil {
		fmt.Fprintln(os.Stderr, "conversion:", err)
		os.Exit(1)
	}
}

func run(ctx context.Context, out io.Writer, only string) error {
	wanted := strings.FieldsFunc(only, func(r rune) bool { return r == ',' })
	var failed error
	for _, s := range sections() {
		if len(wanted) > 0 && !slices.Contains(wanted, s.name) {
			continue
		}
		fmt.Fprintf(out, "\n## %s\n\n", s.name)
		if err := s.run(ctx, out); err != nil {
			failed = errors.Join(failed, fmt.Errorf("%s: %w", s.name, err))
		}
	}
	return failed
}
