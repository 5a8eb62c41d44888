// Copyright The DI Orchestrator Authors.
// SPDX-License-Identifier: Apache-2.0

// Package restart runs a whole job again from its beginning: kubectl di restart JOB.
package restart

import (
	"context"
	"fmt"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/yaml"

	"opendilab.org/di-orchestrator/apis/v2alpha1"
	"opendilab.org/di-orchestrator/cmd/kubectl-di/internal/cli"
	"opendilab.org/di-orchestrator/cmd/kubectl-di/internal/cluster"
	"opendilab.org/di-orchestrator/cmd/kubectl-di/internal/history/fields"
	"opendilab.org/di-orchestrator/cmd/kubectl-di/internal/replicas"
)

// Job deletes the pods of a job and has them created again. A job that has finished is deleted and created again.
func Job(ctx context.Context, env *cli.Env, timeout *cli.Timeout, found *cluster.Cluster, job *v2alpha1.DIJob) error {
	title := "job " + job.Namespace + "/" + job.Name
	switch {
	case job.DeletionTimestamp != nil:
		return fmt.Errorf("%s is being deleted: nothing was done", title)
	case replicas.IsFinished(job):
		if err := again(ctx, env, timeout, found, job); err != nil {
			return err
		}
	case ptr.Deref(job.Spec.Suspend, false):
		return fmt.Errorf("%s is suspended: kubectl di resume %s -n %s continues it, with new pods", title, job.Name, job.Namespace)
	default:
		if err := recreate(ctx, env, timeout, found, job); err != nil {
			return err
		}
	}
	_, err := fmt.Fprintf(env.Out, "dijob.%s/%s restarted\n", v2alpha1.GroupName, job.Name)
	return err
}

// recreate suspends a job until its pods are gone, and resumes it.
func recreate(ctx context.Context, env *cli.Env, timeout *cli.Timeout, found *cluster.Cluster, job *v2alpha1.DIJob) error {
	title := "job " + job.Namespace + "/" + job.Name
	if err := found.SetSuspended(ctx, job, true, false); err != nil {
		return err
	}
	err := timeout.Each(ctx, env.ErrOut, 1, func(ctx context.Context, report *cli.Progress, _ int) error {
		state := "its pods are not known"
		err := found.FollowPods(ctx, job, report.Say, func(left int) bool {
			state = fmt.Sprintf("pods that are left: %d", left)
			report.State(title, state)
			return left == 0
		})
		return cli.Stopped(ctx, err, "waiting for the pods of "+title+" to go: "+state)
	})
	if err == nil {
		err = found.SetSuspended(ctx, job, false, false)
	}
	if err != nil {
		return fmt.Errorf("%w\n%s stays suspended: kubectl di resume %s -n %s continues it", err, title, job.Name, job.Namespace)
	}
	return nil
}

// again deletes a job that has finished, and creates it again. It first tries whether the API server would take the job.
func again(ctx context.Context, env *cli.Env, timeout *cli.Timeout, found *cluster.Cluster, job *v2alpha1.DIJob) error {
	manifest, err := found.Manifest(ctx, v2alpha1.GroupVersion.Version, job.Name)
	if err != nil {
		return err
	}
	delete(manifest.Object, "status")
	if metadata, isMap := manifest.Object["metadata"].(map[string]any); isMap {
		fields.Clean(metadata)
	}
	switch err := found.Submit(ctx, manifest.DeepCopy(), metav1.FieldValidationWarn, true); {
	case err == nil:
		return fmt.Errorf("job %s/%s was deleted meanwhile: nothing was done", job.Namespace, job.Name)
	case !cluster.IsTaken(err):
		return fmt.Errorf("%w\nnothing was done", err)
	}
	if err := found.Delete(ctx, job, false); err != nil {
		return err
	}
	title := "job " + job.Namespace + "/" + job.Name
	err = timeout.Each(ctx, env.ErrOut, 1, func(ctx context.Context, report *cli.Progress, _ int) error {
		return cli.Stopped(ctx, found.FollowGone(ctx, job, report.Say), "waiting for "+title+" to be deleted")
	})
	if err == nil {
		err = found.Submit(ctx, manifest.DeepCopy(), metav1.FieldValidationWarn, false)
	}
	if err != nil {
		return fmt.Errorf("%w\n%s is deleted, and not created again; its manifest:\n%s", err, title, text(manifest))
	}
	return nil
}

// text returns a manifest to submit.
func text(manifest *unstructured.Unstructured) string {
	written, err := yaml.Marshal(manifest.Object)
	if err != nil {
		return err.Error()
	}
	return string(written)
}
