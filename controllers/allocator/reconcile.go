// Copyright The DI Orchestrator Authors.
// SPDX-License-Identifier: Apache-2.0

package allocator

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/tools/events"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/log"

	"opendilab.org/di-orchestrator/allocation"
	"opendilab.org/di-orchestrator/apis/v2alpha1"
	"opendilab.org/di-orchestrator/controllers"
	"opendilab.org/di-orchestrator/controllers/assume"
	"opendilab.org/di-orchestrator/internal/conditions"
	"opendilab.org/di-orchestrator/internal/limits"
	"opendilab.org/di-orchestrator/internal/names"
	"opendilab.org/di-orchestrator/job/lifecycle/placements"
	"opendilab.org/di-orchestrator/job/lifecycle/sizing"
	"opendilab.org/di-orchestrator/job/podstate"
	"opendilab.org/di-orchestrator/job/workload"
)

const (
	// DefaultCycle is the time between allocation rounds by default.
	DefaultCycle = time.Minute
	// defaultGrowAfter is how long a partially placed job keeps its placement before it
	// grows, because each growth restarts it.
	defaultGrowAfter = 5 * time.Minute
	// defaultInterval is the minimum time between two rounds by default.
	defaultInterval = time.Second
	// defaultWriting is how long a round starts writes by default.
	defaultWriting = time.Second
	// reportDelay is the time between a report and the round that uses it, if nothing else changes.
	reportDelay = 10 * time.Second
	// unreadyGrace is how long a node may be not ready before its jobs are placed elsewhere. Kubernetes
	// keeps pods on such a node for the same time.
	unreadyGrace = 5 * time.Minute
)

// Reconciler places all preemptible jobs in allocation rounds. It writes only their
// status.allocation, status.allocationUsage and condition Allocated.
type Reconciler struct {
	// client reads from caches and writes to the API server.
	client client.Client
	// live reads from the API server.
	live     client.Reader
	recorder events.EventRecorder
	policy   allocation.Policy
	// policyName is the name of the policy in metrics and in the status of jobs.
	policyName      string
	cycle, interval time.Duration
	// writing is how long a round starts writes.
	writing time.Duration
	// maxPods is the maximum number of pods of a job; 0 for the default.
	maxPods int32
	now     func() time.Time
	metrics *roundMetrics
	// everything returns when the cache has the pods of all jobs; nil if it always has them.
	everything func(context.Context) error
	// reports are the reports of the jobs, parsed once. groups are the histories of their groups.
	reports reports
	groups  groupStore
	// exclusions are the nodes where pods of jobs were unschedulable.
	exclusions exclusions
	// refusals are the jobs whose pods were refused for a quota.
	refusals refusals

	// last is the time of the last round. written are the jobs as this process or an earlier one wrote
	// them, until the cache has those versions; nil before the first round. There is one worker, so no
	// lock.
	last    time.Time
	written map[types.UID]*v2alpha1.DIJob
}

// Reconcile runs an allocation round, unless the last one is too recent.
func (a *Reconciler) Reconcile(ctx context.Context, _ ctrl.Request) (ctrl.Result, error) {
	if left := a.last.Add(a.interval).Sub(a.now()); left > 0 {
		return ctrl.Result{RequeueAfter: left}, nil
	}
	a.last = a.now()
	result, err := a.goRound(ctx)
	a.metrics.observeRound(a.now().Sub(a.last), err)
	return result, err
}

func (a *Reconciler) goRound(ctx context.Context) (ctrl.Result, error) {
	jobs, succeeded, err := a.jobs(ctx)
	if err != nil {
		return ctrl.Result{}, err
	}
	if err := a.groups.load(ctx); err != nil {
		return ctrl.Result{}, err
	}
	if len(jobs) == 0 {
		a.metrics.observeState(nil, nil)
		return ctrl.Result{}, a.learn(ctx, succeeded)
	}
	if a.everything != nil {
		if err := a.everything(ctx); err != nil {
			return ctrl.Result{}, fmt.Errorf("watching the pods of all jobs: %w", err)
		}
	}
	round, err := a.survey(ctx, jobs)
	if err != nil {
		return ctrl.Result{}, err
	}
	a.decide(ctx, jobs, round)
	err = errors.Join(a.carryOut(ctx, jobs, round), a.learn(ctx, succeeded))
	a.conclude(ctx, jobs, round)
	if err != nil {
		// The queue applies the backoff.
		return ctrl.Result{}, err
	}
	if round.isPostponed {
		return ctrl.Result{RequeueAfter: a.interval}, nil
	}
	return ctrl.Result{RequeueAfter: a.cycle}, nil
}

