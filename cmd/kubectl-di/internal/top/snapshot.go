// Copyright The DI Orchestrator Authors.
// SPDX-License-Identifier: Apache-2.0

package top

import (
	"cmp"
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"

	"opendilab.org/di-orchestrator/apis/v2alpha1"
	"opendilab.org/di-orchestrator/cmd/kubectl-di/internal/replicas"
	"opendilab.org/di-orchestrator/internal/names"
	"opendilab.org/di-orchestrator/internal/podstate"
)

// Snapshot is the state of a job and its dependents at one time.
type Snapshot struct {
	Namespace   string             `json:"namespace"`
	Name        string             `json:"name"`
	Phase       v2alpha1.Phase     `json:"phase"`
	Reason      string             `json:"reason,omitempty"`
	Lifecycle   v2alpha1.Lifecycle `json:"lifecycle"`
	Preemptible bool               `json:"preemptible"`
	CreatedAt   time.Time          `json:"createdAt"`
	CompletedAt *time.Time         `json:"completedAt,omitempty"`
	Ready       int                `json:"ready"`
	Wanted      int                `json:"wanted"`
	Restarts    int32              `json:"restarts"`
	Reschedules int32              `json:"reschedules"`
	Conditions  []Condition        `json:"conditions,omitempty"`
	Tasks       []Count            `json:"tasks"`
	Nodes       []Count            `json:"nodes,omitempty"`
	Replicas    []Replica          `json:"replicas,omitempty"`
	Allocation  []string           `json:"allocation,omitempty"`
	// Scaling is what was decided last about the size: by a plan, the ratio rule or the optimizer.
	Scaling    []string        `json:"scaling,omitempty"`
	Profilings json.RawMessage `json:"profilings,omitempty"`
	Events     []Event         `json:"events,omitempty"`
	// Lacks are the omitted parts, with the reasons.
	Lacks []string `json:"lacks,omitempty"`

	// readyText is Ready and Wanted as text, such as 3/5; "" if the job desires no replicas anymore.
	readyText string
}

// Condition is a condition that explains why a job is stalled or was disrupted.
type Condition struct {
	Type    string `json:"type"`
	Reason  string `json:"reason,omitempty"`
	Message string `json:"message,omitempty"`
}

// Count is how many replicas of a task, or on a node, are ready.
type Count struct {
	Name   string `json:"name"`
	Ready  int    `json:"ready"`
	Wanted int    `json:"wanted"`
}

// Replica is a pod of the job.
type Replica struct {
	Name      string    `json:"name"`
	Pod       string    `json:"pod"`
	Task      string    `json:"task"`
	Node      string    `json:"node,omitempty"`
	Status    string    `json:"status"`
	Ready     bool      `json:"ready"`
	Restarts  int32     `json:"restarts"`
	CreatedAt time.Time `json:"createdAt"`

	isAggregator bool
}

// Event is an event of the job or of one of its pods.
type Event struct {
	At      time.Time `json:"at"`
	Type    string    `json:"type"`
	Reason  string    `json:"reason"`
	Object  string    `json:"object"`
	Message string    `json:"message"`
	Count   int32     `json:"count"`
}

// summarize returns the snapshot of the observed state.
func summarize(w *world) Snapshot {
	job := w.job
	s := Snapshot{
		Namespace: job.Namespace, Name: job.Name, Phase: replicas.Phase(job), Reason: replicas.Reason(job),
		Lifecycle: cmp.Or(job.Spec.Lifecycle, v2alpha1.LifecycleWorkerLed), Preemptible: job.Spec.Preemptible,
		CreatedAt: job.CreationTimestamp.Time, Restarts: job.Status.Restarts, Reschedules: job.Status.Reschedules,
		Conditions: conditions(job), Allocation: job.Status.Allocation, Scaling: decisions(job), Lacks: w.lacks, Events: events(w),
	}
	if done := job.Status.CompletionTimestamp; done != nil {
		s.CompletedAt = &done.Time
	}
	if job.Status.Profilings != nil && json.Valid(job.Status.Profilings.Raw) {
		s.Profilings = job.Status.Profilings.Raw
	}
	for _, pod := range replicas.Of(job, slices.Collect(maps.Values(w.pods))) {
		s.Replicas = append(s.Replicas, replica(job, pod))
	}
	s.Tasks, s.Nodes = tasks(job, w.membership, s.Replicas), nodes(s.Replicas)
	s.Ready, s.Wanted = replicas.Ready(job)
	s.readyText = replicas.ReadyText(job)
	if w.isGone {
		s.markDeleted()
	}
	return s
}

// markDeleted records that the job no longer exists, which only this view outlives.
func (s *Snapshot) markDeleted() {
	s.Phase, s.Reason, s.Ready, s.Wanted, s.readyText = "Deleted", "", 0, 0, ""
	for i := range s.Tasks {
		s.Tasks[i].Wanted = 0
	}
}

// decisions describes what was decided last about the size of a job.
func decisions(job *v2alpha1.DIJob) []string {
	var texts []string
	add := func(who, what, message string) {
		texts = append(texts, strings.TrimSuffix(who+" "+what+": "+message, ": "))
	}
	if scaling := job.Status.Scaling; scaling != nil && scaling.Plan != nil {
		add("plan "+scaling.Plan.Name, string(scaling.Plan.Phase), scaling.Plan.Message)
	}
	if job.Status.Autoscaling == nil {
		return texts
	}
	if ratio := job.Status.Autoscaling.Ratio; ratio != nil {
		add("ratio rule", ratio.Reason, ratio.Message)
	}
	if optimizer := job.Status.Autoscaling.Optimizer; optimizer != nil {
		add("optimizer", optimizer.Stage, optimizer.Message)
	}
	return texts
}

