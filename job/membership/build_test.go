// Copyright The DI Orchestrator Authors.
// SPDX-License-Identifier: Apache-2.0

package membership_test

import (
	"fmt"
	"testing"

	"k8s.io/apimachinery/pkg/api/resource"

	"opendilab.org/di-orchestrator/apis/v2alpha1"
	"opendilab.org/di-orchestrator/internal/names"
	"opendilab.org/di-orchestrator/job/membership"
	"opendilab.org/di-orchestrator/test/testkit/expect"
)

const (
	job       = "cartpole"
	collector = v2alpha1.TaskTypeCollector
	learner   = v2alpha1.TaskTypeLearner
)

// counting returns suffixes that count up.
func counting() membership.Random {
	next := 0
	return func(length int) string {
		next++
		return fmt.Sprintf("%0*d", length, next)
	}
}

// members returns a list with a member per letter: c a collector, l a plain
// learner, u a learner of 10 GPUs. Their suffixes count up from 00001.
func members(t *testing.T, kinds string) *v2alpha1.MembershipSpec {
	t.Helper()
	random := counting()
	spec := &v2alpha1.MembershipSpec{}
	for _, kind := range kinds {
		demand := membership.Demand{Task: learner, Replicas: 1}
		switch kind {
		case 'c':
			demand.Task = collector
		case 'u':
			demand.DDPGPUs = []int32{8, 2}
		}
		apply(t, grow(random, demand), spec)
	}
	return spec
}

// grow returns an edit of a user that adds members.
func grow(random membership.Random, demands ...membership.Demand) membership.Grow {
	return membership.Grow{Job: job, Demands: demands, MaxMembers: membership.MaxMembers, Random: random}
}

// apply applies an edit to a list without losses, and returns the members in its answer.
func apply(t *testing.T, edit membership.Edit, spec *v2alpha1.MembershipSpec) []v2alpha1.Member {
	t.Helper()
	answer, err := edit.Apply(spec, &v2alpha1.MembershipStatus{})
	expect.NoError(t, err)
	return answer.Members
}

func podNames(members []v2alpha1.Member) []string {
	var pods []string
	for i := range members {
		pods = append(pods, members[i].PodName)
	}
	return pods
}

// place serves every role on its default port.
func place() membership.Endpoints {
	return membership.Endpoints{
		Namespace: "default",
		Job:       job,
		Ports:     func(_ string, role names.ReplicaType) int32 { return names.DefaultPort(role) },
	}
}

func quantity(text string) *resource.Quantity {
	parsed := resource.MustParse(text)
	return &parsed
}
