// Copyright The DI Orchestrator Authors.
// SPDX-License-Identifier: Apache-2.0

//go:build e2e

package e2e

import (
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"time"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/utils/ptr"

	"opendilab.org/di-orchestrator/apis/v2alpha1"
	"opendilab.org/di-orchestrator/internal/names"
	"opendilab.org/di-orchestrator/test/demo"
	"opendilab.org/di-orchestrator/test/testkit"
)

const (
	// monitoring labels specs with the real Prometheus and its operator, which `cluster prometheus` installs. CI leaves
	// them out.
	monitoring = "prometheus"

	monitoredNamespace = "monitored"
	monitoredJob       = "monitored"
	// prometheusService is the Service that the operator of Prometheus makes.
	prometheusService = "prometheus-operated"
)

// prometheusObjects are a Prometheus that finds all monitors and rules, which may read the metrics by the role of the chart.
const prometheusObjects = `
apiVersion: v1
kind: ServiceAccount
metadata: {name: prometheus}
---
apiVersion: rbac.authorization.k8s.io/v1
kind: ClusterRole
metadata: {name: e2e-prometheus}
rules:
- {apiGroups: [""], resources: [services, endpoints, pods], verbs: [get, list, watch]}
- {apiGroups: [discovery.k8s.io], resources: [endpointslices], verbs: [get, list, watch]}
---
apiVersion: rbac.authorization.k8s.io/v1
kind: ClusterRoleBinding
metadata: {name: e2e-prometheus}
roleRef: {apiGroup: rbac.authorization.k8s.io, kind: ClusterRole, name: e2e-prometheus}
subjects: [{kind: ServiceAccount, name: prometheus, namespace: monitored}]
---
apiVersion: rbac.authorization.k8s.io/v1
kind: ClusterRoleBinding
metadata: {name: e2e-prometheus-metrics}
roleRef: {apiGroup: rbac.authorization.k8s.io, kind: ClusterRole, name: di-orchestrator-metrics-reader}
subjects: [{kind: ServiceAccount, name: prometheus, namespace: monitored}]
---
apiVersion: monitoring.coreos.com/v1
kind: Prometheus
metadata: {name: all}
spec:
  serviceAccountName: prometheus
  evaluationInterval: 5s
  serviceMonitorSelector: {}
  serviceMonitorNamespaceSelector: {}
  ruleSelector: {}
  ruleNamespaceSelector: {}
`

