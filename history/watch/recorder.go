// Copyright The DI Orchestrator Authors.
// SPDX-License-Identifier: Apache-2.0

package watch

import (
	"context"
	"errors"
	"fmt"
	"reflect"
	"time"

	"github.com/go-logr/logr"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	toolscache "k8s.io/client-go/tools/cache"
	"k8s.io/utils/clock"
	"sigs.k8s.io/controller-runtime/pkg/cache"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/controller/controllerutil"

	"opendilab.org/di-orchestrator/apis/v2alpha1"
	"opendilab.org/di-orchestrator/controllers"
	"opendilab.org/di-orchestrator/history/observe"
	"opendilab.org/di-orchestrator/history/record"
	"opendilab.org/di-orchestrator/history/store"
	"opendilab.org/di-orchestrator/internal/names"
	"opendilab.org/di-orchestrator/internal/scope"
)

const (
	// interval is how often changes are recorded.
	interval = time.Second
	// batchSize bounds the jobs of one write.
	batchSize = 500
)

// Store is the database.
type Store interface {
	Write(ctx context.Context, changes []store.Change) error
	Job(ctx context.Context, namespace, name, uid string) (record.Job, error)
	Open(ctx context.Context, size int, give func([]record.Job) error) error
}

// Tails reads the last lines of containers that ended badly, while their pods are there.
type Tails interface {
	Observe(pod *corev1.Pod)
	Forget(pod *corev1.Pod)
	Take() []store.Change
	// Reads reports whether tails of a job are not taken yet.
	Reads(job types.UID) bool
}

// Releases let go of deleted jobs that wait for their history.
type Releases interface {
	Release(job types.NamespacedName, uid types.UID)
}

// Usage reads what pods use.
type Usage interface {
	Take() map[types.NamespacedName]Used
}

// Used is the highest usage of a replica of each task of a job.
type Used struct {
	Job   types.UID
	Tasks map[string]record.Peak
}

// Events reads Events.
type Events interface {
	Take() map[types.NamespacedName]Noted
}

// Noted are Events of a job, and of its pods.
type Noted struct {
	Job    types.UID
	Events []record.Event
}

// Recorder records all jobs.
type Recorder struct {
	// Cache has the indexes of SetupIndexes.
	Cache cache.Cache
	// Namespaces are those whose jobs are recorded. What is recorded of jobs of others stays as it is.
	Namespaces scope.Namespaces
	Store      Store
	// Tails reads what containers wrote; nil for nothing.
	Tails Tails
	// Usage reads what replicas use; nil for nothing.
	Usage Usage
	// Events reads Events; nil for nothing.
	Events Events
	// Releases get the jobs whose end is recorded.
	Releases Releases
	// Redact is what is removed from messages.
	Redact record.Redaction
	// GPU is the resource of GPUs.
	GPU     corev1.ResourceName
	Metrics *Metrics
	Clock   clock.Clock
	Log     logr.Logger

	queue *queue
	// known are the jobs that have not ended, as they are recorded. Only the loop uses them.
	known map[types.UID]*known
	// reduced and dropped are those of them that the database refuses, and refuses even then.
	reduced, dropped map[types.UID]bool
	// tails are those that are not written yet.
	tails []store.Change
	// used and noted are what is not recorded yet.
	used  map[types.NamespacedName]Used
	noted map[types.NamespacedName]Noted
	// ended are the deleted jobs whose end is recorded, and whose tails may not be.
	ended map[types.NamespacedName]types.UID
}

// known is what is remembered of a job that has not ended.
type known struct {
	job record.Job
	// report is the last one that was recorded, and sampled is when.
	report  []byte
	sampled time.Time
}

// NeedLeaderElection restricts it to the leader: of several programs one records, and all serve.
func (*Recorder) NeedLeaderElection() bool { return true }

