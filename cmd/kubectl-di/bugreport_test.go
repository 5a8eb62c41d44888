// Copyright The DI Orchestrator Authors.
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"archive/tar"
	"compress/gzip"
	"errors"
	"io"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"opendilab.org/di-orchestrator/apis/v2alpha1"
	"opendilab.org/di-orchestrator/cmd/kubectl-di/internal/cli"
	"opendilab.org/di-orchestrator/internal/names"
	"opendilab.org/di-orchestrator/test/testkit/expect"
	"opendilab.org/di-orchestrator/test/testkit/jobs"
)

// unpacked returns the files of an archive.
func unpacked(t *testing.T, path string) map[string]string {
	t.Helper()
	file, err := os.Open(path)
	expect.NoError(t, err)
	defer file.Close() //nolint:errcheck // It is only read.
	compressed, err := gzip.NewReader(file)
	expect.NoError(t, err)
	files := map[string]string{}
	for archive := tar.NewReader(compressed); ; {
		header, err := archive.Next()
		if errors.Is(err, io.EOF) {
			return files
		}
		expect.NoError(t, err)
		content, err := io.ReadAll(archive)
		expect.NoError(t, err)
		_, name, _ := strings.Cut(header.Name, "/")
		files[name] = string(content)
	}
}

func hasNone(t *testing.T, files map[string]string, secrets ...string) {
	t.Helper()
	for file, content := range files {
		for _, secret := range secrets {
			if strings.Contains(content, secret) {
				t.Errorf("%s has a secret:\n%s", file, content)
			}
		}
	}
}

func TestABugReportHasAllOfAJobButSecrets(t *testing.T) {
	t.Parallel()
	w, ns, tenant := asTenant(t)
	const secret = "s3cr3t-value"
	expect.NoError(t, w.live.Create(t.Context(), &corev1.Secret{
		ObjectMeta: metav1.ObjectMeta{Namespace: ns, Name: "login"}, Data: map[string][]byte{"password": []byte(secret)},
	}))
	job := w.job(t, ns, "pong", v2alpha1.LifecycleWorkerLed, v2alpha1.Task{Type: v2alpha1.TaskTypeLearner})
	w.operated(t, ns, "pong", func(status *v2alpha1.DIJobStatus) {
		status.Phase, status.LastFailure = v2alpha1.JobRunning, &v2alpha1.LastFailure{Pod: "pong-learner-0", Message: "login with " + secret + " failed"}
	})
	w.event(t, job, corev1.EventTypeWarning, "Said", "the event has "+secret)
	k := w.newLogKubelet(t, job)
	name := names.WorkerPod("pong", "learner", 0)
	pod := &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{
			Namespace: ns, Name: name, Labels: names.WorkerLabels("pong", v2alpha1.TaskTypeLearner, "learner", name), OwnerReferences: jobs.Owner(job),
		},
		Spec: corev1.PodSpec{NodeName: k.node, ServiceAccountName: account, Containers: []corev1.Container{{
			Name: names.Container, Image: "di", Env: []corev1.EnvVar{
				{Name: "PASSWORD", ValueFrom: &corev1.EnvVarSource{SecretKeyRef: &corev1.SecretKeySelector{
					LocalObjectReference: corev1.LocalObjectReference{Name: "login"}, Key: "password",
				}}},
				{Name: "WANDB_API_KEY", Value: "literal-key"},
			},
		}}},
	}
	expect.NoError(t, w.live.Create(t.Context(), pod))
	k.start(t, pod, names.Container, "step 1", "using "+secret+" and literal-key")
	folder := t.TempDir()
	report := func(file, as string) ran {
		return w.run(t, ns, "bugreport", "pong", "--file", filepath.Join(folder, file), "--as", as)
	}

	got := report("all.tar.gz", tenant)
	if got.code != 0 || got.stdout != filepath.Join(folder, "all.tar.gz")+"\n" || !strings.Contains(got.stderr, "look through the archive before you publish it") {
		t.Fatalf("got %+v", got)
	}
	files := unpacked(t, filepath.Join(folder, "all.tar.gz"))
	want := []string{"README.txt", "describe.txt", "events.yaml", "job.yaml", "logs/pong-learner-0.log", "pods/pong-learner-0.yaml"}
	expect.Equal(t, "files", want, slices.Sorted(maps.Keys(files)))
	hasNone(t, files, secret, "literal-key")
	for file, text := range map[string]string{
		"logs/pong-learner-0.log": " using <redacted> and <redacted>\n", "job.yaml": "login with <redacted> failed", "events.yaml": "the event has <redacted>",
		"README.txt": "Kubernetes: v1.", "describe.txt": "Name:       pong",
	} {
		if !strings.Contains(files[file], text) {
			t.Errorf("%s lacks %q:\n%s", file, text, files[file])
		}
	}
	again := report("all.tar.gz", tenant)
	if again.code != cli.Failed || !strings.Contains(again.stderr, "exists already: name another file by --file") {
		t.Errorf("got %+v", again)
	}

	// Who may not read the Secret gets no text that may have its value.
	looker := "looker-" + ns
	for _, resource := range []string{"pods", "pods/log", "events"} {
		for _, verb := range []string{"get", "list"} {
			w.grant(t, ns, user(looker), rule("", resource, verb))
		}
	}
	w.grant(t, ns, user(looker), rule(v2alpha1.GroupName, "dijobs", "get"))
	blind := report("blind.tar.gz", looker)
	if blind.code != 0 || !strings.Contains(blind.stderr, "left out: the logs and messages of programs, which may have values of Secret login: ") ||
		!strings.Contains(blind.stderr, "--verb=get --resource=secrets --resource-name=login") {
		t.Errorf("got %+v", blind)
	}
	files = unpacked(t, filepath.Join(folder, "blind.tar.gz"))
	expect.Equal(t, "files", []string{"README.txt", "events.yaml", "job.yaml", "pods/pong-learner-0.yaml"}, slices.Sorted(maps.Keys(files)))
	hasNone(t, files, secret)
}
