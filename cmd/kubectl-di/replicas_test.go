// Copyright The DI Orchestrator Authors.
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"encoding/json"
	"net/http"
	"net/http/httptest"
	"net/http/httputil"
	"net/url"
	"regexp"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"opendilab.org/di-orchestrator/apis/v2alpha1"
	"opendilab.org/di-orchestrator/cmd/kubectl-di/internal/cli"
	"opendilab.org/di-orchestrator/test/testkit/expect"
	"opendilab.org/di-orchestrator/test/testkit/pods"
)

var suffix = regexp.MustCompile(`-(collector|learner|aggregator)-[a-z0-9]{5}\b`)

// plain replaces random parts of a text with fixed ones.
func plain(text, namespace string) string {
	return strings.ReplaceAll(suffix.ReplaceAllString(text, "-$1-*"), namespace, "NS")
}

// step is a command with di-server's URL, and its expected output.
type step struct {
	args           string
	code           int
	stdout, stderr string
}

// steps runs commands in sequence.
func (w *world) steps(t *testing.T, namespace string, steps ...step) {
	t.Helper()
	for _, step := range steps {
		got := w.di(t, namespace, strings.Fields(step.args)...)
		got.stdout, got.stderr = plain(got.stdout, namespace), plain(got.stderr, namespace)
		if diff := cmp.Diff(ran{step.stdout, step.stderr, step.code}, got, cmp.AllowUnexported(ran{})); diff != "" {
			t.Errorf("%s (-want +got):\n%s", step.args, diff)
		}
	}
}

func TestReplicasOfACoordinatorLedJobAreAddedAndDeleted(t *testing.T) {
	t.Parallel()
	w, ns := inNamespace(t)
	job := w.trainer(t, ns, "cartpole")
	const one = "  cartpole-collector-*.NS:22270\n"
	got := w.did(t, ns, "add", "collectors", "cartpole", "--replicas", "2", "--cpus", "500m", "--memory", "1Gi")
	if want := "job NS/cartpole: 2 collectors will come\n" + one + one; plain(got, ns) != want {
		t.Errorf("printed %s", got)
	}
	members := w.members(t, job, v2alpha1.TaskTypeCollector)
	if len(members) != 2 || members[0].Resources.CPUs.String() != "500m" || members[1].Resources.Memory.String() != "1Gi" ||
		members[0].Resources.GPUs != nil || !strings.Contains(got, members[0].PodName+"."+ns) || !strings.Contains(got, members[1].PodName+"."+ns) {
		t.Errorf("the members became %+v of %s", members, got)
	}
	// One by default, by the name of the coordinator, and by the name of the kind. Several GPUs
	// need an aggregator.
	w.steps(t, ns,
		step{args: "add learner --coordinator-name cartpole-coordinator", stdout: "job NS/cartpole: 1 learner will come\n  cartpole-learner-*.NS:22270\n"},
		step{args: "add learner dijob/cartpole --gpus 10", stdout: "job NS/cartpole: 1 learner will come\n  cartpole-aggregator-*.NS:22270\n"},
		step{args: "add collector cartpole", stdout: "job NS/cartpole: 1 collector will come\n" + one},
		step{args: "delete collector cartpole --replicas 2", stdout: "job NS/cartpole: 2 collectors will go\n" + one + one})
	if learners := w.members(t, job, v2alpha1.TaskTypeLearner); len(learners) != 2 || learners[0].Resources.CPUs != nil || !slices.Equal(learners[1].DDPGPUs, []int32{8, 2}) {
		t.Errorf("the learners became %+v", learners)
	}
	if left := w.members(t, job, v2alpha1.TaskTypeCollector); len(left) != 1 || left[0].PodName != members[0].PodName {
		t.Errorf("left are %+v, want %s", left, members[0].PodName)
	}
	w.steps(t, ns,
		step{
			args: "delete collectors cartpole --replicas 5", stdout: "job NS/cartpole: 1 collector will go\n" + one,
			stderr: "kubectl-di: 1 of the 5 that were asked for: job NS/cartpole had no more\n",
		},
		step{args: "delete collector cartpole", code: cli.Failed, stderr: "kubectl-di: job NS/cartpole has no collector to delete\n"})
}

