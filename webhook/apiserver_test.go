// Copyright The DI Orchestrator Authors.
// SPDX-License-Identifier: Apache-2.0

package webhook_test

import (
	"bytes"
	"context"
	"io"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/discovery"
	"k8s.io/client-go/rest"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"opendilab.org/di-orchestrator/internal/scope"
	"opendilab.org/di-orchestrator/test/testkit"
	"opendilab.org/di-orchestrator/test/testkit/specs"
	"opendilab.org/di-orchestrator/webhook"
)

// heard collects the warnings that a client receives.
type heard struct {
	mutex sync.Mutex
	texts []string
}

func (h *heard) HandleWarningHeader(_ int, _, text string) {
	h.mutex.Lock()
	defer h.mutex.Unlock()
	h.texts = append(h.texts, text)
}

// take returns the warnings since the last call.
func (h *heard) take() []string {
	h.mutex.Lock()
	defer h.mutex.Unlock()
	// The deprecation warning of v1alpha1 is the API server's own.
	texts := slices.DeleteFunc(h.texts, func(text string) bool { return strings.Contains(text, "deprecated") })
	h.texts = nil
	return texts
}

// listening returns a client and its collected warnings.
func listening(of *rest.Config) (client.Client, *heard) {
	GinkgoHelper()
	warnings := &heard{}
	config := rest.CopyConfig(of)
	config.WarningHandler = warnings
	listener := specs.Must(client.New(config, client.Options{}))
	return listener, warnings
}

func mergePatch(body string) client.Patch {
	return client.RawPatch("application/merge-patch+json", []byte(body))
}

func jsonPatch(body string) client.Patch {
	return client.RawPatch("application/json-patch+json", []byte(body))
}

