// Copyright The DI Orchestrator Authors.
// SPDX-License-Identifier: Apache-2.0

package jobs

import (
	"flag"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/utils/ptr"

	"opendilab.org/di-orchestrator/apis/v2alpha1"
	"opendilab.org/di-orchestrator/cmd/kubectl-di/internal/jobview"
	"opendilab.org/di-orchestrator/internal/names"
	"opendilab.org/di-orchestrator/test/testkit/expect"
)

var update = flag.Bool("update", false, "rewrite the golden files")

var (
	now = time.Date(2026, 3, 1, 12, 0, 0, 0, time.UTC)
	ago = func(since time.Duration) metav1.Time { return metav1.NewTime(now.Add(-since)) }
)

func TestWhatAPageSays(t *testing.T) {
	t.Parallel()
	for name, page := range map[string]*page{
		"new": newJob(), "worker-led": workerLed(), "coordinator-led": coordinatorLed(), "failed": failed(), "half-read": halfRead(),
		"preemptible": preemptible(), "unplaced": unplaced(), "refused": refused(), "unschedulable": unschedulable(),
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			page.Now = now
			path, got := filepath.Join("testdata", name+".txt"), string(page.render())
			if *update {
				expect.NoError(t, os.WriteFile(path, []byte(got), 0o600))
			}
			want, err := os.ReadFile(path)
			expect.NoError(t, err)
			if diff := cmp.Diff(string(want), got); diff != "" {
				t.Errorf("(-want +got):\n%s", diff)
			}
		})
	}
}

func newJob() *page {
	return &page{showEvents: true, Observed: jobview.Observed{Job: &v2alpha1.DIJob{
		ObjectMeta: metav1.ObjectMeta{Namespace: "rl", Name: "pong", CreationTimestamp: ago(2 * time.Second), Generation: 1},
		Spec:       v2alpha1.DIJobSpec{Tasks: []v2alpha1.Task{{Type: v2alpha1.TaskTypeCollector, Replicas: ptr.To[int32](2)}}},
	}}}
}

