// Copyright The DI Orchestrator Authors.
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"strings"
	"testing"

	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"

	"opendilab.org/di-orchestrator/apis/v2alpha1"
	"opendilab.org/di-orchestrator/cmd/kubectl-di/internal/exit"
)

func TestProfilingsArePrintedAsTheyWereReported(t *testing.T) {
	t.Parallel()
	w := theWorld(t)
	ns := w.namespace(t)
	job := w.workers(t, ns, "pong", v2alpha1.Task{Type: v2alpha1.TaskTypeCollector})
	w.setStatus(t, job, func(status *v2alpha1.DIJobStatus) {
		status.Profilings = &v2alpha1.RawObject{JSON: apiextensionsv1.JSON{Raw: []byte(`{"episodes":12345678901,"reward":{"mean":20.5,"best":null}}`)}}
	})
	w.workers(t, ns, "silent", v2alpha1.Task{Type: v2alpha1.TaskTypeCollector})
	const want = "{\n  \"episodes\": 12345678901,\n  \"reward\": {\n    \"best\": null,\n    \"mean\": 20.5\n  }\n}\n"
	for _, tc := range []struct {
		args           []string
		code           int
		stdout, stderr string
	}{
		{[]string{"pong"}, 0, want, ""},
		{[]string{"dijob/pong"}, 0, want, ""},
		{[]string{"silent"}, exit.Failed, "", "job NS/silent has reported no profilings"},
		{[]string{"nope"}, exit.Failed, "", `dijobs.diengine.opendilab.org "nope" not found`},
		{nil, exit.Usage, "", "JOB is missing"},
		{[]string{"pong", "silent"}, exit.Usage, "", `"silent": one job at a time`},
	} {
		got := kubectlDI(t, "", append(append([]string{"profilings"}, tc.args...), "--kubeconfig", w.kubeconfig, "-n", ns)...)
		if got.code != tc.code || got.stdout != tc.stdout || !strings.Contains(plain(got.stderr, ns), tc.stderr) {
			t.Errorf("%v: got %+v", tc.args, got)
		}
	}
}