func TestReplicasAreReplacedUnderNewNames(t *testing.T) {
	t.Parallel()
	w, ns := inNamespace(t)
	job := w.trainer(t, ns, "cartpole")
	w.did(t, ns, "add", "collector", "cartpole", "--replicas", "2")
	w.did(t, ns, "add", "learner", "cartpole")
	before := w.members(t, job, v2alpha1.TaskTypeCollector)
	learner := w.members(t, job, v2alpha1.TaskTypeLearner)[0].PodName
	got := w.did(t, ns, "restart", "cartpole", before[0].PodName, "pod/"+before[0].PodName, learner+"."+ns+":22270")
	want := "job NS/cartpole: 2 replicas will come in place of what was named\n  cartpole-collector-*.NS:22270\n  cartpole-learner-*.NS:22270\n"
	if plain(got, ns) != want || strings.Contains(got, before[0].PodName) || strings.Contains(got, learner) {
		t.Errorf("printed %s", got)
	}
	after := w.members(t, job, v2alpha1.TaskTypeCollector)
	if after[0].FailureReports != 1 || after[1].FailureReports != 0 || w.members(t, job, v2alpha1.TaskTypeLearner)[0].FailureReports != 1 {
		t.Errorf("the members became %+v", after)
	}
	w.steps(t, ns, step{args: "restart cartpole " + before[0].PodName, code: cli.Failed, stderr: "kubectl-di: job NS/cartpole " +
		"has no replica of that name now: nothing was done. It may have been replaced or deleted already\n"})
	for _, foreign := range []string{"cartpole-coordinator", "pong-worker-abcde"} {
		w.steps(t, ns, step{
			args: "restart cartpole " + foreign + " " + before[1].PodName, code: cli.Failed,
			stderr: `kubectl-di: di-server refuses: "` + foreign + `" is no replica of job "cartpole"` + "\n",
		})
	}
	if diff := cmp.Diff(after, w.members(t, job, v2alpha1.TaskTypeCollector)); diff != "" {
		t.Errorf("what was refused was done (-before +after):\n%s", diff)
	}
}

func TestWhatIsAnsweredIsPrintedAsJSON(t *testing.T) {
	t.Parallel()
	w, ns := inNamespace(t)
	w.trainer(t, ns, "cartpole")
	var got struct {
		Namespace, Coordinator string
		Collectors, Learners   []string
	}
	expect.NoError(t, json.Unmarshal([]byte(w.did(t, ns, "add", "collector", "cartpole", "-o", "json")), &got))
	if got.Namespace != ns || got.Coordinator != "cartpole-coordinator" || len(got.Collectors) != 1 || got.Learners == nil {
		t.Errorf("got %+v", got)
	}
	none := w.di(t, ns, "delete", "learner", "cartpole", "-o", "json")
	if none.code != cli.Failed || !json.Valid([]byte(none.stdout)) {
		t.Errorf("got %+v", none)
	}

	w.workers(t, ns, "pong", v2alpha1.Task{Type: v2alpha1.TaskTypeCollector})
	if got := plain(w.did(t, ns, "add", "collector", "pong", "-o", "json"), ns); got !=
		"{\n  \"namespace\": \"NS\",\n  \"job\": \"pong\",\n  \"task\": \"collector\",\n  \"replicas\": 4\n}\n" {
		t.Errorf("printed %s", got)
	}
}

