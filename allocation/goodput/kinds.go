// Copyright The DI Orchestrator Authors.
// SPDX-License-Identifier: Apache-2.0

package goodput

import (
	"maps"
	"math"
	"slices"
	"strings"

	"opendilab.org/di-orchestrator/allocation"
	"opendilab.org/di-orchestrator/allocation/model"
)

// kinds are the types of devices of a round. A job runs on devices of one type.
type kinds struct {
	// names are the types; one if the nodes do not differ.
	names []string
	// of is the type of each node, noKind for a node without devices if there are several types.
	of []int
	// others are the nodes, by name, that are of another type, for each type.
	others []map[string]bool
}

// noKind is the type of a node without devices.
const noKind = -1

// newKinds returns the types that the nodes have by a label. Nodes with devices and without the label are a
// type of their own.
func newKinds(nodes []*allocation.Node, key string) *kinds {
	found := map[string]bool{}
	for _, node := range nodes {
		if name := node.Object.Labels[key]; key != "" && name != "" {
			found[name] = true
		}
	}
	k := &kinds{of: make([]int, len(nodes))}
	if len(found) < 2 {
		k.names, k.others = append(slices.Sorted(maps.Keys(found)), "")[:1], make([]map[string]bool, 1)
		return k
	}
	for _, node := range nodes {
		if node.Object.Labels[key] == "" && hasDevices(node) {
			found[""] = true
		}
	}
	k.names = slices.Sorted(maps.Keys(found))
	k.others = make([]map[string]bool, len(k.names))
	for kind := range k.names {
		k.others[kind] = map[string]bool{}
	}
	for i, node := range nodes {
		k.of[i] = noKind
		if name := node.Object.Labels[key]; name != "" || hasDevices(node) {
			k.of[i] = slices.Index(k.names, name)
		}
		for kind := range k.names {
			if k.of[i] != noKind && k.of[i] != kind {
				k.others[kind][node.Object.Name] = true
			}
		}
	}
	return k
}

// largest returns the type of the most nodes.
func (k *kinds) largest() int {
	counts, most := make([]int, len(k.names)), 0
	for _, kind := range k.of {
		if kind != noKind {
			counts[kind]++
		}
	}
	for kind := range counts {
		if counts[kind] > counts[most] {
			most = kind
		}
	}
	return most
}

// hasDevices reports whether a node has an extended resource, such as GPUs.
func hasDevices(node *allocation.Node) bool {
	for name, quantity := range node.Object.Status.Allocatable {
		if strings.Contains(string(name), "/") && !quantity.IsZero() {
			return true
		}
	}
	return false
}

// excluding returns the job so that it accepts nodes of one type only.
func (k *kinds) excluding(job *allocation.Job, kind int) *allocation.Job {
	if len(k.names) == 1 {
		return job
	}
	limited := *job
	limited.Excluded = k.others[kind]
	if len(job.Excluded) > 0 {
		limited.Excluded = maps.Clone(k.others[kind])
		maps.Copy(limited.Excluded, job.Excluded)
	}
	return &limited
}

// on returns the view of a job on devices of a type.
func (v *view) on(kind int) *view {
	if kind == v.kind {
		return v
	}
	if v.elsewhere[kind] == nil {
		there := *v
		there.kind, there.terrain, there.curve = kind, v.terrains[kind], v.curves[kind]
		there.current, there.stay, there.nodes = waiting, nil, 0
		v.elsewhere[kind] = &there
	}
	return v.elsewhere[kind]
}

// placedOn returns the view on devices of a type, with the decision.
func (v *view) placedOn(kind int) *view {
	there := *v.on(kind)
	there.decision = v.decision
	return &there
}

// kindOf returns the type of the devices that a job has, that of its first elastic rank on a typed node; the first one if
// it has none.
func (v *view) kindOf(k *kinds, places map[string]int) int {
	for rank := v.firstElastic(); rank < len(v.previous); rank++ {
		if place, is := places[v.previous[rank]]; is && k.of[place] != noKind {
			return k.of[place]
		}
	}
	return 0
}

// perType returns the observations of each type. Those that name no device count for all types.
func perType(observations []model.Observation, names []string) [][]model.Observation {
	if len(names) == 1 && names[0] == "" {
		return [][]model.Observation{observations}
	}
	all := make([][]model.Observation, len(names))
	for kind, name := range names {
		for _, o := range observations {
			if o.Device == name || o.Device == "" {
				all[kind] = append(all[kind], o)
			}
		}
	}
	if len(names) == 1 && len(all[0]) == 0 {
		all[0] = observations
	}
	return all
}

// curvesOf returns the goodput of a job on each type of devices. A type that the job has tried with fewer replicas than
// another type is carried over from that one, by the ratio of one replica's speed.
func (c *cache) curvesOf(job *allocation.Job, group *allocation.Group, own []model.Observation, names []string) []curve {
	k := knowledgeOf(job, group, own)
	curves, widest, base := make([]curve, len(names)), make([]int, len(names)), 0
	for kind, observations := range perType(k.observations, names) {
		curves[kind] = c.curveOf(job, k, observations, names[kind])
		for _, o := range observations {
			widest[kind] = max(widest[kind], o.Replicas)
		}
		if widest[kind] > widest[base] {
			base = kind
		}
	}
	for kind := range curves {
		curves[kind].observed = k.observed
		switch from := &curves[base]; {
		case curves[kind].known == nil:
			curves[kind] = *from
			curves[kind].isGuess = from.known != nil && kind != base
		case widest[kind] == 1 && widest[base] > 1:
			curves[kind] = from.scaled(curves[kind].one / from.one)
		}
	}
	return curves
}

// guess fills in the speeds on types that jobs have not tried: by the mean ratio of one replica's speed among the jobs that
// know both types.
func guess(views []*view, kindCount int) {
	if kindCount == 1 {
		return
	}
	sums, counts := make([]float64, kindCount*kindCount), make([]float64, kindCount*kindCount)
	each := func(do func(v *view, a, b int)) {
		for _, v := range views {
			for pair := range sums {
				do(v, pair/kindCount, pair%kindCount)
			}
		}
	}
	each(func(v *view, a, b int) {
		if from, to := &v.curves[a], &v.curves[b]; a != b && from.known != nil && to.known != nil && !from.isGuess && !to.isGuess {
			sums[a*kindCount+b] += math.Log(to.one / from.one)
			counts[a*kindCount+b]++
		}
	})
	each(func(v *view, a, b int) {
		if pair := a*kindCount + b; counts[pair] > 0 && v.curves[b].isGuess && !v.curves[a].isGuess {
			v.curves[b] = v.curves[a].scaled(math.Exp(sums[pair] / counts[pair]))
		}
	})
}

// relate makes the speeds on all types relative to one replica on the type of the most capacity.
func (v *view) relate(reference int) {
	one := v.curves[reference].one
	for kind := range v.curves {
		v.curves[kind].one = one
	}
	v.curve = v.curves[v.kind]
}
