// Copyright The DI Orchestrator Authors.
// SPDX-License-Identifier: Apache-2.0

package podcheck

import (
	"cmp"
	"encoding/json"
	"fmt"

	corev1 "k8s.io/api/core/v1"
	kjson "sigs.k8s.io/json"

	"opendilab.org/di-orchestrator/apis/v1alpha1"
	"opendilab.org/di-orchestrator/apis/v2alpha1"
	"opendilab.org/di-orchestrator/conversion"
	"opendilab.org/di-orchestrator/internal/limits"
	"opendilab.org/di-orchestrator/internal/names"
	"opendilab.org/di-orchestrator/job/lifecycle/ranks"
	"opendilab.org/di-orchestrator/job/lifecycle/sizing"
	"opendilab.org/di-orchestrator/job/workload"
	"opendilab.org/di-orchestrator/webhook/validation"
)

// noUID is the UID in owner references of jobs that have none yet.
const noUID = "00000000-0000-0000-0000-000000000000"

// Job is a job to check.
type Job struct {
	*v2alpha1.DIJob
	// inV1 is set if the job is written in v1alpha1, in whose fields the findings are.
	inV1 bool
}

// Read reads a job of either version.
func Read(raw []byte) (Job, error) {
	var meta struct {
		APIVersion string `json:"apiVersion"`
	}
	if err := json.Unmarshal(raw, &meta); err != nil {
		return Job{}, fmt.Errorf("reading the job: %w", err)
	}
	converted, err := conversion.Convert(raw, v2alpha1.GroupVersion.String())
	if err != nil {
		return Job{}, fmt.Errorf("reading the job: %w", err)
	}
	job := Job{DIJob: &v2alpha1.DIJob{}, inV1: meta.APIVersion == v1alpha1.GroupVersion.String()}
	if err := kjson.UnmarshalCaseSensitivePreserveInts(converted, job.DIJob); err != nil {
		return Job{}, fmt.Errorf("reading the job: %w", err)
	}
	job.UID = cmp.Or(job.UID, noUID)
	job.Name = cmp.Or(job.Name, job.GenerateName+"xxxxx")
	return job, nil
}

// Pod is a pod of a task, as the operator would create it.
type Pod struct {
	// Task is the name of the task, or aggregator.
	Task      string
	Namespace string
	name      string
	// content is the pod with all fields, also those that its Go type does not have.
	content any
	built   *corev1.Pod
	origin  origin
}

// Pods returns a pod of each task. Aggregators are added if the job's AggregatorConfig is given.
func Pods(job Job, aggregators *v2alpha1.AggregatorConfig) ([]Pod, error) {
	builder := workload.NewBuilder(job.DIJob, workload.Settings{})
	build := workers(builder, job.DIJob)
	if job.Spec.Lifecycle == v2alpha1.LifecycleCoordinatorLed {
		build = members(builder, job.DIJob)
	}
	var pods []Pod
	for i := range job.Spec.Tasks {
		task := &job.Spec.Tasks[i]
		built, err := build(i)
		if err != nil {
			return nil, fmt.Errorf("task %s: %w", names.TaskName(task), err)
		}
		pod, err := newPod(builder, built, job, fmt.Sprintf("spec.tasks[%d].template", i), task.Template)
		if err != nil {
			return nil, err
		}
		pod.Task = names.TaskName(task)
		pods = append(pods, pod)
	}
	if aggregators == nil {
		return pods, nil
	}
	built, err := builder.Aggregator(aggregators, &v2alpha1.Member{Task: v2alpha1.TaskTypeLearner, DDPGPUs: []int32{1}}, job.Name+"-aggregator-xxxxx")
	if err != nil {
		return nil, err
	}
	pod, err := newPod(builder, built, job, "spec.aggregator.template", aggregators.Spec.Aggregator.Template)
	pod.Task = fmt.Sprintf("aggregator (AggregatorConfig %s/%s)", aggregators.Namespace, aggregators.Name)
	pod.origin.isAggregator = true
	return append(pods, pod), err
}

// workers returns a function that builds the first pod of a worker-led job's task.
func workers(builder *workload.Builder, job *v2alpha1.DIJob) func(int) (*corev1.Pod, error) {
	wanted := sizing.Wanted(job)
	if wanted.Total > limits.PodsPerJob {
		return func(int) (*corev1.Pod, error) {
			return nil, fmt.Errorf("the job has more than %d pods", limits.PodsPerJob)
		}
	}
	indexes := make([][]int32, len(job.Spec.Tasks))
	for i, count := range wanted.ByTask {
		// The template of a task without replicas is checked, too.
		indexes[i] = ranks.Indexes("", max(count, 1))
	}
	assignment := ranks.Assign(job, indexes, &v2alpha1.DIJobStatus{}, nil, func(*corev1.Pod) string { return "" })
	first := make([]*workload.Replica, len(job.Spec.Tasks))
	for i := range assignment.Replicas {
		if replica := &assignment.Replicas[i]; first[replica.Task] == nil {
			first[replica.Task] = replica
		}
	}
	return func(task int) (*corev1.Pod, error) { return builder.Worker(&assignment, first[task]) }
}

// members returns a function that builds the coordinator of a coordinator-led job, or a replica that
// it asks for.
func members(builder *workload.Builder, job *v2alpha1.DIJob) func(int) (*corev1.Pod, error) {
	return func(task int) (*corev1.Pod, error) {
		taskType := job.Spec.Tasks[task].Type
		if taskType == v2alpha1.TaskTypeCoordinator {
			return builder.Coordinator()
		}
		return builder.Replica(&v2alpha1.Member{Task: taskType}, fmt.Sprintf("%s-%s-xxxxx", job.Name, taskType))
	}
}

// newPod completes a built pod. It keeps the owner, because policies may exempt the pods of jobs, but
// not its blockOwnerDeletion: some clusters allow that only to who may change the job's finalizers.
func newPod(builder *workload.Builder, built *corev1.Pod, job Job, at string, template v2alpha1.RawObject) (Pod, error) {
	from, err := newOrigin(job, at, template)
	if err != nil {
		return Pod{}, err
	}
	for i := range built.OwnerReferences {
		built.OwnerReferences[i].BlockOwnerDeletion = nil
	}
	built.SetGroupVersionKind(corev1.SchemeGroupVersion.WithKind("Pod"))
	pod := Pod{Namespace: built.Namespace, name: built.Name, content: built, built: built, origin: from}
	if newer := builder.NewerFields(built); newer != nil {
		whole, err := newer.Over(built)
		if err != nil {
			return Pod{}, err
		}
		pod.content = whole
	}
	return pod, nil
}

// path returns the path of a v2alpha1 field in the version that the job is written in.
func (j *Job) path(field string) string {
	if j.inV1 {
		return validation.PathInV1(field, j.DIJob)
	}
	return field
}
