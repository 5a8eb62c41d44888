// Copyright The DI Orchestrator Authors.
// SPDX-License-Identifier: Apache-2.0

// Package history has what a soak records: every change of the objects of jobs as etcd stored it, every call of a
// client with its interval, and what disturbed the programs. One line of a history file is one Entry.
package history

import (
	"bufio"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"slices"
	"sync"
	"time"
)

// The kinds of recorded objects.
const (
	Pod        = "Pod"
	Job        = "DIJob"
	Membership = "Membership"
	Service    = "Service"
	Node       = "Node"
)

// Entry is one line. Exactly one of its pointers is set.
type Entry struct {
	// Time is when the entry was recorded.
	Time time.Time `json:"time"`

	Change   *Change   `json:"change,omitempty"`
	Call     *Call     `json:"call,omitempty"`
	Read     *Read     `json:"read,omitempty"`
	Cause    *Cause    `json:"cause,omitempty"`
	Fault    *Fault    `json:"fault,omitempty"`
	Quiet    *Quiet    `json:"quiet,omitempty"`
	Usage    *Usage    `json:"usage,omitempty"`
	Versions *Versions `json:"versions,omitempty"`
}

// Change is one write of an object.
type Change struct {
	Revision  int64  `json:"revision"`
	Kind      string `json:"kind"`
	Namespace string `json:"namespace"`
	Name      string `json:"name"`
	UID       string `json:"uid"`
	// Gone is set if the object was removed; the other fields are those that it had.
	Gone bool `json:"gone,omitempty"`
	// Deleting is set once the deletion of the object has begun.
	Deleting bool `json:"deleting,omitempty"`
	// Owner is the UID of the job that owns the object; "" for jobs.
	Owner string `json:"owner,omitempty"`

	Pod        *PodState        `json:"pod,omitempty"`
	Job        *JobState        `json:"job,omitempty"`
	Membership *MembershipState `json:"membership,omitempty"`
}

// PodState is what the checker needs of a pod.
type PodState struct {
	// Task is the name of the task, or the role in a coordinator-led job.
	Task string `json:"task"`
	// Member identifies the replica within its job: its rank, or its slot. "" if it is neither.
	Member string `json:"member,omitempty"`
	// Unit is the UID of the aggregator of a DDP learner; "" for other pods.
	Unit string `json:"unit,omitempty"`
	// Attempt identifies the round of restarts that the pod belongs to.
	Attempt string `json:"attempt,omitempty"`
	Phase   string `json:"phase"`
	Ready   bool   `json:"ready,omitempty"`
	Node    string `json:"node,omitempty"`
}

// Ended reports whether the pod no longer runs.
func (p *PodState) Ended() bool { return p.Phase == "Failed" || p.Phase == "Succeeded" }

// TaskState is a task of a job.
type TaskState struct {
	Name     string `json:"name"`
	Replicas int    `json:"replicas"`
	Drain    bool   `json:"drain,omitempty"`
}

// JobState is what the checker needs of a job.
type JobState struct {
	CoordinatorLed bool        `json:"coordinatorLed,omitempty"`
	Tasks          []TaskState `json:"tasks"`
	// Elastic is the name of the task that may be resized; "" for none.
	Elastic         string `json:"elastic,omitempty"`
	ElasticReplicas int    `json:"elasticReplicas,omitempty"`
	Suspended       bool   `json:"suspended,omitempty"`
	Generation      int64  `json:"generation"`

	// These fields are of the status.
	Phase       string `json:"phase,omitempty"`
	Observed    int64  `json:"observed,omitempty"`
	Total       int    `json:"total,omitempty"`
	LastTotal   int    `json:"lastTotal,omitempty"`
	Restarts    int    `json:"restarts,omitempty"`
	Reschedules int    `json:"reschedules,omitempty"`
	Plan        string `json:"plan,omitempty"`
}

// Finished reports whether the job has ended.
func (j *JobState) Finished() bool { return j.Phase == "Failed" || j.Phase == "Succeeded" }

// Stateful reports whether a task of the job has a drain handshake.
func (j *JobState) Stateful() bool {
	return slices.ContainsFunc(j.Tasks, func(task TaskState) bool { return task.Drain })
}

// Member is a desired replica of a coordinator-led job.
type Member struct {
	Slot string `json:"slot"`
	Task string `json:"task"`
	// Pods is the number of pods of the member.
	Pods int `json:"pods"`
	// Mark is the CPU that was requested for the member. Each request of the load has one of its own.
	Mark string `json:"mark,omitempty"`
}

// MembershipState is the desired replicas of a coordinator-led job.
type MembershipState struct {
	Members []Member `json:"members"`
}

