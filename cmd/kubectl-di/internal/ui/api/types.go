// Copyright The DI Orchestrator Authors.
// SPDX-License-Identifier: Apache-2.0

// Package api contains the JSON that the web page's server sends and receives. openapi.yaml
// describes each field; the tests compare both.
package api

import (
	"time"

	"opendilab.org/di-orchestrator/cmd/kubectl-di/internal/cost"
)

// Error is an answer that is no success.
type Error struct {
	Message string `json:"message"`
	Reason  string `json:"reason"`
	// Right is what the caller may not do, and Grant are the commands that allow it.
	Right string   `json:"right,omitempty"`
	Grant []string `json:"grant,omitempty"`
	// Findings are what the API server refuses of a job.
	Findings []Finding `json:"findings,omitempty"`
	// Near are jobs that may be meant in place of one that does not exist.
	Near []string `json:"near,omitempty"`
}

// Finding is what the API server refuses of a field.
type Finding struct {
	Field string `json:"field,omitempty"`
	Text  string `json:"text"`
}

// CreateRequest asks for a job.
type CreateRequest struct {
	DryRun *bool  `json:"dryRun"`
	YAML   string `json:"yaml"`
}

// Created is a job that was or would be created.
type Created struct {
	Done      bool     `json:"done"`
	Namespace string   `json:"namespace"`
	Name      string   `json:"name"`
	YAML      string   `json:"yaml"`
	Effects   []string `json:"effects"`
}

// Session is who asks, which cluster, and what the caller may do.
type Session struct {
	User           string          `json:"user"`
	Cluster        string          `json:"cluster"`
	Context        string          `json:"context"`
	Server         string          `json:"server"`
	Version        string          `json:"version"`
	ClusterVersion string          `json:"clusterVersion,omitempty"`
	Operator       string          `json:"operator,omitempty"`
	Language       string          `json:"language"`
	Namespace      string          `json:"namespace"`
	AllNamespaces  bool            `json:"allNamespaces"`
	Notes          []string        `json:"notes"`
	Permissions    map[string]bool `json:"permissions"`
	Limits         map[string]int  `json:"limits"`
	CanSignOut     bool            `json:"canSignOut,omitempty"`
	// Prices are those of an hour of gpu, cpu and memory.
	Prices  map[string]float64 `json:"prices,omitempty"`
	History HistoryState       `json:"history"`
	// Usage reports whether a Prometheus is known.
	Usage bool `json:"usage,omitempty"`
}

// JobPage is a window of the jobs.
type JobPage struct {
	Total           int            `json:"total"`
	Matching        int            `json:"matching"`
	Offset          int            `json:"offset"`
	Phases          map[string]int `json:"phases"`
	Namespaces      []string       `json:"namespaces"`
	Items           []JobRow       `json:"items"`
	ResourceVersion string         `json:"resourceVersion"`
	Synced          bool           `json:"synced"`
}

// JobRow is a job in a table.
type JobRow struct {
	Namespace   string      `json:"namespace"`
	Name        string      `json:"name"`
	UID         string      `json:"uid"`
	Version     string      `json:"version"`
	Lifecycle   string      `json:"lifecycle"`
	Phase       string      `json:"phase"`
	Reason      string      `json:"reason"`
	Message     string      `json:"message,omitempty"`
	Ready       int         `json:"ready"`
	Wanted      int         `json:"wanted"`
	Roles       []RoleCount `json:"roles"`
	GPUs        int64       `json:"gpus"`
	GPUType     string      `json:"gpuType,omitempty"`
	Restarts    int32       `json:"restarts"`
	Reschedules int32       `json:"reschedules"`
	CreatedAt   time.Time   `json:"createdAt"`
	CompletedAt *time.Time  `json:"completedAt,omitempty"`
	Suspended   bool        `json:"suspended"`
	Terminating bool        `json:"terminating"`
	Preemptible bool        `json:"preemptible"`
	Group       string      `json:"group,omitempty"`
	Queue       string      `json:"queue,omitempty"`
	Creator     string      `json:"creator,omitempty"`
	Priority    string      `json:"priority,omitempty"`
	Curve       *Curve      `json:"curve,omitempty"`
}

