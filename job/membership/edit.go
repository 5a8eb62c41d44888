// Copyright The DI Orchestrator Authors.
// SPDX-License-Identifier: Apache-2.0

package membership

import "opendilab.org/di-orchestrator/apis/v2alpha1"

// Edit is a change of a job's members that one request makes: a Grow, a Shrink or a Replace. It is
// a value and can be applied again after a conflict.
type Edit interface {
	// Apply edits the list, and returns the members in the answer to the request. After an error
	// the list must not be written.
	Apply(spec *v2alpha1.MembershipSpec, status *v2alpha1.MembershipStatus) (Answer, error)
}

// Answer is the answer to an applied edit.
type Answer struct {
	// Members are the members that were added, removed or replaced.
	Members []v2alpha1.Member
	// OnlyDDPLearners is set if the answer has the URLs of the members' DDP learners instead of
	// their own.
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
