// Copyright The DI Orchestrator Authors.
// SPDX-License-Identifier: Apache-2.0

package importers

import (
	"cmp"
	"slices"

	"opendilab.org/di-orchestrator/apis/v2alpha1"
)

// trainingOperator and mpiOperator are the names of kubeflow's operators in managedBy.
const trainingOperator, mpiOperator = "kubeflow.org/training-operator", "kubeflow.org/mpi-operator"

// runPolicyOf returns the path of a field of the run policy. It is in spec.runPolicy, or in the
// spec itself as in the first releases of v1.
func (j *kubeflowJob) runPolicyOf(field string) Path {
	if inline := (Path{"spec", field}); j.parent(inline)[field] != nil {
		return inline
	}
	return Path{"spec", "runPolicy", field}
}

func (j *kubeflowJob) takeRunPolicy() {
	spec := &j.spec
	// kubeflow's default is None, ours is Running.
	spec.CleanPodPolicy = v2alpha1.CleanPodPolicyNone
	assign(j.manifest, &spec.CleanPodPolicy, j.runPolicyOf("cleanPodPolicy"), Path{"spec", "cleanPodPolicy"})
	spec.TTLSecondsAfterFinished = takeRunPolicyField[int32](j, "ttlSecondsAfterFinished")
	spec.ActiveDeadlineSeconds = takeRunPolicyField[int64](j, "activeDeadlineSeconds")
	spec.BackoffLimit = takeRunPolicyField[int32](j, "backoffLimit")
	spec.Suspend = takeRunPolicyField[bool](j, "suspend")
	j.takeManagedBy()
	j.takeScheduling()
}

// takeRunPolicyField imports a field that a DIJob has in its spec.
func takeRunPolicyField[T any](j *kubeflowJob, field string) *T {
	return takeTo[T](j.manifest, j.runPolicyOf(field), Path{"spec", field})
}

// labelQueue names the queue of Kueue, as in package queueing, which conversion does not import.
const labelQueue = "kueue.x-k8s.io/queue-name"

// leaveToQueue drops the suspension of a job that is in a queue. Kueue resumes a job of kubeflow that it admits. Of a DIJob it
// admits the pods, so that a suspended one would stay so.
func (m *manifest) leaveToQueue(metadata map[string]any, spec *v2alpha1.DIJobSpec) {
	labels, _ := metadata["labels"].(map[string]any)
	queue, _ := labels[labelQueue].(string)
	if queue == "" || spec.Suspend == nil || !*spec.Suspend {
		return
	}
	spec.Suspend = nil
	suspended := Path{"spec", "suspend"}
	m.result.Moves = slices.DeleteFunc(m.result.Moves, func(move Move) bool {
		if move.To.String() != suspended.String() {
			return false
		}
		suspended = move.From
		return true
	})
	m.note(suspended, true, "left out: the pods wait in queue "+queue+" until Kueue admits them, and nothing resumes a suspended DIJob", "to hold it back, set spec.suspend")
}

func (j *kubeflowJob) takeManagedBy() {
	at := j.runPolicyOf("managedBy")
	manager := takeAs[string](j.manifest, at)
	switch {
	case manager == nil:
	case *manager == "" || *manager == trainingOperator || *manager == mpiOperator:
		j.note(at, *manager, "left out: DI Orchestrator runs the job now", "")
	default:
		j.spec.ManagedBy = manager
		j.moved(at, Path{"spec", "managedBy"})
	}
}

func (j *kubeflowJob) takeScheduling() {
	at, to := j.runPolicyOf("schedulingPolicy"), Path{"spec", "scheduling"}
	queue := ""
	assign(j.manifest, &queue, at.Child("queue"), to.Child("queue"))
	least := takeTo[int32](j.manifest, at.Child("minAvailable"), to.Child("gang", "minAvailable"))
	if queue != "" || least != nil {
		j.spec.Scheduling = &v2alpha1.Scheduling{Queue: queue}
	}
	if least != nil {
		j.spec.Scheduling.Gang = &v2alpha1.Gang{MinAvailable: least}
	}
	j.takeGroupFields(at)
}

