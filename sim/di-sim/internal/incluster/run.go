// Copyright The DI Orchestrator Authors.
// SPDX-License-Identifier: Apache-2.0

package incluster

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"golang.org/x/sync/errgroup"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/utils/clock"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"opendilab.org/di-orchestrator/allocation"
	"opendilab.org/di-orchestrator/apis/v2alpha1"
	"opendilab.org/di-orchestrator/internal/names"
	"opendilab.org/di-orchestrator/job/lifecycle/state"
	"opendilab.org/di-orchestrator/job/podstate"
	"opendilab.org/di-orchestrator/sim/simulator"
	"opendilab.org/di-orchestrator/test/testkit"
)

const (
	// tick is the real interval at which jobs train and are compared with the cluster.
	tick = 20 * time.Millisecond
	// progressInterval is the real interval of progress.
	progressInterval = 5 * time.Second
	// writers is the number of concurrent writes of jobs and their pods.
	writers = 8
	// lookahead is the maximum real time that the clock is fast between two ticks. Jobs would otherwise train long
	// without a report where a tick is late.
	lookahead = 3 * tick
	// maxPause is the maximum simulated time in seconds between two rounds at full speed. It leaves a round the
	// time of another cycle.
	maxPause = int(2 * cycle / time.Second)
)

// Options are the settings of a run.
type Options struct {
	// Rules are those of the simulation.
	Rules simulator.Options
	// Policy decides the placements, PolicyName is its name.
	Policy     allocation.Policy
	PolicyName string
	// Row is what jobs report.
	Row simulator.Row
	// Factor is how many simulated seconds pass in a real one.
	Factor float64
	// ReportInterval is the simulated interval of a job's reports, in seconds.
	ReportInterval int
	// OperatorLife is how long, in simulated seconds, an operator runs before another replaces it; 0 for
	// the whole run.
	OperatorLife int
	// Clock is the real clock.
	Clock clock.WithTicker
	// Show is called with the state of the run every few seconds; may be nil.
	Show func(State)
}

// State is the state of a run.
type State struct {
	// Now is the simulated time in seconds.
	Now int
	// Submitted, Training and Done count jobs.
	Submitted, Training, Done int
	// Slow is for how long the clock was slow.
	Slow time.Duration
	// Unsettled describes a job that the operator still acts on; "" if there is none.
	Unsettled string
}

// Result is the outcome of a run.
type Result struct {
	simulator.Result
	// Took is the real time of the run, and Slow the part of it while the operator carried out placements
	// and the clock was slow.
	Took, Slow time.Duration
	// Carried are the real times from a submission or a new placement to the moment when all replicas run
	// or the job waits for capacity.
	Carried []time.Duration
}

// run is a workload that runs in a world.
type run struct {
	*Options
	*world
	policy *timedPolicy
	jobs   []*simulated
	// last is the second up to which jobs have trained, and born the one at which the operator started, after
	// earlier rounds.
	last, born, earlier int
	// changed is when a placement was seen that is not carried out yet, by the name of the job.
	changed map[string]time.Time
	carried []time.Duration
	changes []simulator.Change
	// settled is when the operator had last carried out everything, and unsettled what it has not.
	settled   time.Time
	unsettled string
}

// Run replays a workload. It starts a control plane from the assets that testkit.AssetsVariable names, and
// stops it before it returns.
func Run(ctx context.Context, workload []simulator.Submission, options Options) (_ *Result, err error) {
	fast := NewClock(options.Clock, options.Factor)
	w, err := newWorld(ctx, fast, options.Rules.Cluster)
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, w.stop()) }()
	r := &run{Options: &options, world: w, changed: map[string]time.Time{}}
	r.policy = &timedPolicy{Policy: options.Policy, real: options.Clock, clock: fast, submitted: map[types.NamespacedName]int{}}
	for i := range workload {
		submission := &workload[i]
		r.jobs = append(r.jobs, &simulated{Submission: submission, row: options.Row, trainer: simulator.NewTrainer(submission, options.Row)})
		r.policy.submitted[types.NamespacedName{Namespace: namespace, Name: submission.Name}] = submission.Time
	}
	if err := w.startOperator(ctx, r.policy, options.PolicyName); err != nil {
		return nil, err
	}
	fast.Restart()
	began := options.Clock.Now()
	if err := r.untilDone(ctx); err != nil {
		return nil, err
	}
	result := &Result{Took: options.Clock.Since(began), Slow: fast.SlowFor(), Carried: r.carried}
	result.Rounds, result.Changes = r.policy.durations(), r.changes
	result.Capacity = options.Rules.Nodes * options.Rules.GPUs
	for _, job := range r.jobs {
		outcome := job.trainer.Outcome()
		outcome.Starved = job.starved
		result.Jobs = append(result.Jobs, outcome)
	}
	return result, nil
}

