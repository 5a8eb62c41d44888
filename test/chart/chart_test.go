// Copyright The DI Orchestrator Authors.
// SPDX-License-Identifier: Apache-2.0

package chart

import (
	"bytes"
	"compress/gzip"
	"encoding/base64"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	appsv1 "k8s.io/api/apps/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"sigs.k8s.io/yaml"

	"opendilab.org/di-orchestrator/apis/config/v1alpha1"
	"opendilab.org/di-orchestrator/internal/configfile"
	"opendilab.org/di-orchestrator/test/testkit"
)

// everything enables all values that are off by default.
func everything() []string {
	return []string{
		"priorityClasses.create=true", "monitoring.serviceMonitor.enabled=true", "monitoring.prometheusRule.enabled=true",
		"monitoring.dashboard.enabled=true", "aggregatorConfig.template.spec.containers[0].name=di-container",
		"webhook.url=https://10.0.0.1:9443", "webhook.hostNetwork=true", "image.tag=v1", "certManager.enabled=true",
		"configuration.common.tracing.endpoint=http://10.0.0.1:4317", "configuration.operator.shards=2",
		"web.enabled=true", "web.hosts={jobs.example.com}", "web.tls.secretName=page", "history.enabled=true",
	}
}

func TestBothHelmsRenderTheSame_Slow(t *testing.T) {
	t.Parallel()
	for _, values := range [][]string{nil, everything()} {
		var rendered []string
		for _, key := range helms() {
			output, err := run(t, program(t, key), renderArgs("di-system", values)...)
			if err != nil {
				t.Fatalf("%s: %v", key, err)
			}
			rendered = append(rendered, output)
		}
		sorted := func(documents string) []*unstructured.Unstructured {
			objects := decode(t, documents)
			slices.SortFunc(objects, func(a, b *unstructured.Unstructured) int { return strings.Compare(identify(a), identify(b)) })
			return objects
		}
		if diff := cmp.Diff(sorted(rendered[0]), sorted(rendered[1])); diff != "" {
			t.Errorf("Helm 4 (-) and Helm 3 (+) differ:\n%s", diff)
		}
	}
}

func TestBothHelmsFindNoFaultInTheChart_Slow(t *testing.T) {
	t.Parallel()
	for _, key := range helms() {
		if output, err := run(t, program(t, key), "lint", "--strict", chart()); err != nil {
			t.Errorf("%s: %v\n%s", key, err, output)
		}
	}
}

// The manifests of config install the same objects without Helm.
func TestTheChartAndTheManifestsInstallTheSame(t *testing.T) {
	t.Parallel()
	assets := program(t, testkit.AssetsVariable)
	kustomized, err := run(t, filepath.Join(assets, "kubectl"), "kustomize", filepath.Join(testkit.Root(), "config", "default"))
	if err != nil {
		t.Fatal(err)
	}
	wanted := map[string]map[string]any{}
	for _, object := range decode(t, kustomized) {
		// Helm creates the namespace by a flag, and a hook installs the definitions.
		if kind := object.GetKind(); kind != "Namespace" && kind != "CustomResourceDefinition" {
			wanted[identify(object)] = plain(object)
		}
	}
	got := map[string]map[string]any{}
	for _, object := range render(t, "di-system") {
		if !isHook(object) {
			got[identify(object)] = plain(object)
		}
	}
	if diff := cmp.Diff(wanted, got); diff != "" {
		t.Errorf("config (-) and the chart (+) differ:\n%s", diff)
	}
}

