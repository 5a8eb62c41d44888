// Copyright The DI Orchestrator Authors.
// SPDX-License-Identifier: Apache-2.0

//go:build web

package main

import (
	"testing"
	"time"
)

func TestCurvesAreWholeInABrowser(t *testing.T) {
	w, ns := inNamespace(t)
	begin := w.grown(t, ns, "pong").CreationTimestamp.Time
	m := measure(t)
	m.pod(begin.Add(-time.Minute), begin.Add(time.Hour), ns, "pong-learner-10", "exported_", 3, 20, 62)
	inABrowser(t, "curves.mjs", w.printedURL(t, ns, "-n", ns, "--prometheus", m.url).String(), ns)
}
