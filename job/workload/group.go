// Copyright The DI Orchestrator Authors.
// SPDX-License-Identifier: Apache-2.0

package workload

import (
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"

	corev1 "k8s.io/api/core/v1"

	"opendilab.org/di-orchestrator/apis/v2alpha1"
	"opendilab.org/di-orchestrator/internal/names"
)

// Group returns the name of a job's group: jobs that train alike. The spec names it. Otherwise it is a
// digest of the image, command, arguments and requests of the elastic task. Groups never span namespaces,
// so that no report influences the jobs of another namespace. The name is empty for a job without a
// readable template.
func Group(job *v2alpha1.DIJob) string {
	if job.Spec.Group != "" {
		return job.Namespace + "/" + job.Spec.Group
	}
	task := max(names.ElasticTask(&job.Spec), 0)
	if task >= len(job.Spec.Tasks) {
		return ""
	}
	template, err := Template("", job.Spec.Tasks[task].Template)
	if err != nil {
		return ""
	}
	main := mainContainer(&template.Spec)
	program, err := json.Marshal(struct {
		Image         string
		Command, Args []string
		Requests      corev1.ResourceList
	}{main.Image, main.Command, main.Args, RequestsOf(&template.Spec)})
	if err != nil {
		return ""
	}
	sum := sha256.Sum256(program)
	return job.Namespace + "#" + hex.EncodeToString(sum[:8])
}

// mainContainer returns the container that runs DI-engine: the one with its name, or else the first.
func mainContainer(spec *corev1.PodSpec) *corev1.Container {
	for i := range spec.Containers {
		if spec.Containers[i].Name == names.Container {
			return &spec.Containers[i]
		}
	}
	return &spec.Containers[0]
}