var _ = Describe("A warning", func() {
	It("reaches who writes a job, also in a dry run, by the paths of the version", func(ctx SpecContext) {
		namespace := specs.Namespace(ctx, c)
		listener, warnings := listening(api.Config)
		misspelt := specs.Job("v1alpha1", namespace, "j", `
spec:
  coordinator: {template: {spec: {containers: [{name: di-container, image: a}]}}}
  collector: {template: {spec: {containers: [{name: di-container, image: a, imagee: a}]}}}
`)
		const want = `unknown field "spec.collector.template.spec.containers[0].imagee"`
		Expect(listener.Create(ctx, misspelt.DeepCopy(), client.DryRunAll)).To(Succeed())
		Expect(warnings.take()).To(Equal([]string{want}))
		Expect(c.Get(ctx, client.ObjectKeyFromObject(misspelt), misspelt.DeepCopy())).To(Satisfy(apierrors.IsNotFound))

		Expect(listener.Create(ctx, misspelt)).To(Succeed())
		Expect(warnings.take()).To(Equal([]string{want}))

		By("changing a template of the job that lives")
		stored := specs.GetJob(ctx, c, "v2alpha1", namespace, "j")
		Expect(listener.Patch(ctx, stored, jsonPatch(`[{"op":"add","path":"/spec/tasks/0/template/spec/containers/0/image","value":"b"}]`))).To(Succeed())
		Expect(warnings.take()).To(Equal([]string{
			"spec.tasks[0].template: is changed: new pods use it, running pods stay unchanged"}))

		By("changing a template of the job that has finished")
		stored.Object["status"] = content(`{phase: Succeeded}`)
		Expect(c.Status().Update(ctx, stored)).To(Succeed())
		// The API server first tries a patch on what its cache has, and warns of that.
		Eventually(ctx, func() (string, error) {
			cached := stored.DeepCopy()
			err := c.Get(ctx, client.ObjectKeyFromObject(stored), cached, &client.GetOptions{Raw: &metav1.GetOptions{ResourceVersion: "0"}})
			phase, _, _ := unstructured.NestedString(cached.Object, "status", "phase")
			return phase, err
		}).Should(Equal("Succeeded"))
		Expect(listener.Patch(ctx, stored, jsonPatch(`[{"op":"add","path":"/spec/tasks/0/template/spec/containers/0/image","value":"c"}]`))).To(Succeed())
		Expect(warnings.take()).To(BeEmpty())
	})

	It("reaches who creates a job that no operator runs, and nobody else", func(ctx SpecContext) {
		alone := newCluster(ctx)
		watched := specs.Must(scope.New([]string{"team-a"}, types.NamespacedName{}))
		Expect(alone.Create(ctx, &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: "team-a"}})).To(Succeed())
		server := alone.serve(ctx, webhook.Options{Namespaces: watched})
		Expect(server.WaitPublished(ctx)).To(Succeed())
		listener, warnings := listening(alone.environment.Config)
		spec := `spec: {tasks: [{type: learner, template: {spec: {containers: [{name: a, image: b}]}}}]}`
		unseen := specs.Job("v2alpha1", "default", "j", spec)
		Eventually(func(g Gomega) []string {
			warnings.take()
			g.Expect(listener.Create(ctx, unseen.DeepCopy(), client.DryRunAll)).To(Succeed())
			return warnings.take()
		}).WithContext(ctx).Should(ConsistOf(And(ContainSubstring("nothing runs this one"), ContainSubstring("default"))))
		Expect(listener.Create(ctx, unseen)).To(Succeed())
		warnings.take()
		Expect(listener.Patch(ctx, unseen, mergePatch(`{"spec":{"backoffLimit":1}}`))).To(Succeed())
		Expect(listener.Create(ctx, specs.Job("v2alpha1", "team-a", "j", spec))).To(Succeed())
		Expect(warnings.take()).To(BeEmpty())
	})

	It("about a name that is written twice is the API server's, which decides what counts", func(ctx SpecContext) {
		body := `{"apiVersion":"diengine.opendilab.org/v2alpha1","kind":"DIJob","metadata":{"name":"twice"},"spec":{"tasks":[
  {"type":"learner","template":{"spec":{"containers":[{"name":"a","image":"b","image":"c"}]}}}]}}`
		posting := specs.Must(rest.HTTPClientFor(api.Config))
		url := strings.TrimSuffix(api.Config.Host, "/") + "/apis/diengine.opendilab.org/v2alpha1/namespaces/" + specs.Namespace(ctx, c) + "/dijobs?fieldValidation="
		for validation, status := range map[string]int{"Strict": http.StatusBadRequest, "Warn": http.StatusCreated} {
			request := specs.Must(http.NewRequestWithContext(ctx, http.MethodPost, url+validation, bytes.NewBufferString(body)))
			request.Header.Set("Content-Type", "application/json")
			response, err := posting.Do(request)
			Expect(err).NotTo(HaveOccurred())
			answer := specs.Must(io.ReadAll(response.Body))
			Expect(response.Body.Close()).To(Succeed())
			Expect(response.StatusCode).To(Equal(status), string(answer))
			Expect(string(answer) + strings.Join(response.Header.Values("Warning"), "\n")).To(
				MatchRegexp(`duplicate field .*spec.tasks\[0\].template.spec.containers\[0\].image`))
		}
	})

	It("names the newer fields that a client built for v1.1.3 drops", func(ctx SpecContext) {
		namespace := specs.Namespace(ctx, c)
		listener, warnings := listening(api.Config)
		written := specs.Job("v2alpha1", namespace, "j", v2Job)
		Expect(unstructured.SetNestedField(written.Object, int64(60), "spec", "ttlSecondsAfterFinished")).To(Succeed())
		Expect(c.Create(ctx, written)).To(Succeed())
		typed := specs.GetJob(ctx, c, "v2alpha1", namespace, "j")
		for _, newer := range []string{"ttlSecondsAfterFinished", "elastic"} {
			unstructured.RemoveNestedField(typed.Object, "spec", newer)
		}
		Expect(listener.Update(ctx, typed)).To(Succeed())
		Expect(warnings.take()).To(Equal([]string{
			"spec.ttlSecondsAfterFinished: is removed by this update, like all fields that v1.1.3 does not have: if the client was built for v1.1.3, write the field again"}))
	})
})

