// Copyright The DI Orchestrator Authors.
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"fmt"
	"net/http"
	"net/http/httptest"
	"net/url"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"opendilab.org/di-orchestrator/apis/v2alpha1"
	"opendilab.org/di-orchestrator/cmd/kubectl-di/internal/cli"
	"opendilab.org/di-orchestrator/internal/names"
	"opendilab.org/di-orchestrator/test/testkit/expect"
	"opendilab.org/di-orchestrator/test/testkit/jobs"
)

// replica creates a running replica of a coordinator-led job with log lines.
func (k *logKubelet) replica(t *testing.T, role names.ReplicaType, suffix string, lines ...string) *corev1.Pod {
	t.Helper()
	name := names.ReplicaPod(k.job.Name, role, suffix)
	if suffix == "" {
		name = names.CoordinatorPod(k.job.Name)
	}
	pod := k.pod(t, name, names.ReplicaLabels(k.job.Name, role, name), "helper")
	k.start(t, pod, names.Container, lines...)
	k.start(t, pod, "helper", "helps")
	return pod
}

// worker creates a pod of the task learner of a worker-led job.
func (k *logKubelet) worker(t *testing.T, index int32) *corev1.Pod {
	t.Helper()
	name := names.WorkerPod(k.job.Name, "learner", index)
	return k.pod(t, name, names.WorkerLabels(k.job.Name, v2alpha1.TaskTypeLearner, "learner", name))
}

func TestAJobIsFollowedWithTheLogOfItsFirstReplica(t *testing.T) {
	t.Parallel()
	w, ns := inNamespace(t)
	submitted := w.start(t, ns, manifest("pong"), "submit", "-f", "-", "--watch")
	submitted.out.shows(t, "not observed by the operator yet")
	job := &v2alpha1.DIJob{}
	expect.NoError(t, w.live.Get(t.Context(), client.ObjectKey{Namespace: ns, Name: "pong"}, job))
	k := w.newLogKubelet(t, job)
	ranked := map[string]*corev1.Pod{}
	for index, rank := range map[int32]string{0: "1", 1: "0"} {
		name := names.WorkerPod("pong", "collector", index)
		pod := k.pod(t, name, names.WorkerLabels("pong", v2alpha1.TaskTypeCollector, "collector", name))
		pod.Annotations = map[string]string{names.AnnotationRank: rank}
		expect.NoError(t, w.live.Update(t.Context(), pod))
		k.start(t, pod, names.Container, "begins as rank "+rank)
		ranked[rank] = pod
	}
	submitted.out.shows(t, "\n[collector-1] begins as rank 0\n")
	k.write(ranked["1"], names.Container, "is not shown")
	k.write(ranked["0"], names.Container, "loss 3")
	submitted.out.shows(t, "\n[collector-1] loss 3\n")
	w.operated(t, ns, "pong", func(status *v2alpha1.DIJobStatus) { status.Phase = v2alpha1.JobSucceeded })
	submitted.out.shows(t, "job "+ns+"/pong: Succeeded")
	k.write(ranked["0"], names.Container, "the end")
	k.end(t, ranked["0"], names.Container, 0)
	if code := submitted.ended(t); code != 0 || submitted.report.String() != "" {
		t.Errorf("exit code %d, %s", code, submitted.report)
	}
	if out := submitted.out.String(); !strings.HasSuffix(out, "\n[collector-1] the end\n") || strings.Contains(out, "rank 1") || strings.Contains(out, "is not shown") {
		t.Errorf("got %s", out)
	}
}

func TestAJobIsFollowedWithoutTheRightToItsLog(t *testing.T) {
	t.Parallel()
	w, ns := inNamespace(t)
	w.grant(t, ns, user("half"), rule(v2alpha1.GroupName, "dijobs", "create"), rule(v2alpha1.GroupName, "dijobs", "get"), rule(v2alpha1.GroupName, "dijobs", "list"),
		rule(v2alpha1.GroupName, "dijobs", "watch"))
	submitted := w.start(t, ns, manifest("pong"), "submit", "-f", "-", "--watch", "--as", "half")
	submitted.out.shows(t, "job "+ns+"/pong: its log cannot be shown: ")
	w.operated(t, ns, "pong", func(status *v2alpha1.DIJobStatus) { status.Phase = v2alpha1.JobSucceeded })
	if code := submitted.ended(t); code != 0 {
		t.Errorf("exit code %d, %s%s", code, submitted.out, submitted.report)
	}
}

