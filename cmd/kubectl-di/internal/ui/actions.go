// Copyright The DI Orchestrator Authors.
// SPDX-License-Identifier: Apache-2.0

package ui

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/utils/ptr"

	"opendilab.org/di-orchestrator/apis/v2alpha1"
	"opendilab.org/di-orchestrator/cmd/kubectl-di/internal/cluster"
	"opendilab.org/di-orchestrator/cmd/kubectl-di/internal/replicas"
	"opendilab.org/di-orchestrator/cmd/kubectl-di/internal/ui/api"
	"opendilab.org/di-orchestrator/cmd/kubectl-di/internal/ui/gate"
	"opendilab.org/di-orchestrator/cmd/kubectl-di/internal/ui/pages"
	"opendilab.org/di-orchestrator/internal/limits"
	"opendilab.org/di-orchestrator/job/scaling"
)

// mostResized bounds the replicas of a request.
const mostResized = 100_000

// act changes a job, or says what a change would do. The API server checks both.
func (s *Server) act(r *http.Request) (any, error) {
	request, err := readAction(r)
	if err != nil {
		return nil, err
	}
	found, job, err := s.readJob(r)
	if err != nil {
		return nil, err
	}
	name := r.PathValue("action")
	do, isKnown := actions()[name]
	switch {
	case !isKnown:
		return nil, gate.BadRequest(errors.New("the action must be suspend, resume, resize, restart or delete"))
	case request.UID != "" && request.UID != string(job.UID):
		return nil, conflict(fmt.Errorf("job %s/%s is another one now: it was deleted and created again", job.Namespace, job.Name))
	case name != "delete":
		if err := cluster.Finished(job); err != nil {
			return nil, conflict(err)
		}
	}
	effects, err := do(r.Context(), found, job, request)
	if err != nil {
		return nil, err
	}
	return api.ActionResult{Done: !*request.DryRun, Effects: effects}, nil
}

func conflict(err error) error {
	return gate.Refuse(http.StatusConflict, "Conflict", err.Error())
}

// readAction reads the body of a request.
func readAction(r *http.Request) (*api.ActionRequest, error) {
	request := &api.ActionRequest{}
	decoder := json.NewDecoder(r.Body)
	decoder.DisallowUnknownFields()
	if err := decoder.Decode(request); err != nil {
		return nil, gate.BadRequest(fmt.Errorf("the body is wrong: %w", err))
	}
	switch {
	case request.DryRun == nil:
		return nil, gate.BadRequest(errors.New("dryRun is missing: want true or false"))
	case request.Replicas != nil && (*request.Replicas < 0 || *request.Replicas > mostResized):
		return nil, gate.BadRequest(fmt.Errorf("replicas is %d: want a number from 0 to %d", *request.Replicas, mostResized))
	}
	return request, nil
}

// action changes a job, and returns the effects.
type action func(ctx context.Context, found *cluster.Cluster, job *v2alpha1.DIJob, request *api.ActionRequest) ([]string, error)

func actions() map[string]action {
	return map[string]action{"suspend": suspend, "resume": resume, "resize": resize, "restart": restart, "delete": remove}
}

func suspend(ctx context.Context, found *cluster.Cluster, job *v2alpha1.DIJob, request *api.ActionRequest) ([]string, error) {
	list, err := membersOf(ctx, found, job)
	if err != nil {
		return nil, err
	}
	effects := pages.SuspendEffects(job, list)
	return effects, found.SetSuspended(ctx, job, true, *request.DryRun)
}

func resume(ctx context.Context, found *cluster.Cluster, job *v2alpha1.DIJob, request *api.ActionRequest) ([]string, error) {
	effects := pages.ResumeEffects(job)
	return effects, found.SetSuspended(ctx, job, false, *request.DryRun)
}

func remove(ctx context.Context, found *cluster.Cluster, job *v2alpha1.DIJob, request *api.ActionRequest) ([]string, error) {
	return pages.DeleteEffects(job), found.Delete(ctx, job, *request.DryRun)
}

