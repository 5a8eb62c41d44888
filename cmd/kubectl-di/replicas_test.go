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
	"opendilab.org/di-orchestrator/cmd/kubectl-di/internal/exit"
	"opendilab.org/di-orchestrator/internal/names"
)

var suffix = regexp.MustCompile(`-(collector|learner|aggregator)-[a-z0-9]{5}\b`)

// plain puts fixed texts for what is random in a text.
func plain(text, namespace string) string {
	return strings.ReplaceAll(suffix.ReplaceAllString(text, "-$1-*"), namespace, "NS")
}

func TestReplicasAreAddedAsTheyAreAskedFor(t *testing.T) {
	t.Parallel()
	w := theWorld(t)
	ns := w.namespace(t)
	job := w.trainer(t, ns, "cartpole")
	got := w.did(t, ns, "add", "collectors", "cartpole", "--replicas", "2", "--cpus", "500m", "--memory", "1Gi")
	want := "job NS/cartpole: 2 collectors will come\n  cartpole-collector-*.NS:22270\n  cartpole-collector-*.NS:22270\n"
	if diff := cmp.Diff(want, plain(got, ns)); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
	members := w.members(t, job, v2alpha1.TaskTypeCollector)
	if len(members) != 2 || members[0].Resources.CPUs.String() != "500m" || members[1].Resources.Memory.String() != "1Gi" ||
		members[0].Resources.GPUs != nil {
		t.Errorf("the members became %+v", members)
	}
	for _, member := range members {
		if !strings.Contains(got, member.PodName+"."+ns) {
			t.Errorf("%s is not in %s", member.PodName, got)
		}
	}

	// One by default, by the name of the coordinator, and by that of the kind.
	w.did(t, ns, "add", "learner", "--coordinator-name", "cartpole-coordinator")
	w.did(t, ns, "add", "learner", "dijob/cartpole")
	if members := w.members(t, job, v2alpha1.TaskTypeLearner); len(members) != 2 || members[0].Resources.CPUs != nil {
		t.Errorf("the learners became %+v", members)
	}
}

func TestALearnerOfSeveralGPUsIsAddedAsAnAggregator(t *testing.T) {
	t.Parallel()
	w := theWorld(t)
	ns := w.namespace(t)
	job := w.trainer(t, ns, "cartpole")
	got := w.did(t, ns, "add", "learner", "cartpole", "--gpus", "10")
	if want := "job NS/cartpole: 1 learner will come\n  cartpole-aggregator-*.NS:22270\n"; plain(got, ns) != want {
		t.Errorf("printed %s", got)
	}
	if members := w.members(t, job, v2alpha1.TaskTypeLearner); len(members) != 1 || !slices.Equal(members[0].DDPGPUs, []int32{8, 2}) {
		t.Errorf("the learners became %+v", members)
	}
}

func TestReplicasAreDeletedAsManyAsThereAre(t *testing.T) {
	t.Parallel()
	w := theWorld(t)
	ns := w.namespace(t)
	job := w.trainer(t, ns, "cartpole")
	w.did(t, ns, "add", "collector", "cartpole", "--replicas", "3")
	first := w.members(t, job, v2alpha1.TaskTypeCollector)[0]
	got := w.did(t, ns, "delete", "collector", "cartpole", "--replicas", "2")
	if want := "job NS/cartpole: 2 collectors will go\n  cartpole-collector-*.NS:22270\n  cartpole-collector-*.NS:22270\n"; plain(got, ns) != want {
		t.Errorf("printed %s", got)
	}
	if left := w.members(t, job, v2alpha1.TaskTypeCollector); len(left) != 1 || left[0].PodName != first.PodName {
		t.Errorf("left are %+v, want %s", left, first.PodName)
	}

	fewer := w.di(t, ns, "delete", "collectors", "cartpole", "--replicas", "5")
	if fewer.code != 0 || !strings.Contains(fewer.stdout, first.PodName) ||
		plain(fewer.stderr, ns) != "kubectl-di: 1 of the 5 that were asked for: job NS/cartpole had no more\n" {
		t.Errorf("got %+v", fewer)
	}
	none := w.di(t, ns, "delete", "collector", "cartpole")
	if none.code != exit.Failed || none.stdout != "" || plain(none.stderr, ns) != "kubectl-di: job NS/cartpole has no collector to delete\n" {
		t.Errorf("got %+v", none)
	}
}