func TestTheLogsOfAllReplicasArePrinted(t *testing.T) {
	t.Parallel()
	w, ns := inNamespace(t)
	job := w.job(t, ns, "cartpole", v2alpha1.LifecycleCoordinatorLed,
		v2alpha1.Task{Type: v2alpha1.TaskTypeCoordinator}, v2alpha1.Task{Type: v2alpha1.TaskTypeCollector}, v2alpha1.Task{Type: v2alpha1.TaskTypeLearner})
	k := w.newLogKubelet(t, job)
	k.replica(t, names.ReplicaTypeAggregator, "xxxxx", "gathers")
	k.replica(t, names.ReplicaTypeDDPLearner, "yyyyy", "learns")
	k.replica(t, names.ReplicaTypeCollector, "bbbbb", "plays", "plays on")
	k.replica(t, names.ReplicaTypeCoordinator, "", "round 1", "round 2")
	waits := names.ReplicaPod("cartpole", names.ReplicaTypeCollector, "ccccc")
	k.pod(t, waits, names.ReplicaLabels("cartpole", names.ReplicaTypeCollector, waits))
	const coordinator, collector = "[coordinator] round 1\n[coordinator] round 2\n", "[collector-bbbbb] plays\n[collector-bbbbb] plays on\n"
	const learner = "[aggregator-xxxxx] gathers\n[ddp-learner-yyyyy] learns\n"
	const waiting = "kubectl-di: collector-ccccc: waiting to start on node NODE\n"
	for name, tc := range map[string]struct {
		args           []string
		stdout, stderr string
	}{
		"all":             {nil, coordinator + collector + learner, waiting},
		"of a task":       {[]string{"--task", "learner"}, learner, ""},
		"of a role":       {[]string{"--task", "ddp-learner", "--task", "coordinator"}, coordinator + "[ddp-learner-yyyyy] learns\n", ""},
		"of a pod":        {[]string{"--pod", "cartpole-collector-bbbbb"}, collector, ""},
		"of a replica":    {[]string{"pod/collector-bbbbb"}, collector, ""},
		"the last":        {[]string{"collector-bbbbb", "--tail", "1"}, "[collector-bbbbb] plays on\n", ""},
		"plain":           {[]string{"--task", "coordinator", "--prefix=false"}, "round 1\nround 2\n", ""},
		"a container":     {[]string{"--task", "coordinator", "-c", "helper"}, "[coordinator] helps\n", ""},
		"all containers":  {[]string{"--task", "coordinator", "--all-containers"}, "[coordinator/di-container] round 1\n[coordinator/di-container] round 2\n[coordinator/helper] helps\n", ""},
		"of no job's run": {[]string{"coordinator", "-p"}, "", "kubectl-di: coordinator: container di-container has not run before\n"},
		"when":            {[]string{"aggregator-xxxxx", "--timestamps"}, "[aggregator-xxxxx] 2026-01-02T03:04:05Z gathers\n", ""},
		"since then":      {[]string{"--since-time", "2026-01-02T03:04:07Z"}, coordinator, waiting},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			got := w.run(t, ns, append([]string{"logs", "cartpole"}, tc.args...)...)
			if diff := cmp.Diff(ran{tc.stdout, strings.ReplaceAll(tc.stderr, "NODE", k.node), 0}, got, cmp.AllowUnexported(ran{})); diff != "" {
				t.Errorf("-want +got:\n%s", diff)
			}
		})
	}
	coloured := w.run(t, ns, "logs", "cartpole", "--task", "coordinator", "--color", "always").stdout
	if strings.Count(coloured, "\x1b[38;5;") != 2 || strings.Count(coloured, "\x1b[0m") != 2 {
		t.Errorf("with colours it is %q", coloured)
	}
}

func TestTheLogOfARecreatedReplicaIsSaidToBeGoneAndWhyItEnded(t *testing.T) {
	t.Parallel()
	w, ns := inNamespace(t)
	two := int32(2)
	job := w.job(t, ns, "crash", v2alpha1.LifecycleWorkerLed, v2alpha1.Task{Type: v2alpha1.TaskTypeLearner, Replicas: &two})
	k := w.newLogKubelet(t, job)
	k.start(t, k.worker(t, 0), names.Container, "again")
	k.start(t, k.worker(t, 1), names.Container, "again")
	w.operated(t, ns, "crash", func(status *v2alpha1.DIJobStatus) {
		status.Restarts = 1
		status.LastFailure = &v2alpha1.LastFailure{Pod: "crash-learner-0", Message: "flag provided but not defined: -learning-rat"}
	})
	const gone = ": this pod was recreated, and the log of the earlier one was deleted with it; a collector of logs keeps it; "
	want := "kubectl-di: learner-0" + gone + "it ended with: flag provided but not defined: -learning-rat\n" +
		"kubectl-di: learner-1" + gone + "the last failure was of pod crash-learner-0: flag provided but not defined: -learning-rat\n"
	if got := w.run(t, ns, "logs", "crash", "--previous"); got != (ran{stderr: want}) {
		t.Errorf("got %+v, want %s", got, want)
	}
}

