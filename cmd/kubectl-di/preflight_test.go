// Copyright The DI Orchestrator Authors.
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"encoding/json"
	"strings"
	"testing"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"opendilab.org/di-orchestrator/apis/v2alpha1"
	"opendilab.org/di-orchestrator/cmd/kubectl-di/internal/exit"
	"opendilab.org/di-orchestrator/internal/upgrade/preflight"
)

// Other tests make jobs meanwhile, so that no more is said of these than that
// they were looked at.
func TestPreflightEndsWithOneWhereSomethingStopsAnInstallation(t *testing.T) {
	t.Parallel()
	w := theWorld(t)
	ns := w.namespace(t)
	w.workers(t, ns, "workers", v2alpha1.Task{Type: v2alpha1.TaskTypeLearner, Name: "learner"})

	got := w.preflight(t, ns)
	if got.code != exit.Done || !strings.Contains(got.stdout, "Nothing stops an installation. Nothing was changed.") {
		t.Fatalf("got %+v, want that nothing stops an installation", got)
	}
	got = w.preflight(t, ns, "-o", "json")
	report := preflight.Report{}
	must(t, json.Unmarshal([]byte(got.stdout), &report))
	if got.code != exit.Done || !report.Fine || report.Release != "this program" || !hasJobs(&report) {
		t.Fatalf("got %+v", got)
	}

	labels := map[string]string{"control-plane": "di-operator"}
	must(t, w.live.Create(t.Context(), &appsv1.Deployment{
		ObjectMeta: metav1.ObjectMeta{Namespace: ns, Name: "di-operator", Labels: labels},
		Spec: appsv1.DeploymentSpec{Selector: &metav1.LabelSelector{MatchLabels: labels}, Template: corev1.PodTemplateSpec{
			ObjectMeta: metav1.ObjectMeta{Labels: labels}, Spec: corev1.PodSpec{Containers: []corev1.Container{{Name: "manager", Image: "old:v1"}}},
		}},
	}))
	got = w.preflight(t, "di-system")
	want := "  deployment " + ns + "/di-operator: runs old:v1 with 1 replicas, and the takeover does not stop it: two operators would reconcile the same jobs\n" +
		"    install into namespace " + ns + ", or kubectl -n " + ns + " scale deployment di-operator --replicas=0\n"
	if got.code != exit.Failed || !strings.Contains(got.stdout, want) || got.stderr != "kubectl-di: findings that stop an installation: 1\n" {
		t.Fatalf("got %+v, want %s", got, want)
	}
}

func (w *world) preflight(t *testing.T, namespace string, args ...string) ran {
	t.Helper()
	return kubectlDI(t, "", append([]string{"preflight", "--server-namespace", namespace, "--kubeconfig", w.kubeconfig}, args...)...)
}

func hasJobs(report *preflight.Report) bool {
	for _, count := range report.Objects {
		if count.Kind == "DIJob" && count.Version == "v2alpha1" && count.Objects > 0 {
			return true
		}
	}
	return false
}
