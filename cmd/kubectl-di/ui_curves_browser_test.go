// Copyright The DI Orchestrator Authors.
// SPDX-License-Identifier: Apache-2.0

//go:build web

package main

import "testing"

func TestLabelsOfCurvesAreWholeInABrowser(t *testing.T) {
	w, ns := inNamespace(t)
	w.grown(t, ns, "pong")
	inABrowser(t, "curves.mjs", w.printedURL(t, ns, "-n", ns).String(), ns)
}
