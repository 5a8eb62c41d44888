// Copyright The DI Orchestrator Authors.
// SPDX-License-Identifier: Apache-2.0

package server

import (
	"cmp"
	"context"
	"slices"

	"github.com/gin-gonic/gin"
	corev1 "k8s.io/api/core/v1"

	"opendilab.org/di-orchestrator/apis/v2alpha1"
	"opendilab.org/di-orchestrator/internal/names"
	"opendilab.org/di-orchestrator/job/lifecycle/handshake"
	"opendilab.org/di-orchestrator/job/lifecycle/ranks"
	"opendilab.org/di-orchestrator/job/lifecycle/state"
	"opendilab.org/di-orchestrator/job/podstate"
	"opendilab.org/di-orchestrator/server/auth"
	"opendilab.org/di-orchestrator/server/store"
	"opendilab.org/di-orchestrator/server/wire"
)

const messageMembership = "successfully get membership"

// memberships answers reads and watches of memberships.
type memberships struct {
	access   *auth.Auth
	store    *store.Store
	reads    *readQueue
	watchers *watchers
}

// get answers GET membership of a worker-led job. A watch waits until the version is another
// one than the caller knows.
func (m *memberships) get(c *gin.Context) error {
	wanted, err := wire.ReadWatch(c.Request.URL.RawQuery)
	if err != nil {
		return err
	}
	job, err := readStateful(c, m.access, auth.Replicas("get"))
	if err != nil {
		return err
	}
	return m.answer(c, job, wanted)
}

// getOfCoordinator answers GET /membership.
func (m *memberships) getOfCoordinator(c *gin.Context) error {
	coordinator, wanted, err := wire.ReadCoordinatorWatch(c.Request.URL.RawQuery)
	if err != nil {
		return err
	}
	job, err := jobOfCoordinator(c.Request.Context(), m.access, coordinator, auth.Replicas("get"))
	if err != nil {
		return err
	}
	if err := checkStateful(job); err != nil {
		return err
	}
	return m.answer(c, job, wanted)
}

// answer answers a GET of the membership of a job.
func (m *memberships) answer(c *gin.Context, job *v2alpha1.DIJob, wanted wire.Watch) error {
	ctx := c.Request.Context()
	if wanted.IsWatch {
		var err error
		job, err = m.watchers.await(ctx, job, func(list *v2alpha1.PublishedMembership) bool { return list.Version != wanted.Version })
		if err != nil {
			return err
		}
	}
	isKnown := wanted.IsWatch && store.Published(job).Version == wanted.Version
	found := newRead(ctx, job, func(ctx context.Context) (any, error) { return m.list(ctx, job, isKnown) })
	found.message = messageMembership
	return m.reads.answer(c, found)
}

// list lists the replicas of a job by rank; none if the caller knows the version.
func (m *memberships) list(ctx context.Context, job *v2alpha1.DIJob, isKnown bool) (*wire.Membership, error) {
	list := store.Published(job)
	answer := &wire.Membership{Version: list.Version}
	if isKnown {
		return answer, nil
	}
	pods, err := m.store.PodsOf(ctx, job)
	if err != nil {
		return nil, err
	}
	answer.Members = []wire.Member{}
	listed, leaving := handshake.ReadList(list), ranks.Read(list.Leaving)
	for _, pod := range pods {
		rank := podstate.Rank(pod)
		if rank < 0 || !podstate.Active(pod) || state.IsStale(pod, &job.Status) {
			continue
		}
		member := describeMember(job, pod)
		switch {
		case pod.Status.Phase != corev1.PodRunning || !listed.Has(pod):
		case leaving.Has(rank):
			member.State = wire.MemberLeaving
		default:
			member.State = wire.MemberActive
		}
		answer.Members = append(answer.Members, member)
	}
	slices.SortFunc(answer.Members, func(a, b wire.Member) int {
		return cmp.Or(cmp.Compare(a.Rank, b.Rank), cmp.Compare(a.Name, b.Name))
	})
	return answer, nil
}

// describeMember describes a joining replica.
func describeMember(job *v2alpha1.DIJob, pod *corev1.Pod) wire.Member {
	member := wire.Member{Name: pod.Name, Task: pod.Labels[names.LabelTaskName], Rank: podstate.Rank(pod), Address: address(pod), State: wire.MemberJoining}
	if job.Spec.Lifecycle != v2alpha1.LifecycleCoordinatorLed {
		member.Index, _ = ranks.IndexOf(job.Name, member.Task, pod.Name)
		return member
	}
	member.Index = member.Rank
	if task := handshake.TaskOf(job, pod); task >= 0 {
		member.Task = names.TaskName(&job.Spec.Tasks[task])
	}
	if member.Address != "" {
		member.Address = names.ReplicaURL(pod.Name, pod.Namespace, names.DIPort(&pod.Spec, store.RoleOf(pod)))
	}
	return member
}

// membershipVersion returns the version of a job's membership; 0 for none.
func membershipVersion(job *v2alpha1.DIJob) int64 {
	if list := store.Published(job); list != nil {
		return list.Version
	}
	return 0
}