func TestReplicasAreReplacedUnderNewNames(t *testing.T) {
	t.Parallel()
	w := theWorld(t)
	ns := w.namespace(t)
	job := w.trainer(t, ns, "cartpole")
	w.did(t, ns, "add", "collector", "cartpole", "--replicas", "2")
	w.did(t, ns, "add", "learner", "cartpole")
	before := w.members(t, job, v2alpha1.TaskTypeCollector)
	learner := w.members(t, job, v2alpha1.TaskTypeLearner)[0].PodName
	got := w.did(t, ns, "restart", "cartpole", before[0].PodName, "pod/"+before[0].PodName, learner+"."+ns+":22270")
	want := "job NS/cartpole: 2 replicas will come in place of what was named\n  cartpole-collector-*.NS:22270\n  cartpole-learner-*.NS:22270\n"
	if diff := cmp.Diff(want, plain(got, ns)); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
	if strings.Contains(got, before[0].PodName) || strings.Contains(got, learner) {
		t.Errorf("an old name is in %s", got)
	}
	after := w.members(t, job, v2alpha1.TaskTypeCollector)
	if after[0].FailureReports != 1 || after[1].FailureReports != 0 || w.members(t, job, v2alpha1.TaskTypeLearner)[0].FailureReports != 1 {
		t.Errorf("the members became %+v", after)
	}

	again := w.di(t, ns, "restart", "cartpole", before[0].PodName)
	if again.code != exit.Failed || !strings.Contains(again.stderr, "has no replica of that name now: nothing was done") {
		t.Errorf("got %+v", again)
	}
	for _, foreign := range []string{"cartpole-coordinator", "pong-collector-abcde"} {
		refused := w.di(t, ns, "restart", "cartpole", foreign, before[1].PodName)
		if refused.code != exit.Failed || refused.stderr != `kubectl-di: di-server refuses: "`+foreign+`" is no replica of job "cartpole"`+"\n" {
			t.Errorf("got %+v", refused)
		}
	}
	if diff := cmp.Diff(after, w.members(t, job, v2alpha1.TaskTypeCollector)); diff != "" {
		t.Errorf("what was refused was done (-before +after):\n%s", diff)
	}
}

