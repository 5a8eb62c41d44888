// Copyright The DI Orchestrator Authors.
// SPDX-License-Identifier: Apache-2.0

package membership

import (
	"fmt"
	"slices"

	"opendilab.org/di-orchestrator/apis/v2alpha1"
	"opendilab.org/di-orchestrator/internal/limits"
	"opendilab.org/di-orchestrator/internal/names"
)

// MaxMembers bounds the members of one job, so that its Membership stays
// within what the API server stores.
const MaxMembers = limits.Members

// Random returns a random string of that many characters in the alphabet of
// Kubernetes' generated names, as k8s.io/apimachinery/pkg/util/rand.String does.
type Random func(length int) string

// Demand is a number of replicas of one task, each with the same resources.
type Demand struct {
	// Task is the role of the replicas, collector or learner.
	Task v2alpha1.TaskType
	// Replicas is how many are asked for.
	Replicas int32
	// Resources are what was asked for beyond the template.
	Resources v2alpha1.MemberResources
	// DDPGPUs are the GPUs of each DDP learner pod, where a replica is a
	// learner of several GPUs.
	DDPGPUs []int32
}

// Add appends as many new members as the demand asks for, each with a slot and
// a pod name that no other member has, and returns them.
func Add(job string, spec *v2alpha1.MembershipSpec, demand Demand, random Random) ([]v2alpha1.Member, error) {
	if total := len(spec.Members) + int(demand.Replicas); total > MaxMembers {
		return nil, fmt.Errorf("%d %ss more would make %d replicas: a job may have at most %d",
			demand.Replicas, demand.Task, total, MaxMembers)
	}
	taken := make(map[string]bool, len(spec.Members)+int(demand.Replicas))
	for i := range spec.Members {
		taken[spec.Members[i].Slot] = true
		taken[spec.Members[i].PodName] = true
	}
	added := make([]v2alpha1.Member, 0, demand.Replicas)
	for range demand.Replicas {
		added = append(added, newMember(job, demand, taken, random))
	}
	spec.Members = append(spec.Members, added...)
	return added, nil
}

// Present returns the members of a task, oldest first.
func Present(spec *v2alpha1.MembershipSpec, task v2alpha1.TaskType) []v2alpha1.Member {
	var present []v2alpha1.Member
	for i := range spec.Members {
		if spec.Members[i].Task == task {
			present = append(present, spec.Members[i])
		}
	}
	return present
}

// Complete adds only what is missing to the number that the demand asks for,
// and returns all members of the task. It answers a coordinator that asks
// again after it was restarted, and does not know what it has.
func Complete(job string, spec *v2alpha1.MembershipSpec, demand Demand, random Random) ([]v2alpha1.Member, error) {
	present := Present(spec, demand.Task)
	demand.Replicas = max(0, demand.Replicas-int32(len(present)))
	added, err := Add(job, spec, demand, random)
	if err != nil {
		return nil, err
	}
	return append(present, added...), nil
}

func newMember(job string, demand Demand, taken map[string]bool, random Random) v2alpha1.Member {
	member := v2alpha1.Member{
		Task:      demand.Task,
		Resources: *demand.Resources.DeepCopy(),
		DDPGPUs:   slices.Clone(demand.DDPGPUs),
	}
	role := Role(&member)
	for {
		suffix := random(names.SuffixLength)
		member.Slot = string(role) + "-" + suffix
		member.PodName = names.ReplicaPod(job, role, suffix)
		if !taken[member.Slot] && !taken[member.PodName] {
			break
		}
	}
	taken[member.Slot], taken[member.PodName] = true, true
	return member
}
