// Copyright The DI Orchestrator Authors.
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/streaming/pkg/httpstream"
	"k8s.io/streaming/pkg/httpstream/spdy"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"opendilab.org/di-orchestrator/apis/v2alpha1"
	"opendilab.org/di-orchestrator/cmd/kubectl-di/internal/cli"
	"opendilab.org/di-orchestrator/cmd/kubectl-di/internal/document"
	"opendilab.org/di-orchestrator/internal/names"
	"opendilab.org/di-orchestrator/test/testkit/expect"
	"opendilab.org/di-orchestrator/test/testkit/pods"
)

// runCommand is a kubelet that runs commands: it prints their path and their stdin, and fails those named false.
func runCommand(w http.ResponseWriter, r *http.Request) {
	if _, err := httpstream.Handshake(r, w, []string{"v4.channel.k8s.io"}); err != nil {
		return
	}
	query := r.URL.Query()
	streams := make(chan httpstream.Stream, 4)
	connection := spdy.NewResponseUpgrader().UpgradeResponse(w, r, func(stream httpstream.Stream, _ <-chan struct{}) error {
		streams <- stream
		return nil
	})
	if connection == nil {
		return
	}
	defer connection.Close() //nolint:errcheck // The test is over.
	wanted := 1
	for _, name := range []string{"input", "output", "error"} {
		if query.Get(name) == "1" {
			wanted++
		}
	}
	byType := map[string]httpstream.Stream{}
	for len(byType) < wanted {
		stream := <-streams
		byType[stream.Headers().Get(corev1.StreamType)] = stream
	}
	out := byType[corev1.StreamTypeStdout]
	fmt.Fprintf(out, "%s %s\n", r.URL.Path, strings.Join(query["command"], " "))
	if in := byType[corev1.StreamTypeStdin]; in != nil {
		_, _ = io.Copy(out, in)
	}
	status := metav1.Status{Status: metav1.StatusSuccess}
	if query.Get("command") == "false" {
		status = metav1.Status{Status: metav1.StatusFailure, Reason: "NonZeroExitCode", Details: &metav1.StatusDetails{
			Causes: []metav1.StatusCause{{Type: "ExitCode", Message: "3"}},
		}}
	}
	_ = json.NewEncoder(byType[corev1.StreamTypeError]).Encode(status)
	for _, stream := range byType {
		_ = stream.Close()
	}
	select {
	case <-connection.CloseChan():
	case <-time.After(10 * time.Second):
	}
}

// runningOn starts a job with two collectors. The second one runs on a node.
func (w *world) runningOn(t *testing.T, namespace, node string) {
	t.Helper()
	job := w.workers(t, namespace, "pong", v2alpha1.Task{Type: v2alpha1.TaskTypeCollector})
	pod := pods.Of(job, "pong-collector-1", names.WorkerLabels("pong", v2alpha1.TaskTypeCollector, "collector", "pong-collector-1"))
	pod.Spec.ServiceAccountName, pod.Spec.NodeName = account, node
	pod.Spec.Containers[0].Ports = []corev1.ContainerPort{{Name: "tensorboard", ContainerPort: 6007}}
	expect.NoError(t, w.live.Create(t.Context(), pod))
	pods.Ready(pod)
	pod.Status.Phase = corev1.PodRunning
	expect.NoError(t, w.live.Status().Update(t.Context(), pod))
}

func TestATenantRunsCommandsInAReplica(t *testing.T) {
	t.Parallel()
	w, ns, tenant := asTenant(t)
	kubelet := httptest.NewTLSServer(http.HandlerFunc(runCommand))
	t.Cleanup(kubelet.Close)
	w.runningOn(t, ns, w.kubelet(t, kubelet))
	const in = "/exec/NS/pong-collector-1/di-container"
	for _, tc := range []struct {
		args, stdin    string
		code           int
		stdout, stderr string
	}{
		{"pong -- nvidia-smi -L", "", 0, in + " nvidia-smi -L\n", ""},
		{"pong collector-1", "", 0, in + " sh\n", ""},
		{"pong pod/pong-collector-1 -i -- cat", "hello", 0, in + " cat\nhello", ""},
		{"pong -- false", "", cli.Failed, in + " false\n", "kubectl-di: the command in pod pong-collector-1 ended with exit code 3\n"},
		{"pong colector-1", "", cli.Failed, "", "kubectl-di: job NS/pong has no pod colector-1: did you mean collector-1?\n"},
		{"pong learner-x", "", cli.Failed, "", "kubectl-di: job NS/pong has no pod learner-x, but pong-collector-0, pong-collector-1\n"},
		{"pong -c side", "", cli.Failed, "", "kubectl-di: --container side: pod pong-collector-1 has no such container, but di-container\n"},
		{"pong a b", "", cli.Usage, "", `kubectl-di: "b": one replica at a time` + "\n"},
		{"pong --", "", cli.Usage, "", `kubectl-di: COMMAND is missing: it follows "--"` + "\n"},
		{"pong --as stranger", "", cli.Failed, "", "--verb=get --resource=dijobs.diengine.opendilab.org\n"},
	} {
		args := append([]string{"exec", "--as", tenant}, strings.Fields(tc.args)...)
		if strings.Contains(tc.args, "--as") {
			args = append([]string{"exec"}, strings.Fields(tc.args)...)
		}
		got := w.fed(t, ns, tc.stdin, args...)
		if got.code != tc.code || plain(got.stdout, ns) != tc.stdout || !strings.HasSuffix(plain(got.stderr, ns), tc.stderr) || tc.stderr == "" && got.stderr != "" {
			t.Errorf("%s: got %+v", tc.args, got)
		}
	}
	// A user who may only look is told the role.
	w.grant(t, ns, user("viewer-"+ns), rule(v2alpha1.GroupName, "dijobs", "get"), rule("", "pods", "list"))
	denied := w.run(t, ns, "exec", "pong", "--as", "viewer-"+ns)
	if denied.code != cli.Failed || !strings.Contains(denied.stderr, "--resource=pods/exec") {
		t.Errorf("got %+v", denied)
	}
}