func TestWhatIsAnsweredIsPrintedAsJSON(t *testing.T) {
	t.Parallel()
	w := theWorld(t)
	ns := w.namespace(t)
	w.trainer(t, ns, "cartpole")
	var got struct {
		Namespace, Coordinator string
		Collectors, Learners   []string
	}
	must(t, json.Unmarshal([]byte(w.did(t, ns, "add", "collector", "cartpole", "-o", "json")), &got))
	if got.Namespace != ns || got.Coordinator != "cartpole-coordinator" || len(got.Collectors) != 1 || got.Learners == nil {
		t.Errorf("got %+v", got)
	}
	none := w.di(t, ns, "delete", "learner", "cartpole", "-o", "json")
	if none.code != exit.Failed || !json.Valid([]byte(none.stdout)) {
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
	w := theWorld(t)
	ns := w.namespace(t)
	job := w.workers(t, ns, "pong", v2alpha1.Task{Type: v2alpha1.TaskTypeCollector})
	wanted := func() int32 {
		must(t, w.live.Get(t.Context(), client.ObjectKeyFromObject(job), job))
		return job.Status.Replicas
	}
	got := w.did(t, ns, "add", "collectors", "pong", "--replicas", "4")
	if want := "job NS/pong: +4 for task \"collector\": 7 replicas wanted in all tasks\n"; plain(got, ns) != want || wanted() != 7 {
		t.Errorf("printed %s, and %d are wanted", got, wanted())
	}
	got = w.did(t, ns, "delete", "collector", "pong")
	if want := "job NS/pong: -1 for task \"collector\": 6 replicas wanted in all tasks\n"; plain(got, ns) != want || wanted() != 6 {
		t.Errorf("printed %s, and %d are wanted", got, wanted())
	}
	job.Spec.Elastic = &v2alpha1.Elastic{MinReplicas: ptr.To[int32](1), MaxReplicas: ptr.To[int32](4)}
	must(t, w.live.Update(t.Context(), job))
	for _, format := range []string{"", "-o=json"} {
		none := w.di(t, ns, strings.Fields("add collector pong "+format)...)
		if want := "job NS/pong: granted are 0 of 1, as task \"collector\" has at most 4 replicas (spec.elastic.maxReplicas): " +
			"6 replicas wanted in all tasks\n"; none.code != exit.Failed || plain(none.stderr, ns) != "kubectl-di: "+want || (none.stdout == "") != (format == "") {
			t.Errorf("got %+v", none)
		}
	}
	got = w.did(t, ns, "delete", "collector", "pong", "--replicas", "3")
	if !strings.Contains(got, "3 replicas wanted in all tasks\n  the operator keeps task \"collector\" at 1 to 4 replicas") {
		t.Errorf("printed %s", got)
	}
	if wanted() != 3 {
		t.Errorf("%d are wanted", wanted())
	}
	got = w.did(t, ns, "delete", "collector", "pong", "--replicas", "3")
	if want := "job NS/pong: granted are 2 of 3, as task \"collector\" has at least 1 replicas (spec.elastic.minReplicas): " +
		"1 replica wanted in all tasks\n"; plain(got, ns) != want {
		t.Errorf("printed %s", got)
	}
	w.did(t, ns, "add", "collector", "pong", "--replicas", "2")
	must(t, w.live.Get(t.Context(), client.ObjectKeyFromObject(job), job))
	job.Spec.Elastic = nil
	must(t, w.live.Update(t.Context(), job))

	for want, args := range map[string][]string{
		"di-server refuses: replicas: 501 is more than the 500 that one request may ask for":              {"delete", "collector", "pong", "--replicas", "501"},
		"--cpus: job NS/pong is worker-led: its replicas get what the template of their task says":        {"add", "collector", "pong", "--cpus", "1"},
		`resizes its task "collector", which is of type collector and not learner: set the number of its`: {"add", "learner", "pong"},
		"job NS/pong is worker-led, and its protocol knows no restart":                                    {"restart", "pong", "pong-collector-0", "pong-collector-1"},
		"kubectl -n NS delete pod pong-collector-0 pong-collector-1":                                      {"restart", "pong", "pong-collector-0", "pong-collector-1"},
	} {
		if got := w.di(t, ns, args...); got.code == 0 || !strings.Contains(plain(got.stderr, ns), want) {
			t.Errorf("%v: got %+v, want %s", args, got, want)
		}
	}
	if wanted() != 3 {
		t.Errorf("what was refused was done: %d are wanted", wanted())
	}
}

func TestAPreemptibleJobsRangeIsMoved(t *testing.T) {
	t.Parallel()
	w := theWorld(t)
	ns := w.namespace(t)
	job := w.workers(t, ns, "pong", v2alpha1.Task{Type: v2alpha1.TaskTypeLearner})
	job.Spec.Preemptible = true
	must(t, w.live.Update(t.Context(), job))
	got := w.did(t, ns, "add", "learner", "pong", "--replicas", "2")
	if want := "job NS/pong: +2 for task \"learner\": the allocator gives it 5 to 5 replicas\n"; plain(got, ns) != want {
		t.Errorf("printed %s", got)
	}
}

func TestWhatCannotBeDoneIsRefused(t *testing.T) {
	t.Parallel()
	w := theWorld(t)
	ns := w.namespace(t)
	running := w.trainer(t, ns, "running")
	finished := w.trainer(t, ns, "finished")
	w.setStatus(t, finished, func(status *v2alpha1.DIJobStatus) { status.Phase = v2alpha1.JobSucceeded })
	ended := w.job(t, ns, "ended", v2alpha1.LifecycleCoordinatorLed, v2alpha1.Task{Type: v2alpha1.TaskTypeCoordinator})
	w.setStatus(t, ended, func(status *v2alpha1.DIJobStatus) { status.Phase = v2alpha1.JobFailed })
	w.job(t, ns, "new", v2alpha1.LifecycleCoordinatorLed, v2alpha1.Task{Type: v2alpha1.TaskTypeCoordinator})
	suspended := w.job(t, ns, "suspended", v2alpha1.LifecycleWorkerLed, v2alpha1.Task{Type: v2alpha1.TaskTypeCollector})
	suspended.Spec.Suspend = ptr.To(true)
	must(t, w.live.Update(t.Context(), suspended))
	w.job(t, ns, "starting", v2alpha1.LifecycleWorkerLed, v2alpha1.Task{Type: v2alpha1.TaskTypeCollector})
	elsewhere := httptest.NewServer(http.NotFoundHandler())
	t.Cleanup(elsewhere.Close)
	for want, args := range map[string][]string{
		`reading job NS/nope: dijobs.diengine.opendilab.org "nope" not found`:                                                                 {"add", "collector", "nope"},
		"di-server refuses: job NS/finished has finished: Succeeded":                                                                          {"add", "collector", "finished"},
		"kubectl-di: job NS/ended has finished: Failed":                                                                                       {"delete", "collector", "ended"},
		"job NS/new is in phase Pending and has no coordinator yet that could be given replicas: try again when pod new-coordinator is there": {"add", "collector", "new"},
		"job NS/suspended is suspended: resume it first":                                                                                      {"add", "collector", "suspended"},
		"job NS/starting is in phase Pending and none of its pods is there yet":                                                               {"add", "collector", "starting"},
		"di-server refuses: collectors.replicas: 501 is more than the 500 that one request may ask for":                                       {"add", "collector", "running", "--replicas", "501"},
		"di-server refuses: learners.gpus: 5k is more than 4096":                                                                              {"add", "learner", "running", "--gpus", "5000"},
		"answered with status 404 and what is no reply of di-server: \"404 page not found\\n\"":                                               {"add", "collector", "running", "--server", elsewhere.URL},
		"calling again\nkubectl-di: di-server cannot be reached: ":                                                                            {"add", "collector", "running", "--server", "127.0.0.1:1"},
		"--token-file: open /nope: no such file or directory":                                                                                 {"add", "collector", "running", "--token-file", "/nope"},
	} {
		// A flag that is given twice is taken as it was given last.
		before := append([]string{args[0], "--server", w.url, "--kubeconfig", w.kubeconfig, "-n", ns}, args[1:]...)
		got := kubectlDI(t, "", before...)
		if got.code != exit.Failed || got.stdout != "" || !strings.Contains(plain(got.stderr, ns), want) {
			t.Errorf("%v: got %+v, want %s", args, got, want)
		}
	}
	if members := w.members(t, running, v2alpha1.TaskTypeCollector); len(members) > 0 {
		t.Errorf("what was refused was done: %+v", members)
	}
}

// cutter is a proxy that lets calls through to di-server and cuts the
// connections of the first of them before the answer.
type cutter struct {
	*httptest.Server
	mutex sync.Mutex
	cuts  int
	keys  []string
	// callers are on whose behalf the calls were made.
	callers []string
}

func newCutter(t *testing.T, to string, cuts int) *cutter {
	t.Helper()
	target, err := url.Parse(to)
	must(t, err)
	proxy := httputil.NewSingleHostReverseProxy(target)
	c := &cutter{cuts: cuts}
	c.Server = httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		c.mutex.Lock()
		defer c.mutex.Unlock()
		c.keys = append(c.keys, r.Header.Get("Idempotency-Key"))
		c.callers = append(c.callers, r.Header.Get("Di-Caller"))
		if len(c.keys) <= c.cuts {
			proxy.ServeHTTP(httptest.NewRecorder(), r)
			// This ends the connection without an answer.
			panic(http.ErrAbortHandler) //nolint:forbidigo // the one way to do so
		}
		proxy.ServeHTTP(w, r)
	}))
	t.Cleanup(c.Close)
	return c
}