// plain returns an object without the metadata and fields that only one of the two installation
// methods sets.
func plain(object *unstructured.Unstructured) map[string]any {
	copied := object.DeepCopy()
	unstructured.RemoveNestedField(copied.Object, "spec", "template", "metadata", "annotations")
	labels := copied.GetLabels()
	for _, label := range []string{
		"app.kubernetes.io/instance", "app.kubernetes.io/version", "app.kubernetes.io/managed-by", "helm.sh/chart",
		"app.kubernetes.io/name", "app.kubernetes.io/component", "control-plane",
	} {
		delete(labels, label)
	}
	if len(labels) == 0 {
		labels = nil
	}
	copied.SetLabels(labels)
	annotations := copied.GetAnnotations()
	delete(annotations, "helm.sh/resource-policy")
	if len(annotations) == 0 {
		annotations = nil
	}
	copied.SetAnnotations(annotations)
	if copied.GetKind() == "Service" {
		// This is the default. The chart has a value for it.
		unstructured.RemoveNestedField(copied.Object, "spec", "type")
	}
	return copied.Object
}

func TestAWrongValueIsRefusedByItsName(t *testing.T) {
	t.Parallel()
	for value, want := range map[string]string{
		"operator.replica=3":                                   "replica",
		"configuration.operator.shards=0":                      "/configuration/operator/shards",
		"configuration.operator.shards=17":                     "/configuration/operator/shards",
		"configuration.operator.shard=2":                       "'shard'",
		"configuration.server.identity=off":                    "/configuration/server/identity",
		"configuration.operator.allocator.cycle=soon":          "/configuration/operator/allocator/cycle",
		"configuration.operator.queueing=volcano":              "/configuration/operator/queueing",
		"configuration.operator.allocator.tenants[0].name=A":   "/configuration/operator/allocator/tenants/0/name",
		"configuration.operator.allocator.tenants[0].weight=3": "name",
		"configuration.operator.allocator.topology[0]=a b":     "/configuration/operator/allocator/topology/0",
		"webhook.url=http://x":                                 "url",
		"configuration.operator.probeInterval=-1s":             "/configuration/operator/probeInterval",
		"tag=v1.1.3":                                             "tag",
		"image.digest=latest":                                    "digest",
		"certManager.issuerRef.kind=A":                           "name",
		"configuration.common.tracing.endpoint=collector":        "/configuration/common/tracing/endpoint",
		"configuration.common.tracing.samplingRatio=2":           "samplingRatio",
		"configuration.server.limits.profilingBytes=2000000":     "profilingBytes",
		"configuration.server.limits.profilingBytes=64Ki":        "profilingBytes",
		"configuration.common.takeover=false":                    "configuration.common.takeover is takeover.enabled",
		"web.enabled=true":                                       "hosts",
		"web.hosts={https://jobs}":                               "hosts",
		"operator.replicas=0":                                    "/operator/replicas",
		"webhook.replicas=0":                                     "/webhook/replicas",
		"server.replicas=0":                                      "/server/replicas",
		"certManager.duration=xyz":                               "/certManager/duration",
		"certManager.renewBefore=30d":                            "/certManager/renewBefore",
		"server.resources.limits.memory=much":                    "/server/resources/limits/memory",
		"podDisruptionBudget.maxUnavailable=x":                   "/podDisruptionBudget/maxUnavailable",
		"priorityClasses.normal.name=My Class":                   "/priorityClasses/normal/name",
		"monitoring.prometheusRule.alerts.Unknown.severity=info": "monitoring.prometheusRule.alerts.Unknown",
	} {
		t.Run(value, func(t *testing.T) {
			t.Parallel()
			_, err := run(t, program(t, "HELM"), renderArgs("di-system", []string{value})...)
			if err == nil || !strings.Contains(err.Error(), want) {
				t.Errorf("got %v, want an error that names %s", err, want)
			}
		})
	}
}

// configured returns the configuration of rendered programs, as they read it.
func configured(t *testing.T, objects []*unstructured.Unstructured) *v1alpha1.Configuration {
	t.Helper()
	content, _, err := unstructured.NestedString(find(t, objects, "ConfigMap", "di-orchestrator-configuration").Object, "data", "configuration.yaml")
	if err != nil {
		t.Fatal(err)
	}
	found, err := configfile.Parse([]byte(content))
	if err != nil {
		t.Fatalf("the programs refuse the configuration: %v\n%s", err, content)
	}
	return found
}

