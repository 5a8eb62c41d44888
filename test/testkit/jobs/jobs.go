// Copyright The DI Orchestrator Authors.
// SPDX-License-Identifier: Apache-2.0

// Package jobs creates jobs and the objects of jobs: small ones, and jobs of realistic size.
package jobs

import (
	"encoding/json"
	"fmt"
	"strings"

	"opendilab.org/di-orchestrator/apis/v1alpha1"
)

// Of returns a coordinator-led job of v1alpha1 as JSON of about the given size. It has three roles
// with templates such as users write, padded with environment variables.
func Of(namespace, name string, bytes int) ([]byte, error) {
	spare := bytes - len(templateOf(0))*3 - 700
	variables := max(spare/3/variableBytes, 0)
	role := map[string]any{"template": json.RawMessage(templateOf(variables))}
	job := map[string]any{
		"apiVersion": v1alpha1.GroupVersion.String(),
		"kind":       "DIJob",
		"metadata":   map[string]any{"namespace": namespace, "name": name, "labels": map[string]any{"team": "rl"}},
		"spec": map[string]any{
			"group": "bench", "priorityClassName": "", "cleanPodPolicy": "Running",
			"volumes":     []any{map[string]any{"name": "cache", "emptyDir": map[string]any{}}},
			"coordinator": role, "collector": role, "learner": role,
		},
		"status": map[string]any{
			"phase":         "Running",
			"replicaStatus": map[string]any{"Coordinator": map[string]any{"active": 1}, "Collector": map[string]any{"active": 4}},
		},
	}
	raw, err := json.Marshal(job)
	if err != nil {
		return nil, fmt.Errorf("encoding a job: %w", err)
	}
	return raw, nil
}

// variableBytes is the size of one environment variable of templateOf.
const variableBytes = 100

// templateOf returns a pod template with the given number of environment variables.
func templateOf(variables int) string {
	var env strings.Builder
	for i := range variables {
		fmt.Fprintf(&env, `,{"name":"SETTING_%04d","value":%q}`, i, strings.Repeat("x", variableBytes-33))
	}
	return `{"metadata":{"labels":{"app":"cartpole"}},"spec":{"containers":[{"name":"di-container","image":"diorchestrator/ding:v0.3.0",` +
		`"imagePullPolicy":"IfNotPresent","command":["/bin/bash","-c","ding -m dist --module config -P k8s"],` +
		`"env":[{"name":"PYTHONUNBUFFERED","value":"1"}` + env.String() + `],` +
		`"ports":[{"name":"di-port","containerPort":22270,"protocol":"TCP"}],` +
		`"resources":{"limits":{"cpu":"4","memory":"8Gi"},"requests":{"cpu":"2","memory":"4Gi"}}}]}}`
}