// untilDone returns when all jobs are over.
func (r *run) untilDone(ctx context.Context) error {
	ticker := r.Clock.NewTicker(tick)
	defer ticker.Stop()
	shown := r.Clock.Now()
	r.settled = shown
	for {
		if err := r.advance(ctx); err != nil {
			return err
		}
		now := r.Clock.Now()
		state := r.state()
		if r.Show != nil && (now.Sub(shown) >= progressInterval || state.Done == len(r.jobs)) {
			shown = now
			r.Show(state)
		}
		switch {
		case state.Done == len(r.jobs):
			return nil
		case state.Now > r.Rules.Limit:
			return fmt.Errorf("the workload does not come to its end within %d s", r.Rules.Limit)
		case now.Sub(r.settled) > testkit.Patience:
			return fmt.Errorf("the operator takes longer than %s: %s", testkit.Patience, state.Unsettled)
		}
		select {
		case <-ctx.Done():
			return context.Cause(ctx)
		case <-ticker.C():
		}
	}
}

// state returns the state of the run.
func (r *run) state() State {
	s := State{Now: r.last, Slow: r.world.clock.SlowFor(), Unsettled: r.unsettled}
	for _, job := range r.jobs {
		switch {
		case job.isOver:
			s.Done++
		case len(job.placed) > 0:
			s.Training++
		}
		if job.isSubmitted {
			s.Submitted++
		}
	}
	return s
}

// advance lets jobs train up to now, and then acts on what has changed: it submits, moves, reports and
// ends jobs. The clock is slow until the operator has carried out its decisions, and while its next round is
// late.
func (r *run) advance(ctx context.Context) error {
	now := r.world.clock.Seconds()
	r.train(now - r.last)
	r.last = now
	if r.OperatorLife > 0 && now-r.born >= r.OperatorLife {
		if err := r.replaceOperator(ctx, now); err != nil {
			return err
		}
	}
	objects, pods, err := r.read(ctx)
	if err != nil {
		return err
	}
	group, ctx := errgroup.WithContext(ctx)
	group.SetLimit(writers)
	r.unsettled = ""
	if r.awaitsRound() {
		r.unsettled = "the next round of the operator is late"
	}
	for _, job := range r.jobs {
		if err := r.act(ctx, group, job, objects[job.Name], pods[job.Name]); err != nil {
			return errors.Join(err, group.Wait())
		}
	}
	r.record()
	hurry := time.Duration(0)
	if r.unsettled == "" {
		r.settled = r.Clock.Now()
		hurry = time.Duration(float64(lookahead) * r.Factor)
	}
	r.world.clock.Hurry(hurry)
	return group.Wait()
}

// replaceOperator replaces the operator. The clock is slow until the new one has decided: otherwise jobs would
// train a large part of their time without an operator.
func (r *run) replaceOperator(ctx context.Context, now int) error {
	r.world.clock.Hurry(0)
	err := r.operator.stop()
	r.operator = nil
	if err != nil {
		return fmt.Errorf("stopping the operator: %w", err)
	}
	r.born = now
	r.earlier, _ = r.policy.decided()
	return r.startOperator(ctx, r.policy, r.PolicyName)
}

// awaitsRound reports whether jobs wait for a round: an operator has replaced another and has not decided yet, or
// the last round is too long ago. Otherwise jobs would train without an allocator on a slow machine.
func (r *run) awaitsRound() bool {
	rounds, last := r.policy.decided()
	isLate := r.born > 0 && rounds == r.earlier || r.last-last > maxPause
	return isLate && slices.ContainsFunc(r.jobs, func(job *simulated) bool { return job.isSubmitted && !job.trainer.Done() })
}

// train lets jobs train for seconds.
func (r *run) train(seconds int) {
	isGenerous := slices.ContainsFunc(r.jobs, func(job *simulated) bool { return len(job.placed) > 1 })
	for _, job := range r.jobs {
		if isGenerous && job.isSubmitted && len(job.placed) == 0 && !job.trainer.Done() {
			job.starved += seconds
		}
		job.trainer.Step(seconds)
	}
}

// record records the changes of GPUs.
func (r *run) record() {
	for i, job := range r.jobs {
		gpus := len(job.placed)
		if job.trainer.Done() {
			gpus = 0
		}
		if gpus != job.gpus {
			job.gpus = gpus
			r.changes = append(r.changes, simulator.Change{At: r.last, Job: i, GPUs: gpus})
		}
	}
}

