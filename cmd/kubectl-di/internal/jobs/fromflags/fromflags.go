// Copyright The DI Orchestrator Authors.
// SPDX-License-Identifier: Apache-2.0

// Package fromflags builds the job that the flags of kubectl di run describe. It must not call
// anything.
package fromflags

import (
	"encoding/json"
	"errors"
	"fmt"
	"path"
	"slices"
	"strconv"
	"strings"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/util/validation"
	"k8s.io/utils/ptr"

	"opendilab.org/di-orchestrator/apis/v2alpha1"
	"opendilab.org/di-orchestrator/internal/names"
)

const (
	// defaultTask is the name of the only task of a job.
	defaultTask = "worker"
	// CodePath is where the code of the job is.
	CodePath = "/code"
	// processes is the variable by which torchrun knows how many processes to start.
	processes = "PET_NPROC_PER_NODE"
)

// Flags describe a worker-led job, whose tasks all have the same template.
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
	// Tasks are the tasks of the job as NAME=COUNT; one by default.
	Tasks []string
	// Claims are PersistentVolumeClaims to mount, as NAME:/PATH or NAME:/PATH:ro.
	Claims []string
	// CodeMap is the ConfigMap of the code, and CodeKeys are its keys; "" for none.
	CodeMap  string
	CodeKeys []corev1.KeyToPath
	// Torch is set if PyTorch is to know the peers.
	Torch bool
}

