// Copyright The DI Orchestrator Authors.
// SPDX-License-Identifier: Apache-2.0

package programs

import (
	"flag"
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/go-logr/logr"
	"github.com/google/go-cmp/cmp"
	"github.com/prometheus/client_golang/prometheus"
	"github.com/spf13/pflag"
	"k8s.io/client-go/rest"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/metrics"

	configv1alpha1 "opendilab.org/di-orchestrator/apis/config/v1alpha1"
	"opendilab.org/di-orchestrator/internal/telemetry"
	"opendilab.org/di-orchestrator/test/testkit"
)

var update = flag.Bool("update", false, "rewrite docs/metrics.md")

// maxSeries is the maximum number of combinations of label values of one metric in one process.
const maxSeries = 1500

// recorded is a registry that records the descriptions of its metrics.
type recorded struct {
	*prometheus.Registry
	metrics []telemetry.Metric
}

func (r *recorded) Register(collector prometheus.Collector) error {
	if set, isSet := collector.(interface{ Metrics() []telemetry.Metric }); isSet {
		r.metrics = append(r.metrics, set.Metrics()...)
	}
	return r.Registry.Register(collector)
}

// described returns the names of a collector's metrics, with their labels.
func described(collector prometheus.Collector) map[string][]string {
	descriptions := make(chan *prometheus.Desc)
	go func() {
		collector.Describe(descriptions)
		close(descriptions)
	}()
	pattern := regexp.MustCompile(`fqName: "([^"]+)".*variableLabels: \{([^}]*)\}`)
	all := map[string][]string{}
	for description := range descriptions {
		found := pattern.FindStringSubmatch(description.String())
		labels := strings.FieldsFunc(strings.NewReplacer("c(", "", ")", "").Replace(found[2]), func(r rune) bool { return r == ',' })
		all[found[1]] = labels
	}
	return all
}

// registered constructs a program as in production, and returns the metrics that it registers.
func registered(t *testing.T, process *processOptions, addFlags func(*pflag.FlagSet), newManager func(observers) (ctrl.Manager, error)) *recorded {
	t.Helper()
	registry := &recorded{Registry: prometheus.NewRegistry()}
	addFlags(pflag.NewFlagSet("program", pflag.ContinueOnError))
	process.metricsAddress, process.probeAddress, process.config = "0", "0", configv1alpha1.Defaults()
	if _, err := newManager(observers{metrics: registry}); err != nil {
		t.Fatal(err)
	}
	return registry
}

// programs returns the metrics that each program registers, by the program's title.
func programs(t *testing.T, config *rest.Config) []documented {
	t.Helper()
	var operator operatorOptions
	var hooks webhookOptions
	var server serverOptions
	var history historyOptions
	return []documented{
		{"Operator", registered(t, &operator.processOptions, operator.addFlags, func(watching observers) (ctrl.Manager, error) {
			// The reference lists the metrics by namespace and of tenants as well.
			operator.config.Operator.MetricsNamespaces = 1
			operator.config.Operator.Allocator.Tenants = []configv1alpha1.Tenant{{Name: "vision"}}
			return operator.newManager(t.Context(), rest.CopyConfig(config), logr.Discard(), watching)
		})},
		{"Webhooks", registered(t, &hooks.processOptions, hooks.addFlags, func(watching observers) (ctrl.Manager, error) {
			return hooks.newManager(t.Context(), rest.CopyConfig(config), logr.Discard(), watching)
		})},
		{"di-server", registered(t, &server.processOptions, server.addFlags, func(watching observers) (ctrl.Manager, error) {
			return server.newManager(t.Context(), rest.CopyConfig(config), logr.Discard(), watching)
		})},
		{"History", registered(t, &history.processOptions, history.addFlags, func(watching observers) (ctrl.Manager, error) {
			return history.newManager(t.Context(), rest.CopyConfig(config), logr.Discard(), watching)
		})},
	}
}