// Start implements manager.Runnable. It runs until the context ends.
func (r *Recorder) Start(ctx context.Context) error {
	r.queue, r.known = newQueue(r.Clock), map[types.UID]*known{}
	r.reduced, r.dropped, r.ended = map[types.UID]bool{}, map[types.UID]bool{}, map[types.NamespacedName]types.UID{}
	r.Metrics.queue.Store(r.queue)
	defer r.Metrics.queue.Store(nil)
	followed, err := r.follow(ctx)
	if err != nil {
		return err
	}
	// A job is let go only after the tails of its pods were asked for.
	if !r.Cache.WaitForCacheSync(ctx) || !toolscache.WaitForCacheSync(ctx.Done(), followed...) {
		return nil
	}
	retry := &Retry{r.Metrics, r.Clock, r.Log}
	if !retry.Do(ctx, StepCompare, "Cannot compare the database with what exists; retrying", r.compare) {
		return nil
	}
	for retry.Do(ctx, StepRecord, "Cannot record jobs; retrying", r.flush) {
		if !pause(ctx, r.Clock, interval) {
			return nil
		}
	}
	return nil
}

// follow notes which jobs change. The results report whether those that exist are noted.
func (r *Recorder) follow(ctx context.Context) ([]toolscache.InformerSynced, error) {
	var followed []toolscache.InformerSynced
	for _, kind := range []client.Object{&v2alpha1.DIJob{}, &v2alpha1.Membership{}, &v2alpha1.ScalePlan{}, &corev1.Pod{}} {
		informer, err := r.Cache.GetInformer(ctx, kind, cache.BlockUntilSynced(false))
		if err != nil {
			return nil, fmt.Errorf("watching %T: %w", kind, err)
		}
		registered, err := informer.AddEventHandler(toolscache.ResourceEventHandlerFuncs{
			AddFunc:    r.changed,
			UpdateFunc: func(_, after any) { r.changed(after) },
			DeleteFunc: r.deleted,
		})
		if err != nil {
			return nil, fmt.Errorf("watching %T: %w", kind, err)
		}
		followed = append(followed, registered.HasSynced)
	}
	return followed, nil
}

func (r *Recorder) changed(changed any) {
	switch object := changed.(type) {
	case *v2alpha1.ScalePlan:
		r.queue.add(types.NamespacedName{Namespace: object.Namespace, Name: object.Spec.Job})
	case *corev1.Pod:
		for _, job := range controllers.OwnerName(object) {
			r.queue.add(types.NamespacedName{Namespace: object.Namespace, Name: job})
		}
		if r.Tails != nil {
			r.Tails.Observe(object)
		}
	case client.Object:
		r.queue.add(client.ObjectKeyFromObject(object))
	}
}

func (r *Recorder) deleted(last any) {
	if tombstone, isTombstone := last.(toolscache.DeletedFinalStateUnknown); isTombstone {
		last = tombstone.Obj
	}
	if pod, isPod := last.(*corev1.Pod); isPod && r.Tails != nil {
		defer r.Tails.Forget(pod)
	}
	job, isJob := last.(*v2alpha1.DIJob)
	if !isJob {
		r.changed(last)
		return
	}
	if !r.queue.addGone(job) {
		r.Log.Info("Too many deleted jobs wait for the database; this one will be recorded as unseen", "job", client.ObjectKeyFromObject(job))
	}
}

// compare loads the jobs that have not ended, and marks those that are gone as unseen.
func (r *Recorder) compare(ctx context.Context) error {
	var jobs v2alpha1.DIJobList
	if err := r.Cache.List(ctx, &jobs, client.UnsafeDisableDeepCopy); err != nil {
		return fmt.Errorf("listing jobs: %w", err)
	}
	exists := make(map[types.UID]bool, len(jobs.Items))
	for i := range jobs.Items {
		exists[jobs.Items[i].UID] = true
		r.queue.add(client.ObjectKeyFromObject(&jobs.Items[i]))
	}
	return r.Store.Open(ctx, batchSize, func(page []record.Job) error {
		var unseen []store.Change
		for _, job := range page {
			if !r.Namespaces.Has(job.Namespace) {
				continue
			}
			uid := types.UID(job.UID)
			if exists[uid] || r.queue.isGone(uid) {
				r.known[uid] = &known{job: job}
				continue
			}
			ended := observe.Gone(job, false, r.Clock.Now())
			unseen = append(unseen, store.Change{UID: job.UID, Job: &ended})
		}
		if len(unseen) == 0 {
			return nil
		}
		r.Log.Info("Jobs ended while nothing recorded them", "jobs", len(unseen))
		return r.write(ctx, unseen)
	})
}

