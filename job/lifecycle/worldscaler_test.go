// Copyright The DI Orchestrator Authors.
// SPDX-License-Identifier: Apache-2.0

package lifecycle

import (
	"context"
	"errors"
	"maps"
	"math/rand/v2"
	"slices"
	"time"

	"github.com/go-logr/logr"
	"github.com/prometheus/client_golang/prometheus"
	autoscalingv2 "k8s.io/api/autoscaling/v2"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/tools/events"
	"k8s.io/utils/ptr"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"opendilab.org/di-orchestrator/apis/v2alpha1"
	"opendilab.org/di-orchestrator/controllers/autoscaler"
	"opendilab.org/di-orchestrator/internal/names"
	"opendilab.org/di-orchestrator/job/lifecycle/sizing"
	"opendilab.org/di-orchestrator/job/lifecycle/state"
	"opendilab.org/di-orchestrator/job/podstate"
)

// scaler is the autoscaler of one operator, with what it reads and writes.
type scaler struct {
	*autoscaler.Reconciler
	client.Client
	fleet   *fleet
	process *process
	// fate is the outcome of the next write.
	fate func() fate
}

// newScaler returns the autoscaler of a process.
func (f *fleet) newScaler(p *process) *scaler {
	made := &scaler{fleet: f, process: p}
	var err error
	made.Reconciler, err = autoscaler.New(made, noScalers{}, autoscaler.Options{
		Recorder: &events.FakeRecorder{}, Registerer: prometheus.NewRegistry(), Clock: processClock{f, p},
	})
	if err != nil {
		f.t.Fatal(err)
	}
	return made
}

// noScalers is an API server without HorizontalPodAutoscalers.
type noScalers struct{ client.Reader }

func (noScalers) List(_ context.Context, into client.ObjectList, _ ...client.ListOption) error {
	if _, isScalers := into.(*autoscalingv2.HorizontalPodAutoscalerList); !isScalers {
		return errors.ErrUnsupported
	}
	return nil
}

// numberOf returns the number of the job of a namespace.
func (f *fleet) numberOf(namespace string) int {
	return slices.IndexFunc(f.worlds, func(w *world) bool { return w != nil && w.job.Namespace == namespace })
}

// Get reads a job from the cache of the operator.
func (s *scaler) Get(_ context.Context, key client.ObjectKey, into client.Object, _ ...client.GetOption) error {
	job, isJob := into.(*v2alpha1.DIJob)
	if !isJob {
		return apierrors.NewNotFound(schema.GroupResource{}, key.Name)
	}
	_, view := s.fleet.seen(s.process, s.fleet.numberOf(key.Namespace))
	view.cache.job.DeepCopyInto(job)
	return nil
}

// List reads the pods of a job from the cache of the operator, also those of a deleted job of the name.
func (s *scaler) List(_ context.Context, into client.ObjectList, options ...client.ListOption) error {
	list, isPods := into.(*corev1.PodList)
	if !isPods {
		return errors.ErrUnsupported
	}
	asked := (&client.ListOptions{}).ApplyOptions(options)
	number := s.fleet.numberOf(asked.Namespace)
	for _, view := range []*operator{s.process.views[number], s.process.pasts[number]} {
		if view == nil {
			continue
		}
		for _, name := range slices.Sorted(maps.Keys(view.cache.pods)) {
			pod := view.cache.pods[name].DeepCopy()
			podstate.Trim(pod)
			list.Items = append(list.Items, *pod)
		}
	}
	return nil
}

// Patch writes the spec of a job.
func (s *scaler) Patch(_ context.Context, object client.Object, patch client.Patch, _ ...client.PatchOption) error {
	return s.write("", object, patch)
}

// Status returns the writer of the status of jobs.
func (s *scaler) Status() client.SubResourceWriter { return scalerStatus{of: s} }

type scalerStatus struct {
	client.SubResourceWriter
	of *scaler
}

// Patch writes the status of a job.
func (s scalerStatus) Patch(_ context.Context, object client.Object, patch client.Patch, _ ...client.SubResourcePatchOption) error {
	return s.of.write("status", object, patch)
}

// write writes a job, if it has not changed since the autoscaler read it. The write finds it by its name.
func (s *scaler) write(subresource string, object client.Object, patch client.Patch) error {
	w, how := s.fleet.worlds[s.fleet.numberOf(object.GetNamespace())], min(s.fate(), unanswered)
	if how == refused {
		return errUnanswered
	}
	wanted, err := w.patched(object, patch)
	switch {
	case err != nil:
		return err
	case wanted.ResourceVersion != w.job.ResourceVersion:
		w.tell("  conflict of the autoscaler")
		return conflict(object)
	case object.GetUID() != w.job.UID:
		w.t.Fatalf("the autoscaler writes job %s for job %s of the same name", w.job.UID, object.GetUID())
	}
	w.checkBounds(wanted)
	w.changeAs(operatorAccount, subresource, func(job *v2alpha1.DIJob) { *job = *wanted })
	w.tell("  the autoscaler writes %s%d collectors", subresource, ptr.Deref(w.job.Spec.Elastic.Replicas, -1))
	w.job.DeepCopyInto(object.(*v2alpha1.DIJob)) //nolint:errcheck,forcetypeassert // the autoscaler patches nothing else
	if how == unanswered {
		return errUnanswered
	}
	return nil
}

