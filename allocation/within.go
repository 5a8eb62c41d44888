// Copyright The DI Orchestrator Authors.
// SPDX-License-Identifier: Apache-2.0

package allocation

import (
	"cmp"
	"fmt"
	"maps"
	"math"
	"slices"
	"strconv"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"

	"opendilab.org/di-orchestrator/apis/v2alpha1"
)

// ReasonQuotaExceeded is the reason of a job that the API server would not admit.
const ReasonQuotaExceeded = v2alpha1.ReasonQuotaExceeded

// Bound is how many replicas of a job the API server admits at most, and why.
type Bound struct {
	Replicas int32
	Why      string
}

// Within lets a policy decide about a round within the quotas of its namespaces and the bounds of its jobs. A policy
// knows of neither: it decides about jobs that want at most what they may have. If its answer exceeds a quota, the jobs of
// the namespace share it, and the policy decides again, so that others get the capacity.
//
// The jobs of a namespace share its quota by priority. Of one priority those that are placed keep what they have. Then
// the oldest is first.
func Within(policy Policy, round *Round) map[types.NamespacedName]Placement {
	w := &within{round: round, left: leftOf(round), grants: make(map[types.NamespacedName]grant, len(round.Jobs))}
	for _, job := range round.Jobs {
		// What it may have if it has its namespace for itself.
		w.grants[job.Name] = w.grant(job, w.left[job.Name.Namespace], job.most())
	}
	decided := w.decide(policy)
	if w.share(decided) {
		decided = w.decide(policy)
	}
	return w.enforce(decided)
}

// within is a round while it is decided.
type within struct {
	round *Round
	// left is what the quotas of each namespace leave.
	left   map[string][]Amounts
	grants map[types.NamespacedName]grant
}

// grant is how many replicas of its elastic task a job may have; none if it may not run. why says what bounds it.
type grant struct {
	most int32
	why  string
}

const none = -1

// most returns the most replicas of the elastic task that a job wants, 0 if there is none.
func (j *Job) most() int32 {
	if j.Elastic < 0 {
		return 0
	}
	return max(j.Wanted, j.Min)
}

// leftOf returns what the quotas of each namespace leave. A quota that was lowered stops no job whose replicas all exist.
func leftOf(round *Round) map[string][]Amounts {
	left, rest := make(map[string][]Amounts, len(round.Quotas)), make(map[string][]Amounts, len(round.Quotas))
	for namespace, quotas := range round.Quotas {
		for _, quota := range quotas {
			left[namespace] = append(left[namespace], maps.Clone(quota.Left))
			rest[namespace] = append(rest[namespace], maps.Clone(quota.Left))
		}
	}
	for _, job := range round.Jobs {
		if elastic, all := job.existing(round.Previous[job.Name]); all {
			job.takeFrom(rest[job.Name.Namespace], elastic, 1)
		}
	}
	for namespace := range left {
		for i := range left[namespace] {
			for name, amount := range rest[namespace][i] {
				left[namespace][i][name] -= min(amount, 0)
			}
		}
	}
	return left
}

// grant returns the most replicas, up to a number, that the amounts and the bound of a job allow.
func (w *within) grant(job *Job, left []Amounts, most int32) grant {
	found := grant{most: most}
	if bound := job.Bound; bound != nil {
		admitted := bound.Replicas - job.size(0)
		if exists, all := job.existing(w.round.Previous[job.Name]); all {
			admitted = max(admitted, exists)
		}
		found.limit(admitted, bound.Why)
	}
	for i, quota := range w.round.Quotas[job.Name.Namespace] {
		for _, name := range slices.Sorted(maps.Keys(left[i])) {
			if room, isBound := job.room(i, name, left[i][name]); isBound {
				found.limit(room, fmt.Sprintf("quota %s leaves %s of %s to it", quota.Name, amountText(name, left[i][name]), name))
			}
		}
	}
	if found.most < job.least() {
		found.most = none
	}
	return found
}

