// Copyright The DI Orchestrator Authors.
// SPDX-License-Identifier: Apache-2.0

package serve

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apiserver/pkg/authorization/authorizer"

	"opendilab.org/di-orchestrator/apis/v2alpha1"
	"opendilab.org/di-orchestrator/autoscale/optimizer"
	"opendilab.org/di-orchestrator/autoscale/optimizer/local"
	"opendilab.org/di-orchestrator/autoscale/optimizer/remote"
	"opendilab.org/di-orchestrator/history/brain"
	"opendilab.org/di-orchestrator/history/record"
	"opendilab.org/di-orchestrator/history/store"
	"opendilab.org/di-orchestrator/internal/limits"
)

const (
	// maxOptimize bounds the body of a request for a plan, in bytes, and atOnce such requests.
	maxOptimize, atOnce = 8 << 20, 4
	// maxKilled bounds the killed replicas of one request: as many as a ScalePlan may name.
	maxKilled = 2_000
	// curves is of how many similar jobs the last points are read, and points how many of each.
	curves, points = 8, 1_000
)

// optimize answers as the remote optimizer, by the finished jobs of the job's namespace. The caller needs the rights to
// create ScalePlans and to list jobs there.
func (h *handler) optimize(r *request) (any, error) {
	select {
	case h.optimizing <- struct{}{}:
		defer func() { <-h.optimizing }()
	case <-r.Context().Done():
		return nil, apierrors.NewServiceUnavailable("too many plans are made now: try again later")
	}
	var asked remote.Request
	if err := json.NewDecoder(http.MaxBytesReader(nil, r.Body, maxOptimize)).Decode(&asked); err != nil {
		return nil, apierrors.NewBadRequest("the body does not decode: " + err.Error())
	}
	if err := checkRequest(&asked); err != nil {
		return nil, apierrors.NewBadRequest(err.Error())
	}
	for _, wanted := range []authorizer.AttributesRecord{onPlans("create", asked.Job.Namespace), onJobs("list", asked.Job.Namespace, "")} {
		allowed, err := h.may(r, wanted)
		if err != nil {
			return nil, err
		}
		if !allowed {
			return nil, apierrors.NewForbidden(schema.GroupResource{Group: wanted.APIGroup, Resource: wanted.Resource}, "",
				fmt.Errorf("user %q may not %s them in namespace %q: whom plans are made for needs that role", r.caller.GetName(), wanted.Verb, asked.Job.Namespace))
		}
	}
	past, err := h.past(r.Context(), &asked)
	if err != nil {
		return nil, err
	}
	answer, err := asked.Answer(r.Context(), brain.New(local.Defaults(), past))
	if err != nil {
		return nil, apierrors.NewBadRequest(err.Error())
	}
	return answer, nil
}

func onPlans(verb, namespace string) authorizer.AttributesRecord {
	return authorizer.AttributesRecord{Verb: verb, APIGroup: v2alpha1.GroupName, APIVersion: v2alpha1.Version, Resource: "scaleplans", Namespace: namespace}
}

// checkRequest checks all that a plan is sized by.
func checkRequest(asked *remote.Request) error {
	job := asked.Job
	if job == nil || job.Namespace == "" || job.Name == "" {
		return errors.New("job: must have a namespace and a name")
	}
	if len(job.Tasks) > record.MaxTasks || len(job.Samples) > optimizer.MaxSamples || len(asked.Killed) > maxKilled {
		return fmt.Errorf("%d tasks, %d samples, %d killed replicas: must be at most %d, %d, %d",
			len(job.Tasks), len(job.Samples), len(asked.Killed), record.MaxTasks, optimizer.MaxSamples, maxKilled)
	}
	replicas := 0
	for i := range job.Tasks {
		task := &job.Tasks[i]
		if task.Replicas < 0 || task.Replicas > limits.Replicas || task.Max < 0 || task.Max > limits.Replicas {
			return fmt.Errorf("job.tasks[%d]: %d replicas of at most %d: must be from 0 to %d", i, task.Replicas, task.Max, limits.Replicas)
		}
		replicas += max(int(task.Replicas), len(task.Pods))
	}
	if replicas > limits.Replicas {
		return fmt.Errorf("job.tasks: %d replicas: must be at most %d", replicas, limits.Replicas)
	}
	return nil
}

// past reads what a plan of a job is learned from. Jobs of other namespaces are never read.
func (h *handler) past(ctx context.Context, asked *remote.Request) (brain.Past, error) {
	isFirst := asked.Operation == remote.OperationGenerate && asked.Stage == optimizer.StageCreate
	if !isFirst && asked.Operation != remote.OperationRecoverOOM || asked.Job.UID == "" {
		return brain.Past{}, nil
	}
	job, err := h.store.Job(ctx, asked.Job.Namespace, asked.Job.Name, string(asked.Job.UID))
	switch {
	case errors.Is(err, store.ErrNotFound):
		return brain.Past{}, nil
	case err != nil:
		return brain.Past{}, err
	}
	past := brain.Past{Job: job, Samples: map[string][]record.Sample{}}
	if past.Finished, err = h.store.Family(ctx, job.Namespace, job.Family()); err != nil || !isFirst {
		return past, err
	}
	for i := range past.Finished[:min(len(past.Finished), curves)] {
		uid := past.Finished[i].UID
		if past.Samples[uid], err = h.store.LastSamples(ctx, uid, points); err != nil {
			return past, err
		}
	}
	return past, nil
}
