// Copyright The DI Orchestrator Authors.
// SPDX-License-Identifier: Apache-2.0

package membership_test

import (
	"testing"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"opendilab.org/di-orchestrator/apis/v2alpha1"
	"opendilab.org/di-orchestrator/internal/names"
	"opendilab.org/di-orchestrator/job/membership"
	"opendilab.org/di-orchestrator/job/podstate"
	"opendilab.org/di-orchestrator/test/testkit/expect"
)

func TestURLsListAggregatorsUnderLearners(t *testing.T) {
	got := place().URLs(members(t, "clu").Members, &v2alpha1.MembershipStatus{})
	want := membership.URLs{
		Collectors: []string{"cartpole-collector-00001.default:22270"},
		Learners:   []string{"cartpole-learner-00002.default:22271", "cartpole-aggregator-00003.default:22272"},
	}
	expect.Equal(t, "URLs", want, got)
}

func TestURLsOfNoMembersAreEmptyAndNotNil(t *testing.T) {
	want := membership.URLs{Collectors: []string{}, Learners: []string{}}
	expect.Equal(t, "URLs", want, place().URLs(nil, &v2alpha1.MembershipStatus{}))
}

func TestURLsOfAReportedMemberAreNew(t *testing.T) {
	spec := members(t, "c")
	before := place().URLs(spec.Members, &v2alpha1.MembershipStatus{})
	apply(t, membership.Replace{Job: job, Pods: []string{"cartpole-collector-00001"}}, spec)
	after := place().URLs(spec.Members, &v2alpha1.MembershipStatus{})
	if len(after.Collectors) != 1 || after.Collectors[0] == before.Collectors[0] {
		t.Errorf("got %v after a report of %v, want one new URL", after.Collectors, before.Collectors)
	}
}

func TestDDPURLsAreOnePerGPUProcessInRankOrder(t *testing.T) {
	const aggregator = "cartpole-aggregator-00001"
	first, second := membership.DDPPodName(job, aggregator, 0), membership.DDPPodName(job, aggregator, 1)
	want := []string{
		first + ".default:22271", first + ".default:22272", first + ".default:22273",
		second + ".default:22271",
	}
	expect.Equal(t, "URLs", want, place().DDPURLs(&v2alpha1.Member{PodName: aggregator, DDPGPUs: []int32{3, 1}}, aggregator))
}

func TestFind(t *testing.T) {
	const unit = "cartpole-aggregator-00003"
	for name, tc := range map[string]struct {
		pod  string
		slot string
		role names.ReplicaType
	}{
		"a collector":    {"cartpole-collector-00001", "collector-00001", names.ReplicaTypeCollector},
		"a learner":      {"cartpole-learner-00002", "learner-00002", names.ReplicaTypeLearner},
		"an aggregator":  {unit, "aggregator-00003", names.ReplicaTypeAggregator},
		"a DDP learner":  {membership.DDPPodName(job, unit, 1), "aggregator-00003", names.ReplicaTypeDDPLearner},
		"a name of none": {"cartpole-learner-99999", "", ""},
	} {
		t.Run(name, func(t *testing.T) {
			member, role := membership.Find(job, members(t, "clu"), &v2alpha1.MembershipStatus{}, tc.pod)
			slot := ""
			if member != nil {
				slot = member.Slot
			}
			if slot != tc.slot || role != tc.role {
				t.Errorf("got slot %q, role %q, want %q, %q", slot, role, tc.slot, tc.role)
			}
		})
	}
}

func TestJobNames(t *testing.T) {
	for name, tc := range map[string]struct {
		pod  string
		want []string
	}{
		"a collector's name gives its job":           {"a-b-collector-00001", []string{"a-b"}},
		"a DDP learner's may be a learner's as well": {"a-ddp-learner-00001", []string{"a-ddp", "a"}},
		"a coordinator's gives none":                 {"a-coordinator", nil},
		"a name without a job gives none":            {"-collector-00001", nil},
		"a name without a dash gives none":           {"collector", nil},
	} {
		t.Run(name, func(t *testing.T) {
			expect.Equal(t, "jobs", tc.want, membership.JobNames(tc.pod))
		})
	}
}