// end returns when the job finished, or now.
func (s *Snapshot) end(now time.Time) time.Time {
	if s.CompletedAt != nil {
		return *s.CompletedAt
	}
	return now
}

func replica(job *v2alpha1.DIJob, pod *corev1.Pod) Replica {
	return Replica{
		Name: replicas.Name(job.Name, pod.Name), Pod: pod.Name, Task: replicas.Task(pod), isAggregator: replicas.IsAggregator(pod), Node: pod.Spec.NodeName, Ready: podstate.Ready(pod),
		Status: replicas.Status(pod), CreatedAt: pod.CreationTimestamp.Time, Restarts: job.Status.ReplicaRestarts[pod.Name] + replicas.Restarts(pod),
	}
}

// isShown reports whether a condition adds to the phase.
func isShown(condition *v2alpha1.DIJobCondition) bool {
	switch condition.Type {
	case v2alpha1.ConditionAllocated, v2alpha1.ConditionGangScheduled, v2alpha1.ConditionAutoscaling:
		return condition.Status == corev1.ConditionFalse
	case v2alpha1.ConditionCreated, string(v2alpha1.JobPending), string(v2alpha1.JobStarting), string(v2alpha1.JobRunning),
		string(v2alpha1.JobSucceeded), string(v2alpha1.JobUnknown):
		return false
	}
	return condition.Status == corev1.ConditionTrue
}

func conditions(job *v2alpha1.DIJob) []Condition {
	var shown []Condition
	for i := range job.Status.Conditions {
		if condition := &job.Status.Conditions[i]; isShown(condition) {
			shown = append(shown, Condition{condition.Type, condition.Reason, condition.Message})
		}
	}
	if last := job.Status.LastFailure; last != nil {
		shown = append(shown, Condition{"LastFailure", last.Reason, lastFailure(last)})
	}
	return shown
}

// lastFailure describes the last failed pod.
func lastFailure(last *v2alpha1.LastFailure) string {
	text := "pod " + last.Pod
	if last.ExitCode != nil {
		text += fmt.Sprintf(" ended with exit code %d", *last.ExitCode)
	}
	if last.Message != "" {
		text += ": " + last.Message
	}
	return text
}

// tasks counts the replicas of each task, and the aggregators if there are any.
func tasks(job *v2alpha1.DIJob, list *v2alpha1.Membership, all []Replica) []Count {
	counts := make([]Count, 0, len(job.Spec.Tasks)+1)
	desired := replicas.Desired(job, list)
	for i := range job.Spec.Tasks {
		counts = append(counts, Count{Name: names.TaskName(&job.Spec.Tasks[i]), Wanted: desired.Tasks[i]})
	}
	aggregators := slices.ContainsFunc(all, func(one Replica) bool { return one.isAggregator })
	if desired.Aggregators > 0 || aggregators {
		counts = append(counts, Count{Name: v2alpha1.AggregatorTaskStatus, Wanted: desired.Aggregators})
	}
	there := make([]int, len(counts))
	for i := range all {
		name := all[i].Task
		if all[i].isAggregator {
			name = v2alpha1.AggregatorTaskStatus
		}
		if at := slices.IndexFunc(counts, func(count Count) bool { return count.Name == name }); at >= 0 {
			there[at]++
			if all[i].Ready {
				counts[at].Ready++
			}
		}
	}
	for i := range counts {
		if counts[i].Wanted == replicas.Unknown {
			counts[i].Wanted = there[i]
		}
	}
	return counts
}

// nodes counts the replicas on each node.
func nodes(all []Replica) []Count {
	var counts []Count
	for i := range all {
		at := slices.IndexFunc(counts, func(count Count) bool { return count.Name == all[i].Node })
		if at < 0 {
			at, counts = len(counts), append(counts, Count{Name: all[i].Node})
		}
		if counts[at].Wanted++; all[i].Ready {
			counts[at].Ready++
		}
	}
	slices.SortFunc(counts, func(a, b Count) int { return cmp.Compare(a.Name, b.Name) })
	return counts
}

// mostEvents is the maximum number of Events in a snapshot.
const mostEvents = 100

// events returns the latest Events of the job and its pods, the latest first.
func events(w *world) []Event {
	var shown []Event
	for _, event := range w.events {
		uid := event.InvolvedObject.UID
		if _, isPod := w.pods[uid]; !isPod && uid != w.job.UID {
			continue
		}
		at, count := replicas.LastSeen(event)
		shown = append(shown, Event{
			At: at, Type: event.Type, Reason: event.Reason, Message: event.Message,
			Object: replicas.Name(w.job.Name, event.InvolvedObject.Name), Count: count,
		})
	}
	slices.SortFunc(shown, func(a, b Event) int {
		return cmp.Or(b.At.Compare(a.At), cmp.Compare(a.Object, b.Object), cmp.Compare(a.Reason, b.Reason), cmp.Compare(a.Message, b.Message))
	})
	return shown[:min(len(shown), mostEvents)]
}
