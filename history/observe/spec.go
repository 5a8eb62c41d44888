// Copyright The DI Orchestrator Authors.
// SPDX-License-Identifier: Apache-2.0

package observe

import (
	"bytes"
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"opendilab.org/di-orchestrator/apis/v1alpha1"
	"opendilab.org/di-orchestrator/apis/v2alpha1"
	"opendilab.org/di-orchestrator/conversion"
	"opendilab.org/di-orchestrator/history/record"
	"opendilab.org/di-orchestrator/internal/names"
	"opendilab.org/di-orchestrator/job/workload"
)

// readSpec notes the spec in the version in which it was written.
func readSpec(job *record.Job, seen Observation) error {
	of := seen.Job
	job.Version = writtenIn(of.ManagedFields)
	manifest, err := manifestIn(of, job.Version)
	if err != nil {
		return fmt.Errorf("the manifest of job %s/%s in %s: %w", of.Namespace, of.Name, job.Version, err)
	}
	job.Manifest, job.Images, job.Requests = manifest, images(&of.Spec), requests(&of.Spec, seen.GPU)
	return nil
}

// requests returns what a replica of each task requests, by its template.
func requests(spec *v2alpha1.DIJobSpec, gpu corev1.ResourceName) []record.Request {
	all := []record.Request{}
	for i := range spec.Tasks {
		of := record.Request{Task: names.TaskName(&spec.Tasks[i])}
		// Without a readable template, the job has no such replicas.
		if template, err := workload.Template("", spec.Tasks[i].Template); err == nil {
			list := workload.RequestsOf(&template.Spec)
			gpus := list[gpu]
			of.CPU, of.Memory, of.GPUs = list.Cpu().MilliValue(), list.Memory().Value(), gpus.Value()
		}
		all = append(all, of)
	}
	return all
}

// writtenIn returns the version in which a client, and none of this project's programs, last wrote
// the spec.
func writtenIn(managed []metav1.ManagedFieldsEntry) string {
	if last := lastWriter(managed, isForeign); last != nil {
		if _, version, _ := strings.Cut(last.APIVersion, "/"); version == v1alpha1.Version {
			return version
		}
	}
	return v2alpha1.Version
}

func isForeign(manager string) bool {
	return !slices.Contains([]string{names.ControllerName, names.AutoscalerName, names.ServerName}, manager)
}

// lastWriter returns the entry of the last wanted manager that wrote fields of the spec; nil if there
// is none.
func lastWriter(managed []metav1.ManagedFieldsEntry, wanted func(manager string) bool) *metav1.ManagedFieldsEntry {
	var last *metav1.ManagedFieldsEntry
	for i := range managed {
		entry := &managed[i]
		isOfSpec := entry.FieldsV1 != nil && bytes.Contains(entry.FieldsV1.GetRawBytes(), []byte(`"f:spec"`))
		isOfObject := entry.Subresource == "" || entry.Subresource == "scale"
		if isOfSpec && isOfObject && wanted(entry.Manager) && (last == nil || last.Time.Before(entry.Time)) {
			last = entry
		}
	}
	return last
}

// manifestIn returns what a client would write to make the job again.
func manifestIn(job *v2alpha1.DIJob, version string) (json.RawMessage, error) {
	annotations := maps.Clone(job.Annotations)
	for _, written := range []string{corev1.LastAppliedConfigAnnotation, names.AnnotationRequests} {
		delete(annotations, written)
	}
	encoded, err := json.Marshal(&v2alpha1.DIJob{
		TypeMeta:   metav1.TypeMeta{APIVersion: v2alpha1.GroupVersion.String(), Kind: "DIJob"},
		ObjectMeta: metav1.ObjectMeta{Namespace: job.Namespace, Name: job.Name, Labels: job.Labels, Annotations: annotations},
		Spec:       job.Spec,
	})
	if err != nil {
		return nil, err
	}
	if version == v1alpha1.Version {
		if encoded, err = conversion.Convert(encoded, v1alpha1.GroupVersion.String()); err != nil {
			return nil, err
		}
	}
	var fields map[string]json.RawMessage
	if err := json.Unmarshal(encoded, &fields); err != nil {
		return nil, err
	}
	delete(fields, "status")
	return json.Marshal(fields)
}

// images returns the images of all containers, sorted. Templates that do not decode have none.
func images(spec *v2alpha1.DIJobSpec) []string {
	found := map[string]bool{}
	for i := range spec.Tasks {
		var template struct {
			Spec struct {
				InitContainers, Containers []struct{ Image string }
			}
		}
		if json.Unmarshal(spec.Tasks[i].Template.Raw, &template) != nil {
			continue
		}
		for _, container := range slices.Concat(template.Spec.InitContainers, template.Spec.Containers) {
			if container.Image != "" {
				found[container.Image] = true
			}
		}
	}
	return slices.Sorted(maps.Keys(found))
}

// readDesired notes changes of the desired counts, and who asked for them.
func readDesired(job *record.Job, seen Observation) {
	desired := desiredOf(seen)
	if job.Seen.Desired != nil {
		for _, task := range sortedKeys(desired) {
			from, isKnown := job.Seen.Desired[task]
			if to := desired[task]; isKnown && from != to {
				job.Resizes = append(job.Resizes[:len(job.Resizes):len(job.Resizes)],
					record.Resize{At: seen.Now.UTC(), Task: task, From: from, To: to, By: askedBy(seen, task, to)})
			}
		}
	}
	if len(desired) > 0 {
		job.Seen.Desired = desired
	}
}

// desiredOf returns the desired counts: those of the Membership, else those of the spec or of the
// plan that is executed.
func desiredOf(seen Observation) map[string]int32 {
	desired := map[string]int32{}
	if seen.Job.Spec.Lifecycle == v2alpha1.LifecycleCoordinatorLed {
		if seen.Membership == nil {
			return nil
		}
		desired[string(v2alpha1.TaskTypeCollector)], desired[string(v2alpha1.TaskTypeLearner)] = 0, 0
		for _, member := range seen.Membership.Spec.Members {
			desired[string(member.Task)]++
		}
		return desired
	}
	elastic := names.ElasticTask(&seen.Job.Spec)
	for i := range seen.Job.Spec.Tasks {
		task := &seen.Job.Spec.Tasks[i]
		count := int32(1)
		if task.Replicas != nil {
			count = *task.Replicas
		}
		if bounds := seen.Job.Spec.Elastic; i == elastic && bounds != nil && bounds.Replicas != nil {
			count = *bounds.Replicas
		}
		desired[names.TaskName(task)] = count
	}
	return desired
}

// askedBy returns the plan that asks for a count, else the manager that last wrote the spec.
func askedBy(seen Observation, task string, count int32) string {
	if seen.Membership != nil {
		return "coordinator"
	}
	if plan := activePlan(seen.Job); plan != nil {
		if wanted, isOfPlan := plan.Replicas[task]; isOfPlan && wanted == count {
			return "ScalePlan " + plan.Name
		}
	}
	if last := lastWriter(seen.Job.ManagedFields, func(string) bool { return true }); last != nil {
		return last.Manager
	}
	return ""
}

func activePlan(job *v2alpha1.DIJob) *v2alpha1.PlanRecord {
	if job.Status.Scaling == nil {
		return nil
	}
	return job.Status.Scaling.Plan
}

func sortedKeys(counts map[string]int32) []string {
	return slices.Sorted(maps.Keys(counts))
}