// conclude observes and logs the state of jobs after a round.
func (a *Reconciler) conclude(ctx context.Context, jobs []*v2alpha1.DIJob, r *round) {
	states := map[string]int{}
	for _, job := range jobs {
		if written := a.written[job.UID]; written != nil {
			job = written
		}
		if placements.WantsPlace(job) {
			states[stateOf(job)]++
		}
	}
	a.metrics.observeState(states, r.snapshot.Nodes)
	traceRound(ctx, len(r.snapshot.Nodes), states)
	log.FromContext(ctx).V(1).Info("Allocation round finished", "nodes", len(r.snapshot.Nodes),
		statePlaced, states[statePlaced], statePartial, states[statePartial], stateWaiting, states[stateWaiting])
}

// jobs returns the jobs that need a placement or must release theirs, and those that have succeeded and that
// no history includes, each in its last written version.
func (a *Reconciler) jobs(ctx context.Context) (jobs, succeeded []*v2alpha1.DIJob, err error) {
	if err := a.learnWritten(ctx); err != nil {
		return nil, nil, err
	}
	var list v2alpha1.DIJobList
	if err := a.client.List(ctx, &list, client.UnsafeDisableDeepCopy); err != nil {
		return nil, nil, fmt.Errorf("listing jobs: %w", err)
	}
	written := make(map[types.UID]*v2alpha1.DIJob, len(a.written))
	for i := range list.Items {
		job := &list.Items[i]
		if ours := a.written[job.UID]; ours != nil && assume.IsOlder(job, ours) {
			written[job.UID] = ours
			job = ours
		}
		if placements.WantsPlace(job) || placements.LeavesPlace(job) {
			jobs = append(jobs, job)
		}
		if isUncounted(job) {
			succeeded = append(succeeded, job)
		}
	}
	a.written = written
	return jobs, succeeded, nil
}

// learnWritten reads the jobs live before the first round, because the cache may not have the last writes
// of an earlier leader.
func (a *Reconciler) learnWritten(ctx context.Context) error {
	if a.written != nil {
		return nil
	}
	var list v2alpha1.DIJobList
	if err := a.live.List(ctx, &list); err != nil {
		return fmt.Errorf("listing jobs live: %w", err)
	}
	a.written = map[types.UID]*v2alpha1.DIJob{}
	for i := range list.Items {
		if job := &list.Items[i]; job.Spec.Preemptible {
			a.written[job.UID] = job
		}
	}
	return nil
}

// round is the input and the result of an allocation round.
type round struct {
	snapshot *allocation.Snapshot
	devices  *devices
	// admission is what bounds the pods of namespaces, and quotas what that leaves to the jobs.
	admission *admission
	quotas    map[string][]*allocation.Quota
	// maxPods is the maximum number of pods of a job.
	maxPods int32
	wanted  map[types.NamespacedName]*allocation.Job
	// previous are the nodes of jobs. placed are those nodes that are recorded in their status.
	previous, placed map[types.NamespacedName][]string
	// pods are the pods of the jobs.
	pods map[types.UID][]*corev1.Pod
	now  time.Time
	// restarts are those that have ended since the last round.
	restarts map[types.UID]restart
	// refreshes is how many jobs whose placement stays may still be written. isPostponed reports whether
	// the next round writes some placements.
	refreshes   int
	isPostponed bool
	// placements are the decisions.
	placements map[types.NamespacedName]allocation.Placement
}

