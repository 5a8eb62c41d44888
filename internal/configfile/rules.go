// Copyright The DI Orchestrator Authors.
// SPDX-License-Identifier: Apache-2.0

package configfile

import (
	"fmt"
	"math"
	"time"

	"opendilab.org/di-orchestrator/internal/limits"
)

// rule limits the values of a field. The zero value limits none.
type rule struct {
	// values are the only strings.
	values []string
	// pattern is an expression that strings match, and want says what they are.
	pattern, want string
	// min and max bound numbers, lengths of lists, and durations in seconds. A max of 0 is none.
	min, max float64
	// above makes min itself too little, and orZero allows 0 below min.
	above, orZero bool
	// isExpression says that strings are regular expressions that do not match an empty text.
	isExpression bool
	// required is a field that an object must have.
	required string
	// byChart marks what a value of the chart sets, named by the text.
	byChart string
}

// The expressions of strings. Empty strings are for none.
const (
	namePattern = `^[a-z0-9]([-a-z0-9.]*[a-z0-9])?$`
	nameOrNone  = `^([a-z0-9]([-a-z0-9.]*[a-z0-9])?)?$`
	label       = `^([a-z0-9]([-a-z0-9.]{0,251}[a-z0-9])?/)?[A-Za-z0-9]([-A-Za-z0-9_.]{0,61}[A-Za-z0-9])?$`
	labelOrNone = `^(([a-z0-9]([-a-z0-9.]{0,251}[a-z0-9])?/)?[A-Za-z0-9]([-A-Za-z0-9_.]{0,61}[A-Za-z0-9])?)?$`
	urlOrNone   = `^(https?://[^?#]+)?$`
	// A collector has no path: traces are sent by gRPC.
	collector = `^(https?://([^/:?#@\[\]]+|\[[0-9a-fA-F:.]+\])(:[0-9]+)?/?)?$`
)

// The expressions of durations and quantities.
const (
	durationPattern = `^([0-9]+(\.[0-9]+)?(ms|s|m|h))+$`
	quantityPattern = `^[0-9]+(\.[0-9]+)?(k|M|G|T|P|E|[KMGTPE]i)?$`
	maxQuantity     = 32
)

// The maxima that other packages have; a test of the programs compares them.
const (
	maxShards, maxNamespaces, maxMetricsNamespaces = 16, 256, 1000
	maxProfiling                                   = 1 << 20
)

// The maxima of tenants: how many, and their weights. Metrics name each tenant.
const maxTenants, maxWeight = 64, 1000

// The maximum of levels of the topology.
const maxLevels = 4

// The maxima of regular expressions: how many, and their bytes.
const maxRedactions, maxExpression = 32, 256

const minForceDelete = time.Minute

// The bounds of how long a deleted job waits for the history.
const minRequire, maxRequire = 10 * time.Second, 7 * 24 * time.Hour