// TestLogsAreFollowedThroughWhatHappensToPods follows a job while connections break, a container
// restarts, a pod is replaced under the same name, and another pod appears.
func TestLogsAreFollowedThroughWhatHappensToPods(t *testing.T) {
	t.Parallel()
	w, ns := inNamespace(t)
	two := int32(2)
	job := w.job(t, ns, "pong", v2alpha1.LifecycleWorkerLed, v2alpha1.Task{Type: v2alpha1.TaskTypeLearner, Replicas: &two})
	k := w.newLogKubelet(t, job)
	first := k.worker(t, 0)
	k.start(t, first, names.Container, "1", "2", "3")
	command := w.start(t, ns, "", "logs", "pong", "-f")
	command.out.shows(t, "[learner-0] 3\n")

	// A later pod waits, and then runs.
	second := k.worker(t, 1)
	command.report.shows(t, "learner-1: waiting to start on node "+k.node)
	k.start(t, second, names.Container, "one")
	command.out.shows(t, "[learner-1] one\n")

	// Connections break while lines are written.
	for _, text := range []string{"4", "5", "6"} {
		k.cut()
		k.write(first, names.Container, text)
		command.out.shows(t, "[learner-0] "+text+"\n")
	}

	// The container fails after a last line, and restarts.
	k.write(first, names.Container, "last word")
	k.end(t, first, names.Container, 1)
	k.start(t, first, names.Container, "again 1")
	command.out.shows(t, "[learner-0] again 1\n")

	// The other pod is replaced under the same name.
	k.end(t, second, names.Container, 1)
	expect.NoError(t, w.live.Delete(t.Context(), second, client.GracePeriodSeconds(0)))
	second = k.worker(t, 1)
	k.start(t, second, names.Container, "two")
	command.out.shows(t, "[learner-1] two\n")

	k.write(first, names.Container, "done")
	k.end(t, first, names.Container, 0)
	w.setStatus(t, job, func(status *v2alpha1.DIJobStatus) { status.Phase = v2alpha1.JobSucceeded })
	k.write(second, names.Container, "three")
	k.end(t, second, names.Container, 0)
	if code := command.ended(t); code != 0 {
		t.Errorf("exit code %d", code)
	}
	// If the pod's status does not report the restart yet, the last line follows the lines of the
	// next run.
	got := byPrefix(command.out.String())
	slices.Sort(got["[learner-0] "])
	want := map[string][]string{
		"[learner-0] ": {"1", "2", "3", "4", "5", "6", "again 1", "done", "last word"},
		"[learner-1] ": {"one", "two", "three"},
	}
	expect.Equal(t, "the logs", want, got)
}

// byPrefix groups printed lines by replica.
func byPrefix(printed string) map[string][]string {
	found := map[string][]string{}
	for text := range strings.Lines(printed) {
		at := strings.Index(text, "] ") + 2
		found[text[:at]] = append(found[text[:at]], strings.TrimSuffix(text[at:], "\n"))
	}
	return found
}

func TestWhatRanBeforeIsPrinted(t *testing.T) {
	t.Parallel()
	w, ns := inNamespace(t)
	job := w.job(t, ns, "pong", v2alpha1.LifecycleWorkerLed, v2alpha1.Task{Type: v2alpha1.TaskTypeLearner})
	k := w.newLogKubelet(t, job)
	pod := k.worker(t, 0)
	k.start(t, pod, names.Container, "crashes")
	k.end(t, pod, names.Container, 1)
	k.start(t, pod, names.Container, "runs")
	for args, want := range map[string]string{"-p": "[learner-0] crashes\n", "--tail=-1": "[learner-0] runs\n"} {
		if got := w.run(t, ns, "logs", "pong", args); got != (ran{stdout: want}) {
			t.Errorf("%s: got %+v", args, got)
		}
	}
	k.change(func() { k.runs[string(pod.UID)+"/"+names.Container][0].isLost = true })
	if got := w.run(t, ns, "logs", "pong", "-p"); got != (ran{stderr: "kubectl-di: learner-0: unable to retrieve container logs\n"}) {
		t.Errorf("got %+v", got)
	}
	// The first followed line is from the current run.
	command := w.start(t, ns, "", "logs", "pong", "-f", "--tail", "0")
	k.asks(t, "follow=true")
	k.write(pod, names.Container, "continues")
	command.out.shows(t, "continues")
	if got := command.out.String(); got != "[learner-0] continues\n" {
		t.Errorf("got %s", got)
	}
	// The command ends as on Ctrl-C.
	command.stop()
	if code := command.ended(t); code != 0 || command.report.String() != "" {
		t.Errorf("exit code %d: %s", code, command.report)
	}
}

// asks waits for a log request with the given options.
func (k *logKubelet) asks(t *testing.T, how string) {
	t.Helper()
	for {
		k.mutex.Lock()
		asked, changed := slices.ContainsFunc(k.asked, func(one string) bool { return strings.Contains(one, how) }), k.changed
		k.mutex.Unlock()
		if asked {
			return
		}
		<-changed
	}
}

