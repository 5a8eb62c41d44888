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
	"opendilab.org/di-orchestrator/internal/names"
	"opendilab.org/di-orchestrator/job/membership"
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

// replicaWrites answers writes of the replicas of coordinator-led jobs.
type replicaWrites struct {
	access *auth.Auth
	store  *store.Store
	limits Limits
	random membership.Random
	gpus   *gpuSplit
	log    *requestLog
}

// create answers POST /replicas.
func (w *replicaWrites) create(c *gin.Context) error {
	ctx, wanted := c.Request.Context(), auth.Replicas("create")
	body, err := w.readResize(c, wanted)
	if err != nil {
		return err
	}
	if err := w.limits.checkResize(body); err != nil {
		return err
	}
	by, err := w.access.Callers.WritingCaller(ctx, body.Key(), wanted, names.ReplicaTypeCoordinator)
	if err != nil {
		return err
	}
	demands, err := w.demands(ctx, by.Job, body)
	if err != nil {
		return err
	}
	grow := membership.Grow{
		Job: by.Job.Name, Demands: demands, MaxMembers: w.limits.ReplicasPerJob, Random: w.random,
		IsSizedByRule: isSizedByRule(by.Job),
	}
	if c.GetHeader(names.HeaderCaller) != names.CallerUser {
		grow.Coordinator = by.Container()
	}
	return w.edit(c, by, messageCreate, body, grow)
}

// remove answers DELETE /replicas.
func (w *replicaWrites) remove(c *gin.Context) error {
	wanted := auth.Replicas("delete")
	body, err := w.readResize(c, wanted)
	if err != nil {
		return err
	}
	by, err := w.access.Callers.WritingCaller(c.Request.Context(), body.Key(), wanted, names.ReplicaTypeCoordinator)
	if err != nil {
		return err
	}
	return w.edit(c, by, messageDelete, body, membership.Shrink{
		Job: by.Job.Name, Collectors: body.Collectors.Replicas, Learners: body.Learners.Replicas, IsSizedByRule: isSizedByRule(by.Job),
	})
}

// isSizedByRule reports whether a ratio rule of the operator sets the number of a job's collectors.
func isSizedByRule(job *v2alpha1.DIJob) bool {
	collector := slices.IndexFunc(job.Spec.Tasks, func(task v2alpha1.Task) bool { return task.Type == v2alpha1.TaskTypeCollector })
	return collector >= 0 && names.FollowsRatio(&job.Spec, collector)
}

// replace answers POST /replicas/failed. The sender is a coordinator, or an aggregator that reports
// its DDP learners.
func (w *replicaWrites) replace(c *gin.Context) error {
	wanted := auth.Replicas("update")
	raw, err := readCaller(c, w.access, wanted)
	if err != nil {
		return err
	}
	body, err := raw.Failed()
	if err != nil {
		return err
	}
	by, err := w.access.Callers.WritingCaller(c.Request.Context(), body.Key(), wanted, names.ReplicaTypeCoordinator, names.ReplicaTypeAggregator)
	if err != nil {
		return err
	}
	return w.edit(c, by, messageRecreate, body, membership.Replace{Job: by.Job.Name, By: by.Role(), Pods: body.Pods()})
}

// readResize reads the body of a request that adds or removes replicas.
func (w *replicaWrites) readResize(c *gin.Context, wanted auth.Permission) (*wire.Resize, error) {
	body, err := readCaller(c, w.access, wanted)
	if err != nil {
		return nil, err
	}
	return body.Resize()
}

// edit applies an edit for a caller, and answers with its URLs.
func (w *replicaWrites) edit(c *gin.Context, by *auth.Caller, message string, body any, edit membership.Edit) error {
	ctx := c.Request.Context()
	content, err := json.Marshal(body)
	if err != nil {
		return fmt.Errorf("encoding the request: %w", err)
	}
	isRemoval := c.Request.Method == http.MethodDelete
	urls, err := w.store.Edit(ctx, by.Job, membership.Request{
		Container:      by.Container(),
		IdempotencyKey: c.GetHeader(names.HeaderIdempotencyKey),
		Content:        append([]byte(message+" "), content...),
		Removal:        isRemoval,
		Confirmed:      isRemoval,
	}, edit)
	if err != nil {
		return err
	}
	w.log.audit(ctx, message, "collectors", len(urls.Collectors), "learners", len(urls.Learners))
	return succeed(c, message, wire.NewReplicas(by.Job, by.Pod.Name, urls))
}

// demands returns the members that a request asks for, by task.
func (w *replicaWrites) demands(ctx context.Context, job *v2alpha1.DIJob, body *wire.Resize) ([]membership.Demand, error) {
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
		gpus, err := w.gpus.of(ctx, job, demand.Resources)
		if err != nil {
			return nil, err
		}
		demand.DDPGPUs = gpus
	}
	return demands, nil
}

// gpuSplit splits the GPUs of learners among DDP learners.
type gpuSplit struct {
	lookups *auth.Lookups
	store   *store.Store
	// resource is the resource that counts GPUs.
	resource corev1.ResourceName
}

// of returns the GPUs of each DDP learner pod of a learner. It returns none for a learner of at
// most one GPU.
func (g *gpuSplit) of(ctx context.Context, job *v2alpha1.DIJob, asked v2alpha1.MemberResources) ([]int32, error) {
	template, err := g.store.Template(ctx, job, names.ReplicaTypeLearner)
	if err != nil {
		return nil, err
	}
	gpus := membership.LearnerGPUs(asked, template, g.resource)
	switch {
	case gpus <= 1:
		return nil, nil
	case gpus > wire.MaxGPUs:
		return nil, failure.New(failure.Invalid, "the learner template's %s: %d is more than %d", g.resource, gpus, wire.MaxGPUs)
	}
	config, err := g.store.AggregatorConfig(ctx, job, g.lookups.Find)
	if err != nil {
		return nil, err
	}
	if config == nil {
		return nil, failure.New(failure.NotFound, "AggregatorConfig %q not found: a learner of %d GPUs needs it",
			g.store.AggregatorConfigKey(job), gpus)
	}
	usual, err := g.usual(ctx)
	return membership.SplitGPUs(gpus, usual), err
}

// usual returns the usual number of GPUs of the cluster's nodes.
func (g *gpuSplit) usual(ctx context.Context) (int32, error) {
	var nodes corev1.NodeList
	if err := g.store.List(ctx, &nodes); err != nil {
		return 0, fmt.Errorf("listing nodes: %w", err)
	}
	counts := make([]int32, 0, len(nodes.Items))
	for i := range nodes.Items {
		counts = append(counts, membership.NodeGPUs(nodes.Items[i].Status.Allocatable, g.resource))
	}
	return membership.UsualGPUs(counts), nil
}
