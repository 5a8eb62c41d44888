// Copyright The DI Orchestrator Authors.
// SPDX-License-Identifier: Apache-2.0

package tracing

import "testing"

func TestCallsAreNamedByWhatTheyAreAbout(t *testing.T) {
	t.Parallel()
	for path, want := range map[string]string{
		"/api/v1/pods":                               "pods",
		"/api/v1/namespaces/ns/pods":                 "pods",
		"/api/v1/namespaces/ns/pods/a":               "pods",
		"/api/v1/namespaces/ns/pods/a/status":        "pods/status",
		"/api/v1/namespaces":                         "namespaces",
		"/api/v1/namespaces/ns":                      "namespaces",
		"/api/v1/namespaces/ns/finalize":             "namespaces/finalize",
		"/api/v1/nodes/n/status":                     "nodes/status",
		"/apis/g/v1/namespaces/ns/dijobs/job/status": "dijobs/status",
		"/apis/g/v1/clusterthings/x":                 "clusterthings",
		"/apis":                                      "discovery",
		"/apis/g/v1":                                 "discovery",
		"/api/v1":                                    "discovery",
		"/version":                                   "discovery",
	} {
		if got := resourceOf(path); got != want {
			t.Errorf("%s is about %q, want %q", path, got, want)
		}
	}
}
