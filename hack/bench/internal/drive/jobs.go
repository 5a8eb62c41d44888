// Copyright The DI Orchestrator Authors.
// SPDX-License-Identifier: Apache-2.0

package drive

import (
	"context"
	"fmt"

	corev1 "k8s.io/api/core/v1"
	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"opendilab.org/di-orchestrator/apis/v2alpha1"
	"opendilab.org/di-orchestrator/hack/bench/internal/cluster"
	"opendilab.org/di-orchestrator/test/testkit/jobs"
)

// template is the pod template of every task, like those of DI-engine's examples.
const template = `{"spec":{"containers":[{"name":"di-container","image":"diorchestrator/ding:v1.1.0",
"command":["/bin/bash","-c","ditask --label 0 --package dizoo/classic_control/cartpole/entry --main cartpole_ppo_parallel_config.main --platform k8s"],
"env":[{"name":"PYTHONUNBUFFERED","value":"1"}],
"resources":{"requests":{"cpu":"1","memory":"2Gi"},"limits":{"cpu":"2","memory":"4Gi"}},
"volumeMounts":[{"name":"work-dir","mountPath":"/ding"},{"name":"cache-volume","mountPath":"/dev/shm"}]}],
"volumes":[{"name":"work-dir","hostPath":{"path":"/data/nfs/ding/cartpole"}},{"name":"cache-volume","emptyDir":{"medium":"Memory","sizeLimit":"128Mi"}}]}}`

// gpuTemplate is the pod template of a replica with a GPU.
const gpuTemplate = `{"spec":{"containers":[{"name":"di-container","image":"diorchestrator/ding:v1.1.0","command":["python","train.py"],
"resources":{"requests":{"cpu":"1","memory":"2Gi","nvidia.com/gpu":"1"},"limits":{"cpu":"2","memory":"4Gi","nvidia.com/gpu":"1"}}}]}}`

const (
	// WorkerTask is the task of worker-led jobs.
	WorkerTask = "worker"
	// oldBytes is about the size of a job of v1alpha1.
	oldBytes = 3000
)

// JobName returns the name of the job with a number.
func JobName(index int) string { return fmt.Sprintf("job-%05d", index) }

// RoomFor returns the capacity of a node with room for so many pods of any job here.
func RoomFor(pods int) corev1.ResourceList {
	count := int64(pods)
	return corev1.ResourceList{
		corev1.ResourceCPU:    *resource.NewQuantity(4*count, resource.DecimalSI),
		corev1.ResourceMemory: *resource.NewQuantity(count*(8<<30), resource.BinarySI),
		corev1.ResourcePods:   *resource.NewQuantity(2*count, resource.DecimalSI),
	}
}

// WorkerLed returns a job of one task with so many pods.
func WorkerLed(name string, pods int) *v2alpha1.DIJob {
	worker := task(v2alpha1.TaskTypeNone, WorkerTask)
	worker.Replicas = ptr.To(int32(pods))
	return &v2alpha1.DIJob{
		ObjectMeta: metav1.ObjectMeta{Namespace: cluster.Namespace, Name: name},
		Spec:       v2alpha1.DIJobSpec{Tasks: []v2alpha1.Task{worker}},
	}
}

// Gang returns a worker-led job that is a gang.
func Gang(name string, pods int) *v2alpha1.DIJob {
	job := WorkerLed(name, pods)
	job.Spec.Scheduling = &v2alpha1.Scheduling{Gang: &v2alpha1.Gang{}}
	return job
}

// Preemptible returns a job with one to so many replicas that the allocator places.
func Preemptible(name string, replicas int) *v2alpha1.DIJob {
	job := WorkerLed(name, replicas)
	job.Spec.Preemptible = true
	job.Spec.Elastic = &v2alpha1.Elastic{MinReplicas: ptr.To[int32](1), MaxReplicas: ptr.To(int32(replicas))}
	job.Spec.Tasks[0].Template.Raw = []byte(gpuTemplate)
	return job
}

// CoordinatorLed returns a job with a coordinator, and without other replicas.
func CoordinatorLed(name string) *v2alpha1.DIJob {
	job := &v2alpha1.DIJob{
		ObjectMeta: metav1.ObjectMeta{Namespace: cluster.Namespace, Name: name},
		Spec:       v2alpha1.DIJobSpec{Lifecycle: v2alpha1.LifecycleCoordinatorLed},
	}
	for _, role := range []v2alpha1.TaskType{v2alpha1.TaskTypeCoordinator, v2alpha1.TaskTypeCollector, v2alpha1.TaskTypeLearner} {
		job.Spec.Tasks = append(job.Spec.Tasks, task(role, string(role)))
	}
	return job
}

func task(role v2alpha1.TaskType, name string) v2alpha1.Task {
	return v2alpha1.Task{Type: role, Name: name, Template: v2alpha1.RawObject{JSON: apiextensionsv1.JSON{Raw: []byte(template)}}}
}

// Old returns a coordinator-led job of v1alpha1, without a status, of about the given size in bytes.
func Old(namespace, name string, bytes int) (*unstructured.Unstructured, error) {
	raw, err := jobs.Of(namespace, name, bytes)
	if err != nil {
		return nil, err
	}
	job := &unstructured.Unstructured{}
	if err := job.UnmarshalJSON(raw); err != nil {
		return nil, fmt.Errorf("decoding job %s: %w", name, err)
	}
	unstructured.RemoveNestedField(job.Object, "status")
	return job, nil
}

// IsLed reports whether a job of both lifecycles in turn is coordinator-led.
func IsLed(index int) bool { return index%2 == 1 }

// Either returns the job with a number: worker-led ones of v2alpha1 and coordinator-led ones of v1alpha1 in turn.
func Either(namespace string, index, pods int) (client.Object, error) {
	if IsLed(index) {
		return Old(namespace, JobName(index), oldBytes)
	}
	job := WorkerLed(JobName(index), pods)
	job.Namespace = namespace
	return job, nil
}

// Submit creates a job.
func Submit(ctx context.Context, by client.Client, job client.Object) error {
	if err := by.Create(ctx, job); err != nil {
		return fmt.Errorf("submitting job %s: %w", job.GetName(), err)
	}
	return nil
}
