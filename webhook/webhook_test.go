// Copyright The DI Orchestrator Authors.
// SPDX-License-Identifier: Apache-2.0

package webhook_test

import (
	"context"
	"encoding/json"
	"net/http"
	"os"
	"path/filepath"
	"strings"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"opendilab.org/di-orchestrator/apis/v2alpha1"
	"opendilab.org/di-orchestrator/test/testkit"
	"opendilab.org/di-orchestrator/test/testkit/specs"
	"opendilab.org/di-orchestrator/webhook"
)

const (
	v1Job = `
spec:
  priorityClassName: ""
  cleanPodPolicy: ALL
  coordinator: {template: {spec: {containers: [{name: di-container, image: a, newerThanUs: [null, 1.50]}]}}}
  collector: {template: {metadata: {creationTimestamp: null}, spec: {containers: [{name: di-container}]}}}
`
	v2Job = `
spec:
  tasks:
  - {type: learner, template: {spec: {containers: [{name: di-container}]}}}
  - {type: collector, replicas: 3, template: {spec: {containers: [{name: di-container}]}}}
  - {type: evaluator, template: {spec: {containers: [{name: di-container}]}}}
`
	coordinatorLedJob = `
spec:
  lifecycle: CoordinatorLed
  suspend: true
  tasks:
  - {type: coordinator, template: {spec: {containers: [{name: di-container}]}}}
  - {type: learner, template: {spec: {containers: [{name: di-container}]}}}
`
)

