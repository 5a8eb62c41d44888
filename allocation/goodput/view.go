// Copyright The DI Orchestrator Authors.
// SPDX-License-Identifier: Apache-2.0

package goodput

import (
	"math"
	"slices"
	"time"

	"opendilab.org/di-orchestrator/allocation"
	"opendilab.org/di-orchestrator/allocation/topology"
)

// waiting is the number of replicas of a job that is not placed.
const waiting = -1

// view is what the policy knows about a job in a round.
type view struct {
	job *allocation.Job
	// previous are its nodes by rank; stay is its room there, nil if it cannot stay as it is.
	previous []string
	stay     *allocation.Stay
	// current is its elastic replicas, waiting if it cannot stay as it is.
	current int32
	usage   allocation.Usage
	curve   curve
	// terrain is what the nodes say about replicas of the elastic task.
	terrain
	// closed says for each node by name whether it takes no new replicas.
	closed map[string]bool
	// nodes is how many nodes the current replicas are on, and span theirs: one more than the levels that they cross.
	nodes, span int
	decision    Decision
	// tenant is the job's tenant in its pool; nil if the pool is not divided.
	tenant *tenant
	// kind is the type of devices that the job has, or else the first one. terrain and curve are of this type,
	// terrains and curves of each type, and elsewhere are the views on the other types. names are those of the types.
	kind      int
	names     []string
	terrains  []terrain
	curves    []curve
	elsewhere []*view
}

// isElastic reports whether the policy decides the replicas.
func (v *view) isElastic() bool { return v.job.Elastic >= 0 }

// isSimple reports whether the job has replicas of the elastic task only.
func (v *view) isSimple() bool { return len(v.job.Tasks) == 1 && v.isElastic() }

// elastic returns the requirements of a replica of the elastic task.
func (v *view) elastic() *allocation.Requirements { return v.job.Tasks[v.job.Elastic].Pod }

// replicas returns the replicas of a task with so many of the elastic one.
func (v *view) replicas(task int, elastic int32) int32 {
	if task == v.job.Elastic {
		return max(elastic, 0)
	}
	return v.job.Tasks[task].Replicas
}

// firstElastic returns the first rank of the elastic task.
func (v *view) firstElastic() int {
	first := 0
	for task := range max(v.job.Elastic, 0) {
		first += int(v.job.Tasks[task].Replicas)
	}
	return first
}

// terrain is what the nodes say about replicas of equal requirements.
type terrain struct {
	// accepts says for each node whether it takes new replicas.
	accepts []bool
	// perNode is how many replicas an empty node holds, most often, and room how many all nodes
	// hold.
	perNode, room int32
	// reach is how many empty nodes with room for perNode replicas a domain has at most, from the narrowest level to the widest; none
	// without a topology.
	reach []int
}

// survey returns what the nodes say about replicas.
func survey(nodes []*allocation.Node, tree *topology.Tree, pod *allocation.Requirements, accepts []bool) terrain {
	found, rooms := terrain{accepts: accepts, perNode: 1}, map[int32]int{}
	for i, node := range nodes {
		if !accepts[i] {
			continue
		}
		if room := pod.Room(node.Free, maxRoom); room > 0 {
			rooms[room]++
			found.room = min(found.room+room, maxRoom)
		}
	}
	most := 0
	for room, count := range rooms {
		if count > most || count == most && room > found.perNode {
			found.perNode, most = room, count
		}
	}
	if tree != nil {
		found.reach = tree.Reach(func(node int) bool {
			return accepts[node] && pod.Room(nodes[node].Free, found.perNode) == found.perNode
		})
	}
	return found
}

// spanOf returns the least span of so many nodes; 0 without a topology.
func (t *terrain) spanOf(nodes int) int {
	for crossed, most := range t.reach {
		if nodes <= most {
			return crossed + 1
		}
	}
	if len(t.reach) == 0 {
		return 0
	}
	return len(t.reach) + 1
}

// maxRoom bounds the replicas of a job.
const maxRoom = 1 << 20

