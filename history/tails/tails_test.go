// Copyright The DI Orchestrator Authors.
// SPDX-License-Identifier: Apache-2.0

package tails_test

import (
	"context"
	"fmt"
	"net/http"
	"net/http/httptest"
	"os"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/go-logr/logr/testr"
	. "github.com/onsi/gomega"
	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/testutil"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	corev1client "k8s.io/client-go/kubernetes/typed/core/v1"
	"k8s.io/client-go/rest"
	testingclock "k8s.io/utils/clock/testing"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"opendilab.org/di-orchestrator/apis/v2alpha1"
	"opendilab.org/di-orchestrator/history/record"
	"opendilab.org/di-orchestrator/history/tails"
	"opendilab.org/di-orchestrator/test/testkit"
)

var environment *testkit.API

func TestMain(m *testing.M) { os.Exit(testkit.RunOnAPI(m, &environment)) }

// fixture has a reader, and a kubelet that answers what a test says.
type fixture struct {
	*WithT
	t         *testing.T
	api       client.Client
	namespace string
	node      string
	clock     *testingclock.FakeClock
	reader    *tails.Reader
	registry  *prometheus.Registry

	mutex sync.Mutex
	// logs are those by container, with /previous for the run before. A missing one is an error of the kubelet.
	logs  map[string]string
	asked int
	most  int
	now   int
	// hold makes requests wait.
	hold chan struct{}
}

const jobUID = types.UID("0f8fad5b-d9cb-469f-a165-70867728950e")

func setUp(t *testing.T, redact ...string) *fixture {
	t.Helper()
	f := &fixture{WithT: NewWithT(t), t: t, logs: map[string]string{}, clock: testingclock.NewFakeClock(time.Now()), registry: prometheus.NewPedanticRegistry()}
	f.SetDefaultEventuallyTimeout(testkit.Patience)
	quick := rest.CopyConfig(environment.Config)
	quick.QPS = -1
	var err error
	f.api, err = client.New(quick, client.Options{})
	f.Expect(err).NotTo(HaveOccurred())
	namespace := &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{GenerateName: "tails-"}}
	f.Expect(f.api.Create(t.Context(), namespace)).To(Succeed())
	f.namespace = namespace.Name
	kubelet := httptest.NewTLSServer(f)
	t.Cleanup(kubelet.Close)
	f.node, err = testkit.CreateNode(t.Context(), f.api, kubelet)
	f.Expect(err).NotTo(HaveOccurred())
	pods, err := corev1client.NewForConfig(quick)
	f.Expect(err).NotTo(HaveOccurred())
	metrics, err := tails.NewMetrics(f.registry)
	f.Expect(err).NotTo(HaveOccurred())
	redaction, err := record.NewRedaction(redact)
	f.Expect(err).NotTo(HaveOccurred())
	f.reader = tails.NewReader(tails.Options{Pods: pods, Redact: redaction, Metrics: metrics, Clock: f.clock, Log: testr.New(t)})
	return f
}

func (f *fixture) start() {
	ctx, cancel := context.WithCancel(f.t.Context())
	stopped := make(chan error, 1)
	go func() { stopped <- f.reader.Start(ctx) }()
	f.t.Cleanup(func() {
		cancel()
		f.Eventually(stopped, testkit.Patience).Should(Receive(BeNil()))
	})
}

// ServeHTTP implements the kubelet. The path is /containerLogs/NAMESPACE/POD/CONTAINER.
func (f *fixture) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	f.mutex.Lock()
	f.asked++
	f.now++
	f.most = max(f.most, f.now)
	hold := f.hold
	f.mutex.Unlock()
	if hold != nil {
		<-hold
	}
	f.mutex.Lock()
	defer f.mutex.Unlock()
	f.now--
	name := strings.Split(r.URL.Path, "/")[4]
	if r.URL.Query().Get("previous") == "true" {
		name += "/previous"
	}
	log, exists := f.logs[name]
	if !exists {
		http.Error(w, "no such container", http.StatusInternalServerError)
		return
	}
	count, _ := strconv.Atoi(r.URL.Query().Get("tailLines"))
	lines := strings.SplitAfter(log, "\n")
	if last := len(lines) - 1; lines[last] == "" {
		lines = lines[:last]
	}
	log = strings.Join(lines[max(0, len(lines)-count):], "")
	if limit, _ := strconv.Atoi(r.URL.Query().Get("limitBytes")); len(log) > limit {
		log = log[:limit]
	}
	_, _ = w.Write([]byte(log))
}

