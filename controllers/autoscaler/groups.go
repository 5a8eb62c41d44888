// Copyright The DI Orchestrator Authors.
// SPDX-License-Identifier: Apache-2.0

package autoscaler

import (
	"cmp"
	"slices"
	"strconv"
	"strings"

	corev1 "k8s.io/api/core/v1"

	"opendilab.org/di-orchestrator/autoscale/ratio"
	"opendilab.org/di-orchestrator/internal/names"
	"opendilab.org/di-orchestrator/job/podstate"
	"opendilab.org/di-orchestrator/job/queueing"
)

// group adds to a measurement which smaller sizes the pools of a queued job may have. What is left of a group of Kueue
// queues again, and what is left of the first one restarts the job. So only whole groups go.
func (r *roles) group(measured *ratio.Measurement, job string, pods []corev1.Pod) {
	for i := range r.pools {
		size := &measured.Pools[i]
		size.IsGrouped, size.Smaller = true, r.pools[i].smaller(job, pods)
	}
}

// smaller returns the numbers of replicas below its own, in ascending order, that split no group when the replicas with
// the highest indices leave. There are none while a replica has no pod, whose group is unknown.
func (p *pool) smaller(job string, pods []corev1.Pod) []int32 {
	lowest := map[string]int{}
	var members []*corev1.Pod
	for i := range pods {
		pod := &pods[i]
		switch {
		case podstate.Terminating(pod):
		case p.has(pod):
			members = append(members, pod)
		case pod.Labels[queueing.LabelGroup] != "":
			lowest[pod.Labels[queueing.LabelGroup]] = -1
		}
	}
	if len(members) != int(p.requested) {
		return nil
	}
	prefix := strings.TrimSuffix(names.WorkerPod(job, p.Task, 0), "0")
	indexOf := func(pod *corev1.Pod) int {
		index, _ := strconv.Atoi(strings.TrimPrefix(pod.Name, prefix))
		return index
	}
	slices.SortFunc(members, func(a, b *corev1.Pod) int { return cmp.Compare(indexOf(a), indexOf(b)) })
	return cuts(members, lowest)
}

// cuts returns how many of the first members may stay so that no group is split. lowest has -1 for each group that has pods
// beside the members.
func cuts(members []*corev1.Pod, lowest map[string]int) []int32 {
	for at, pod := range members {
		if group := pod.Labels[queueing.LabelGroup]; group != "" {
			if _, isKnown := lowest[group]; !isKnown {
				lowest[group] = at
			}
		}
	}
	var sizes []int32
	begins := len(members)
	for at := len(members) - 1; at >= 0; at-- {
		begin, isGrouped := lowest[members[at].Labels[queueing.LabelGroup]]
		if !isGrouped {
			begin = at
		}
		begins = min(begins, begin)
		if begins == at {
			sizes = append(sizes, int32(at))
		}
	}
	slices.Reverse(sizes)
	return sizes
}