// documented is a program with its metrics.
type documented struct {
	title string
	*recorded
}

// borrowed returns the metrics of libraries that the alerts or the dashboard use, with their
// documentation.
func borrowed() []telemetry.Metric {
	return []telemetry.Metric{
		{Name: "controller_runtime_reconcile_errors_total", Type: telemetry.TypeCounter, Unit: "passes", Help: "Passes of a controller that failed; operator.",
			Labels: []telemetry.Label{{Name: "controller", Values: []string{"dijob", "allocator", "autoscaler", "optimizer"}}}},
		{Name: "controller_runtime_reconcile_time_seconds", Type: telemetry.TypeHistogram, Unit: "seconds", Help: "Time that a pass took; operator.",
			Labels: []telemetry.Label{{Name: "controller", Values: []string{"dijob", "allocator", "autoscaler", "optimizer"}}}},
		{Name: "controller_runtime_webhook_latency_seconds", Type: telemetry.TypeHistogram, Unit: "seconds", Help: "Time to answer a question of admission, by path; webhooks.",
			Labels: []telemetry.Label{{Name: "webhook", About: "the path"}}},
		{Name: "leader_election_master_status", Type: telemetry.TypeGauge, Unit: "none", Help: "Whether this operator is the leader: 1 for yes, 0 for no.",
			Labels: []telemetry.Label{{Name: "name", Values: []string{leaderElectionID}}}},
		{Name: "process_cpu_seconds_total", Type: telemetry.TypeCounter, Unit: "seconds", Help: "Processor time that was used."},
		{Name: "process_resident_memory_bytes", Type: telemetry.TypeGauge, Unit: "bytes", Help: "Memory that is in use."},
		{Name: "rest_client_requests_total", Type: telemetry.TypeCounter, Unit: "calls", Help: "Calls to the API server.",
			Labels: []telemetry.Label{{Name: "code", About: "the HTTP status"}, {Name: "host", About: "the API server"}, {Name: "method", About: "the HTTP method"}}},
		{Name: "workqueue_depth", Type: telemetry.TypeGauge, Unit: "jobs", Help: "What waits for a controller; operator.",
			Labels: []telemetry.Label{
				{Name: "name", Values: []string{"dijob", "allocator", "autoscaler", "optimizer"}}, {Name: "controller", Values: []string{"dijob", "allocator", "autoscaler", "optimizer"}},
				{Name: "priority", About: "the priority in the queue"},
			}},
	}
}

const metricsIntro = `# Metrics

All programs serve Prometheus' metrics at ` + "`/metrics`" + ` on port 8082, each pod its own. The chart scrapes them by
` + "`monitoring.serviceMonitor.enabled`" + `, and has [alerts](runbooks.md) and a dashboard over them.

No label names a job or a caller. The tables have all values of all labels. Any other value counts as
` + "`other`" + `. Label ` + "`job_namespace`" + ` names namespaces of jobs only with ` + "`operator.metricsNamespaces`" + ` of [the configuration](configuration.md): that many
of them, and the others as ` + "`other`" + `. Without it there are no metrics ` + "`di_orchestrator_namespace_*`" + `.

Counters of jobs are counted once the status that says so is written, so once, also when a write had to be
repeated. Counters begin at 0 when a pod starts: ask for ` + "`rate` or `increase`" + `. Of the controllers and
the allocator only the leader reports what happens. With [shards](shards.md) each operator reports its own jobs.

This page is written from what the programs register: ` + "`go test ./cmd/di-orchestrator/programs -run Metrics -update`" + `.
`

