// Copyright The DI Orchestrator Authors.
// SPDX-License-Identifier: Apache-2.0

package record

import (
	"maps"
	"math"
	"slices"
	"strings"
	"unicode/utf8"
)

// The bounds of what is remembered of one job. Lists keep their newest entries, except those of
// replicas, which keep the newest that ended badly before others.
const (
	// MaxName bounds names and reasons, in bytes.
	MaxName = 253
	// MaxText bounds messages, groups and images.
	MaxText = 1_024
	// MaxManifest bounds the manifest. etcd stores no larger object.
	MaxManifest = 1_536 << 10
	// MaxImages bounds the distinct images.
	MaxImages = 256
	// MaxReplicas bounds the pods.
	MaxReplicas = 5_000
	// MaxChanges bounds each other list.
	MaxChanges = 256
	// MaxNodes bounds the nodes of all placements.
	MaxNodes = 20_000
	// MaxTasks bounds the tasks of a plan, and those with peaks.
	MaxTasks = 256
	// MaxTail bounds the text of a Tail, and MaxTails how many a job has.
	MaxTail  = 16 << 10
	MaxTails = 64
	// MaxSeries bounds the values of a sample, and MaxSeriesName their names.
	MaxSeries     = 32
	MaxSeriesName = 63
)

// Bound returns the job within the bounds, and with texts that every database stores. It shares with
// the argument what it does not change.
func Bound(job Job) Job {
	job.Dropped = maps.Clone(job.Dropped)
	for _, name := range []*string{&job.UID, &job.Namespace, &job.Name, &job.Queue, &job.Version, &job.Phase, &job.Reason} {
		*name = Text(*name, MaxName)
	}
	job.Curve = Text(job.Curve, MaxSeriesName)
	for _, text := range []*string{&job.Group, &job.Creator, &job.Message} {
		*text = Text(*text, MaxText)
	}
	if len(job.Manifest) > MaxManifest {
		job.Manifest = nil
	}
	if len(job.Seen.ReplicaRestarts) > MaxReplicas {
		job.Seen.ReplicaRestarts = nil
	}
	job.Images = each(job.Images[:min(len(job.Images), MaxImages)], func(image *string) { *image = Text(*image, MaxText) })
	job.Replicas = each(job.boundReplicas(), boundReplica)
	job.Phases = each(newest(&job, "phases", job.Phases), func(p *Phase) { p.Phase = Text(p.Phase, MaxName) })
	job.Attempts = each(newest(&job, "attempts", job.Attempts), func(a *Attempt) { boundCause(&a.Reason, &a.Message) })
	job.Restarts = each(newest(&job, "restarts", job.Restarts), func(r *Restart) {
		r.Kind, r.Replica = Text(r.Kind, MaxName), Text(r.Replica, MaxName)
		boundCause(&r.Reason, &r.Message)
	})
	job.Resizes = each(newest(&job, "resizes", job.Resizes), func(r *Resize) { r.Task, r.By = Text(r.Task, MaxName), Text(r.By, MaxName) })
	job.Plans = each(newest(&job, "plans", job.Plans), boundPlan)
	job.Conditions = each(newest(&job, "conditions", job.Conditions), func(c *Condition) {
		c.Type, c.Status = Text(c.Type, MaxName), Text(c.Status, MaxName)
		boundCause(&c.Reason, &c.Message)
	})
	job.Events = each(newest(&job, "events", job.Events), func(e *Event) {
		e.UID, e.Object, e.Type = Text(e.UID, MaxName), Text(e.Object, 2*MaxName), Text(e.Type, MaxName)
		boundCause(&e.Reason, &e.Message)
	})
	job.Requests = each(job.Requests[:min(len(job.Requests), MaxTasks)], func(r *Request) { r.Task = Text(r.Task, MaxName) })
	job.Peaks = each(job.Peaks[:min(len(job.Peaks), MaxTasks)], func(p *Peak) { p.Task = Text(p.Task, MaxName) })
	job.Placements = job.boundPlacements()
	return job
}

// Lean returns the job without its large parts, which count as dropped.
func Lean(job Job) Job {
	lean := Job{
		UID: job.UID, Namespace: job.Namespace, Name: job.Name, Group: job.Group, Queue: job.Queue, Curve: job.Curve, Creator: job.Creator, Version: job.Version,
		Created: job.Created, Started: job.Started, Ended: job.Ended, Phase: job.Phase, Reason: job.Reason,
		Deleted: job.Deleted, Unseen: job.Unseen, Dropped: maps.Clone(job.Dropped),
	}
	lean.Seen = job.Seen
	lean.Seen.ReplicaRestarts, lean.Seen.Desired = nil, nil
	for list, count := range map[string]int{
		"phases": len(job.Phases), "attempts": len(job.Attempts), "replicas": len(job.Replicas), "restarts": len(job.Restarts), "resizes": len(job.Resizes),
		"placements": len(job.Placements), "plans": len(job.Plans), "conditions": len(job.Conditions), "images": len(job.Images), "peaks": len(job.Peaks),
	} {
		lean.drop(list, count)
	}
	return lean
}

