// Copyright The DI Orchestrator Authors.
// SPDX-License-Identifier: Apache-2.0

package record

import (
	"encoding/json"
	"time"
)

// Job is what is remembered of one job, whose UID identifies it. Times are in UTC.
type Job struct {
	UID       string `json:"uid"`
	Namespace string `json:"namespace"`
	Name      string `json:"name"`
	Group     string `json:"group,omitempty"`
	// Queue is the one that the job names, of Kueue or of its scheduler.
	Queue string `json:"queue,omitempty"`
	// Curve is the series that the job reports to matter most; empty if it names none.
	Curve string `json:"curve,omitempty"`
	// Creator is the user who created the job, if that is known.
	Creator string `json:"creator,omitempty"`
	// Version is the version of the API in which the spec was last written, such as v1alpha1.
	Version string `json:"version,omitempty"`
	// Manifest is the job in that version as JSON, without status and managed fields. It is empty if
	// it was larger than its bound.
	Manifest json.RawMessage `json:"manifest,omitempty"`
	// Images are those of all containers, sorted.
	Images []string `json:"images,omitempty"`

	Created time.Time `json:"created"`
	// Started is when the first replica ran; zero if none did.
	Started time.Time `json:"started,omitzero"`
	// Ended is when the job succeeded, failed or disappeared; zero while it has not.
	Ended   time.Time `json:"ended,omitzero"`
	Phase   string    `json:"phase,omitempty"`
	Reason  string    `json:"reason,omitempty"`
	Message string    `json:"message,omitempty"`
	// Deleted is true if the job was deleted before it finished.
	Deleted bool `json:"deleted,omitempty"`
	// Unseen is true if the job ended while nothing recorded it: Ended is when that was noticed.
	Unseen bool `json:"unseen,omitempty"`

	Phases     []Phase     `json:"phases,omitempty"`
	Attempts   []Attempt   `json:"attempts,omitempty"`
	Replicas   []Replica   `json:"replicas,omitempty"`
	Restarts   []Restart   `json:"restarts,omitempty"`
	Resizes    []Resize    `json:"resizes,omitempty"`
	Placements []Placement `json:"placements,omitempty"`
	Plans      []Plan      `json:"plans,omitempty"`
	Conditions []Condition `json:"conditions,omitempty"`
	// Events are those of the job, and the warnings of its pods, the oldest first.
	Events []Event `json:"events,omitempty"`
	// Requests are what a replica of each task requests.
	Requests []Request `json:"requests,omitempty"`
	// Peaks are what replicas used at most, by task.
	Peaks []Peak `json:"peaks,omitempty"`
	// Seen is what the next observation is compared with.
	Seen Seen `json:"seen,omitzero"`
	// Dropped counts the older entries of lists that reached their bounds, by list.
	Dropped map[string]int `json:"dropped,omitempty"`
}

// RestartCount counts the restarts after failures, of the job and of single replicas.
func (j *Job) RestartCount() int64 {
	count := int64(j.Seen.Restarts)
	for _, ofReplica := range j.Seen.ReplicaRestarts {
		count += int64(ofReplica)
	}
	return count
}

// Seen are counters and counts of the last observation.
type Seen struct {
	Generation  int64 `json:"generation,omitempty"`
	Restarts    int32 `json:"restarts,omitempty"`
	Reschedules int32 `json:"reschedules,omitempty"`
	// ReplicaRestarts are by replica, and Desired counts replicas by task.
	ReplicaRestarts map[string]int32 `json:"replicaRestarts,omitempty"`
	Desired         map[string]int32 `json:"desired,omitempty"`
}

// Phase is a phase of the job, and when it began.
type Phase struct {
	Phase string    `json:"phase"`
	Since time.Time `json:"since"`
}

// Attempt is everything between two restarts of the job.
type Attempt struct {
	Number  int32     `json:"number"`
	Started time.Time `json:"started"`
	Ended   time.Time `json:"ended,omitzero"`
	// Reason and Message say why it ended.
	Reason  string `json:"reason,omitempty"`
	Message string `json:"message,omitempty"`
}