var _ = Describe("A value of the wrong type", func() {
	It("is refused by path and value before the schema is asked, which names neither", func(ctx SpecContext) {
		mistyped := specs.Job("v2alpha1", specs.Namespace(ctx, c), "j", v2Job)
		Expect(unstructured.SetNestedField(mistyped.Object, "three", "spec", "backoffLimit")).To(Succeed())
		Expect(c.Create(ctx, mistyped)).To(MatchError(ContainSubstring(`"j" is invalid: spec.backoffLimit: Invalid value: "three": must be an integer`)))
		Expect(unstructured.SetNestedField(mistyped.Object, int64(3000000000), "spec", "backoffLimit")).To(Succeed())
		Expect(c.Create(ctx, mistyped)).To(MatchError(ContainSubstring("spec.backoffLimit: Invalid value: 3000000000")))
	})

	It("hides no mistake in templates", func(ctx SpecContext) {
		for version, tc := range map[string]struct {
			spec string
			want []string
		}{
			"v2alpha1": {
				`spec: {backoffLimit: three, volumes: [{name: V}], tasks: [{type: none, name: a, template: {spec: {hostNetwork: "yes", containers: [{name: A}]}}}]}`,
				[]string{"spec.backoffLimit", "spec.volumes[0].name", "spec.tasks[0].template.spec.hostNetwork", "spec.tasks[0].template.spec.containers[0].name"},
			},
			"v1alpha1": {
				`spec: {group: 1, coordinator: {template: {spec: {hostNetwork: "yes", containers: [{name: A}]}}}}`,
				[]string{"spec.group", "spec.coordinator.template.spec.hostNetwork", "spec.coordinator.template.spec.containers[0].name"},
			},
		} {
			err := c.Create(ctx, specs.Job(version, specs.Namespace(ctx, c), "j", tc.spec))
			Expect(err).To(HaveOccurred())
			for _, want := range tc.want {
				Expect(err.Error()).To(ContainSubstring(want+": Invalid value"), version)
			}
		}
	})
})

var _ = DescribeTable("An update through v1alpha1 keeps what only v2alpha1 can say, and removes it where it says so",
	func(ctx SpecContext, change func(context.Context, *unstructured.Unstructured) error, suspended bool) {
		namespace := specs.Namespace(ctx, c)
		Expect(c.Create(ctx, specs.Job("v2alpha1", namespace, "j", coordinatorLedJob))).To(Succeed())
		Expect(change(ctx, specs.GetJob(ctx, c, "v1alpha1", namespace, "j"))).To(Succeed())
		spec := specs.GetJob(ctx, c, "v2alpha1", namespace, "j").Object["spec"]
		if suspended {
			Expect(spec).To(HaveKeyWithValue("suspend", true))
		} else {
			Expect(spec).NotTo(HaveKey("suspend"))
		}
		Expect(spec).To(HaveKeyWithValue("lifecycle", "CoordinatorLed"))
	},
	Entry("an update without extended", writing(func(spec map[string]any) { delete(spec, "extended") }), true),
	Entry("an update with null", writing(func(spec map[string]any) { spec["extended"] = nil }), true),
	Entry("an update with an empty extended", writing(func(spec map[string]any) { spec["extended"] = map[string]any{} }), false),
	Entry("a merge patch of something else", patching(mergePatch(`{"spec":{"group":"a"}}`)), true),
	Entry("a merge patch to null", patching(mergePatch(`{"spec":{"extended":null}}`)), true),
	Entry("a merge patch of one member to null", patching(mergePatch(`{"spec":{"extended":{"suspend":null}}}`)), false),
	Entry("a JSON patch that removes it", patching(jsonPatch(`[{"op":"remove","path":"/spec/extended"}]`)), true),
	Entry("a JSON patch that removes one member", patching(jsonPatch(`[{"op":"remove","path":"/spec/extended/suspend"}]`)), false),
	Entry("server-side apply by another manager, without it", applying("--server-side", ""), true),
	Entry("server-side apply with it, and then without", applying("--server-side", "extended: {suspend: true}"), true),
	Entry("client-side apply with it, and then without", applying("--server-side=false", "extended: {suspend: true}"), true),
)

func writing(change func(spec map[string]any)) func(context.Context, *unstructured.Unstructured) error {
	return func(ctx context.Context, job *unstructured.Unstructured) error {
		spec, ok := job.Object["spec"].(map[string]any)
		Expect(ok).To(BeTrue())
		change(spec)
		spec["group"] = "changed"
		return c.Update(ctx, job)
	}
}

func patching(patch client.Patch) func(context.Context, *unstructured.Unstructured) error {
	return func(ctx context.Context, job *unstructured.Unstructured) error { return c.Patch(ctx, job, patch) }
}

