// Copyright The DI Orchestrator Authors.
// SPDX-License-Identifier: Apache-2.0

package pages

import (
	"k8s.io/utils/ptr"

	"opendilab.org/di-orchestrator/apis/v2alpha1"
	"opendilab.org/di-orchestrator/cmd/kubectl-di/internal/jobview"
	"opendilab.org/di-orchestrator/cmd/kubectl-di/internal/ui/api"
)

// Waiting returns why a job does not run, and what would let it; nil if it runs or has finished. The GPUs are those of its row: the
// job may have no templates.
func Waiting(job *v2alpha1.DIJob, gpus int64) *api.Waiting {
	return waitingOf(job, gpus, jobview.WaitingOf(job, gpus))
}

func waitingOf(job *v2alpha1.DIJob, gpus int64, waiting *jobview.Waiting) *api.Waiting {
	if waiting == nil {
		return nil
	}
	return &api.Waiting{
		Namespace: job.Namespace, Name: job.Name, GPUs: gpus, Why: short(waiting.Why), Since: waiting.Since,
		Remedies: append([]string{}, waiting.Remedies...), Suspended: ptr.Deref(job.Spec.Suspend, false),
	}
}

// mostWaiting bounds the jobs that are shown to wait.
const mostWaiting = 500

// line returns the jobs that wait: first those in line for room, by priority and age, and then the others. The jobs are
// sorted by age.
func line(jobs []Job) []api.Waiting {
	var high, normal, others []api.Waiting
	for _, job := range jobs {
		why := jobview.WaitingOf(job.DIJob, job.Row.GPUs)
		if why == nil {
			continue
		}
		waiting := *waitingOf(job.DIJob, job.Row.GPUs, why)
		switch {
		case !why.IsForRoom:
			others = append(others, waiting)
		case job.Spec.Priority == v2alpha1.PriorityHigh:
			high = append(high, waiting)
		default:
			normal = append(normal, waiting)
		}
	}
	all := append([]api.Waiting{}, append(high, normal...)...)
	for i := range all {
		all[i].Place = i + 1
	}
	all = append(all, others...)
	return all[:min(len(all), mostWaiting)]
}

func conditionsOf(all []jobview.Condition) []api.Condition {
	shown := make([]api.Condition, 0, len(all))
	for i := range all {
		one := &all[i]
		shown = append(shown, api.Condition{
			Type: one.Type, Status: string(one.Status), Reason: one.Reason, Message: one.Message, Since: one.Since, Text: one.Text, Trouble: one.IsTrouble,
		})
	}
	return shown
}

// mostAwaited bounds the jobs that wait for what a job holds.
const mostAwaited = 20

// Awaited returns the jobs in line for GPUs, but for this one, which holds some.
func Awaited(row *api.JobRow, jobs []Job) []api.Waiting {
	if row.GPUs == 0 || row.Ready == 0 {
		return nil
	}
	var all []api.Waiting
	for _, one := range line(byAge(jobs)) {
		isOther := one.Namespace != row.Namespace || one.Name != row.Name
		if one.Place > 0 && one.GPUs > 0 && isOther && len(all) < mostAwaited {
			all = append(all, one)
		}
	}
	return all
}
