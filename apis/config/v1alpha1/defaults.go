// Copyright The DI Orchestrator Authors.
// SPDX-License-Identifier: Apache-2.0

package v1alpha1

import (
	"time"

	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// Defaults returns the configuration of an empty file.
func Defaults() *Configuration {
	return &Configuration{
		TypeMeta: metav1.TypeMeta{APIVersion: GroupVersion.String(), Kind: Kind},
		Common: Common{
			AggregatorConfig: "aggregator-config",
			GPUResource:      "nvidia.com/gpu",
			LogFormat:        LogJSON,
			MaxPodsPerJob:    5000,
			ServiceDomain:    "svc.cluster.local",
			Takeover:         true,
			Tracing:          Tracing{SamplingRatio: 1},
		},
		Operator: Operator{
			Allocator: Allocator{
				Enabled: true, Cycle: seconds(60), Policy: "fit", Fairness: 0.02, DeviceLabel: "nvidia.com/gpu.product", History: Service{Timeout: seconds(2)},
				Topology: []string{"topology.kubernetes.io/zone"},
			},
			AutoscaleMaxMemory: resource.MustParse("64Gi"),
			Autoscaler:         Autoscaler{Enabled: true, Optimizer: Service{Timeout: seconds(5)}},
			Gangs:              Gangs{Scheduler: "auto"},
			PodResizeTimeout:   seconds(60),
			ProbeInterval:      seconds(30),
			Queueing:           QueueingAuto,
			Shards:             1,
			StorageMigration:   StorageMigration{QPS: 50, Settle: seconds(30)},
			TakeoverSettle:     seconds(5),
			Workers:            8,
		},
		History: History{KeepBytes: resource.MustParse("8Gi"), KeepFor: seconds(365 * 24 * 60 * 60), KeepJobs: 1_000_000, Logs: HistoryLogs{Enabled: true}, RequireTimeout: seconds(10 * 60)},
		Server: Server{
			Identity: IdentityEnforce,
			Limits: Limits{
				Connections: 4096, ProfilingBytes: 64 << 10, ReplicasPerJob: 2000, ReplicasPerRequest: 500,
				WriteBurst: 50, WriteBytesPerMinute: 512 << 10, WritesPerSecond: 10,
			},
		},
	}
}

func seconds(count int) metav1.Duration {
	return metav1.Duration{Duration: time.Duration(count) * time.Second}
}