// write sets the log of a container.
func (f *fixture) write(container, text string) {
	f.mutex.Lock()
	defer f.mutex.Unlock()
	f.logs[container] = text
}

func (f *fixture) requests() int {
	f.mutex.Lock()
	defer f.mutex.Unlock()
	return f.asked
}

func (f *fixture) pod(name string, statuses ...corev1.ContainerStatus) *corev1.Pod {
	f.t.Helper()
	pod := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: f.namespace, Name: name, OwnerReferences: []metav1.OwnerReference{
		*metav1.NewControllerRef(&metav1.ObjectMeta{Name: "ppo", UID: jobUID}, v2alpha1.GroupVersion.WithKind("DIJob")),
	}}}
	pod.Spec.NodeName = f.node
	pod.Spec.Containers = []corev1.Container{{Name: "main", Image: "ding:2"}, {Name: "sidecar", Image: "ding:2"}}
	f.Expect(f.api.Create(f.t.Context(), pod)).To(Succeed())
	f.setStatus(pod, statuses...)
	return pod
}

func (f *fixture) setStatus(pod *corev1.Pod, statuses ...corev1.ContainerStatus) {
	f.t.Helper()
	pod.Status.Phase, pod.Status.ContainerStatuses = corev1.PodRunning, statuses
	f.Expect(f.api.Status().Update(f.t.Context(), pod)).To(Succeed())
}

func ended(code int32, reason string) *corev1.ContainerStateTerminated {
	return &corev1.ContainerStateTerminated{ExitCode: code, Reason: reason, FinishedAt: metav1.Unix(1_000, 0)}
}

func failed(code int32, reason string) corev1.ContainerStatus {
	return corev1.ContainerStatus{Name: "main", State: corev1.ContainerState{Terminated: ended(code, reason)}}
}

// take waits for so many tails, while the clock runs.
func (f *fixture) take(count int) []record.Tail {
	f.t.Helper()
	var all []record.Tail
	f.Eventually(func() int {
		f.clock.Step(time.Second)
		for _, change := range f.reader.Take() {
			f.Expect(change).To(And(HaveField("UID", string(jobUID)), HaveField("Job", BeNil())))
			all = append(all, change.Tails...)
		}
		return len(all)
	}).Should(BeNumerically(">=", count))
	f.Expect(all).To(HaveLen(count))
	return all
}

func TestTheLastLinesOfAContainerThatFailedAreKeptWithTheirLineEnds(t *testing.T) {
	f := setUp(t, `token=\w+`, `\b`)
	f.write("main", "loading token=hunter2\r\nTraceback\n  killed")
	f.start()
	pod := f.pod("ppo-0", failed(1, "Error"), corev1.ContainerStatus{Name: "sidecar", State: corev1.ContainerState{Terminated: ended(0, "Completed")}})
	f.reader.Observe(pod)
	f.reader.Observe(pod)
	f.Expect(f.take(1)[0]).To(Equal(record.Tail{
		PodUID: string(pod.UID), Pod: "ppo-0", Container: "main", Ended: time.Unix(1_000, 0).UTC(), ExitCode: 1, Reason: "Error",
		Text: "loading [redacted]\r\nTraceback\n  killed",
	}))
	f.reader.Observe(pod)
	f.Expect(f.requests()).To(Equal(1))
}

func TestEachRunOfAContainerThatRestartsHasItsTail(t *testing.T) {
	f := setUp(t)
	f.write("main", "second\n")
	f.write("main/previous", "first\n")
	f.start()
	again := corev1.ContainerStatus{
		Name: "main", RestartCount: 1, State: corev1.ContainerState{Terminated: ended(137, "OOMKilled")},
		LastTerminationState: corev1.ContainerState{Terminated: ended(1, "Error")},
	}
	pod := f.pod("ppo-0", again)
	f.reader.Observe(pod)
	texts := map[int32]string{}
	for _, tail := range f.take(2) {
		texts[tail.Restarts] = tail.Text
	}
	f.Expect(texts).To(Equal(map[int32]string{0: "first\n", 1: "second\n"}))
	// The count of restarts grows with the next run: this is the same end.
	waiting := corev1.ContainerStatus{
		Name: "main", RestartCount: 1, State: corev1.ContainerState{Waiting: &corev1.ContainerStateWaiting{Reason: "CrashLoopBackOff"}},
		LastTerminationState: corev1.ContainerState{Terminated: ended(137, "OOMKilled")},
	}
	f.setStatus(pod, waiting)
	f.reader.Observe(pod)
	f.Expect(f.requests()).To(Equal(2))
}

