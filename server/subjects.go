// Copyright The DI Orchestrator Authors.
// SPDX-License-Identifier: Apache-2.0

package server

import (
	"context"

	"github.com/gin-gonic/gin"
	"k8s.io/apimachinery/pkg/types"

	"opendilab.org/di-orchestrator/apis/v2alpha1"
	"opendilab.org/di-orchestrator/internal/names"
	"opendilab.org/di-orchestrator/job/lifecycle/handshake"
	"opendilab.org/di-orchestrator/server/auth"
	"opendilab.org/di-orchestrator/server/failure"
	"opendilab.org/di-orchestrator/server/store"
	"opendilab.org/di-orchestrator/server/wire"
)

// readJobID parses the job of a request's path. It refuses senders that may not know about the job.
func readJobID(c *gin.Context, access *auth.Auth, wanted auth.Permission) (wire.JobID, error) {
	id, err := wire.ParseJobID(c.Param("job_id"))
	if err != nil {
		return id, err
	}
	return id, access.Authorizer.Preauthorize(c.Request.Context(), auth.JobTarget(id.Key), wanted)
}

// readJob reads a worker-led job. It refuses senders without the permission for it.
func readJob(ctx context.Context, access *auth.Auth, id wire.JobID, wanted auth.Permission) (*v2alpha1.DIJob, error) {
	var job v2alpha1.DIJob
	if err := access.Lookups.Find(ctx, id.Key, &job); err != nil {
		return nil, store.ReadFailure(id.Key, err)
	}
	return &job, access.Authorizer.Authorize(ctx, &job, wanted)
}

// jobOfCoordinator reads the job of a coordinator. It refuses senders without the permission for it.
func jobOfCoordinator(ctx context.Context, access *auth.Auth, coordinator types.NamespacedName, wanted auth.Permission) (*v2alpha1.DIJob, error) {
	if err := access.Authorizer.Preauthorize(ctx, auth.PodTarget(coordinator), wanted); err != nil {
		return nil, err
	}
	found, err := access.Callers.Caller(ctx, coordinator, names.ReplicaTypeCoordinator)
	if err != nil {
		return nil, err
	}
	return found.Job, access.Authorizer.Authorize(ctx, found.Job, wanted)
}

// readCaller reads the caller of a body. It refuses senders that may not act for the caller.
func readCaller(c *gin.Context, access *auth.Auth, wanted auth.Permission) (*wire.Body, error) {
	content, err := readBody(c)
	if err != nil {
		return nil, err
	}
	body, err := wire.ReadBody(content)
	if err != nil {
		return nil, err
	}
	return body, access.Authorizer.Preauthorize(c.Request.Context(), auth.PodTarget(body.Caller.Key()), wanted)
}

// readStateful reads the job of a request about its membership.
func readStateful(c *gin.Context, access *auth.Auth, wanted auth.Permission) (*v2alpha1.DIJob, error) {
	ctx := c.Request.Context()
	id, err := readJobID(c, access, wanted)
	if err != nil {
		return nil, err
	}
	job, err := readJob(ctx, access, id, wanted)
	if err != nil {
		return nil, err
	}
	if err := id.CheckWorkerLed(job); err != nil {
		return nil, err
	}
	if err := id.CheckCurrent(job); err != nil {
		return nil, err
	}
	return job, checkStateful(job)
}

// checkStateful refuses jobs without a membership.
func checkStateful(job *v2alpha1.DIJob) error {
	switch {
	case !handshake.HasStateful(job):
		return failure.New(failure.Conflict, "no task of job %s/%s has drain: it has no membership", job.Namespace, job.Name)
	case store.Published(job) == nil:
		return failure.New(failure.Unavailable, "the membership of job %s/%s is not published yet: ask again later", job.Namespace, job.Name)
	}
	return nil
}
