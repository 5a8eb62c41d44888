// Copyright The DI Orchestrator Authors.
// SPDX-License-Identifier: Apache-2.0

package allocation

import (
	"cmp"
	"fmt"
	"maps"
	"math"
	"slices"
	"sort"
	"strings"

	"github.com/dustin/go-humanize/english"
	corev1 "k8s.io/api/core/v1"

	"opendilab.org/di-orchestrator/allocation/topology"
)

// Board is the free capacity of nodes while jobs are placed on them, one after the other. Nodes are in
// the order of their names, so equal input gives equal placements.
type Board struct {
	nodes  []*corev1.Node
	closed []bool
	free   [][]int64
	byName map[string]int
	// tree returns the domains of the nodes, nil without a topology.
	tree func() *topology.Tree
	// settled is the free capacity of each node when Settle was called; nil before.
	settled [][]int64

	// reserved are the nodes that take no further pods because they are reserved for one job.
	reserved []bool
	// accepting are the nodes that accept pods, by the key of the pods' requirements.
	accepting map[string][]bool
	// failures are the least sizes of jobs that did not fit, by the key of the job. They still do not
	// fit as long as no capacity was given back.
	failures map[string]bool
	// packings counts how often a job was packed.
	packings int
}

// NewBoard returns the free capacity of nodes.
func NewBoard(nodes []*Node) *Board {
	nodes = slices.Clone(nodes)
	slices.SortStableFunc(nodes, byName)
	b := &Board{
		byName: make(map[string]int, len(nodes)), reserved: make([]bool, len(nodes)),
		accepting: map[string][]bool{}, failures: map[string]bool{},
	}
	for i, node := range nodes {
		b.nodes, b.closed = append(b.nodes, node.Object), append(b.closed, node.Closed)
		b.free = append(b.free, slices.Clone(node.Free))
		b.byName[node.Object.Name] = i
	}
	b.tree = once(func() *topology.Tree { return TreeOf(nodes) })
	return b
}

// once returns a function that makes a tree at its first call. A decision is made by one goroutine.
func once(newTree func() *topology.Tree) func() *topology.Tree {
	var made *topology.Tree
	isMade := false
	return func() *topology.Tree {
		if !isMade {
			made, isMade = newTree(), true
		}
		return made
	}
}

// Clone returns a copy of the board. What is taken on one of them is not taken on the other.
func (b *Board) Clone() *Board {
	clone := *b
	clone.free, clone.settled = cloneAmounts(b.free), cloneAmounts(b.settled)
	clone.reserved, clone.failures = slices.Clone(b.reserved), maps.Clone(b.failures)
	return &clone
}

func cloneAmounts(all [][]int64) [][]int64 {
	if all == nil {
		return nil
	}
	clone := make([][]int64, len(all))
	for at, amounts := range all {
		clone[at] = slices.Clone(amounts)
	}
	return clone
}

// Settle is called once all jobs that stay have taken their capacity. From then on, a job that was released
// does not return to capacity that another one was given in the meantime, although its pods still run there.
func (b *Board) Settle() { b.settled = cloneAmounts(b.free) }

// mayReturn reports whether a running replica may take its capacity again. A node may be left with less than
// nothing if it had less when the board was settled: its allocatable resources have shrunk.
func (b *Board) mayReturn(at int, pod *Requirements) bool {
	if b.settled == nil {
		return true
	}
	for axis, amount := range pod.amounts {
		if amount > 0 && b.free[at][axis]-amount < min(b.settled[at][axis], 0) {
			return false
		}
	}
	return true
}

// Leave takes the capacity of terminating pods.
func (b *Board) Leave(nodes []*Node) {
	for _, node := range nodes {
		if node.Leaving == nil {
			continue
		}
		at := b.byName[node.Object.Name]
		take(b.free[at], node.Leaving, 1)
		if b.settled != nil {
			take(b.settled[at], node.Leaving, 1)
		}
	}
}

// change takes amounts of a node a number of times. Jobs that did not fit may fit after capacity was
// given back.
func (b *Board) change(at int, pod *Requirements, times int32) {
	take(b.free[at], pod.amounts, times)
	if times < 0 {
		clear(b.failures)
	}
}

// Reserve closes nodes to all jobs that are placed after it.
func (b *Board) Reserve(nodes []string) {
	for _, node := range nodes {
		if at, exists := b.byName[node]; exists {
			b.reserved[at] = true
		}
	}
}

