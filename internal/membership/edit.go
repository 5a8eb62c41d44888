// Copyright The DI Orchestrator Authors.
// SPDX-License-Identifier: Apache-2.0

package membership

import (
	"fmt"

	"opendilab.org/di-orchestrator/apis/v2alpha1"
	"opendilab.org/di-orchestrator/internal/names"
)

// Edit is a change of a job's members that one request asks for: a Grow, a
// Shrink or a Replace. It is a value: the same edit of the same list has the
// same result, so that it can be applied again after a conflict.
type Edit interface {
	// Apply edits the list, and returns the members that the request is answered
	// with. After an error the list must not be written.
	Apply(spec *v2alpha1.MembershipSpec, status *v2alpha1.MembershipStatus) (Answer, error)
}

// Answer is what an applied edit is answered with.
type Answer struct {
	// Members are the members that were added, removed or replaced.
	Members []v2alpha1.Member
	// OnlyDDPLearners is whether the URLs of their DDP learners are asked for, and
	// not their own.
	OnlyDDPLearners bool
}

// URLs returns the URLs of the answer; neither list is nil.
func (a Answer) URLs(at Endpoints, status *v2alpha1.MembershipStatus) URLs {
	if !a.OnlyDDPLearners {
		return at.URLs(a.Members, status)
	}
	urls := URLs{Collectors: []string{}, Learners: []string{}}
	for i := range a.Members {
		member := &a.Members[i]
		urls.Learners = append(urls.Learners, at.DDPURLs(member, PodName(at.Job, member, Losses(status, member.Slot)))...)
	}
	return urls
}

// Grow adds members.
type Grow struct {
	// Job is the name of the job.
	Job string
	// Coordinator is the coordinator's container that asks; empty for a user. The
	// first request of a restarted coordinator repeats what its predecessor asked
	// for: it adds only what is missing, and the URLs of lost pods are withdrawn.
	// A user always asks for more, whether or not the coordinator was restarted.
	Coordinator string
	// Demands are the members to add.
	Demands []Demand
	// MaxMembers bounds the members of the job.
	MaxMembers int32
	// Random yields the suffixes of new names.
	Random Random
}

// Apply adds the members.
func (g Grow) Apply(spec *v2alpha1.MembershipSpec, status *v2alpha1.MembershipStatus) (Answer, error) {
	add := Add
	if g.Coordinator != "" {
		if IsRestarted(spec, g.Coordinator) {
			add = Complete
			Forget(spec, status)
		}
		spec.CoordinatorInstance = g.Coordinator
	}
	var answer Answer
	for _, demand := range g.Demands {
		added, err := add(g.Job, spec, demand, g.Random)
		if err != nil {
			return Answer{}, err
		}
		answer.Members = append(answer.Members, added...)
	}
	return answer, CheckTotal(int64(len(spec.Members)), int64(g.MaxMembers))
}

// CheckTotal refuses more replicas than a job may have.
func CheckTotal(total, most int64) error {
	if total > most {
		return fmt.Errorf("replicas: the job would have %d replicas, more than the %d that one may have", total, most)
	}
	return nil
}

// Shrink removes the newest members.
type Shrink struct {
	// Job is the name of the job.
	Job string
	// Collectors and Learners are how many of them to remove.
	Collectors, Learners int32
}

// Apply removes the members.
func (s Shrink) Apply(spec *v2alpha1.MembershipSpec, status *v2alpha1.MembershipStatus) (Answer, error) {
	collectors := Remove(s.Job, spec, status, v2alpha1.TaskTypeCollector, s.Collectors)
	return Answer{Members: append(collectors, Remove(s.Job, spec, status, v2alpha1.TaskTypeLearner, s.Learners)...)}, nil
}

// Replace replaces members that are reported as failed.
type Replace struct {
	// Job is the name of the job.
	Job string
	// By is the role that reports. An aggregator is answered with the URLs of DDP
	// learners, a coordinator with those of aggregators.
	By names.ReplicaType
	// Pods are the names of the failed pods.
	Pods []string
}

// Apply replaces the members.
func (r Replace) Apply(spec *v2alpha1.MembershipSpec, status *v2alpha1.MembershipStatus) (Answer, error) {
	replaced, err := ReportFailed(r.Job, spec, status, r.Pods)
	return Answer{Members: replaced, OnlyDDPLearners: r.By != names.ReplicaTypeCoordinator}, err
}