var _ = Describe("A Prometheus of the cluster", Ordered, ContinueOnFailure, Serial, Label(monitoring), func() {
	BeforeAll(func(ctx SpecContext) {
		const resource = "prometheuses.monitoring.coreos.com"
		if served, _ := callKubectl(ctx, "api-resources", "--api-group=monitoring.coreos.com", "--output=name"); !strings.Contains(served, resource) {
			Skip("this cluster has no operator of Prometheus: run out/bin/cluster prometheus, or install it")
		}
		makeNamespace(ctx, monitoredNamespace)
		addMonitoring(ctx)
		applyContent(ctx, monitoredNamespace, prometheusObjects)
		DeferCleanup(func(ctx SpecContext) {
			kubectlUntilDone(ctx, "delete", "clusterrole/e2e-prometheus", "clusterrolebinding/e2e-prometheus", "clusterrolebinding/e2e-prometheus-metrics")
		})
		submitRanked(ctx, monitoredNamespace, monitoredJob, 1, func(string, map[string]any) {}) // It pauses then.
	})

	AfterEach(func(ctx SpecContext) {
		if CurrentSpecReport().Failed() {
			explain(ctx, monitoredNamespace, []string{"get", "pods", "-o=wide"}, []string{"get", dijobs, "-o=yaml"}, []string{"get", "events"},
				[]string{"logs", "prometheus-all-0", "--all-containers", "--tail=60"}, []string{"logs", "--namespace=default", "deployment/prometheus-operator", "--tail=60"})
		}
	})

	It("scrapes each pod of the installation, with the rights that the chart gives it", func(ctx SpecContext) {
		Eventually(func(g Gomega) {
			wanted := map[string]string{}
			for _, name := range demo.Deployments() {
				wanted[name+"-metrics"] = kubectlOutput(ctx, "get", "deployment", name, "--namespace="+names.SystemNamespace, "--output=jsonpath={.status.readyReplicas}")
			}
			up := map[string]string{}
			for _, sample := range queryPrometheus(ctx, g, `count by (job) (up{namespace="`+names.SystemNamespace+`"} == 1)`) {
				up[sample.Metric["job"]] = sample.value(g)
			}
			g.Expect(up).To(Equal(wanted))
			g.Expect(queryPrometheus(ctx, g, `up == 0`)).To(BeEmpty())
		}).WithContext(ctx).WithTimeout(rolloutPatience).WithPolling(time.Second).Should(Succeed())
	})

	It("knows how many jobs run", func(ctx SpecContext) {
		Eventually(func(g Gomega) {
			samples := queryPrometheus(ctx, g, `sum(di_orchestrator_jobs{phase="Running"})`)
			g.Expect(samples).To(HaveLen(1))
			g.Expect(samples[0].value(g)).NotTo(Equal("0"))
		}).WithContext(ctx).WithTimeout(patience).WithPolling(time.Second).Should(Succeed())
	})

	It("evaluates all alerts of the chart", func(ctx SpecContext) {
		content, err := os.ReadFile(filepath.Join(testkit.Root(), "charts", "di-orchestrator", "files", "alerts.yaml"))
		Expect(err).NotTo(HaveOccurred())
		Eventually(func(g Gomega) {
			var answer struct {
				Groups []struct {
					Rules []struct{ Name, Health, LastError string }
				}
			}
			callPrometheus(ctx, g, "rules", "", &answer)
			alerts := 0
			for _, group := range answer.Groups {
				for _, rule := range group.Rules {
					if strings.Contains(string(content), "alert: "+rule.Name+"\n") {
						alerts++
					}
					g.Expect(rule.Health).To(Equal("ok"), "%s: %s", rule.Name, rule.LastError)
				}
			}
			g.Expect(alerts).To(Equal(strings.Count(string(content), "- alert: ")))
		}).WithContext(ctx).WithTimeout(rolloutPatience).WithPolling(time.Second).Should(Succeed())
	})

	It("answers each query of the dashboards", func(ctx SpecContext) {
		asked, empty := 0, []string{}
		for _, name := range []string{"dashboard.json", "team-dashboard.json"} {
			for _, query := range dashboardQueries(name) {
				asked++
				if samples := queryPrometheus(ctx, Default, query); len(samples) == 0 {
					empty = append(empty, query)
				}
			}
		}
		AddReportEntry(fmt.Sprintf("%d of %d queries of the dashboards have no value here", len(empty), asked), strings.Join(empty, "\n"))
		Expect(asked).To(BeNumerically(">", len(empty)))
	})

	It("fires the alert of jobs that restart", func(ctx SpecContext) {
		crash := func() {
			before := getJob(ctx, Default, monitoredNamespace, monitoredJob).Status.Restarts
			kubectlUntilDone(ctx, "exec", "--namespace="+monitoredNamespace, names.WorkerPod(monitoredJob, "collector", 0), "--", "/cartpole", "crash")
			Eventually(func(g Gomega) {
				job := getJob(ctx, g, monitoredNamespace, monitoredJob)
				g.Expect(job.Status.Restarts).To(Equal(before + 1))
				g.Expect(job.Status.Phase).To(Equal(v2alpha1.JobRunning))
			}).WithContext(ctx).WithTimeout(patience).WithPolling(time.Second).Should(Succeed())
		}
		crash()
		// An increase needs an earlier sample.
		Eventually(func(g Gomega) {
			g.Expect(queryPrometheus(ctx, g, "di_orchestrator_job_restarts_total")).NotTo(BeEmpty())
		}).
			WithContext(ctx).WithTimeout(patience).WithPolling(time.Second).Should(Succeed())
		crash()
		Eventually(func(g Gomega) {
			firing := queryPrometheus(ctx, g, `ALERTS{alertname="DIOrchestratorJobsRestart",alertstate="firing",severity="warning"}`)
			g.Expect(firing).NotTo(BeEmpty())
			g.Expect(firing[0].Metric["reason"]).NotTo(BeEmpty())
		}).WithContext(ctx).WithTimeout(rolloutPatience).WithPolling(time.Second).Should(Succeed())
	})

	It("gives the ratio rule of a job the figures of its own namespace", func(ctx SpecContext) {
		const name = "queried"
		// A producer makes 10, the consumer takes 30. Another namespace has other figures under the same names.
		applyContent(ctx, monitoredNamespace, fmt.Sprintf(`
apiVersion: monitoring.coreos.com/v1
kind: PrometheusRule
metadata: {name: figures}
spec:
  groups:
  - name: figures
    rules:
    - {record: producer_capacity, expr: vector(10), labels: {namespace: %[1]s}}
    - {record: consumer_capacity, expr: vector(30), labels: {namespace: %[1]s}}
    - {record: queued_samples, expr: vector(100), labels: {namespace: %[1]s}}
    - {record: batch_samples, expr: vector(50), labels: {namespace: %[1]s}}
    - {record: producer_capacity, expr: vector(1), labels: {namespace: other}}
    - {record: consumer_capacity, expr: vector(9000), labels: {namespace: other}}
`, monitoredNamespace))
		manifest := readManifest("v2alpha1.yaml")
		manifest.SetName(name)
		manifest.SetNamespace(monitoredNamespace)
		for _, spec := range podSpecs(manifest) {
			addArgs(spec, "--min-round=20s")
		}
		for field, value := range map[string]map[string]any{
			"elastic": {"task": "collector", "replicas": int64(1), "minReplicas": int64(1), "maxReplicas": int64(9)},
			"autoscale": {"ratio": map[string]any{"prometheus": map[string]any{
				"producerCapacity": "min(producer_capacity)", "consumerCapacity": "max(consumer_capacity)",
				"queue": "max(queued_samples)", "batch": "max(batch_samples)",
			}}},
		} {
			Expect(unstructured.SetNestedMap(manifest.Object, value, "spec", field)).To(Succeed())
		}
		submit(ctx, manifest)
		Eventually(func(g Gomega) {
			found := getJob(ctx, g, monitoredNamespace, name)
			g.Expect(found.Status.Conditions).To(ContainElement(And(HaveField("Type", v2alpha1.ConditionAutoscaling), HaveField("Status", BeEquivalentTo("True")))))
			g.Expect(ptr.Deref(found.Spec.Elastic.Replicas, 0)).To(BeNumerically("~", 3, 1))
		}).WithContext(ctx).WithTimeout(trainingPatience).WithPolling(time.Second).Should(Succeed())
	})
})

