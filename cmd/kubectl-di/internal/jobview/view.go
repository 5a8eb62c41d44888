// Copyright The DI Orchestrator Authors.
// SPDX-License-Identifier: Apache-2.0

package jobview

import (
	"cmp"
	"fmt"
	"slices"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"opendilab.org/di-orchestrator/apis/v2alpha1"
	"opendilab.org/di-orchestrator/cmd/kubectl-di/internal/replicas"
	"opendilab.org/di-orchestrator/internal/conditions"
)

// Observed is what was read of a job. Pods and Events may contain those of other objects.
type Observed struct {
	Job     *v2alpha1.DIJob
	Members Members
	Pods    []*corev1.Pod
	Events  []*corev1.Event
	Now     time.Time
}

// View is the answer about a job.
type View struct {
	Summary
	// Conditions are those that explain trouble first.
	Conditions []Condition
	// Waiting is why the job does not run as desired; nil if it does.
	Waiting *Waiting
	// Failure is that of the last pod that failed; nil if none has.
	Failure   *Failure
	Decisions []Decision
	// Placement are the nodes that the allocator gave a preemptible job, with the number of replicas on each.
	Placement []OnNode
	// Pods are in the order of the tasks, and Nodes are those that they run on.
	Pods  []Pod
	Nodes []OnNode
	// Events are those of the job and its pods, the oldest first.
	Events []Event
}

// Failure is a failure of a pod.
type Failure struct {
	Pod             string
	ExitCode        *int32
	Reason, Message string
	At              *time.Time
	// Text is the failure as a sentence.
	Text string
	// Remedies are what would prevent it, if that is known.
	Remedies []string
}

// Who decides about the size or the place of a job.
const (
	Allocator = "allocator"
	Plan      = "plan"
	Ratio     = "ratio"
	Optimizer = "optimizer"
)

// Decision is what was decided last about the size or the place of a job.
type Decision struct {
	// Who is one of the constants, and Plan the name of the plan.
	Who, Plan       string
	Reason, Message string
	At              *time.Time
}

// Text returns the reason and the message.
func (d *Decision) Text() string { return strings.Trim(d.Reason+": "+d.Message, ": ") }

// OnNode counts replicas on a node. The node of pods without one is "".
type OnNode struct {
	Node         string
	Count, Ready int
}

// Event is an Event of the job or of one of its pods.
type Event struct {
	At                    time.Time
	Type, Reason, Message string
	// Object is the short name of the object, and Pod the name of the pod; "" for the job.
	Object, Pod string
	From        string
	Count       int32
}

// Of returns the answer about a job.
func Of(o *Observed) *View {
	v := &View{
		Summary: Summarize(o.Job, o.Members), Conditions: conditionsOf(o.Job), Failure: failureOf(o.Job), Decisions: Decisions(o.Job),
		Placement: placementOf(o.Job.Status.Allocation), Pods: podsOf(o), Events: eventsOf(o),
	}
	v.Waiting = WaitingOf(o.Job, v.GPUs)
	v.countReady(desired(o.Job, o.Members))
	v.Nodes = nodesOf(v.Pods)
	return v
}

// countReady counts the ready pods of each task. Aggregators are a task of their own.
func (v *View) countReady(sizes sizes) {
	isAggregator := func(pod Pod) bool { return pod.IsAggregator }
	isListed := func(task Task) bool { return task.Name == v2alpha1.AggregatorTaskStatus }
	if slices.ContainsFunc(v.Pods, isAggregator) && !slices.ContainsFunc(v.Tasks, isListed) {
		v.Tasks = append(v.Tasks, Task{Name: v2alpha1.AggregatorTaskStatus, Desired: known(sizes.aggregators)})
	}
	for i := range v.Pods {
		at := slices.IndexFunc(v.Tasks, func(task Task) bool { return task.Name == v.Pods[i].counted() })
		if at >= 0 && v.Pods[i].Ready {
			v.Tasks[at].Ready++
		}
	}
}

