// Copyright The DI Orchestrator Authors.
// SPDX-License-Identifier: Apache-2.0

package state

import (
	corev1 "k8s.io/api/core/v1"

	"opendilab.org/di-orchestrator/apis/v2alpha1"
	"opendilab.org/di-orchestrator/internal/conditions"
	"opendilab.org/di-orchestrator/internal/podstate"
)

// BeginCounting resets the counts. Recorded tasks without any pod stay: v0.2.2 records all roles,
// and its clients read each of them.
func (p *Plan) BeginCounting() {
	status := p.Status()
	var empty map[string]v2alpha1.TaskStatus
	for task, counts := range status.TaskStatus {
		if len(counts) > 0 {
			continue
		}
		if empty == nil {
			empty = map[string]v2alpha1.TaskStatus{}
		}
		empty[task] = v2alpha1.TaskStatus{}
	}
	status.TaskStatus, status.ReadyReplicas = empty, 0
}

// Count counts a pod under its task. A pod in a crash loop does not count as ready while it runs
// between two crashes.
func (p *Plan) Count(task string, pod *corev1.Pod) {
	status := p.Status()
	if status.TaskStatus == nil {
		status.TaskStatus = map[string]v2alpha1.TaskStatus{}
	}
	if status.TaskStatus[task] == nil {
		status.TaskStatus[task] = v2alpha1.TaskStatus{}
	}
	status.TaskStatus[task][podstate.Phase(pod)]++
	if podstate.Ready(pod) && !p.isCrashing(pod) {
		status.ReadyReplicas++
	}
}

// UpdateMessage keeps the message of a phase's condition up to date while it is True.
func (p *Plan) UpdateMessage(kind, message string) {
	held := conditions.Find(p.Status(), kind)
	if held != nil && held.Status == corev1.ConditionTrue && held.Message != message {
		held.Message, held.LastUpdateTime = message, &p.in.Timestamp
	}
}