func TestACallIsMadeAgainAndDoneOnce(t *testing.T) {
	t.Parallel()
	w := theWorld(t)
	ns := w.namespace(t)
	job := w.trainer(t, ns, "cartpole")
	cut := newCutter(t, w.url, 2)
	for i, command := range []string{"add", "delete"} {
		cut.keys = nil
		got := kubectlDI(t, "", command, "collector", "cartpole", "--replicas", []string{"3", "1"}[i],
			"--kubeconfig", w.kubeconfig, "-n", ns, "--server", cut.URL)
		if got.code != 0 || strings.Count(got.stderr, "calling again") != 2 {
			t.Errorf("%s: got %+v", command, got)
		}
		if len(cut.keys) != 3 || cut.keys[0] == "" || cut.keys[1] != cut.keys[0] || cut.keys[2] != cut.keys[0] {
			t.Errorf("%s: the keys were %q", command, cut.keys)
		}
		if slices.ContainsFunc(cut.callers, func(caller string) bool { return caller != "user" }) {
			t.Errorf("%s: the callers were %q", command, cut.callers)
		}
		members := w.members(t, job, v2alpha1.TaskTypeCollector)
		if len(members) != 3-i {
			t.Errorf("%s: %d collectors are left", command, len(members))
		}
	}
}

