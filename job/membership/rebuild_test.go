// Copyright The DI Orchestrator Authors.
// SPDX-License-Identifier: Apache-2.0

package membership_test

import (
	"strconv"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"opendilab.org/di-orchestrator/apis/v2alpha1"
	"opendilab.org/di-orchestrator/internal/names"
	"opendilab.org/di-orchestrator/job/membership"
	"opendilab.org/di-orchestrator/test/testkit/expect"
)

var start = metav1.NewTime(time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC))

// remain returns a live pod that names a slot after itself.
func remain(role names.ReplicaType, suffix string, changes ...func(*corev1.Pod)) *corev1.Pod {
	name := names.ReplicaPod(job, role, suffix)
	pod := &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{
			Name: name, UID: types.UID(name), CreationTimestamp: start,
			Labels:      names.ReplicaLabels(job, role, name),
			Annotations: map[string]string{names.AnnotationSlot: string(role) + "-" + suffix},
		},
		Spec:   corev1.PodSpec{Containers: []corev1.Container{{Name: names.Container}}},
		Status: corev1.PodStatus{Phase: corev1.PodRunning},
	}
	for _, change := range changes {
		change(pod)
	}
	return pod
}

// ddp returns a DDP learner of the aggregator u, with its ranks.
func ddp(suffix string, first, gpus, world int, changes ...func(*corev1.Pod)) *corev1.Pod {
	return remain(names.ReplicaTypeDDPLearner, suffix, append(changes, func(pod *corev1.Pod) {
		pod.OwnerReferences = []metav1.OwnerReference{{UID: types.UID(names.ReplicaPod(job, names.ReplicaTypeAggregator, "unit0"))}}
		pod.Spec.Containers[0].Env = []corev1.EnvVar{
			{Name: names.EnvStartRank, Value: strconv.Itoa(first)},
			{Name: names.EnvLocalWorldSize, Value: strconv.Itoa(gpus)},
			{Name: names.EnvWorldSize, Value: strconv.Itoa(world)},
		}
	})...)
}

func aggregator(changes ...func(*corev1.Pod)) *corev1.Pod {
	return remain(names.ReplicaTypeAggregator, "unit0", changes...)
}

func nameless(pod *corev1.Pod)    { pod.Annotations = nil }
func failed(pod *corev1.Pod)      { pod.Status.Phase = corev1.PodFailed }
func succeeded(pod *corev1.Pod)   { pod.Status.Phase = corev1.PodSucceeded }
func terminating(pod *corev1.Pod) { pod.DeletionTimestamp = &start }
func younger(pod *corev1.Pod)     { pod.CreationTimestamp = metav1.NewTime(start.Add(time.Second)) }

func inSlot(slot string) func(*corev1.Pod) {
	return func(pod *corev1.Pod) { pod.Annotations[names.AnnotationSlot] = slot }
}

// outline describes a list: GPUs and names of each unit by slot,
// and which pods are retained.
type outline struct {
	Pods     map[string]string
	GPUs     map[string][]int32
	DDP      map[string][]string
	Retained []string
	Recorded string
}

func outlineOf(spec v2alpha1.MembershipSpec) outline {
	got := outline{Pods: map[string]string{}, Recorded: spec.CoordinatorInstance}
	for i := range spec.Members {
		member := &spec.Members[i]
		got.Pods[member.Slot] = member.PodName
		if membership.IsUnit(member) {
			got.GPUs = map[string][]int32{member.Slot: member.DDPGPUs}
			got.DDP = map[string][]string{member.Slot: membership.DDPPodNames(job, member, member.PodName)}
		}
	}
	for i := range spec.RetainedPods {
		got.Retained = append(got.Retained, string(spec.RetainedPods[i].Task)+" "+spec.RetainedPods[i].PodName)
	}
	return got
}

const (
	unitSlot = "aggregator-unit0"
	unitPod  = "cartpole-aggregator-unit0"
)

