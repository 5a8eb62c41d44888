// Copyright The DI Orchestrator Authors.
// SPDX-License-Identifier: Apache-2.0

package webhook

import (
	"context"
	"fmt"
	"slices"
	"sync"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/webhook/admission"

	"opendilab.org/di-orchestrator/webhook/podcheck"
)

// The limits of a check of pods. It is called for dry runs only, and has no part of the room in which other
// reviews are answered.
const (
	// mostChecks is how many jobs are checked concurrently. Others are not checked.
	mostChecks = 4
	// mostCheckedBytes is the maximum size of a checked job.
	mostCheckedBytes = 256 << 10
	// mostCheckedTasks is how many tasks of a job are checked.
	mostCheckedTasks = 8
	// checkTime bounds the check of a job. The API server waits up to 10 s.
	checkTime = 5 * time.Second
)

// podChecks answers dry runs of jobs with what the API server says about their pods, as warnings. The
// matchConditions of its webhook let only dry runs of users pass who may create pods themselves.
type podChecks struct {
	// try creates a pod in dry run.
	try   func(context.Context, *podcheck.Pod, string) (podcheck.Findings, error)
	slots chan struct{}
}

func newPodChecks(try func(context.Context, *podcheck.Pod, string) (podcheck.Findings, error)) *podChecks {
	return &podChecks{try: try, slots: make(chan struct{}, mostChecks)}
}

// check never refuses a job: the same job is admitted without dry run, and its pods may be later.
func (c *podChecks) check(ctx context.Context, request admission.Request) admission.Response {
	if request.DryRun == nil || !*request.DryRun {
		return admission.Allowed("")
	}
	select {
	case c.slots <- struct{}{}:
		defer func() { <-c.slots }()
	default:
		return unchecked("too many jobs are checked at the same time")
	}
	if len(request.Object.Raw) > mostCheckedBytes {
		return unchecked(fmt.Sprintf("the job has more than %d bytes", mostCheckedBytes))
	}
	job, err := podcheck.Read(request.Object.Raw)
	if err != nil {
		// The webhook that validates the job reports it.
		return admission.Allowed("")
	}
	job.Namespace = request.Namespace
	pods, err := podcheck.Pods(job, nil)
	if err != nil {
		return admission.Allowed("")
	}
	return admission.Allowed("").WithWarnings(bounded(c.tryAll(ctx, pods))...)
}

func unchecked(why string) admission.Response {
	return admission.Allowed("").WithWarnings("the pods of this job are not checked: " + why)
}

// tryAll tries the pods in parallel, and returns warnings in the order of the tasks.
func (c *podChecks) tryAll(ctx context.Context, pods []podcheck.Pod) []string {
	ctx, cancel := context.WithTimeout(ctx, checkTime)
	defer cancel()
	checked := pods[:min(len(pods), mostCheckedTasks)]
	warnings := make([][]string, len(checked))
	var group sync.WaitGroup
	for i := range checked {
		group.Go(func() { warnings[i] = c.warningsOf(ctx, &checked[i]) })
	}
	group.Wait()
	all := slices.Concat(warnings...)
	if more := len(pods) - len(checked); more > 0 {
		all = append(all, fmt.Sprintf("the pods of %d more tasks are not checked", more))
	}
	return all
}

// warningsOf returns what the API server says about a pod. Unknown fields are the business of the webhook
// that validates the job.
func (c *podChecks) warningsOf(ctx context.Context, pod *podcheck.Pod) []string {
	found, err := c.try(ctx, pod, metav1.FieldValidationIgnore)
	if err != nil {
		return []string{fmt.Sprintf("the pods of task %s are not checked: the API server did not try one", pod.Task)}
	}
	var warnings []string
	for _, finding := range found.Refused {
		warnings = append(warnings, "pods would be refused: "+finding.String())
	}
	for _, finding := range found.Warnings {
		warnings = append(warnings, finding.String())
	}
	if found.Unchecked != "" {
		warnings = append(warnings, fmt.Sprintf("the pods of task %s are not checked: %s", pod.Task, found.Unchecked))
	}
	return warnings
}