func (g *grant) limit(most int32, why string) {
	if most < g.most {
		g.most, g.why = most, why
	}
}

// room returns how many replicas of the elastic task a quota has room for, by one resource. It returns false if the job
// uses none of it.
func (j *Job) room(quota int, name corev1.ResourceName, left int64) (int32, bool) {
	var each int64
	isBound := false
	for task := range j.Tasks {
		use := j.Tasks[task].use(quota, name)
		if use <= 0 {
			continue
		}
		if isBound = true; task == j.Elastic {
			each = use
			continue
		}
		left = less(left, use, j.Tasks[task].Replicas)
	}
	switch {
	case !isBound:
		return 0, false
	case left < 0:
		return none, true
	case each == 0:
		return math.MaxInt32, true
	}
	return int32(min(left/each, math.MaxInt32)), true
}

// less subtracts amounts a number of times without overflow.
func less(left, amount int64, times int32) int64 {
	if times > 0 && amount > (math.MaxInt64/2)/int64(times) {
		return math.MinInt64 / 2
	}
	return max(left-amount*int64(times), math.MinInt64/2)
}

// use returns what a replica uses of a resource of the quota at a position, 0 if the quota does not count it.
func (t *Task) use(quota int, name corev1.ResourceName) int64 {
	if quota >= len(t.Uses) {
		return 0
	}
	return t.Uses[quota][name]
}

// existing returns the replicas of the elastic task of a placement whose ranks all exist. It returns false for any other.
func (j *Job) existing(previous []string) (int32, bool) {
	for rank, node := range previous {
		if !j.Ended[rank] && j.Running[rank] != node {
			return 0, false
		}
	}
	elastic, fits := j.ElasticOf(len(previous))
	return elastic, fits && len(previous) > 0
}

// takeFrom takes what a job with so many replicas of its elastic task uses from the amounts of each quota.
func (j *Job) takeFrom(left []Amounts, elastic int32, times int64) {
	for i := range left {
		for name := range left[i] {
			for task := range j.Tasks {
				left[i][name] = less(left[i][name], j.Tasks[task].use(i, name)*times, j.replicas(task, elastic))
			}
		}
	}
}

// decide lets the policy decide about jobs that want what they may have.
func (w *within) decide(policy Policy) map[types.NamespacedName]Placement {
	round := *w.round
	round.Jobs = make([]*Job, 0, len(w.round.Jobs))
	for _, job := range w.round.Jobs {
		switch granted := w.grants[job.Name].most; {
		case granted == none:
		case job.Elastic >= 0 && granted < job.Wanted:
			bounded := *job
			bounded.Wanted = granted
			round.Jobs = append(round.Jobs, &bounded)
		default:
			round.Jobs = append(round.Jobs, job)
		}
	}
	return policy.Optimize(&round)
}

// share divides the quotas of each namespace among its jobs. It reports whether the answer of the policy gives a job
// more than its part. Otherwise it changes nothing.
func (w *within) share(decided map[types.NamespacedName]Placement) bool {
	byNamespace := map[string][]*Job{}
	for _, job := range w.round.Jobs {
		if len(w.round.Quotas[job.Name.Namespace]) > 0 && w.grants[job.Name].most != none {
			byNamespace[job.Name.Namespace] = append(byNamespace[job.Name.Namespace], job)
		}
	}
	exceeds, all := false, make(map[types.NamespacedName]grant, len(w.round.Jobs))
	for namespace, jobs := range byNamespace {
		left := make([]Amounts, len(w.left[namespace]))
		for i, amounts := range w.left[namespace] {
			left[i] = maps.Clone(amounts)
		}
		parts := w.parts(left, jobs, decided)
		exceeds = exceeds || slices.ContainsFunc(jobs, func(job *Job) bool { return w.sizeOf(job, decided) > parts[job.Name].most })
		maps.Copy(all, parts)
	}
	if exceeds {
		// Jobs of every namespace may get the capacity.
		maps.Copy(w.grants, all)
	}
	return exceeds
}

