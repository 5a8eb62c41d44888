// Copyright The DI Orchestrator Authors.
// SPDX-License-Identifier: Apache-2.0

package survey

import (
	"opendilab.org/di-orchestrator/allocation/profilings"
	"opendilab.org/di-orchestrator/apis/v2alpha1"
	"opendilab.org/di-orchestrator/internal/names"
	"opendilab.org/di-orchestrator/job/lifecycle/sizing"
)

// rangeOf returns the elastic task of a job and the bounds of its replicas. The ratio rule of the job lowers the maximum:
// the consumer has no use for more producers. A rule that has not decided yet lowers nothing.
func rangeOf(job *v2alpha1.DIJob) (elastic int, least, most int32) {
	elastic, least, most = sizing.Range(job)
	if asked := Asked(job); asked >= 0 {
		most = max(least, min(most, asked))
	}
	return elastic, least, most
}

// Asked returns how many replicas of the elastic task the ratio rule of a job asks for; -1 if it does not ask.
func Asked(job *v2alpha1.DIJob) int32 {
	decided, elastic := ratioOf(job), names.ElasticTask(&job.Spec)
	if decided == nil || elastic < 0 {
		return -1
	}
	if asked, isAsked := decided.Replicas[names.TaskName(&job.Spec.Tasks[elastic])]; isAsked {
		return max(asked, 0)
	}
	return -1
}

// ratioOf returns the last decision of a job's ratio rule; nil if it has no rule or none was made.
func ratioOf(job *v2alpha1.DIJob) *v2alpha1.RatioStatus {
	if job.Spec.Autoscale == nil || job.Spec.Autoscale.Ratio == nil || job.Status.Autoscaling == nil {
		return nil
	}
	return job.Status.Autoscaling.Ratio
}

// leastRate and mostRate bound the rates that the policy reads, in samples per second.
const leastRate, mostRate = 1e-3, 1e9

// Completed adds to what a job reports the throughput that its ratio rule has measured. Each of its producers makes the
// same, and the rule asks for as many as the consumer can use. A job that reports steps or throughput knows better.
func Completed(job *v2alpha1.DIJob, report *profilings.Report, producers int32) *profilings.Report {
	decided := ratioOf(job)
	if decided == nil || producers < 1 || report != nil && len(report.Steps)+len(report.Throughput) > 0 {
		return report
	}
	capacity := float64(decided.ProducerCapacity) / 1000
	if capacity < leastRate || capacity > mostRate {
		return report
	}
	completed := profilings.Report{}
	if report != nil {
		completed = *report
	}
	completed.Throughput = []profilings.Rate{{Nodes: 1, Replicas: 1, PerSecond: capacity}}
	if producers > 1 {
		completed.Throughput = append(completed.Throughput, profilings.Rate{Nodes: 1, Replicas: int(producers), PerSecond: capacity * float64(producers)})
	}
	return &completed
}