func TestTheProgramsReadTheConfigurationOfTheValues(t *testing.T) {
	t.Parallel()
	values := filepath.Join(t.TempDir(), "values.yaml")
	// Helm decodes large numbers in a file as floats.
	content := `configuration: {server: {identity: legacy, limits: {writesPerSecond: 0.5, writeBurst: 4000000, writeBytesPerMinute: 5242880, profilingBytes: 1048576}},
  common: {watchNamespaces: [team-a], tracing: {samplingRatio: 0.05}}, operator: {forceDeleteAfter: 10m, allocator: {
    tenants: [{name: vision, namespaces: [images, video], weight: 3}, {name: robots}], topology: [example.com/rack, nvidia.com/gpu.clique]}}}
priorityClasses: {create: true, high: {name: mine}}
takeover: {enabled: false}`
	if err := os.WriteFile(values, []byte(content), 0o600); err != nil {
		t.Fatal(err)
	}
	output, err := run(t, program(t, "HELM"), append(renderArgs("di-system", nil), "--values", values)...)
	if err != nil {
		t.Fatal(err)
	}
	want := v1alpha1.Defaults()
	want.Server.Identity = v1alpha1.IdentityLegacy
	limits := &want.Server.Limits
	limits.WritesPerSecond, limits.WriteBurst, limits.WriteBytesPerMinute, limits.ProfilingBytes = 0.5, 4000000, 5242880, 1<<20
	want.Common.WatchNamespaces, want.Common.Tracing.SamplingRatio, want.Common.Takeover = []string{"team-a"}, 0.05, false
	want.Operator.ForceDeleteAfter.Duration = 10 * time.Minute
	want.Operator.Allocator.Tenants = []v1alpha1.Tenant{{Name: "vision", Namespaces: []string{"images", "video"}, Weight: 3}, {Name: "robots"}}
	want.Operator.Allocator.Topology = []string{"example.com/rack", "nvidia.com/gpu.clique"}
	want.Operator.PriorityClasses = v1alpha1.PriorityClasses{Normal: "dijob-normal", High: "mine"}
	if diff := cmp.Diff(want, configured(t, decode(t, output))); diff != "" {
		t.Errorf("the configuration (-want +got):\n%s", diff)
	}
	if diff := cmp.Diff(v1alpha1.Defaults(), configured(t, render(t, "di-system"))); diff != "" {
		t.Errorf("by default (-defaults +got):\n%s", diff)
	}
}

func TestPodsFollowAChangeOfTheConfiguration(t *testing.T) {
	t.Parallel()
	sums := map[string]bool{}
	for _, value := range []string{"image.tag=v1", "configuration.operator.workers=9", "takeover.enabled=false"} {
		objects := render(t, "di-system", value)
		for _, name := range []string{"di-orchestrator-operator", "di-orchestrator-webhook", "di-orchestrator-server"} {
			sums[deployment(t, objects, name).Spec.Template.Annotations["checksum/configuration"]] = true
			if !slices.Contains(argsOf(t, objects, name), "--config=/etc/di-orchestrator/configuration.yaml") {
				t.Errorf("%s is run with %q", name, argsOf(t, objects, name))
			}
		}
	}
	if len(sums) != 3 || sums[""] {
		t.Errorf("three configurations have the sums %v", sums)
	}
}

