// Copyright The DI Orchestrator Authors.
// SPDX-License-Identifier: Apache-2.0

// Package usage reads from a Prometheus what the pods of jobs used. It decides nothing about who may see that.
package usage

import (
	"fmt"
	"math"
	"strconv"
	"time"

	"opendilab.org/di-orchestrator/apis/v2alpha1"
	"opendilab.org/di-orchestrator/internal/names"
	"opendilab.org/di-orchestrator/internal/promapi"
)

const (
	// mostPoints bounds the points of a curve, and leastStep is the least distance of two.
	mostPoints = 200
	leastStep  = 15 * time.Second
	// leastWindow is the least time that a point is the mean of. It has some samples of the usual scrapes.
	leastWindow = 4 * time.Minute
	// mostRoles bounds the curves of a query: a job with more tasks has one for all.
	mostRoles = 8
	gibibyte  = 1 << 30
)

// query is what is asked of Prometheus, and how its answer is shown.
type query struct {
	text, name, unit string
	// one is the value that is shown as 1.
	one float64
}

// spanOf returns the time of a job with its points. The last point is now or the end of the job. What a point is the
// mean of begins after the creation, except in the first minutes.
func spanOf(job *v2alpha1.DIJob, now time.Time) promapi.Span {
	begin, end := job.CreationTimestamp.Time, now
	if completed := job.Status.CompletionTimestamp; completed != nil {
		end = completed.Time
	}
	lasted := max(0, end.Sub(begin))
	step := max(leastStep, time.Duration(math.Ceil(lasted.Seconds()/mostPoints))*time.Second)
	return promapi.Span{Start: end.Add(-max(0, lasted/step-1) * step), End: end, Step: step}
}

// queriesOf returns the queries for a job's pods, with a series for each task or role.
//
// The namespace and the names of pods are the only part that a job's author chooses, and they are quoted. dcgm-exporter
// names the pod that has a GPU. Unless Prometheus honors its labels, these are renamed: namespace and pod are then those
// of the exporter.
func queriesOf(job *v2alpha1.DIJob, step time.Duration) []query {
	namespace, pods := strconv.Quote(job.Namespace), strconv.Quote(names.PodsOf(job))
	selected := func(prefix string) string {
		return fmt.Sprintf("%snamespace=%s,%spod=~%s", prefix, namespace, prefix, pods)
	}
	by := ""
	if len(job.Spec.Tasks) <= mostRoles {
		by = " by (role)"
	}
	role := func(of, label string) string {
		return fmt.Sprintf(`label_replace(%s,"role","$1$2",%q,%s)`, of, label, pods)
	}
	window := int(max(leastWindow, step).Seconds())
	gpu := func(prefix string) string {
		return role(fmt.Sprintf("avg_over_time(DCGM_FI_DEV_GPU_UTIL{%s}[%ds])", selected(prefix), window), prefix+"pod")
	}
	const container = `container!~"|POD"`
	cpu := role(fmt.Sprintf("rate(container_cpu_usage_seconds_total{%s,%s}[%ds])", selected(""), container, window), "pod")
	memory := role(fmt.Sprintf("container_memory_working_set_bytes{%s,%s}", selected(""), container), "pod")
	return []query{
		{fmt.Sprintf("avg%s(%s or %s)", by, gpu("exported_"), gpu("")), "GPU utilisation", "% (mean)", 1},
		{fmt.Sprintf("sum%s(%s)", by, cpu), "CPU", "cores (sum)", 1},
		{fmt.Sprintf("sum%s(%s)", by, memory), "memory", "GiB (sum)", gibibyte},
	}
}
