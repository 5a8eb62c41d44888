// Copyright The DI Orchestrator Authors.
// SPDX-License-Identifier: Apache-2.0

package top

import (
	"encoding/json"
	"strconv"
	"time"

	"k8s.io/utils/ptr"

	"opendilab.org/di-orchestrator/apis/v2alpha1"
	"opendilab.org/di-orchestrator/cmd/kubectl-di/internal/jobview"
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

	placement []jobview.OnNode
	// readyText is Ready and Wanted as text, such as 3/5; "" if the job desires no replicas anymore.
	readyText string
}

// Condition is a condition that explains why a job does not run as desired, or its last failure.
type Condition struct {
	Type    string `json:"type"`
	Reason  string `json:"reason,omitempty"`
	Message string `json:"message,omitempty"`
}

// Count is how many replicas of a task, or on a node, are ready.
type Count struct {
	Name  string `json:"name"`
	Ready int    `json:"ready"`
	// Wanted is nil if only the coordinator knows.
	Wanted *int `json:"wanted,omitempty"`
}

// wanted returns the desired replicas as text; ? if only the coordinator knows.
func (c *Count) wanted() string {
	if c.Wanted == nil {
		return "?"
	}
	return strconv.Itoa(*c.Wanted)
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
	v := jobview.Of(w.observed())
	s := Snapshot{
		Namespace: v.Namespace, Name: v.Name, Phase: v.Phase, Reason: v.Reason, Lifecycle: v.Lifecycle, Preemptible: v.Preemptible,
		CreatedAt: v.CreatedAt, CompletedAt: v.CompletedAt, Ready: v.Ready, Wanted: v.Desired, Restarts: v.Restarts, Reschedules: v.Reschedules,
		Conditions: conditions(v), Allocation: w.job.Status.Allocation, Scaling: decisions(v), Lacks: w.lacks, Events: events(v),
		placement: v.Placement, readyText: v.ReadyText(),
	}
	if report := w.job.Status.Profilings; report != nil && json.Valid(report.Raw) {
		s.Profilings = report.Raw
	}
	for i := range v.Pods {
		s.Replicas = append(s.Replicas, replica(&v.Pods[i]))
	}
	for i := range v.Tasks {
		s.Tasks = append(s.Tasks, Count{Name: v.Tasks[i].Name, Ready: v.Tasks[i].Ready, Wanted: v.Tasks[i].Desired})
	}
	for _, node := range v.Nodes {
		s.Nodes = append(s.Nodes, Count{Name: node.Node, Ready: node.Ready, Wanted: &node.Count})
	}
	if w.isGone {
		s.markDeleted()
	}
	return s
}

// markDeleted records that the job no longer exists, which only this view outlives.
func (s *Snapshot) markDeleted() {
	s.Phase, s.Reason, s.Ready, s.Wanted, s.readyText = "Deleted", "", 0, 0, ""
	for i := range s.Tasks {
		s.Tasks[i].Wanted = new(int)
	}
}

// decisions describes what was decided last about the size of a job.
func decisions(v *jobview.View) []string {
	var texts []string
	for i := range v.Decisions {
		one := &v.Decisions[i]
		who := map[string]string{jobview.Plan: "plan " + one.Plan, jobview.Ratio: "ratio rule", jobview.Optimizer: "optimizer"}[one.Who]
		if who != "" {
			texts = append(texts, who+" "+one.Text())
		}
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

func replica(pod *jobview.Pod) Replica {
	return Replica{
		Name: pod.Name, Pod: pod.Pod, Task: pod.Task, Node: pod.Node, Status: pod.State, Ready: pod.Ready, Restarts: pod.Restarts(),
		CreatedAt: ptr.Deref(pod.CreatedAt, time.Time{}),
	}
}

// conditions returns those that explain trouble, and the last failure.
func conditions(v *jobview.View) []Condition {
	var shown []Condition
	for i := range v.Conditions {
		if one := &v.Conditions[i]; one.IsTrouble {
			shown = append(shown, Condition{one.Type, one.Reason, one.Message})
		}
	}
	if last := v.Failure; last != nil {
		shown = append(shown, Condition{"LastFailure", last.Reason, last.Text})
	}
	return shown
}

// mostEvents is the maximum number of Events in a snapshot.
const mostEvents = 100

// events returns the latest Events, the latest first.
func events(v *jobview.View) []Event {
	shown := make([]Event, 0, min(len(v.Events), mostEvents))
	for i := len(v.Events) - 1; i >= 0 && len(shown) < mostEvents; i-- {
		one := &v.Events[i]
		shown = append(shown, Event{At: one.At, Type: one.Type, Reason: one.Reason, Object: one.Object, Message: one.Message, Count: one.Count})
	}
	return shown
}
