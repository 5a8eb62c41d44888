// Copyright The DI Orchestrator Authors.
// SPDX-License-Identifier: Apache-2.0

package watch_test

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/go-logr/logr/testr"
	. "github.com/onsi/gomega"
	"github.com/prometheus/client_golang/prometheus"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	clientgoscheme "k8s.io/client-go/kubernetes/scheme"
	corev1client "k8s.io/client-go/kubernetes/typed/core/v1"
	"k8s.io/utils/clock"
	"sigs.k8s.io/controller-runtime/pkg/cache"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"opendilab.org/di-orchestrator/apis/v2alpha1"
	"opendilab.org/di-orchestrator/history/events"
	"opendilab.org/di-orchestrator/history/record"
	"opendilab.org/di-orchestrator/history/store"
	"opendilab.org/di-orchestrator/history/watch"
	"opendilab.org/di-orchestrator/internal/names"
	"opendilab.org/di-orchestrator/internal/scope"
	"opendilab.org/di-orchestrator/test/testkit"
)

var environment *testkit.API

func TestMain(m *testing.M) { os.Exit(testkit.RunOnAPI(m, &environment)) }

// fixture is a namespace, and the database of its jobs.
type fixture struct {
	*WithT
	t         *testing.T
	api       client.Client
	scheme    *runtime.Scheme
	namespace string
	// watched is the namespace whose jobs are recorded.
	watched  string
	database *outage
	// path is that of the database, and image that of jobs.
	path, image string
	// tails and usage are nil for none.
	tails    watch.Tails
	usage    watch.Usage
	released released
	registry *prometheus.Registry
	metrics  *watch.Metrics
}

// outage is a database that is away while it is told to be.
type outage struct {
	*store.Store
	isAway atomic.Bool
}

var errAway = errors.New("the database is away")

func (o *outage) Write(ctx context.Context, changes []store.Change) error {
	if o.isAway.Load() {
		return errAway
	}
	return o.Store.Write(ctx, changes)
}

func setUp(t *testing.T) *fixture {
	t.Helper()
	f := &fixture{WithT: NewWithT(t), t: t, scheme: runtime.NewScheme(), database: &outage{}, released: make(released, 16)}
	f.SetDefaultEventuallyTimeout(testkit.Patience)
	f.Expect(clientgoscheme.AddToScheme(f.scheme)).To(Succeed())
	f.Expect(v2alpha1.AddToScheme(f.scheme)).To(Succeed())
	var err error
	f.api, err = client.New(environment.Config, client.Options{Scheme: f.scheme})
	f.Expect(err).NotTo(HaveOccurred())
	namespace := &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{GenerateName: "history-"}}
	f.Expect(f.api.Create(t.Context(), namespace)).To(Succeed())
	f.namespace, f.watched = namespace.Name, namespace.Name
	f.path, f.image = filepath.Join(t.TempDir(), "history.db"), "ding:2"
	f.database.Store, err = store.OpenSQLite(t.Context(), f.path)
	f.Expect(err).NotTo(HaveOccurred())
	t.Cleanup(func() { f.Expect(f.database.Close()).To(Succeed()) })
	f.registry = prometheus.NewPedanticRegistry()
	f.metrics, err = watch.NewMetrics(f.registry, store.Limits{Bytes: 1 << 20})
	f.Expect(err).NotTo(HaveOccurred())
	return f
}

// metric returns the sum of a metric over all labels.
func (f *fixture) metric(name string) float64 {
	f.t.Helper()
	sum := 0.0
	families, err := f.registry.Gather()
	f.Expect(err).NotTo(HaveOccurred())
	for _, family := range families {
		for _, metric := range family.GetMetric() {
			if family.GetName() == "di_orchestrator_history_"+name {
				sum += metric.GetGauge().GetValue() + metric.GetCounter().GetValue()
			}
		}
	}
	return sum
}

