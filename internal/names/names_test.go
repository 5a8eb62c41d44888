// Copyright The DI Orchestrator Authors.
// SPDX-License-Identifier: Apache-2.0

package names

import (
	"fmt"
	"regexp"
	"testing"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"opendilab.org/di-orchestrator/apis/v2alpha1"
	"opendilab.org/di-orchestrator/test/testkit/expect"
)

func TestEveryRoleHasItsPortAndVariable(t *testing.T) {
	type served struct {
		port     int32
		variable string
	}
	want := map[ReplicaType]served{
		"collector":   {22270, "COLLECTOR_PORT"},
		"learner":     {22271, "LEARNER_PORT"},
		"ddp-learner": {22271, "LEARNER_PORT"},
		"aggregator":  {22272, "AGGREGATOR_PORT"},
		"coordinator": {22273, "COORDINATOR_PORT"},
	}
	got := map[ReplicaType]served{}
	for role := range want {
		got[role] = served{DefaultPort(role), PortVariable(role)}
	}
	if diff := cmp.Diff(want, got, cmp.AllowUnexported(served{})); diff != "" {
		t.Errorf("ports (-want +got):\n%s", diff)
	}
}

func TestOnlyTheNamedPortOfTheMainContainerCounts(t *testing.T) {
	container := func(name, port string) corev1.Container {
		return corev1.Container{Name: name, Ports: []corev1.ContainerPort{{Name: port, ContainerPort: 4000}}}
	}
	tests := map[string]struct {
		containers []corev1.Container
		want       int32
	}{
		"its port":                      {[]corev1.Container{container("other", "di-port"), container("di-container", "di-port")}, 4000},
		"another port of it":            {[]corev1.Container{container("di-container", "metrics")}, 22270},
		"the port of another container": {[]corev1.Container{container("other", "di-port"), {Name: "di-container"}}, 22270},
		"no main container":             {[]corev1.Container{container("other", "di-port")}, 22270},
	}
	for name, tc := range tests {
		t.Run(name, func(t *testing.T) {
			expect.Equal(t, "port", tc.want, DIPort(&corev1.PodSpec{Containers: tc.containers}, ReplicaTypeCollector))
		})
	}
}

func TestNamesAreThoseOfTheContract(t *testing.T) {
	status := &v2alpha1.DIJobStatus{Restarts: 2, Reschedules: 3}
	tests := map[string]struct{ got, want string }{
		"coordinator":        {CoordinatorPod("job"), "job-coordinator"},
		"replica":            {ReplicaPod("job", ReplicaTypeDDPLearner, "x2z4b"), "job-ddp-learner-x2z4b"},
		"URL":                {ReplicaURL("job-collector-x2z4b", "space", 22270), "job-collector-x2z4b.space:22270"},
		"pod of a URL":       {PodOfURL("job-collector-x2z4b.space:22270"), "job-collector-x2z4b"},
		"worker":             {WorkerPod("job", "my-task", 3), "job-my-task-3"},
		"worker service":     {WorkerService("job"), "di-job"},
		"worker address":     {WorkerFQDN("job-learner-0", "job", "space", DefaultDomain), "job-learner-0.di-job.space.svc.cluster.local"},
		"job id":             {JobID("space", "job", Generation(status)), "space.job.5"},
		"addresses of tasks": {TaskNodesVariable("my-task"), "DI_MY_TASK_NODES"},
		"named task":         {TaskName(&v2alpha1.Task{Name: "mine", Type: "learner"}), "mine"},
		"task without name":  {TaskName(&v2alpha1.Task{Type: "learner"}), "learner"},
	}
	for name, tc := range tests {
		t.Run(name, func(t *testing.T) {
			expect.Equal(t, "result", tc.want, tc.got)
		})
	}
}

func TestASuffixFollowsFromItsParts(t *testing.T) {
	first, again := Suffix("a", "b"), Suffix("a", "b")
	if !regexp.MustCompile(`^[a-z0-9]{5}$`).MatchString(first) {
		t.Errorf("suffix is %q, want five characters of a host name", first)
	}
	expect.Equal(t, fmt.Sprintf("the same parts give %q, then", first), first, again)
	if Suffix("ab") == first {
		t.Error("parts that only join to the same text give the same suffix")
	}
}

func TestAnAggregatorRemembersItsUnit(t *testing.T) {
	want := Unit{GPUs: []int32{8, 2}, Port: 22271}
	got, told := UnitOf(want.Annotations())
	if diff := cmp.Diff(want, got); diff != "" || !told {
		t.Errorf("unit (-want +got), told %t:\n%s", told, diff)
	}
	for name, annotations := range map[string]map[string]string{
		"one of an earlier release": {AnnotationSlot: "a"},
		"one without GPUs":          {AnnotationDDPPort: "22271"},
		"one whose port is none":    {AnnotationDDPPort: "port", AnnotationDDPGPUs: "2"},
		"one whose GPUs are none":   {AnnotationDDPPort: "22271", AnnotationDDPGPUs: "2,"},
	} {
		if unit, told := UnitOf(annotations); told {
			t.Errorf("%s tells of %+v", name, unit)
		}
	}
}

func TestAnAggregatorConfigOfAnotherNamespaceNeedsAGrant(t *testing.T) {
	for name, tc := range map[string]struct {
		shared     string
		isClusters bool
		jobs       string
		want       bool
	}{
		"its own namespace":           {jobs: "owner", want: true},
		"another namespace":           {jobs: "other"},
		"the cluster's":               {jobs: "other", isClusters: true, want: true},
		"shared with it":              {shared: "some, other", jobs: "other", want: true},
		"shared with somebody else":   {shared: "another", jobs: "other"},
		"shared with all":             {shared: "*", jobs: "other", want: true},
		"a pattern, which is no name": {shared: "oth*", jobs: "other"},
	} {
		t.Run(name, func(t *testing.T) {
			config := &v2alpha1.AggregatorConfig{ObjectMeta: metav1.ObjectMeta{
				Namespace: "owner", Annotations: map[string]string{AnnotationSharedWith: tc.shared},
			}}
			expect.Equal(t, "result", tc.want, MayNameAggregatorConfig(tc.jobs, config, tc.isClusters))
		})
	}
}