func workerLed() *page {
	p := newJob()
	p.Job.CreationTimestamp, p.Job.Labels, p.Job.Generation = ago(2*time.Hour), map[string]string{"team": "rl", "a": "b"}, 3
	p.Job.Spec.Tasks = append(p.Job.Spec.Tasks, v2alpha1.Task{Type: v2alpha1.TaskTypeLearner})
	p.Job.Spec.Elastic = &v2alpha1.Elastic{Task: "collector", MinReplicas: ptr.To[int32](1), MaxReplicas: ptr.To[int32](6), Replicas: ptr.To[int32](2)}
	p.Job.Spec.BackoffLimit, p.Job.Spec.ActiveDeadlineSeconds = ptr.To[int32](-1), ptr.To[int64](7200)
	p.Job.Spec.Priority, p.Job.Spec.Group, p.Job.Spec.Suspend = v2alpha1.PriorityHigh, "atari", ptr.To(true)
	since := ago(time.Hour)
	p.Job.Status = v2alpha1.DIJobStatus{
		Phase: v2alpha1.JobRunning, Replicas: 3, ReadyReplicas: 1, Restarts: 1, Reschedules: 2, ObservedGeneration: 2,
		ReplicaRestarts: map[string]int32{"pong-collector-1": 2},
		TaskStatus:      map[string]v2alpha1.TaskStatus{"collector": {corev1.PodRunning: 1, corev1.PodPending: 1}, "learner": {corev1.PodRunning: 1}},
		Conditions: []v2alpha1.DIJobCondition{
			{Type: "Running", Status: corev1.ConditionTrue, Reason: "JobRunning", Message: "all replicas\nare \x1b[31mready", LastTransitionTime: &since},
			{Type: "Resizing", Status: corev1.ConditionFalse},
		},
	}
	p.Pods = []*corev1.Pod{
		pod("learner", "pong-learner-0", "2", corev1.PodStatus{Phase: corev1.PodRunning, ContainerStatuses: []corev1.ContainerStatus{{
			RestartCount: 3, State: corev1.ContainerState{Waiting: &corev1.ContainerStateWaiting{Reason: "CrashLoopBackOff"}},
			LastTerminationState: corev1.ContainerState{Terminated: &corev1.ContainerStateTerminated{ExitCode: 137, Reason: "OOMKilled"}},
		}}}),
		pod("collector", "pong-collector-1", "1", corev1.PodStatus{Phase: corev1.PodPending, Conditions: []corev1.PodCondition{
			{Type: corev1.PodScheduled, Status: corev1.ConditionFalse, Reason: "Unschedulable"},
		}}),
		pod("collector", "pong-collector-0", "0", corev1.PodStatus{Phase: corev1.PodRunning, Conditions: []corev1.PodCondition{
			{Type: corev1.PodReady, Status: corev1.ConditionTrue},
		}, ContainerStatuses: []corev1.ContainerStatus{{State: corev1.ContainerState{Running: &corev1.ContainerStateRunning{}}}}}),
	}
	p.Pods[1].Spec.NodeName = ""
	p.Events = []*corev1.Event{
		{Type: "Warning", Reason: "Later", Message: "two\nlines", LastTimestamp: ago(time.Minute), Count: 4, Source: corev1.EventSource{Component: "di-operator"}},
		{Type: "Normal", Reason: "Earlier", Message: "created pod pong-collector-0", EventTime: metav1.NewMicroTime(now.Add(-time.Hour)), ReportingController: "di-operator"},
		{
			Type: "Warning", Reason: "Unhealthy", Message: "Readiness probe failed", LastTimestamp: ago(time.Hour - time.Minute),
			InvolvedObject: corev1.ObjectReference{Kind: "Pod", Name: "pong-collector-0", UID: "pong-collector-0"}, Source: corev1.EventSource{Component: "kubelet"},
		},
	}
	return p
}

func preemptible() *page {
	p := newJob()
	p.showEvents, p.Job.CreationTimestamp, p.Job.Spec.Preemptible, p.Job.Spec.Group = false, ago(2*time.Hour), true, "ppo"
	placed, accounted, since := metav1.NewMicroTime(now.Add(-3*time.Minute)), metav1.NewMicroTime(now.Add(-time.Minute)), ago(time.Hour)
	p.Job.Status = v2alpha1.DIJobStatus{
		Phase: v2alpha1.JobRunning, Replicas: 6, ReadyReplicas: 6, Reschedules: 2,
		Allocation: []string{"node-b", "node-a", "node-a", "node-a", "node-a", "node-b"},
		AllocationUsage: &v2alpha1.AllocationUsage{
			Policy: "goodput", AccountedAt: &accounted, PlacedAt: &placed, Restarts: 2, RestartMilliseconds: 31_234, Restarting: true,
			TrainedMilliseconds: 6_900_000, AttainedMilliseconds: 40_000_000,
		},
		Conditions: []v2alpha1.DIJobCondition{{
			Type: v2alpha1.ConditionAllocated, Status: corev1.ConditionTrue, Reason: v2alpha1.ReasonPlaced,
			Message: "6 replicas on 2 nodes", LastTransitionTime: &since,
		}},
	}
	return p
}

func unplaced() *page {
	p := newJob()
	p.showEvents, p.Job.Spec.Preemptible = false, true
	return p
}

// refused is a job whose pods the API server refuses.
func refused() *page {
	return blocked(v2alpha1.JobPending, v2alpha1.ConditionReplicaFailure, v2alpha1.ReasonResourcesMissing,
		"pod pong-collector-0 (collector) is refused: failed quota: team: must specify requests.cpu for: di-container: "+
			"set in the template resources.requests.cpu of container di-container")
}