// start starts a recorder. The result stops it.
func (f *fixture) start() (stop func()) {
	f.t.Helper()
	options := watch.CacheOptions(types.NamespacedName{Namespace: f.namespace, Name: names.AllocationGroups})
	options.Scheme, options.DefaultNamespaces = f.scheme, map[string]cache.Config{f.watched: {}}
	objects, err := cache.New(environment.Config, options)
	f.Expect(err).NotTo(HaveOccurred())
	ctx, cancel := context.WithCancel(f.t.Context())
	f.Expect(watch.SetupIndexes(ctx, objects)).To(Succeed())
	watched, err := scope.New([]string{f.watched}, types.NamespacedName{})
	f.Expect(err).NotTo(HaveOccurred())
	recorder := &watch.Recorder{Cache: objects, Namespaces: watched, Store: f.database, Tails: f.tails, Usage: f.usage, Releases: f.released, Metrics: f.metrics, Clock: clock.RealClock{}, Log: testr.New(f.t)}
	core, err := corev1client.NewForConfig(environment.Config)
	f.Expect(err).NotTo(HaveOccurred())
	noted := &events.Reader{API: core, Cache: objects, Namespaces: watched, Log: testr.New(f.t)}
	recorder.Events = noted
	var group sync.WaitGroup
	results := make([]error, 3)
	for i, start := range []func(context.Context) error{objects.Start, recorder.Start, noted.Start} {
		group.Go(func() { results[i] = start(ctx) })
	}
	stop = sync.OnceFunc(func() {
		cancel()
		group.Wait()
		f.Expect(errors.Join(results...)).To(Succeed())
	})
	f.t.Cleanup(stop)
	return stop
}

func (f *fixture) create(name string) *v2alpha1.DIJob {
	f.t.Helper()
	two := int32(2)
	job := &v2alpha1.DIJob{}
	job.Namespace, job.Name = f.namespace, name
	job.Spec.Lifecycle, job.Spec.Group = v2alpha1.LifecycleWorkerLed, "atari"
	job.Spec.Tasks = []v2alpha1.Task{{Name: "worker", Type: v2alpha1.TaskTypeNone, Replicas: &two}}
	job.Spec.Tasks[0].Template.Raw = []byte(`{"spec":{"containers":[{"name":"di-container","image":"` + f.image + `"}]}}`)
	f.Expect(f.api.Create(f.t.Context(), job)).To(Succeed())
	return job
}

func (f *fixture) setStatus(job *v2alpha1.DIJob, change func(*v2alpha1.DIJobStatus)) {
	f.t.Helper()
	change(&job.Status)
	f.Expect(f.api.Status().Update(f.t.Context(), job)).To(Succeed())
}

// failed makes the job fail at a whole second, as the API stores it.
func failed(job *v2alpha1.DIJob) func(*v2alpha1.DIJobStatus) {
	return func(status *v2alpha1.DIJobStatus) {
		end := metav1.NewTime(job.CreationTimestamp.Add(time.Minute))
		status.Phase, status.CompletionTimestamp = v2alpha1.JobFailed, &end
		status.LastFailure = &v2alpha1.LastFailure{Reason: "OOMKilled", Message: "too much"}
	}
}

func (f *fixture) createPod(of *v2alpha1.DIJob, name string) *corev1.Pod {
	f.t.Helper()
	pod := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{
		Namespace: f.namespace, Name: name, Labels: map[string]string{names.LabelTaskName: "worker"},
		OwnerReferences: []metav1.OwnerReference{*metav1.NewControllerRef(of, v2alpha1.GroupVersion.WithKind("DIJob"))},
	}}
	pod.Spec.Containers = []corev1.Container{{Name: "di-container", Image: "ding:2"}}
	f.Expect(f.api.Create(f.t.Context(), pod)).To(Succeed())
	return pod
}

// recorded waits until what is recorded of a job satisfies a condition.
func (f *fixture) recorded(job *v2alpha1.DIJob, what string, condition func(record.Job) bool) record.Job {
	f.t.Helper()
	var found record.Job
	f.Eventually(func() (bool, error) {
		var err error
		if found, err = f.database.Job(f.t.Context(), f.namespace, job.Name, string(job.UID)); errors.Is(err, store.ErrNotFound) {
			return false, nil
		}
		return err == nil && condition(found), err
	}).Should(BeTrue(), what)
	return found
}

