// Copyright The DI Orchestrator Authors.
// SPDX-License-Identifier: Apache-2.0

package lifecycle

import (
	"fmt"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"

	"opendilab.org/di-orchestrator/apis/v2alpha1"
	"opendilab.org/di-orchestrator/internal/names"
	"opendilab.org/di-orchestrator/job/lifecycle/ranks"
)

// benchmarkSizes are the numbers of pods in the benchmarked jobs.
var benchmarkSizes = []int{10, 100, 1000, 5000}

// largeJob returns a job of that many collectors, all created and running.
func largeJob(b *testing.B, pods int) Observed {
	b.Helper()
	job := &v2alpha1.DIJob{
		ObjectMeta: metav1.ObjectMeta{Name: "job", Namespace: "space", UID: "job-uid", Generation: 1},
		Spec: v2alpha1.DIJobSpec{Tasks: []v2alpha1.Task{
			{Type: v2alpha1.TaskTypeCollector, Replicas: ptr.To(int32(pods)), Template: template},
		}},
	}
	observed := Observed{Job: job, Confirmed: true, Now: time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC)}
	for len(observed.Pods) < pods {
		decision := Decide(observed)
		job.Status = decision.Status
		observed.ConfigMaps = append(observed.ConfigMaps, decision.CreateConfigMaps...)
		for _, pod := range decision.CreatePods {
			pod.Status.Phase = corev1.PodRunning
			pod.Status.Conditions = []corev1.PodCondition{{Type: corev1.PodReady, Status: corev1.ConditionTrue}}
			observed.Pods = append(observed.Pods, pod)
		}
	}
	observed.Services = []*corev1.Service{{ObjectMeta: metav1.ObjectMeta{Name: names.WorkerService("job"), Namespace: "space"}}}
	for range 2 {
		job.Status = Decide(observed).Status
	}
	return observed
}

// benchmarkStates returns the states of the benchmarked jobs.
func benchmarkStates() map[string]func(*Observed) {
	return map[string]func(*Observed){
		"start":  func(o *Observed) { o.Pods, o.Services, o.Job.Status = nil, nil, v2alpha1.DIJobStatus{} },
		"steady": func(*Observed) {},
		"lost":   func(o *Observed) { o.Pods = o.Pods[1:] },
		"succeeded": func(o *Observed) {
			for _, pod := range o.Pods {
				pod.Status.Phase, pod.Status.Conditions = corev1.PodSucceeded, nil
			}
		},
		// Every other rank is completed, so that the record has the maximum number of ranges.
		"halfway": func(o *Observed) {
			completed := map[int32]bool{}
			for i := 0; i < len(o.Pods); i += 2 {
				o.Pods[i].Status.Phase, o.Pods[i].Status.Conditions = corev1.PodSucceeded, nil
				completed[int32(i)] = true
			}
			o.Job.Status.CompletedRanks = ranks.Format(completed)
		},
	}
}

func BenchmarkDecide(b *testing.B) {
	for _, state := range []string{"start", "steady", "lost", "succeeded", "halfway"} {
		for _, pods := range benchmarkSizes {
			b.Run(fmt.Sprintf("%s/%d", state, pods), func(b *testing.B) {
				observed := largeJob(b, pods)
				benchmarkStates()[state](&observed)
				b.ReportAllocs()
				for b.Loop() {
					Decide(observed)
				}
				b.ReportMetric(float64(b.Elapsed().Nanoseconds())/float64(b.N)/float64(pods), "ns/pod")
			})
		}
	}
}