func TestALogOfAnotherRunOrPodIsNotTaken(t *testing.T) {
	f := setUp(t)
	f.write("main", "the next run\n")
	f.write("main/previous", "the failed run\n")
	// What was observed is behind what there is.
	restarted := f.pod("restarted", failed(1, "Error"))
	stale := restarted.DeepCopy()
	f.setStatus(restarted, corev1.ContainerStatus{
		Name: "main", RestartCount: 1, State: corev1.ContainerState{Running: &corev1.ContainerStateRunning{}},
		LastTerminationState: corev1.ContainerState{Terminated: ended(1, "Error")},
	})
	recreated := f.pod("recreated", failed(1, "Error"))
	former := recreated.DeepCopy()
	former.UID = "former"
	f.start()
	f.reader.Observe(former)
	f.Expect(f.take(1)[0].Text).To(ContainSubstring("this log could not be read"))
	f.reader.Observe(stale)
	f.Eventually(func() bool {
		f.clock.Step(time.Second)
		return testutil.CollectAndCount(f.registry) > 0 && f.requests() >= 3
	}).Should(BeTrue())
	f.Expect(f.take(1)[0].Text).To(Equal("the failed run\n"))
}

func TestALongLogIsTruncatedAtItsStart(t *testing.T) {
	f := setUp(t)
	f.write("main", strings.Repeat(strings.Repeat("x", 5_000)+"\n", 600)+"the end\n")
	f.start()
	f.reader.Observe(f.pod("ppo-0", failed(1, "Error")))
	tail := f.take(1)[0]
	f.Expect(tail.Truncated).To(BeTrue())
	f.Expect(len(tail.Text)).To(BeNumerically("<=", record.MaxTail))
	f.Expect(tail.Text).To(HaveSuffix("x\nthe end\n"))
}

func TestAKubeletThatFailsIsAskedAgainAndThenGivenUp(t *testing.T) {
	f := setUp(t)
	f.start()
	f.reader.Observe(f.pod("ppo-0", failed(1, "Error")))
	tail := f.take(1)[0]
	f.Expect(f.requests()).To(Equal(4))
	f.Expect(tail.Text).To(ContainSubstring("this log could not be read"))
	f.Expect(tail.Truncated).To(BeTrue())
	f.Expect(testutil.GatherAndCompare(f.registry, strings.NewReader(`
# HELP di_orchestrator_history_tails_total Last lines of containers that ended badly, by result: read, or lost because their pod or its kubelet was gone.
# TYPE di_orchestrator_history_tails_total counter
di_orchestrator_history_tails_total{result="lost"} 1
di_orchestrator_history_tails_total{result="read"} 0
`))).To(Succeed())
}

func TestFewLogsAreReadAtATimeAndABoundedNumberOfAJob(t *testing.T) {
	f := setUp(t)
	f.write("main", "failed\n")
	f.hold = make(chan struct{})
	f.start()
	for i := range record.MaxTails + 6 {
		f.reader.Observe(f.pod(fmt.Sprintf("ppo-%d", i), failed(1, "Error")))
	}
	f.Eventually(f.requests).Should(Equal(4))
	close(f.hold)
	f.take(record.MaxTails)
	f.Expect(f.most).To(Equal(4))
	f.Expect(f.requests()).To(Equal(record.MaxTails))
}

func TestAPodThatIsStoppedHasNoTail(t *testing.T) {
	f := setUp(t)
	f.write("main", "out of memory\n")
	f.start()
	for name, status := range map[string]corev1.ContainerStatus{"stopped": failed(143, "Error"), "killed": failed(137, "Error"), "full": failed(137, "OOMKilled")} {
		pod := f.pod(name, status)
		now := metav1.Now()
		pod.DeletionTimestamp = &now
		f.reader.Observe(pod)
	}
	f.Expect(f.take(1)[0].Pod).To(Equal("full"))
}