func TestAJobIsRecordedFromItsCreationToItsEnd(t *testing.T) {
	f := setUp(t)
	f.start()
	job := f.create("ppo")
	f.createPod(job, "ppo-worker-0")
	found := f.recorded(job, "its pod", func(j record.Job) bool { return len(j.Replicas) == 1 })
	f.Expect(found.Group).To(Equal("atari"))
	f.Expect(found.Images).To(ConsistOf("ding:2"))
	f.Expect(found.Version).To(Equal("v2alpha1"))
	f.Expect(string(found.Manifest)).To(ContainSubstring(`"image":"ding:2"`))

	f.setStatus(job, func(status *v2alpha1.DIJobStatus) {
		status.Phase, status.Profilings = v2alpha1.JobRunning, &v2alpha1.RawObject{}
		status.Profilings.Raw = []byte(`{"version":1,"progress":{"done":12}}`)
	})
	f.recorded(job, "its phase", func(j record.Job) bool { return j.Phase == "Running" })
	f.Eventually(func() ([]record.Sample, error) { return f.database.Samples(t.Context(), string(job.UID), time.Time{}) }).Should(HaveLen(1))

	f.setStatus(job, failed(job))
	found = f.recorded(job, "its end", func(j record.Job) bool { return j.HasEnded() })
	f.Expect(found.Ended.Equal(job.CreationTimestamp.Add(time.Minute))).To(BeTrue())
	f.Expect(found.Reason).To(Equal("OOMKilled"))

	// What happens later does not change how it ended.
	f.Expect(f.api.Delete(t.Context(), job)).To(Succeed())
	marker := f.create("marker")
	f.recorded(marker, "a later job", func(record.Job) bool { return true })
	after := f.recorded(job, "the deleted job", func(record.Job) bool { return true })
	f.Expect(after.Deleted).To(BeFalse())
	f.Expect(after.Ended).To(Equal(found.Ended))
}

func TestADeletedJobEndsWhenItIsDeletedAndItsNameMayBeUsedAgain(t *testing.T) {
	f := setUp(t)
	f.start()
	job := f.create("ppo")
	f.recorded(job, "the job", func(record.Job) bool { return true })
	f.Expect(f.api.Delete(t.Context(), job)).To(Succeed())
	again := f.create("ppo")
	found := f.recorded(job, "its end", func(j record.Job) bool { return j.HasEnded() })
	f.Expect(found.Deleted).To(BeTrue())
	f.Expect(found.Unseen).To(BeFalse())
	f.recorded(again, "the new job", func(j record.Job) bool { return !j.HasEnded() })
}

func TestWhatHappensWhileNothingRecordsIsCaughtUp(t *testing.T) {
	f := setUp(t)
	stop := f.start()
	gone, ended, running := f.create("gone"), f.create("ended"), f.create("running")
	for _, job := range []*v2alpha1.DIJob{gone, ended, running} {
		f.setStatus(job, func(status *v2alpha1.DIJobStatus) { status.Phase = v2alpha1.JobRunning })
		f.recorded(job, job.Name, func(j record.Job) bool { return j.Phase == "Running" })
	}
	stop()
	f.Expect(f.api.Delete(t.Context(), gone)).To(Succeed())
	f.setStatus(ended, failed(ended))
	born := f.create("born")
	f.start()
	f.Expect(f.recorded(gone, "unseen", func(j record.Job) bool { return j.HasEnded() }).Unseen).To(BeTrue())
	found := f.recorded(ended, "its end", func(j record.Job) bool { return j.HasEnded() })
	f.Expect(found.Unseen).To(BeFalse())
	f.Expect(found.Phases).To(HaveLen(2))
	f.recorded(born, "the new job", func(record.Job) bool { return true })
	f.recorded(running, "the old job", func(j record.Job) bool { return !j.HasEnded() && len(j.Phases) == 1 })
}

