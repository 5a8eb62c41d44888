// Copyright The DI Orchestrator Authors.
// SPDX-License-Identifier: Apache-2.0

package server

import (
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"slices"

	"github.com/gin-gonic/gin"
	corev1 "k8s.io/api/core/v1"

	"opendilab.org/di-orchestrator/apis/v2alpha1"
	"opendilab.org/di-orchestrator/internal/membership"
	"opendilab.org/di-orchestrator/internal/names"
	"opendilab.org/di-orchestrator/server/auth"
	"opendilab.org/di-orchestrator/server/failure"
	"opendilab.org/di-orchestrator/server/store"
	"opendilab.org/di-orchestrator/server/wire"
)

// The messages of answers. The content of recorded requests begins with these messages.
const (
	messageCreate   = "successfully create replicas"
	messageDelete   = "successfully delete replicas"
	messageRecreate = "successfully recreate replicas"
)

// createReplicas answers POST /replicas.
func (s *Server) createReplicas(c *gin.Context) error {
	ctx, wanted := c.Request.Context(), auth.Replicas("create")
	body, err := s.readResize(c, wanted)
	if err != nil {
		return err
	}
	if err := s.options.Limits.checkResize(body); err != nil {
		return err
	}
	by, err := s.auth.Callers.WritingCaller(ctx, body.Key(), wanted, names.ReplicaTypeCoordinator)
	if err != nil {
		return err
	}
	demands, err := s.demands(ctx, by.Job, body)
	if err != nil {
		return err
	}
	grow := membership.Grow{
		Job: by.Job.Name, Demands: demands, MaxMembers: s.options.Limits.ReplicasPerJob, Random: s.options.Random,
		IsSizedByRule: isSizedByRule(by.Job),
	}
	if c.GetHeader(names.HeaderCaller) != names.CallerUser {
		grow.Coordinator = by.Container()
	}
	return s.edit(c, by, messageCreate, body, grow)
}

// deleteReplicas answers DELETE /replicas.
func (s *Server) deleteReplicas(c *gin.Context) error {
	wanted := auth.Replicas("delete")
	body, err := s.readResize(c, wanted)
	if err != nil {
		return err
	}
	by, err := s.auth.Callers.WritingCaller(c.Request.Context(), body.Key(), wanted, names.ReplicaTypeCoordinator)
	if err != nil {
		return err
	}
	return s.edit(c, by, messageDelete, body, membership.Shrink{
		Job: by.Job.Name, Collectors: body.Collectors.Replicas, Learners: body.Learners.Replicas, IsSizedByRule: isSizedByRule(by.Job),
	})
}

// isSizedByRule reports whether a ratio rule of the operator sets the number of a job's collectors.
func isSizedByRule(job *v2alpha1.DIJob) bool {
	collector := slices.IndexFunc(job.Spec.Tasks, func(task v2alpha1.Task) bool { return task.Type == v2alpha1.TaskTypeCollector })
	return collector >= 0 && names.FollowsRatio(&job.Spec, collector)
}

// replaceReplicas answers POST /replicas/failed. The sender is a coordinator, or an aggregator that
// reports its DDP learners.
func (s *Server) replaceReplicas(c *gin.Context) error {
	wanted := auth.Replicas("update")
	raw, err := readCaller(c, s.auth, wanted)
	if err != nil {
		return err
	}
	body, err := raw.Failed()
	if err != nil {
		return err
	}
	by, err := s.auth.Callers.WritingCaller(c.Request.Context(), body.Key(), wanted, names.ReplicaTypeCoordinator, names.ReplicaTypeAggregator)
	if err != nil {
		return err
	}
	return s.edit(c, by, messageRecreate, body, membership.Replace{Job: by.Job.Name, By: by.Role(), Pods: body.Pods()})
}

// readResize reads the body of a request that adds or removes replicas.
func (s *Server) readResize(c *gin.Context, wanted auth.Permission) (*wire.Resize, error) {
	body, err := readCaller(c, s.auth, wanted)
	if err != nil {
		return nil, err
	}
	return body.Resize()
}