func TestAValueThatMovedIsRefusedByItsNewName(t *testing.T) {
	t.Parallel()
	content, err := os.ReadFile(filepath.Join(chart(), "files", "moved.yaml"))
	if err != nil {
		t.Fatal(err)
	}
	var moved []struct {
		From, To string
		Default  any
	}
	if err := yaml.Unmarshal(content, &moved); err != nil || len(moved) < 40 {
		t.Fatalf("got %d values that moved: %v", len(moved), err)
	}
	former := map[string]any{}
	for _, value := range moved {
		t.Run(value.From, func(t *testing.T) {
			t.Parallel()
			// No default is this number.
			_, err := run(t, program(t, "HELM"), renderArgs("di-system", []string{value.From + "=7"})...)
			if err == nil || !strings.Contains(err.Error(), value.From+" is "+value.To) {
				t.Errorf("got %v, want an error that names %s", err, value.To)
			}
		})
		if err := unstructured.SetNestedField(former, value.Default, strings.Split(value.From, ".")...); err != nil {
			t.Fatal(err)
		}
	}
	for arg, want := range map[string]string{
		"--kube-api-qps=1000":    "--kube-api-qps in operator.extraArgs is configuration.common.kubeAPIQPS",
		"-metrics-secure":        "--metrics-secure in operator.extraArgs is configuration.common.secureMetrics",
		"--webhook-service=mine": "--webhook-service in operator.extraArgs is gone",
	} {
		_, err := run(t, program(t, "HELM"), renderArgs("di-system", []string{"operator.extraArgs={--log-level=debug," + arg + "}"})...)
		if err == nil || !strings.Contains(err.Error(), want) || strings.Contains(err.Error(), "log-level") {
			t.Errorf("%s: got %v, want an error with %s", arg, err, want)
		}
	}
	// As after an upgrade with --reuse-values.
	defaults := filepath.Join(t.TempDir(), "defaults.yaml")
	encoded, err := yaml.Marshal(former)
	if err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(defaults, encoded, 0o600); err != nil {
		t.Fatal(err)
	}
	if output, err := run(t, program(t, "HELM"), append(renderArgs("di-system", nil), "--values", defaults)...); err != nil {
		t.Errorf("former defaults are refused: %v\n%s", err, output)
	}
}

func TestOneValueDividesJobsAmongAsManyOperators(t *testing.T) {
	t.Parallel()
	for _, tc := range []struct {
		name     string
		values   []string
		replicas int32
	}{
		{name: "one shard is the default", replicas: 2},
		{name: "four shards", values: []string{"configuration.operator.shards=4"}, replicas: 4},
		{name: "two shards and a spare operator", values: []string{"configuration.operator.shards=2", "operator.replicas=3"}, replicas: 3},
	} {
		t.Run(tc.name, func(t *testing.T) {
			t.Parallel()
			if got := *deployment(t, render(t, "di-system", tc.values...), "di-orchestrator-operator").Spec.Replicas; got != tc.replicas {
				t.Errorf("there are %d operators, want %d", got, tc.replicas)
			}
		})
	}
}

func TestTheWebhooksAreReachedByTheURLThatIsGiven(t *testing.T) {
	t.Parallel()
	objects := render(t, "di-system", "webhook.url=https://10.0.0.1:9443/")
	webhooks, _, err := unstructured.NestedSlice(find(t, objects, "MutatingWebhookConfiguration", "di-orchestrator-mutating").Object, "webhooks")
	if err != nil || len(webhooks) == 0 {
		t.Fatalf("got %v, %v", webhooks, err)
	}
	for _, webhook := range webhooks {
		config, _ := webhook.(map[string]any)["clientConfig"].(map[string]any)
		url, _ := config["url"].(string)
		if !strings.HasPrefix(url, "https://10.0.0.1:9443/mutate-") || len(config) != 1 {
			t.Errorf("got %v", config)
		}
	}
}

// Only one pod can use a port of a node. A pod that must start before another ends is pending if
// every node already has one.
func TestWebhooksThatShareTheirNodesNetworkMakeRoomForTheirSuccessors(t *testing.T) {
	t.Parallel()
	for value, want := range map[string]string{"false": "0 away, 1 more", "true": "1 away, 0 more"} {
		rolling := deployment(t, render(t, "di-system", "webhook.hostNetwork="+value), "di-orchestrator-webhook").Spec.Strategy.RollingUpdate
		if got := fmt.Sprintf("%s away, %s more", rolling.MaxUnavailable, rolling.MaxSurge); got != want {
			t.Errorf("hostNetwork %s: got %s, want %s", value, got, want)
		}
	}
}