func TestAJobOfANamespaceThatIsNoLongerWatchedHasNotEnded(t *testing.T) {
	f := setUp(t)
	stop := f.start()
	job := f.create("ppo")
	f.recorded(job, "the job", func(record.Job) bool { return true })
	stop()
	f.watched = "default"
	f.start()
	marker := job.DeepCopy()
	marker.ResourceVersion, marker.UID, marker.Namespace, marker.GenerateName, marker.Name = "", "", f.watched, "marker-", ""
	f.Expect(f.api.Create(t.Context(), marker)).To(Succeed())
	f.Eventually(func() error {
		_, err := f.database.Job(t.Context(), marker.Namespace, marker.Name, "")
		return err
	}).Should(Succeed())
	f.recorded(job, "the job as it was", func(j record.Job) bool { return !j.HasEnded() })
}

func TestJobsAreRecordedOnceTheDatabaseIsBack(t *testing.T) {
	f := setUp(t)
	f.start()
	old := f.create("old")
	f.recorded(old, "a job before", func(record.Job) bool { return true })
	f.database.isAway.Store(true)
	f.Expect(f.api.Delete(t.Context(), old)).To(Succeed())
	job := f.create("ppo")
	f.setStatus(job, failed(job))
	f.Consistently(func() error {
		_, err := f.database.Job(t.Context(), f.namespace, job.Name, "")
		return err
	}, 2*time.Second).Should(MatchError(store.ErrNotFound))
	f.Expect(f.metric("waiting_jobs")).To(BeEquivalentTo(2))
	f.Expect(f.metric("lag_seconds")).To(BeNumerically(">", 1))
	f.Expect(f.metric("failures_total")).To(BeNumerically(">", 0))
	f.database.isAway.Store(false)
	f.recorded(job, "its end", func(j record.Job) bool { return j.HasEnded() })
	f.recorded(old, "its deletion", func(j record.Job) bool { return j.Deleted })
	totals, err := f.database.Totals(t.Context())
	f.Expect(err).NotTo(HaveOccurred())
	f.Expect(totals.Jobs).To(BeEquivalentTo(2))
	f.Eventually(func() float64 { return f.metric("waiting_jobs") }).Should(BeZero())
	f.Expect(f.metric("writes_total")).To(BeNumerically(">=", 3))
}

func TestAJobThatTheDatabaseRefusesDoesNotStopOthers(t *testing.T) {
	f := setUp(t)
	raw, err := sql.Open("sqlite", f.path)
	f.Expect(err).NotTo(HaveOccurred())
	_, err = raw.ExecContext(t.Context(), `CREATE TRIGGER refuse BEFORE INSERT ON records
		WHEN NEW.record LIKE '%"poisoned"%' OR NEW.record LIKE '%"cursed"%' BEGIN SELECT RAISE(ABORT, 'refused'); END`)
	f.Expect(errors.Join(err, raw.Close())).To(Succeed())
	f.image = "poisoned"
	poisoned := f.create("ppo")
	f.create("cursed")
	f.image = "ding:2"
	var others []*v2alpha1.DIJob
	for i := range 5 {
		others = append(others, f.create(fmt.Sprintf("other-%d", i)))
	}
	f.start()
	for _, other := range others {
		f.recorded(other, other.Name, func(j record.Job) bool { return len(j.Images) == 1 })
	}
	found := f.recorded(poisoned, "what is small", func(record.Job) bool { return true })
	f.Expect(found.Group).To(Equal("atari"))
	f.Expect(found.Images).To(BeEmpty())
	f.Expect(found.Dropped).To(HaveKeyWithValue("images", 1))
	_, err = f.database.Job(t.Context(), f.namespace, "cursed", "")
	f.Expect(err).To(MatchError(store.ErrNotFound))
	f.Expect(f.metric("refused_jobs_total")).To(BeEquivalentTo(3))

	// It still ends.
	f.setStatus(poisoned, failed(poisoned))
	f.recorded(poisoned, "its end", func(j record.Job) bool { return j.HasEnded() })
}

