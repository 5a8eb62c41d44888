// Copyright The DI Orchestrator Authors.
// SPDX-License-Identifier: Apache-2.0

package server

import (
	"context"
	"errors"
	"fmt"
	"net/http"

	"github.com/gin-gonic/gin"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"

	"opendilab.org/di-orchestrator/apis/v2alpha1"
	"opendilab.org/di-orchestrator/internal/membership"
	"opendilab.org/di-orchestrator/internal/names"
)

const (
	messageCreate   = "successfully create replicas"
	messageDelete   = "successfully delete replicas"
	messageRecreate = "successfully recreate replicas"
)

func (f *callerFields) key() types.NamespacedName {
	return types.NamespacedName{Namespace: f.Namespace, Name: f.Coordinator}
}

// asking reads of a body who asks, and tells why its sender may not ask for that
// one.
func (s *Server) asking(c *gin.Context, wanted permission) (*rawBody, callerFields, error) {
	raw, by, err := readCaller(c)
	if err != nil {
		return nil, by, err
	}
	return raw, by, s.gate.approach(c.Request.Context(), podTarget(by.key()), wanted)
}

// createReplicas answers POST /replicas.
func (s *Server) createReplicas(c *gin.Context) error {
	wanted := permission{"create", resourceReplicas}
	raw, fields, err := s.asking(c, wanted)
	if err != nil {
		return err
	}
	body, err := raw.replicas(fields)
	if err != nil {
		return err
	}
	if err := s.options.Limits.checkDemand(body); err != nil {
		return err
	}
	ctx := c.Request.Context()
	by, err := s.liveCaller(ctx, body.key(), wanted, names.ReplicaTypeCoordinator)
	if err != nil {
		return err
	}
	demands, err := s.demands(ctx, by.job, body)
	if err != nil {
		return err
	}
	grow := s.grow
	if c.GetHeader(names.HeaderCaller) == names.CallerUser {
		grow = s.growForUser
	}
	return s.done(c, by, messageCreate, body, func(list *v2alpha1.Membership, place *place) (membership.URLs, error) {
		members, err := grow(by, list, demands)
		return place.URLs(members, &list.Status), err
	})
}

// deleteReplicas answers DELETE /replicas.
func (s *Server) deleteReplicas(c *gin.Context) error {
	wanted := permission{"delete", resourceReplicas}
	raw, fields, err := s.asking(c, wanted)
	if err != nil {
		return err
	}
	body, err := raw.replicas(fields)
	if err != nil {
		return err
	}
	by, err := s.liveCaller(c.Request.Context(), body.key(), wanted, names.ReplicaTypeCoordinator)
	if err != nil {
		return err
	}
	return s.done(c, by, messageDelete, body, func(list *v2alpha1.Membership, place *place) (membership.URLs, error) {
		remove := func(task v2alpha1.TaskType, replicas int32) []v2alpha1.Member {
			return membership.Remove(by.job.Name, &list.Spec, &list.Status, task, replicas)
		}
		removed := append(remove(v2alpha1.TaskTypeCollector, body.Collectors.Replicas), remove(v2alpha1.TaskTypeLearner, body.Learners.Replicas)...)
		return place.URLs(removed, &list.Status), nil
	})
}

// replaceReplicas answers POST /replicas/failed, by a coordinator or by an
// aggregator, which reports its DDP learners.
func (s *Server) replaceReplicas(c *gin.Context) error {
	wanted := permission{"update", resourceReplicas}
	raw, fields, err := s.asking(c, wanted)
	if err != nil {
		return err
	}
	body, err := raw.failed(fields)
	if err != nil {
		return err
	}
	by, err := s.liveCaller(c.Request.Context(), body.key(), wanted, names.ReplicaTypeCoordinator, names.ReplicaTypeAggregator)
	if err != nil {
		return err
	}
	return s.done(c, by, messageRecreate, body, func(list *v2alpha1.Membership, place *place) (membership.URLs, error) {
		pods := append(append([]string{}, body.Collectors...), body.Learners...)
		replaced, err := membership.ReportFailed(by.job.Name, &list.Spec, &list.Status, pods)
		var foreign *membership.ForeignNameError
		if errors.As(err, &foreign) {
			return membership.URLs{}, failure(KindNotFound, "%v", err)
		}
		if err != nil {
			return membership.URLs{}, err
		}
		return replacements(by, list, place, replaced), nil
	})
}

// replacements returns the URLs of what replaces reported replicas: an
// aggregator is told of DDP learners, a coordinator of aggregators.
func replacements(by *caller, list *v2alpha1.Membership, place *place, replaced []v2alpha1.Member) membership.URLs {
	if by.role() == names.ReplicaTypeCoordinator {
		return place.URLs(replaced, &list.Status)
	}
	urls := membership.URLs{Collectors: []string{}, Learners: []string{}}
	for i := range replaced {
		member := &replaced[i]
		pod := membership.PodName(by.job.Name, member, membership.Losses(&list.Status, member.Slot))
		urls.Learners = append(urls.Learners, place.DDPURLs(member, pod)...)
	}
	return urls
}