// flush records all changed jobs, and then tails: those of jobs that are not recorded would be ignored.
func (r *Recorder) flush(ctx context.Context) error {
	if len(r.tails) == 0 && r.Tails != nil {
		r.tails = r.Tails.Take()
	}
	if len(r.used) == 0 && r.Usage != nil {
		r.used = r.Usage.Take()
		for job := range r.used {
			r.queue.add(job)
		}
	}
	if len(r.noted) == 0 && r.Events != nil {
		r.noted = r.Events.Take()
		for job := range r.noted {
			r.queue.add(job)
		}
	}
	for {
		taken := r.queue.take(batchSize)
		if taken.length() == 0 {
			err := r.flushTails(ctx)
			if err == nil {
				r.release()
			}
			return err
		}
		if err := r.record(ctx, taken); err != nil {
			r.queue.giveBack()
			return err
		}
		r.queue.done()
	}
}

func (r *Recorder) flushTails(ctx context.Context) error {
	if len(r.tails) > 0 {
		if err := r.write(ctx, r.tails); err != nil {
			return err
		}
		r.tails = nil
	}
	return nil
}

// release lets go of jobs once everything of them is recorded.
func (r *Recorder) release() {
	for job, uid := range r.ended {
		if r.Tails == nil || !r.Tails.Reads(uid) {
			r.Releases.Release(job, uid)
			delete(r.ended, job)
		}
	}
}

// waits reports whether a deleted job exists until its end is recorded.
func waits(job *v2alpha1.DIJob) bool {
	return !job.DeletionTimestamp.IsZero() && controllerutil.ContainsFinalizer(job, names.FinalizerHistory)
}

func (r *Recorder) record(ctx context.Context, taken batch) error {
	all, err := r.observeAll(ctx, taken)
	if err != nil {
		return err
	}
	if len(all.changes) > 0 {
		if err := r.write(ctx, all.changes); err != nil {
			return err
		}
	}
	for job := range taken.changed {
		delete(r.used, job)
		delete(r.noted, job)
	}
	for job, uid := range all.ended {
		if !r.dropped[uid] {
			r.ended[job] = uid
		}
	}
	for uid, now := range all.after {
		if r.known[uid] = now; now.job.HasEnded() {
			delete(r.known, uid)
			delete(r.reduced, uid)
			delete(r.dropped, uid)
		}
	}
	return nil
}

// observed is what to record of several jobs.
type observed struct {
	changes []store.Change
	// after are the jobs as they are recorded then.
	after map[types.UID]*known
	// ended are those that wait until their end is recorded.
	ended map[types.NamespacedName]types.UID
}

// observeAll returns what to record of the jobs of a batch.
func (r *Recorder) observeAll(ctx context.Context, taken batch) (*observed, error) {
	all := &observed{after: map[types.UID]*known{}, ended: map[types.NamespacedName]types.UID{}}
	for uid, gone := range taken.gone {
		now, change, err := r.end(ctx, gone.job)
		if err != nil {
			return nil, err
		}
		all.add(uid, now, change)
	}
	for key := range taken.changed {
		job, err := controllers.Find(ctx, r.Cache, key, &v2alpha1.DIJob{})
		if err != nil {
			return nil, err
		}
		if job == nil {
			continue
		}
		now, change, err := r.observe(ctx, job)
		if err != nil {
			return nil, err
		}
		all.add(job.UID, now, change)
		if now != nil && waits(job) {
			all.ended[key] = job.UID
		}
	}
	return all, nil
}

func (o *observed) add(uid types.UID, now *known, change *store.Change) {
	if now != nil {
		o.after[uid] = now
	}
	if change != nil {
		o.changes = append(o.changes, *change)
	}
}

// before returns what is recorded of a job.
func (r *Recorder) before(ctx context.Context, job *v2alpha1.DIJob) (known, error) {
	if found := r.known[job.UID]; found != nil {
		return *found, nil
	}
	recorded, err := r.Store.Job(ctx, job.Namespace, job.Name, string(job.UID))
	if err != nil && !errors.Is(err, store.ErrNotFound) {
		return known{}, err
	}
	return known{job: recorded}, nil
}