// RoleCount counts the pods of a task.
type RoleCount struct {
	Role string `json:"role"`
	// Wanted is nil if only the coordinator knows.
	Wanted    *int `json:"wanted,omitempty"`
	Running   int  `json:"running"`
	Pending   int  `json:"pending"`
	Succeeded int  `json:"succeeded"`
	Failed    int  `json:"failed"`
}

// Curve is a number that a job reports.
type Curve struct {
	Name   string       `json:"name"`
	Kind   string       `json:"kind,omitempty"`
	Unit   string       `json:"unit,omitempty"`
	X      string       `json:"x,omitempty"`
	Points [][2]float64 `json:"points"`
}

// Usage is what the pods of a job used.
type Usage struct {
	Curves []Curve `json:"curves"`
}

// JobDetail is a job with its parts.
type JobDetail struct {
	Job        JobRow      `json:"job"`
	Parts      []Part      `json:"parts"`
	Edges      []Edge      `json:"edges"`
	Conditions []Condition `json:"conditions"`
	Facts      []Fact      `json:"facts"`
	Waiting    *Waiting    `json:"waiting,omitempty"`
	Timeline   []Moment    `json:"timeline"`
	Curves     []Curve     `json:"curves"`
	Actions    []Action    `json:"actions"`
	Plans      []Plan      `json:"plans"`
	Profilings string      `json:"profilings,omitempty"`
	Notes      []string    `json:"notes"`
	// Grants are the commands that give the rights whose lack the notes and the actions name.
	Grants  []string   `json:"grants,omitempty"`
	Cost    *cost.Cost `json:"cost,omitempty"`
	Awaited []Waiting  `json:"awaited,omitempty"`
}

// Part is a replica, or a part of one.
type Part struct {
	Name    string `json:"name"`
	Pod     string `json:"pod,omitempty"`
	Role    string `json:"role"`
	Task    string `json:"task,omitempty"`
	Unit    string `json:"unit,omitempty"`
	Rank    *int32 `json:"rank,omitempty"`
	Node    string `json:"node,omitempty"`
	State   string `json:"state"`
	Message string `json:"message,omitempty"`
	Ready   bool   `json:"ready"`
	// Restartable is set if the part has a pod that can be replaced.
	Restartable bool       `json:"restartable,omitempty"`
	Restarts    int32      `json:"restarts"`
	GPUs        int64      `json:"gpus,omitempty"`
	CreatedAt   *time.Time `json:"createdAt,omitempty"`
	ExitCode    *int32     `json:"exitCode,omitempty"`
}

// LogLine is a line of a replica's log.
type LogLine struct {
	Replica string     `json:"replica"`
	Time    *time.Time `json:"time,omitempty"`
	Text    string     `json:"text"`
}

// LogNotice is a remark about logs.
type LogNotice struct {
	Text string `json:"text"`
}

// Edge is what a part talks to.
type Edge struct {
	From  string `json:"from"`
	To    string `json:"to"`
	Kind  string `json:"kind"`
	Label string `json:"label,omitempty"`
}

// Condition is a condition, in words.
type Condition struct {
	Type    string     `json:"type"`
	Status  string     `json:"status"`
	Reason  string     `json:"reason,omitempty"`
	Message string     `json:"message,omitempty"`
	Since   *time.Time `json:"since,omitempty"`
	Text    string     `json:"text"`
	Trouble bool       `json:"trouble,omitempty"`
}

// Fact is a line of kubectl di describe.
type Fact struct {
	Part  string `json:"part"`
	Title string `json:"title"`
	Text  string `json:"text"`
}

