// Copyright The DI Orchestrator Authors.
// SPDX-License-Identifier: Apache-2.0

package chart

import (
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
)

// deployed returns the components of all Deployments.
func deployed() []string { return []string{"operator", "webhook", "server"} }

// renderFile renders the chart with the content of a values file.
func renderFile(t *testing.T, content string) []*unstructured.Unstructured {
	t.Helper()
	output, err := tryFile(t, content)
	if err != nil {
		t.Fatal(err)
	}
	return decode(t, output)
}

func tryFile(t *testing.T, content string) (string, error) {
	t.Helper()
	values := filepath.Join(t.TempDir(), "values.yaml")
	if err := os.WriteFile(values, []byte(content), 0o600); err != nil {
		t.Fatal(err)
	}
	return run(t, program(t, "HELM"), append(renderArgs("di-system", nil), "--values", values)...)
}

func podOf(t *testing.T, objects []*unstructured.Unstructured, component string) *corev1.PodSpec {
	t.Helper()
	return &deployment(t, objects, "di-orchestrator-"+component).Spec.Template.Spec
}

func TestEveryProgramTakesVariablesAndVolumes(t *testing.T) {
	t.Parallel()
	var values strings.Builder
	for _, component := range deployed() {
		fmt.Fprintf(&values, `%s: {env: [{name: HTTPS_PROXY, value: proxy}, {name: GOMEMLIMIT, value: 1GiB}], envFrom: [{secretRef: {name: more}}],
  volumes: [{name: token, secret: {secretName: token}}], volumeMounts: [{name: token, mountPath: /token}]}
`, component)
	}
	objects := renderFile(t, values.String())
	for _, component := range deployed() {
		pod := podOf(t, objects, component)
		container := &pod.Containers[0]
		variables := map[string]string{}
		for _, variable := range container.Env {
			if _, twice := variables[variable.Name]; twice {
				t.Errorf("%s: variable %s is set twice, which server-side apply refuses", component, variable.Name)
			}
			variables[variable.Name] = variable.Value
		}
		if variables["HTTPS_PROXY"] != "proxy" || variables["GOMEMLIMIT"] != "1GiB" {
			t.Errorf("%s: the variables are %v", component, variables)
		}
		if _, kept := variables["POD_NAMESPACE"]; !kept {
			t.Errorf("%s: the chart's own variables are gone: %v", component, variables)
		}
		if len(container.EnvFrom) != 1 || len(container.VolumeMounts) != 2 || len(pod.Volumes) != 2 {
			t.Errorf("%s: got %v, %v and %v", component, container.EnvFrom, container.VolumeMounts, pod.Volumes)
		}
	}
}

func TestPodsSpreadByNodeUnlessTheValuesSaySo(t *testing.T) {
	t.Parallel()
	objects := renderFile(t, `
operator: {topologySpreadConstraints: [{maxSkew: 1, topologyKey: topology.kubernetes.io/zone, whenUnsatisfiable: DoNotSchedule}]}
webhook: {topologySpreadConstraints: []}`)
	for component, want := range map[string]string{"operator": "topology.kubernetes.io/zone", "server": "kubernetes.io/hostname"} {
		spread := podOf(t, objects, component).TopologySpreadConstraints
		if len(spread) != 1 || spread[0].TopologyKey != want || spread[0].LabelSelector.MatchLabels["app.kubernetes.io/component"] != component ||
			!slices.Equal(spread[0].MatchLabelKeys, []string{"pod-template-hash"}) {
			t.Errorf("%s spreads by %v, want by %s among its own pods", component, spread, want)
		}
	}
	if spread := podOf(t, objects, "webhook").TopologySpreadConstraints; len(spread) > 0 {
		t.Errorf("the webhooks spread by %v, want no constraint", spread)
	}
}