func TestAWorkerLedJobsElasticTaskIsResized(t *testing.T) {
	t.Parallel()
	w, ns := inNamespace(t)
	job := w.workers(t, ns, "pong", v2alpha1.Task{Type: v2alpha1.TaskTypeCollector})
	// resize changes spec.elastic after steps that leave this number of replicas.
	resize := func(desired int32, elastic *v2alpha1.Elastic) {
		t.Helper()
		expect.NoError(t, w.live.Get(t.Context(), client.ObjectKeyFromObject(job), job))
		if job.Status.Replicas != desired {
			t.Errorf("%d replicas are desired, want %d", job.Status.Replicas, desired)
		}
		job.Spec.Elastic = elastic
		expect.NoError(t, w.live.Update(t.Context(), job))
	}
	const titled = "job NS/pong: "
	w.steps(t, ns,
		step{args: "add collectors pong --replicas 4", stdout: titled + "+4 for task \"collector\": 7 replicas desired in all tasks\n"},
		step{args: "delete pong collectors", stdout: titled + "-1 for task \"collector\": 6 replicas desired in all tasks\n"})
	resize(6, &v2alpha1.Elastic{MinReplicas: ptr.To[int32](1), MaxReplicas: ptr.To[int32](4)})
	none := "kubectl-di: " + titled + "granted are 0 of 1, as task \"collector\" has at most 4 replicas (spec.elastic.maxReplicas): 6 replicas desired in all tasks\n"
	if got := w.di(t, ns, "add", "collector", "pong", "-o=json"); got.code != cli.Failed || plain(got.stderr, ns) != none || !json.Valid([]byte(got.stdout)) {
		t.Errorf("got %+v", got)
	}
	w.steps(t, ns,
		step{args: "add collector pong", code: cli.Failed, stderr: none},
		step{args: "delete pong collector --replicas 3", stdout: titled + "-3 for task \"collector\": 3 replicas desired in all tasks\n" +
			"  the operator keeps task \"collector\" at 1 to 4 replicas\n"},
		step{args: "delete collector pong --replicas 3", stdout: titled + "granted are 2 of 3, as task \"collector\" has at least 1 replica " +
			"(spec.elastic.minReplicas): 1 replica desired in all tasks\n"})
	w.did(t, ns, "add", "collector", "pong", "--replicas", "2")
	resize(3, nil)
	for want, args := range map[string]string{
		"di-server refuses: replicas: 501 is more than the 500 that one request may ask for":              "delete collector pong --replicas 501",
		"--cpus: job NS/pong is worker-led: its replicas get the resources of their task's template":      "add collector pong --cpus 1",
		`resizes its task "collector", which is of type collector and not learner: set the number of its`: "add learner pong",
		"job NS/pong is worker-led, and its protocol has no restart":                                      "restart pong pong-collector-0 pong-collector-1",
		"kubectl -n NS delete pod pong-collector-0 pong-collector-1":                                      "restart pong pong-collector-0 pong-collector-1",
	} {
		if got := w.di(t, ns, strings.Fields(args)...); got.code == 0 || !strings.Contains(plain(got.stderr, ns), want) {
			t.Errorf("%v: got %+v, want %s", args, got, want)
		}
	}
	resize(3, nil)
	job = w.workers(t, ns, "ranged", v2alpha1.Task{Type: v2alpha1.TaskTypeLearner})
	job.Spec.Preemptible = true
	expect.NoError(t, w.live.Update(t.Context(), job))
	w.steps(t, ns, step{args: "add learner ranged --replicas 2", stdout: "job NS/ranged: +2 for task \"learner\": the allocator gives it 5 to 5 replicas\n"})
}

func TestWhatCannotBeDoneIsRefused(t *testing.T) {
	t.Parallel()
	w, ns := inNamespace(t)
	running := w.trainer(t, ns, "running")
	finished := w.trainer(t, ns, "finished")
	w.setStatus(t, finished, func(status *v2alpha1.DIJobStatus) { status.Phase = v2alpha1.JobSucceeded })
	ended := w.job(t, ns, "ended", v2alpha1.LifecycleCoordinatorLed, v2alpha1.Task{Type: v2alpha1.TaskTypeCoordinator})
	w.setStatus(t, ended, func(status *v2alpha1.DIJobStatus) { status.Phase = v2alpha1.JobFailed })
	w.job(t, ns, "new", v2alpha1.LifecycleCoordinatorLed, v2alpha1.Task{Type: v2alpha1.TaskTypeCoordinator})
	suspended := w.job(t, ns, "suspended", v2alpha1.LifecycleWorkerLed, v2alpha1.Task{Type: v2alpha1.TaskTypeCollector})
	suspended.Spec.Suspend = ptr.To(true)
	expect.NoError(t, w.live.Update(t.Context(), suspended))
	w.job(t, ns, "starting", v2alpha1.LifecycleWorkerLed, v2alpha1.Task{Type: v2alpha1.TaskTypeCollector})
	elsewhere := httptest.NewServer(http.NotFoundHandler())
	t.Cleanup(elsewhere.Close)
	for want, args := range map[string][]string{
		`reading job NS/nope: dijobs.diengine.opendilab.org "nope" not found`:                                  {"add", "collector", "nope"},
		"di-server refuses: job NS/finished has finished: Succeeded":                                           {"add", "collector", "finished"},
		"kubectl-di: job NS/ended has finished: Failed":                                                        {"delete", "collector", "ended"},
		"job NS/new is in phase Pending and has no coordinator yet: try again when pod new-coordinator exists": {"add", "collector", "new"},
		"job NS/suspended is suspended: resume it first":                                                       {"add", "collector", "suspended"},
		"job NS/starting is in phase Pending and has no pods yet":                                              {"add", "collector", "starting"},
		"di-server refuses: collectors.replicas: 501 is more than the 500 that one request may ask for":        {"add", "collector", "running", "--replicas", "501"},
		"di-server refuses: learners.gpus: 5k is more than 4096":                                               {"add", "learner", "running", "--gpus", "5000"},
		"answered with status 404 and no reply of di-server: \"404 page not found\\n\"":                        {"add", "collector", "running", "--server", elsewhere.URL},
		"calling again\nkubectl-di: di-server cannot be reached: ":                                             {"add", "collector", "running", "--server", "127.0.0.1:1"},
		"--token-file: open /nope: no such file or directory":                                                  {"add", "collector", "running", "--token-file", "/nope"},
	} {
		// The last value of a repeated flag counts.
		got := w.di(t, ns, args...)
		if got.code != cli.Failed || got.stdout != "" || !strings.Contains(plain(got.stderr, ns), want) {
			t.Errorf("%v: got %+v, want %s", args, got, want)
		}
	}
	if members := w.members(t, running, v2alpha1.TaskTypeCollector); len(members) > 0 {
		t.Errorf("what was refused was done: %+v", members)
	}
}