// read returns the jobs by name, and their pods.
func (r *run) read(ctx context.Context) (map[string]*v2alpha1.DIJob, map[string][]*corev1.Pod, error) {
	var jobs v2alpha1.DIJobList
	if err := r.api.List(ctx, &jobs, client.UnsafeDisableDeepCopy); err != nil {
		return nil, nil, fmt.Errorf("listing jobs: %w", err)
	}
	var list corev1.PodList
	if err := r.api.List(ctx, &list, client.UnsafeDisableDeepCopy); err != nil {
		return nil, nil, fmt.Errorf("listing pods: %w", err)
	}
	objects, pods := map[string]*v2alpha1.DIJob{}, map[string][]*corev1.Pod{}
	for i := range jobs.Items {
		objects[jobs.Items[i].Name] = &jobs.Items[i]
	}
	for i := range list.Items {
		job := list.Items[i].Labels[names.LabelJob]
		pods[job] = append(pods[job], &list.Items[i])
	}
	return objects, pods, nil
}

// act acts on one job. The group writes.
func (r *run) act(ctx context.Context, group *errgroup.Group, job *simulated, object *v2alpha1.DIJob, pods []*corev1.Pod) error {
	switch {
	case job.isOver:
		return nil
	case !job.isSubmitted:
		if job.Time <= r.last {
			job.isSubmitted, r.unsettled = true, "job "+job.Name+" is submitted"
			group.Go(func() error { return r.submit(ctx, job) })
		}
		return nil
	case object == nil:
		r.unsettled = "job " + job.Name + " is not observed yet"
		return nil
	}
	if state.IsFinished(&object.Status) {
		job.isOver = true
		if object.Status.Phase != v2alpha1.JobSucceeded {
			return fmt.Errorf("job %s ends as %s", job.Name, object.Status.Phase)
		}
	}
	settled := job.observe(object, pods, r.Rules.Restart)
	r.measure(job, settled)
	if !settled {
		r.unsettled = describe(job, object, pods)
	}
	if job.trains() && !job.trainer.Done() {
		group.Go(func() error { return r.makeReady(ctx, pods) })
	}
	switch {
	case job.trainer.Done():
		group.Go(func() error { return r.succeed(ctx, pods) })
	case job.isDue(r.last, r.ReportInterval):
		raw, err := job.report()
		if err != nil {
			return err
		}
		job.reported, job.observed = r.last, len(job.trainer.Job().Observations)
		group.Go(func() error { return r.send(ctx, object, raw) })
	}
	return nil
}

// measure measures how long the operator takes to carry out a placement.
func (r *run) measure(job *simulated, settled bool) {
	since, known := r.changed[job.Name]
	switch {
	case !settled:
		if !known {
			r.changed[job.Name] = r.Clock.Now()
		}
	case known:
		r.carried = append(r.carried, r.Clock.Since(since))
		delete(r.changed, job.Name)
	}
}

// describe says how a job differs from its placement.
func describe(job *simulated, object *v2alpha1.DIJob, pods []*corev1.Pod) string {
	phases := map[corev1.PodPhase]int{}
	for _, pod := range pods {
		phases[pod.Status.Phase]++
	}
	return fmt.Sprintf("job %s, %s, has pods by phase %v, and is placed on %v", job.Name, object.Status.Phase, phases, object.Status.Allocation)
}

func (r *run) submit(ctx context.Context, job *simulated) error {
	if err := r.api.Create(ctx, job.manifest(&r.Rules.Cluster)); err != nil {
		return fmt.Errorf("submitting job %s: %w", job.Name, err)
	}
	return nil
}

// makeReady makes the pods of a job ready once it has restarted, from now in simulated time.
func (r *run) makeReady(ctx context.Context, pods []*corev1.Pod) error {
	for _, pod := range pods {
		if podstate.Ready(pod) {
			continue
		}
		if err := r.writeStatus(ctx, pod, fmt.Appendf(nil, ready, pod.UID, r.world.clock.Now().UTC().Format(time.RFC3339))); err != nil {
			return err
		}
	}
	return nil
}

// succeed lets the pods of a job end.
func (r *run) succeed(ctx context.Context, pods []*corev1.Pod) error {
	for _, pod := range pods {
		if podstate.Finished(pod) || podstate.Terminating(pod) {
			continue
		}
		if err := r.writeStatus(ctx, pod, fmt.Appendf(nil, succeeded, pod.UID)); err != nil {
			return err
		}
	}
	return nil
}

// writeStatus writes the status of a pod, unless it is gone or another pod has its name.
func (r *run) writeStatus(ctx context.Context, pod *corev1.Pod, status []byte) error {
	err := r.api.Status().Patch(ctx, pod.DeepCopy(), client.RawPatch(types.StrategicMergePatchType, status))
	if !isHarmless(err) {
		return fmt.Errorf("writing the status of pod %s: %w", pod.Name, err)
	}
	return nil
}

// send writes the report of a job as di-server does.
func (r *run) send(ctx context.Context, job *v2alpha1.DIJob, raw []byte) error {
	err := r.api.Status().Patch(ctx, job.DeepCopy(), client.RawPatch(types.MergePatchType, raw), client.FieldOwner(names.ServerName))
	if err != nil {
		return fmt.Errorf("reporting for job %s: %w", job.Name, err)
	}
	return nil
}