// Replica is one pod that implemented a replica, and how it ended.
type Replica struct {
	PodUID  string `json:"podUID"`
	Pod     string `json:"pod"`
	Task    string `json:"task,omitempty"`
	Index   int32  `json:"index"`
	Attempt int32  `json:"attempt"`
	Node    string `json:"node,omitempty"`
	// Restarts counts those of the main container in the pod.
	Restarts int32     `json:"restarts,omitempty"`
	Created  time.Time `json:"created"`
	Started  time.Time `json:"started,omitzero"`
	Ended    time.Time `json:"ended,omitzero"`
	Phase    string    `json:"phase,omitempty"`
	Reason   string    `json:"reason,omitempty"`
	Message  string    `json:"message,omitempty"`
	ExitCode *int32    `json:"exitCode,omitempty"`
}

// Restart is one restart, reschedule or restart of a single replica, and its cause.
type Restart struct {
	At time.Time `json:"at"`
	// Kind is Restart, Reschedule or Replica.
	Kind    string `json:"kind"`
	Replica string `json:"replica,omitempty"`
	Reason  string `json:"reason,omitempty"`
	Message string `json:"message,omitempty"`
}

// The kinds of restarts.
const (
	RestartOfJob     = "Restart"
	RestartElsewhere = "Reschedule"
	RestartOfReplica = "Replica"
)

// Resize is a change of the desired replicas of a task, and who asked for it.
type Resize struct {
	At   time.Time `json:"at"`
	Task string    `json:"task"`
	From int32     `json:"from"`
	To   int32     `json:"to"`
	// By is the field manager that wrote the count, or the name of a ScalePlan.
	By string `json:"by,omitempty"`
}

// Placement is the nodes of the ranks of the job, from a time on.
type Placement struct {
	At    time.Time `json:"at"`
	Nodes []string  `json:"nodes"`
}

// Plan is a ScalePlan of the job.
type Plan struct {
	UID     string    `json:"uid"`
	Name    string    `json:"name"`
	Origin  string    `json:"origin,omitempty"`
	Reason  string    `json:"reason,omitempty"`
	Phase   string    `json:"phase,omitempty"`
	Message string    `json:"message,omitempty"`
	Created time.Time `json:"created"`
	Started time.Time `json:"started,omitzero"`
	Ended   time.Time `json:"ended,omitzero"`
	// Replicas are the counts that it asks for, by task.
	Replicas map[string]int32 `json:"replicas,omitempty"`
}

// Condition is a transition of one of the job's conditions.
type Condition struct {
	Type    string    `json:"type"`
	Status  string    `json:"status"`
	Reason  string    `json:"reason,omitempty"`
	Message string    `json:"message,omitempty"`
	At      time.Time `json:"at"`
}

// Event is an Event of Kubernetes.
type Event struct {
	UID string `json:"uid"`
	// Object is what it is about, such as Pod/ppo-worker-0.
	Object  string `json:"object"`
	Type    string `json:"type"`
	Reason  string `json:"reason"`
	Message string `json:"message,omitempty"`
	// Count is how often it happened, First when that began, and Last when it was last recorded.
	Count int32     `json:"count"`
	First time.Time `json:"first"`
	Last  time.Time `json:"last"`
}

// Peak is the most that one replica of a task used, in the whole job.
type Peak struct {
	Task string `json:"task"`
	// CPU is in millicores, and Memory in bytes.
	CPU    int64 `json:"cpu,omitempty"`
	Memory int64 `json:"memory,omitempty"`
	// Killed is the largest memory, in bytes, at which a replica was killed out of memory.
	Killed int64 `json:"killed,omitempty"`
}

// Tail is the last output of a container that ended badly.
type Tail struct {
	PodUID    string `json:"podUID"`
	Pod       string `json:"pod"`
	Container string `json:"container"`
	// Restarts is how often the container had restarted when it ended.
	Restarts int32     `json:"restarts"`
	Ended    time.Time `json:"ended"`
	ExitCode int32     `json:"exitCode"`
	Reason   string    `json:"reason,omitempty"`
	// Text is the output with its line ends; Truncated is true if there was more before it.
	Text      string `json:"text"`
	Truncated bool   `json:"truncated,omitempty"`
}

// HasEnded reports whether nothing of the job changes anymore.
func (j *Job) HasEnded() bool {
	return !j.Ended.IsZero()
}