func TestATenantOpensAPortOfAReplica(t *testing.T) {
	t.Parallel()
	w, ns, tenant := asTenant(t)
	kubelet := w.newKubelet(t, 0)
	w.runningOn(t, ns, kubelet.node)
	opened := w.start(t, ns, "", "open", "pong", "--as", tenant)
	opened.out.shows(t, "\n")
	if want := "kubectl-di: port 6007 of pod " + ns + "/pong-collector-1, until this command is interrupted:\n"; opened.report.String() != want {
		t.Errorf("stderr is %q", opened.report)
	}
	request, err := http.NewRequestWithContext(t.Context(), http.MethodGet, strings.TrimSpace(opened.out.String()), http.NoBody)
	expect.NoError(t, err)
	response, err := http.DefaultClient.Do(request)
	expect.NoError(t, err)
	expect.NoError(t, response.Body.Close())
	if kubelet.count() != 1 {
		t.Errorf("the kubelet has %d connections", kubelet.count())
	}
	opened.stop()
	if code := opened.ended(t); code != 0 {
		t.Errorf("exit code %d, %s", code, opened.report)
	}
	for args, want := range map[string]string{
		"--port http":    "kubectl-di: --port http: container di-container of pod pong-collector-1 has no such port, but tensorboard (6007)\n",
		"--port 70000":   "kubectl-di: --port 70000: want 1 to 65535, or the name of a port\n",
		"collector-0 -c": "kubectl-di: flag needs an argument: 'c' in -c\nsee kubectl di open --help\n",
	} {
		if got := w.run(t, ns, append([]string{"open", "pong"}, strings.Fields(args)...)...); got.code == 0 || got.stderr != want {
			t.Errorf("%s: got %+v", args, got)
		}
	}
}

func TestATenantReadsTheEventsOfAJobAndItsPods(t *testing.T) {
	t.Parallel()
	w, ns, tenant := asTenant(t)
	none := w.workers(t, ns, "silent", v2alpha1.Task{Type: v2alpha1.TaskTypeCollector})
	job := w.workers(t, ns, "pong", v2alpha1.Task{Type: v2alpha1.TaskTypeCollector})
	begin := time.Now().Add(-time.Hour)
	w.eventAt(t, job, corev1.EventTypeNormal, "JobStarting", "starts", begin)
	w.eventAt(t, none, corev1.EventTypeWarning, "Other", "of another job", begin)
	pod := &corev1.Pod{}
	expect.NoError(t, w.live.Get(t.Context(), client.ObjectKey{Namespace: ns, Name: "pong-collector-0"}, pod))
	expect.NoError(t, w.live.Create(t.Context(), &corev1.Event{
		ObjectMeta:     metav1.ObjectMeta{Namespace: ns, GenerateName: "pong-"},
		InvolvedObject: corev1.ObjectReference{APIVersion: "v1", Kind: "Pod", Namespace: ns, Name: pod.Name, UID: pod.UID},
		Type:           corev1.EventTypeWarning, Reason: "Failed", Message: "pull\naccess denied", Count: 4, LastTimestamp: metav1.NewTime(begin.Add(time.Minute)),
	}))
	lines := strings.Split(w.ranWell(t, ns, "events", "pong", "--as", tenant), "\n")
	for i, want := range []string{"AGE TYPE REASON OBJECT MESSAGE", "60m Normal JobStarting job starts", "59m (x4) Warning Failed pod pong-collector-0 pull access denied", ""} {
		if i >= len(lines) || strings.Join(strings.Fields(lines[i]), " ") != want {
			t.Errorf("line %d of %q is not %s", i, lines, want)
		}
	}
	var warnings []document.Event
	expect.NoError(t, json.Unmarshal([]byte(w.ranWell(t, ns, "events", "pong", "--warnings", "-o", "json", "--as", tenant)), &warnings))
	if len(warnings) != 1 || warnings[0].Pod != "pong-collector-0" || warnings[0].Count != 4 {
		t.Errorf("got %+v", warnings)
	}
	got := w.run(t, ns, "events", "silent", "--as", tenant, "--warnings")
	if got.code != 0 || !strings.Contains(got.stdout, "of another job") {
		t.Errorf("got %+v", got)
	}
}
