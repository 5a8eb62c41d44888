// Copyright The DI Orchestrator Authors.
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"bytes"
	"strings"
	"testing"
)

func TestWrongFlagsAreRefusedBeforeAnythingStarts(t *testing.T) {
	t.Parallel()
	for name, tc := range map[string]struct {
		args []string
		want []string
	}{
		"an AggregatorConfig without a namespace": {
			[]string{"operator", "--aggregator-config", "config"},
			[]string{"--aggregator-config", `"config"`, "namespace/name", "di-system/aggregator-config"},
		},
		"an AggregatorConfig of three parts": {
			[]string{"server", "--aggregator-config", "a/b/c"},
			[]string{"--aggregator-config", `"a/b/c"`, "namespace/name"},
		},
		"a log level that is none": {
			[]string{"server", "--log-level", "loud"},
			[]string{"--log-level", `"loud"`, "debug, info, warn or error"},
		},
		"a log format that is none": {
			[]string{"operator", "--log-format", "xml"},
			[]string{"--log-format", `"xml"`, "json or console"},
		},
		"a command that is none": {
			[]string{"serve"},
			[]string{`"serve"`, "server"},
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			command := newCommand()
			command.SetArgs(tc.args)
			command.SetOut(&bytes.Buffer{})
			command.SetErr(&bytes.Buffer{})
			err := command.ExecuteContext(t.Context())
			if err == nil {
				t.Fatal("got no error")
			}
			for _, part := range tc.want {
				if !strings.Contains(err.Error(), part) {
					t.Errorf("got error %q, want it to say %s", err, part)
				}
			}
		})
	}
}
