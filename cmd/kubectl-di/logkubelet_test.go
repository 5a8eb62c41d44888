// Copyright The DI Orchestrator Authors.
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"bytes"
	"context"
	"fmt"
	"net"
	"net/http"
	"net/http/httptest"
	"net/url"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/cli-runtime/pkg/genericiooptions"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"opendilab.org/di-orchestrator/apis/v2alpha1"
	"opendilab.org/di-orchestrator/internal/names"
	"opendilab.org/di-orchestrator/internal/testkit"
)

// logKubelet serves the logs of the containers of one namespace's pods as a
// kubelet does, and keeps the status of the pods in step.
type logKubelet struct {
	*httptest.Server
	world *world
	job   *v2alpha1.DIJob
	node  string

	mutex sync.Mutex
	// changed is closed, and recreated, when a log changes.
	changed chan struct{}
	// runs are the logs of all runs of each container, by pod and container.
	runs map[string][]*logRun
	// now is the time of the next line.
	now time.Time
	// cuts counts how often all streams were cut.
	cuts int
	// asked are the requests for logs.
	asked []string
}

// logRun is what one run of a container printed.
type logRun struct {
	lines []string
	ended bool
	// isLost says that the log is there no more.
	isLost bool
}

func (w *world) newLogKubelet(t *testing.T, job *v2alpha1.DIJob) *logKubelet {
	t.Helper()
	k := &logKubelet{
		world: w, job: job, changed: make(chan struct{}), runs: map[string][]*logRun{}, now: time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC),
	}
	k.Server = httptest.NewTLSServer(k)
	t.Cleanup(k.Close)
	address, isTCP := k.Listener.Addr().(*net.TCPAddr)
	if !isTCP {
		t.Fatalf("%v is no TCP address", k.Listener.Addr())
	}
	node := &corev1.Node{ObjectMeta: metav1.ObjectMeta{GenerateName: "node-"}}
	must(t, w.live.Create(t.Context(), node))
	k.node = node.Name
	node.Status.Addresses = []corev1.NodeAddress{{Type: corev1.NodeInternalIP, Address: address.IP.String()}}
	node.Status.DaemonEndpoints.KubeletEndpoint.Port = int32(address.Port) // a port fits
	must(t, w.live.Status().Update(t.Context(), node))
	return k
}

// pod makes a pod of the job on the kubelet's node, whose containers wait.
func (k *logKubelet) pod(t *testing.T, name string, labels map[string]string, containers ...string) *corev1.Pod {
	t.Helper()
	pod := &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{
			Namespace: k.job.Namespace, Name: name, Labels: labels,
			OwnerReferences: []metav1.OwnerReference{*metav1.NewControllerRef(k.job, v2alpha1.GroupVersion.WithKind("DIJob"))},
		},
		Spec: corev1.PodSpec{NodeName: k.node, ServiceAccountName: account, RestartPolicy: corev1.RestartPolicyOnFailure},
	}
	for _, container := range append([]string{names.Container}, containers...) {
		pod.Spec.Containers = append(pod.Spec.Containers, corev1.Container{Name: container, Image: "di"})
	}
	must(t, k.world.live.Create(t.Context(), pod))
	return pod
}

// start starts a container again, and prints lines of it.
func (k *logKubelet) start(t *testing.T, pod *corev1.Pod, container string, lines ...string) {
	t.Helper()
	k.mutex.Lock()
	key := string(pod.UID) + "/" + container
	k.runs[key] = append(k.runs[key], &logRun{})
	k.mutex.Unlock()
	k.write(pod, container, lines...)
	status := k.status(pod, container)
	if status.State.Terminated != nil {
		status.RestartCount++
	}
	status.LastTerminationState, status.ContainerID = status.State, fmt.Sprintf("run://%s/%d", key, status.RestartCount)
	status.State = corev1.ContainerState{Running: &corev1.ContainerStateRunning{}}
	pod.Status.Phase = corev1.PodRunning
	must(t, k.world.live.Status().Update(t.Context(), pod))
}

// write prints lines of a container's last run.
func (k *logKubelet) write(pod *corev1.Pod, container string, lines ...string) {
	k.change(func() {
		run := k.last(string(pod.UID) + "/" + container)
		for _, text := range lines {
			run.lines = append(run.lines, k.now.Format(time.RFC3339Nano)+" "+text+"\n")
			k.now = k.now.Add(300 * time.Millisecond)
		}
	})
}

// end ends a container's last run: its log at once, its status at the end.
func (k *logKubelet) end(t *testing.T, pod *corev1.Pod, container string, exitCode int32) {
	t.Helper()
	k.change(func() { k.last(string(pod.UID) + "/" + container).ended = true })
	status := k.status(pod, container)
	status.State = corev1.ContainerState{Terminated: &corev1.ContainerStateTerminated{ExitCode: exitCode, ContainerID: status.ContainerID}}
	if exitCode == 0 {
		pod.Status.Phase = corev1.PodSucceeded
	}
	must(t, k.world.live.Status().Update(t.Context(), pod))
}

// cut breaks all streams.
func (k *logKubelet) cut() { k.change(func() { k.cuts++ }) }

func (k *logKubelet) change(change func()) {
	k.mutex.Lock()
	defer k.mutex.Unlock()
	change()
	close(k.changed)
	k.changed = make(chan struct{})
}

func (k *logKubelet) last(key string) *logRun { return k.runs[key][len(k.runs[key])-1] }

