// Copyright The DI Orchestrator Authors.
// SPDX-License-Identifier: Apache-2.0

package harness

import (
	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"

	"opendilab.org/di-orchestrator/apis/v2alpha1"
)

// template is the pod template of every task, like those of DI-engine's examples.
const template = `{"spec":{"containers":[{"name":"di-container","image":"diorchestrator/ding:v1.1.0",
"command":["/bin/bash","-c","ditask --label 0 --package dizoo/classic_control/cartpole/entry --main cartpole_ppo_parallel_config.main --platform k8s"],
"env":[{"name":"PYTHONUNBUFFERED","value":"1"}],
"resources":{"requests":{"cpu":"1","memory":"2Gi"},"limits":{"cpu":"2","memory":"4Gi"}},
"volumeMounts":[{"name":"work-dir","mountPath":"/ding"},{"name":"cache-volume","mountPath":"/dev/shm"}]}],
"volumes":[{"name":"work-dir","hostPath":{"path":"/data/nfs/ding/cartpole"}},{"name":"cache-volume","emptyDir":{"medium":"Memory","sizeLimit":"128Mi"}}]}}`

// WorkerLedJob returns a job of one task with the given number of pods.
func WorkerLedJob(namespace, name string, pods int) *v2alpha1.DIJob {
	worker := task(v2alpha1.TaskTypeNone, "worker")
	worker.Replicas = ptr.To(int32(pods))
	return &v2alpha1.DIJob{
		ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: name},
		Spec:       v2alpha1.DIJobSpec{Tasks: []v2alpha1.Task{worker}},
	}
}

// CoordinatorLedJob returns a job with a coordinator, and without other replicas.
func CoordinatorLedJob(namespace, name string) *v2alpha1.DIJob {
	job := &v2alpha1.DIJob{
		ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: name},
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