// noticed is what was observed of pods. It reads a tail of each.
type noticed struct {
	mutex     sync.Mutex
	waiting   []store.Change
	forgotten []string
	// reads is set while there is more to take.
	reads bool
}

// released are the jobs that may go.
type released chan types.UID

func (r released) Release(_ types.NamespacedName, uid types.UID) { r <- uid }

func (n *noticed) Observe(pod *corev1.Pod) {
	n.mutex.Lock()
	defer n.mutex.Unlock()
	tail := record.Tail{PodUID: string(pod.UID), Pod: pod.Name, Container: "main", Text: "failed\n"}
	n.waiting = append(n.waiting, store.Change{UID: string(pod.OwnerReferences[0].UID), Tails: []record.Tail{tail}})
}

func (n *noticed) Forget(pod *corev1.Pod) {
	n.mutex.Lock()
	defer n.mutex.Unlock()
	n.forgotten = append(n.forgotten, pod.Name)
}

func (n *noticed) Reads(types.UID) bool {
	n.mutex.Lock()
	defer n.mutex.Unlock()
	return n.reads
}

func (n *noticed) Take() []store.Change {
	n.mutex.Lock()
	defer n.mutex.Unlock()
	taken := n.waiting
	n.waiting = nil
	return taken
}

func TestTailsAreRecordedWithTheirJobAlsoAfterAnOutage(t *testing.T) {
	f := setUp(t)
	pods := &noticed{}
	f.tails = pods
	f.database.isAway.Store(true)
	f.start()
	job := f.create("ppo")
	pod := f.createPod(job, "ppo-worker-0")
	f.Eventually(func() float64 { return f.metric("failures_total") }).Should(BeNumerically(">", 0))
	f.database.isAway.Store(false)
	f.Eventually(func() ([]record.Tail, error) { return f.database.Tails(t.Context(), string(job.UID)) }).Should(ConsistOf(HaveField("Pod", pod.Name)))
	f.Expect(f.api.Delete(t.Context(), pod, client.GracePeriodSeconds(0))).To(Succeed())
	f.Eventually(func() []string {
		pods.mutex.Lock()
		defer pods.mutex.Unlock()
		return pods.forgotten
	}).Should(ConsistOf(pod.Name))
}

func TestEventsAreRecordedWithTheirJobAlsoAfterAnOutage(t *testing.T) {
	f := setUp(t)
	f.start()
	job := f.create("ppo")
	pod := f.createPod(job, "ppo-worker-0")
	f.recorded(job, "the pod", func(j record.Job) bool { return len(j.Replicas) == 1 })
	f.database.isAway.Store(true)
	event := &corev1.Event{
		ObjectMeta:     metav1.ObjectMeta{Namespace: f.namespace, Name: "late"},
		InvolvedObject: corev1.ObjectReference{APIVersion: "v1", Kind: "Pod", Namespace: f.namespace, Name: pod.Name, UID: pod.UID},
		Type:           corev1.EventTypeWarning, Reason: "FailedMount", Message: "no volume", FirstTimestamp: metav1.Now(), Count: 3,
	}
	f.Expect(f.api.Create(t.Context(), event)).To(Succeed())
	f.Eventually(func() float64 { return f.metric("failures_total") }).Should(BeNumerically(">", 0))
	f.database.isAway.Store(false)
	found := f.recorded(job, "the Event", func(j record.Job) bool { return len(j.Events) > 0 })
	f.Expect(found.Events[0]).To(And(HaveField("Object", "Pod/ppo-worker-0"), HaveField("Reason", "FailedMount"), HaveField("Count", int32(3))))
}

// measured is the usage of one round.
type measured chan map[types.NamespacedName]watch.Used

func (m measured) Take() map[types.NamespacedName]watch.Used {
	select {
	case round := <-m:
		return round
	default:
		return nil
	}
}