// resize scales a worker-led job, and asks by a ScalePlan for another size of a coordinator-led one.
func resize(ctx context.Context, found *cluster.Cluster, job *v2alpha1.DIJob, request *api.ActionRequest) ([]string, error) {
	if request.Replicas == nil {
		return nil, gate.BadRequest(errors.New("replicas is missing: want the desired number"))
	}
	list, err := membersOf(ctx, found, job)
	if err != nil {
		return nil, err
	}
	var task *api.Resizable
	tasks := pages.Resizables(job, list)
	for i := range tasks {
		if request.Task == tasks[i].Task || request.Task == "" && len(tasks) == 1 {
			task = &tasks[i]
		}
	}
	switch {
	case task == nil:
		return nil, gate.BadRequest(fmt.Errorf("task %q: cannot be resized; see the action's tasks", request.Task))
	case job.Spec.Preemptible:
		return nil, conflict(errors.New("the allocator decides about the size of a preemptible job"))
	}
	effects := pages.ResizeEffects(job, list, task, *request.Replicas)
	switch {
	case job.Spec.Lifecycle != v2alpha1.LifecycleCoordinatorLed:
		_, err = found.Scale(ctx, job, *request.Replicas, func(int32) error { return nil }, *request.DryRun)
	case *request.Replicas != task.Replicas:
		err = plan(ctx, found, job, list, *request.DryRun, &v2alpha1.ScalePlanSpec{
			Tasks: []v2alpha1.TaskScale{{Name: task.Task, Replicas: request.Replicas}}, Reason: "resized by kubectl di ui",
		})
	}
	return effects, err
}

// restart deletes the pod of a worker-led job, which is recreated, and asks by a ScalePlan for
// another pod of a coordinator-led one.
func restart(ctx context.Context, found *cluster.Cluster, job *v2alpha1.DIJob, request *api.ActionRequest) ([]string, error) {
	pods, err := found.Pods(ctx, job)
	if err != nil {
		return nil, err
	}
	var pod *corev1.Pod
	for _, one := range pods {
		if replicas.Name(job.Name, one.Name) == request.Replica || one.Name == request.Replica {
			pod = one
		}
	}
	if pod == nil || request.Replica == "" {
		return nil, gate.BadRequest(fmt.Errorf("replica %q: want the name of a part that has a pod", request.Replica[:min(len(request.Replica), 253)]))
	}
	effects := pages.RestartEffects(job, pod)
	if job.Spec.Lifecycle != v2alpha1.LifecycleCoordinatorLed {
		return effects, found.Delete(ctx, pod, *request.DryRun)
	}
	list, err := membersOf(ctx, found, job)
	if err != nil {
		return nil, err
	}
	return effects, plan(ctx, found, job, list, *request.DryRun, &v2alpha1.ScalePlanSpec{
		Migrate: []v2alpha1.PodMigration{{Pod: pod.Name}}, Reason: "restarted by kubectl di ui",
	})
}

// membersOf returns the Membership of a coordinator-led job, nil if there is none or the caller may not read it.
func membersOf(ctx context.Context, found *cluster.Cluster, job *v2alpha1.DIJob) (*v2alpha1.Membership, error) {
	if job.Spec.Lifecycle != v2alpha1.LifecycleCoordinatorLed {
		return nil, nil
	}
	list, err := found.Membership(ctx, job)
	if cluster.IsDenied(err) {
		return nil, nil
	}
	return list, err
}

// plan creates a ScalePlan. What the operator would refuse later, and what the API server says about its
// fields, is a refusal.
func plan(ctx context.Context, found *cluster.Cluster, job *v2alpha1.DIJob, list *v2alpha1.Membership, dryRun bool, spec *v2alpha1.ScalePlanSpec) error {
	made := scaling.NewPlan(job, spec, time.Now())
	made.Spec.Origin = v2alpha1.PlanManual
	if _, problems := scaling.Read(made, job, list, limits.PodsPerJob); len(problems) > 0 {
		return gate.Refuse(http.StatusUnprocessableEntity, "Invalid", strings.Join(problems, "\n"))
	}
	err := found.CreatePlan(ctx, made, dryRun)
	if err != nil && ctx.Err() == nil && !errors.As(err, ptr.To(apierrors.APIStatus(nil))) {
		return gate.Refuse(http.StatusUnprocessableEntity, "Invalid", err.Error())
	}
	return err
}
