// Copyright The DI Orchestrator Authors.
// SPDX-License-Identifier: Apache-2.0

package lifecycle

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"math/rand/v2"
	"slices"
	"sync"
	"time"

	"github.com/go-logr/logr"
	"github.com/prometheus/client_golang/prometheus"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/client-go/tools/events"
	"k8s.io/utils/ptr"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"opendilab.org/di-orchestrator/allocation"
	"opendilab.org/di-orchestrator/allocation/goodput"
	"opendilab.org/di-orchestrator/apis/v2alpha1"
	"opendilab.org/di-orchestrator/controllers/allocator"
	"opendilab.org/di-orchestrator/job/lifecycle/placements"
	"opendilab.org/di-orchestrator/job/lifecycle/state"
	"opendilab.org/di-orchestrator/job/podstate"
)

// placer is the allocator of one operator, with what it reads and writes.
type placer struct {
	*allocator.Reconciler
	client.Client
	fleet   *fleet
	process *process
	// fates are the outcomes of the writes of a round, by the numbers of the jobs, and outcomes the results.
	fates    []fate
	outcomes []string
	// mutex guards the worlds: a round writes several jobs at a time.
	mutex sync.Mutex
}

// errUnanswered stands for a write without an answer, and for one that the API server refuses.
var errUnanswered = errors.New("the API server does not answer")

// newPlacer returns the allocator of a process.
func (f *fleet) newPlacer(p *process) *placer {
	made := &placer{fleet: f, process: p}
	policy := allocation.Policy(goodput.New(goodput.DefaultSettings()))
	if f.policy == allocator.PolicyFit {
		policy = allocator.Fit()
	}
	var err error
	made.Reconciler, err = allocator.New(made, liveJobs{f}, allocator.Options{
		Policy: policy, PolicyName: f.policy, Recorder: &events.FakeRecorder{}, Registerer: prometheus.NewRegistry(),
		Clock: processClock{f, p}, Everything: made.everything,
	})
	if err != nil {
		f.t.Fatal(err)
	}
	return made
}

// processClock is the clock of a process.
type processClock struct {
	fleet   *fleet
	process *process
}

func (c processClock) Now() time.Time                   { return c.process.now(c.fleet) }
func (c processClock) Since(at time.Time) time.Duration { return c.Now().Sub(at) }

// everything makes the leader watch the pods of all shards. It lists those that it has not watched.
func (a *placer) everything(context.Context) error {
	for shard := range a.process.Count {
		a.fleet.watch(a.process, shard)
	}
	return nil
}

// List reads the caches of the operator.
func (a *placer) List(_ context.Context, into client.ObjectList, _ ...client.ListOption) error {
	switch list := into.(type) {
	case *v2alpha1.DIJobList:
		for number := range a.fleet.worlds {
			if _, view := a.fleet.seen(a.process, number); view != nil {
				list.Items = append(list.Items, *view.cache.job)
			}
		}
	case *corev1.PodList:
		a.fleet.onAll(a.process, func(w *world) {
			for _, name := range slices.Sorted(maps.Keys(w.cache.pods)) {
				pod := w.cache.pods[name].DeepCopy()
				podstate.Trim(pod)
				list.Items = append(list.Items, *pod)
			}
		})
	case *corev1.NodeList:
		for _, name := range slices.Sorted(maps.Keys(a.process.nodes)) {
			list.Items = append(list.Items, *a.process.nodes[name])
		}
	}
	return nil
}

// liveJobs reads jobs from the API server.
type liveJobs struct{ fleet *fleet }

func (liveJobs) Get(context.Context, client.ObjectKey, client.Object, ...client.GetOption) error {
	return errors.ErrUnsupported
}

func (l liveJobs) List(_ context.Context, into client.ObjectList, _ ...client.ListOption) error {
	list, isJobs := into.(*v2alpha1.DIJobList)
	if !isJobs {
		return errors.ErrUnsupported
	}
	for _, w := range l.fleet.worlds {
		if w != nil {
			list.Items = append(list.Items, *w.job.DeepCopy())
		}
	}
	return nil
}

// Status returns the writer of the status of jobs.
func (a *placer) Status() client.SubResourceWriter { return statusWriter{of: a} }

type statusWriter struct {
	client.SubResourceWriter
	of *placer
}

