// Copyright The DI Orchestrator Authors.
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"encoding/json"
	"os"
	"path/filepath"
	"strings"
	"testing"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"

	"opendilab.org/di-orchestrator/apis/v2alpha1"
	"opendilab.org/di-orchestrator/cmd/kubectl-di/internal/cli"
	"opendilab.org/di-orchestrator/test/testkit/expect"
	"opendilab.org/di-orchestrator/test/testkit/jobs"
	"opendilab.org/di-orchestrator/test/webhooks"
	"opendilab.org/di-orchestrator/upgrade/preflight"
)

// Other tests create jobs concurrently. The test therefore only requires that jobs were checked.
func TestPreflightEndsWithOneWhereSomethingStopsAnInstallation(t *testing.T) {
	t.Parallel()
	w, ns := inNamespace(t)
	w.workers(t, ns, "workers", v2alpha1.Task{Type: v2alpha1.TaskTypeLearner, Name: "learner"})

	got := w.preflight(t, ns)
	if got.code != cli.Done || !strings.Contains(got.stdout, "Nothing stops an installation. Nothing was changed.") {
		t.Fatalf("got %+v, want that nothing stops an installation", got)
	}
	got = w.preflight(t, ns, "-o", "json")
	report := preflight.Report{}
	expect.NoError(t, json.Unmarshal([]byte(got.stdout), &report))
	if got.code != cli.Done || !report.Fine || report.Release != "this program" || !hasJobs(&report) {
		t.Fatalf("got %+v", got)
	}

	labels := map[string]string{"control-plane": "di-operator"}
	expect.NoError(t, w.live.Create(t.Context(), &appsv1.Deployment{
		ObjectMeta: metav1.ObjectMeta{Namespace: ns, Name: "di-operator", Labels: labels},
		Spec: appsv1.DeploymentSpec{Selector: &metav1.LabelSelector{MatchLabels: labels}, Template: corev1.PodTemplateSpec{
			ObjectMeta: metav1.ObjectMeta{Labels: labels}, Spec: corev1.PodSpec{Containers: []corev1.Container{{Name: "manager", Image: "old:v1"}}},
		}},
	}))
	got = w.preflight(t, "di-system")
	want := "  deployment " + ns + "/di-operator: runs old:v1 with 1 replica, and the takeover does not stop it: two operators would reconcile the same jobs\n" +
		"    install into namespace " + ns + ", or kubectl -n " + ns + " scale deployment di-operator --replicas=0\n"
	if got.code != cli.Failed || !strings.Contains(got.stdout, want) || got.stderr != "kubectl-di: findings that stop an installation: 1\n" {
		t.Fatalf("got %+v, want %s", got, want)
	}
}

func (w *world) preflight(t *testing.T, namespace string, args ...string) ran {
	t.Helper()
	return w.run(t, namespace, append([]string{"preflight", "--server-namespace", namespace}, args...)...)
}

func hasJobs(report *preflight.Report) bool {
	for _, count := range report.Objects {
		if count.Kind == "DIJob" && count.Version == "v2alpha1" && count.Objects > 0 {
			return true
		}
	}
	return false
}

func TestReplacingTheAuthorityIsFollowedToItsEnd(t *testing.T) {
	t.Parallel()
	api, err := webhooks.StartAPIWithWebhooks(t.Context())
	expect.NoError(t, err)
	t.Cleanup(func() { expect.NoError(t, api.Stop()) })
	kubeconfig := filepath.Join(t.TempDir(), "kubeconfig")
	expect.NoError(t, os.WriteFile(kubeconfig, api.KubeConfig, 0o600))

	got := kubectlDI(t, "", "rotate-ca", "--kubeconfig", kubeconfig, "--wait")
	if got.code != cli.Done || !strings.HasSuffix(got.stderr, "certificate authority: the webhook serves by it; the old one is dropped\n") {
		t.Errorf("got %+v", got)
	}
	if err := webhooks.WaitCalled(t.Context(), api.Config); err != nil {
		t.Error(err)
	}

	got = kubectlDI(t, "", "rotate-ca", "--kubeconfig", kubeconfig, "--timeout", "1ms")
	if got.code != cli.Failed || !strings.Contains(got.stderr, "whose rotation continues") {
		t.Errorf("got %+v", got)
	}

	got = kubectlDI(t, "", "rotate-ca", "--kubeconfig", kubeconfig, "--server-namespace", "elsewhere")
	if got.code != cli.Failed || !strings.Contains(got.stderr, "no operator of namespace elsewhere serves by an authority of its own") ||
		!strings.Contains(got.stderr, "common.certificateSecret") {
		t.Errorf("got %+v", got)
	}
}

func TestProfilingsArePrintedAsTheyWereReported(t *testing.T) {
	t.Parallel()
	w, ns := inNamespace(t)
	job := w.workers(t, ns, "pong", v2alpha1.Task{Type: v2alpha1.TaskTypeCollector})
	w.setStatus(t, job, func(status *v2alpha1.DIJobStatus) {
		status.Profilings = ptr.To(jobs.Raw(`{"episodes":12345678901,"reward":{"mean":20.5,"best":null}}`))
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
		{[]string{"silent"}, cli.Failed, "", "job NS/silent has reported no profilings"},
		{[]string{"nope"}, cli.Failed, "", `dijobs.diengine.opendilab.org "nope" not found`},
		{nil, cli.Usage, "", "JOB is missing"},
		{[]string{"pong", "silent"}, cli.Usage, "", `"silent": one job at a time`},
	} {
		got := w.run(t, ns, append([]string{"profilings"}, tc.args...)...)
		if got.code != tc.code || got.stdout != tc.stdout || !strings.Contains(plain(got.stderr, ns), tc.stderr) {
			t.Errorf("%v: got %+v", tc.args, got)
		}
	}
}