func TestARegistryReplacesTheOneOfTheRepository(t *testing.T) {
	t.Parallel()
	for values, want := range map[string]string{
		"image.repository=di":                                                                                  "di:v1",
		"image.registry=r.example.com,image.repository=di":                                                     "r.example.com/di:v1",
		"image.registry=r.example.com/hub,image.repository=ghcr.io/opendilab/di":                               "r.example.com/hub/opendilab/di:v1",
		"image.registry=r.example.com,image.repository=opendilab/di":                                           "r.example.com/opendilab/di:v1",
		"global.imageRegistry=g.example.com:5000,image.registry=r.example.com,image.repository=localhost/di/o": "g.example.com:5000/di/o:v1",
	} {
		objects := render(t, "di-system", "image.tag=v1,"+values)
		for _, component := range deployed() {
			if got := podOf(t, objects, component).Containers[0].Image; got != want {
				t.Errorf("%s: %s has image %s, want %s", values, component, got, want)
			}
		}
		for _, object := range objects {
			if object.GetKind() == "Job" && !strings.Contains(fmt.Sprint(object.Object), "image:"+want+" ") {
				t.Errorf("%s: hook %s has another image than %s", values, object.GetName(), want)
			}
		}
	}
}

func TestAServiceAccountOfOnesOwnGetsTheRights(t *testing.T) {
	t.Parallel()
	objects := render(t, "di-system", "server.serviceAccount.create=false", "server.serviceAccount.name=mine", "policies.submitters=true", "configuration.common.secureMetrics=true")
	if got := podOf(t, objects, "server").ServiceAccountName; got != "mine" {
		t.Errorf("di-server runs as %s", got)
	}
	for _, object := range objects {
		if object.GetKind() == "ServiceAccount" && (object.GetName() == "mine" || object.GetName() == "di-orchestrator-server") {
			t.Errorf("ServiceAccount %s is created", object.GetName())
		}
		if strings.Contains(fmt.Sprint(object.Object["subjects"]), "name:di-orchestrator-server ") {
			t.Errorf("%s names the ServiceAccount of the chart", identify(object))
		}
	}
	for _, name := range []string{"di-orchestrator-server", "di-orchestrator-metrics-auth"} {
		if subjects := fmt.Sprint(find(t, objects, "ClusterRoleBinding", name).Object["subjects"]); !strings.Contains(subjects, "name:mine ") {
			t.Errorf("ClusterRoleBinding %s has %s", name, subjects)
		}
	}
	for _, name := range []string{"di-orchestrator-server", "di-orchestrator-submitters"} {
		if policy := fmt.Sprint(find(t, objects, "ValidatingAdmissionPolicy", name).Object); !strings.Contains(policy, "system:serviceaccount:di-system:mine") {
			t.Errorf("policy %s does not know the ServiceAccount: %s", name, policy)
		}
	}
}

func TestSecurityContextsOfPodsAreValues(t *testing.T) {
	t.Parallel()
	objects := render(t, "di-system", "podSecurityContext.runAsUser=65532", "securityContext.runAsGroup=7")
	for _, component := range deployed() {
		pod := podOf(t, objects, component)
		if *pod.SecurityContext.RunAsUser != 65532 || !*pod.SecurityContext.RunAsNonRoot {
			t.Errorf("%s has %v, want the user beside the default", component, pod.SecurityContext)
		}
		if context := pod.Containers[0].SecurityContext; *context.RunAsGroup != 7 || !*context.ReadOnlyRootFilesystem {
			t.Errorf("%s has %v, want the group beside the default", component, context)
		}
	}
}

