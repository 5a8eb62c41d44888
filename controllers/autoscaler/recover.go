// Copyright The DI Orchestrator Authors.
// SPDX-License-Identifier: Apache-2.0

package autoscaler

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"opendilab.org/di-orchestrator/apis/v2alpha1"
	"opendilab.org/di-orchestrator/autoscale/optimizer"
	"opendilab.org/di-orchestrator/controllers"
	"opendilab.org/di-orchestrator/internal/names"
	"opendilab.org/di-orchestrator/job/podstate"
	"opendilab.org/di-orchestrator/job/scaling"
	"opendilab.org/di-orchestrator/job/workload"
)

// recoveryWindow is how old a kill may be that the optimizer is asked about. Plans of that age still exist, so it plans
// once for each kill.
const recoveryWindow = 10 * time.Minute

// killedAt returns when the last failure of a job happened, if it was out of memory and the optimizer may act on it;
// zero otherwise. With spec.autoscale.memory the operator gives memory itself.
func killedAt(job *v2alpha1.DIJob, now time.Time) time.Time {
	failure := job.Status.LastFailure
	if failure == nil || failure.Reason != v2alpha1.ReasonOOMKilled || failure.Time == nil || isInactive(job) || job.Spec.Autoscale.Memory != nil {
		return time.Time{}
	}
	if now.Sub(failure.Time.Time) > recoveryWindow {
		return time.Time{}
	}
	return failure.Time.Time
}

// recover asks the optimizer for more memory for the replicas that were killed out of memory at a time. It reports
// whether there is nothing to do: it has done so, or a plan of the job is unfinished.
func (o *Optimizing) recover(ctx context.Context, job *v2alpha1.DIJob, at time.Time) (isDone bool, err error) {
	plans, err := o.plansOf(ctx, job)
	if err != nil {
		return false, err
	}
	name := fmt.Sprintf("%s-oom-%d", strings.TrimRight(job.Name[:min(len(job.Name), 200)], "-."), at.Unix())
	isKnown := slices.ContainsFunc(plans, func(p v2alpha1.ScalePlan) bool { return p.Name == name || !scaling.IsFinished(p.Status.Phase) })
	if isKnown || o.samples.recoveredAt(client.ObjectKeyFromObject(job)).Equal(at) {
		return true, nil
	}
	var pods corev1.PodList
	if err := o.client.List(ctx, &pods, client.InNamespace(job.Namespace), client.MatchingFields{controllers.OwnerIndex: job.Name}); err != nil {
		return false, fmt.Errorf("listing the pods of job %s/%s: %w", job.Namespace, job.Name, err)
	}
	pods.Items = controllers.PodsOf(job, pods.Items)
	nodes, err := o.largestNode(ctx)
	if err != nil {
		return false, err
	}
	known := describe(job, pods.Items, plans, o.clock.Now())
	known.Limits, known.LastPlan = limitsOf(optimizerOf(job), nodes), lastPlan(plans)
	killed := addKilled(known, job, pods.Items)
	plan, err := o.choose(job).RecoverOOM(ctx, killed, known)
	if err == nil {
		plan, err = optimizer.Check(plan, known)
	}
	switch {
	case err != nil:
		err = o.record(ctx, job, known, "", "", fmt.Sprintf("the plan is refused: %v", err))
	case plan.Empty():
		err = o.record(ctx, job, known, "", "", plan.Reason)
	default:
		for _, replica := range killed {
			known.Task(replica.Task).GrownAt = known.Now
		}
		object := optimizer.ScalePlan(known, plan)
		object.Name = name
		err = o.create(ctx, job, known, "", plan, object)
	}
	if err == nil {
		o.samples.recovered(job, at)
	}
	return false, err
}

// addKilled adds the killed replicas to what is known of a job, and returns them: that of the last failure, and those
// whose failed pods still exist. Each has used all memory that it had.
func addKilled(known *optimizer.Job, job *v2alpha1.DIJob, pods []corev1.Pod) []optimizer.Replica {
	var killed []optimizer.Replica
	for i := range known.Tasks {
		task := &known.Tasks[i]
		var lost []optimizer.Replica
		hasLast := false
		for at := range pods {
			pod := &pods[at]
			isLast := pod.Name == job.Status.LastFailure.Pod
			if pod.Labels[names.LabelTaskName] == task.Name && (isLast || podstate.OutOfMemory(pod)) {
				lost = append(lost, optimizer.Replica{Task: task.Name, Index: indexOf(pod), Pod: pod.Name, Requests: requestsOf(pod)})
				hasLast = hasLast || isLast
			}
		}
		if index, isOf := replicaIndex(job, task.Name); isOf && !hasLast {
			lost = append(lost, optimizer.Replica{Task: task.Name, Index: index, Pod: job.Status.LastFailure.Pod, Requests: nextRequests(job, task, index)})
		}
		for _, replica := range lost {
			task.Peak.Memory = max(task.Peak.Memory, replica.Requests.Memory)
			if !slices.ContainsFunc(task.Pods, func(pod optimizer.Replica) bool { return pod.Pod == replica.Pod }) {
				task.Pods = append(task.Pods, replica)
			}
		}
		killed = append(killed, lost...)
	}
	return killed
}

// replicaIndex returns the index of the replica that failed last, if it is one of a task.
func replicaIndex(job *v2alpha1.DIJob, task string) (int32, bool) {
	pod := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Name: job.Status.LastFailure.Pod}}
	index := indexOf(pod)
	return index, names.WorkerPod(job.Name, task, index) == pod.Name
}

// nextRequests returns the requests of a replica whose pod does not exist: those of the template, and of the job's
// overrides.
func nextRequests(job *v2alpha1.DIJob, task *optimizer.Task, index int32) optimizer.Resources {
	requests := task.Template
	if job.Status.Scaling == nil {
		return requests
	}
	next := workload.OverrideOf(job.Status.Scaling.Resources, workload.ReplicaID{Task: task.Name, Index: index})
	if next.CPU != nil {
		requests.CPU = next.CPU.MilliValue()
	}
	if next.Memory != nil {
		requests.Memory = next.Memory.Value()
	}
	return requests
}

// templateOf returns the requests of a task's template, where a limit alone is one; zeros if it does not decode.
func templateOf(task *v2alpha1.Task) optimizer.Resources {
	template, err := workload.Template("template", task.Template)
	if err != nil {
		return optimizer.Resources{}
	}
	resources := names.MainContainer(&template.Spec).Resources
	amount := func(name corev1.ResourceName) int64 {
		quantity, isSet := resources.Requests[name]
		if !isSet {
			quantity = resources.Limits[name]
		}
		if name == corev1.ResourceCPU {
			return quantity.MilliValue()
		}
		return quantity.Value()
	}
	return optimizer.Resources{CPU: amount(corev1.ResourceCPU), Memory: amount(corev1.ResourceMemory)}
}

// recoveredAt returns the time of the kill that was last planned for; zero if none was.
func (s *samples) recoveredAt(of key) time.Time {
	s.mutex.Lock()
	defer s.mutex.Unlock()
	return ptr.Deref(s.jobs[of], sampled{}).recovered
}

// recovered notes the time of a kill that was planned for.
func (s *samples) recovered(job *v2alpha1.DIJob, at time.Time) {
	s.mutex.Lock()
	defer s.mutex.Unlock()
	s.of(job).recovered = at
}