// takeGroupFields imports the fields of a scheduling policy that concern the PodGroup.
func (j *kubeflowJob) takeGroupFields(at Path) {
	class := &j.spec.PriorityClassName
	assign(j.manifest, class, at.Child("priorityClass"), Path{"spec", "priorityClassName"})
	if *class != "" {
		j.note(at.Child("priorityClass"), *class, "became spec.priorityClassName, which is of all pods of the job, over their templates'", "")
	}
	if value := j.take(at.Child("scheduleTimeoutSeconds")); value != nil {
		j.lost(at.Child("scheduleTimeoutSeconds"), value, "a gang waits for its place without an end", "set spec.activeDeadlineSeconds to bound the whole job")
	}
	if value := j.take(at.Child("minResources")); value != nil {
		j.lost(at.Child("minResources"), value, "the gang's resources are those of its pods", "")
	}
}

// takeRestartPolicies converts the restart policies of the replica types to rules, because pods of
// a DIJob are never restarted in place.
func (j *kubeflowJob) takeRestartPolicies() {
	byPolicy := map[string][]string{}
	for i := range j.replicas {
		replica := &j.replicas[i]
		j.noteRestartPolicy(replica)
		byPolicy[replica.restartPolicy] = append(byPolicy[replica.restartPolicy], replica.task.Name)
	}
	restarting := slices.Concat(byPolicy["OnFailure"], byPolicy["Always"])
	j.spec.FailurePolicy = &v2alpha1.FailurePolicy{}
	j.addRule(v2alpha1.FailurePolicyFailJob, byPolicy["Never"], nil)
	j.addRule(v2alpha1.FailurePolicyRestartReplica, restarting, nil)
	j.addRule(v2alpha1.FailurePolicyRestartReplica, byPolicy["ExitCode"], retryable())
	j.addRule(v2alpha1.FailurePolicyFailJob, byPolicy["ExitCode"], nil)
	if j.spec.BackoffLimit == nil && len(byPolicy["Never"]) < len(j.replicas) {
		unlimited := int32(-1)
		j.spec.BackoffLimit = &unlimited
		j.note(Path{"spec", "runPolicy", "backoffLimit"}, nil, "is not set, which is no limit in kubeflow: became -1, as the default of a DIJob is 3", "")
	}
}

func (j *kubeflowJob) noteRestartPolicy(replica *kubeflowReplica) {
	at := replica.at.Child("restartPolicy")
	switch replica.restartPolicy {
	case "Never":
		j.note(at, replica.says, j.orDefault("Never")+"became a rule of spec.failurePolicy: a failed replica fails the job", "")
	case "OnFailure":
		j.note(at, replica.says, j.orDefault("OnFailure")+"became a rule of spec.failurePolicy: a failed replica is made again, as a new pod of the same name", "")
	case "Always":
		j.lost(at, replica.restartPolicy, "became a rule of spec.failurePolicy: a failed replica is made again, one that has succeeded is not",
			"let the program run on for as long as it is needed")
	case "ExitCode":
		j.note(at, replica.restartPolicy, "became rules of spec.failurePolicy: exit codes 128 to 255 make the replica again, others fail the job", "")
	default:
		j.failf("%s: %q is none of Always, OnFailure, Never, ExitCode", at, replica.restartPolicy)
	}
}

// orDefault returns the policy with a remark if it is the default, and "" otherwise.
func (j *kubeflowJob) orDefault(policy string) string {
	if policy == j.restartPolicy {
		return policy + ", which is also the default, "
	}
	return ""
}

// addRule adds a rule for tasks. A rule for all tasks names none.
func (j *kubeflowJob) addRule(action v2alpha1.FailurePolicyAction, tasks []string, on *v2alpha1.ExitCodesRequirement) {
	if len(tasks) == 0 {
		return
	}
	if len(tasks) == len(j.replicas) {
		tasks = nil
	}
	j.spec.FailurePolicy.Rules = append(j.spec.FailurePolicy.Rules, v2alpha1.FailurePolicyRule{Action: action, Tasks: tasks, OnExitCodes: on})
}

// retryable returns the exit codes that kubeflow considers retryable.
func retryable() *v2alpha1.ExitCodesRequirement {
	codes := make([]int32, 0, 128)
	for code := int32(128); code <= 255; code++ {
		codes = append(codes, code)
	}
	return &v2alpha1.ExitCodesRequirement{Operator: v2alpha1.ExitCodesIn, Values: codes}
}

// sortMoves sorts longer paths before shorter ones.
func sortMoves(moves []Move) {
	slices.SortStableFunc(moves, func(a, b Move) int { return cmp.Compare(len(b.To), len(a.To)) })
}