// survey reads nodes, pods and jobs.
func (a *Reconciler) survey(ctx context.Context, jobs []*v2alpha1.DIJob) (*round, error) {
	nodes, err := a.nodes(ctx)
	if err != nil {
		return nil, err
	}
	pods, others, err := a.pods(ctx, jobs)
	if err != nil {
		return nil, err
	}
	admission, err := a.admission(ctx)
	if err != nil {
		return nil, err
	}
	devices := a.devices(ctx, jobs, pods)
	for i := range nodes {
		nodes[i] = devices.node(nodes[i])
	}
	r := &round{
		now: a.now(), restarts: map[types.UID]restart{}, refreshes: maxRefreshes,
		snapshot: allocation.NewSnapshot(nodes), devices: devices, admission: admission, pods: pods,
		maxPods:    cmp.Or(a.maxPods, limits.PodsPerJob),
		wanted:     make(map[types.NamespacedName]*allocation.Job, len(jobs)),
		previous:   make(map[types.NamespacedName][]string, len(jobs)),
		placed:     make(map[types.NamespacedName][]string, len(jobs)),
		placements: make(map[types.NamespacedName]allocation.Placement, len(jobs)),
	}
	for _, pod := range others {
		occupy(r.snapshot, pod)
	}
	terminating := nodesOfTerminating(pods)
	for _, job := range jobs {
		r.take(job, pods[job.UID], r.now)
		r.exclude(a.exclusions, job, pods[job.UID], terminating, r.now)
		r.admit(a.refusals, job)
	}
	r.quotas = r.bounds(jobs)
	a.exclusions.forget(jobs)
	a.refusals.forget(jobs)
	return r, nil
}

// take adds a job to the round. The job becomes input of the policy, or it gets a placement that needs no
// decision, together with the capacity that its pods occupy.
func (r *round) take(job *v2alpha1.DIJob, pods []*corev1.Pod, now time.Time) {
	name := client.ObjectKeyFromObject(job)
	wanted, err := r.jobToPlace(job, pods)
	switch {
	case placements.LeavesPlace(job):
		r.placements[name] = allocation.Placement{Reason: v2alpha1.ConditionSuspended, Message: "a suspended job has no placement"}
		if err == nil {
			// Other jobs get its capacity once its release is written.
			r.snapshot.Reserve(wanted, job.Status.Allocation)
			return
		}
	case err != nil:
		// Running pods continue. Only new pods could not be created.
		r.placements[name] = allocation.Placement{
			Nodes: job.Status.Allocation, Reason: v2alpha1.ConditionInvalidSpec, Message: err.Error(),
		}
	case len(r.snapshot.Nodes) == 0 && isPlacedByOther(job):
		// Without a node the allocator has no better placement.
	default:
		if previous, known := placeOf(job, pods); known {
			wanted.Ended, wanted.Held = placements.EndedRanks(job, pods), placedFor(job, now)
			wanted.Running, wanted.Waiting = runningRanks(pods), waitingFor(job, now)
			wanted.Excluded = closedNodes(job, pods, r.snapshot)
			r.wanted[name], r.previous[name], r.placed[name] = wanted, previous, job.Status.Allocation
			r.snapshot.Leave(wanted, previous, slices.DeleteFunc(slices.Clone(pods), podstate.Finished))
			return
		}
	}
	for _, pod := range pods {
		occupy(r.snapshot, r.devices.pod(pod))
	}
}

// isPlacedByOther reports whether another program placed a job. The allocator always sets condition
// Allocated on the jobs that it places.
func isPlacedByOther(job *v2alpha1.DIJob) bool {
	return len(job.Status.Allocation) > 0 && !conditions.IsTrue(&job.Status, v2alpha1.ConditionAllocated)
}

// nodes returns the nodes that exist and are not lost.
func (a *Reconciler) nodes(ctx context.Context) ([]*corev1.Node, error) {
	var list corev1.NodeList
	if err := a.client.List(ctx, &list, client.UnsafeDisableDeepCopy); err != nil {
		return nil, fmt.Errorf("listing nodes: %w", err)
	}
	var nodes []*corev1.Node
	for i := range list.Items {
		if node := &list.Items[i]; !isLost(node, a.now()) {
			nodes = append(nodes, node)
		}
	}
	return nodes, nil
}

