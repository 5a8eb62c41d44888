// Copyright The DI Orchestrator Authors.
// SPDX-License-Identifier: Apache-2.0

package webhook_test

import (
	"context"
	"path/filepath"
	"strings"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/client-go/rest"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"opendilab.org/di-orchestrator/internal/names"
	"opendilab.org/di-orchestrator/test/testkit"
	"opendilab.org/di-orchestrator/test/testkit/specs"
)

// unmounted returns a job of a version with a mount that has no volume.
func unmounted(version, namespace string) *unstructured.Unstructured {
	const template = `{template: {spec: {containers: [{name: a, image: di, volumeMounts: [{name: data, mountPath: /data}]}]}}}`
	if version == "v1alpha1" {
		return specs.Job(version, namespace, "tried", "spec: {coordinator: "+template+"}")
	}
	return specs.Job(version, namespace, "tried", "spec: {tasks: [{type: learner, "+template[1:]+"]}")
}

var _ = Describe("A dry run of a job", func() {
	const refused = `.template.spec.containers[0].volumeMounts[0].name: Not found: "data"`

	It("warns of what its pods would be refused for, by the fields of its version, and creates nothing", func(ctx SpecContext) {
		namespace := specs.Namespace(ctx, c)
		listener, heard := listening(api.Config)
		for version, at := range map[string]string{"v1alpha1": "spec.coordinator", "v2alpha1": "spec.tasks[0]"} {
			// The API server learns of webhooks by watches.
			Eventually(func(g Gomega) {
				g.Expect(listener.Create(ctx, unmounted(version, namespace), client.DryRunAll)).To(Succeed())
				g.Expect(heard.take()).To(ContainElement("pods would be refused: " + at + refused))
			}).WithContext(ctx).Should(Succeed())
		}
		pods := specs.List[corev1.PodList](ctx, c, client.InNamespace(namespace))
		Expect(pods.Items).To(BeEmpty())

		By("leaving the real create, a client that wants no check, and a good job alone")
		good := specs.Job("v2alpha1", namespace, "good", "spec: {tasks: [{type: learner, template: {spec: {containers: [{name: a, image: di}]}}}]}")
		Expect(listener.Create(ctx, good, client.DryRunAll)).To(Succeed())
		Expect(listener.Create(ctx, unmounted("v2alpha1", namespace), client.DryRunAll, client.FieldOwner(names.NoPodCheck))).To(Succeed())
		Expect(listener.Create(ctx, unmounted("v2alpha1", namespace))).To(Succeed())
		Expect(heard.take()).To(BeEmpty())
	})

	It("checks a bounded number of tasks, and says so", func(ctx SpecContext) {
		namespace := specs.Namespace(ctx, c)
		listener, heard := listening(api.Config)
		var tasks strings.Builder
		for _, name := range []string{"a", "b", "c", "d", "e", "f", "g", "h", "i", "j"} {
			tasks.WriteString(`{type: none, name: ` + name + `, template: {spec: {containers: [{name: a, image: di}]}}},`)
		}
		Expect(listener.Create(ctx, specs.Job("v2alpha1", namespace, "many", "spec: {tasks: ["+tasks.String()+"]}"), client.DryRunAll)).To(Succeed())
		Expect(heard.take()).To(ConsistOf("the pods of 2 more tasks are not checked"))
	})

	It("tells nothing to who may not create pods", func(ctx SpecContext) {
		namespace := specs.Namespace(ctx, c)
		kim, heard := listeningAs("kim")
		allow(ctx, namespace, "kim", "diengine.opendilab.org", "dijobs")
		Eventually(func() error { return kim.Create(ctx, unmounted("v2alpha1", namespace), client.DryRunAll) }).WithContext(ctx).Should(Succeed())
		Expect(heard.take()).To(BeEmpty())
		allow(ctx, namespace, "kim", "", "pods")
		Eventually(func(g Gomega) {
			g.Expect(kim.Create(ctx, unmounted("v2alpha1", namespace), client.DryRunAll)).To(Succeed())
			g.Expect(heard.take()).To(ContainElement("pods would be refused: spec.tasks[0]" + refused))
		}).WithContext(ctx).Should(Succeed())
	})
})

var _ = Describe("The policy of the webhooks' pods", func() {
	It("lets their service account create pods in dry run only", func(ctx SpecContext) {
		namespace := specs.Namespace(ctx, c)
		for _, file := range []string{"webhook.yaml", "webhook-binding.yaml"} {
			out, err := specs.Kubectl(ctx, api.KubeConfig, "apply", "-f", filepath.Join(testkit.Root(), "config", "policy", file))
			Expect(err).NotTo(HaveOccurred(), out)
		}
		account := testkit.AccountName(testkit.Webhook)
		allow(ctx, namespace, account, "", "pods")
		webhooks, _ := listeningAs(account)
		create := func(options ...client.CreateOption) error {
			return webhooks.Create(ctx, &corev1.Pod{
				ObjectMeta: metav1.ObjectMeta{Namespace: namespace, GenerateName: "pod-"},
				Spec:       corev1.PodSpec{Containers: []corev1.Container{{Name: "a", Image: "di"}}},
			}, options...)
		}
		Eventually(create).WithContext(ctx).Should(MatchError(ContainSubstring("the webhooks of DI Orchestrator create pods in dry run only")))
		Expect(create(client.DryRunAll)).To(Succeed())
	})
})

// listeningAs returns a client of a user, and the warnings that it gets.
func listeningAs(user string) (client.Client, *heard) {
	GinkgoHelper()
	warnings := &heard{}
	config := rest.CopyConfig(api.Config)
	config.WarningHandler, config.Impersonate.UserName = warnings, user
	listener := specs.Must(client.New(config, client.Options{}))
	return listener, warnings
}

// allow grants a user to create objects of a namespace.
func allow(ctx context.Context, namespace, user, group, resource string) {
	GinkgoHelper()
	role := &rbacv1.Role{
		ObjectMeta: metav1.ObjectMeta{Namespace: namespace, GenerateName: "creator-"},
		Rules:      []rbacv1.PolicyRule{{APIGroups: []string{group}, Resources: []string{resource}, Verbs: []string{"create"}}},
	}
	Expect(c.Create(ctx, role)).To(Succeed())
	Expect(c.Create(ctx, &rbacv1.RoleBinding{
		ObjectMeta: metav1.ObjectMeta{Namespace: namespace, GenerateName: "creator-"},
		RoleRef:    rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "Role", Name: role.Name},
		Subjects:   []rbacv1.Subject{{APIGroup: rbacv1.GroupName, Kind: rbacv1.UserKind, Name: user}},
	})).To(Succeed())
}
