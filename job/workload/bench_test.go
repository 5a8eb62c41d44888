// Copyright The DI Orchestrator Authors.
// SPDX-License-Identifier: Apache-2.0

package workload

import (
	"strconv"
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"opendilab.org/di-orchestrator/apis/v2alpha1"
	"opendilab.org/di-orchestrator/internal/names"
)

// BenchmarkWorker builds all pods of a job.
func BenchmarkWorker(b *testing.B) {
	for _, pods := range []int32{10, 100, 1000, 5000} {
		b.Run(strconv.Itoa(int(pods)), func(b *testing.B) {
			job := &v2alpha1.DIJob{
				ObjectMeta: metav1.ObjectMeta{Name: "job", Namespace: "space", UID: "uid"},
				Spec: v2alpha1.DIJobSpec{Tasks: []v2alpha1.Task{{
					Type: v2alpha1.TaskTypeCollector, Template: raw(`{"spec":{"containers":[{"name":"di-container","image":"image"}]}}`),
				}}},
			}
			assignment := &Assignment{}
			for index := range pods {
				name := names.WorkerPod(job.Name, "collector", index)
				assignment.Replicas = append(assignment.Replicas, Replica{Index: index, Rank: index, Pod: name})
				assignment.Nodes = append(assignment.Nodes, name)
			}
			b.ReportAllocs()
			for b.Loop() {
				builder := NewBuilder(job, Settings{})
				for i := range assignment.Replicas {
					if _, err := builder.Worker(assignment, &assignment.Replicas[i]); err != nil {
						b.Fatal(err)
					}
				}
			}
			b.ReportMetric(float64(b.Elapsed().Nanoseconds())/float64(b.N)/float64(pods), "ns/pod")
		})
	}
}