func TestTheSameKeyIsDoneOnce(t *testing.T) {
	t.Parallel()
	w := theWorld(t)
	ns := w.namespace(t)
	job := w.trainer(t, ns, "cartpole")
	cut := newCutter(t, w.url, 5)
	got := kubectlDI(t, "", "add", "collector", "cartpole", "--kubeconfig", w.kubeconfig, "-n", ns, "--server", cut.URL)
	told := regexp.MustCompile(`whether it was done is not known: run the command again within an hour with --idempotency-key (\S+),`).
		FindStringSubmatch(got.stderr)
	if got.code != exit.Failed || told == nil {
		t.Fatalf("got %+v", got)
	}
	w.did(t, ns, "add", "collector", "cartpole", "--idempotency-key", told[1])
	if members := w.members(t, job, v2alpha1.TaskTypeCollector); len(members) != 1 {
		t.Errorf("%d collectors came of one request", len(members))
	}
	other := w.di(t, ns, "add", "learner", "cartpole", "--idempotency-key", told[1])
	if other.code != exit.Failed || !strings.Contains(other.stderr, "the Idempotency-Key was used for another request") {
		t.Errorf("got %+v", other)
	}
}

func TestACallForAWorkerLedJobIsMadeAgainAndDoneOnce(t *testing.T) {
	t.Parallel()
	w := theWorld(t)
	ns := w.namespace(t)
	job := w.workers(t, ns, "pong", v2alpha1.Task{Type: v2alpha1.TaskTypeCollector})
	cut := newCutter(t, w.url, 2)
	for _, by := range []struct {
		command string
		want    int32
	}{{"add", 5}, {"delete", 3}} {
		cut.keys = nil
		got := kubectlDI(t, "", by.command, "collector", "pong", "--replicas", "2", "--kubeconfig", w.kubeconfig, "-n", ns, "--server", cut.URL)
		if got.code != 0 || strings.Count(got.stderr, "calling again") != 2 {
			t.Errorf("%s: got %+v", by.command, got)
		}
		must(t, w.live.Get(t.Context(), client.ObjectKeyFromObject(job), job))
		if len(cut.keys) != 3 || job.Status.Replicas != by.want {
			t.Errorf("%s: %d calls came of one, and %d replicas are wanted", by.command, len(cut.keys), job.Status.Replicas)
		}
	}

	// Two commands are two requests, however alike.
	w.did(t, ns, "add", "collector", "pong")
	w.did(t, ns, "add", "collector", "pong")
	must(t, w.live.Get(t.Context(), client.ObjectKeyFromObject(job), job))
	if job.Status.Replicas != 5 {
		t.Errorf("%d replicas are wanted", job.Status.Replicas)
	}
	never := kubectlDI(t, "", "add", "collector", "pong", "--kubeconfig", w.kubeconfig, "-n", ns, "--server", "127.0.0.1:1")
	if strings.Contains(never.stderr, "whether it was done") || strings.Count(never.stderr, "calling again") != 4 ||
		never.code != exit.Failed || never.stdout != "" {
		t.Errorf("got %+v", never)
	}
}