// Waiting is why a job waits, and what would let it run.
type Waiting struct {
	Namespace string     `json:"namespace"`
	Name      string     `json:"name"`
	Since     *time.Time `json:"since,omitempty"`
	Why       string     `json:"why"`
	Remedies  []string   `json:"remedies"`
	GPUs      int64      `json:"gpus,omitempty"`
	// Place is that in line for room, by priority and age; 0 for a job that waits for something else.
	Place int `json:"place,omitempty"`
	// Suspended is set if only its user keeps the job waiting.
	Suspended bool `json:"suspended,omitempty"`
}

// Moment is something that happened to a job.
type Moment struct {
	At      time.Time  `json:"at"`
	End     *time.Time `json:"end,omitempty"`
	Kind    string     `json:"kind"`
	Text    string     `json:"text"`
	Title   string     `json:"title,omitempty"`
	Object  string     `json:"object,omitempty"`
	Warning bool       `json:"warning,omitempty"`
	Count   int32      `json:"count,omitempty"`
	// Remedies are what would prevent a failure.
	Remedies []string `json:"remedies,omitempty"`
}

// Action is a change of a job, and whether the caller may make it.
type Action struct {
	Name    string      `json:"name"`
	Allowed bool        `json:"allowed"`
	Reason  string      `json:"reason,omitempty"`
	Grant   []string    `json:"grant,omitempty"`
	Tasks   []Resizable `json:"tasks,omitempty"`
}

// Resizable is a task that can be resized.
type Resizable struct {
	Task     string `json:"task"`
	Replicas int32  `json:"replicas"`
	Min      int32  `json:"min"`
	Max      *int32 `json:"max,omitempty"`
}

// ActionRequest asks for an action.
type ActionRequest struct {
	DryRun   *bool  `json:"dryRun"`
	Task     string `json:"task,omitempty"`
	Replicas *int32 `json:"replicas,omitempty"`
	Replica  string `json:"replica,omitempty"`
	UID      string `json:"uid,omitempty"`
}

// ActionResult is what an action did or would do.
type ActionResult struct {
	Done    bool     `json:"done"`
	Effects []string `json:"effects"`
}

// Manifest is a job as YAML.
type Manifest struct {
	Version string `json:"version"`
	YAML    string `json:"yaml"`
}

// Difference is the difference between two manifests.
type Difference struct {
	Left  string     `json:"left"`
	Right string     `json:"right"`
	Lines []DiffLine `json:"lines"`
}

// DiffLine is a line of one or both manifests.
type DiffLine struct {
	Kind string `json:"kind"`
	Text string `json:"text"`
}

// Plan is a ScalePlan.
type Plan struct {
	Namespace   string     `json:"namespace"`
	Name        string     `json:"name"`
	Job         string     `json:"job"`
	Phase       string     `json:"phase"`
	Origin      string     `json:"origin"`
	Change      string     `json:"change"`
	Reason      string     `json:"reason,omitempty"`
	Message     string     `json:"message,omitempty"`
	CreatedAt   time.Time  `json:"createdAt"`
	CompletedAt *time.Time `json:"completedAt,omitempty"`
}

// Cluster is the state of the cluster as far as it concerns jobs.
type Cluster struct {
	Room
	Types     []NodeType `json:"types"`
	Nodes     []Node     `json:"nodes"`
	Fit       *Fit       `json:"fit,omitempty"`
	Waiting   []Waiting  `json:"waiting"`
	Rounds    []Decision `json:"rounds"`
	Plans     []Plan     `json:"plans"`
	Teams     []Team     `json:"teams"`
	Takeovers []Takeover `json:"takeovers"`
	Notes     []string   `json:"notes"`
	// Grants are the commands that give the rights whose lack the notes name.
	Grants []string `json:"grants,omitempty"`
}

// Room is what nodes have, and what pods request of it.
type Room struct {
	GPUs   GPUs   `json:"gpus"`
	CPU    Amount `json:"cpu"`
	Memory Amount `json:"memory"`
}