// applying applies a manifest of v1alpha1 first with the text in its spec, if there is one, and
// then without it.
func applying(flag, text string) func(context.Context, *unstructured.Unstructured) error {
	return func(ctx context.Context, job *unstructured.Unstructured) error {
		for i, more := range []string{text, ""} {
			if i == 0 && text == "" {
				continue
			}
			manifest := "apiVersion: diengine.opendilab.org/v1alpha1\nkind: DIJob\nmetadata: {name: j, namespace: " + job.GetNamespace() + "}\nspec:\n" +
				"  group: applied\n  coordinator: {template: {spec: {containers: [{name: di-container}]}}}\n" +
				"  learner: {template: {spec: {containers: [{name: di-container}]}}}\n  " + more + "\n"
			file := filepath.Join(GinkgoT().TempDir(), "job.yaml")
			if err := os.WriteFile(file, []byte(manifest), 0o600); err != nil {
				return err
			}
			out, err := specs.Kubectl(ctx, api.KubeConfig, "apply", flag, "--force-conflicts="+isServerSide(flag), "-f", file)
			Expect(err).NotTo(HaveOccurred(), out)
		}
		return nil
	}
}

func isServerSide(flag string) string {
	if flag == "--server-side" {
		return "true"
	}
	return "false"
}

var _ = DescribeTable("An old client that takes a finalizer off a job that is being deleted leaves its spec alone",
	func(ctx SpecContext, manifest string) {
		namespace := specs.Namespace(ctx, c)
		written := specs.Job("v2alpha1", namespace, "j", manifest)
		written.SetFinalizers([]string{"test/first", "test/last"})
		Expect(c.Create(ctx, written)).To(Succeed())
		Expect(c.Delete(ctx, written)).To(Succeed())
		before := specs.GetJob(ctx, c, "v2alpha1", namespace, "j")

		old := specs.GetJob(ctx, c, "v1alpha1", namespace, "j")
		unstructured.RemoveNestedField(old.Object, "spec", "extended")
		old.SetFinalizers([]string{"test/last"})
		Expect(c.Update(ctx, old)).To(Succeed())
		after := specs.GetJob(ctx, c, "v2alpha1", namespace, "j")
		Expect(after.GetFinalizers()).To(Equal([]string{"test/last"}))
		Expect(after.Object["spec"]).To(Equal(before.Object["spec"]))

		Expect(c.Patch(ctx, after, mergePatch(`{"metadata":{"finalizers":null}}`))).To(Succeed())
		Expect(c.Get(ctx, client.ObjectKeyFromObject(after), after)).To(Satisfy(apierrors.IsNotFound))
	},
	Entry("a worker-led job", v2Job),
	Entry("a coordinator-led job", coordinatorLedJob),
)