// The operations of clients.
const (
	Grow   = "grow"
	Shrink = "shrink"
	Count  = "count"
	List   = "list"
	Report = "report failed"
	Ack    = "acknowledge"
)

// Call is one call of a client, which may have been sent several times.
type Call struct {
	Begin time.Time `json:"begin"`
	End   time.Time `json:"end"`
	// Operation is one of those above, or the name of another operation.
	Operation string `json:"operation"`
	// Job is the UID of the job, if the call belongs to one.
	Job string `json:"job,omitempty"`
	// Pod is the UID of the pod that called; "" for a user.
	Pod string `json:"pod,omitempty"`
	// Number is how many replicas were requested or counted, or the acknowledged version.
	Number int `json:"number,omitempty"`
	// Mark identifies the members that a request creates.
	Mark string `json:"mark,omitempty"`
	// URLs are those of the answer, or those that a coordinator reports failed.
	URLs []string `json:"urls,omitempty"`
	// Error is why the call failed. Whether it was executed is then unknown, unless Refused is set.
	Error   string `json:"error,omitempty"`
	Refused bool   `json:"refused,omitempty"`
	// Repeated is set if the call was sent several times without an Idempotency-Key, so that a removal may be executed
	// several times. The answer is that of the last time.
	Repeated bool `json:"repeated,omitempty"`
}

// Done reports whether the call was acknowledged.
func (c *Call) Done() bool { return c.Error == "" }

// Read is a list of members that a member has read.
type Read struct {
	Job     string `json:"job"`
	Pod     string `json:"pod"`
	Version int64  `json:"version"`
	// Active and Leaving are the names of the listed pods.
	Active  []string `json:"active"`
	Leaving []string `json:"leaving"`
}

// Cause is an intervention. It is recorded before it happens, because the programs may act at once.
type Cause struct {
	What string `json:"what"`
	// Pod is the UID of the pod, or Job that of the job. Name is the name of a pod of the job that may not exist yet.
	Pod  string `json:"pod,omitempty"`
	Job  string `json:"job,omitempty"`
	Name string `json:"name,omitempty"`
	// Replaced is set if the pod stops being a replica, and may live on beside its replacement.
	Replaced bool `json:"replaced,omitempty"`
}

// Fault is a disturbance of a program or of its way to the API server. It is recorded when it begins and, with End,
// when it is over.
type Fault struct {
	Kind   string    `json:"kind"`
	Target string    `json:"target"`
	Begin  time.Time `json:"begin"`
	End    time.Time `json:"end,omitzero"`
}

// Quiet is a window without faults and without load. It is recorded when it begins and, with End, when it is over.
type Quiet struct {
	Begin time.Time `json:"begin"`
	End   time.Time `json:"end,omitzero"`
}

// Usage is what a process used in a quiet window.
type Usage struct {
	Program    string `json:"program"`
	HeapBytes  int64  `json:"heapBytes,omitempty"`
	Goroutines int    `json:"goroutines,omitempty"`
	Files      int    `json:"files,omitempty"`
	// StoreBytes is the size of etcd.
	StoreBytes int64 `json:"storeBytes,omitempty"`
	// Jobs is the number of jobs at that time.
	Jobs int `json:"jobs"`
}

// Versions compares the two versions of a job as the API server served them at one revision.
type Versions struct {
	Job        string `json:"job"`
	Difference string `json:"difference,omitempty"`
}

// Log is a history that grows.
type Log struct {
	mutex sync.Mutex
	out   *json.Encoder
	err   error
	// seen is called with each entry while the mutex is held.
	seen func(*Entry)
}

// NewLog returns a log that writes to a file. It calls seen with each entry, one at a time.
func NewLog(out io.Writer, seen func(*Entry)) *Log {
	return &Log{out: json.NewEncoder(out), seen: seen}
}

// Add adds an entry with the current time.
func (l *Log) Add(entry Entry) {
	l.mutex.Lock()
	defer l.mutex.Unlock()
	entry.Time = time.Now()
	l.err = errors.Join(l.err, l.out.Encode(&entry))
	l.seen(&entry)
}

// Look calls do while no entry is added.
func (l *Log) Look(do func()) {
	l.mutex.Lock()
	defer l.mutex.Unlock()
	do()
}

// Err returns the errors of writes.
func (l *Log) Err() error {
	l.mutex.Lock()
	defer l.mutex.Unlock()
	return l.err
}

// Load calls give with each entry of a history file.
func Load(file io.Reader, give func(*Entry)) error {
	lines := json.NewDecoder(bufio.NewReader(file))
	for number := 1; ; number++ {
		var entry Entry
		err := lines.Decode(&entry)
		if errors.Is(err, io.EOF) {
			return nil
		}
		if err != nil {
			return fmt.Errorf("line %d of the history: %w", number, err)
		}
		give(&entry)
	}
}