// GPUs counts GPUs.
type GPUs struct {
	Total int64 `json:"total"`
	Used  int64 `json:"used"`
	Free  int64 `json:"free"`
}

// Amount is what pods request of what is allocatable: thousandths of a CPU, or bytes of memory.
type Amount struct {
	Requested   int64 `json:"requested"`
	Allocatable int64 `json:"allocatable"`
	// Used is what the metrics API tells, of pods and the programs of nodes; 0 where it tells nothing.
	Used int64 `json:"used,omitempty"`
}

// NodeType is the nodes with the same GPUs.
type NodeType struct {
	Room
	// Name is the product of the GPUs, or else their resource; empty for nodes without GPUs.
	Name  string `json:"name"`
	Nodes int    `json:"nodes"`
}

// Node is a node and who uses it.
type Node struct {
	Room
	Name        string  `json:"name"`
	Type        string  `json:"type,omitempty"`
	Ready       bool    `json:"ready"`
	Schedulable bool    `json:"schedulable"`
	Pods        int     `json:"pods,omitempty"`
	Jobs        []Share `json:"jobs"`
}

// Fit is the largest job that still fits, if each of its pods requests what most pods of jobs do.
type Fit struct {
	GPUs   int64 `json:"gpus,omitempty"`
	CPU    int64 `json:"cpu"`
	Memory int64 `json:"memory"`
	// Pods fit on Nodes, and Stranded are free GPUs where none fits.
	Pods     int64 `json:"pods"`
	Nodes    int   `json:"nodes"`
	Stranded int64 `json:"stranded,omitempty"`
}

// Share is what a job has on a node.
type Share struct {
	Namespace string `json:"namespace"`
	Name      string `json:"name"`
	GPUs      int64  `json:"gpus"`
	CPU       int64  `json:"cpu"`
	Memory    int64  `json:"memory"`
	Pods      int    `json:"pods"`
}

// Decision is what the allocator or the autoscaler decided about a job.
type Decision struct {
	Namespace string     `json:"namespace"`
	Name      string     `json:"name"`
	At        *time.Time `json:"at,omitempty"`
	Who       string     `json:"who"`
	Reason    string     `json:"reason,omitempty"`
	Text      string     `json:"text"`
}

// Team is the jobs of a namespace, group or queue that have not finished, and what their pods request.
type Team struct {
	Kind      string `json:"kind"`
	Namespace string `json:"namespace"`
	Name      string `json:"name"`
	Jobs      int    `json:"jobs"`
	Waiting   int    `json:"waiting"`
	GPUs      int64  `json:"gpus"`
	CPU       int64  `json:"cpu"`
	Memory    int64  `json:"memory"`
}

// Takeover is the state of a change of the installation: the takeover of an earlier release, or the
// storage migration.
type Takeover struct {
	What  string   `json:"what"`
	State string   `json:"state"`
	Text  string   `json:"text"`
	Waits []string `json:"waits,omitempty"`
}

// HistoryState is whether the history of jobs can be read, and if not, why.
type HistoryState struct {
	Reachable bool   `json:"reachable"`
	Why       string `json:"why,omitempty"`
}

// HistoryPage is a part of the recorded jobs.
type HistoryPage struct {
	Items []HistoryRow `json:"items"`
	Next  string       `json:"next,omitempty"`
}

// HistoryRow is a recorded job in a table.
type HistoryRow struct {
	Namespace string     `json:"namespace"`
	Name      string     `json:"name"`
	UID       string     `json:"uid"`
	Phase     string     `json:"phase"`
	Reason    string     `json:"reason,omitempty"`
	Message   string     `json:"message,omitempty"`
	Group     string     `json:"group,omitempty"`
	User      string     `json:"user,omitempty"`
	Restarts  int64      `json:"restarts"`
	CreatedAt time.Time  `json:"createdAt"`
	StartedAt *time.Time `json:"startedAt,omitempty"`
	EndedAt   *time.Time `json:"endedAt,omitempty"`
}