// observe returns what to record of a job; no change if nothing is new.
func (r *Recorder) observe(ctx context.Context, job *v2alpha1.DIJob) (*known, *store.Change, error) {
	before, err := r.before(ctx, job)
	if err != nil {
		return nil, nil, err
	}
	seen, err := r.gather(ctx, job)
	if err != nil {
		return nil, nil, err
	}
	after := before
	if after.job, err = observe.Record(before.job, seen); err != nil {
		// Trying again does not help: the job is recorded when it changes.
		r.Metrics.refused.WithLabelValues(resultDropped).Inc()
		r.Log.Error(err, "Cannot record job", "job", client.ObjectKeyFromObject(job))
		return nil, nil, nil
	}
	if waits(job) {
		after.job = observe.Gone(after.job, true, job.DeletionTimestamp.Time)
	}
	change := &store.Change{UID: after.job.UID}
	if !reflect.DeepEqual(before.job, after.job) {
		change.Job = &after.job
	}
	if sample, isNew := observe.Sample(job, before.report, seen.Now); isNew && seen.Now.Sub(before.sampled) >= record.MinSpacing {
		change.Samples = []record.Sample{sample}
		after.report, after.sampled = job.Status.Profilings.Raw, seen.Now
	}
	// It is a sample of its own, so that the report keeps all its series. Two of one time would be one.
	if sample, isNew := observe.UsageSample(seen.Used, seen.Now.Add(-time.Microsecond)); isNew {
		change.Samples = append(change.Samples, sample)
	}
	if change.Job == nil && change.Samples == nil {
		return &after, nil, nil
	}
	return &after, change, nil
}

// gather reads what belongs to a job from the cache.
func (r *Recorder) gather(ctx context.Context, job *v2alpha1.DIJob) (observe.Observation, error) {
	seen := observe.Observation{Job: job, Redact: r.Redact, GPU: r.GPU, Now: r.Clock.Now()}
	if used := r.used[client.ObjectKeyFromObject(job)]; used.Job == job.UID {
		seen.Used = used.Tasks
	}
	if noted := r.noted[client.ObjectKeyFromObject(job)]; noted.Job == job.UID {
		seen.Events = noted.Events
	}
	var pods corev1.PodList
	if err := r.Cache.List(ctx, &pods, client.InNamespace(job.Namespace), client.MatchingFields{controllers.OwnerIndex: job.Name}, client.UnsafeDisableDeepCopy); err != nil {
		return seen, fmt.Errorf("listing pods of job %s/%s: %w", job.Namespace, job.Name, err)
	}
	seen.Pods = controllers.PodsOf(job, pods.Items)
	var plans v2alpha1.ScalePlanList
	if err := r.Cache.List(ctx, &plans, client.InNamespace(job.Namespace), client.MatchingFields{controllers.PlanIndex: job.Name}, client.UnsafeDisableDeepCopy); err != nil {
		return seen, fmt.Errorf("listing ScalePlans of job %s/%s: %w", job.Namespace, job.Name, err)
	}
	for i := range plans.Items {
		// An earlier job of this name may have had others.
		if !plans.Items[i].CreationTimestamp.Before(&job.CreationTimestamp) {
			seen.Plans = append(seen.Plans, plans.Items[i])
		}
	}
	membership, err := controllers.Find(ctx, r.Cache, client.ObjectKeyFromObject(job), &v2alpha1.Membership{})
	if err == nil && membership != nil && membership.Spec.JobUID == job.UID {
		seen.Membership = membership
	}
	return seen, err
}

// end returns the last record of a deleted job: its last object, and then its end.
func (r *Recorder) end(ctx context.Context, job *v2alpha1.DIJob) (*known, *store.Change, error) {
	after, change, err := r.observe(ctx, job)
	if err != nil || after == nil {
		return nil, nil, err
	}
	if change == nil {
		change = &store.Change{UID: after.job.UID}
	}
	after.job = observe.Gone(after.job, true, r.Clock.Now())
	change.Job = &after.job
	return after, change, nil
}