func TestNamesAreCompleted(t *testing.T) {
	t.Parallel()
	w := theWorld(t)
	ns := w.namespace(t)
	job := w.trainer(t, ns, "cartpole")
	pod := "cartpole-collector-abcde"
	w.pod(t, job, pod, names.ReplicaLabels("cartpole", names.ReplicaTypeCollector, pod))
	w.workers(t, ns, "pong", v2alpha1.Task{Type: v2alpha1.TaskTypeCollector})
	for want, args := range map[string][]string{
		"collector\nlearner\n:4\n": {"add", "--"},
		"cartpole\npong\n:4\n":     {"delete", "--", "learner"},
		pod + "\n:4\n":             {"restart", "--", "cartpole"},
	} {
		at := slices.Index(args, "--")
		line := append(append(append([]string{"__complete"}, args[:at]...), "--kubeconfig", w.kubeconfig, "-n", ns), args[at+1:]...)
		if got := kubectlDI(t, "", append(line, "")...); got.stdout != want {
			t.Errorf("%v: got %+v, want %s", args, got, want)
		}
	}
}

// TestAReadyPodOfTheServiceIsLookedFor goes as far as it can where the pod is on
// no node.
func TestAReadyPodOfTheServiceIsLookedFor(t *testing.T) {
	t.Parallel()
	w := theWorld(t)
	ns := w.namespace(t)
	w.trainer(t, ns, "cartpole")
	add := func(args ...string) string {
		t.Helper()
		args = append([]string{"add", "collector", "cartpole", "--kubeconfig", w.kubeconfig, "-n", ns, "--server-namespace", ns}, args...)
		got := kubectlDI(t, "", args...)
		if got.code != exit.Failed || got.stdout != "" {
			t.Errorf("got %+v", got)
		}
		return plain(got.stderr, ns)
	}
	if got := add(); !strings.Contains(got, `looking for di-server by service NS/di-server (--server-namespace, --server-service): services "di-server" not found`) {
		t.Errorf("got %s", got)
	}
	must(t, w.live.Create(t.Context(), &corev1.Service{
		ObjectMeta: metav1.ObjectMeta{Namespace: ns, Name: "ours"},
		Spec: corev1.ServiceSpec{
			Selector: map[string]string{"control-plane": "di-server"}, Ports: []corev1.ServicePort{{Port: 8080}},
		},
	}))
	pod := &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{Namespace: ns, Name: "server", Labels: map[string]string{"control-plane": "di-server"}},
		Spec:       corev1.PodSpec{Containers: []corev1.Container{{Name: "server", Image: "di"}}},
	}
	must(t, w.live.Create(t.Context(), pod))
	if got := add("--server-service", "ours"); !strings.Contains(got, "service NS/ours has no ready pod: is di-server up?") {
		t.Errorf("got %s", got)
	}
	pod.Status.Conditions = []corev1.PodCondition{{Type: corev1.PodReady, Status: corev1.ConditionTrue}}
	must(t, w.live.Status().Update(t.Context(), pod))
	got := add("--server-service", "ours")
	if !strings.Contains(got, "forwarding a port to pod NS/server, which is a di-server: ") || !strings.Contains(got, "does not have a host assigned") {
		t.Errorf("got %s", got)
	}
}