func TestTheUsageOfReplicasBecomesPeaksAndCurvesAlsoAfterAnOutage(t *testing.T) {
	f := setUp(t)
	rounds := make(measured, 1)
	f.usage = rounds
	f.start()
	job := f.create("ppo")
	f.recorded(job, "the job", func(record.Job) bool { return true })
	f.database.isAway.Store(true)
	rounds <- map[types.NamespacedName]watch.Used{
		client.ObjectKeyFromObject(job):           {Job: job.UID, Tasks: map[string]record.Peak{"worker": {CPU: 500, Memory: 1 << 20}}},
		{Namespace: f.namespace, Name: "deleted"}: {Job: "other", Tasks: map[string]record.Peak{"worker": {CPU: 1}}},
	}
	f.Eventually(func() float64 { return f.metric("failures_total") }).Should(BeNumerically(">", 0))
	f.database.isAway.Store(false)
	found := f.recorded(job, "its peaks", func(j record.Job) bool { return len(j.Peaks) > 0 })
	f.Expect(found.Peaks).To(ConsistOf(record.Peak{Task: "worker", CPU: 500, Memory: 1 << 20}))
	samples, err := f.database.Samples(t.Context(), string(job.UID), time.Time{})
	f.Expect(err).NotTo(HaveOccurred())
	f.Expect(samples).To(HaveLen(1))
	f.Expect(samples[0].Values).To(Equal(map[string]record.Mean{"cpu/worker": {Sum: 500, Count: 1}, "memory/worker": {Sum: 1 << 20, Count: 1}}))
}

func TestTheGroupsOfTheAllocatorAreKeptWhenTheyChange(t *testing.T) {
	f := setUp(t)
	key := types.NamespacedName{Namespace: f.namespace, Name: names.AllocationGroups}
	options := watch.CacheOptions(key)
	options.Scheme = f.scheme
	cached, err := cache.New(environment.Config, options)
	f.Expect(err).NotTo(HaveOccurred())
	groups := &watch.Groups{Cache: cached, ConfigMap: key, Store: f.database, Metrics: f.metrics, Clock: clock.RealClock{}, Log: testr.New(t)}
	ctx, stop := context.WithCancel(t.Context())
	ended := make(chan error, 2)
	go func() { ended <- cached.Start(ctx) }()
	go func() { ended <- groups.Start(ctx) }()
	t.Cleanup(func() {
		stop()
		f.Expect(errors.Join(<-ended, <-ended)).To(Succeed())
	})
	kept := func(name string) string {
		found, err := f.database.Groups(t.Context(), []string{name})
		f.Expect(err).NotTo(HaveOccurred())
		return string(found[name])
	}
	first, second := `{"name":"team/pong","finished":1}`, `{"name":"team/pong","finished":2}`
	stored := &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Namespace: key.Namespace, Name: key.Name}, Data: map[string]string{
		"group-1": first, "group-2": `{"name":""}`, "group-3": "{", "counted": "uid-1",
	}}
	f.Expect(f.api.Create(t.Context(), stored)).To(Succeed())
	f.Expect(f.api.Create(t.Context(), &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Namespace: key.Namespace, Name: "other"}, Data: map[string]string{
		"group-1": `{"name":"team/other"}`,
	}})).To(Succeed())
	f.Eventually(kept).WithArguments("team/pong").Should(Equal(first))
	stored.Data["group-1"] = second
	f.Expect(f.api.Update(t.Context(), stored)).To(Succeed())
	f.Eventually(kept).WithArguments("team/pong").Should(Equal(second))
	stored.Data = map[string]string{"group-4": `{"name":"team/breakout"}`}
	f.Expect(f.api.Update(t.Context(), stored)).To(Succeed())
	f.Eventually(kept).WithArguments("team/breakout").ShouldNot(BeEmpty())
	f.Expect(kept("team/pong")).To(Equal(second), "the allocator has no room for it")
	f.Expect(kept("team/other")).To(BeEmpty())
}

