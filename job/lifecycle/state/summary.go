// Copyright The DI Orchestrator Authors.
// SPDX-License-Identifier: Apache-2.0

package state

import (
	corev1 "k8s.io/api/core/v1"

	"opendilab.org/di-orchestrator/apis/v2alpha1"
	"opendilab.org/di-orchestrator/job/podstate"
)

// Emptied returns counts without pods. Recorded tasks without any pod stay: v0.2.2 records all roles,
// and its clients read each of them.
func (c PodCounts) Emptied() PodCounts {
	empty := PodCounts{Replicas: c.Replicas}
	for task, counts := range c.ByTask {
		if len(counts) > 0 {
			continue
		}
		if empty.ByTask == nil {
			empty.ByTask = map[string]v2alpha1.TaskStatus{}
		}
		empty.ByTask[task] = v2alpha1.TaskStatus{}
	}
	return empty
}

// Add counts a pod under its task.
func (c *PodCounts) Add(task string, pod *corev1.Pod, isReady bool) {
	if c.ByTask == nil {
		c.ByTask = map[string]v2alpha1.TaskStatus{}
	}
	if c.ByTask[task] == nil {
		c.ByTask[task] = v2alpha1.TaskStatus{}
	}
	c.ByTask[task][podstate.Phase(pod)]++
	if isReady {
		c.Ready++
	}
}