// unschedulable is a job whose pods fit no node, each for another cause.
func unschedulable() *page {
	p := blocked(v2alpha1.JobStarting, v2alpha1.ConditionReplicasStalled, v2alpha1.ReasonUnschedulable,
		"pong-collector-0 (collector): cannot be scheduled: no node is available: Insufficient nvidia.com/gpu, node(s) had untolerated taint {gpu: true}")
	p.Job.Spec.Tasks[0].Template.Raw = []byte(`{"spec":{"containers":[{"resources":{"limits":{"nvidia.com/gpu":4}}}]}}`)
	return p
}

// blocked is a job that a condition keeps from running.
func blocked(phase v2alpha1.Phase, kind, reason, message string) *page {
	p, since := newJob(), ago(time.Minute)
	p.showEvents = false
	p.Job.Status = v2alpha1.DIJobStatus{
		Phase: phase, Replicas: 2, ObservedGeneration: 1, Summary: &v2alpha1.StatusSummary{Reason: reason},
		Conditions: []v2alpha1.DIJobCondition{{Type: kind, Status: corev1.ConditionTrue, Reason: reason, Message: message, LastTransitionTime: &since}},
	}
	return p
}

func pod(task, name, rank string, status corev1.PodStatus) *corev1.Pod {
	return &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{
			Name: name, UID: types.UID(name), CreationTimestamp: ago(time.Hour), OwnerReferences: []metav1.OwnerReference{{Controller: ptr.To(true)}},
			Annotations: map[string]string{names.AnnotationRank: rank},
			Labels:      names.WorkerLabels("pong", v2alpha1.TaskType(task), task, name),
		},
		Spec: corev1.PodSpec{NodeName: "node-1", Containers: []corev1.Container{{Name: names.Container}}}, Status: status,
	}
}

func coordinatorLed() *page {
	running := corev1.PodStatus{Phase: corev1.PodRunning, ContainerStatuses: []corev1.ContainerStatus{{Ready: true}}}
	p := &page{showEvents: true, Observed: jobview.Observed{Job: &v2alpha1.DIJob{
		ObjectMeta: metav1.ObjectMeta{Namespace: "rl", Name: "cartpole", CreationTimestamp: ago(time.Hour)},
		Spec: v2alpha1.DIJobSpec{Lifecycle: v2alpha1.LifecycleCoordinatorLed, Tasks: []v2alpha1.Task{
			{Type: v2alpha1.TaskTypeCoordinator}, {Type: v2alpha1.TaskTypeCollector}, {Type: v2alpha1.TaskTypeLearner},
		}},
		Status: v2alpha1.DIJobStatus{Phase: v2alpha1.JobRunning, Replicas: 4, ReadyReplicas: 3, TaskStatus: map[string]v2alpha1.TaskStatus{
			"coordinator": {corev1.PodRunning: 1}, "collector": {corev1.PodRunning: 1}, "aggregator": {corev1.PodRunning: 1},
		}},
	}}}
	for _, role := range []struct{ name, role string }{
		{"cartpole-coordinator", "coordinator"}, {"cartpole-collector-b", "collector"}, {"cartpole-aggregator-c", "aggregator"}, {"cartpole-ddp-learner-d", "ddp-learner"},
	} {
		one := pod("", role.name, "", running)
		one.Labels = names.ReplicaLabels("cartpole", names.ReplicaType(role.role), role.name)
		p.Pods = append(p.Pods, one)
	}
	p.Members = jobview.ReadMembers(&v2alpha1.Membership{
		Spec: v2alpha1.MembershipSpec{
			Members: []v2alpha1.Member{
				{Slot: "s1", Task: v2alpha1.TaskTypeCollector, PodName: "cartpole-collector-b", Resources: v2alpha1.MemberResources{CPUs: ptr.To(resource.MustParse("500m")), Memory: ptr.To(resource.MustParse("1Gi"))}},
				{Slot: "s2", Task: v2alpha1.TaskTypeLearner, PodName: "cartpole-aggregator-c", DDPGPUs: []int32{4, 4}, Resources: v2alpha1.MemberResources{GPUs: ptr.To(resource.MustParse("8"))}},
				{Slot: "s3", Task: v2alpha1.TaskTypeCollector, PodName: "cartpole-collector-e"},
			},
			RetainedPods: []v2alpha1.RetainedPod{{Task: v2alpha1.TaskTypeCollector, PodName: "cartpole-collector-z"}},
		},
		Status: v2alpha1.MembershipStatus{Slots: []v2alpha1.SlotStatus{{Slot: "s1", Phase: corev1.PodRunning}, {Slot: "s2", Phase: corev1.PodRunning}}},
	})
	return p
}

