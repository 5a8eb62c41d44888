// Copyright The DI Orchestrator Authors.
// SPDX-License-Identifier: Apache-2.0

package v1alpha1

import (
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// Configuration configures the programs of one installation.
type Configuration struct {
	metav1.TypeMeta `json:",inline"`
	// Common is for all programs.
	Common Common `json:"common"`
	// Operator is for the operator.
	Operator Operator `json:"operator"`
	// Server is for di-server.
	Server Server `json:"server"`
	// History is for the history of jobs.
	History History `json:"history"`
}

// Common is for all programs.
type Common struct {
	// AggregatorConfig is the AggregatorConfig of jobs that name none, in the installation's namespace.
	AggregatorConfig string `json:"aggregatorConfig"`
	// CertificateSecret is the Secret of the webhooks if another tool, such as cert-manager, maintains certificates. It then also
	// maintains Secret `di-orchestrator-server-tls`. The chart sets this.
	CertificateSecret string `json:"certificateSecret"`
	// GPUResource is the name of the resource of GPUs.
	GPUResource string `json:"gpuResource"`
	// KubeAPIQPS limits the calls of each program to the API server, per second and kind of object. Bursts are twice as large.
	// With 0, API Priority and Fairness limits them, or 200 where the API server lacks that.
	KubeAPIQPS float64 `json:"kubeAPIQPS"`
	// LogFormat is the format of log lines: `json` or `console`.
	LogFormat LogFormat `json:"logFormat"`
	// MaxPodsPerJob is the maximum of pods of a job, up to 100000.
	MaxPodsPerJob int32 `json:"maxPodsPerJob"`
	// SecureMetrics serves metrics over TLS, and only to callers whose token allows `get` on /metrics.
	SecureMetrics bool `json:"secureMetrics"`
	// ServiceDomain is the domain of the cluster's Services.
	ServiceDomain string `json:"serviceDomain"`
	// Takeover takes over an earlier release in the namespace. If false, the programs refuse to run beside one. The chart sets this.
	Takeover bool `json:"takeover"`
	// Tracing is for traces.
	Tracing Tracing `json:"tracing"`
	// WatchNamespaces are the namespaces whose jobs this installation runs, at most 256; all if empty.
	WatchNamespaces []string `json:"watchNamespaces"`
}

// LogFormat is a format of log lines.
type LogFormat string

// The formats of log lines.
const (
	LogJSON    LogFormat = "json"
	LogConsole LogFormat = "console"
)

// Tracing is for traces.
type Tracing struct {
	// Endpoint is the OpenTelemetry collector (OTLP over gRPC), such as `http://collector.monitoring:4317`, or `https` for TLS.
	// If empty, variable `OTEL_EXPORTER_OTLP_TRACES_ENDPOINT` or `OTEL_EXPORTER_OTLP_ENDPOINT` names it. Without any, traces are off.
	Endpoint string `json:"endpoint"`
	// SamplingRatio is the ratio of recorded traces that begin here, from 0 to 1. For other traces the caller decides.
	SamplingRatio float64 `json:"samplingRatio"`
}

// Operator is for the operator.
type Operator struct {
	// Allocator is for the allocator of preemptible jobs.
	Allocator Allocator `json:"allocator"`
	// AutoscaleMaxMemory is the maximum memory that a replica is given after out-of-memory kills.
	AutoscaleMaxMemory resource.Quantity `json:"autoscaleMaxMemory"`
	// Autoscaler is for the autoscaler of jobs.
	Autoscaler Autoscaler `json:"autoscaler"`
	// DefaultAggregatorConfig is the ConfigMap with the pod template for an AggregatorConfig if there is none. The chart sets this.
	DefaultAggregatorConfig string `json:"defaultAggregatorConfig"`
	// ForceDeleteAfter is how long after its grace period a pod on a lost or unready node is deleted by force. At least `1m`; `0s` for
	// never.
	ForceDeleteAfter metav1.Duration `json:"forceDeleteAfter"`
	// Gangs is for jobs with a gang.
	Gangs Gangs `json:"gangs"`
	// MetricsNamespaces is how many namespaces the metrics of jobs name, at most 1000.
	MetricsNamespaces int32 `json:"metricsNamespaces"`
	// PodResizeTimeout is how long a pod may take to be resized in place.
	PodResizeTimeout metav1.Duration `json:"podResizeTimeout"`
	// PriorityClasses are those of jobs' pods.
	PriorityClasses PriorityClasses `json:"priorityClasses"`
	// ProbeInterval is the interval of the admission probe, a dry-run create of a job; `0s` for never.
	ProbeInterval metav1.Duration `json:"probeInterval"`
	// Queueing is the queue manager of jobs that name a queue: `auto`, `kueue` or `none`.
	Queueing Queueing `json:"queueing"`
	// Shards is the number of shards of jobs, up to 16.
	Shards int32 `json:"shards"`
	// StorageMigration is for the storage migration.
	StorageMigration StorageMigration `json:"storageMigration"`
	// TakeoverSettle is how long endpoint changes take to reach all nodes.
	TakeoverSettle metav1.Duration `json:"takeoverSettle"`
	// Workers is the number of jobs that are reconciled concurrently.
	Workers int32 `json:"workers"`
}

// Allocator is for the allocator of preemptible jobs.
type Allocator struct {
	// Cycle is the interval of allocation rounds while nothing changes.
	Cycle metav1.Duration `json:"cycle"`
	// DeviceLabel is the label of nodes that names the type of their GPUs, for policy `goodput`. If empty, all are of one type.
	DeviceLabel string `json:"deviceLabel"`
	// Enabled runs the allocator; if false, preemptible jobs wait for another one.
	Enabled bool `json:"enabled"`
	// Fairness is how much the weight of a job grows while it waits or progresses slowly, from 0 to 1, for policy `goodput`.
	Fairness float64 `json:"fairness"`
	// History is the program that remembers jobs. The allocator asks it for what it has learned of groups of jobs and keeps no longer.
	History Service `json:"history"`
	// Policy is `fit`, `goodput`, or a policy that the image links.
	Policy string `json:"policy"`
	// Tenants [share the capacity](allocator.md#tenants) by weight, at most 64. Without any, all jobs compete alike.
	Tenants []Tenant `json:"tenants"`
	// Topology are labels of nodes that name [their domains](allocator.md#topology), from the widest level to the narrowest, at most 4. Empty for none.
	Topology []string `json:"topology"`
}

// Tenant is a team with a share of the capacity.
type Tenant struct {
	// Name is the name of the tenant. A namespace of this name is the tenant's, too.
	Name string `json:"name"`
	// Namespaces are the namespaces of the tenant's jobs, at most 256.
	Namespaces []string `json:"namespaces"`
	// Weight is its part of the capacity beside the weights of the other tenants, from 1 to 1000. It is 1 if absent.
	Weight int32 `json:"weight"`
}

// Autoscaler is for the autoscaler of jobs.
type Autoscaler struct {
	// Enabled resizes jobs with `spec.autoscale.ratio`; if false, their size stays.
	Enabled bool `json:"enabled"`
	// Optimizer is the service that optimizes jobs of type `Remote`. Without its URL, they are optimized locally.
	Optimizer Service `json:"optimizer"`
	// PrometheusURL is the Prometheus that jobs with `spec.autoscale.ratio.prometheus` query, such as `http://prometheus.monitoring:9090`.
	PrometheusURL string `json:"prometheusURL"`
}

// Service is a service that the operator asks.
type Service struct {
	// CAFile is the file with the certificates of the service's authorities. If empty, those of the system.
	CAFile string `json:"caFile"`
	// Timeout is how long a request may take, from `1ms` to `1m`.
	Timeout metav1.Duration `json:"timeout"`
	// TokenFile is the file with the bearer token for the service, which needs an https URL.
	TokenFile string `json:"tokenFile"`
	// URL is the URL of the service, such as `https://optimizer.example.svc:8443`. Without it, the service is not used.
	URL string `json:"url"`
}

// Gangs is for jobs with a gang.
type Gangs struct {
	// Scheduler is the scheduler of gangs: `auto`, `volcano`, `coscheduling`, `kubernetes` or `none`.
	Scheduler GangScheduler `json:"scheduler"`
	// SchedulerName is the scheduler of gang pods that name none, if it is not `volcano` or `scheduler-plugins-scheduler`.
	SchedulerName string `json:"schedulerName"`
}

// GangScheduler is a scheduler of gangs.
type GangScheduler string

// Queueing is a queue manager.
type Queueing string

// The queue managers.
const (
	QueueingAuto  Queueing = "auto"
	QueueingKueue Queueing = "kueue"
	QueueingNone  Queueing = "none"
)

// PriorityClasses are those of pods whose job and template name none, by the job's priority.
type PriorityClasses struct {
	// High is the PriorityClass of jobs with priority `high`. The chart sets this.
	High string `json:"high"`
	// Normal is the same for priority `normal`.
	Normal string `json:"normal"`
}

// StorageMigration is for the storage migration.
type StorageMigration struct {
	// QPS limits the calls of the migration to the API server, per second.
	QPS float64 `json:"qps"`
	// Settle is how long API servers take to observe a new storage version.
	Settle metav1.Duration `json:"settle"`
}

// Server is for di-server.
type Server struct {
	// Identity is what happens to unauthenticated callers: `enforce`, `legacy` or `disabled`.
	Identity Identity `json:"identity"`
	// Limits bound what one job may ask for.
	Limits Limits `json:"limits"`
	// StrictAddresses identifies pods with hostNetwork by token only.
	StrictAddresses bool `json:"strictAddresses"`
}

// Identity decides about unauthenticated callers.
type Identity string

// What is done with unauthenticated callers.
const (
	IdentityEnforce  Identity = "enforce"
	IdentityLegacy   Identity = "legacy"
	IdentityDisabled Identity = "disabled"
)

// Limits bound what one job may ask for.
type Limits struct {
	// Connections is the maximum of connections of each port.
	Connections int32 `json:"connections"`
	// ConnectionsPerAddress is the same for one client address. 0 is 64, or half of `connections` if `identity` is not `enforce`.
	ConnectionsPerAddress int32 `json:"connectionsPerAddress"`
	// ProfilingBytes is the maximum size of a profiling report, at most 1048576.
	ProfilingBytes int32 `json:"profilingBytes"`
	// ReplicasPerJob is the maximum of replicas of a job.
	ReplicasPerJob int32 `json:"replicasPerJob"`
	// ReplicasPerRequest is the maximum of replicas of one task in a request.
	ReplicasPerRequest int32 `json:"replicasPerRequest"`
	// WriteBurst is the burst of writes for one job.
	WriteBurst int32 `json:"writeBurst"`
	// WriteBytesPerMinute limits the bytes written for one job.
	WriteBytesPerMinute int32 `json:"writeBytesPerMinute"`
	// WritesPerSecond limits the writes for one job.
	WritesPerSecond float64 `json:"writesPerSecond"`
}

// History is for the history of jobs.
type History struct {
	// KeepBytes is the maximum size of what is remembered; `0` for none.
	KeepBytes resource.Quantity `json:"keepBytes"`
	// KeepFor is how long a job is remembered after its end; `0s` forever.
	KeepFor metav1.Duration `json:"keepFor"`
	// KeepJobs is the maximum of remembered jobs; 0 for none.
	KeepJobs int32 `json:"keepJobs"`
	// Logs is for the last lines of containers that ended badly.
	Logs HistoryLogs `json:"logs"`
	// Require is whether a job stays until the history has recorded its end. The operator adds finalizer `diengine.opendilab.org/history` to all jobs.
	Require bool `json:"require"`
	// RequireTimeout is how long a deleted job waits for that, from `10s` to `168h`. A restart of the operator restarts it.
	RequireTimeout metav1.Duration `json:"requireTimeout"`
}

// HistoryLogs is for the last lines of containers that ended badly.
type HistoryLogs struct {
	// Enabled is whether they are read, by right `get` on `pods/log`, and remembered.
	Enabled bool `json:"enabled"`
	// Redact lists up to 32 regular expressions of up to 256 bytes, whose matches in these lines, and in messages, become `[redacted]`. None matches an empty text.
	Redact []string `json:"redact"`
}