// aUnit returns the outline of a list with only one unit.
func aUnit(gpus []int32, pods ...string) outline {
	return outline{
		Pods: map[string]string{unitSlot: unitPod},
		GPUs: map[string][]int32{unitSlot: gpus}, DDP: map[string][]string{unitSlot: pods},
		Recorded: "None",
	}
}

func derived(index int) string { return membership.DDPPodName(job, unitPod, index) }

func TestWhatPodsStandFor(t *testing.T) {
	coordinator := &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{Name: names.CoordinatorPod(job), UID: "lead"},
		Status:     corev1.PodStatus{ContainerStatuses: []corev1.ContainerStatus{{Name: names.Container, RestartCount: 2}}},
	}
	for name, tc := range map[string]struct {
		pods        []*corev1.Pod
		learnerGPUs int32
		want        outline
	}{
		"no replica, nothing": {
			[]*corev1.Pod{coordinator}, 0, outline{Pods: map[string]string{}},
		},
		"plain replicas, and the coordinator that knows them": {
			[]*corev1.Pod{coordinator, remain(names.ReplicaTypeCollector, "aaaaa"), remain(names.ReplicaTypeLearner, "bbbbb")}, 8,
			outline{
				Pods:     map[string]string{"collector-aaaaa": "cartpole-collector-aaaaa", "learner-bbbbb": "cartpole-learner-bbbbb"},
				Recorded: "lead/2",
			},
		},
		"what has succeeded or is terminating is retained": {
			[]*corev1.Pod{remain(names.ReplicaTypeCollector, "aaaaa", succeeded), remain(names.ReplicaTypeLearner, "bbbbb", terminating)}, 0,
			outline{
				Pods:     map[string]string{},
				Retained: []string{"collector cartpole-collector-aaaaa", "learner cartpole-learner-bbbbb"}, Recorded: "None",
			},
		},
		"failed pods are replaced": {
			[]*corev1.Pod{remain(names.ReplicaTypeCollector, "aaaaa", failed)}, 0,
			outline{Pods: map[string]string{"collector-aaaaa": "cartpole-collector-aaaaa"}, Recorded: "None"},
		},
		"what lives and names no slot is unknown": {
			[]*corev1.Pod{remain(names.ReplicaTypeCollector, "aaaaa", nameless)}, 0, outline{Pods: map[string]string{}},
		},
		"of two pods of a slot the younger stands for it": {
			[]*corev1.Pod{
				remain(names.ReplicaTypeCollector, "aaaaa", inSlot("slot"), younger), remain(names.ReplicaTypeCollector, "bbbbb", inSlot("slot")),
			}, 0,
			outline{
				Pods: map[string]string{"slot": "cartpole-collector-aaaaa"}, Retained: []string{"collector cartpole-collector-bbbbb"}, Recorded: "None",
			},
		},
		"a unit, in rank order": {
			[]*corev1.Pod{ddp("aaaaa", 8, 2, 10), aggregator(), ddp("bbbbb", 0, 8, 10)}, 0,
			aUnit([]int32{8, 2}, "cartpole-ddp-learner-bbbbb", "cartpole-ddp-learner-aaaaa"),
		},
		"a unit that lacks its last pods": {
			[]*corev1.Pod{aggregator(), ddp("aaaaa", 0, 4, 10)}, 0,
			aUnit([]int32{4, 4, 2}, "cartpole-ddp-learner-aaaaa", derived(1), derived(2)),
		},
		"a unit that lacks pods before others": {
			[]*corev1.Pod{aggregator(), ddp("aaaaa", 4, 4, 10), ddp("bbbbb", 8, 2, 10)}, 0,
			aUnit([]int32{4, 4, 2}, derived(0), "cartpole-ddp-learner-aaaaa", "cartpole-ddp-learner-bbbbb"),
		},
		"a unit without any, as the template says": {
			[]*corev1.Pod{aggregator()}, 4, aUnit([]int32{4}, derived(0)),
		},
		"an aggregator of unknown size is retained": {
			[]*corev1.Pod{aggregator(nameless)}, 1,
			outline{Pods: map[string]string{}, Retained: []string{"learner " + unitPod}, Recorded: "None"},
		},
		"a unit with a pod that has failed, which is lost whole": {
			[]*corev1.Pod{aggregator(), ddp("aaaaa", 0, 8, 10), ddp("bbbbb", 8, 2, 10, failed)}, 0,
			aUnit([]int32{8, 2}, "cartpole-ddp-learner-aaaaa", "cartpole-ddp-learner-bbbbb"),
		},
		"a unit whose failed pod was replaced": {
			[]*corev1.Pod{aggregator(), ddp("aaaaa", 0, 2, 2, failed, younger), ddp("bbbbb", 0, 2, 2), ddp("ccccc", 0, 2, 2, younger)}, 0,
			aUnit([]int32{2}, "cartpole-ddp-learner-ccccc"),
		},
		"DDP learners whose aggregator is gone, nothing": {
			[]*corev1.Pod{ddp("aaaaa", 0, 2, 2)}, 0, outline{Pods: map[string]string{}},
		},
		"DDP learners whose ranks are nonsense, nothing": {
			[]*corev1.Pod{aggregator(), ddp("aaaaa", 0, 2000000000, 2000000000)}, 0,
			outline{Pods: map[string]string{}, Retained: []string{"learner " + unitPod}, Recorded: "None"},
		},
	} {
		t.Run(name, func(t *testing.T) {
			remains := membership.Remains{Job: job, Pods: tc.pods, GPU: names.DefaultGPU, LearnerGPUs: tc.learnerGPUs}
			expect.Equal(t, "list", tc.want, outlineOf(remains.Spec()))
		})
	}
}