// edit applies an edit for a caller, and answers with its URLs.
func (s *Server) edit(c *gin.Context, by *auth.Caller, message string, body any, edit membership.Edit) error {
	ctx := c.Request.Context()
	content, err := json.Marshal(body)
	if err != nil {
		return fmt.Errorf("encoding the request: %w", err)
	}
	isRemoval := c.Request.Method == http.MethodDelete
	urls, err := s.store.Edit(ctx, by.Job, membership.Request{
		Container:      by.Container(),
		IdempotencyKey: c.GetHeader(names.HeaderIdempotencyKey),
		Content:        append([]byte(message+" "), content...),
		Removal:        isRemoval,
		Confirmed:      isRemoval,
	}, edit)
	if err != nil {
		return err
	}
	s.log.audit(ctx, message, "collectors", len(urls.Collectors), "learners", len(urls.Learners))
	return succeed(c, message, wire.NewReplicas(by.Job, by.Pod.Name, urls))
}

// demands returns the members that a request asks for, by task.
func (s *Server) demands(ctx context.Context, job *v2alpha1.DIJob, body *wire.Resize) ([]membership.Demand, error) {
	demands := []membership.Demand{
		{Task: v2alpha1.TaskTypeCollector, Replicas: body.Collectors.Replicas, Resources: body.Collectors.Resources()},
		{Task: v2alpha1.TaskTypeLearner, Replicas: body.Learners.Replicas, Resources: body.Learners.Resources()},
	}
	for i := range demands {
		demand := &demands[i]
		if demand.Replicas > 0 && store.TaskOf(job, demand.Task) == nil {
			return nil, failure.New(failure.Invalid, "job %s/%s has no %s template", job.Namespace, job.Name, demand.Task)
		}
		if demand.Replicas == 0 || demand.Task != v2alpha1.TaskTypeLearner {
			continue
		}
		gpus, err := s.splitGPUs(ctx, job, demand.Resources)
		if err != nil {
			return nil, err
		}
		demand.DDPGPUs = gpus
	}
	return demands, nil
}

// splitGPUs returns the GPUs of each DDP learner pod of a learner. It returns none for a learner of at
// most one GPU.
func (s *Server) splitGPUs(ctx context.Context, job *v2alpha1.DIJob, asked v2alpha1.MemberResources) ([]int32, error) {
	template, err := s.store.Template(ctx, job, names.ReplicaTypeLearner)
	if err != nil {
		return nil, err
	}
	gpus := membership.LearnerGPUs(asked, template, s.options.GPUResource)
	switch {
	case gpus <= 1:
		return nil, nil
	case gpus > wire.MaxGPUs:
		return nil, failure.New(failure.Invalid, "the learner template's %s: %d is more than %d", s.options.GPUResource, gpus, wire.MaxGPUs)
	}
	config, err := s.store.AggregatorConfig(ctx, job, s.auth.Lookups.Find)
	if err != nil {
		return nil, err
	}
	if config == nil {
		return nil, failure.New(failure.NotFound, "AggregatorConfig %q not found: a learner of %d GPUs needs it",
			s.store.AggregatorConfigKey(job), gpus)
	}
	usual, err := s.usualGPUs(ctx)
	return membership.SplitGPUs(gpus, usual), err
}

// usualGPUs returns the usual number of GPUs of the cluster's nodes.
func (s *Server) usualGPUs(ctx context.Context) (int32, error) {
	var nodes corev1.NodeList
	if err := s.store.List(ctx, &nodes); err != nil {
		return 0, fmt.Errorf("listing nodes: %w", err)
	}
	counts := make([]int32, 0, len(nodes.Items))
	for i := range nodes.Items {
		counts = append(counts, membership.NodeGPUs(nodes.Items[i].Status.Allocatable, s.options.GPUResource))
	}
	return membership.UsualGPUs(counts), nil
}