// rules returns the rules of fields by their paths.
func rules() map[string]rule {
	name := rule{pattern: namePattern, want: "must be the name of an object"}
	optional := rule{pattern: nameOrNone, want: "must be the name of an object, or empty"}
	namespace := rule{pattern: `^[a-z0-9]([-a-z0-9]{0,61}[a-z0-9])?$`, want: "must be the name of a namespace"}
	ratio := rule{max: 1}
	atLeastOne := rule{min: 1, max: math.MaxInt32}
	// More than 0.
	some := rule{above: true}
	address := rule{pattern: urlOrNone, want: "must be a URL such as http://prometheus.monitoring:9090, or empty"}
	request := rule{min: time.Millisecond.Seconds(), max: time.Minute.Seconds()}
	chartOwns := func(r rule, value string) rule {
		r.byChart = value
		return r
	}
	return map[string]rule{
		"common.aggregatorConfig":  name,
		"common.certificateSecret": chartOwns(optional, "certManager.enabled"),
		"common.gpuResource":       {pattern: `^[a-zA-Z0-9]([-a-zA-Z0-9._/]*[a-zA-Z0-9])?$`, want: "must be the name of a resource, such as nvidia.com/gpu"},
		"common.kubeAPIQPS":        {max: math.MaxInt32 / 2},
		"common.logFormat":         {values: []string{"json", "console"}},
		"common.maxPodsPerJob":     {min: 1, max: limits.Replicas},
		"common.serviceDomain":     {pattern: namePattern, want: "must be a domain such as svc.cluster.local"},
		"common.takeover":          {byChart: "takeover.enabled"},
		"common.tracing.endpoint": {pattern: collector,
			want: "must be http://host:port, or https://host:port for TLS, of a collector that takes OTLP over gRPC"},
		"common.tracing.samplingRatio": ratio,
		"common.watchNamespaces":       {max: maxNamespaces},
		"common.watchNamespaces[]":     namespace,

		"operator.allocator.cycle":                  some,
		"operator.allocator.deviceLabel":            {pattern: labelOrNone, want: "must be the key of a label, such as nvidia.com/gpu.product, or empty"},
		"operator.allocator.fairness":               ratio,
		"operator.allocator.history.timeout":        request,
		"operator.allocator.history.url":            address,
		"operator.allocator.policy":                 {pattern: `.`, want: "must be the name of a policy"},
		"operator.allocator.tenants":                {max: maxTenants},
		"operator.allocator.tenants[]":              {required: "name"},
		"operator.allocator.tenants[].name":         {pattern: namespace.pattern, want: "must be a name of up to 63 lower case letters, digits and dashes, such as team-a"},
		"operator.allocator.tenants[].namespaces":   {max: maxNamespaces},
		"operator.allocator.tenants[].namespaces[]": namespace,
		"operator.allocator.tenants[].weight":       {min: 1, max: maxWeight},
		"operator.allocator.topology":               {max: maxLevels},
		"operator.allocator.topology[]":             {pattern: label, want: "must be the key of a label, such as topology.kubernetes.io/zone"},
		"operator.autoscaleMaxMemory":               some,
		"operator.autoscaler.prometheusURL":         address,
		"operator.autoscaler.optimizer.url":         address,
		"operator.autoscaler.optimizer.timeout":     request,
		"operator.defaultAggregatorConfig":          chartOwns(optional, "aggregatorConfig.template"),
		"operator.forceDeleteAfter":                 {min: minForceDelete.Seconds(), orZero: true},
		"operator.gangs.scheduler":                  {values: []string{"auto", "none", "volcano", "coscheduling", "kubernetes"}},
		"operator.gangs.schedulerName":              optional,
		"operator.metricsNamespaces":                {max: maxMetricsNamespaces},
		"operator.podResizeTimeout":                 some,
		"operator.priorityClasses":                  {byChart: "priorityClasses"},
		"operator.priorityClasses.high":             optional,
		"operator.priorityClasses.normal":           optional,
		"operator.queueing":                         {values: []string{"auto", "kueue", "none"}},
		"operator.shards":                           {min: 1, max: maxShards},
		"operator.storageMigration.qps":             some,
		"operator.workers":                          {min: 1, max: 1000},

		"history.keepJobs":       {max: math.MaxInt32},
		"history.requireTimeout": {min: minRequire.Seconds(), max: maxRequire.Seconds()},
		"history.logs.redact":    {max: maxRedactions},
		"history.logs.redact[]":  {isExpression: true, max: maxExpression, want: fmt.Sprintf("must be a regular expression of up to %d bytes that matches no empty text", maxExpression)},

		"server.identity":                     {values: []string{"enforce", "legacy", "disabled"}},
		"server.limits.connections":           atLeastOne,
		"server.limits.connectionsPerAddress": {max: math.MaxInt32},
		"server.limits.profilingBytes":        {min: 1, max: maxProfiling},
		"server.limits.replicasPerJob":        atLeastOne,
		"server.limits.replicasPerRequest":    atLeastOne,
		"server.limits.writeBurst":            atLeastOne,
		"server.limits.writeBytesPerMinute":   atLeastOne,
		"server.limits.writesPerSecond":       some,
	}
}