// cutter is a proxy to di-server that forwards all calls and cuts the connections of the first ones
// before the answer.
type cutter struct {
	*httptest.Server
	mutex sync.Mutex
	cuts  int
	keys  []string
	// callers are the identities of the calls.
	callers []string
}

func newCutter(t *testing.T, to string, cuts int) *cutter {
	t.Helper()
	target, err := url.Parse(to)
	expect.NoError(t, err)
	proxy := httputil.NewSingleHostReverseProxy(target)
	c := &cutter{cuts: cuts}
	c.Server = httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		c.mutex.Lock()
		defer c.mutex.Unlock()
		c.keys = append(c.keys, r.Header.Get("Idempotency-Key"))
		c.callers = append(c.callers, r.Header.Get("Di-Caller"))
		if len(c.keys) <= c.cuts {
			proxy.ServeHTTP(httptest.NewRecorder(), r)
			// The panic closes the connection without an answer.
			panic(http.ErrAbortHandler) //nolint:forbidigo // the one way to do so
		}
		proxy.ServeHTTP(w, r)
	}))
	t.Cleanup(c.Close)
	return c
}

func TestACallIsRetriedAndDoneOnce(t *testing.T) {
	t.Parallel()
	w, ns := inNamespace(t)
	trainer, workers := w.trainer(t, ns, "cartpole"), w.workers(t, ns, "pong", v2alpha1.Task{Type: v2alpha1.TaskTypeCollector})
	size := map[string]func() int{
		"cartpole": func() int { return len(w.members(t, trainer, v2alpha1.TaskTypeCollector)) },
		"pong": func() int {
			expect.NoError(t, w.live.Get(t.Context(), client.ObjectKeyFromObject(workers), workers))
			return int(workers.Status.Replicas)
		},
	}
	cut := newCutter(t, w.url, 2)
	for _, tc := range []struct {
		command, job, replicas string
		want                   int
	}{{"add", "cartpole", "3", 3}, {"delete", "cartpole", "1", 2}, {"add", "pong", "2", 5}, {"delete", "pong", "2", 3}} {
		cut.keys = nil
		got := w.run(t, ns, tc.command, "collector", tc.job, "--replicas", tc.replicas, "--server", cut.URL)
		if got.code != 0 || strings.Count(got.stderr, "calling again") != 2 || size[tc.job]() != tc.want {
			t.Errorf("%+v: %d came of it: %+v", tc, size[tc.job](), got)
		}
		if len(cut.keys) != 3 || cut.keys[0] == "" || cut.keys[1] != cut.keys[0] || cut.keys[2] != cut.keys[0] {
			t.Errorf("%+v: the keys were %q", tc, cut.keys)
		}
	}
	if slices.ContainsFunc(cut.callers, func(caller string) bool { return caller != "user" }) {
		t.Errorf("the callers were %q", cut.callers)
	}
	// Two commands are two requests, even if they are equal.
	w.did(t, ns, "add", "collector", "pong")
	w.did(t, ns, "add", "collector", "pong")
	if got := size["pong"](); got != 5 {
		t.Errorf("%d replicas are desired", got)
	}
	never := w.run(t, ns, "add", "collector", "pong", "--server", "127.0.0.1:1")
	if strings.Contains(never.stderr, "whether it was done") || strings.Count(never.stderr, "calling again") != 5 || never.code != cli.Failed || never.stdout != "" {
		t.Errorf("got %+v", never)
	}
}