var _ = Describe("A job in both versions", func() {
	It("comes back as it was written through v1alpha1", func(ctx SpecContext) {
		namespace := specs.Namespace(ctx, c)
		Expect(c.Create(ctx, specs.Job("v1alpha1", namespace, "j", v1Job))).To(Succeed())

		Expect(specs.GetJob(ctx, c, "v2alpha1", namespace, "j").Object["spec"]).To(Equal(content(`
  lifecycle: CoordinatorLed
  backoffLimit: 0
  priorityClassName: ""
  cleanPodPolicy: All
  tasks:
  - {type: coordinator, name: coordinator, replicas: 1, template: {spec: {containers: [{name: di-container, image: a, newerThanUs: [null, 1.50]}]}}}
  - {type: collector, name: collector, replicas: 0, template: {metadata: {creationTimestamp: null}, spec: {containers: [{name: di-container}]}}}
`)))
		want := specs.Job("v1alpha1", namespace, "j", v1Job)
		Expect(unstructured.SetNestedField(want.Object, "All", "spec", "cleanPodPolicy")).To(Succeed())
		seen := specs.GetJob(ctx, c, "v1alpha1", namespace, "j")
		Expect(seen.Object["spec"]).To(Equal(want.Object["spec"]))
		Expect(seen.GetAnnotations()).To(Equal(map[string]string{"diengine/creator": "admin"}), "only what admission records")
	})

	It("is selected by its phase, in the words of each version", func(ctx SpecContext) {
		if minor() < 31 {
			Skip("API servers select by fields of jobs since 1.31")
		}
		namespace := specs.Namespace(ctx, c)
		for name, phase := range map[string]string{"one": "Pending", "two": "Running"} {
			led := specs.Job("v2alpha1", namespace, name, coordinatorLedJob)
			Expect(c.Create(ctx, led)).To(Succeed())
			Expect(unstructured.SetNestedField(led.Object, phase, "status", "phase")).To(Succeed())
			Expect(c.Status().Update(ctx, led)).To(Succeed())
		}
		Expect(c.Create(ctx, specs.Job("v2alpha1", namespace, "workers", v2Job))).To(Succeed())
		for version, selected := range map[string]map[string]string{
			"v2alpha1": {"status.phase=Pending": "one", "status.phase=Running": "two", "status.phase=Failed": "", "spec.lifecycle!=CoordinatorLed": "workers"},
			"v1alpha1": {"status.phase=Created": "one", "status.phase=Running": "two", "status.phase=Pending": ""},
		} {
			for selector, name := range selected {
				out, err := specs.Kubectl(ctx, api.KubeConfig, "get", "dijobs."+version+".diengine.opendilab.org", "-n", namespace, "--field-selector", selector, "-o", "jsonpath={.items[*].metadata.name}")
				Expect(err).NotTo(HaveOccurred(), out)
				Expect(strings.TrimSpace(out[strings.LastIndex(out, "\n")+1:])).To(Equal(name), "%s in %s", selector, version)
			}
		}
	})

	It("shows and keeps what only v2alpha1 can say", func(ctx SpecContext) {
		namespace := specs.Namespace(ctx, c)
		Expect(c.Create(ctx, specs.Job("v2alpha1", namespace, "led", coordinatorLedJob))).To(Succeed())
		Expect(specs.GetJob(ctx, c, "v1alpha1", namespace, "led").Object["spec"]).To(Equal(content(`
  cleanPodPolicy: Running
  coordinator: {template: {spec: {containers: [{name: di-container}]}}}
  learner: {template: {spec: {containers: [{name: di-container}]}}}
  extended: {suspend: true}
`)))

		By("writing through v1alpha1 without extended, as an old client does")
		old := specs.GetJob(ctx, c, "v1alpha1", namespace, "led")
		unstructured.RemoveNestedField(old.Object, "spec", "extended")
		Expect(unstructured.SetNestedField(old.Object, "None", "spec", "cleanPodPolicy")).To(Succeed())
		Expect(c.Update(ctx, old)).To(Succeed())
		Expect(specs.GetJob(ctx, c, "v2alpha1", namespace, "led").Object["spec"]).To(And(
			HaveKeyWithValue("suspend", true), HaveKeyWithValue("cleanPodPolicy", "None"), HaveKeyWithValue("lifecycle", "CoordinatorLed")))
	})

	It("is defaulted through v2alpha1, and shown to v1alpha1", func(ctx SpecContext) {
		namespace := specs.Namespace(ctx, c)
		Expect(c.Create(ctx, specs.Job("v2alpha1", namespace, "w", v2Job))).To(Succeed())
		stored := specs.GetJob(ctx, c, "v2alpha1", namespace, "w")
		Expect(stored.Object["spec"]).To(Equal(content(`
  priority: normal
  cleanPodPolicy: Running
  backoffLimit: 3
  elastic: {task: collector, replicas: 3}
  tasks:
  - {type: learner, name: learner, replicas: 1, template: {spec: {containers: [{name: di-container}]}}}
  - {type: collector, name: collector, replicas: 3, template: {spec: {containers: [{name: di-container}]}}}
  - {type: evaluator, name: evaluator, replicas: 1, template: {spec: {containers: [{name: di-container}]}}}
`)))
		seen := specs.GetJob(ctx, c, "v1alpha1", namespace, "w")
		Expect(seen.Object["spec"]).To(HaveKeyWithValue("coordinator", BeEmpty()))

		By("writing labels through v1alpha1, without extended")
		seen.SetLabels(map[string]string{"a": "b"})
		unstructured.RemoveNestedField(seen.Object, "spec", "extended")
		Expect(c.Update(ctx, seen)).To(Succeed())
		labelled := specs.GetJob(ctx, c, "v2alpha1", namespace, "w")
		Expect(labelled.GetLabels()).To(HaveKeyWithValue("a", "b"))
		Expect(labelled.Object["spec"]).To(Equal(stored.Object["spec"]))

		By("writing labels through v1alpha1 as a typed client does, with empty members of its own")
		typed := specs.GetJob(ctx, c, "v1alpha1", namespace, "w")
		typed.SetLabels(map[string]string{"a": "c"})
		Expect(unstructured.SetNestedField(typed.Object, content(`{metadata: {creationTimestamp: null}, spec: {containers: null}}`),
			"spec", "coordinator", "template")).To(Succeed())
		Expect(unstructured.SetNestedField(typed.Object, "", "spec", "group")).To(Succeed())
		Expect(c.Update(ctx, typed)).To(Succeed())

		By("writing the spec through v1alpha1")
		seen = specs.GetJob(ctx, c, "v1alpha1", namespace, "w")
		Expect(unstructured.SetNestedField(seen.Object, "None", "spec", "cleanPodPolicy")).To(Succeed())
		Expect(c.Update(ctx, seen)).To(MatchError(And(ContainSubstring("spec: Forbidden"), ContainSubstring("kubectl edit dijobs.v2alpha1"))))
	})

	It("levels the two counts of the elastic task to the one that changed", func(ctx SpecContext) {
		namespace := specs.Namespace(ctx, c)
		Expect(c.Create(ctx, specs.Job("v2alpha1", namespace, "w", v2Job))).To(Succeed())
		counts := func() []int32 {
			stored := &v2alpha1.DIJob{}
			Expect(runtime.DefaultUnstructuredConverter.FromUnstructured(specs.GetJob(ctx, c, "v2alpha1", namespace, "w").Object, stored)).To(Succeed())
			return []int32{*stored.Spec.Elastic.Replicas, *stored.Spec.Tasks[1].Replicas}
		}
		patch := func(body string) {
			GinkgoHelper()
			Expect(c.Patch(ctx, specs.GetJob(ctx, c, "v2alpha1", namespace, "w"), client.RawPatch("application/json-patch+json", []byte(body)))).To(Succeed())
		}
		patch(`[{"op":"replace","path":"/spec/tasks/1/replicas","value":5}]`)
		Expect(counts()).To(Equal([]int32{5, 5}))
		patch(`[{"op":"replace","path":"/spec/elastic/replicas","value":2}]`)
		Expect(counts()).To(Equal([]int32{2, 2}))
		_, err := specs.Kubectl(ctx, api.KubeConfig, "scale", "dijob/w", "-n", namespace, "--replicas=4")
		Expect(err).NotTo(HaveOccurred())
		Expect(counts()).To(Equal([]int32{4, 2}), "no webhook sees the scale subresource")
		patch(`[{"op":"replace","path":"/spec/cleanPodPolicy","value":"None"}]`)
		Expect(counts()).To(Equal([]int32{4, 2}), "what did not change stays")
		patch(`[{"op":"add","path":"/spec/elastic/maxReplicas","value":3}]`)
		Expect(counts()).To(Equal([]int32{4, 2}), "a count that is out of bounds already is no reason to refuse a change")

		By("scaling beyond the bounds, which no webhook sees and the schema does")
		out, err := specs.Kubectl(ctx, api.KubeConfig, "scale", "dijob/w", "-n", namespace, "--replicas=5")
		Expect(err).To(HaveOccurred())
		Expect(withoutValues(out)).To(ContainSubstring("spec.elastic.replicas: Invalid value: must be at most maxReplicas, which is 3, "))
		patch(`[{"op":"add","path":"/spec/preemptible","value":true}]`)
		_, err = specs.Kubectl(ctx, api.KubeConfig, "scale", "dijob/w", "-n", namespace, "--replicas=5")
		Expect(err).NotTo(HaveOccurred(), "the size of a preemptible job is the allocator's")
	})

	DescribeTable("resizes another task when the one that nobody named is applied away", func(ctx SpecContext, flag string) {
		namespace := specs.Namespace(ctx, c)
		file := filepath.Join(GinkgoT().TempDir(), "job.yaml")
		apply := func(tasks string) any {
			GinkgoHelper()
			manifest := "apiVersion: diengine.opendilab.org/v2alpha1\nkind: DIJob\nmetadata: {name: w, namespace: " + namespace + "}\nspec: {tasks: [" + tasks + "]}\n"
			Expect(os.WriteFile(file, []byte(manifest), 0o600)).To(Succeed())
			out, err := specs.Kubectl(ctx, api.KubeConfig, "apply", flag, "-f", file)
			Expect(err).NotTo(HaveOccurred(), out)
			elastic, _, err := unstructured.NestedMap(specs.GetJob(ctx, c, "v2alpha1", namespace, "w").Object, "spec", "elastic")
			Expect(err).NotTo(HaveOccurred())
			return elastic
		}
		const template = `template: {spec: {containers: [{name: di-container}]}}}`
		const learner, collector = `{type: learner, ` + template, `{type: collector, replicas: 3, ` + template
		Expect(apply(learner + "," + collector)).To(Equal(content(`{task: collector, replicas: 3}`)))
		Expect(apply(learner)).To(Equal(content(`{task: learner, replicas: 1}`)))
		Expect(apply(collector)).To(Equal(content(`{task: collector, replicas: 3}`)))
	},
		Entry("by the client", "--server-side=false"),
		Entry("by the server", "--server-side"),
	)

	It("has its status written and read in both", func(ctx SpecContext) {
		namespace := specs.Namespace(ctx, c)
		Expect(c.Create(ctx, specs.Job("v1alpha1", namespace, "j", v1Job))).To(Succeed())

		stored := specs.GetJob(ctx, c, "v2alpha1", namespace, "j")
		stored.Object["status"] = content(`{phase: Starting, restarts: 2, taskStatus: {coordinator: {Pending: 1}, aggregator: {Running: 1}}}`)
		Expect(c.Status().Update(ctx, stored)).To(Succeed())
		seen := specs.GetJob(ctx, c, "v1alpha1", namespace, "j")
		Expect(seen.Object["status"]).To(Equal(content(`
  phase: Created
  replicaStatus: {Coordinator: {active: 1}, Aggregator: {active: 1}}
  extended: {phase: Starting, restarts: 2, taskStatus: {coordinator: {Pending: 1}, aggregator: {Running: 1}}}
`)))

		By("writing through v1alpha1 without extended")
		seen.Object["status"] = content(`{phase: Failed, replicaStatus: {Coordinator: {failed: 1}}}`)
		Expect(c.Status().Update(ctx, seen)).To(Succeed())
		Expect(specs.GetJob(ctx, c, "v2alpha1", namespace, "j").Object["status"]).To(Equal(content(
			`{phase: Failed, restarts: 2, taskStatus: {coordinator: {Failed: 1}}}`)))

		By("writing what v2alpha1 cannot hold")
		seen = specs.GetJob(ctx, c, "v1alpha1", namespace, "j")
		Expect(unstructured.SetNestedField(seen.Object, "two", "status", "extended", "restarts")).To(Succeed())
		Expect(c.Status().Update(ctx, seen)).To(MatchError(ContainSubstring(`status.extended.restarts: Invalid value: "two": must be an integer`)))
	})

	It("is in the list of either version", func(ctx SpecContext) {
		namespace := specs.Namespace(ctx, c)
		Expect(c.Create(ctx, specs.Job("v1alpha1", namespace, "a", v1Job))).To(Succeed())
		Expect(c.Create(ctx, specs.Job("v2alpha1", namespace, "b", v2Job))).To(Succeed())
		for _, version := range []string{"v1alpha1", "v2alpha1"} {
			list := &unstructured.UnstructuredList{}
			list.SetGroupVersionKind(schema.GroupVersionKind{Group: "diengine.opendilab.org", Version: version, Kind: "DIJobList"})
			Expect(c.List(ctx, list, client.InNamespace(namespace))).To(Succeed())
			var names []string
			for _, item := range list.Items {
				names = append(names, item.GetName())
				Expect(item.GetAPIVersion()).To(Equal("diengine.opendilab.org/" + version))
			}
			Expect(names).To(Equal([]string{"a", "b"}))
			out, err := specs.Kubectl(ctx, api.KubeConfig, "get", "dijobs."+version+".diengine.opendilab.org", "-n", namespace, "-o", "name")
			Expect(err).NotTo(HaveOccurred(), out)
			Expect(out).To(HaveSuffix("dijob.diengine.opendilab.org/a\ndijob.diengine.opendilab.org/b\n"))
			Expect(strings.HasPrefix(out, "Warning: ")).To(Equal(version == "v1alpha1"), out)
		}
	})
})