func TestNoMoreLogsAreFollowedThanAllowed(t *testing.T) {
	t.Parallel()
	w, ns := inNamespace(t)
	job := w.job(t, ns, "pong", v2alpha1.LifecycleWorkerLed, v2alpha1.Task{Type: v2alpha1.TaskTypeLearner})
	k := w.newLogKubelet(t, job)
	first, second := k.worker(t, 0), k.worker(t, 1)
	k.start(t, first, names.Container, "one")
	got := w.run(t, ns, "logs", "pong", "-f", "--max-log-requests", "1")
	if got.code != cli.Failed || !strings.Contains(got.stderr, "--max-log-requests 1: the logs of 2 containers would be followed: allow as many") {
		t.Errorf("got %+v", got)
	}

	// A later container waits until a slot is free.
	expect.NoError(t, w.live.Delete(t.Context(), second, client.GracePeriodSeconds(0)))
	command := w.start(t, ns, "", "logs", "pong", "-f", "--max-log-requests", "1")
	command.out.shows(t, "one\n")
	second = k.worker(t, 1)
	k.start(t, second, names.Container, "two")
	command.report.shows(t, "more containers than --max-log-requests 1 would be followed: some wait")
	k.end(t, first, names.Container, 0)
	command.out.shows(t, "[learner-1] two\n")
}

// logKubelet serves the logs of one namespace's pods like a kubelet, and updates the status of the
// pods accordingly.
type logKubelet struct {
	*httptest.Server
	world *world
	job   *v2alpha1.DIJob
	node  string

	mutex sync.Mutex
	// changed is closed and recreated when a log changes.
	changed chan struct{}
	// runs contains the logs of all runs of each container, by pod and container.
	runs map[string][]*logRun
	// now is the time of the next line.
	now time.Time
	// cuts counts how often all streams were broken.
	cuts int
	// asked are the requests for logs.
	asked []string
}

// logRun is the log of one run of a container.
type logRun struct {
	lines []string
	ended bool
	// isLost reports whether the log was deleted.
	isLost bool
}

func (w *world) newLogKubelet(t *testing.T, job *v2alpha1.DIJob) *logKubelet {
	t.Helper()
	k := &logKubelet{
		world: w, job: job, changed: make(chan struct{}), runs: map[string][]*logRun{}, now: time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC),
	}
	k.Server = httptest.NewTLSServer(k)
	t.Cleanup(k.Close)
	k.node = w.kubelet(t, k.Server)
	return k
}

// pod creates a pod of the job on the kubelet's node with waiting containers.
func (k *logKubelet) pod(t *testing.T, name string, labels map[string]string, containers ...string) *corev1.Pod {
	t.Helper()
	pod := &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{
			Namespace: k.job.Namespace, Name: name, Labels: labels,
			OwnerReferences: jobs.Owner(k.job),
		},
		Spec: corev1.PodSpec{NodeName: k.node, ServiceAccountName: account, RestartPolicy: corev1.RestartPolicyOnFailure},
	}
	for _, container := range append([]string{names.Container}, containers...) {
		pod.Spec.Containers = append(pod.Spec.Containers, corev1.Container{Name: container, Image: "di"})
	}
	expect.NoError(t, k.world.live.Create(t.Context(), pod))
	return pod
}

// start restarts a container, and writes lines to its log.
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
	expect.NoError(t, k.world.live.Status().Update(t.Context(), pod))
}

// write writes lines to the log of a container's last run.
func (k *logKubelet) write(pod *corev1.Pod, container string, lines ...string) {
	k.change(func() {
		run := k.last(string(pod.UID) + "/" + container)
		for _, text := range lines {
			run.lines = append(run.lines, k.now.Format(time.RFC3339Nano)+" "+text+"\n")
			k.now = k.now.Add(300 * time.Millisecond)
		}
	})
}

// end ends a container's last run: first its log, then its status.
func (k *logKubelet) end(t *testing.T, pod *corev1.Pod, container string, exitCode int32) {
	t.Helper()
	k.change(func() { k.last(string(pod.UID) + "/" + container).ended = true })
	status := k.status(pod, container)
	status.State = corev1.ContainerState{Terminated: &corev1.ContainerStateTerminated{ExitCode: exitCode, ContainerID: status.ContainerID}}
	if exitCode == 0 {
		pod.Status.Phase = corev1.PodSucceeded
	}
	expect.NoError(t, k.world.live.Status().Update(t.Context(), pod))
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
		// A kubelet reports this error in the log itself.
		_, _ = w.Write([]byte("unable to retrieve container logs"))
		return
	}
	k.stream(w, r, run, cuts)
}

// run returns the run of a request.
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