// checkBounds checks that the autoscaler keeps the bounds of a job, and changes only the count of its producers.
func (w *world) checkBounds(wanted *v2alpha1.DIJob) {
	w.t.Helper()
	before, after := w.job.Spec.Elastic, wanted.Spec.Elastic
	switch {
	case before == nil || after == nil:
		w.t.Fatalf("the autoscaler resizes a job without an elastic task")
	case ptr.Equal(before.Replicas, after.Replicas):
	case state.IsSuspended(w.job), state.IsFinished(&w.job.Status), !w.job.DeletionTimestamp.IsZero(), w.job.Spec.Preemptible:
		w.t.Fatalf("the autoscaler resizes a job that it may not resize: %+v", w.job.Spec)
	case *after.Replicas < ptr.Deref(before.MinReplicas, 1) || *after.Replicas > ptr.Deref(before.MaxReplicas, *after.Replicas):
		w.t.Fatalf("the autoscaler sets %d replicas, of %d to %d", *after.Replicas, *before.MinReplicas, *before.MaxReplicas)
	}
}

// anyFollower makes a worker-led job one whose collectors follow its learner.
func anyFollower(random *rand.Rand, spec *v2alpha1.DIJobSpec) {
	least := 1 + random.Int32N(2)
	spec.Preemptible, spec.ClusterSpec = false, nil
	spec.Elastic = &v2alpha1.Elastic{
		Task: string(v2alpha1.TaskTypeCollector), MinReplicas: &least, MaxReplicas: ptr.To(least + random.Int32N(6)), OnResize: v2alpha1.OnResizeContinue,
	}
	spec.Autoscale = &v2alpha1.Autoscale{Ratio: &v2alpha1.RatioRule{}}
}

// follows reports whether the autoscaler sizes a job.
func (w *world) follows() bool {
	return w.job.Spec.Autoscale != nil && w.job.Spec.Autoscale.Ratio != nil
}

// work is what the replicas of a job do: samples per second of a collector and of the learner, and those that wait.
type work struct {
	producer, consumer, queue float64
	// isSteady keeps the samples that wait. Their number changes else, as no whole number of collectors fits the learner.
	isSteady bool
	// reported is when di-server last recorded the sums.
	reported time.Time
	sums     map[string]*v2alpha1.RoleRates
}

// reportRates makes di-server record what the replicas of a job have done since the last time.
func (w *world) reportRates() {
	seconds := min(w.now.Sub(w.work.reported).Seconds(), 60)
	w.work.reported = w.now
	producers := 0
	for _, pod := range w.pods {
		if names.RoleOf(pod) == "" && pod.Labels[names.LabelTaskName] == string(v2alpha1.TaskTypeCollector) && podstate.Ready(pod) && !podstate.Terminating(pod) {
			producers++
		}
	}
	if producers == 0 {
		return
	}
	const capacity = 4000
	produced := float64(producers) * w.work.producer
	busy := min(1, (w.work.queue/max(seconds, 1)+produced)/w.work.consumer)
	blocked := 0.0
	if w.work.isSteady {
		busy, blocked = min(1, produced/w.work.consumer), max(0, 1-w.work.consumer/produced)
	} else if w.work.queue += (produced - busy*w.work.consumer) * seconds; w.work.queue > capacity {
		blocked = min(1, (w.work.queue-capacity)/(produced*max(seconds, 1)))
	}
	w.work.queue = min(max(w.work.queue, 0), capacity)
	collectors := w.sum(v2alpha1.TaskTypeCollector, producers, seconds, 1-blocked, w.work.producer)
	collectors.BlockedMilliseconds += int64(1000 * seconds * float64(producers) * blocked)
	learner := w.sum(v2alpha1.TaskTypeLearner, 1, seconds, busy, w.work.consumer)
	learner.StarvedMilliseconds += int64(1000 * seconds * (1 - busy))
	learner.BatchSamples, learner.Queue, learner.QueueCapacity, learner.MaxStaleness = 800, int64(w.work.queue), capacity, 4
	w.changeAs(serverAccount, "status", func(job *v2alpha1.DIJob) { job.Status.Rates = []v2alpha1.RoleRates{*collectors, *learner} })
	w.tell("%d collectors are %.0f%% blocked, and the learner is %.0f%% busy; %.0f samples wait", producers, 100*blocked, 100*busy, w.work.queue)
}