// done makes an edit for a caller and answers with the URLs it returns.
func (s *Server) done(c *gin.Context, by *caller, message string, body any,
	edit func(*v2alpha1.Membership, *place) (membership.URLs, error),
) error {
	ctx := c.Request.Context()
	request, err := identify(by, message, c.GetHeader(names.HeaderIdempotencyKey), body)
	if err != nil {
		return err
	}
	request.Removal = c.Request.Method == http.MethodDelete
	request.Confirmed = request.Removal
	place, err := s.placeOf(ctx, by.job)
	if err != nil {
		return err
	}
	if err := s.pace.wait(ctx, string(by.job.UID)); err != nil {
		return err
	}
	urls, err := s.change(ctx, by, request, func(list *v2alpha1.Membership) (membership.URLs, error) {
		urls, err := edit(list, place)
		return urls, errors.Join(err, place.err())
	})
	if err != nil {
		return err
	}
	s.audit(ctx, message, "collectors", len(urls.Collectors), "learners", len(urls.Learners))
	return succeed(c, message, answer(by.job, by.pod.Name, urls))
}

// grow adds members as the coordinator demands. The first request of a
// restarted coordinator asks for what its predecessor asked for: only what is
// missing is added, and what was lost before is listed no more.
func (s *Server) grow(by *caller, list *v2alpha1.Membership, demands []membership.Demand) ([]v2alpha1.Member, error) {
	add, spec := membership.Add, &list.Spec
	if membership.IsRestarted(spec, by.container()) {
		add = membership.Complete
		membership.Forget(spec, &list.Status)
	}
	spec.CoordinatorInstance = by.container()
	return s.addMembers(by, spec, demands, add)
}

// growForUser adds members as a user demands, who asks for more of them however
// often the coordinator was restarted. What the coordinator's own next request
// means stays as it is.
func (s *Server) growForUser(by *caller, list *v2alpha1.Membership, demands []membership.Demand) ([]v2alpha1.Member, error) {
	return s.addMembers(by, &list.Spec, demands, membership.Add)
}

// addMembers adds members in the given way.
func (s *Server) addMembers(by *caller, spec *v2alpha1.MembershipSpec, demands []membership.Demand,
	add func(string, *v2alpha1.MembershipSpec, membership.Demand, membership.Random) ([]v2alpha1.Member, error),
) ([]v2alpha1.Member, error) {
	var members []v2alpha1.Member
	for _, demand := range demands {
		added, err := add(by.job.Name, spec, demand, s.options.Random)
		if err != nil {
			return nil, failure(KindInvalid, "%v", err)
		}
		members = append(members, added...)
	}
	return members, s.options.Limits.checkTotal("replicas", int64(len(spec.Members)))
}

// demands returns what a request asks for, by task.
func (s *Server) demands(ctx context.Context, job *v2alpha1.DIJob, body *replicasBody) ([]membership.Demand, error) {
	demands := []membership.Demand{
		{Task: v2alpha1.TaskTypeCollector, Replicas: body.Collectors.Replicas, Resources: body.Collectors.resources()},
		{Task: v2alpha1.TaskTypeLearner, Replicas: body.Learners.Replicas, Resources: body.Learners.resources()},
	}
	for i := range demands {
		demand := &demands[i]
		if demand.Replicas > 0 && taskOf(job, demand.Task) == nil {
			return nil, failure(KindInvalid, "job %s/%s has no %s template", job.Namespace, job.Name, demand.Task)
		}
		if demand.Replicas == 0 || demand.Task != v2alpha1.TaskTypeLearner {
			continue
		}
		cut, err := s.cut(ctx, job, demand.Resources)
		if err != nil {
			return nil, err
		}
		demand.DDPGPUs = cut
	}
	return demands, nil
}

// cut returns the GPUs of each DDP learner pod of a learner; none where it is
// no learner of several GPUs.
func (s *Server) cut(ctx context.Context, job *v2alpha1.DIJob, asked v2alpha1.MemberResources) ([]int32, error) {
	template, err := s.template(ctx, job, names.ReplicaTypeLearner)
	if err != nil {
		return nil, err
	}
	gpus := membership.LearnerGPUs(asked, template, s.options.GPUResource)
	switch {
	case gpus <= 1:
		return nil, nil
	case gpus > maxGPUs:
		return nil, failure(KindInvalid, "the learner template's %s: %d is more than %d", s.options.GPUResource, gpus, maxGPUs)
	}
	config, err := s.aggregatorConfig(ctx, job, s.find)
	if err != nil {
		return nil, err
	}
	if config == nil {
		return nil, failure(KindNotFound, "AggregatorConfig %q not found: a learner of %d GPUs needs it",
			s.aggregatorConfigKey(job), gpus)
	}
	usual, err := s.usualGPUs(ctx)
	return membership.CutGPUs(gpus, usual), err
}

// usualGPUs returns the usual number of GPUs of the cluster's nodes.
func (s *Server) usualGPUs(ctx context.Context) (int32, error) {
	var nodes corev1.NodeList
	if err := s.store.list(ctx, &nodes); err != nil {
		return 0, fmt.Errorf("listing nodes: %w", err)
	}
	counts := make([]int32, 0, len(nodes.Items))
	for i := range nodes.Items {
		counts = append(counts, membership.NodeGPUs(nodes.Items[i].Status.Allocatable, s.options.GPUResource))
	}
	return membership.UsualGPUs(counts), nil
}
