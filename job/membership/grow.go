// Copyright The DI Orchestrator Authors.
// SPDX-License-Identifier: Apache-2.0

package membership

import (
	"errors"
	"fmt"
	"slices"

	"github.com/dustin/go-humanize/english"

	"opendilab.org/di-orchestrator/apis/v2alpha1"
	"opendilab.org/di-orchestrator/internal/limits"
	"opendilab.org/di-orchestrator/internal/names"
)

// MaxMembers bounds the members of one job, so that its Membership fits into etcd.
const MaxMembers = limits.Members

// Random returns a random string of a length in the alphabet of Kubernetes'
// generated names, as k8s.io/apimachinery/pkg/util/rand.String does.
type Random func(length int) string

// Demand is a number of replicas of one task, each with the same resources.
type Demand struct {
	// Task is the role of the replicas, collector or learner.
	Task v2alpha1.TaskType
	// Replicas is the requested number of replicas.
	Replicas int32
	// Resources are the requested resources, which override those of the template.
	Resources v2alpha1.MemberResources
	// DDPGPUs are the GPUs of each DDP learner pod of a learner of several GPUs.
	DDPGPUs []int32
}

// Grow adds members.
type Grow struct {
	// Job is the name of the job.
	Job string
	// Coordinator is the requesting coordinator instance; empty for a user. The first request of a
	// restarted coordinator repeats what its predecessor requested. It adds only missing members,
	// gets all members as its answer, and withdraws the URLs of lost pods. A user's request always
	// adds members, whether the coordinator was restarted or not.
	Coordinator string
	// Demands are the members to add.
	Demands []Demand
	// IsSizedByRule is set if a ratio rule sets the number of collectors. Then only the first request of
	// a job's first coordinator adds any.
	IsSizedByRule bool
	// MaxMembers bounds the members of the job.
	MaxMembers int32
	// Random yields the suffixes of new names.
	Random Random
}

// ErrSizedByRule is the error of a request that changes the number of collectors that a ratio rule sets.
var ErrSizedByRule = errors.New("collectors: the ratio rule in spec.autoscale.ratio sets their number: request none, bound it by " +
	"minReplicas and maxReplicas, or set driver: Coordinator and follow the advice")

// Apply adds the members.
func (g Grow) Apply(spec *v2alpha1.MembershipSpec, status *v2alpha1.MembershipStatus) (Answer, error) {
	isFirst, isRestarted := spec.CoordinatorInstance == "" && g.Coordinator != "", false
	if g.Coordinator != "" {
		if isRestarted = IsRestarted(spec, g.Coordinator); isRestarted {
			withdrawLost(spec, status)
		}
		spec.CoordinatorInstance = g.Coordinator
	}
	var answer Answer
	for _, demand := range g.Demands {
		if isRestarted {
			present := membersOf(spec, demand.Task)
			answer.Members = append(answer.Members, present...)
			demand.Replicas = max(0, demand.Replicas-int32(len(present)))
		}
		if g.IsSizedByRule && !isFirst && demand.Task == v2alpha1.TaskTypeCollector {
			if !isRestarted && demand.Replicas > 0 {
				return Answer{}, ErrSizedByRule
			}
			demand.Replicas = 0
		}
		added, err := g.add(spec, demand)
		if err != nil {
			return Answer{}, err
		}
		answer.Members = append(answer.Members, added...)
	}
	return answer, CheckTotal(int64(len(spec.Members)), int64(g.MaxMembers))
}

// IsRestarted reports whether a coordinator instance differs from the last that requested replicas.
func IsRestarted(spec *v2alpha1.MembershipSpec, instance string) bool {
	return spec.CoordinatorInstance != "" && spec.CoordinatorInstance != instance
}

// CheckTotal rejects more replicas than a job may have.
func CheckTotal(total, most int64) error {
	if total > most {
		return fmt.Errorf("replicas: the job would have %d replicas, more than the %d that one may have", total, most)
	}
	return nil
}

// add appends the members of a demand, each with a slot and a pod name that no
// other member has.
func (g Grow) add(spec *v2alpha1.MembershipSpec, demand Demand) ([]v2alpha1.Member, error) {
	if total := len(spec.Members) + int(demand.Replicas); total > MaxMembers {
		return nil, fmt.Errorf("%s more would make %d replicas: a job may have at most %d",
			english.Plural(int(demand.Replicas), string(demand.Task), ""), total, MaxMembers)
	}
	taken := make(map[string]bool, len(spec.Members)+int(demand.Replicas))
	for i := range spec.Members {
		taken[spec.Members[i].Slot] = true
		taken[spec.Members[i].PodName] = true
	}
	added := make([]v2alpha1.Member, 0, demand.Replicas)
	for range demand.Replicas {
		added = append(added, g.newMember(demand, taken))
	}
	spec.Members = append(spec.Members, added...)
	return added, nil
}

// membersOf returns the members of a task, oldest first.
func membersOf(spec *v2alpha1.MembershipSpec, task v2alpha1.TaskType) []v2alpha1.Member {
	var found []v2alpha1.Member
	for i := range spec.Members {
		if spec.Members[i].Task == task {
			found = append(found, spec.Members[i])
		}
	}
	return found
}

func (g Grow) newMember(demand Demand, taken map[string]bool) v2alpha1.Member {
	member := v2alpha1.Member{
		Task:      demand.Task,
		Resources: *demand.Resources.DeepCopy(),
		DDPGPUs:   slices.Clone(demand.DDPGPUs),
	}
	role := Role(&member)
	for {
		suffix := g.Random(names.SuffixLength)
		member.Slot = string(role) + "-" + suffix
		member.PodName = names.ReplicaPod(g.Job, role, suffix)
		if !taken[member.Slot] && !taken[member.PodName] {
			break
		}
	}
	taken[member.Slot], taken[member.PodName] = true, true
	return member
}
