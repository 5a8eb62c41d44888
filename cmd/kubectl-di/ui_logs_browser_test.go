// Copyright The DI Orchestrator Authors.
// SPDX-License-Identifier: Apache-2.0

//go:build web

package main

import (
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"

	"opendilab.org/di-orchestrator/internal/names"
)

// TestLogsOfChosenReplicasAreFollowedInABrowser writes a line of each replica when the script asks for it.
func TestLogsOfChosenReplicasAreFollowedInABrowser(t *testing.T) {
	w, ns := inNamespace(t)
	_, k := w.logged(t, ns)
	pods := []*corev1.Pod{k.replica(t, names.ReplicaTypeCoordinator, "", "starts")}
	for _, suffix := range []string{"aaaaa", "bbbbb", "ccccc"} {
		pods = append(pods, k.replica(t, names.ReplicaTypeCollector, suffix, "starts"))
	}
	control := httptest.NewServer(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
		for _, pod := range pods {
			k.write(pod, names.Container, strings.TrimPrefix(r.URL.Path, "/"))
		}
	}))
	t.Cleanup(control.Close)
	inABrowser(t, "logs.mjs", w.printedURL(t, ns, "-n", ns).String(), control.URL, ns)
}
