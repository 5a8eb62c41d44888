// Copyright The DI Orchestrator Authors.
// SPDX-License-Identifier: Apache-2.0

package record

import (
	"encoding/json"
	"testing"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/utils/ptr"

	"opendilab.org/di-orchestrator/apis/v2alpha1"
	"opendilab.org/di-orchestrator/internal/names"
	"opendilab.org/di-orchestrator/test/soak/history"
	"opendilab.org/di-orchestrator/test/testkit/expect"
	"opendilab.org/di-orchestrator/test/testkit/jobs"
	"opendilab.org/di-orchestrator/test/testkit/pods"
)

func aJob() *v2alpha1.DIJob {
	return &v2alpha1.DIJob{
		TypeMeta:   metav1.TypeMeta{APIVersion: v2alpha1.GroupVersion.String(), Kind: "DIJob"},
		ObjectMeta: metav1.ObjectMeta{Namespace: "n", Name: "job", UID: "j", Generation: 3},
		Spec: v2alpha1.DIJobSpec{Suspend: ptr.To(true), Tasks: []v2alpha1.Task{
			{Type: v2alpha1.TaskTypeLearner, Template: jobs.Template()},
			{Type: v2alpha1.TaskTypeCollector, Name: "c", Replicas: ptr.To[int32](4), Drain: &v2alpha1.Drain{}, Template: jobs.Template()},
		}},
		Status: v2alpha1.DIJobStatus{Replicas: 6, ObservedGeneration: 2, Restarts: 1, Scaling: &v2alpha1.ScalingStatus{LastReplicas: 5}},
	}
}

func TestAJobIsRecordedWithWhatItsSpecAndItsStatusSay(t *testing.T) {
	raw, err := json.Marshal(aJob())
	expect.NoError(t, err)
	got, err := projectJob(raw)
	expect.NoError(t, err)
	want := &history.Change{Namespace: "n", Name: "job", UID: "j", Job: &history.JobState{
		Tasks:   []history.TaskState{{Name: "learner", Replicas: 1}, {Name: "c", Replicas: 4, Drain: true}},
		Elastic: "c", ElasticReplicas: 4, Suspended: true, Generation: 3, Observed: 2, Total: 6, LastTotal: 5, Restarts: 1,
	}}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("recorded (-want +got):\n%s", diff)
	}
}

func TestAMembershipIsRecordedWithTheMarksOfItsMembers(t *testing.T) {
	list := jobs.Membership(aJob())
	list.Spec.Members = []v2alpha1.Member{
		{Slot: "a", Task: v2alpha1.TaskTypeCollector, Resources: v2alpha1.MemberResources{CPUs: ptr.To(resource.MustParse("1001m"))}},
		{Slot: "b", Task: v2alpha1.TaskTypeLearner, DDPGPUs: []int32{8, 2}},
	}
	raw, err := json.Marshal(list)
	expect.NoError(t, err)
	got, err := projectMembership(raw)
	expect.NoError(t, err)
	want := []history.Member{{Slot: "a", Task: "collector", Pods: 1, Mark: "1001m"}, {Slot: "b", Task: "learner", Pods: 3}}
	if diff := cmp.Diff(want, got.Membership.Members); diff != "" || got.Owner != "j" {
		t.Errorf("recorded for %q (-want +got):\n%s", got.Owner, diff)
	}
}

func TestAPodStaysWhatItWasCreatedAs(t *testing.T) {
	recorder := &Recorder{pods: map[types.UID]identity{}}
	pod := pods.Of(aJob(), "job-c-0", names.WorkerLabels("job", v2alpha1.TaskTypeCollector, "c", "job-c-0"))
	pod.UID, pod.Annotations = "p", map[string]string{names.AnnotationRank: "1", names.AnnotationAttempt: "2"}
	recorder.projectPod(pod)
	pods.RunReady(pod, "127.0.0.9")
	pod.Labels, pod.Annotations, pod.OwnerReferences = nil, map[string]string{names.AnnotationRank: "7"}, nil
	got := recorder.projectPod(pod)
	want := &history.PodState{Task: "c", Member: "1", Attempt: "2//", Phase: string(corev1.PodRunning), Ready: true}
	if diff := cmp.Diff(want, got.Pod); diff != "" || got.Owner != "j" {
		t.Errorf("recorded for %q (-want +got):\n%s", got.Owner, diff)
	}
}