// reference writes the reference of all metrics.
func reference(programs []documented) string {
	var text strings.Builder
	text.WriteString(metricsIntro)
	section := func(title string, all []telemetry.Metric) {
		fmt.Fprintf(&text, "\n## %s\n\n| metric | type | unit | labels | meaning |\n| --- | --- | --- | --- | --- |\n", title)
		slices.SortFunc(all, func(a, b telemetry.Metric) int { return strings.Compare(a.Name, b.Name) })
		for i := range all {
			m := &all[i]
			fmt.Fprintf(&text, "| `%s` | %s | %s | %s | %s |\n", m.Name, m.Type, m.Unit, labelsOf(m), m.Help)
		}
	}
	for _, program := range programs {
		section(program.title, program.metrics)
	}
	section("Of the libraries\n\nThese are told too, and many more. They are what the alerts and the dashboard ask for.", borrowed())
	return text.String()
}

func labelsOf(metric *telemetry.Metric) string {
	var all []string
	for i := range metric.Labels {
		label := &metric.Labels[i]
		values := "`" + strings.Join(label.Values, "`, `") + "`"
		if label.About != "" {
			values = label.About
		}
		all = append(all, "`"+label.Name+"`: "+values)
	}
	return strings.Join(all, "<br>")
}

// checkWhole checks that all our metrics in a registry are described with exactly their labels, and
// that they do not have too many series.
func checkWhole(t *testing.T, registry *recorded) {
	t.Helper()
	all := described(registry.Registry)
	for i := range registry.metrics {
		m := &registry.metrics[i]
		var labels []string
		series := 1
		for j := range m.Labels {
			labels = append(labels, m.Labels[j].Name)
			series *= len(m.Labels[j].Values)
		}
		if series > maxSeries {
			t.Errorf("%s may have %d series, more than %d", m.Name, series, maxSeries)
		}
		if m.Help == "" || m.Unit == "" {
			t.Errorf("%s has no help, or no unit", m.Name)
		}
		if !slices.Equal(labels, all[m.Name]) {
			t.Errorf("%s is described with labels %v, and registered with %v", m.Name, labels, all[m.Name])
		}
		delete(all, m.Name)
	}
	for name := range all {
		t.Errorf("%s is registered, and no telemetry.Set describes it", name)
	}
}

func TestTheReferenceOfMetricsListsWhatTheProgramsRegister(t *testing.T) {
	t.Parallel()
	environment, err := testkit.StartAPI(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	defer func() {
		if err := environment.Stop(); err != nil {
			t.Error(err)
		}
	}()
	all := programs(t, environment.Config)
	for _, program := range all {
		checkWhole(t, program.recorded)
	}
	if !slices.ContainsFunc(all[0].metrics, func(metric telemetry.Metric) bool {
		return metric.Name == "di_orchestrator_allocator_tenant_resources" && slices.Contains(metric.Labels[0].Values, "vision")
	}) {
		t.Error("the allocator does not know the tenants of the operator's configuration")
	}
	libraries, isCollector := metrics.Registry.(prometheus.Collector)
	if !isCollector {
		t.Fatal("controller-runtime's registry does not tell what it has")
	}
	theirs := described(libraries)
	for _, metric := range borrowed() {
		labels, exists := theirs[metric.Name]
		if !exists {
			t.Errorf("no library registers %s any more", metric.Name)
		}
		for i := range metric.Labels {
			if !slices.Contains(labels, metric.Labels[i].Name) {
				t.Errorf("%s has labels %v, and %s is none of them", metric.Name, labels, metric.Labels[i].Name)
			}
		}
	}
	for name := range theirs {
		if strings.HasPrefix(name, "di_orchestrator_") {
			t.Errorf("%s is registered past the registerer that was given", name)
		}
	}
	checkFile(t, filepath.Join(testkit.Root(), "docs", "metrics.md"), reference(all))
}

func checkFile(t *testing.T, file, want string) {
	t.Helper()
	if *update {
		if err := os.WriteFile(file, []byte(want), 0o600); err != nil {
			t.Fatal(err)
		}
		return
	}
	got, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(string(got), want); diff != "" {
		t.Errorf("run this test with -update; (-file +programs):\n%s", diff)
	}
}