// adopted returns a list of one unit that an earlier release created.
func adopted() *v2alpha1.MembershipSpec {
	remains := membership.Remains{Job: job, GPU: names.DefaultGPU, Pods: []*corev1.Pod{
		aggregator(), ddp("aaaaa", 8, 2, 10), ddp("bbbbb", 0, 8, 10),
	}}
	spec := remains.Spec()
	return &spec
}

func TestNamesOfAnAdoptedUnitGoWithIt(t *testing.T) {
	spec, status := adopted(), &v2alpha1.MembershipStatus{}
	if member, role := membership.Find(job, spec, status, "cartpole-ddp-learner-aaaaa"); member == nil || role != names.ReplicaTypeDDPLearner {
		t.Errorf("the DDP learner is found as %v %q, want that of the unit", member, role)
	}
	before := place().DDPURLs(&spec.Members[0], unitPod)
	if len(before) != 10 || before[0] != "cartpole-ddp-learner-bbbbb.default:22271" || before[8] != "cartpole-ddp-learner-aaaaa.default:22271" {
		t.Errorf("the aggregator is answered %v", before)
	}
	if replaced := apply(t, membership.Replace{Job: job, Pods: []string{"cartpole-ddp-learner-aaaaa"}}, spec); len(replaced) != 1 {
		t.Fatalf("replaced %v, want the unit", replaced)
	}
	member := &spec.Members[0]
	now := membership.PodName(job, member, 0)
	if now == unitPod {
		t.Error("the unit keeps its name")
	}
	want := []string{membership.DDPPodName(job, now, 0), membership.DDPPodName(job, now, 1)}
	expect.Equal(t, "pods of the new unit", want, membership.DDPPodNames(job, member, now))
	if diff := cmp.Diff(before, place().DDPURLs(member, unitPod)); diff != "" {
		t.Errorf("the answer to the old aggregator changes (-before +after):\n%s", diff)
	}
}

func TestACoordinatorAfterThatOfAnAdoptedListIsAnotherOne(t *testing.T) {
	if !membership.IsRestarted(adopted(), "uid/0") {
		t.Error("the next coordinator is taken for the one that is gone")
	}
}