// Patch writes the status of a job, if the job has not changed since the allocator read it.
func (s statusWriter) Patch(_ context.Context, object client.Object, patch client.Patch, _ ...client.SubResourcePatchOption) error {
	a := s.of
	a.mutex.Lock()
	defer a.mutex.Unlock()
	number := slices.IndexFunc(a.fleet.worlds, func(w *world) bool { return w != nil && w.job.Namespace == object.GetNamespace() })
	w, how := a.fleet.worlds[number], a.fates[number]
	if how == refused {
		a.outcomes[number] = "the write is lost"
		return errUnanswered
	}
	wanted, err := w.patched(object, patch)
	if err != nil {
		return err
	}
	if wanted.UID != w.job.UID || wanted.ResourceVersion != w.job.ResourceVersion {
		a.outcomes[number] = "conflict"
		return conflict(object)
	}
	w.checkPlacement(wanted, a.process.nodes)
	a.checkPromises(w, wanted)
	w.changeAs(operatorAccount, "status", func(job *v2alpha1.DIJob) { *job = *wanted })
	a.outcomes[number] = fmt.Sprintf("the allocation is %v", w.job.Status.Allocation)
	w.job.DeepCopyInto(object.(*v2alpha1.DIJob)) //nolint:errcheck,forcetypeassert // the allocator writes nothing else
	if how == unanswered {
		return errUnanswered
	}
	return nil
}

// checkPlacement checks that the allocator may move a job, given the nodes that it knows.
func (w *world) checkPlacement(wanted *v2alpha1.DIJob, nodes map[string]*corev1.Node) {
	w.t.Helper()
	before, after := w.job.Status.Allocation, wanted.Status.Allocation
	switch {
	case slices.Equal(before, after):
	case !w.job.Spec.Preemptible, state.IsCoordinatorLed(w.job), state.IsFinished(&w.job.Status):
		w.t.Fatalf("a job that may not be moved is moved from %v to %v", before, after)
	case state.IsSuspended(w.job) && len(after) > 0:
		w.t.Fatalf("a suspended job is placed on %v", after)
	case w.isSynced() && w.hasPlacedSuccess() && w.fitsWhereItIs(nodes) && len(after) > 0 && w.placedOf == w.job.Generation && mayHave(w.job, len(before)):
		w.t.Fatalf("a job with replicas that have succeeded is moved from %v to %v", before, after)
	default:
		w.placedOf = w.job.Generation
	}
}

// fitsWhereItIs reports whether each node of a job's placement exists and is large enough for it.
func (w *world) fitsWhereItIs(nodes map[string]*corev1.Node) bool {
	for name, replicas := range w.promises(w.job.Status.Allocation) {
		if node := nodes[name]; node == nil || replicas > node.Status.Allocatable.Cpu().Value() {
			return false
		}
	}
	return true
}

// checkPromises checks that no node is promised more replicas than it has CPUs, as far as the allocator can know.
func (a *placer) checkPromises(w *world, wanted *v2alpha1.DIJob) {
	before, after := w.promises(w.job.Status.Allocation), w.promises(wanted.Status.Allocation)
	for _, name := range slices.Sorted(maps.Keys(after)) {
		node := a.process.nodes[name]
		if after[name] <= before[name] || node == nil {
			continue
		}
		promised := after[name]
		for _, other := range a.fleet.worlds {
			if other != nil && other != w && !state.IsFinished(&other.job.Status) && other.job.DeletionTimestamp.IsZero() {
				promised += other.promises(other.job.Status.Allocation)[name]
			}
		}
		if has := node.Status.Allocatable.Cpu().Value(); promised > has {
			w.t.Fatalf("node %s with %d CPUs is promised to %d replicas, with the job's on %v", name, has, promised, wanted.Status.Allocation)
		}
	}
}

// promises returns how many replicas that have not succeeded an allocation puts on each node.
func (w *world) promises(allocation []string) map[string]int64 {
	promised := map[string]int64{}
	for rank, node := range allocation {
		hasSucceeded := isRankIn(int32(rank), w.job.Status.CompletedRanks) || slices.ContainsFunc(w.podNames(), func(name string) bool {
			return int(podstate.Rank(w.pods[name])) == rank && w.pods[name].Status.Phase == corev1.PodSucceeded
		})
		if !hasSucceeded {
			promised[node]++
		}
	}
	return promised
}