// sizeOf returns the replicas of the elastic task of a job by an answer, none if it is not placed.
func (w *within) sizeOf(job *Job, decided map[types.NamespacedName]Placement) int32 {
	nodes := w.round.Previous[job.Name]
	if placement, isDecided := decided[job.Name]; isDecided {
		nodes = placement.Nodes
	}
	if len(nodes) == 0 {
		return none
	}
	elastic, _ := job.ElasticOf(len(nodes))
	return elastic
}

// parts returns the parts of the jobs of a namespace.
func (w *within) parts(left []Amounts, jobs []*Job, decided map[types.NamespacedName]Placement) map[types.NamespacedName]grant {
	parts := make(map[types.NamespacedName]grant, len(jobs))
	for _, job := range jobs {
		parts[job.Name] = grant{most: none}
	}
	// What placed jobs keep, the least of the others, and what the policy decided.
	keeps := func(job *Job) int32 {
		previous := w.round.Previous[job.Name]
		if had, fits := job.ElasticOf(len(previous)); fits && len(previous) > 0 {
			return min(had, w.sizeOf(job, decided))
		}
		return none
	}
	for _, level := range levels(jobs) {
		for _, to := range []func(*Job) int32{keeps, (*Job).least, func(job *Job) int32 { return w.sizeOf(job, decided) }} {
			for _, job := range level {
				w.raise(job, left, parts, to(job))
			}
		}
	}
	for _, job := range InOrder(jobs) {
		w.raise(job, left, parts, job.most())
	}
	return parts
}

// levels returns jobs by descending priority, those of a priority in the order in which they are placed.
func levels(jobs []*Job) [][]*Job {
	var levels [][]*Job
	for _, job := range InOrder(jobs) {
		if last := len(levels) - 1; last >= 0 && levels[last][0].Priority == job.Priority {
			levels[last] = append(levels[last], job)
			continue
		}
		levels = append(levels, []*Job{job})
	}
	return levels
}

// raise raises the part of a job to a number of replicas, as far as the amounts allow.
func (w *within) raise(job *Job, left []Amounts, parts map[types.NamespacedName]grant, to int32) {
	part := parts[job.Name]
	if to <= part.most && part.most != none || to == none {
		return
	}
	if part.most != none {
		job.takeFrom(left, part.most, -1)
	}
	raised := w.grant(job, left, max(to, job.least()))
	if raised.most == none || raised.most < part.most {
		raised.most = part.most
	}
	if raised.most != none {
		job.takeFrom(left, raised.most, 1)
	}
	parts[job.Name] = raised
}

// enforce returns the answer with what bounds its jobs. A job that a policy gave more than it may have is not placed.
func (w *within) enforce(decided map[types.NamespacedName]Placement) map[types.NamespacedName]Placement {
	all := make(map[types.NamespacedName]Placement, len(w.round.Jobs))
	for _, job := range w.round.Jobs {
		granted := w.grants[job.Name]
		placement, isDecided := decided[job.Name]
		size := w.sizeOf(job, decided)
		switch {
		case granted.most == none || size > granted.most:
			placement = Placement{Reason: ReasonQuotaExceeded, Message: "the API server does not admit the least replicas: " +
				cmp.Or(granted.why, "other jobs of the namespace have its quota"), Usage: placement.Usage}
		case !isDecided:
			continue
		case size == granted.most && size < job.most() && granted.why != "":
			placement.Reason = ReasonPartiallyPlaced
			placement.Message += fmt.Sprintf("; %d of task %s are desired: %s", job.Wanted, job.Tasks[job.Elastic].Name, granted.why)
		}
		all[job.Name] = placement
	}
	return all
}

// amountText returns an amount for messages.
func amountText(name corev1.ResourceName, amount int64) string {
	if isCPU(name) {
		return fmt.Sprintf("%g", float64(amount)/1000)
	}
	return strconv.FormatInt(max(amount, 0), 10)
}