func TestCertManagerIssuesUnderTheNamesThatAreCalled(t *testing.T) {
	t.Parallel()
	for name, tc := range map[string]struct {
		values          []string
		webhook, server map[string]any
		issuer          map[string]any
		// own is set if the chart creates a certificate authority.
		own bool
	}{
		"by an authority of the chart's": {
			values:  []string{"configuration.common.serviceDomain=svc.example.org"},
			webhook: map[string]any{"dnsNames": []any{"di-orchestrator-webhook.ml.svc", "di-orchestrator-webhook.ml", "di-orchestrator-webhook.ml.svc.cluster.local"}},
			server:  map[string]any{"dnsNames": []any{"di-server.ml", "di-server.ml.svc", "di-server.ml.svc.example.org", "di-history.ml", "di-history.ml.svc", "di-history.ml.svc.example.org"}},
			issuer:  map[string]any{"name": "di-orchestrator-ca", "kind": "Issuer", "group": "cert-manager.io"},
			own:     true,
		},
		"by an issuer that is there, for a host": {
			values:  []string{"webhook.url=https://webhooks.example.org:9443", "certManager.issuerRef.name=ours", "certManager.issuerRef.kind=ClusterIssuer"},
			webhook: map[string]any{"dnsNames": []any{"webhooks.example.org"}},
			server:  map[string]any{"dnsNames": []any{"di-server.ml", "di-server.ml.svc", "di-server.ml.svc.cluster.local", "di-history.ml", "di-history.ml.svc", "di-history.ml.svc.cluster.local"}},
			issuer:  map[string]any{"name": "ours", "kind": "ClusterIssuer"},
		},
		"for an address": {
			values:  []string{"webhook.url=https://10.0.0.1:9443", "certManager.issuerRef.name=ours"},
			webhook: map[string]any{"ipAddresses": []any{"10.0.0.1"}},
			server:  map[string]any{"dnsNames": []any{"di-server.ml", "di-server.ml.svc", "di-server.ml.svc.cluster.local", "di-history.ml", "di-history.ml.svc", "di-history.ml.svc.cluster.local"}},
			issuer:  map[string]any{"name": "ours"},
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			objects := render(t, "ml", append(tc.values, "certManager.enabled=true")...)
			for secret, want := range map[string]map[string]any{"di-orchestrator-webhook": tc.webhook, "di-orchestrator-server": tc.server} {
				spec, _, err := unstructured.NestedMap(find(t, objects, "Certificate", secret).Object, "spec")
				if err != nil {
					t.Fatal(err)
				}
				got := map[string]any{}
				for key := range want {
					got[key] = spec[key]
				}
				if diff := cmp.Diff(want, got); diff != "" {
					t.Errorf("names of %s (-want +got):\n%s", secret, diff)
				}
				if diff := cmp.Diff(tc.issuer, spec["issuerRef"]); diff != "" || spec["secretName"] != secret+"-tls" {
					t.Errorf("Secret %v, issuer (-want +got):\n%s", spec["secretName"], diff)
				}
			}
			own := slices.ContainsFunc(objects, func(object *unstructured.Unstructured) bool { return object.GetKind() == "Issuer" })
			if own != tc.own {
				t.Errorf("an issuer is made: %v, want %v", own, tc.own)
			}
			if secret := configured(t, objects).Common.CertificateSecret; secret != "di-orchestrator-webhook-tls" {
				t.Errorf("the programs read the certificate of Secret %q", secret)
			}
		})
	}
}

func TestAMemoryLimitLeavesRoomBesideTheHeap(t *testing.T) {
	t.Parallel()
	for limit, want := range map[string]string{"768Mi": "691MiB", "2Gi": "1843MiB"} {
		objects := render(t, "di-system", "operator.resources.limits.memory="+limit)
		environment := deployment(t, objects, "di-orchestrator-operator").Spec.Template.Spec.Containers[0].Env
		found := ""
		for _, variable := range environment {
			if variable.Name == "GOMEMLIMIT" {
				found = variable.Value
			}
		}
		if found != want {
			t.Errorf("limit %s: got GOMEMLIMIT %s, want %s", limit, found, want)
		}
	}
}