func boundCause(reason, message *string) {
	*reason, *message = Text(*reason, MaxName), Text(*message, MaxText)
}

func boundReplica(r *Replica) {
	for _, name := range []*string{&r.PodUID, &r.Pod, &r.Task, &r.Node, &r.Phase} {
		*name = Text(*name, MaxName)
	}
	boundCause(&r.Reason, &r.Message)
}

func boundPlan(p *Plan) {
	for _, name := range []*string{&p.UID, &p.Name, &p.Origin, &p.Phase} {
		*name = Text(*name, MaxName)
	}
	p.Reason, p.Message = Text(p.Reason, MaxText), Text(p.Message, MaxText)
	if len(p.Replicas) > MaxTasks {
		p.Replicas = nil
	}
}

// boundReplicas keeps the order of what it returns.
func (j *Job) boundReplicas() []Replica {
	excess := len(j.Replicas) - MaxReplicas
	if excess <= 0 {
		return j.Replicas
	}
	j.drop("replicas", excess)
	kept := make([]Replica, 0, MaxReplicas)
	wellEnded := func(r Replica) bool { return !r.Ended.IsZero() && (r.ExitCode == nil || *r.ExitCode == 0) }
	good := 0
	for _, replica := range j.Replicas {
		if wellEnded(replica) {
			good++
		}
	}
	// The oldest that ended well go first, then the oldest.
	goodExcess := min(good, excess)
	otherExcess := excess - goodExcess
	for _, replica := range j.Replicas {
		left := &otherExcess
		if wellEnded(replica) {
			left = &goodExcess
		}
		if *left > 0 {
			*left--
			continue
		}
		kept = append(kept, replica)
	}
	return kept
}

// boundPlacements keeps the newest placements whose nodes are within the bound together.
func (j *Job) boundPlacements() []Placement {
	all := newest(j, "placements", j.Placements)
	nodes, first := 0, len(all)
	for first > 0 && nodes+len(all[first-1].Nodes) <= MaxNodes {
		first--
		nodes += len(all[first].Nodes)
	}
	j.drop("placements", first)
	return each(all[first:], func(p *Placement) {
		p.Nodes = each(p.Nodes, func(node *string) { *node = Text(*node, MaxName) })
	})
}

func newest[T any](job *Job, list string, all []T) []T {
	excess := len(all) - MaxChanges
	if excess <= 0 {
		return all
	}
	job.drop(list, excess)
	return all[excess:]
}

func (j *Job) drop(list string, count int) {
	if count == 0 {
		return
	}
	if j.Dropped == nil {
		j.Dropped = map[string]int{}
	}
	j.Dropped[list] += count
}

// each returns a copy of the list in which each entry is changed.
func each[T any](all []T, change func(*T)) []T {
	all = slices.Clone(all)
	for i := range all {
		change(&all[i])
	}
	return all
}

// BoundTail returns the tail within the bounds: the last lines that fit.
func BoundTail(tail Tail) Tail {
	for _, name := range []*string{&tail.PodUID, &tail.Pod, &tail.Container, &tail.Reason} {
		*name = Text(*name, MaxName)
	}
	tail.Text = storable(tail.Text)
	if excess := len(tail.Text) - MaxTail; excess > 0 {
		cut := tail.Text[excess:]
		for !utf8.RuneStart(cut[0]) {
			cut = cut[1:]
		}
		if _, after, found := strings.Cut(cut, "\n"); found && after != "" {
			cut = after
		}
		tail.Text, tail.Truncated = cut, true
	}
	return tail
}

// BoundSample returns the sample within the bounds: the first series by name, and finite values only.
func BoundSample(sample Sample) Sample {
	kept := make(map[string]Mean, min(len(sample.Values), MaxSeries))
	for _, name := range slices.Sorted(maps.Keys(sample.Values)) {
		value := sample.Values[name]
		isFinite := !math.IsNaN(value.Sum) && !math.IsInf(value.Sum, 0)
		if len(kept) < MaxSeries && isFinite && value.Count > 0 && len(name) <= MaxSeriesName && storable(name) == name {
			kept[name] = value
		}
	}
	sample.Values = kept
	return sample
}

// Text returns a text that every database stores, truncated to so many bytes.
func Text(text string, limit int) string {
	text = storable(text)
	if len(text) <= limit {
		return text
	}
	for limit > 0 && !utf8.RuneStart(text[limit]) {
		limit--
	}
	return text[:limit]
}

// storable replaces what PostgreSQL does not store in a text: other bytes than UTF-8, and zeros.
func storable(text string) string {
	return strings.ReplaceAll(strings.ToValidUTF8(text, "\uFFFD"), "\x00", "\uFFFD")
}
