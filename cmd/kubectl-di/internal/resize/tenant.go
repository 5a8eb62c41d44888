// Copyright The DI Orchestrator Authors.
// SPDX-License-Identifier: Apache-2.0

package resize

import (
	"context"
	"fmt"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"

	"opendilab.org/di-orchestrator/apis/v2alpha1"
	"opendilab.org/di-orchestrator/cmd/kubectl-di/internal/cluster"
	"opendilab.org/di-orchestrator/internal/names"
	"opendilab.org/di-orchestrator/job/lifecycle/sizing"
	"opendilab.org/di-orchestrator/job/membership"
	"opendilab.org/di-orchestrator/job/scaling"
)

// planner returns the plan that changes a job as a request to di-server would.
type planner func(ctx context.Context) (v2alpha1.ScalePlanSpec, error)

// request calls di-server. A user who may not reach it, such as a tenant without rights in its namespace,
// requests the same by a ScalePlan in the namespace of the job. Without a planner there is no such plan.
func (c *call) request(ctx context.Context, call func() error, plan planner) error {
	err := c.denied
	if err == nil {
		err = call()
	}
	if plan == nil || !c.mayPlan() || !cluster.IsDenied(err) {
		return c.explain(err)
	}
	spec, failed := plan(ctx)
	if failed == nil {
		failed = c.createPlan(ctx, spec)
	}
	if cluster.IsDenied(failed) {
		return err
	}
	return failed
}

// mayPlan reports whether a plan may take the place of a call: the user named neither a server nor a token.
func (o *calling) mayPlan() bool { return o.server == "" && o.tokenFile == "" }

func (c *call) createPlan(ctx context.Context, spec v2alpha1.ScalePlanSpec) error {
	plan := scaling.NewPlan(c.job, &spec, time.Now())
	plan.Spec.Origin = v2alpha1.PlanManual
	if err := c.cluster.CreatePlan(ctx, plan, false); err != nil {
		return err
	}
	fmt.Fprintf(c.ErrOut, "kubectl-di: you may not reach di-server in namespace %s, so a ScalePlan requests this: "+
		"kubectl di plan history %s shows its progress\n", c.namespace, c.job.Name)
	if !c.output.IsText() {
		plan.SetGroupVersionKind(v2alpha1.GroupVersion.WithKind("ScalePlan"))
		return c.output.Print(c.Out, plan)
	}
	_, err := fmt.Fprintf(c.Out, "%s: scaleplan %s created\n", title(c.job), plan.Name)
	return err
}

// plan returns the planner of a resize; nil if a plan cannot express it.
func (o *resizing) plan(c *call, task v2alpha1.TaskType) planner {
	if o.cpus != "" || o.gpus != "" || o.memory != "" || c.job.Spec.Preemptible {
		return nil
	}
	return func(ctx context.Context) (v2alpha1.ScalePlanSpec, error) {
		name, count, err := c.countOf(ctx, task)
		by := o.replicas
		if o.deletes {
			by = -min(by, count)
		}
		count += by
		return v2alpha1.ScalePlanSpec{
			Tasks: []v2alpha1.TaskScale{{Name: name, Replicas: &count}}, Reason: fmt.Sprintf("%+d by kubectl di", by),
		}, err
	}
}

// countOf returns the name of the task that is resized, and how many replicas of it are desired.
func (c *call) countOf(ctx context.Context, task v2alpha1.TaskType) (string, int32, error) {
	if !isCoordinatorLed(c.job) {
		elastic := names.ElasticTask(&c.job.Spec)
		if elastic < 0 {
			return "", 0, fmt.Errorf("%s has no task that can be resized: name one in spec.elastic.task", title(c.job))
		}
		return names.TaskName(&c.job.Spec.Tasks[elastic]), sizing.Wanted(c.job).ByTask[elastic], nil
	}
	var list v2alpha1.Membership
	err := c.cluster.Get(ctx, c.job.Namespace, c.job.Name, &list)
	if err != nil && !apierrors.IsNotFound(err) {
		return "", 0, err
	}
	for i := range c.job.Spec.Tasks {
		if c.job.Spec.Tasks[i].Type == task {
			return names.TaskName(&c.job.Spec.Tasks[i]), membership.Count(&list.Spec, task), nil
		}
	}
	return "", 0, fmt.Errorf("%s has no %s template", title(c.job), task)
}

// planReplacement returns the planner of a replacement of pods.
func planReplacement(pods []string) planner {
	return func(context.Context) (spec v2alpha1.ScalePlanSpec, _ error) {
		spec.Reason = "replaced by kubectl di restart"
		for _, pod := range pods {
			spec.Migrate = append(spec.Migrate, v2alpha1.PodMigration{Pod: pod})
		}
		return spec, nil
	}
}