func TestTheSameKeyIsDoneOnce(t *testing.T) {
	t.Parallel()
	w, ns := inNamespace(t)
	job := w.trainer(t, ns, "cartpole")
	cut := newCutter(t, w.url, 6)
	got := w.run(t, ns, "add", "collector", "cartpole", "--server", cut.URL)
	key := regexp.MustCompile(`whether it was done is not known: run the command again within an hour with --idempotency-key (\S+),`).
		FindStringSubmatch(got.stderr)
	if got.code != cli.Failed || key == nil {
		t.Fatalf("got %+v", got)
	}
	w.did(t, ns, "add", "collector", "cartpole", "--idempotency-key", key[1])
	if members := w.members(t, job, v2alpha1.TaskTypeCollector); len(members) != 1 {
		t.Errorf("%d collectors came of one request", len(members))
	}
	other := w.di(t, ns, "add", "learner", "cartpole", "--idempotency-key", key[1])
	if other.code != cli.Failed || !strings.Contains(other.stderr, "the Idempotency-Key was used for another request") {
		t.Errorf("got %+v", other)
	}
}

// TestAReadyPodOfTheServiceIsLookedFor fails after the pod was found, because the pod has no node.
func TestAReadyPodOfTheServiceIsLookedFor(t *testing.T) {
	t.Parallel()
	w, ns := inNamespace(t)
	w.trainer(t, ns, "cartpole")
	add := func(args ...string) string {
		t.Helper()
		got := w.run(t, ns, append([]string{"add", "collector", "cartpole", "--server-namespace", ns}, args...)...)
		if got.code != cli.Failed || got.stdout != "" {
			t.Errorf("got %+v", got)
		}
		return plain(got.stderr, ns)
	}
	if got := add(); !strings.Contains(got, `looking for di-server (--server-namespace, --server-service): reading service NS/di-server: services "di-server" not found`) {
		t.Errorf("got %s", got)
	}
	expect.NoError(t, w.live.Create(t.Context(), &corev1.Service{
		ObjectMeta: metav1.ObjectMeta{Namespace: ns, Name: "ours"},
		Spec: corev1.ServiceSpec{
			Selector: map[string]string{"control-plane": "di-server"}, Ports: []corev1.ServicePort{{Port: 8080}},
		},
	}))
	pod := &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{Namespace: ns, Name: "server", Labels: map[string]string{"control-plane": "di-server"}},
		Spec:       corev1.PodSpec{Containers: []corev1.Container{{Name: "server", Image: "di"}}},
	}
	expect.NoError(t, w.live.Create(t.Context(), pod))
	if got := add("--server-service", "ours"); !strings.Contains(got, "service NS/ours has no ready pod: is di-server up?") {
		t.Errorf("got %s", got)
	}
	pods.Ready(pod)
	expect.NoError(t, w.live.Status().Update(t.Context(), pod))
	got := add("--server-service", "ours")
	if !strings.Contains(got, "forwarding a port to pod NS/server of di-server (--server calls a URL of it instead): ") || !strings.Contains(got, "does not have a host assigned") {
		t.Errorf("got %s", got)
	}
}

// scalable creates a worker-led job of three collectors, with the webhook's defaults.
func (w *world) scalable(t *testing.T, namespace, name string, change func(*v2alpha1.DIJob)) *v2alpha1.DIJob {
	t.Helper()
	job := w.workers(t, namespace, name, v2alpha1.Task{Type: v2alpha1.TaskTypeCollector})
	job.Spec.Elastic = &v2alpha1.Elastic{Task: "collector", Replicas: ptr.To[int32](3)}
	if change != nil {
		change(job)
	}
	expect.NoError(t, w.live.Update(t.Context(), job))
	return job
}