func failureOf(job *v2alpha1.DIJob) *Failure {
	last := job.Status.LastFailure
	if last == nil {
		return nil
	}
	code := ""
	if last.ExitCode != nil {
		code = fmt.Sprintf(" with exit code %d", *last.ExitCode)
	}
	text := strings.TrimSuffix(fmt.Sprintf("Pod %s failed%s: %s", last.Pod, code, cmp.Or(last.Message, last.Reason)), ": ")
	return &Failure{
		Pod: last.Pod, ExitCode: last.ExitCode, Reason: last.Reason, Message: last.Message, At: timeOf(last.Time), Text: text,
		Remedies: ofFailure(last.Reason, last.Message, last.ExitCode),
	}
}

// Decisions returns what was decided last about a job, by whom.
func Decisions(job *v2alpha1.DIJob) []Decision {
	var all []Decision
	if allocated := conditions.Find(&job.Status, v2alpha1.ConditionAllocated); allocated != nil {
		at := timeOf(cmp.Or(allocated.LastUpdateTime, allocated.LastTransitionTime))
		all = append(all, Decision{Who: Allocator, Reason: allocated.Reason, Message: allocated.Message, At: at})
	}
	if scaling := job.Status.Scaling; scaling != nil && scaling.Plan != nil {
		plan := scaling.Plan
		all = append(all, Decision{Who: Plan, Plan: plan.Name, Reason: string(plan.Phase), Message: plan.Message, At: timeOf(plan.CreationTime)})
	}
	if job.Status.Autoscaling == nil {
		return all
	}
	if ratio := job.Status.Autoscaling.Ratio; ratio != nil {
		decided := Decision{Who: Ratio, Reason: ratio.Reason, Message: ratio.Message}
		if ratio.DecidedAt != nil {
			decided.At = timeOf(&metav1.Time{Time: ratio.DecidedAt.Time})
		}
		all = append(all, decided)
	}
	if optimizer := job.Status.Autoscaling.Optimizer; optimizer != nil {
		all = append(all, Decision{Who: Optimizer, Reason: optimizer.Stage, Message: optimizer.Message, At: timeOf(optimizer.DecidedAt)})
	}
	return all
}

// placementOf counts the replicas of a placement on each node.
func placementOf(allocation []string) []OnNode {
	var counts []OnNode
	for _, node := range allocation {
		counts = onNode(counts, node, false)
	}
	return sorted(counts)
}

// nodesOf counts the pods on each node.
func nodesOf(pods []Pod) []OnNode {
	var counts []OnNode
	for i := range pods {
		counts = onNode(counts, pods[i].Node, pods[i].Ready)
	}
	return sorted(counts)
}

func onNode(counts []OnNode, node string, isReady bool) []OnNode {
	at := slices.IndexFunc(counts, func(one OnNode) bool { return one.Node == node })
	if at < 0 {
		at, counts = len(counts), append(counts, OnNode{Node: node})
	}
	if counts[at].Count++; isReady {
		counts[at].Ready++
	}
	return counts
}

func sorted(counts []OnNode) []OnNode {
	slices.SortFunc(counts, func(a, b OnNode) int { return cmp.Compare(a.Node, b.Node) })
	return counts
}

// eventsOf returns the Events of the job and its pods, without those of an earlier object of the same name. An Event that has no
// UID is known by the name.
func eventsOf(o *Observed) []Event {
	own, pods := map[types.UID]bool{o.Job.UID: true}, map[string]bool{}
	for _, pod := range o.Pods {
		own[pod.UID], pods[pod.Name] = true, true
	}
	var all []Event
	for _, event := range o.Events {
		about := &event.InvolvedObject
		if !own[about.UID] && (about.UID != "" || !pods[about.Name]) {
			continue
		}
		at, count := replicas.LastSeen(event)
		one := Event{
			At: at, Type: event.Type, Reason: event.Reason, Message: event.Message, Object: replicas.Name(o.Job.Name, about.Name),
			From: cmp.Or(event.Source.Component, event.ReportingController), Count: count,
		}
		if pods[about.Name] {
			one.Pod = about.Name
		}
		all = append(all, one)
	}
	slices.SortFunc(all, func(a, b Event) int {
		return cmp.Or(a.At.Compare(b.At), cmp.Compare(a.Object, b.Object), cmp.Compare(a.Reason, b.Reason), cmp.Compare(a.Message, b.Message))
	})
	return all
}