func TestEveryPodIsRestricted(t *testing.T) {
	t.Parallel()
	pods := 0
	for _, object := range render(t, "di-system", "image.tag=v1", "web.enabled=true", "web.hosts={jobs.example.com}") {
		spec, found, err := unstructured.NestedMap(object.Object, "spec", "template", "spec")
		if err != nil || !found {
			continue
		}
		pods++
		nonRoot, _, _ := unstructured.NestedBool(spec, "securityContext", "runAsNonRoot")
		seccomp, _, _ := unstructured.NestedString(spec, "securityContext", "seccompProfile", "type")
		containers, _, _ := unstructured.NestedSlice(spec, "containers")
		initial, _, _ := unstructured.NestedSlice(spec, "initContainers")
		for _, container := range append(containers, initial...) {
			fields, _ := container.(map[string]any)
			context, _, _ := unstructured.NestedMap(fields, "securityContext")
			drop, _, _ := unstructured.NestedStringSlice(context, "capabilities", "drop")
			if context["allowPrivilegeEscalation"] != false || context["readOnlyRootFilesystem"] != true || !slices.Equal(drop, []string{"ALL"}) {
				t.Errorf("%s: got security context %v", identify(object), context)
			}
		}
		if !nonRoot || seccomp != "RuntimeDefault" {
			t.Errorf("%s: got security context %v", identify(object), spec["securityContext"])
		}
	}
	if pods != 7 {
		t.Errorf("got %d pod templates, want those of 4 Deployments and 3 hooks", pods)
	}
}

