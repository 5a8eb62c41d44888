// Copyright The DI Orchestrator Authors.
// SPDX-License-Identifier: Apache-2.0

package view

import (
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	"k8s.io/utils/ptr"

	"opendilab.org/di-orchestrator/apis/v2alpha1"
	"opendilab.org/di-orchestrator/conversion"
	"opendilab.org/di-orchestrator/history/record"
	"opendilab.org/di-orchestrator/internal/names"
	"opendilab.org/di-orchestrator/job/workload"
)

// ErrNoManifest is returned for a job whose manifest is not recorded.
var ErrNoManifest = errors.New("its manifest is not recorded: it was larger than the history keeps")

// spec is what a manifest says of a job, in either version.
type spec struct {
	lifecycle, priority, labels string
	tasks                       []Task
}

// Task is a task of a job: what it requested, and the most that one replica used.
type Task struct {
	Name string `json:"task"`
	kind string
	// Replicas is empty for those that a coordinator asks for.
	Replicas string `json:"replicas,omitempty"`
	// Requests are those of one replica.
	Requests corev1.ResourceList `json:"requests,omitempty"`
	// CPU is in millicores; Memory and Killed are in bytes.
	CPU    int64 `json:"peakCPU,omitempty"`
	Memory int64 `json:"peakMemory,omitempty"`
	Killed int64 `json:"killedAt,omitempty"`
}

// specOf reads the manifest of a job.
func specOf(of *record.Job) (*spec, error) {
	if len(of.Manifest) == 0 {
		return nil, ErrNoManifest
	}
	converted, err := conversion.Convert(of.Manifest, v2alpha1.GroupVersion.String())
	if err != nil {
		return nil, fmt.Errorf("its manifest: %w", err)
	}
	var written v2alpha1.DIJob
	if err := json.Unmarshal(converted, &written); err != nil {
		return nil, fmt.Errorf("its manifest: %w", err)
	}
	found := &spec{
		lifecycle: string(cmp.Or(written.Spec.Lifecycle, v2alpha1.LifecycleWorkerLed)),
		priority:  cmp.Or(written.Spec.PriorityClassName, string(written.Spec.Priority)),
	}
	var labels []string
	for _, key := range slices.Sorted(maps.Keys(written.Labels)) {
		labels = append(labels, key+"="+written.Labels[key])
	}
	found.labels = strings.Join(labels, ", ")
	for i := range written.Spec.Tasks {
		found.tasks = append(found.tasks, taskOf(&written.Spec, i))
	}
	return found, nil
}

func taskOf(spec *v2alpha1.DIJobSpec, index int) Task {
	of := &spec.Tasks[index]
	found := Task{Name: names.TaskName(of), kind: string(of.Type)}
	if spec.Lifecycle != v2alpha1.LifecycleCoordinatorLed || of.Type == v2alpha1.TaskTypeCoordinator {
		found.Replicas = strconv.Itoa(int(ptr.Deref(of.Replicas, 1)))
	}
	var template corev1.PodTemplateSpec
	// A template that cannot be read has no pods, either.
	if json.Unmarshal(of.Template.Raw, &template) == nil {
		found.Requests = workload.RequestsOf(&template.Spec)
	}
	return found
}

// tasksOf returns the tasks of the spec, which may be missing, and those that only peaks name.
func tasksOf(of *record.Job, written *spec) []Task {
	var tasks []Task
	if written != nil {
		tasks = slices.Clone(written.tasks)
	}
	for _, peak := range of.Peaks {
		at := slices.IndexFunc(tasks, func(known Task) bool { return known.Name == peak.Task })
		if at < 0 {
			at = len(tasks)
			tasks = append(tasks, Task{Name: peak.Task})
		}
		tasks[at].CPU, tasks[at].Memory, tasks[at].Killed = peak.CPU, peak.Memory, peak.Killed
	}
	return tasks
}

// RequestText returns what one replica requests.
func (t *Task) RequestText() string {
	var texts []string
	for _, name := range slices.Sorted(maps.Keys(t.Requests)) {
		amount := t.Requests[name]
		texts = append(texts, string(name)+"="+amount.String())
	}
	return cmp.Or(strings.Join(texts, ", "), None)
}

// PeakText returns the most that one replica used.
func (t *Task) PeakText() string {
	var texts []string
	if t.CPU > 0 {
		texts = append(texts, "cpu="+resource.NewMilliQuantity(t.CPU, resource.DecimalSI).String())
	}
	if t.Memory > 0 {
		texts = append(texts, "memory="+bytesText(t.Memory))
	}
	return cmp.Or(strings.Join(texts, ", "), None)
}

// KilledText returns the memory at which a replica was killed; "" if none was.
func (t *Task) KilledText() string {
	if t.Killed == 0 {
		return ""
	}
	return "memory=" + bytesText(t.Killed)
}

// bytesText returns bytes in whole mebibytes, as users write requests.
func bytesText(amount int64) string {
	const mebi = 1 << 20
	if amount >= mebi {
		amount = amount / mebi * mebi
	}
	return resource.NewQuantity(amount, resource.BinarySI).String()
}
