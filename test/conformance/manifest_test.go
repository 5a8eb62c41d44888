// Copyright The DI Orchestrator Authors.
// SPDX-License-Identifier: Apache-2.0

//go:build conformance

package conformance

import "opendilab.org/di-orchestrator/apis/v2alpha1"

// job is the name of the job of each cell, which has a namespace of its own.
const job = "job"

// object is a part of a manifest.
type object = map[string]any

// shape is what differs between the jobs of the cells.
type shape struct {
	// args are the arguments of the workload; wait by default.
	args []string
	// memory is the limit of memory; 64Mi by default.
	image string
	// pod are further fields of each pod's spec, and container those of its container.
	pod, container object
	// spec are further fields of the job's spec that both versions have, and extended those that only
	// v2alpha1 has.
	spec, extended object
}

// manifest returns a job of a lifecycle, written in a version.
func manifest(lifecycle Lifecycle, version Version, s shape) object {
	template := s.template()
	var spec object
	switch {
	case version == V1:
		spec = object{"coordinator": template, "collector": template, "learner": template}
		extended := object{}
		if lifecycle == WorkerLed {
			extended["lifecycle"] = string(v2alpha1.LifecycleWorkerLed)
		}
		if add(extended, s.extended); len(extended) > 0 {
			spec["extended"] = extended
		}
	case lifecycle == WorkerLed:
		spec = object{
			"backoffLimit": 0, "elastic": object{"task": "collector", "minReplicas": 1, "maxReplicas": 3},
			"tasks": []any{task("learner", 1, template), task("collector", 1, template)},
		}
		add(spec, s.extended)
	default:
		spec = object{
			"lifecycle": string(v2alpha1.LifecycleCoordinatorLed),
			"tasks":     []any{task("coordinator", 1, template), task("collector", 0, template), task("learner", 0, template)},
		}
		add(spec, s.extended)
	}
	add(spec, s.spec)
	return object{
		"apiVersion": v2alpha1.GroupName + "/" + string(version), "kind": "DIJob",
		"metadata": object{"name": job}, "spec": spec,
	}
}

func task(kind string, replicas int, template object) object {
	return object{"type": kind, "name": kind, "replicas": replicas, "template": template["template"]}
}

// template returns the template of all pods, which meets the restricted Pod Security Standard.
func (s *shape) template() object {
	args := s.args
	if len(args) == 0 {
		args = []string{"wait"}
	}
	from := s.image
	if from == "" {
		from = *image
	}
	container := object{
		"name": "di-container", "image": from, "imagePullPolicy": "IfNotPresent", "command": []string{"/cartpole"}, "args": args,
		"resources":       object{"requests": object{"cpu": "5m", "memory": "8Mi"}, "limits": object{"memory": "64Mi"}},
		"securityContext": object{"allowPrivilegeEscalation": false, "capabilities": object{"drop": []string{"ALL"}}},
	}
	add(container, s.container)
	pod := object{
		"terminationGracePeriodSeconds": 1, "containers": []any{container},
		"securityContext": object{"runAsNonRoot": true, "runAsUser": 65532, "seccompProfile": object{"type": "RuntimeDefault"}},
	}
	add(pod, s.pod)
	return object{"template": object{"spec": pod}}
}

// add adds fields to an object.
func add(to, fields object) {
	for key, value := range fields {
		to[key] = value
	}
}
