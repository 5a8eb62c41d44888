// Copyright The DI Orchestrator Authors.
// SPDX-License-Identifier: Apache-2.0

package configfile

// FormerFlags returns the flags of earlier builds that became fields of the configuration, by their names. The text of one that
// is just gone is empty.
func FormerFlags() map[string]string {
	return map[string]string{
		"log-format":                  "common.logFormat",
		"tracing-endpoint":            "common.tracing.endpoint",
		"tracing-sampling-ratio":      "common.tracing.samplingRatio",
		"metrics-secure":              "common.secureMetrics",
		"kube-api-qps":                "common.kubeAPIQPS",
		"kube-api-burst":              "common.kubeAPIQPS, and a burst is twice as large",
		"aggregator-config":           "common.aggregatorConfig, a name in the installation's namespace",
		"gpu-resource":                "common.gpuResource",
		"watch-namespaces":            "common.watchNamespaces",
		"max-pods-per-job":            "common.maxPodsPerJob",
		"service-domain":              "common.serviceDomain",
		"takeover":                    "common.takeover",
		"webhook-certificates":        "common.certificateSecret, which is empty for own certificates",
		"webhook-secret":              "common.certificateSecret",
		"migration-qps":               "operator.storageMigration.qps",
		"migration-settle":            "operator.storageMigration.settle",
		"takeover-settle":             "operator.takeoverSettle",
		"shards":                      "operator.shards",
		"workers":                     "operator.workers",
		"allocator":                   "operator.allocator.enabled",
		"allocator-cycle":             "operator.allocator.cycle",
		"allocator-policy":            "operator.allocator.policy",
		"allocator-fairness":          "operator.allocator.fairness",
		"autoscaler":                  "operator.autoscaler.enabled",
		"prometheus-url":              "operator.autoscaler.prometheusURL",
		"optimizer-url":               "operator.autoscaler.optimizer.url",
		"optimizer-timeout":           "operator.autoscaler.optimizer.timeout",
		"optimizer-token-file":        "operator.autoscaler.optimizer.tokenFile",
		"optimizer-ca-file":           "operator.autoscaler.optimizer.caFile",
		"queueing":                    "operator.queueing",
		"gang-scheduler":              "operator.gangs.scheduler",
		"gang-scheduler-name":         "operator.gangs.schedulerName",
		"priority-class-normal":       "operator.priorityClasses.normal",
		"priority-class-high":         "operator.priorityClasses.high",
		"default-aggregator-config":   "operator.defaultAggregatorConfig",
		"webhook-probe-interval":      "operator.probeInterval",
		"metrics-namespaces":          "operator.metricsNamespaces",
		"force-delete-after":          "operator.forceDeleteAfter",
		"autoscale-max-memory":        "operator.autoscaleMaxMemory",
		"pod-resize-timeout":          "operator.podResizeTimeout",
		"server-url-coordinator":      derivedURL,
		"server-url-replica":          derivedURL,
		"server-url-worker":           derivedURL,
		"webhook-service":             "",
		"identity":                    "server.identity, where off is disabled",
		"strict-addresses":            "server.strictAddresses",
		"max-replicas-per-request":    "server.limits.replicasPerRequest",
		"max-replicas-per-job":        "server.limits.replicasPerJob",
		"writes-per-second":           "server.limits.writesPerSecond",
		"write-burst":                 "server.limits.writeBurst",
		"write-bytes-per-minute":      "server.limits.writeBytesPerMinute",
		"max-profiling-bytes":         "server.limits.profilingBytes",
		"max-connections":             "server.limits.connections",
		"max-connections-per-address": "server.limits.connectionsPerAddress",
	}
}

// The address of di-server follows from where its Service is.
const derivedURL = "common.serviceDomain, and --namespace, from which the address of di-server follows"