// hasPlacedSuccess reports whether a replica has succeeded where the job is placed now.
func (w *world) hasPlacedSuccess() bool {
	return slices.ContainsFunc(w.podNames(), func(name string) bool {
		pod, allocation := w.pods[name], w.job.Status.Allocation
		rank := int(podstate.Rank(pod))
		return pod.Status.Phase == corev1.PodSucceeded && !podstate.Terminating(pod) && !state.IsStale(pod, &w.job.Status) &&
			rank >= 0 && rank < len(allocation) && allocation[rank] == placements.PlacedOn(pod)
	})
}

// allocate plays an allocation round of an operator that leads. It reports whether a job has changed.
func (f *fleet) allocate(p *process, fates func() fate) (isChanged bool) {
	if f.policy == "" || !p.leads || !p.mayAct {
		return false
	}
	if p.placer == nil {
		p.placer = f.newPlacer(p)
	}
	a := p.placer
	a.fates, a.outcomes = make([]fate, len(f.worlds)), make([]string, len(f.worlds))
	for number := range a.fates {
		a.fates[number] = min(fates(), unanswered)
	}
	var err error
	failure := f.judged(func() {
		_, err = a.Reconcile(ctrl.LoggerInto(context.Background(), logr.Discard()), ctrl.Request{})
	})
	f.tell("%s allocates: %v", p.Identity, err)
	for number, outcome := range a.outcomes {
		if outcome != "" {
			f.tell("  job %d: %s", number, outcome)
			isChanged = true
		}
	}
	switch {
	case failure != "":
		f.t.Fatal(failure)
	case err != nil && !errors.Is(err, errUnanswered):
		f.t.Fatalf("%s cannot allocate: %v", p.Identity, err)
	}
	return isChanged
}

// allocateUnanswered makes a leader place some jobs without an answer to its writes. Then the others want a place, and it allocates
// again once it has heard of these only.
func (f *fleet) allocateUnanswered(p *process, random *rand.Rand) {
	var others []int
	for number, w := range f.worlds {
		if w != nil && !p.unaware[number] && random.IntN(2) == 0 && placements.WantsPlace(w.job) {
			others = append(others, number)
		}
	}
	f.suspend(p, others, true)
	f.allocate(p, func() fate { return unanswered })
	f.suspend(p, others, false)
	if random.IntN(2) == 0 {
		f.befallNode(random)
		p.nodes = maps.Clone(f.nodes)
	}
	f.allocate(p, func() fate { return written })
}

// suspend makes the users of some jobs suspend or resume them, and a process hear of that.
func (f *fleet) suspend(p *process, numbers []int, isSuspended bool) {
	f.now = f.now.Add(time.Second)
	for _, number := range numbers {
		w := f.face(p, number)
		f.tell("job %d is suspended: %v", number, isSuspended)
		w.changeAs(userAccount, "", func(job *v2alpha1.DIJob) { job.Spec.Suspend = ptr.To(isSuspended) })
		w.hearOfJob()
	}
}

// judged returns the first check of a job that fails while a function runs in several goroutines.
func (f *fleet) judged(do func()) string {
	judge := &player{}
	for number, w := range f.worlds {
		if w != nil {
			before := w.t
			w.t = speaker{judge, nameOfJob(number)}
			defer func() { w.t = before }()
		}
	}
	do()
	return judge.failure
}

// allocateAnew lets the leader decide with current caches, and reports whether a job has changed.
func (f *fleet) allocateAnew() bool {
	at := slices.IndexFunc(f.processes, func(p *process) bool { return p.leads && p.mayAct })
	if f.policy == "" || at < 0 {
		return false
	}
	operators := make([]*operator, len(f.worlds))
	for number, w := range f.worlds {
		if w != nil {
			operators[number] = w.operator
		}
	}
	f.now = f.now.Add(2 * time.Second)
	f.onEach(f.processes[at], func(w *world) { w.resync() })
	f.processes[at].nodes = maps.Clone(f.nodes)
	isChanged := f.allocate(f.processes[at], func() fate { return written })
	for number, w := range f.worlds {
		if w != nil {
			w.operator, w.standby = operators[number], operators[number]
		}
	}
	return isChanged
}
