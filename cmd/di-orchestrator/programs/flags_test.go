// Copyright The DI Orchestrator Authors.
// SPDX-License-Identifier: Apache-2.0

package programs

import (
	"bytes"
	"strings"
	"testing"
	"time"

	"opendilab.org/di-orchestrator/allocation/fit"
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
		"probes that come before they go": {
			[]string{"operator", "--webhook-probe-interval", "-1s"},
			[]string{"--webhook-probe-interval", "-1s", "want 0"},
		},
		"more shards than there may be": {
			[]string{"operator", "--leader-elect", "--shards", "17"},
			[]string{"--shards 17", "must be from 1 to 16"},
		},
		"shards without an election": {
			[]string{"operator", "--shards", "2"},
			[]string{"--shards 2", "needs --leader-elect"},
		},
		"pods that are deleted by force too soon": {
			[]string{"operator", "--force-delete-after", "10s"},
			[]string{"--force-delete-after 10s", "want 0, for never, or at least 1m0s"},
		},
		"jobs without any pod": {
			[]string{"operator", "--max-pods-per-job", "0"},
			[]string{"--max-pods-per-job 0", "from 1 to 100000"},
		},
		"queues of somebody unknown": {
			[]string{"operator", "--queueing", "yunikorn"},
			[]string{"--queueing yunikorn", "auto, none or kueue"},
		},
		"certificates of a Secret that is not named": {
			[]string{"webhook", "--webhook-certificates", "secret"},
			[]string{"--webhook-certificates secret", "--webhook-secret"},
		},
		"a Secret for certificates of the operator's own": {
			[]string{"webhook", "--webhook-secret", "tls"},
			[]string{"--webhook-secret tls", "--webhook-certificates secret"},
		},
		"certificates from nowhere": {
			[]string{"webhook", "--webhook-certificates", "files"},
			[]string{"--webhook-certificates files", "own or secret"},
		},
		"certificates from nowhere for the operator": {
			[]string{"operator", "--webhook-certificates", "files"},
			[]string{"--webhook-certificates files", "own or secret"},
		},
		"a collector without a scheme": {
			[]string{"operator", "--tracing-endpoint", "collector:4317"},
			[]string{"--tracing-endpoint", `"collector:4317"`, "http://host:port", "gRPC"},
		},
		"a collector with a path, as OTLP over HTTP has": {
			[]string{"server", "--tracing-endpoint", "http://collector:4318/v1/traces"},
			[]string{"--tracing-endpoint", `"http://collector:4318/v1/traces"`, "gRPC"},
		},
		"more traces than there are": {
			[]string{"operator", "--tracing-sampling-ratio", "1.5"},
			[]string{"--tracing-sampling-ratio", "1.5", "from 0", "to 1"},
		},
		"traces that are no number": {
			[]string{"server", "--tracing-sampling-ratio", "NaN"},
			[]string{"--tracing-sampling-ratio", "NaN", "from 0", "to 1"},
		},
		"a policy that is none": {
			[]string{"operator", "--allocator-policy", "pollux"},
			[]string{"--allocator-policy pollux", "fit, goodput, mine"},
		},
		"more fairness than there is": {
			[]string{"operator", "--allocator-fairness", "1.5"},
			[]string{"--allocator-fairness 1.5", "from 0 to 1"},
		},
		"fairness that is no number": {
			[]string{"operator", "--allocator-fairness", "NaN"},
			[]string{"--allocator-fairness NaN", "from 0 to 1"},
		},
		"a command that is none": {
			[]string{"serve"},
			[]string{`"serve"`, "server"},
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			command := newCommand("dev", Policies{"mine": fit.Fit{}})
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

func TestALinkedPolicyHasANameOfItsOwn(t *testing.T) {
	t.Parallel()
	for _, name := range []string{"fit", "goodput", ""} {
		options := operatorOptions{policyName: "fit", linked: Policies{name: fit.Fit{}}}
		if err := options.choosePolicy(); err == nil || !strings.Contains(err.Error(), "fit, goodput") {
			t.Errorf("a linked policy may have the name %q: %v", name, err)
		}
	}
	mine := fit.Fit{GrowAfter: time.Hour}
	options := operatorOptions{policyName: "mine", linked: Policies{"mine": mine}}
	if err := options.choosePolicy(); err != nil || options.policy != mine {
		t.Errorf("the linked policy is not found: %v, %v", options.policy, err)
	}
}
