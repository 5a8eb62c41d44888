// Copyright The DI Orchestrator Authors.
// SPDX-License-Identifier: Apache-2.0

package allocation

import (
	"cmp"
	"fmt"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
)

// explain says why a job has no room: for each task what the nodes lack.
func (b *Board) explain(job *Job, candidates [][]bool) string {
	var tasks []string
	for task := range job.Tasks {
		least := job.replicas(task, job.Min)
		if least > 0 {
			tasks = append(tasks, fmt.Sprintf("task %s wants %d: %s", job.Tasks[task].Name, least, b.lacking(job.Tasks[task].Pod, task, candidates)))
		}
	}
	return fmt.Sprintf("insufficient capacity on %d nodes; %s", len(b.nodes), strings.Join(tasks, "; "))
}

func (b *Board) lacking(pod *Requirements, task int, candidates [][]bool) string {
	if pod.impossible != "" {
		return fmt.Sprintf("no node has %s", pod.impossible)
	}
	repelled, short := 0, map[corev1.ResourceName]int{}
	var room int32
	for at := range b.nodes {
		if !candidates[at][task] {
			repelled++
			continue
		}
		room += pod.room(b.free[at], 1<<20)
		for i, name := range pod.names {
			if b.free[at][i] < pod.amounts[i] {
				short[name]++
			}
		}
	}
	parts := []string{fmt.Sprintf("there is capacity for %d on its own", room)}
	if repelled > 0 {
		parts = append(parts, fmt.Sprintf("%d nodes are cordoned, not ready, tainted or do not match the labels", repelled))
	}
	for _, name := range sortedNames(short) {
		parts = append(parts, fmt.Sprintf("%d nodes lack %s", short[name], name))
	}
	return strings.Join(parts, ", ")
}

func sortedNames(counts map[corev1.ResourceName]int) []corev1.ResourceName {
	names := make([]corev1.ResourceName, 0, len(counts))
	for name := range counts {
		names = append(names, name)
	}
	slices.SortFunc(names, func(a, b corev1.ResourceName) int {
		return cmp.Or(cmp.Compare(counts[b], counts[a]), cmp.Compare(a, b))
	})
	return names
}