var _ = Describe("While no webhook answers", func() {
	It("jobs are deleted, released, labelled, scaled and given a status, and not changed otherwise", func(ctx SpecContext) {
		environment := specs.Must(testkit.StartAPI(ctx))
		defer func() { Expect(environment.Stop()).To(Succeed()) }()
		alone := specs.Must(client.New(environment.Config, client.Options{}))
		out, err := specs.Kubectl(ctx, environment.KubeConfig, "apply", "-k", filepath.Join(testkit.Root(), "config", "webhook"))
		Expect(err).NotTo(HaveOccurred(), out)
		stop := serveOn(ctx, environment)
		released := specs.Job("v2alpha1", metav1.NamespaceDefault, "released", v2Job)
		Eventually(func() error { return alone.Create(ctx, released.DeepCopy(), client.DryRunAll) }).Should(Succeed())
		released.SetFinalizers([]string{"test/last", metav1.FinalizerDeleteDependents})
		Expect(alone.Create(ctx, released)).To(Succeed())
		live := specs.Job("v2alpha1", metav1.NamespaceDefault, "live", v2Job)
		Expect(alone.Create(ctx, live)).To(Succeed())
		config := aggregators("v2alpha1", metav1.NamespaceDefault, `{containers: [{name: di-container}]}`)
		config.SetFinalizers([]string{"test/last"})
		Expect(alone.Create(ctx, config)).To(Succeed())
		stop()

		By("changing it, which fails")
		Expect(alone.Patch(ctx, live.DeepCopy(), mergePatch(`{"spec":{"cleanPodPolicy":"None"}}`))).To(MatchError(ContainSubstring("failed calling webhook")))
		Expect(alone.Create(ctx, specs.Job("v2alpha1", metav1.NamespaceDefault, "new", v2Job))).To(MatchError(ContainSubstring("failed calling webhook")))

		Expect(alone.Patch(ctx, config.DeepCopy(), mergePatch(`{"spec":null}`))).To(MatchError(ContainSubstring("failed calling webhook")))

		By("writing labels, scale and status")
		Expect(alone.Patch(ctx, live, mergePatch(`{"metadata":{"labels":{"a":"b"}}}`))).To(Succeed())
		out, err = specs.Kubectl(ctx, environment.KubeConfig, "scale", "dijob/live", "--replicas=5")
		Expect(err).NotTo(HaveOccurred(), out)
		Expect(alone.Get(ctx, client.ObjectKeyFromObject(live), live)).To(Succeed())
		live.Object["status"] = content(`{phase: Running, replicas: 5}`)
		Expect(alone.Status().Update(ctx, live)).To(Succeed())

		By("deleting, and taking finalizers off as the garbage collector and controllers do")
		Expect(alone.Delete(ctx, live)).To(Succeed())
		Expect(alone.Get(ctx, client.ObjectKeyFromObject(live), live)).To(Satisfy(apierrors.IsNotFound))
		Expect(alone.Delete(ctx, released, client.PropagationPolicy(metav1.DeletePropagationForeground))).To(Succeed())
		Expect(alone.Patch(ctx, released, mergePatch(`{"metadata":{"finalizers":["test/last"],"uid":"`+string(released.GetUID())+`"}}`))).To(Succeed())
		released.SetFinalizers(nil)
		Expect(alone.Update(ctx, released)).To(Succeed())
		Expect(alone.Get(ctx, client.ObjectKeyFromObject(released), released)).To(Satisfy(apierrors.IsNotFound))
		Expect(alone.Delete(ctx, config)).To(Succeed())
		Expect(alone.Patch(ctx, config, mergePatch(`{"metadata":{"finalizers":null}}`))).To(Succeed())
		Expect(alone.Get(ctx, client.ObjectKeyFromObject(config), config)).To(Satisfy(apierrors.IsNotFound))
	})
})

var _ = Describe("A manifest that is moved from kubectl apply in v1alpha1 to server-side apply in v2alpha1", func() {
	const group = `group: g, `
	apply := func(ctx context.Context, version, namespace, group string, flags ...string) {
		GinkgoHelper()
		spec := group + `coordinator: {template: {spec: {containers: [{name: di-container}]}}}`
		if version == "v2alpha1" {
			spec = group + `lifecycle: CoordinatorLed, tasks: [{type: coordinator, name: coordinator, replicas: 1, template: {spec: {containers: [{name: di-container}]}}}]`
		}
		manifest := filepath.Join(GinkgoT().TempDir(), "job.yaml")
		Expect(os.WriteFile(manifest, []byte(`{apiVersion: diengine.opendilab.org/`+version+`, kind: DIJob, metadata: {name: j, namespace: `+namespace+`}, spec: {`+spec+`}}`), 0o600)).To(Succeed())
		out, err := specs.Kubectl(ctx, api.KubeConfig, append([]string{"apply", "-f", manifest}, flags...)...)
		Expect(err).NotTo(HaveOccurred(), out)
	}
	left := HaveKeyWithValue("group", "g")

	It("keeps what left it, if both change at once", func(ctx SpecContext) {
		namespace := specs.Namespace(ctx, c)
		apply(ctx, "v1alpha1", namespace, group)
		apply(ctx, "v2alpha1", namespace, "", "--server-side", "--force-conflicts")
		Expect(specs.GetJob(ctx, c, "v2alpha1", namespace, "j").Object["spec"]).To(left)
	})

	It("loses it, if the same is applied by the server first, in either version", func(ctx SpecContext) {
		namespace := specs.Namespace(ctx, c)
		apply(ctx, "v1alpha1", namespace, group)
		apply(ctx, "v1alpha1", namespace, group, "--server-side")
		apply(ctx, "v2alpha1", namespace, group, "--server-side")
		Expect(specs.GetJob(ctx, c, "v2alpha1", namespace, "j").Object["spec"]).To(left)
		apply(ctx, "v2alpha1", namespace, "", "--server-side")
		Expect(specs.GetJob(ctx, c, "v2alpha1", namespace, "j").Object["spec"]).NotTo(left)
	})
})