// Emptiest returns nodes that hold a job with its least size, chosen from the nodes that are the least
// occupied on another board. There are none if all nodes of this board cannot hold the job.
func (b *Board) Emptiest(job *Job, occupied *Board) []string {
	order := make([]int, len(b.nodes))
	weights := make([]int64, len(b.nodes))
	for at, free := range b.free {
		order[at] = at
		for i, amount := range free {
			if amount > 0 {
				weights[at] = max(weights[at], (amount-occupied.free[at][i])*1000/amount)
			}
		}
	}
	slices.SortStableFunc(order, func(i, j int) int { return cmp.Compare(weights[i], weights[j]) })
	var chosen []string
	// The search finds the smallest number of nodes that hold the job, at the first of them.
	sort.Search(len(order)+1, func(count int) bool {
		trial := b.Clone()
		for at := range trial.reserved {
			trial.reserved[at] = true
		}
		for _, at := range order[:min(count, len(order))] {
			trial.reserved[at] = false
		}
		nodes, fits := trial.PlaceLeast(job)
		if fits {
			chosen = nodes
		}
		return fits
	})
	return slices.Compact(slices.Sorted(slices.Values(chosen)))
}

// nodeFor returns a node that takes one more replica of a job, one of the used nodes if possible, else one of their domains.
func (b *Board) nodeFor(job *Job, pod *Requirements, used map[string]bool) (string, bool) {
	name, nearest := "", math.MaxInt
	accepting := b.acceptingFor(job, pod)
	apart := b.apart(used)
	for at, node := range b.nodes {
		isUsed := used[node.Name]
		if !isUsed && apart(at) >= nearest || !accepting[at] || pod.room(b.free[at], 1) == 0 {
			continue
		}
		if name = node.Name; isUsed {
			break
		}
		nearest = apart(at)
	}
	return name, name != ""
}

// charge takes the capacity of all ranks of a job, even if there is none; -1 times gives it back. It
// skips nodes that do not exist.
func (b *Board) charge(job *Job, nodes []string, times int32) {
	elastic, _ := job.ElasticOf(len(nodes))
	for rank, pod := range job.Ranks(max(elastic, 0)) {
		if rank >= len(nodes) {
			return
		}
		if at, exists := b.byName[nodes[rank]]; exists {
			b.change(at, pod, times)
		}
	}
}

// Grow places a job again if it then has more replicas, at least that many more or as many as desired.
func (b *Board) Grow(job *Job, nodes []string, gain int) (Placement, bool) {
	b.charge(job, nodes, -1)
	grown := b.Place(job)
	if more := len(grown.Nodes) - len(nodes); more >= gain || more > 0 && grown.Reason == ReasonPlaced {
		return grown, true
	}
	b.charge(job, grown.Nodes, -1)
	b.charge(job, nodes, 1)
	return Placement{}, false
}

// Place places a job with as many replicas as the nodes can hold, and takes their capacity.
func (b *Board) Place(job *Job) Placement {
	candidates := b.candidates(job)
	key := job.key()
	if b.failures[key] {
		return b.refuse(job, candidates)
	}
	nodes, fits := b.pack(job, job.least(), candidates)
	if !fits {
		b.failures[key] = true
		return b.refuse(job, candidates)
	}
	elastic := job.least()
	if elastic < job.Wanted && job.Elastic >= 0 {
		b.undo(job, nodes)
		elastic, nodes = b.most(job, nodes, candidates)
		b.charge(job, nodes, 1)
	}
	return placed(job, elastic, b.gather(job, elastic, nodes, candidates))
}

func (b *Board) refuse(job *Job, candidates [][]bool) Placement {
	return Placement{Reason: ReasonInsufficientCapacity, Message: b.explain(job, candidates)}
}

// undo gives back what was just packed. Jobs that did not fit still do not.
func (b *Board) undo(job *Job, nodes []string) {
	failures := b.failures
	b.failures = nil
	b.charge(job, nodes, -1)
	b.failures = failures
}

// most returns the largest size that it finds, and its nodes. The least size fits on the given nodes. It
// tries all replicas, because often all fit, and then bisects. Packing is a heuristic, so a larger size
// may fit although a smaller one does not. Only sizes that were packed are returned.
func (b *Board) most(job *Job, nodes []string, candidates [][]bool) (int32, []string) {
	fits, least, most := job.Min, job.Min+1, min(job.Wanted, b.roomFor(job, job.Elastic, candidates, job.Wanted))
	for next := most; least <= most; next = least + (most-least)/2 {
		found, fit := b.pack(job, next, candidates)
		if !fit {
			most = next - 1
			continue
		}
		b.undo(job, found)
		fits, nodes, least = next, found, next+1
	}
	return fits, nodes
}

// PlaceCount places a job with exactly that many replicas of its elastic task, and takes their
// capacity. It returns false, and takes nothing, if the nodes cannot hold them. A job without an
// elastic task has a count of 0.
func (b *Board) PlaceCount(job *Job, elastic int32) ([]string, bool) {
	candidates := b.candidates(job)
	nodes, fits := b.pack(job, elastic, candidates)
	if fits {
		nodes = b.gather(job, elastic, nodes, candidates)
	}
	return nodes, fits
}