// Job returns the job, or an error that names the flag that is wrong.
func (f *Flags) Job() (*unstructured.Unstructured, error) {
	template, err := f.template()
	if err != nil {
		return nil, err
	}
	tasks, err := f.tasks(template)
	if err != nil {
		return nil, err
	}
	if len(validation.IsDNS1123Subdomain(f.Name)) > 0 {
		return nil, fmt.Errorf("NAME %q: want lower-case letters, digits, - and ., at most %d, that begin and end with a letter or a digit, such as cartpole-2",
			f.Name, validation.DNS1123SubdomainMaxLength)
	}
	job := &v2alpha1.DIJob{Spec: v2alpha1.DIJobSpec{Preemptible: f.Preemptible, Tasks: tasks}}
	job.SetGroupVersionKind(v2alpha1.GroupVersion.WithKind("DIJob"))
	job.Name = f.Name
	if f.Min != nil || f.Max != nil {
		job.Spec.Elastic = &v2alpha1.Elastic{MinReplicas: f.Min, MaxReplicas: f.Max}
	}
	if f.Torch {
		job.Spec.ClusterSpec = []v2alpha1.ClusterSpec{v2alpha1.ClusterSpecTorch}
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

// tasks returns the tasks of the job.
func (f *Flags) tasks(template *v2alpha1.RawObject) ([]v2alpha1.Task, error) {
	if len(f.Tasks) == 0 {
		replicas, err := f.count()
		return []v2alpha1.Task{{Type: v2alpha1.TaskTypeNone, Name: defaultTask, Replicas: &replicas, Template: *template}}, err
	}
	if f.Replicas != nil {
		return nil, errors.New("--replicas and --task exclude each other: --task NAME=COUNT has the number")
	}
	spec := &v2alpha1.DIJobSpec{}
	for _, text := range f.Tasks {
		name, number, _ := strings.Cut(text, "=")
		count, err := strconv.ParseInt(number, 10, 32)
		if err != nil || count < 1 || len(validation.IsDNS1123Label(name)) > 0 {
			return nil, fmt.Errorf("--task %q: want NAME=COUNT, such as collector=4", text)
		}
		if slices.ContainsFunc(spec.Tasks, func(other v2alpha1.Task) bool { return names.TaskName(&other) == name }) {
			return nil, fmt.Errorf("--task %q: there is another task of this name", text)
		}
		spec.Tasks = append(spec.Tasks, v2alpha1.Task{Type: typeOf(name), Name: name, Replicas: ptr.To(int32(count)), Template: *template})
	}
	if f.Min == nil && f.Max == nil {
		return spec.Tasks, nil
	}
	elastic := names.ElasticTask(spec)
	if elastic < 0 {
		return nil, errors.New("--min and --max are for a job of one task, or with a task collector: in a manifest spec.elastic.task names another")
	}
	// The bounds are checked with the number of the task.
	bounded := *f
	bounded.Replicas = spec.Tasks[elastic].Replicas
	_, err := bounded.count()
	return spec.Tasks, err
}

// typeOf returns the type of a task, which is its name if there is such a type.
func typeOf(name string) v2alpha1.TaskType {
	switch kind := v2alpha1.TaskType(name); kind {
	case v2alpha1.TaskTypeLearner, v2alpha1.TaskTypeCollector, v2alpha1.TaskTypeEvaluator:
		return kind
	case v2alpha1.TaskTypeCoordinator, v2alpha1.TaskTypeNone:
	}
	return v2alpha1.TaskTypeNone
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
	container := corev1.Container{Name: names.Container, Image: f.Image, Command: f.Command, Env: environment, Resources: resources}
	volumes, err := f.volumes(&container)
	if err != nil {
		return nil, err
	}
	template := struct {
		Spec corev1.PodSpec `json:"spec"`
	}{corev1.PodSpec{Containers: []corev1.Container{container}, Volumes: volumes}}
	content, err := json.Marshal(template)
	if err != nil {
		return nil, fmt.Errorf("encoding the template: %w", err)
	}
	raw := &v2alpha1.RawObject{}
	raw.Raw = content
	return raw, nil
}

// volumes returns the volumes of the replicas, and mounts them.
func (f *Flags) volumes(container *corev1.Container) ([]corev1.Volume, error) {
	var volumes []corev1.Volume
	taken := map[string]bool{}
	mount := func(source corev1.VolumeSource, path string, readOnly bool) {
		name := fmt.Sprintf("claim-%d", len(volumes))
		if source.ConfigMap != nil {
			name = "code"
		}
		volumes = append(volumes, corev1.Volume{Name: name, VolumeSource: source})
		container.VolumeMounts = append(container.VolumeMounts, corev1.VolumeMount{Name: name, MountPath: path, ReadOnly: readOnly})
		taken[path] = true
	}
	for _, text := range f.Claims {
		name, rest, _ := strings.Cut(text, ":")
		mountPath, readOnly := strings.CutSuffix(rest, ":ro")
		switch {
		case len(validation.IsDNS1123Subdomain(name)) > 0 || !path.IsAbs(mountPath) || path.Clean(mountPath) != mountPath || mountPath == "/" || strings.Contains(mountPath, ":"):
			return nil, fmt.Errorf("--pvc %q: want NAME:/PATH or NAME:/PATH:ro, such as data:/data", text)
		case taken[mountPath] || f.CodeMap != "" && mountPath == CodePath:
			return nil, fmt.Errorf("--pvc %q: something else is mounted at %s", text, mountPath)
		}
		mount(corev1.VolumeSource{PersistentVolumeClaim: &corev1.PersistentVolumeClaimVolumeSource{ClaimName: name, ReadOnly: readOnly}}, mountPath, readOnly)
	}
	if f.CodeMap != "" {
		source := &corev1.ConfigMapVolumeSource{Items: f.CodeKeys}
		source.Name, container.WorkingDir = f.CodeMap, CodePath
		mount(corev1.VolumeSource{ConfigMap: source}, CodePath, true)
	}
	return volumes, nil
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
	isSet := func(variable corev1.EnvVar) bool { return variable.Name == processes }
	if f.Torch && f.GPUs > 1 && !slices.ContainsFunc(variables, isSet) {
		// One process for each GPU.
		variables = append(variables, corev1.EnvVar{Name: processes, Value: strconv.Itoa(int(f.GPUs))})
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