func TestAJobIsScaledByItsScaleSubresource(t *testing.T) {
	t.Parallel()
	w, ns := inNamespace(t)
	job := w.scalable(t, ns, "pong", func(job *v2alpha1.DIJob) { job.Spec.Elastic.MaxReplicas = ptr.To[int32](6) })
	for _, step := range []struct {
		args           []string
		code           int
		stdout, stderr string
		want           int32
	}{
		{[]string{"--replicas=5"}, 0, "dijob.diengine.opendilab.org/pong scaled\n", "", 5},
		{[]string{"--replicas=5"}, 0, "dijob.diengine.opendilab.org/pong scaled\n", "", 5},
		{[]string{"--replicas=4", "--current-replicas=5", "--task=collector", "-o", "name"}, 0, "dijob.diengine.opendilab.org/pong\n", "", 4},
		{[]string{"--replicas=3", "--current-replicas=5"}, cli.Failed, "", "job NS/pong has 4 replicas of task \"collector\" desired, not 5: nothing was done", 4},
		{[]string{"--replicas=2", "--dry-run=client"}, 0, "dijob.diengine.opendilab.org/pong scaled (dry run)\n", "", 4},
		{[]string{"--replicas=2", "--dry-run=server"}, 0, "dijob.diengine.opendilab.org/pong scaled (server dry run)\n", "", 4},
		{[]string{"--replicas=7", "--dry-run=server"}, cli.Failed, "", "must be at most maxReplicas, which is 6", 4},
		{[]string{"--replicas=7"}, cli.Failed, "", "job NS/pong cannot be scaled to 7: ", 4},
		{[]string{"--replicas=2", "--task=learner"}, cli.Failed, "", "job NS/pong resizes task \"collector\" and not \"learner\"", 4},
		{[]string{"--replicas=-2"}, cli.Usage, "", "--replicas -2: want 0 or more", 4},
		{nil, cli.Usage, "", "COUNT is missing: set the desired number of replicas, also by --replicas", 4},
		{[]string{"5", "--dry-run=server"}, 0, "dijob.diengine.opendilab.org/pong scaled (server dry run)\n", "", 4},
		{[]string{"4"}, 0, "dijob.diengine.opendilab.org/pong scaled\n", "", 4},
		{[]string{"--replicas=2", "-o", "wide"}, cli.Usage, "", "--output \"wide\": want one of json, yaml", 4},
		{[]string{"--replicas=2", "--dry-run=maybe"}, cli.Usage, "", "--dry-run \"maybe\": want one of none, client, server", 4},
		{[]string{"other", "--replicas=2"}, cli.Usage, "", "\"other\": one job at a time", 4},
		{[]string{"3", "--replicas=2"}, cli.Usage, "", "\"3\": --replicas is 2: leave out one of them", 4},
	} {
		got := w.run(t, ns, append([]string{"scale", "dijob/pong"}, step.args...)...)
		if got.code != step.code || plain(got.stdout, ns) != step.stdout || !strings.Contains(plain(got.stderr, ns), step.stderr) {
			t.Errorf("%v: got %+v", step.args, got)
		}
		expect.NoError(t, w.live.Get(t.Context(), client.ObjectKeyFromObject(job), job))
		if *job.Spec.Elastic.Replicas != step.want {
			t.Errorf("%v: the job is to have %d replicas, want %d", step.args, *job.Spec.Elastic.Replicas, step.want)
		}
	}
	var printed v2alpha1.DIJob
	expect.NoError(t, json.Unmarshal([]byte(w.run(t, ns, "scale", "pong", "--replicas=6", "-o", "json").stdout), &printed))
	if printed.Kind != "DIJob" || printed.Name != "pong" || *printed.Spec.Elastic.Replicas != 6 {
		t.Errorf("printed %+v", printed)
	}
	if got := w.run(t, ns, "scale", "pong", "--replicas=6", "-o", "yaml"); !strings.Contains(got.stdout, "\nkind: DIJob\n") {
		t.Errorf("printed %s", got.stdout)
	}
}