func failed() *page {
	p := newJob()
	ended, seen := ago(time.Minute), ago(2*time.Minute)
	p.Job.CreationTimestamp, p.Job.Spec.BackoffLimit = ago(time.Hour), ptr.To[int32](0)
	p.Job.Status = v2alpha1.DIJobStatus{
		Phase: v2alpha1.JobFailed, Replicas: 2, CompletionTimestamp: &ended, ObservedGeneration: 1,
		LastFailure: &v2alpha1.LastFailure{Pod: "pong-collector-0", ExitCode: ptr.To[int32](3), Reason: "Error", Message: "the container ended", Time: &seen},
	}
	p.Pods = []*corev1.Pod{pod("collector", "pong-collector-0", "0", corev1.PodStatus{Phase: corev1.PodFailed, ContainerStatuses: []corev1.ContainerStatus{
		{State: corev1.ContainerState{Terminated: &corev1.ContainerStateTerminated{ExitCode: 3, Reason: "Error"}}},
	}})}
	p.showEvents = false
	return p
}

func halfRead() *page {
	p := coordinatorLed()
	p.Pods, p.Members = nil, jobview.Members{}
	p.unread = map[string]string{
		partPods: "listing the pods: forbidden\na role of this right, bound to you, allows it:\n  kubectl create role", partMembers: "forbidden", partEvents: "forbidden",
	}
	return p
}

func TestThePageSaysWhatTheAutoscalerDecidedAndWhy(t *testing.T) {
	t.Parallel()
	now := time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC)
	decided := metav1.NewMicroTime(now.Add(-time.Minute))
	index, memory := int32(2), resource.MustParse("4Gi")
	job := &v2alpha1.DIJob{}
	job.Status.Autoscaling = &v2alpha1.AutoscalingStatus{Ratio: &v2alpha1.RatioStatus{
		DecidedAt: &decided, ProducerCapacity: 1500, ConsumerCapacity: 6000, Queue: 64, TargetQueue: 128, Starved: 25, Desired: 4,
		Replicas: map[string]int32{"actor": 4}, GrownAt: &decided, Reason: "ConsumerStarves", Message: "4 of 8 producers",
	}}
	job.Status.Scaling = &v2alpha1.ScalingStatus{
		Resources: []v2alpha1.ResourceOverride{{Task: "actor", Index: &index, Resources: v2alpha1.ReplicaResources{Memory: &memory}, Reason: "OutOfMemory", Attempts: 1}},
		Plan:      &v2alpha1.PlanRecord{Name: "pong-x", UID: "1", Phase: v2alpha1.PlanSucceeded, Message: "done"},
	}
	text := string((&page{Observed: jobview.Observed{Job: job, Now: now}}).render())
	for _, line := range []string{
		"ConsumerStarves: 4 of 8 producers", "2026-01-02T03:03:05Z, 60s ago", "4 desired, 4 of task actor requested",
		"1.5 samples/s of one producer, 6 of the consumer", "64 samples, target 128", "consumer 2.5 % of the time, producers 0 %",
		"memory=4Gi  OutOfMemory  1", "pong-x  Succeeded  deleted", "done",
	} {
		if !strings.Contains(text, line) {
			t.Errorf("the page lacks %q:\n%s", line, text)
		}
	}
}
