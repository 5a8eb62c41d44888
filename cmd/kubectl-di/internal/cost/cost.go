// Copyright The DI Orchestrator Authors.
// SPDX-License-Identifier: Apache-2.0

// Package cost computes what the pods of a job requested for as long as they ran, and implements kubectl di cost.
package cost

import (
	"bytes"
	"math"
	"strconv"
	"time"

	corev1 "k8s.io/api/core/v1"
	resourcehelper "k8s.io/component-helpers/resource"

	"opendilab.org/di-orchestrator/cmd/kubectl-di/internal/cli"
	"opendilab.org/di-orchestrator/cmd/kubectl-di/internal/jobview"
	"opendilab.org/di-orchestrator/history/record"
)

// Cost is what pods of a job requested for as long as they ran, in hours of CPUs, GiB and GPUs.
type Cost struct {
	Pods        int     `json:"pods"`
	PodHours    float64 `json:"podHours"`
	CPUHours    float64 `json:"cpuHours"`
	MemoryHours float64 `json:"memoryHours"`
	GPUHours    float64 `json:"gpuHours"`
	// Recorded is set if it is that of all pods, by the history.
	Recorded bool `json:"recorded,omitempty"`
}

// OfPods returns what pods requested for as long as they ran.
func OfPods(pods []*corev1.Pod, now time.Time) Cost {
	var cost Cost
	for _, pod := range pods {
		if pod.Status.StartTime == nil {
			continue
		}
		requests := resourcehelper.PodRequests(pod, resourcehelper.PodResourcesOptions{})
		cost.add(max(0, endOf(pod, now).Sub(pod.Status.StartTime.Time)),
			requests.Cpu().AsApproximateFloat64(), requests.Memory().AsApproximateFloat64(), float64(jobview.GPUsOfPod(pod)))
	}
	for _, hours := range []*float64{&cost.PodHours, &cost.CPUHours, &cost.MemoryHours, &cost.GPUHours} {
		*hours = inThreeDigits(*hours)
	}
	return cost
}

// add adds a pod that requested so many CPUs, bytes and GPUs.
func (c *Cost) add(ran time.Duration, cpus, memory, gpus float64) {
	hours := ran.Hours()
	c.Pods++
	c.PodHours += hours
	c.CPUHours += hours * cpus
	c.MemoryHours += hours * memory / (1 << 30)
	c.GPUHours += hours * gpus
}

// IfAny returns the cost; nil if no pod has started.
func (c Cost) IfAny() *Cost {
	if c.Pods == 0 {
		return nil
	}
	return &c
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

// OfRecord returns what all recorded replicas of a job requested for as long as they ran.
func OfRecord(of *record.Job, now time.Time) Cost {
	requests := make(map[string]record.Request, len(of.Requests))
	for _, request := range of.Requests {
		requests[request.Task] = request
	}
	cost := Cost{Recorded: true}
	for i := range of.Replicas {
		replica := &of.Replicas[i]
		ended := replica.Ended
		if ended.IsZero() {
			ended = of.Ended
		}
		if ended.IsZero() {
			ended = now
		}
		if replica.Started.IsZero() || !ended.After(replica.Started) {
			continue
		}
		request := requests[replica.Task]
		cost.add(ended.Sub(replica.Started), float64(request.CPU)/1000, float64(request.Memory), float64(request.GPUs))
	}
	return cost
}

// Print prints a cost, with its sum if there are prices.
func (c Cost) Print(env *cli.Env, output *cli.Data, prices Prices) error {
	sum := prices.Of(&c)
	if !output.IsText() {
		return output.Print(env.Out, struct {
			Cost  `json:",inline"`
			Price *float64 `json:"price,omitempty"`
		}{c, sum})
	}
	rows := cli.Table{
		{"GPU hours", number(c.GPUHours)}, {"CPU hours", number(c.CPUHours)}, {"GiB hours", number(c.MemoryHours)}, {"Pod hours", number(c.PodHours)},
	}
	if sum != nil {
		rows.Add("Price", strconv.FormatFloat(*sum, 'f', 2, 64))
	}
	of := " that exist"
	if c.Recorded {
		of = " of the history"
	}
	rows.Add("Pods", strconv.Itoa(c.Pods)+of)
	var out bytes.Buffer
	rows.Write(&out, "")
	_, err := env.Out.Write(out.Bytes())
	return err
}

// number prints hours as a person reads them.
func number(hours float64) string { return strconv.FormatFloat(inThreeDigits(hours), 'f', -1, 64) }
