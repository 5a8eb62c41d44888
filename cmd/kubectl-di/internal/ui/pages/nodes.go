// Copyright The DI Orchestrator Authors.
// SPDX-License-Identifier: Apache-2.0

package pages

import (
	"cmp"
	"maps"
	"slices"

	corev1 "k8s.io/api/core/v1"

	"opendilab.org/di-orchestrator/cmd/kubectl-di/internal/jobview"
	"opendilab.org/di-orchestrator/cmd/kubectl-di/internal/ui/api"
	"opendilab.org/di-orchestrator/internal/conditions"
)

// LabelProduct is the label of a node with the product of its GPUs, which the GPU feature discovery sets.
const LabelProduct = "nvidia.com/gpu.product"

// nodes returns the nodes, those with the most GPUs first, and who uses them.
func nodes(state *ClusterState) []api.Node {
	found := make([]api.Node, 0, len(state.Nodes))
	for _, node := range state.Nodes {
		one := nodeOf(node)
		one.CPU.Used, one.Memory.Used = state.Used[node.Name].CPU, state.Used[node.Name].Memory
		found = append(found, one)
	}
	slices.SortFunc(found, func(a, b api.Node) int {
		return cmp.Or(cmp.Compare(b.GPUs.Total, a.GPUs.Total), cmp.Compare(a.Name, b.Name))
	})
	places := map[string]int{}
	for i := range found {
		places[found[i].Name] = i
	}
	for _, pod := range state.Pods {
		if at, isKnown := places[pod.Node]; isKnown && pod.Active {
			take(&found[at], pod)
		}
	}
	for i := range found {
		found[i].GPUs.Free = max(0, found[i].GPUs.Total-found[i].GPUs.Used)
		slices.SortFunc(found[i].Jobs, func(a, b api.Share) int {
			return cmp.Or(cmp.Compare(b.GPUs, a.GPUs), cmp.Compare(a.Namespace, b.Namespace), cmp.Compare(a.Name, b.Name))
		})
	}
	return found
}

// nodeOf returns a node that no pod uses.
func nodeOf(node *corev1.Node) api.Node {
	one := api.Node{Name: node.Name, Ready: conditions.IsNodeReady(node), Schedulable: !node.Spec.Unschedulable, Jobs: []api.Share{}}
	one.CPU.Allocatable, one.Memory.Allocatable = node.Status.Allocatable.Cpu().MilliValue(), node.Status.Allocatable.Memory().Value()
	for _, name := range slices.Sorted(maps.Keys(node.Status.Allocatable)) {
		amount := node.Status.Allocatable[name]
		if jobview.IsGPU(string(name)) && amount.Value() > 0 {
			one.GPUs.Total += amount.Value()
			one.Type = cmp.Or(node.Labels[LabelProduct], string(name))
		}
	}
	return one
}

// take counts a pod on its node.
func take(node *api.Node, pod *PodUse) {
	node.GPUs.Used += pod.GPUs
	node.CPU.Requested += pod.CPU
	node.Memory.Requested += pod.Memory
	share := api.Share{Namespace: pod.Namespace, Name: pod.Job}
	if pod.Job == "" {
		// Other pods are one share, if they have GPUs.
		if share.Namespace = ""; pod.GPUs == 0 {
			return
		}
	} else {
		node.Pods++
	}
	at := slices.IndexFunc(node.Jobs, func(one api.Share) bool { return one.Namespace == share.Namespace && one.Name == share.Name })
	if at < 0 {
		at, node.Jobs = len(node.Jobs), append(node.Jobs, share)
	}
	one := &node.Jobs[at]
	one.Pods++
	one.GPUs, one.CPU, one.Memory = one.GPUs+pod.GPUs, one.CPU+pod.CPU, one.Memory+pod.Memory
}

// add adds what a node has.
func add(to, room *api.Room) {
	to.GPUs.Total += room.GPUs.Total
	to.GPUs.Used += room.GPUs.Used
	to.GPUs.Free += room.GPUs.Free
	to.CPU.Requested += room.CPU.Requested
	to.CPU.Allocatable += room.CPU.Allocatable
	to.CPU.Used += room.CPU.Used
	to.Memory.Requested += room.Memory.Requested
	to.Memory.Allocatable += room.Memory.Allocatable
	to.Memory.Used += room.Memory.Used
}

// typesOf sums up the nodes by their GPUs.
func typesOf(all []api.Node) []api.NodeType {
	types := []api.NodeType{}
	for i := range all {
		at := slices.IndexFunc(types, func(one api.NodeType) bool { return one.Name == all[i].Type })
		if at < 0 {
			at, types = len(types), append(types, api.NodeType{Name: all[i].Type})
		}
		types[at].Nodes++
		add(&types[at].Room, &all[i].Room)
	}
	slices.SortStableFunc(types, func(a, b api.NodeType) int {
		return cmp.Or(cmp.Compare(b.GPUs.Total, a.GPUs.Total), cmp.Compare(a.Name, b.Name))
	})
	return types
}

// request is what a pod requests.
type request struct{ gpus, cpu, memory int64 }

// fitOf returns how many more pods fit of those that jobs have most; nil without such pods or nodes. Pods with GPUs come first.
func fitOf(all []api.Node, pods []*PodUse) *api.Fit {
	counts := map[request]int{}
	for _, pod := range pods {
		if pod.Job != "" && pod.Active {
			counts[request{pod.GPUs, pod.CPU, pod.Memory}]++
		}
	}
	usual := slices.SortedFunc(maps.Keys(counts), func(a, b request) int {
		return cmp.Or(cmp.Compare(min(b.gpus, 1), min(a.gpus, 1)), cmp.Compare(counts[b], counts[a]), cmp.Compare(b.gpus, a.gpus), cmp.Compare(b.cpu, a.cpu),
			cmp.Compare(b.memory, a.memory))
	})
	if len(usual) == 0 || len(all) == 0 || usual[0] == (request{}) {
		return nil
	}
	fit := &api.Fit{GPUs: usual[0].gpus, CPU: usual[0].cpu, Memory: usual[0].memory}
	for i := range all {
		count := usual[0].fits(&all[i])
		if fit.Pods += count; count > 0 {
			fit.Nodes++
		} else {
			fit.Stranded += all[i].GPUs.Free
		}
	}
	return fit
}

// fits returns how many pods with this request a node can still take.
func (r request) fits(node *api.Node) int64 {
	if !node.Ready || !node.Schedulable {
		return 0
	}
	most := int64(-1)
	for _, one := range [][2]int64{
		{r.gpus, node.GPUs.Free}, {r.cpu, node.CPU.Allocatable - node.CPU.Requested}, {r.memory, node.Memory.Allocatable - node.Memory.Requested},
	} {
		if one[0] > 0 && (most < 0 || one[1]/one[0] < most) {
			most = one[1] / one[0]
		}
	}
	return max(0, most)
}