var _ = Describe("The server", func() {
	It("is ready by what it has published", func(ctx SpecContext) {
		request := specs.Must(http.NewRequestWithContext(ctx, http.MethodGet, "/readyz", nil))
		Expect(api.Webhooks.Ready(request)).To(Succeed())
	})

	It("writes nothing where everything is published already", func(ctx SpecContext) {
		versions := func() []string {
			var versions []string
			for _, gvk := range []schema.GroupVersionKind{
				{Group: "apiextensions.k8s.io", Version: "v1", Kind: "CustomResourceDefinition"},
				{Group: "admissionregistration.k8s.io", Version: "v1", Kind: "MutatingWebhookConfiguration"},
				{Group: "admissionregistration.k8s.io", Version: "v1", Kind: "ValidatingWebhookConfiguration"},
			} {
				object := &unstructured.UnstructuredList{}
				object.SetGroupVersionKind(gvk)
				Expect(c.List(ctx, object)).To(Succeed())
				for _, item := range object.Items {
					versions = append(versions, item.GetName()+" "+item.GetResourceVersion())
				}
			}
			return versions
		}
		before := versions()
		stop := serve(ctx, webhook.Options{Config: api.Config, URL: published(ctx), BindAddress: "127.0.0.1:0"})
		Expect(versions()).To(Equal(before))
		stop()
	})
})