// PlaceLeast places a job with its least size, like PlaceCount, in any domains.
func (b *Board) PlaceLeast(job *Job) ([]string, bool) {
	return b.pack(job, job.least(), b.candidates(job))
}

// Return gives back the capacity of all ranks of a job that is placed on those nodes.
func (b *Board) Return(job *Job, nodes []string) { b.charge(job, nodes, -1) }

// candidates returns for each task of a job whether each node takes replicas of it.
func (b *Board) candidates(job *Job) [][]bool {
	candidates := make([][]bool, len(job.Tasks))
	for task := range job.Tasks {
		candidates[task] = b.acceptingFor(job, job.Tasks[task].Pod)
	}
	return candidates
}

// acceptingFor returns whether each node takes pods of a job.
func (b *Board) acceptingFor(job *Job, pod *Requirements) []bool {
	accepting, known := b.accepting[pod.nodesKey]
	if !known {
		accepting = make([]bool, len(b.nodes))
		for at, node := range b.nodes {
			accepting[at] = !b.closed[at] && pod.accepts(node)
		}
		b.accepting[pod.nodesKey] = accepting
	}
	if len(job.Excluded) == 0 && !slices.Contains(b.reserved, true) {
		return accepting
	}
	accepting = slices.Clone(accepting)
	for at, node := range b.nodes {
		accepting[at] = accepting[at] && !b.reserved[at] && !job.Excluded[node.Name]
	}
	return accepting
}

// roomFor returns how many replicas of a task all nodes hold, at most a number.
func (b *Board) roomFor(job *Job, task int, candidates [][]bool, most int32) int32 {
	var room int32
	for at := range b.nodes {
		if candidates[task][at] {
			room += job.Tasks[task].Pod.room(b.free[at], most)
		}
		if room >= most {
			return most
		}
	}
	return room
}

// pack takes capacity for all replicas of a job on few nodes. Replicas that request scarce resources
// are first. If they block the others, they are last.
func (b *Board) pack(job *Job, elastic int32, candidates [][]bool) ([]string, bool) {
	b.packings++
	for task := range job.Tasks {
		if count := job.replicas(task, elastic); b.roomFor(job, task, candidates, count) < count {
			return nil, false
		}
	}
	return b.packOn(job, elastic, candidates, nil)
}

// packOn packs a job on some of the nodes only, by their places; on all of them without any.
func (b *Board) packOn(job *Job, elastic int32, candidates [][]bool, places []int) ([]string, bool) {
	order := job.tasksByScarcity()
	if nodes, fits := newPacking(b, job, elastic, candidates, order, places).all(); fits || len(order) < 2 {
		return nodes, fits
	}
	slices.Reverse(order)
	return newPacking(b, job, elastic, candidates, order, places).all()
}

// placed returns the placement of a job on nodes.
func placed(job *Job, elastic int32, nodes []string) Placement {
	distinct := map[string]bool{}
	for _, node := range nodes {
		distinct[node] = true
	}
	message := english.Plural(len(nodes), "replica", "") + " on " + english.Plural(len(distinct), "node", "")
	if job.Elastic < 0 || elastic >= job.Wanted {
		return Placement{Nodes: nodes, Reason: ReasonPlaced, Message: message}
	}
	return Placement{Nodes: nodes, Reason: ReasonPartiallyPlaced, Message: fmt.Sprintf(
		"%s: there is capacity for %s of task %s, %d are desired", message, english.Plural(int(elastic), "replica", ""), job.Tasks[job.Elastic].Name, job.Wanted)}
}

// Overcommitted describes a node with negative free capacity; "" if there is none.
func (b *Board) Overcommitted() string {
	for at, left := range b.free {
		if slices.ContainsFunc(left, func(amount int64) bool { return amount < 0 }) {
			return fmt.Sprintf("node %s is left with %v", b.nodes[at].Name, left)
		}
	}
	return ""
}

// key is equal for jobs whose least sizes have equal requirements.
func (j *Job) key() string {
	var key strings.Builder
	for task := range j.Tasks {
		fmt.Fprintf(&key, "%d x %s;", j.replicas(task, j.least()), j.Tasks[task].Pod.key)
	}
	for _, node := range slices.Sorted(maps.Keys(j.Excluded)) {
		fmt.Fprintf(&key, " -%s", node)
	}
	return key.String()
}

// least returns the least number of replicas of the elastic task, 0 if there is none.
func (j *Job) least() int32 {
	if j.Elastic < 0 {
		return 0
	}
	return j.Min
}

// tasksByScarcity returns the tasks of a job, those of the scarcest resources first.
func (j *Job) tasksByScarcity() []int {
	order := make([]int, len(j.Tasks))
	for task := range order {
		order[task] = task
	}
	slices.SortStableFunc(order, func(a, b int) int { return byScarcity(j.Tasks[a].Pod, j.Tasks[b].Pod) })
	return order
}
