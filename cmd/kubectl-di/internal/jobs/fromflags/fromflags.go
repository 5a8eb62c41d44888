// Copyright The DI Orchestrator Authors.
// SPDX-License-Identifier: Apache-2.0

// Package fromflags builds the job that the flags of kubectl di run describe. It must not call
// anything.
package fromflags

import (
	"encoding/json"
	"fmt"
	"strings"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/util/validation"

	"opendilab.org/di-orchestrator/apis/v2alpha1"
	"opendilab.org/di-orchestrator/internal/names"
)

// task is the name of the only task of the job.
const task = "worker"

// Flags describe a worker-led job with one task.
type Flags struct {
	// Name and Image are those of the job.
	Name, Image string
	// Command is the program with its arguments; the image's by default.
	Command []string
	// GPUs, CPU and Memory are the resources of each replica; zero for none.
	GPUs        int32
	CPU, Memory *resource.Quantity
	// Replicas is the number of replicas. Min and Max are its bounds. The zero values select 1
	// and no bounds.
	Replicas, Min, Max *int32
	// Env are variables as NAME=VALUE.
	Env         []string
	Preemptible bool
	// Queue is the queue that the job waits in, "" for none.
	Queue string
}

// Job returns the job, or an error that names the flag that is wrong.
func (f *Flags) Job() (*unstructured.Unstructured, error) {
	template, err := f.template()
	if err != nil {
		return nil, err
	}
	replicas, err := f.count()
	if err != nil {
		return nil, err
	}
	if wrong := validation.IsDNS1123Subdomain(f.Name); len(wrong) > 0 {
		return nil, fmt.Errorf("NAME %q: %s", f.Name, strings.Join(wrong, "; "))
	}
	job := &v2alpha1.DIJob{Spec: v2alpha1.DIJobSpec{
		Preemptible: f.Preemptible,
		Tasks:       []v2alpha1.Task{{Type: v2alpha1.TaskTypeNone, Name: task, Replicas: &replicas, Template: *template}},
	}}
	job.SetGroupVersionKind(v2alpha1.GroupVersion.WithKind("DIJob"))
	job.Name = f.Name
	if f.Min != nil || f.Max != nil {
		job.Spec.Elastic = &v2alpha1.Elastic{MinReplicas: f.Min, MaxReplicas: f.Max}
	}
	if f.Queue != "" {
		job.Spec.Scheduling = &v2alpha1.Scheduling{Queue: f.Queue}
	}
	content, err := json.Marshal(job)
	if err != nil {
		return nil, fmt.Errorf("encoding the job: %w", err)
	}
	object := &unstructured.Unstructured{}
	return object, object.UnmarshalJSON(content)
}

// count returns the number of replicas, and checks it.
func (f *Flags) count() (int32, error) {
	replicas := int32(1)
	for _, flag := range []struct {
		name  string
		value *int32
		least int32
	}{{"replicas", f.Replicas, 1}, {"min", f.Min, 0}, {"max", f.Max, 1}} {
		if flag.value != nil && *flag.value < flag.least {
			return 0, fmt.Errorf("--%s %d: want %d or more", flag.name, *flag.value, flag.least)
		}
	}
	switch {
	case f.Replicas != nil:
		replicas = *f.Replicas
	case f.Min != nil:
		replicas = max(1, *f.Min)
	}
	switch {
	case f.Min != nil && f.Max != nil && *f.Min > *f.Max:
		return 0, fmt.Errorf("--min %d: want at most --max, which is %d", *f.Min, *f.Max)
	case f.Min != nil && replicas < *f.Min:
		return 0, fmt.Errorf("--replicas %d: want at least --min, which is %d", replicas, *f.Min)
	case f.Max != nil && replicas > *f.Max:
		return 0, fmt.Errorf("--replicas %d: want at most --max, which is %d", replicas, *f.Max)
	}
	return replicas, nil
}

// template returns the template of the replicas.
func (f *Flags) template() (*v2alpha1.RawObject, error) {
	if f.Image == "" || strings.ContainsAny(f.Image, " \t\n") {
		return nil, fmt.Errorf("--image %q: want the name of an image, such as example.com/train:1", f.Image)
	}
	environment, err := f.environment()
	if err != nil {
		return nil, err
	}
	resources, err := f.resources()
	if err != nil {
		return nil, err
	}
	template := struct {
		Spec corev1.PodSpec `json:"spec"`
	}{corev1.PodSpec{Containers: []corev1.Container{{
		Name: names.Container, Image: f.Image, Command: f.Command, Env: environment, Resources: resources,
	}}}}
	content, err := json.Marshal(template)
	if err != nil {
		return nil, fmt.Errorf("encoding the template: %w", err)
	}
	raw := &v2alpha1.RawObject{}
	raw.Raw = content
	return raw, nil
}

func (f *Flags) environment() ([]corev1.EnvVar, error) {
	var variables []corev1.EnvVar
	for _, text := range f.Env {
		name, value, hasValue := strings.Cut(text, "=")
		if !hasValue || len(validation.IsEnvVarName(name)) > 0 {
			return nil, fmt.Errorf("--env %q: want NAME=VALUE", text)
		}
		variables = append(variables, corev1.EnvVar{Name: name, Value: value})
	}
	return variables, nil
}

// resources returns requests of CPU and memory, and limits of memory and GPUs. A limit of CPU would
// only slow replicas down. GPUs have no request without a limit.
func (f *Flags) resources() (resources corev1.ResourceRequirements, err error) {
	set := func(list *corev1.ResourceList, name corev1.ResourceName, amount *resource.Quantity) {
		if amount != nil && *list == nil {
			*list = corev1.ResourceList{}
		}
		if amount != nil {
			(*list)[name] = *amount
		}
	}
	set(&resources.Requests, corev1.ResourceCPU, f.CPU)
	set(&resources.Requests, corev1.ResourceMemory, f.Memory)
	set(&resources.Limits, corev1.ResourceMemory, f.Memory)
	if f.GPUs < 0 {
		return resources, fmt.Errorf("--gpus %d: want 0 or more", f.GPUs)
	}
	if f.GPUs > 0 {
		set(&resources.Limits, names.DefaultGPU, resource.NewQuantity(int64(f.GPUs), resource.DecimalSI))
	}
	return resources, nil
}