// isLost reports whether a node has been not ready for longer than unreadyGrace.
func isLost(node *corev1.Node, now time.Time) bool {
	ready := conditions.OfNode(node, corev1.NodeReady)
	return ready != nil && ready.Status != corev1.ConditionTrue && now.Sub(ready.LastTransitionTime.Time) > unreadyGrace
}

// pods returns the pods of the jobs of the round by job, and all others.
func (a *Reconciler) pods(ctx context.Context, jobs []*v2alpha1.DIJob) (pods map[types.UID][]*corev1.Pod, others []*corev1.Pod, err error) {
	var list corev1.PodList
	if err := a.client.List(ctx, &list, client.UnsafeDisableDeepCopy); err != nil {
		return nil, nil, fmt.Errorf("listing pods: %w", err)
	}
	asked := make(map[types.UID]bool, len(jobs))
	for _, job := range jobs {
		asked[job.UID] = true
	}
	pods = make(map[types.UID][]*corev1.Pod, len(jobs))
	for i := range list.Items {
		pod := &list.Items[i]
		if owner := controllers.OwnerUID(pod); len(owner) > 0 && asked[types.UID(owner[0])] {
			pods[types.UID(owner[0])] = append(pods[types.UID(owner[0])], pod)
			continue
		}
		others = append(others, pod)
	}
	return pods, others, nil
}

// occupy subtracts a pod from its node in a snapshot.
func occupy(snapshot *allocation.Snapshot, pod *corev1.Pod) {
	if pod.Spec.NodeName != "" && !podstate.Finished(pod) {
		snapshot.Occupy(pod)
	}
}

// placeOf returns the nodes of a job: its allocation or, if it never had one, the nodes of its pods. The
// latter may not be known yet.
func placeOf(job *v2alpha1.DIJob, pods []*corev1.Pod) (nodes []string, known bool) {
	if len(job.Status.Allocation) == 0 {
		return placements.NodesByRank(job, pods)
	}
	return job.Status.Allocation, true
}

// resizesLive reports whether the other replicas of a job continue when its elastic task is resized.
func resizesLive(job *v2alpha1.DIJob, elastic int) bool {
	return job.Spec.Elastic != nil && job.Spec.Elastic.OnResize == v2alpha1.OnResizeContinue &&
		elastic == len(job.Spec.Tasks)-1 && sizing.WhyRestarted(job, nil) == ""
}

// jobToPlace returns a job as input for a policy. Counts above the limits are an error, because a policy
// would not terminate.
func (r *round) jobToPlace(job *v2alpha1.DIJob, pods []*corev1.Pod) (*allocation.Job, error) {
	if excess := limits.CheckCounts(&job.Spec, r.maxPods); len(excess) > 0 {
		return nil, errors.New(excess[0].String())
	}
	wanted := &allocation.Job{Name: client.ObjectKeyFromObject(job), Created: job.CreationTimestamp.Time}
	if job.Spec.Priority == v2alpha1.PriorityHigh {
		wanted.Priority = 1
	}
	wanted.Elastic, wanted.Min, wanted.Wanted = sizing.Range(job)
	wanted.ResizesLive = resizesLive(job, wanted.Elastic)
	var overrides []v2alpha1.ResourceOverride
	if job.Status.Scaling != nil {
		overrides = job.Status.Scaling.Resources
	}
	for i := range job.Spec.Tasks {
		task := &job.Spec.Tasks[i]
		template, err := workload.Template(fmt.Sprintf("spec.tasks[%d].template", i), task.Template)
		if err != nil {
			return nil, err
		}
		admitted := r.admitted(wanted, task, workload.DefaultRequests(workload.WithLargestOverride(&template.Spec, overrides, names.TaskName(task))))
		existing := podsOf(task, pods)
		wanted.Tasks = append(wanted.Tasks, allocation.Task{
			Name: task.Name, Replicas: sizing.Count(job, i), Uses: r.admission.usesOf(job.Namespace, admitted, existing),
			Pod: r.snapshot.RequirementsOf(r.devices.spec(job.Namespace, admitted), existing...),
		})
	}
	return wanted, nil
}