// sum adds what the replicas of a role have done to the sums of di-server.
func (w *world) sum(role v2alpha1.TaskType, workers int, seconds, share, capacity float64) *v2alpha1.RoleRates {
	sums := w.work.sums[string(role)]
	if sums == nil {
		sums = &v2alpha1.RoleRates{Server: "server", Role: string(role)}
		w.work.sums[string(role)] = sums
	}
	worked := seconds * float64(workers)
	sums.UpdatedAt, sums.Reporters = metav1.NewMicroTime(w.by(w.clocks.server)), int32(workers)
	sums.ReportedMilliseconds += int64(1000 * worked)
	sums.BusyMilliseconds += int64(1000 * worked * share)
	sums.Samples += int64(worked * share * capacity)
	return sums
}

// autoscale makes replicas run and report for some time, and an operator size the jobs that it reconciles. Its caches lag, and its
// writes may fail.
func (f *fleet) autoscale(p *process, random *rand.Rand) {
	if !slices.ContainsFunc(f.worlds, func(w *world) bool { return w != nil && w.follows() && p.runs(w) }) {
		return
	}
	fates := anyFate(random)
	for range 12 {
		f.now = f.now.Add(8 * time.Second)
		f.elapse()
		if !slices.Contains(f.processes, p) {
			return
		}
		f.hear(p, random)
		for number, w := range f.worlds {
			if w == nil || !w.follows() || !p.runs(w) {
				continue
			}
			w.work.vary(random)
			for _, name := range w.podNames() {
				w.toRun(name)
			}
			w.reportRates()
			if random.IntN(3) > 0 {
				f.step(p, number, nil)
			}
		}
		f.hear(p, random)
		f.befallFollower(random)
		f.scale(p, fates)
	}
}

// befallFollower sometimes makes a user change the range of a job that the autoscaler sizes, or replace the job by another one of its
// name.
func (f *fleet) befallFollower(random *rand.Rand) {
	number := random.IntN(len(f.worlds))
	w := f.worlds[number]
	if w == nil || !w.follows() || !w.job.DeletionTimestamp.IsZero() {
		return
	}
	switch choice := random.IntN(8); {
	case choice == 0 && f.gone[number] == nil:
		f.recreate(number, random)
	case choice < 3 && w.job.Spec.Elastic != nil:
		most := *w.job.Spec.Elastic.MinReplicas + random.Int32N(6)
		w.changeAs(userAccount, "", func(job *v2alpha1.DIJob) { job.Spec.Elastic.MaxReplicas = &most })
		w.tell("at most %d collectors are allowed", most)
	}
}

// vary changes how fast replicas are, sometimes.
func (k *work) vary(random *rand.Rand) {
	if random.IntN(10) == 0 {
		k.producer, k.consumer = 5+random.Float64()*30, 20+random.Float64()*200
	}
}

// scale makes an operator size the jobs that it reconciles.
func (f *fleet) scale(p *process, fates func() fate) {
	if p.scaler == nil {
		p.scaler = f.newScaler(p)
	}
	p.scaler.fate = fates
	for number, w := range f.worlds {
		if w == nil || !p.runs(w) || !w.follows() {
			continue
		}
		f.tell("%s sizes job %d", p.Identity, number)
		ctx := ctrl.LoggerInto(context.Background(), logr.Discard())
		if _, err := p.scaler.Reconcile(ctx, ctrl.Request{NamespacedName: client.ObjectKeyFromObject(w.job)}); err != nil && !errors.Is(err, errUnanswered) {
			f.t.Fatalf("%s cannot size job %d: %v", p.Identity, number, err)
		}
	}
}

// settleSizes lets the autoscaler act while the replicas report the same. The sizes must stop to change.
func (f *fleet) settleSizes() {
	const rounds, last = 50, 15
	sizes := make([][]int32, len(f.worlds))
	for range rounds {
		f.now = f.now.Add(30 * time.Second)
		f.elapse()
		for number, w := range f.worlds {
			if w != nil && w.follows() {
				w.work.isSteady = true
				w.goOn()
				sizes[number] = append(sizes[number], sizing.Wanted(w.job).Total)
			}
		}
		for _, p := range f.processes {
			f.scale(p, func() fate { return written })
		}
	}
	for number, each := range sizes {
		if len(each) == rounds && len(slices.Compact(slices.Clone(each[rounds-last:]))) > 1 {
			f.t.Fatalf("job %d: its size does not stop to change: %d", number, each)
		}
	}
}

// goOn lets the operator of a job see all and act, the pods run, and the replicas report.
func (w *world) goOn() {
	w.allAcknowledge()
	w.resync()
	w.step()
	w.reap()
	for _, name := range w.podNames() {
		w.toRun(name)
	}
	w.reportRates()
	w.resync()
}
