// Copyright The DI Orchestrator Authors.
// SPDX-License-Identifier: Apache-2.0

// Package spread says of the placements of any policy in which domains of the topology they are.
package spread

import (
	"fmt"
	"slices"
	"strings"

	"github.com/dustin/go-humanize/english"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"

	"opendilab.org/di-orchestrator/allocation"
	"opendilab.org/di-orchestrator/allocation/topology"
)

// Explain adds to the messages of jobs on several nodes where these are: in one domain, or across which, and why. The policy decides
// without it.
func Explain(round *allocation.Round, decided map[types.NamespacedName]allocation.Placement) {
	tree := allocation.TreeOf(round.Nodes)
	if tree == nil {
		return
	}
	e := &explanation{round: round, decided: decided, tree: tree, places: make(map[string]int, len(round.Nodes))}
	for at, node := range round.Nodes {
		e.places[node.Object.Name] = at
	}
	for _, job := range round.Jobs {
		placement, isDecided := decided[job.Name]
		places := e.placesOf(placement.Nodes)
		if !isDecided || len(places) < 2 {
			continue
		}
		if where := e.where(job, placement.Nodes, places); where != "" {
			placement.Message = insert(placement.Message, len(placement.Nodes), len(places), where)
			decided[job.Name] = placement
		}
	}
}

type explanation struct {
	round   *allocation.Round
	decided map[types.NamespacedName]allocation.Placement
	tree    *topology.Tree
	// places are the places of the nodes by name.
	places map[string]int
	// free is what the decisions leave of each node; nil before it is needed.
	free [][]int64
}

// placesOf returns the places of nodes, each once.
func (e *explanation) placesOf(nodes []string) []int {
	var places []int
	for _, node := range nodes {
		if at, exists := e.places[node]; exists {
			places = append(places, at)
		}
	}
	slices.Sort(places)
	return slices.Compact(places)
}

// insert adds a text behind the numbers of replicas and nodes of a message.
func insert(message string, replicas, nodes int, text string) string {
	on := " on " + english.Plural(nodes, "node", "")
	numbers := english.Plural(replicas, "replica", "") + on
	if !strings.Contains(message, numbers) {
		return message + ";" + on + " " + text
	}
	return strings.Replace(message, numbers, numbers+" "+text, 1)
}

// where says in which domain a job is, or across how many of the widest level that it crosses.
func (e *explanation) where(job *allocation.Job, nodes []string, places []int) string {
	crossed := e.tree.Levels() - e.tree.Crossed(places)
	if crossed == e.tree.Levels() {
		// A level without labels has no names.
		for at := crossed - 1; at >= 0; at-- {
			if name := e.tree.Name(at, places[0]); name != "" {
				return fmt.Sprintf("in %s %s", e.tree.Noun(at), name)
			}
		}
		return ""
	}
	noun := e.tree.Noun(crossed)
	text := "across " + english.Plural(e.tree.Counts(places)[crossed], noun, "")
	if axis, name := scarcest(job); axis >= 0 {
		if need := e.amount(job, nodes, axis); e.mostFree(job, nodes, axis, crossed) < need {
			text += fmt.Sprintf(", no %s has %d %s free", noun, need, name)
		}
	}
	return text
}

// scarcest returns an extended resource that the job requests and its axis, -1 if there is none.
func scarcest(job *allocation.Job) (int, corev1.ResourceName) {
	axis, found := -1, corev1.ResourceName("")
	for task := range job.Tasks {
		pod := job.Tasks[task].Pod
		for at, name := range pod.Names() {
			if strings.Contains(string(name), "/") && pod.Amounts()[at] > 0 && (axis < 0 || name < found) {
				axis, found = at, name
			}
		}
	}
	return axis, found
}

// amount returns what all replicas of a placement take of a resource.
func (e *explanation) amount(job *allocation.Job, nodes []string, axis int) int64 {
	var sum int64
	for _, amount := range e.byNode(job, nodes, axis) {
		sum += amount
	}
	return sum
}

// byNode returns what the replicas of a placement take of a resource of each node.
func (e *explanation) byNode(job *allocation.Job, nodes []string, axis int) map[int]int64 {
	taken := map[int]int64{}
	elastic, _ := job.ElasticOf(len(nodes))
	for rank, pod := range job.Ranks(max(elastic, 0)) {
		if rank >= len(nodes) {
			break
		}
		if at, exists := e.places[nodes[rank]]; exists {
			taken[at] += pod.Amounts()[axis]
		}
	}
	return taken
}

// mostFree returns the most of a resource that a domain of a level has beside the other jobs.
func (e *explanation) mostFree(job *allocation.Job, nodes []string, axis, level int) int64 {
	if e.free == nil {
		e.settle()
	}
	own, sums, most := e.byNode(job, nodes, axis), map[int]int64{}, int64(0)
	for at := range e.round.Nodes {
		domain := e.tree.Domain(level, at)
		if !e.round.Nodes[at].Closed || own[at] > 0 {
			sums[domain] += max(e.free[at][axis], 0) + own[at]
		}
		most = max(most, sums[domain])
	}
	return most
}

// settle computes what the decisions leave of each node.
func (e *explanation) settle() {
	for _, node := range e.round.Nodes {
		left := slices.Clone(node.Free)
		for axis, amount := range node.Leaving {
			left[axis] -= amount
		}
		e.free = append(e.free, left)
	}
	for _, job := range e.round.Jobs {
		nodes := e.decided[job.Name].Nodes
		elastic, _ := job.ElasticOf(len(nodes))
		for rank, pod := range job.Ranks(max(elastic, 0)) {
			if rank >= len(nodes) {
				break
			}
			at, exists := e.places[nodes[rank]]
			for axis, amount := range pod.Amounts() {
				if exists {
					e.free[at][axis] -= amount
				}
			}
		}
	}
}
