// Copyright The DI Orchestrator Authors.
// SPDX-License-Identifier: Apache-2.0

package observe

import (
	"maps"
	"slices"
	"time"

	corev1 "k8s.io/api/core/v1"

	"opendilab.org/di-orchestrator/history/record"
)

// readPeaks raises the peaks of tasks by what was measured, what the optimizer has noted, and the memory at
// which replicas were killed.
func readPeaks(job *record.Job, seen Observation) {
	peaks := map[string]record.Peak{}
	for _, peak := range job.Peaks {
		peaks[peak.Task] = peak
	}
	raise := func(task string, by record.Peak) {
		if _, isKnown := peaks[task]; isKnown || by != (record.Peak{}) {
			peaks[task] = Higher(peaks[task], by)
		}
	}
	if status := seen.Job.Status.Autoscaling; status != nil && status.Optimizer != nil {
		for _, peak := range status.Optimizer.Peaks {
			raise(peak.Task, record.Peak{CPU: peak.CPU, Memory: peak.Memory})
		}
	}
	for task, used := range seen.Used {
		if isHigher(used, peaks[task]) {
			raise(task, used)
		}
	}
	for i := range seen.Pods {
		raise(TaskOf(&seen.Pods[i]), record.Peak{Killed: killedAt(&seen.Pods[i])})
	}
	if len(peaks) == 0 {
		return
	}
	job.Peaks = make([]record.Peak, 0, len(peaks))
	for _, task := range slices.Sorted(maps.Keys(peaks)) {
		peak := peaks[task]
		peak.Task = task
		job.Peaks = append(job.Peaks, peak)
	}
}

// isHigher reports whether a usage is more than a hundredth above the peak. Smaller steps would write the
// record of a job whose memory grows every time.
func isHigher(used, peak record.Peak) bool {
	return used.CPU > peak.CPU+peak.CPU/100 || used.Memory > peak.Memory+peak.Memory/100
}

// Higher returns the higher one of each value.
func Higher(a, b record.Peak) record.Peak {
	a.CPU, a.Memory, a.Killed = max(a.CPU, b.CPU), max(a.Memory, b.Memory), max(a.Killed, b.Killed)
	return a
}

// killedAt returns the memory at which a container was killed: its limit, or its request without one.
func killedAt(pod *corev1.Pod) int64 {
	most := int64(0)
	for _, ending := range Endings(pod) {
		if ending.Reason != outOfMemory {
			continue
		}
		for i := range pod.Spec.Containers {
			if container := &pod.Spec.Containers[i]; container.Name == ending.Container {
				memory := container.Resources.Limits.Memory()
				if memory.IsZero() {
					memory = container.Resources.Requests.Memory()
				}
				most = max(most, memory.Value())
			}
		}
	}
	return most
}

// UsageSample returns what the replicas of each task used at most, as series cpu/TASK in millicores and
// memory/TASK in bytes. ok is false if there is nothing.
func UsageSample(used map[string]record.Peak, now time.Time) (sample record.Sample, ok bool) {
	sample = record.Sample{At: now.UTC(), Values: map[string]record.Mean{}}
	for task, of := range used {
		sample.Values["cpu/"+task] = record.Mean{Sum: float64(of.CPU), Count: 1}
		sample.Values["memory/"+task] = record.Mean{Sum: float64(of.Memory), Count: 1}
	}
	sample = record.BoundSample(sample)
	return sample, len(sample.Values) > 0
}