func TestUsualGPUs(t *testing.T) {
	for name, tc := range map[string]struct {
		nodes []int32
		want  int32
	}{
		"no node has none":                       {nil, 0},
		"the most frequent count":                {[]int32{8, 4, 4, 0}, 4},
		"of equally frequent ones the larger":    {[]int32{8, 4, 4, 8, 0}, 8},
		"the maximum where most nodes have none": {[]int32{0, 0, 0, 2, 8}, 8},
		"none where no node has any":             {[]int32{0, 0}, 0},
		"the only node's":                        {[]int32{8}, 8},
	} {
		t.Run(name, func(t *testing.T) {
			expect.Equal(t, "result", tc.want, membership.UsualGPUs(tc.nodes))
		})
	}
}

func TestSplitGPUs(t *testing.T) {
	for name, tc := range map[string]struct {
		gpus, perNode int32
		want          []int32
	}{
		"none is not cut":                    {0, 8, nil},
		"one is not cut":                     {1, 8, nil},
		"what fits a node is one pod":        {8, 8, []int32{8}},
		"more is cut with a remainder":       {10, 8, []int32{8, 2}},
		"more is cut evenly where it can be": {16, 8, []int32{8, 8}},
		"nodes without GPUs give one pod":    {4, 0, []int32{4}},
		"nodes of one GPU give pods of one":  {3, 1, []int32{1, 1, 1}},
	} {
		t.Run(name, func(t *testing.T) {
			expect.Equal(t, "cut", tc.want, membership.SplitGPUs(tc.gpus, tc.perNode))
		})
	}
}

func TestLearnerGPUs(t *testing.T) {
	template := func(name string, resources corev1.ResourceRequirements) *corev1.PodSpec {
		return &corev1.PodSpec{Containers: []corev1.Container{{Name: "sidecar"}, {Name: name, Resources: resources}}}
	}
	two := corev1.ResourceList{names.DefaultGPU: resource.MustParse("2")}
	for name, tc := range map[string]struct {
		asked    v2alpha1.MemberResources
		template *corev1.PodSpec
		want     int32
	}{
		"those asked for": {
			v2alpha1.MemberResources{GPUs: quantity("4")}, template(names.Container, corev1.ResourceRequirements{Limits: two}), 4,
		},
		"the template's where none are asked for": {
			v2alpha1.MemberResources{}, template(names.Container, corev1.ResourceRequirements{Limits: two}), 2,
		},
		"the template's where zero are asked for": {
			v2alpha1.MemberResources{GPUs: quantity("0")}, template(names.Container, corev1.ResourceRequirements{Limits: two}), 2,
		},
		"the template's requests where it has no limits": {
			v2alpha1.MemberResources{}, template(names.Container, corev1.ResourceRequirements{Requests: two}), 2,
		},
		"not those of another container": {
			v2alpha1.MemberResources{}, template("other", corev1.ResourceRequirements{Limits: two}), 0,
		},
		"those of the first container where none has the known name": {
			v2alpha1.MemberResources{}, &corev1.PodSpec{Containers: []corev1.Container{
				{Name: "trainer", Resources: corev1.ResourceRequirements{Limits: two}}, {Name: "sidecar"},
			}}, 2,
		},
		"none of an empty template": {
			v2alpha1.MemberResources{}, &corev1.PodSpec{}, 0,
		},
	} {
		t.Run(name, func(t *testing.T) {
			expect.Equal(t, "result", tc.want, membership.LearnerGPUs(tc.asked, tc.template, names.DefaultGPU))
		})
	}
}

func TestAnInjectedContainerDoesNotHideTheMainOne(t *testing.T) {
	two := corev1.ResourceList{names.DefaultGPU: resource.MustParse("2")}
	pod := &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{Annotations: map[string]string{names.AnnotationContainers: "trainer"}},
		Spec: corev1.PodSpec{Containers: []corev1.Container{
			{Name: "proxy"}, {Name: "trainer", Resources: corev1.ResourceRequirements{Limits: two}},
		}},
		Status: corev1.PodStatus{ContainerStatuses: []corev1.ContainerStatus{{Name: "proxy"}, {Name: "trainer"}}},
	}
	expect.Equal(t, "the pod GPUs", 2, membership.PodGPUs(pod, names.DefaultGPU))
	if got := podstate.MainContainer(pod); got.Name != "trainer" {
		t.Errorf("the main container is %s", got.Name)
	}
	// The writer of the pod may record a container that does not exist.
	pod.Annotations[names.AnnotationContainers] = "other"
	if got := podstate.MainContainer(pod); got.Name != "proxy" {
		t.Errorf("the main container is %s", got.Name)
	}
}