// nodesOf returns how many nodes so many replicas need.
func (v *view) nodesOf(replicas int32) int {
	return int((replicas + v.perNode - 1) / v.perNode)
}

// speed returns the speed with so many elastic replicas.
func (v *view) speed(replicas int32) float64 {
	if !v.isElastic() {
		return 1
	}
	nodes := v.nodesOf(replicas)
	span := v.spanOf(nodes)
	if replicas == v.current {
		nodes, span = v.nodes, v.span
	}
	return v.curve.speed(nodes, span, int(replicas))
}

// limit returns the most replicas that the job may get: twice what was measured.
func (v *view) limit(settings *Settings) int32 {
	observed := int32(min(v.curve.observed, 1<<20))
	if observed == 0 && v.current > 0 && v.job.Held >= settings.SilentAfter {
		observed = v.current
	}
	if observed == 0 && v.curve.known == nil && v.current > 0 {
		return max(v.current, v.job.Min, 1)
	}
	return max(2*observed, v.job.Min, 1)
}

// counts returns the replicas that the job may get, ascending: powers of two within a
// node, and whole nodes. These always fit if smaller jobs move.
func (v *view) counts(settings *Settings) []int32 {
	if !v.isElastic() {
		return []int32{0}
	}
	most := min(v.job.Wanted, v.limit(settings), v.room)
	var counts []int32
	if v.job.Min <= most {
		counts = append(counts, v.job.Min)
	}
	for k := int32(1); k <= most; k = v.next(k) {
		counts = append(counts, k)
	}
	if v.job.Wanted <= most && v.job.Wanted < v.perNode {
		counts = append(counts, v.job.Wanted)
	}
	if v.current != waiting {
		counts = append(counts, v.current)
		if len(v.job.Ended) > 0 {
			// Ranks that have succeeded start again in another place.
			counts = []int32{v.current}
		}
	}
	slices.Sort(counts)
	counts = slices.Compact(counts)
	return slices.DeleteFunc(counts, func(k int32) bool { return k < v.job.Min })
}

// next returns the next larger number of replicas. Beyond 16 nodes steps grow, so that
// large clusters have not many more options.
func (v *view) next(k int32) int32 {
	if k < v.perNode {
		return min(2*k, v.perNode)
	}
	return k + v.perNode*max(k/v.perNode/8, 1)
}

// remaining returns the work that is left in seconds of one replica, NaN if it is
// unknown, and whether it is a guess by the group.
func (v *view) remaining(group *allocation.Group) (left float64, isGuess bool) {
	if v.curve.known == nil {
		return math.NaN(), false
	}
	if expected := v.expected(); expected > 0 && v.job.Totals.Wrong <= math.Log(trustTotals) {
		return math.Max(expected-v.usage.Useful, 0) / v.curve.one, false
	}
	if group != nil && group.Finished > 0 {
		mean := group.Useful / float64(group.Finished)
		return math.Max(mean-v.usage.Useful, 0.25*mean) / v.curve.one, true
	}
	return math.NaN(), false
}

// Reports of progress count once the job has trained for a while, and as long as they
// agree with the first one within a factor. The totals of finished jobs must have been right within
// trustTotals on average: of jobs that stop early, at random, they are wrong by a factor of 1.9, and
// still worth more than a guess.
const (
	trustAfter  = 2 * time.Minute
	trust       = 2
	trustTotals = 2.25
)

// expected returns the work of the whole job in useful samples by its report of
// progress, 0 if there is none that counts. Progress is in units of the job: the useful
// samples of a unit are those that it has done by now.
func (v *view) expected() float64 {
	if v.job.Report == nil || v.job.Report.Progress == nil {
		return 0
	}
	progress := v.job.Report.Progress
	if progress.Done <= 0 || progress.Total < progress.Done || v.usage.Useful <= 0 {
		return 0
	}
	expected := v.usage.Useful * progress.Total / progress.Done
	if v.usage.Expected == 0 && v.usage.RunFor >= trustAfter.Seconds() {
		v.usage.Expected = expected
	}
	if first := v.usage.Expected; first > 0 && (expected > trust*first || expected < first/trust) {
		return 0
	}
	return expected
}