var _ = Describe("A job that v1alpha1 manages", func() {
	It("loses what its managers own where it is written while no webhook answers, and is mended as documented", func(ctx SpecContext) {
		environment := specs.Must(testkit.StartAPI(ctx))
		defer func() { Expect(environment.Stop()).To(Succeed()) }()
		apply := func(parts string, flags ...string) (string, error) {
			manifest := filepath.Join(GinkgoT().TempDir(), "job.yaml")
			Expect(os.WriteFile(manifest, []byte(`{apiVersion: diengine.opendilab.org/v1alpha1, kind: DIJob, metadata: {name: j, namespace: default}, spec: {`+
				parts+`coordinator: {template: {spec: {containers: [{name: di-container}]}}}}}`), 0o600)).To(Succeed())
			return specs.Kubectl(ctx, environment.KubeConfig, append([]string{"apply", "--server-side", "-f", manifest}, flags...)...)
		}
		succeed := func(out string, err error) { Expect(err).NotTo(HaveOccurred(), out) }
		succeed(specs.Kubectl(ctx, environment.KubeConfig, "apply", "-k", filepath.Join(testkit.Root(), "config", "webhook")))
		const collector = `collector: {template: {spec: {containers: [{name: di-container}]}}}, `
		stop := serveOn(ctx, environment)
		Eventually(func() error { _, err := apply(collector); return err }).Should(Succeed())
		stop()

		By("writing its status at v2alpha1, as the operator and di-server do")
		alone := specs.Must(client.New(environment.Config, client.Options{}))
		live := specs.Job("v2alpha1", metav1.NamespaceDefault, "j", "{}")
		Expect(alone.Status().Patch(ctx, live, mergePatch(`{"status":{"phase":"Running"}}`))).To(Succeed())
		version := specs.Must(discovery.NewDiscoveryClientForConfigOrDie(environment.Config).ServerVersion())
		if keeps := strings.TrimRight(version.Minor, "+") >= "37"; keeps {
			Expect(live.GetManagedFields()).NotTo(BeEmpty())
			return
		}
		Expect(live.GetManagedFields()).To(BeEmpty())

		By("applying what changes a field and leaves one out")
		defer serveOn(ctx, environment)()
		const changed = `cleanPodPolicy: None, `
		Eventually(func() string { out, _ := apply(changed); return out }).Should(ContainSubstring(`conflict with "before-first-apply"`))
		succeed(apply(changed, "--force-conflicts"))
		jsonpath := []string{"get", "dijobs.v1alpha1.diengine.opendilab.org", "j", "-o", "jsonpath={.spec}"}
		out, err := specs.Kubectl(ctx, environment.KubeConfig, jsonpath...)
		Expect(err).NotTo(HaveOccurred(), out)
		Expect(out).To(ContainSubstring(`"collector"`))

		By("taking that out once, after which applying works as before")
		succeed(specs.Kubectl(ctx, environment.KubeConfig, "patch", "dijobs.v1alpha1.diengine.opendilab.org", "j", "--type=merge", "-p", `{"spec":{"collector":null}}`))
		out, err = specs.Kubectl(ctx, environment.KubeConfig, jsonpath...)
		Expect(err).NotTo(HaveOccurred(), out)
		Expect(out).NotTo(ContainSubstring(`"collector"`))
		succeed(apply(changed + collector))
		succeed(apply(changed))
		out, err = specs.Kubectl(ctx, environment.KubeConfig, jsonpath...)
		Expect(err).NotTo(HaveOccurred(), out)
		Expect(out).NotTo(ContainSubstring(`"collector"`))
	})
})

// serveOn serves webhooks for an API server that only this process uses.
func serveOn(ctx context.Context, api *testkit.API) (stop func()) {
	GinkgoHelper()
	config := specs.Must(api.As(testkit.Webhook))
	listener := specs.Must((&net.ListenConfig{}).Listen(ctx, "tcp", "127.0.0.1:0"))
	return serve(ctx, webhook.Options{Config: config, URL: "https://" + listener.Addr().String(), Listener: listener})
}
