// Copyright The DI Orchestrator Authors.
// SPDX-License-Identifier: Apache-2.0

package workload

import (
	"fmt"

	corev1 "k8s.io/api/core/v1"

	"opendilab.org/di-orchestrator/apis/v2alpha1"
)

// Builder builds the objects of one job. It decodes each template once, on first use. It is not
// safe for concurrent use.
type Builder struct {
	job      *v2alpha1.DIJob
	settings Settings
	tasks    map[int]*corev1.PodTemplateSpec
	sources  map[*corev1.PodTemplateSpec]*source
	// newer are the fields of templates that the Go types do not know. newerOf are those of the
	// pods that were built, by name.
	newer   map[*corev1.PodTemplateSpec]NewerFields
	newerOf map[string]NewerFields
	// addresses are those of the assignment that was last used.
	addresses *addresses
}

// NewBuilder returns the builder of a job's objects.
func NewBuilder(job *v2alpha1.DIJob, settings Settings) *Builder {
	return &Builder{
		job: job, settings: settings.Defaults(), tasks: map[int]*corev1.PodTemplateSpec{}, sources: map[*corev1.PodTemplateSpec]*source{},
		newer: map[*corev1.PodTemplateSpec]NewerFields{}, newerOf: map[string]NewerFields{},
	}
}

// task returns the template of a task, with the job's volumes appended.
func (b *Builder) task(index int) (*corev1.PodTemplateSpec, error) {
	if template, ok := b.tasks[index]; ok {
		return template, nil
	}
	template, err := Template(fmt.Sprintf("spec.tasks[%d].template", index), b.job.Spec.Tasks[index].Template)
	if err != nil {
		return nil, err
	}
	volumes, err := Volumes(b.job)
	if err != nil {
		return nil, err
	}
	template.Spec.Volumes = append(template.Spec.Volumes, volumes...)
	b.tasks[index], b.sources[template] = template, &source{b.job.Spec.Tasks[index].Template, b.job.Spec.Volumes}
	return template, nil
}

// NewerFields returns the fields that the Go type of a built pod does not know; nil for none.
func (b *Builder) NewerFields(pod *corev1.Pod) NewerFields {
	return b.newerOf[pod.Name]
}

// keepNewer records the fields that the Go type of a template's pod does not know.
func (b *Builder) keepNewer(template *corev1.PodTemplateSpec, pod string) {
	newer, known := b.newer[template]
	if from := b.sources[template]; from != nil && !known {
		newer = from.newerFields()
		b.newer[template] = newer
	}
	if newer != nil {
		b.newerOf[pod] = newer
	}
}

// taskOfType returns the template of the only task of a type.
func (b *Builder) taskOfType(taskType v2alpha1.TaskType) (*corev1.PodTemplateSpec, error) {
	for i := range b.job.Spec.Tasks {
		if b.job.Spec.Tasks[i].Type == taskType {
			return b.task(i)
		}
	}
	return nil, fmt.Errorf("spec.tasks: has no task of type %s, one is wanted", taskType)
}