func (k *logKubelet) status(pod *corev1.Pod, container string) *corev1.ContainerStatus {
	for i := range pod.Status.ContainerStatuses {
		if pod.Status.ContainerStatuses[i].Name == container {
			return &pod.Status.ContainerStatuses[i]
		}
	}
	pod.Status.ContainerStatuses = append(pod.Status.ContainerStatuses, corev1.ContainerStatus{Name: container})
	return &pod.Status.ContainerStatuses[len(pod.Status.ContainerStatuses)-1]
}

// ServeHTTP implements http.Handler.
func (k *logKubelet) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	// The path is /containerLogs/NAMESPACE/POD/CONTAINER.
	parts := strings.Split(r.URL.Path, "/")
	if len(parts) != 5 || parts[1] != "containerLogs" {
		http.NotFound(w, r)
		return
	}
	k.mutex.Lock()
	cuts := k.cuts
	k.mutex.Unlock()
	var pod corev1.Pod
	if err := k.world.live.Get(r.Context(), client.ObjectKey{Namespace: parts[2], Name: parts[3]}, &pod); err != nil {
		http.Error(w, err.Error(), http.StatusNotFound)
		return
	}
	run := k.run(pod.UID, parts[4], r.URL.Query())
	switch {
	case run == nil:
		http.Error(w, "no such run of container "+parts[4], http.StatusBadRequest)
		return
	case run.isLost:
		// A kubelet says so in the log itself.
		_, _ = w.Write([]byte("unable to retrieve container logs"))
		return
	}
	k.stream(w, r, run, cuts)
}

// run returns the run that a request is about.
func (k *logKubelet) run(pod types.UID, container string, query url.Values) *logRun {
	k.mutex.Lock()
	defer k.mutex.Unlock()
	at := len(k.runs[string(pod)+"/"+container]) - 1
	if query.Get("previous") == "true" {
		at--
	}
	if at < 0 {
		return nil
	}
	return k.runs[string(pod)+"/"+container][at]
}

func (k *logKubelet) stream(w http.ResponseWriter, r *http.Request, run *logRun, cuts int) {
	query, out := r.URL.Query(), http.NewResponseController(w)
	sent := k.skipped(run, query.Get("tailLines"))
	k.change(func() { k.asked = append(k.asked, r.URL.RequestURI()) })
	_ = out.Flush()
	for {
		k.mutex.Lock()
		lines, ended, changed, isCut := run.lines[sent:], run.ended, k.changed, k.cuts > cuts
		k.mutex.Unlock()
		for _, text := range lines {
			if stamp, _, _ := strings.Cut(text, " "); isBefore(stamp, query.Get("sinceTime")) {
				continue
			}
			_, _ = w.Write([]byte(text))
		}
		sent += len(lines)
		_ = out.Flush()
		switch {
		case isCut:
			panic(http.ErrAbortHandler) //nolint:forbidigo // this is how a handler breaks its connection
		case ended || query.Get("follow") != "true":
			return
		}
		select {
		case <-changed:
		case <-r.Context().Done():
			return
		}
	}
}

func (k *logKubelet) skipped(run *logRun, tail string) int {
	lines, err := strconv.Atoi(tail)
	if err != nil {
		return 0
	}
	k.mutex.Lock()
	defer k.mutex.Unlock()
	return max(0, len(run.lines)-lines)
}

func isBefore(stamp, since string) bool {
	at, errAt := time.Parse(time.RFC3339Nano, stamp)
	from, errFrom := time.Parse(time.RFC3339, since)
	return errAt == nil && errFrom == nil && at.Before(from)
}

// running is a command that runs while the test goes on.
type running struct {
	out, report watchedBuffer
	stop        context.CancelFunc
	code        chan int
}

// runs starts the command on a namespace.
func (w *world) runs(t *testing.T, namespace string, args ...string) *running {
	t.Helper()
	ctx, stop := context.WithCancel(t.Context())
	r := &running{stop: stop, code: make(chan int, 1)}
	command := newCommand(genericiooptions.IOStreams{In: strings.NewReader(""), Out: &r.out, ErrOut: &r.report})
	command.SetArgs(append(args, "--kubeconfig", w.kubeconfig, "-n", namespace))
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		r.code <- run(ctx, command)
	}()
	t.Cleanup(func() { stop(); <-ended })
	return r
}

// ended waits until the command has ended, and returns its code.
func (r *running) ended(t *testing.T) int {
	t.Helper()
	select {
	case code := <-r.code:
		return code
	case <-t.Context().Done():
	case <-time.After(testkit.Patience):
	}
	t.Fatalf("the command does not end; it printed\n%s\n%s", &r.out, &r.report)
	return 0
}

// watchedBuffer is a buffer that can be waited for.
type watchedBuffer struct {
	mutex   sync.Mutex
	buffer  bytes.Buffer
	changed chan struct{}
}

// Write implements io.Writer.
func (b *watchedBuffer) Write(text []byte) (int, error) {
	b.mutex.Lock()
	defer b.mutex.Unlock()
	if b.changed != nil {
		close(b.changed)
		b.changed = nil
	}
	return b.buffer.Write(text)
}

// String implements fmt.Stringer.
func (b *watchedBuffer) String() string {
	b.mutex.Lock()
	defer b.mutex.Unlock()
	return b.buffer.String()
}

// has waits until a text was printed.
func (b *watchedBuffer) has(t *testing.T, text string) {
	t.Helper()
	for hung := time.After(testkit.Patience); ; {
		b.mutex.Lock()
		if strings.Contains(b.buffer.String(), text) {
			b.mutex.Unlock()
			return
		}
		if b.changed == nil {
			b.changed = make(chan struct{})
		}
		changed := b.changed
		b.mutex.Unlock()
		select {
		case <-changed:
		case <-hung:
			t.Fatalf("%q is not printed, but %s", text, b)
		}
	}
}
