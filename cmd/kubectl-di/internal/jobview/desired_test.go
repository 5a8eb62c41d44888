// Copyright The DI Orchestrator Authors.
// SPDX-License-Identifier: Apache-2.0

package jobview

import (
	"slices"
	"testing"

	"k8s.io/utils/ptr"

	"opendilab.org/di-orchestrator/apis/v2alpha1"
)

func TestTheDesiredPodsAreThoseThatTheProgramsMaintain(t *testing.T) {
	t.Parallel()
	tasks := []v2alpha1.Task{
		{Type: v2alpha1.TaskTypeLearner, Name: "learner", Replicas: ptr.To[int32](1)},
		{Type: v2alpha1.TaskTypeCollector, Name: "collector", Replicas: ptr.To[int32](2)},
	}
	scaling := &v2alpha1.ScalingStatus{SpecReplicas: map[string]int32{"learner": 1, "collector": 2}, LastReplicas: 3}
	led := v2alpha1.DIJobSpec{Lifecycle: v2alpha1.LifecycleCoordinatorLed, Tasks: []v2alpha1.Task{
		{Type: v2alpha1.TaskTypeCoordinator}, {Type: v2alpha1.TaskTypeCollector}, {Type: v2alpha1.TaskTypeLearner},
	}}
	members := func(uid string, members ...v2alpha1.Member) *v2alpha1.Membership {
		list := &v2alpha1.Membership{}
		list.Spec.JobUID, list.Spec.Members = "uid", members
		if uid != "" {
			list.Spec.JobUID = "other"
		}
		return list
	}
	collector := v2alpha1.Member{Task: v2alpha1.TaskTypeCollector}
	for name, each := range map[string]struct {
		spec        v2alpha1.DIJobSpec
		status      v2alpha1.DIJobStatus
		list        *v2alpha1.Membership
		want        []int
		unread      bool
		aggregators int
	}{
		"as the spec says":          {spec: v2alpha1.DIJobSpec{Tasks: tasks}, want: []int{1, 2}},
		"grown through di-server":   {spec: v2alpha1.DIJobSpec{Tasks: tasks}, status: v2alpha1.DIJobStatus{Replicas: 5, Scaling: scaling}, want: []int{1, 4}},
		"preemptible, not placed":   {spec: v2alpha1.DIJobSpec{Tasks: tasks, Preemptible: true}, want: []int{1, 2}},
		"preemptible, as placed":    {spec: v2alpha1.DIJobSpec{Tasks: tasks, Preemptible: true}, status: v2alpha1.DIJobStatus{Allocation: []string{"a", "a", "b", "b"}}, want: []int{1, 3}},
		"finished":                  {spec: v2alpha1.DIJobSpec{Tasks: tasks}, status: v2alpha1.DIJobStatus{Phase: v2alpha1.JobFailed, Replicas: 3}, want: []int{0, 0}},
		"led, finished":             {spec: led, status: v2alpha1.DIJobStatus{Phase: v2alpha1.JobSucceeded}, want: []int{0, 0, 0}},
		"led, not read":             {spec: led, unread: true, want: []int{1, unknown, unknown}, aggregators: unknown},
		"led, no Membership":        {spec: led, want: []int{1, 0, 0}},
		"led, that of another job":  {spec: led, list: members("other", collector), want: []int{1, 0, 0}},
		"led, nothing requested":    {spec: led, list: members(""), want: []int{1, 0, 0}},
		"led, with collectors":      {spec: led, list: members("", collector, collector), want: []int{1, 2, 0}},
		"led, a learner of one GPU": {spec: led, list: members("", v2alpha1.Member{Task: v2alpha1.TaskTypeLearner}), want: []int{1, 0, 1}},
		"led, a learner of several": {spec: led, list: members("", collector, v2alpha1.Member{Task: v2alpha1.TaskTypeLearner, DDPGPUs: []int32{2, 2}}), want: []int{1, 1, 2}, aggregators: 1},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			job := &v2alpha1.DIJob{Spec: each.spec, Status: each.status}
			job.UID = "uid"
			got := desired(job, Members{List: each.list, IsRead: !each.unread})
			if !slices.Equal(got.tasks, each.want) || got.aggregators != each.aggregators {
				t.Errorf("got %v, want %v and %d aggregators", got, each.want, each.aggregators)
			}
		})
	}
}
