// Copyright The DI Orchestrator Authors.
// SPDX-License-Identifier: Apache-2.0

package allocation

import (
	"cmp"
	"fmt"
	"slices"
	"strings"

	"github.com/dustin/go-humanize/english"
	corev1 "k8s.io/api/core/v1"
)

// explain describes what the nodes lack for each task of a job.
func (b *Board) explain(job *Job, candidates [][]bool) string {
	var tasks []string
	for task := range job.Tasks {
		least := job.replicas(task, job.least())
		if least > 0 {
			tasks = append(tasks, fmt.Sprintf("task %s wants %d: %s", job.Tasks[task].Name, least, b.lacking(job, task, candidates[task])))
		}
	}
	return fmt.Sprintf("insufficient capacity on %s; %s", english.Plural(len(b.nodes), "node", ""), strings.Join(tasks, "; "))
}

func (b *Board) lacking(job *Job, task int, accepting []bool) string {
	pod := job.Tasks[task].Pod
	if pod.impossible != "" {
		return fmt.Sprintf("no node has %s", pod.impossible)
	}
	repelled, excluded, reserved, short := 0, 0, 0, map[corev1.ResourceName]int{}
	var room int32
	for at := range b.nodes {
		if !accepting[at] {
			switch {
			case !b.accepting[pod.nodesKey][at]:
				repelled++
			case b.reserved[at]:
				reserved++
			default:
				excluded++
			}
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
		parts = append(parts, english.Plural(repelled, "node is", "nodes are")+" cordoned, not ready, tainted or without the labels")
	}
	if reserved > 0 {
		parts = append(parts, english.Plural(reserved, "node is", "nodes are")+" reserved for a job that waits for longer")
	}
	if excluded > 0 {
		parts = append(parts, "the scheduler did not place pods of the job on "+english.Plural(excluded, "node", ""))
	}
	for _, name := range sortedNames(short) {
		parts = append(parts, english.Plural(short[name], "node lacks ", "nodes lack ")+string(name))
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