// HistorySums has what recorded jobs took together.
type HistorySums struct {
	Items     []HistorySum `json:"items"`
	Since     time.Time    `json:"since"`
	Truncated bool         `json:"truncated,omitempty"`
}

// HistorySum is what the jobs of one namespace, group, queue, user, cause or day took.
type HistorySum struct {
	Key          string  `json:"key"`
	Jobs         int64   `json:"jobs"`
	Unsuccessful int64   `json:"unsuccessful"`
	WaitedHours  float64 `json:"waitedHours"`
	GPUHours     float64 `json:"gpuHours"`
	// Daily is GPUHours by day, from Since of the sums.
	Daily      []float64 `json:"daily,omitempty"`
	CPUUsed    *float64  `json:"cpuUsed,omitempty"`
	MemoryUsed *float64  `json:"memoryUsed,omitempty"`
}

// HistoryJob is what is recorded of a job.
type HistoryJob struct {
	Job      HistoryRow    `json:"job"`
	Facts    []Fact        `json:"facts"`
	Parts    []HistoryPart `json:"parts"`
	Timeline []Moment      `json:"timeline"`
	Notes    []string      `json:"notes"`
	Cost     *cost.Cost    `json:"cost,omitempty"`
}

// HistoryPart is a table of what is recorded.
type HistoryPart struct {
	Title   string     `json:"title"`
	Columns []string   `json:"columns"`
	Rows    [][]string `json:"rows"`
	More    int        `json:"more,omitempty"`
}

// HistoryTails has the last lines of containers that ended badly.
type HistoryTails struct {
	Tails []HistoryTail `json:"tails"`
}

// HistoryTail is the last output of a container that ended badly.
type HistoryTail struct {
	Replica   string    `json:"replica"`
	Container string    `json:"container"`
	Restarts  int32     `json:"restarts"`
	EndedAt   time.Time `json:"endedAt"`
	ExitCode  int32     `json:"exitCode"`
	Reason    string    `json:"reason,omitempty"`
	Text      string    `json:"text"`
	Truncated bool      `json:"truncated,omitempty"`
}

// HistoryCurves are the recorded curves of a job.
type HistoryCurves struct {
	Curves []Curve    `json:"curves"`
	Until  *time.Time `json:"until,omitempty"`
}

// HistoryComparison is what differs between recorded jobs. Lists of values have one for each job.
type HistoryComparison struct {
	Jobs      []ComparedJob      `json:"jobs"`
	Fields    []ComparedField    `json:"fields"`
	More      int                `json:"more,omitempty"`
	Notes     []string           `json:"notes"`
	Resources []ComparedResource `json:"resources"`
	Series    []ComparedSeries   `json:"series"`
}

// ComparedJob is one of the jobs, and how it went.
type ComparedJob struct {
	Job         HistoryRow `json:"job"`
	TimeToStart *float64   `json:"timeToStart,omitempty"`
	Duration    *float64   `json:"duration,omitempty"`
	Restarts    int32      `json:"restarts"`
	Reschedules int32      `json:"reschedules"`
}

// ComparedField is a field of the spec that differs.
type ComparedField struct {
	Field  string   `json:"field"`
	Values []string `json:"values"`
}

// ComparedResource is what a task of each job had.
type ComparedResource struct {
	Task   string   `json:"task"`
	What   string   `json:"what"`
	Values []string `json:"values"`
}

// ComparedSeries is a series of each job.
type ComparedSeries struct {
	Name    string         `json:"name"`
	Kind    string         `json:"kind,omitempty"`
	Unit    string         `json:"unit,omitempty"`
	Lowest  bool           `json:"lowest,omitempty"`
	Last    []*float64     `json:"last"`
	Best    []*float64     `json:"best"`
	Reached []*float64     `json:"reached"`
	Lines   [][][2]float64 `json:"lines"`
}
