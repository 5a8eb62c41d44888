// Copyright The DI Orchestrator Authors.
// SPDX-License-Identifier: Apache-2.0

package pages

import (
	"math"
	"time"

	corev1 "k8s.io/api/core/v1"
	resourcehelper "k8s.io/component-helpers/resource"

	"opendilab.org/di-orchestrator/cmd/kubectl-di/internal/jobview"
	"opendilab.org/di-orchestrator/cmd/kubectl-di/internal/ui/api"
)

// costOf returns what pods requested for as long as they ran; nil if none has started.
func costOf(pods []*corev1.Pod, now time.Time) *api.Cost {
	cost := &api.Cost{}
	for _, pod := range pods {
		if pod.Status.StartTime == nil {
			continue
		}
		requests := resourcehelper.PodRequests(pod, resourcehelper.PodResourcesOptions{})
		hours := max(0, endOf(pod, now).Sub(pod.Status.StartTime.Time)).Hours()
		cost.Pods++
		cost.PodHours += hours
		cost.CPUHours += hours * requests.Cpu().AsApproximateFloat64()
		cost.MemoryHours += hours * requests.Memory().AsApproximateFloat64() / (1 << 30)
		cost.GPUHours += hours * float64(jobview.GPUsOfPod(pod))
	}
	if cost.Pods == 0 {
		return nil
	}
	for _, hours := range []*float64{&cost.PodHours, &cost.CPUHours, &cost.MemoryHours, &cost.GPUHours} {
		*hours = inThreeDigits(*hours)
	}
	return cost
}

// inThreeDigits rounds a number. What changes all the time would be sent all the time.
func inThreeDigits(number float64) float64 {
	const least = 1e-6
	if number < least {
		return 0
	}
	size := math.Pow10(2 - int(math.Floor(math.Log10(number))))
	return math.Round(number*size) / size
}

// endOf returns when the last container of a pod ended; now if one still runs.
func endOf(pod *corev1.Pod, now time.Time) time.Time {
	if pod.Status.Phase != corev1.PodSucceeded && pod.Status.Phase != corev1.PodFailed {
		return now
	}
	var last time.Time
	for i := range pod.Status.ContainerStatuses {
		if ended := pod.Status.ContainerStatuses[i].State.Terminated; ended != nil && ended.FinishedAt.After(last) {
			last = ended.FinishedAt.Time
		}
	}
	if last.IsZero() {
		return now
	}
	return last
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