// addMonitoring has the chart add its monitors and alerts, secures the metrics, and names the Prometheus of the specs to
// the operator. Any restart of a job fires its alert.
func addMonitoring(ctx SpecContext) {
	GinkgoHelper()
	set := func(values string) []string {
		return []string{"upgrade", demo.Release, chartFolder(), "--reuse-values", "--wait", helmWaiting(), "--set=" + values}
	}
	helmOutput(ctx, set("monitoring.serviceMonitor.enabled=true,monitoring.serviceMonitor.interval=5s,monitoring.prometheusRule.enabled=true,"+
		"monitoring.prometheusRule.alerts.DIOrchestratorJobsRestart.threshold=0,configuration.common.secureMetrics=true,"+
		"configuration.operator.autoscaler.prometheusURL=http://"+prometheusService+"."+monitoredNamespace+":9090")...)
	DeferCleanup(func(ctx SpecContext) {
		helmOutput(ctx, set("monitoring.serviceMonitor.enabled=false,monitoring.prometheusRule.enabled=false,"+
			"monitoring.prometheusRule.alerts=null,configuration.common.secureMetrics=false,configuration.operator.autoscaler.prometheusURL=")...)
	})
}

// sample is one of the samples that answer a query.
type sample struct {
	Metric map[string]string
	// Value are the time and the value.
	Value []any
}

func (s sample) value(g Gomega) string {
	g.Expect(s.Value).To(HaveLen(2))
	return fmt.Sprint(s.Value[1])
}

// queryPrometheus returns the answer to a query.
func queryPrometheus(ctx SpecContext, g Gomega, query string) []sample {
	GinkgoHelper()
	var answer struct{ Result []sample }
	callPrometheus(ctx, g, "query", query, &answer)
	return answer.Result
}

// callPrometheus reads the data of an answer of Prometheus, through the API server.
func callPrometheus(ctx SpecContext, g Gomega, path, query string, data any) {
	GinkgoHelper()
	call := core.CoreV1().RESTClient().Get().Namespace(monitoredNamespace).Resource("services").Name(prometheusService+":9090").
		SubResource("proxy").Suffix("api", "v1", path)
	if query != "" {
		call = call.Param("query", query)
	}
	raw, err := call.DoRaw(ctx)
	g.Expect(err).NotTo(HaveOccurred(), "%s %s: %s", path, query, raw)
	answer := struct{ Data any }{data}
	g.Expect(json.Unmarshal(raw, &answer)).To(Succeed(), string(raw))
}

// dashboardQueries returns the queries of a dashboard of the chart, with its variables filled in as Grafana does.
func dashboardQueries(name string) []string {
	GinkgoHelper()
	type panel struct {
		Panels  []panel
		Targets []struct{ Expr string }
	}
	content, err := os.ReadFile(filepath.Join(testkit.Root(), "charts", "di-orchestrator", "files", name))
	Expect(err).NotTo(HaveOccurred())
	var board panel
	Expect(json.Unmarshal(content, &board)).To(Succeed())
	variables := strings.NewReplacer("$__rate_interval", "1m", "$namespace", names.SystemNamespace, "$team", monitoredNamespace)
	var queries []string
	var visit func(panel)
	visit = func(p panel) {
		for _, target := range p.Targets {
			queries = append(queries, variables.Replace(target.Expr))
		}
		for _, inner := range p.Panels {
			visit(inner)
		}
	}
	visit(board)
	Expect(queries).NotTo(BeEmpty())
	return queries
}