// published returns the published URL.
func published(ctx context.Context) string {
	GinkgoHelper()
	crd := specs.Definition(webhook.CRD)
	Expect(c.Get(ctx, client.ObjectKeyFromObject(crd), crd)).To(Succeed())
	url, _, err := unstructured.NestedString(crd.Object, "spec", "conversion", "webhook", "clientConfig", "url")
	Expect(err).NotTo(HaveOccurred())
	return strings.TrimSuffix(url, webhook.PathConvert)
}

var _ = Describe("The CRDs", func() {
	It("document our own fields in both versions", func(ctx SpecContext) {
		for version, fields := range map[string][]string{
			"v1alpha1": {"spec.cleanPodPolicy", "spec.extended", "status.replicaStatus"},
			"v2alpha1": {"spec.lifecycle", "spec.elastic.onResize", "status.taskStatus"},
		} {
			for _, field := range fields {
				out, err := specs.Kubectl(ctx, api.KubeConfig, "explain", "dijobs."+field, "--api-version=diengine.opendilab.org/"+version)
				Expect(err).NotTo(HaveOccurred(), out)
				Expect(out).To(ContainSubstring("DESCRIPTION:"))
				Expect(out).NotTo(ContainSubstring("<empty>"))
			}
		}
	})

	It("are installed by a plain kubectl apply, before and after webhooks are published by Service and by URL", func(ctx SpecContext) {
		bare := specs.Must(testkit.StartBareAPI())
		defer func() { Expect(bare.Stop()).To(Succeed()) }()
		apply := func() {
			GinkgoHelper()
			for _, folder := range []string{"crd", "webhook"} {
				out, err := specs.Kubectl(ctx, bare.KubeConfig, "apply", "-k", filepath.Join(testkit.Root(), "config", folder))
				Expect(err).NotTo(HaveOccurred(), out)
			}
		}
		out, err := specs.Kubectl(ctx, bare.KubeConfig, "create", "namespace", "di-system")
		Expect(err).NotTo(HaveOccurred(), out)
		apply()
		for _, url := range []string{"", "https://127.0.0.1:1", ""} {
			stop := serve(ctx, webhook.Options{Config: bare.Config, URL: url, BindAddress: "127.0.0.1:0"})
			for _, config := range clientConfigs(ctx, bare.KubeConfig) {
				Expect(config).To(HaveKeyWithValue("caBundle", Not(BeEmpty())))
				if url == "" {
					Expect(config).NotTo(HaveKey("url"))
					Expect(config).To(HaveKeyWithValue("service", HaveKeyWithValue("name", "di-orchestrator-webhook")))
				} else {
					Expect(config).NotTo(HaveKey("service"))
					Expect(config).To(HaveKeyWithValue("url", HavePrefix(url)))
				}
			}
			stop()
		}
		apply()
		for _, config := range clientConfigs(ctx, bare.KubeConfig) {
			Expect(config).To(HaveKeyWithValue("caBundle", Not(BeEmpty())), "applying the manifests again keeps the bundle")
		}
	})
})