// Helm stores each release, with its chart, in a Secret, whose maximum is 1 MiB.
func TestAReleaseFitsIntoItsSecret(t *testing.T) {
	t.Parallel()
	const budget = 256 << 10
	output, err := run(t, program(t, "HELM"), renderArgs("di-system", everything())...)
	if err != nil {
		t.Fatal(err)
	}
	content := bytes.NewBufferString(output)
	err = filepath.WalkDir(chart(), func(path string, entry os.DirEntry, err error) error {
		if err != nil || entry.IsDir() {
			return err
		}
		file, err := os.ReadFile(path)
		// The release is JSON with the chart's files in base64.
		content.WriteString(base64.StdEncoding.EncodeToString(file))
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	var packed bytes.Buffer
	writer := gzip.NewWriter(&packed)
	if _, err := writer.Write(content.Bytes()); err != nil {
		t.Fatal(err)
	}
	if err := writer.Close(); err != nil {
		t.Fatal(err)
	}
	size := base64.StdEncoding.EncodedLen(base64.StdEncoding.EncodedLen(packed.Len()))
	t.Logf("a release takes %d bytes", size)
	if size > budget {
		t.Errorf("a release takes %d bytes, more than the budget of %d", size, budget)
	}
}

func deployment(t *testing.T, objects []*unstructured.Unstructured, name string) *appsv1.Deployment {
	t.Helper()
	var found appsv1.Deployment
	if err := runtime.DefaultUnstructuredConverter.FromUnstructured(find(t, objects, "Deployment", name).Object, &found); err != nil {
		t.Fatal(err)
	}
	return &found
}

func argsOf(t *testing.T, objects []*unstructured.Unstructured, name string) []string {
	t.Helper()
	return deployment(t, objects, name).Spec.Template.Spec.Containers[0].Args
}

func TestThePolicyIsLeftOutWhereTheAPIHasNone(t *testing.T) {
	t.Parallel()
	count := func(values ...string) int {
		found := 0
		for _, object := range render(t, "di-system", values...) {
			if strings.HasPrefix(object.GetKind(), "ValidatingAdmissionPolicy") {
				found++
			}
		}
		return found
	}
	none := []string{"crds.protect=false", "policies.server=false", "policies.operator=false", "policies.webhook=false", "policies.budgets=false"}
	if with, without := count(), count(none...); with != 10 || without != 0 {
		t.Errorf("got %d objects with the policies, want five and their bindings, and %d without, want none", with, without)
	}
	if submitters := count(append(none, "policies.submitters=true")...); submitters != 2 {
		t.Errorf("got %d objects of the policy about who may submit jobs, want it and its binding", submitters)
	}
}

func TestPoliciesNameTheServiceAccountsOfTheRelease(t *testing.T) {
	t.Parallel()
	for policy, account := range map[string]string{
		"di-orchestrator-operator": "di-orchestrator-operator", "di-orchestrator-server": "di-orchestrator-server", "di-orchestrator-submitters": "di-orchestrator-server",
	} {
		raw, err := find(t, render(t, "elsewhere", "policies.submitters=true"), "ValidatingAdmissionPolicy", policy).MarshalJSON()
		if err != nil {
			t.Fatal(err)
		}
		if strings.Contains(string(raw), ":di-system:") || !strings.Contains(string(raw), "system:serviceaccount:elsewhere:"+account) {
			t.Errorf("%s does not name the ServiceAccounts of namespace elsewhere: %s", policy, raw)
		}
	}
}

func TestTheDefaultRolesReachJobsUnlessTheChartIsToldNotTo(t *testing.T) {
	t.Parallel()
	for _, verb := range []string{"view", "edit"} {
		label := "rbac.authorization.k8s.io/aggregate-to-" + verb
		if got := find(t, render(t, "di-system"), "ClusterRole", "di-orchestrator-"+verb).GetLabels()[label]; got != "true" {
			t.Errorf("by default label %s is %q", label, got)
		}
		alone := find(t, render(t, "di-system", "rbac.aggregateToDefaultRoles=false"), "ClusterRole", "di-orchestrator-"+verb)
		if got, found := alone.GetLabels()[label]; found {
			t.Errorf("label %s is %q although the roles are not aggregated", label, got)
		}
	}
}

func TestOnlyThoseWhoAreNamedReachTheWebhooks(t *testing.T) {
	t.Parallel()
	ingress := func(values ...string) string {
		policy := find(t, render(t, "di-system", values...), "NetworkPolicy", "di-orchestrator-webhook")
		rules, _, err := unstructured.NestedSlice(policy.Object, "spec", "ingress")
		if err != nil {
			t.Fatal(err)
		}
		return fmt.Sprint(rules[0])
	}
	if got, want := ingress(), "map[ports:[map[port:webhook]]]"; got != want {
		t.Errorf("by default ingress is %s, want %s", got, want)
	}
	if got, want := ingress("networkPolicy.webhookFrom[0].ipBlock.cidr=10.0.0.0/24"), "map[from:[map[ipBlock:map[cidr:10.0.0.0/24]]] ports:[map[port:webhook]]]"; got != want {
		t.Errorf("ingress is %s, want %s", got, want)
	}
}

func TestSecureMetricsComeWithTheRightsThatTheyTake(t *testing.T) {
	t.Parallel()
	objects := render(t, "di-system", "configuration.common.secureMetrics=true", "monitoring.serviceMonitor.enabled=true")
	for _, name := range []string{"di-orchestrator-operator", "di-orchestrator-webhook", "di-orchestrator-server"} {
		monitor := find(t, objects, "ServiceMonitor", name)
		endpoints, _, err := unstructured.NestedSlice(monitor.Object, "spec", "endpoints")
		if err != nil || !strings.Contains(fmt.Sprint(endpoints), "scheme:https") {
			t.Errorf("Prometheus reads the metrics of %s by %v, %v", name, endpoints, err)
		}
	}
	find(t, objects, "ClusterRoleBinding", "di-orchestrator-metrics-auth")
	find(t, objects, "ClusterRole", "di-orchestrator-metrics-reader")
}
