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
	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/tools/events"
	"k8s.io/utils/clock"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/log"

	"opendilab.org/di-orchestrator/allocation"
	"opendilab.org/di-orchestrator/allocation/shares"
	"opendilab.org/di-orchestrator/allocation/tenancy"
	"opendilab.org/di-orchestrator/apis/v2alpha1"
	"opendilab.org/di-orchestrator/controllers"
	"opendilab.org/di-orchestrator/controllers/allocator/devices"
	"opendilab.org/di-orchestrator/controllers/allocator/histories"
	"opendilab.org/di-orchestrator/controllers/allocator/survey"
	"opendilab.org/di-orchestrator/controllers/allocator/usage"
	"opendilab.org/di-orchestrator/controllers/assume"
	"opendilab.org/di-orchestrator/internal/limits"
	"opendilab.org/di-orchestrator/job/lifecycle/placements"
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
	// devicesTimeout bounds the first read of the devices, so that an API that cannot be listed does not block
	// jobs without devices.
	devicesTimeout = 5 * time.Second
	// maxRefreshes is the maximum number of writes in one round of jobs whose placement stays, so that a
	// decision never waits long for them.
	maxRefreshes = 100
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
	// tenants share the capacity; nil for none.
	tenants *shares.Tenants
	// topology are the labels of nodes that name their domains.
	topology []string
	// policyName is the name of the policy in metrics and in the status of jobs.
	policyName      string
	cycle, interval time.Duration
	// writing is how long a round starts writes.
	writing time.Duration
	// maxPods is the maximum number of pods of a job; 0 for the default.
	maxPods int32
	clock   clock.PassiveClock
	metrics *roundMetrics
	// everything returns when the cache has the pods of all jobs; nil if it always has them.
	everything func(context.Context) error
	// reports are the reports of the jobs, parsed once. groups are the histories of their groups.
	reports reports
	groups  groupStore
	// memory is what the last round left for the next one.
	memory survey.Memory

	// last is the time of the last round. written are the jobs as this process or an earlier one wrote
	// them, until the cache has those versions; nil before the first round, and after a write whose outcome is unknown.
	// There is one worker, so no lock.
	last    time.Time
	written map[types.UID]*v2alpha1.DIJob
}

// Reconcile runs an allocation round, unless the last one is too recent.
func (a *Reconciler) Reconcile(ctx context.Context, _ ctrl.Request) (ctrl.Result, error) {
	if left := a.last.Add(a.interval).Sub(a.clock.Now()); left > 0 {
		return ctrl.Result{RequeueAfter: left}, nil
	}
	a.last = a.clock.Now()
	result, err := a.goRound(ctx)
	a.metrics.observeRound(a.clock.Now().Sub(a.last), err)
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
		a.metrics.tenants.observe(nil)
		return ctrl.Result{}, a.learn(ctx, succeeded)
	}
	if a.everything != nil {
		if err := a.everything(ctx); err != nil {
			return ctrl.Result{}, fmt.Errorf("watching the pods of all jobs: %w", err)
		}
	}
	found, err := a.observe(ctx, jobs)
	if err != nil {
		return ctrl.Result{}, err
	}
	round := a.decide(ctx, found)
	err = errors.Join(a.carryOut(ctx, jobs, round), a.learn(ctx, succeeded))
	a.conclude(ctx, jobs, round)
	if err != nil {
		// A write that got no answer may be stored. So the next round reads the jobs live, as the first one does. The
		// queue applies the backoff.
		a.written = nil
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
	nodes := r.input.Snapshot.Nodes
	a.metrics.observeState(states, nodes)
	a.metrics.tenants.observe(r.standings)
	traceRound(ctx, len(nodes), states)
	log.FromContext(ctx).V(1).Info("Allocation round finished", "nodes", len(nodes),
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
		if histories.IsUncounted(job) {
			succeeded = append(succeeded, job)
		}
	}
	a.written = written
	return jobs, succeeded, nil
}

// learnWritten reads the jobs live if the last writes are unknown: those of an earlier leader, or one without an answer. The cache
// may not have them.
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
	found *survey.Cluster
	input *survey.Round
	// restarts are those that have ended since the last round.
	restarts map[types.UID]usage.Restart
	// refreshes is how many jobs whose placement stays may still be written. isPostponed reports whether
	// the next round writes some placements.
	refreshes   int
	isPostponed bool
	// standings are what tenants have by the decisions.
	standings []tenancy.Standing
	// placements are the decisions.
	placements map[types.NamespacedName]allocation.Placement
}

// observe reads nodes, pods, quotas and devices.
func (a *Reconciler) observe(ctx context.Context, jobs []*v2alpha1.DIJob) (*survey.Cluster, error) {
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
	return &survey.Cluster{
		Now: a.clock.Now(), Jobs: jobs, Nodes: nodes, Pods: pods, Others: others, Admission: admission,
		Devices: a.devices(ctx, jobs, pods), MaxPods: cmp.Or(a.maxPods, limits.PodsPerJob), Topology: a.topology,
	}, nil
}

// nodes returns all nodes.
func (a *Reconciler) nodes(ctx context.Context) ([]*corev1.Node, error) {
	var list corev1.NodeList
	if err := a.client.List(ctx, &list, client.UnsafeDisableDeepCopy); err != nil {
		return nil, fmt.Errorf("listing nodes: %w", err)
	}
	nodes := make([]*corev1.Node, len(list.Items))
	for i := range list.Items {
		nodes[i] = &list.Items[i]
	}
	return nodes, nil
}

// admission reads the quotas and limit ranges.
func (a *Reconciler) admission(ctx context.Context) (*survey.Admission, error) {
	var quotas corev1.ResourceQuotaList
	if err := a.client.List(ctx, &quotas, client.UnsafeDisableDeepCopy); err != nil {
		return nil, fmt.Errorf("listing resource quotas: %w", err)
	}
	var ranges corev1.LimitRangeList
	if err := a.client.List(ctx, &ranges, client.UnsafeDisableDeepCopy); err != nil {
		return nil, fmt.Errorf("listing limit ranges: %w", err)
	}
	return survey.NewAdmission(quotas.Items, ranges.Items), nil
}

// devices reads the devices of the cluster if a job needs any. Nothing is watched before the first such job,
// or if the API is not served. If the devices cannot be read, jobs are placed without them.
func (a *Reconciler) devices(ctx context.Context, jobs []*v2alpha1.DIJob, pods map[types.UID][]*corev1.Pod) *devices.Counted {
	if !slices.ContainsFunc(jobs, devices.AreRequestedBy) {
		return &devices.Counted{}
	}
	ctx, cancel := context.WithTimeout(ctx, devicesTimeout)
	defer cancel()
	var found devices.Objects
	for _, list := range []client.ObjectList{&found.Classes, &found.Slices, &found.Claims, &found.Templates} {
		if err := a.client.List(ctx, list, client.UnsafeDisableDeepCopy); err != nil {
			if !meta.IsNoMatchError(err) {
				log.FromContext(ctx).Error(err, "Devices are not counted")
			}
			return &devices.Counted{}
		}
	}
	return devices.Count(&found, pods)
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