func TestWhatCannotBeScaledSaysWhatCanBeDone(t *testing.T) {
	t.Parallel()
	w, ns := inNamespace(t)
	w.trainer(t, ns, "cartpole")
	w.scalable(t, ns, "ranged", func(job *v2alpha1.DIJob) {
		job.Spec.Preemptible = true
		job.Spec.Elastic.MinReplicas, job.Spec.Elastic.MaxReplicas = ptr.To[int32](2), ptr.To[int32](5)
	})
	w.scalable(t, ns, "fixed", func(job *v2alpha1.DIJob) { job.Spec.Preemptible = true })
	w.scalable(t, ns, "open", func(job *v2alpha1.DIJob) {
		job.Spec.Preemptible, job.Spec.Elastic.MaxReplicas = true, ptr.To[int32](5)
	})
	w.workers(t, ns, "unset", v2alpha1.Task{Type: v2alpha1.TaskTypeCollector})
	w.setStatus(t, w.scalable(t, ns, "finished", nil), func(status *v2alpha1.DIJobStatus) { status.Phase = v2alpha1.JobFailed })
	w.setStatus(t, w.scalable(t, ns, "resized", nil), func(status *v2alpha1.DIJobStatus) {
		status.Replicas, status.Scaling = 7, &v2alpha1.ScalingStatus{SpecReplicas: map[string]int32{"collector": 3}, LastReplicas: 7}
	})
	w.job(t, ns, "rigid", v2alpha1.LifecycleWorkerLed, v2alpha1.Task{Type: v2alpha1.TaskTypeLearner}, v2alpha1.Task{Type: v2alpha1.TaskTypeEvaluator})
	for job, want := range map[string]string{
		"nope":     `reading job NS/nope: dijobs.diengine.opendilab.org "nope" not found`,
		"cartpole": "job NS/cartpole is coordinator-led, and its coordinator decides about its replicas: see kubectl di add collector cartpole, and delete",
		"ranged":   "job NS/ranged is preemptible, and the allocator gives task \"collector\" 2 to 5 replicas: move this range by kubectl di add and delete",
		"fixed":    "the allocator gives task \"collector\" 3 to 3 replicas",
		"open":     "the allocator gives task \"collector\" 3 to 5 replicas",
		"unset":    "kubectl -n NS patch dijob unset --type merge -p '{\"spec\":{\"elastic\":{\"replicas\":3}}}'",
		"finished": "job NS/finished has finished: Failed",
		"resized":  "kubectl -n NS patch dijob resized --subresource status --type merge -p '{\"status\":{\"replicas\":3}}'",
		"rigid":    "job NS/rigid has no task that can be resized: name one in spec.elastic.task",
	} {
		got := w.run(t, ns, "scale", job, "--replicas", "3")
		if got.code != cli.Failed || got.stdout != "" || !strings.Contains(plain(got.stderr, ns), want) {
			t.Errorf("%s: got %+v, want %s", job, got, want)
		}
	}
}

func TestScaleTellsHowFarItIs(t *testing.T) {
	t.Parallel()
	w, ns := inNamespace(t)
	job := w.scalable(t, ns, "pong", nil)
	state := func(running int32) {
		expect.NoError(t, w.live.Get(t.Context(), client.ObjectKeyFromObject(job), job))
		w.setStatus(t, job, func(status *v2alpha1.DIJobStatus) {
			status.ObservedGeneration, status.ElasticReplicas = job.Generation+1, 4
			status.TaskStatus = map[string]v2alpha1.TaskStatus{"collector": {corev1.PodRunning: running}}
		})
	}
	state(3)
	got := w.run(t, ns, "scale", "pong", "--replicas=4", "--timeout=1ms")
	if got.code != cli.TimedOut || !strings.Contains(got.stderr, "stopped waiting for job ") || !strings.HasPrefix(got.stdout, "dijob.diengine.opendilab.org/pong scaled\n") {
		t.Errorf("got %+v", got)
	}
	state(4)
	got = w.run(t, ns, "scale", "pong", "--replicas=4", "--wait")
	if diff := cmp.Diff(ran{stdout: "dijob.diengine.opendilab.org/pong scaled\ntask \"collector\": 4 of 4 replicas run\n"}, got, cmp.AllowUnexported(ran{})); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
	got = w.run(t, ns, "scale", "pong", "--replicas=4", "--wait", "-o", "name")
	if got.stdout != "dijob.diengine.opendilab.org/pong\n" || got.stderr != "task \"collector\": 4 of 4 replicas run\n" {
		t.Errorf("got %+v", got)
	}
	expect.NoError(t, w.live.Get(t.Context(), client.ObjectKeyFromObject(job), job))
	job.Spec.Suspend = ptr.To(true)
	expect.NoError(t, w.live.Update(t.Context(), job))
	got = w.run(t, ns, "scale", "pong", "--replicas=4", "--wait")
	if got.code != cli.Failed || !strings.Contains(got.stderr, "is suspended: its replicas are created when it is resumed") {
		t.Errorf("got %+v", got)
	}
}
