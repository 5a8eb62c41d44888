// Copyright The DI Orchestrator Authors.
// SPDX-License-Identifier: Apache-2.0

package legacy

import (
	"maps"
	"strings"

	corev1 "k8s.io/api/core/v1"
)

// templateStates returns the states of jobs of v1.0.0, whose replicas have one template. They have
// no pods because such a job is not taken over.
func templateStates() []state {
	var states []state
	for _, phase := range []string{"Running", "Restarting", "Succeeded", "Failed"} {
		states = append(states, state{
			name: strings.ToLower(phase), phase: phase, spec: templateSpec(map[string]any{"group": "team-a"}), status: templateStatus(phase, 1, 2),
		})
	}
	return append(states, state{name: "submitted", spec: templateSpec(nil)})
}

func templateSpec(more map[string]any) map[string]any {
	spec := map[string]any{
		"minReplicas": int64(2), "maxReplicas": int64(4), "engineFields": map[string]any{"topology": "mesh", "parallelWorkers": int64(2)},
		"template": template("worker:old", 0),
	}
	maps.Copy(spec, more)
	return spec
}

func templateStatus(phase string, generation, ready int64) map[string]any {
	return map[string]any{
		"phase": phase, "generation": generation, "replicas": int64(2), "readyReplicas": ready,
		"conditions": []any{condition(phase, corev1.ConditionTrue, "Job"+phase, "job is "+strings.ToLower(phase))},
	}
}
