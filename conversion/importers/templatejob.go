// Copyright The DI Orchestrator Authors.
// SPDX-License-Identifier: Apache-2.0

package importers

import (
	"strings"

	"opendilab.org/di-orchestrator/apis/v2alpha1"
)

// templateTask is the name of the task that results from the only template of a v1.0.0 job.
const templateTask = "worker"

// importTemplateJob imports a DIJob of v1.0.0, whose replicas all have the same template. Its
// metadata stays because it is the same object of the same kind.
func importTemplateJob(m *manifest) any {
	metadata := m.take(Path{"metadata"})
	m.dropStatus()
	var spec v2alpha1.DIJobSpec
	m.takeShared(&spec)
	template := m.takeObject(Path{"spec", "template"})
	m.moved(Path{"spec", "template"}, Path{"spec", "tasks", "0", "template"})
	m.noteVanishedVariables(template)
	spec.Tasks = []v2alpha1.Task{{Type: v2alpha1.TaskTypeNone, Name: templateTask, Template: m.rawObject(template)}}
	m.takeRange(&spec)
	m.dropEngineFields()
	m.note(Path{"spec", "template"}, nil, "became the task "+templateTask+": pods are called JOB-"+templateTask+"-INDEX, and their Service di-JOB", "")
	return newJob(metadata, spec)
}

// takeShared imports the fields that v2alpha1 still has.
func (m *manifest) takeShared(spec *v2alpha1.DIJobSpec) {
	assignSame(m, &spec.Group, Path{"spec", "group"})
	assignSame(m, &spec.Priority, Path{"spec", "priority"})
	assignSame(m, &spec.CleanPodPolicy, Path{"spec", "cleanPodPolicy"})
	assignSame(m, &spec.Preemptible, Path{"spec", "preemptible"})
	spec.BackoffLimit = takeAs[int32](m, Path{"spec", "backoffLimit"})
}

// assignSame imports a value that has the same path in the result.
func assignSame[T comparable](m *manifest, field *T, path Path) { assign(m, field, path, path) }

// takeRange imports the range of the number of replicas. For a job that is not preemptible v1.0.0
// started minReplicas, and left the rest to status.replicas.
func (m *manifest) takeRange(spec *v2alpha1.DIJobSpec) {
	elastic := Path{"spec", "elastic"}
	least := takeTo[int32](m, Path{"spec", "minReplicas"}, elastic.Child("minReplicas"))
	most := takeTo[int32](m, Path{"spec", "maxReplicas"}, elastic.Child("maxReplicas"))
	if least == nil && most == nil {
		return
	}
	spec.Elastic = &v2alpha1.Elastic{Task: templateTask, MinReplicas: least, MaxReplicas: most, OnResize: v2alpha1.OnResizeRestart}
	m.note(Path{"spec", "minReplicas"}, nil, "became the range of spec.elastic; a resize restarts the job, as it did in v1.0.0 (onResize: Restart)",
		"remove onResize to let the other replicas go on")
	// A job that is not preemptible ran with minReplicas.
	spec.Tasks[0].Replicas = least
	if least == nil {
		m.note(Path{"spec", "maxReplicas"}, *most, "v1.0.0 took no minReplicas for 0 and started nothing; one replica is started now", "set spec.tasks[0].replicas")
	}
}

// dropEngineFields reports the fields that DI-engine's own command line has replaced.
func (m *manifest) dropEngineFields() {
	for _, gone := range []struct{ field, do string }{
		{"topology", "say it in the container's command: ditask --topology"},
		{"parallelWorkers", "say it in the container's command: ditask --parallel-workers"},
	} {
		// Versions before v1.0.0 had them in the spec itself.
		for _, at := range []Path{{"spec", "engineFields", gone.field}, {"spec", gone.field}} {
			if value := m.take(at); value != nil {
				m.lost(at, value, "the operator no longer writes DI-engine's arguments", gone.do)
			}
		}
	}
}

// noteVanishedVariables reports values that refer to variables that pods no longer get.
func (m *manifest) noteVanishedVariables(template map[string]any) {
	eachLeaf(Path{"spec", "template"}, template, func(where Path, value any) {
		text, _ := value.(string)
		var used []string
		for _, name := range []string{
			"DI_PARALLEL_WORKERS_ARG", "DI_PORTS_ARG", "DI_NODE_IDS_ARG", "DI_ATTACHED_NODES_ARG", "DI_JOB_GENERATION",
		} {
			if strings.Contains(text, name) {
				used = append(used, name)
			}
		}
		if len(used) > 0 {
			m.note(where, nil, "uses what pods no longer get: "+strings.Join(used, ", "),
				"use ditask --platform k8s, which reads DI_NODES and DI_RANK itself")
		}
	})
}
