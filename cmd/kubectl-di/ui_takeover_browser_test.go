// Copyright The DI Orchestrator Authors.
// SPDX-License-Identifier: Apache-2.0

//go:build web

package main

import (
	"testing"
	"time"

	"opendilab.org/di-orchestrator/internal/names"
	"opendilab.org/di-orchestrator/upgrade/takeover"
)

func TestTakeoverIsUnderstoodInABrowser(t *testing.T) {
	w := worldOfDefinitions(t)
	ns := w.namespace(t)
	w.earlierRelease(t, names.EarlierOperator)
	w.scaled(t, names.EarlierOperator, 0, 1)
	w.earlierJobs(t, ns)
	w.progress(t, &takeover.Observed{Pods: map[string][]string{names.EarlierOperator: {"di-operator-1-2"}}})
	w.stalls(t, "AwaitOperator: no progress for 2m0s; waits for the end of pods di-operator-1-2", time.Now())
	inABrowser(t, "takeover.mjs", w.printedURL(t, ns, "-n", ns).String(), ns)
}