func TestMonitoringFitsIntoThePlatforms(t *testing.T) {
	t.Parallel()
	objects := renderFile(t, `
configuration: {common: {secureMetrics: true}}
monitoring:
  serviceMonitor: {enabled: true, namespace: monitoring, tlsConfig: {serverName: di}, relabelings: [{action: labeldrop}], metricRelabelings: [{action: keep}]}
  prometheusRule: {enabled: true, namespace: rules}
  dashboard: {enabled: true, namespace: grafana, annotations: {grafana_folder: Training}}`)
	monitor := find(t, objects, "ServiceMonitor", "di-orchestrator-operator")
	for _, want := range []string{
		"matchNames:[di-system]", "tlsConfig:map[serverName:di]", " relabelings:[map[action:labeldrop]]", "metricRelabelings:[map[action:keep]]",
	} {
		if got := fmt.Sprint(monitor.Object["spec"]); !strings.Contains(got, want) {
			t.Errorf("the ServiceMonitor has %s, want %s in it", got, want)
		}
	}
	dashboard := find(t, objects, "ConfigMap", "di-orchestrator-dashboard")
	rule := find(t, objects, "PrometheusRule", "di-orchestrator")
	if got := []string{monitor.GetNamespace(), rule.GetNamespace(), dashboard.GetNamespace()}; !slices.Equal(got, []string{"monitoring", "rules", "grafana"}) {
		t.Errorf("the namespaces are %v", got)
	}
	if folder := dashboard.GetAnnotations()["grafana_folder"]; folder != "Training" {
		t.Errorf("the dashboard's folder is %q", folder)
	}
}

func TestAnAlertIsChangedByItsName(t *testing.T) {
	t.Parallel()
	objects := renderFile(t, `monitoring: {prometheusRule: {enabled: true, alerts: {
  DIOrchestratorQueueGrows: {threshold: 5000000, for: 1h, severity: info}, DIOrchestratorProbeFails: {enabled: false}}}}`)
	groups, _, err := unstructured.NestedSlice(find(t, objects, "PrometheusRule", "di-orchestrator").Object, "spec", "groups")
	if err != nil {
		t.Fatal(err)
	}
	group, _ := groups[0].(map[string]any)
	all, _ := group["rules"].([]any)
	found := map[string]map[string]any{}
	for _, each := range all {
		rule, _ := each.(map[string]any)
		found[fmt.Sprint(rule["alert"])] = rule
	}
	if _, exists := found["DIOrchestratorProbeFails"]; exists || len(found) < 10 {
		t.Errorf("got %d alerts, want all but the one that is off", len(found))
	}
	grows := found["DIOrchestratorQueueGrows"]
	if got := fmt.Sprint(grows["expr"], grows["for"], grows["labels"]); !strings.HasSuffix(got, "> 5e+061hmap[severity:info]") {
		t.Errorf("the alert is %s", got)
	}
	for values, want := range map[string]string{
		"Unknown: {threshold: 1}":                      "there is no alert Unknown",
		"DIOrchestratorOperatorAbsent: {threshold: 1}": "compares with no number",
		"DIOrchestratorQueueGrows: {for: soon}":        "for",
		"DIOrchestratorQueueGrows: {limit: 3}":         "limit",
	} {
		_, err := tryFile(t, "monitoring: {prometheusRule: {enabled: true, alerts: {"+values+"}}}")
		if err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: got %v, want an error with %q", values, err, want)
		}
	}
}

func TestOnlyNamedNamespacesAreReached(t *testing.T) {
	t.Parallel()
	objects := render(t, "di-system", "configuration.common.watchNamespaces={team-a,di-system}")
	roles := map[string]int{}
	for _, object := range objects {
		if isHook(object) {
			continue
		}
		if object.GetKind() == "Role" {
			roles[object.GetNamespace()]++
		}
		if rules := fmt.Sprint(object.Object["rules"]); object.GetKind() == "ClusterRole" && (strings.Contains(rules, "pods") || strings.Contains(rules, "services")) {
			t.Errorf("%s reaches pods or Services of all namespaces: %s", object.GetName(), rules)
		}
	}
	// Those of the installation's namespace are the roles of three programs and of the takeover.
	if roles["team-a"] != 3 || roles["di-system"] != 4 || len(roles) != 2 {
		t.Errorf("got roles %v, want three in the other namespace", roles)
	}
	if watched := configured(t, objects).Common.WatchNamespaces; !slices.Equal(watched, []string{"team-a", "di-system"}) {
		t.Errorf("the programs watch %q", watched)
	}
	if _, err := tryFile(t, "configuration: {common: {watchNamespaces: [Team]}}"); err == nil || !strings.Contains(err.Error(), "watchNamespaces") {
		t.Errorf("got %v, want an error that names watchNamespaces", err)
	}
}