// held creates a job that stays until its end is recorded.
func (f *fixture) held(name string) *v2alpha1.DIJob {
	f.t.Helper()
	job := f.create(name)
	job.Finalizers = []string{names.FinalizerHistory}
	f.Expect(f.api.Update(f.t.Context(), job)).To(Succeed())
	return job
}

// letGo waits until jobs may go, and lets them.
func (f *fixture) letGo(jobs ...*v2alpha1.DIJob) {
	f.t.Helper()
	for range jobs {
		f.Eventually(f.released).Should(Receive(BeElementOf(uidsOf(jobs))))
	}
	for _, job := range jobs {
		f.Expect(f.api.Patch(f.t.Context(), job, client.RawPatch(types.MergePatchType, []byte(`{"metadata":{"finalizers":null}}`)))).To(Succeed())
	}
}

func uidsOf(jobs []*v2alpha1.DIJob) []types.UID {
	var uids []types.UID
	for _, job := range jobs {
		uids = append(uids, job.UID)
	}
	return uids
}

func TestAJobThatWaitsIsLetGoOnceItsEndIsRecordedAndEndsWhenItWasDeleted(t *testing.T) {
	f := setUp(t)
	stop := f.start()
	running, ended := f.held("running"), f.held("ended")
	f.recorded(running, "the job", func(record.Job) bool { return true })
	stop()
	// Nothing records now.
	f.setStatus(ended, failed(ended))
	other := f.held("other")
	for _, job := range []*v2alpha1.DIJob{running, ended} {
		f.Expect(f.api.Delete(t.Context(), job)).To(Succeed())
		f.Expect(f.api.Get(t.Context(), client.ObjectKeyFromObject(job), job)).To(Succeed())
	}
	f.database.isAway.Store(true)
	f.start()
	f.Consistently(f.released, time.Second).ShouldNot(Receive())
	f.database.isAway.Store(false)
	f.letGo(running, ended)
	found := f.recorded(running, "its deletion", func(j record.Job) bool { return j.HasEnded() })
	f.Expect(found.Deleted).To(BeTrue())
	f.Expect(found.Unseen).To(BeFalse())
	f.Expect(found.Ended.Equal(running.DeletionTimestamp.Time)).To(BeTrue())
	found = f.recorded(ended, "its end", func(j record.Job) bool { return j.HasEnded() })
	f.Expect(found.Deleted).To(BeFalse())
	f.Expect(found.Reason).To(Equal("OOMKilled"))
	f.recorded(other, "a job that lives", func(j record.Job) bool { return !j.HasEnded() })
	f.Expect(f.released).NotTo(Receive())
	again := f.create("running")
	f.recorded(again, "the new job of the name", func(j record.Job) bool { return !j.HasEnded() })
}

func TestAJobIsNotLetGoBeforeTheTailsOfItsPodsAreRecordedNorIfTheDatabaseRefusesIt(t *testing.T) {
	f := setUp(t)
	raw, err := sql.Open("sqlite", f.path)
	f.Expect(err).NotTo(HaveOccurred())
	_, err = raw.ExecContext(t.Context(), `CREATE TRIGGER refuse BEFORE INSERT ON records
		WHEN NEW.record LIKE '%"cursed"%' BEGIN SELECT RAISE(ABORT, 'refused'); END`)
	f.Expect(errors.Join(err, raw.Close())).To(Succeed())
	pods := &noticed{reads: true}
	f.tails = pods
	f.start()
	job, cursed := f.held("ppo"), f.held("cursed")
	for _, deleted := range []*v2alpha1.DIJob{job, cursed} {
		f.Expect(f.api.Delete(t.Context(), deleted)).To(Succeed())
	}
	f.recorded(job, "its deletion", func(j record.Job) bool { return j.HasEnded() })
	f.Consistently(f.released, 2*time.Second).ShouldNot(Receive())
	pods.mutex.Lock()
	pods.reads = false
	pods.mutex.Unlock()
	f.letGo(job)
	f.Consistently(f.released, 2*time.Second).ShouldNot(Receive())
}