// serve runs a server until it is published and ready, and returns how to stop it.
func serve(ctx context.Context, options webhook.Options) (stop func()) {
	GinkgoHelper()
	server := specs.Must(webhook.New(options))
	running, cancel := context.WithCancel(ctx)
	ended := make(chan error, 1)
	go func() { ended <- server.Run(running) }()
	request := specs.Must(http.NewRequestWithContext(ctx, http.MethodGet, "/readyz", nil))
	Expect(server.WaitPublished(ctx)).To(Succeed())
	Expect(server.Ready(request)).To(Succeed())
	return func() {
		GinkgoHelper()
		cancel()
		Eventually(ended).Should(Receive(BeNil()))
		Expect(server.Ready(request)).NotTo(Succeed())
	}
}

// clientConfigs returns the client configurations of all webhooks.
func clientConfigs(ctx context.Context, kubeconfig []byte) []map[string]any {
	GinkgoHelper()
	out, err := specs.Kubectl(ctx, kubeconfig, "get", "-o", "json", "crd/"+webhook.CRD,
		"mutatingwebhookconfiguration/"+webhook.MutatingConfiguration, "validatingwebhookconfiguration/"+webhook.ValidatingConfiguration)
	Expect(err).NotTo(HaveOccurred(), out)
	type webhookConfig struct {
		ClientConfig map[string]any `json:"clientConfig"`
	}
	var list struct {
		Items []struct {
			Spec struct {
				Conversion struct {
					Webhook webhookConfig `json:"webhook"`
				} `json:"conversion"`
			} `json:"spec"`
			Webhooks []webhookConfig `json:"webhooks"`
		} `json:"items"`
	}
	Expect(json.Unmarshal([]byte(out), &list)).To(Succeed())
	var configs []map[string]any
	for _, item := range list.Items {
		if config := item.Spec.Conversion.Webhook.ClientConfig; config != nil {
			configs = append(configs, config)
		}
		for _, hook := range item.Webhooks {
			configs = append(configs, hook.ClientConfig)
		}
	}
	Expect(configs).To(HaveLen(10))
	return configs
}
