// Copyright The DI Orchestrator Authors.
// SPDX-License-Identifier: Apache-2.0

package rbac

import (
	"context"
	"net/http"
	"strings"
	"time"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"opendilab.org/di-orchestrator/apis/v2alpha1"
	"opendilab.org/di-orchestrator/internal/names"
	"opendilab.org/di-orchestrator/test/testkit"
	"opendilab.org/di-orchestrator/test/testkit/specs"
)

// others is a namespace that an installation does not watch.
const others = "others"

var _ = Describe("An installation that watches one namespace", func() {
	It("runs the jobs there, leaves those of others alone, and asks for nothing that it may not", func(ctx SpecContext) {
		p := newPlane(ctx)
		Expect(p.api.Create(ctx, &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: others}})).To(Succeed())
		objects := chart(ctx, quick, "configuration.common.watchNamespaces={"+jobs+"}", "aggregatorConfig.template.spec.containers[0].name=di-container", "aggregatorConfig.template.spec.containers[0].image=di")
		p.installRights(ctx, objects)
		grants, err := readGrants(objects)
		Expect(err).NotTo(HaveOccurred())
		for _, g := range grants {
			Expect(g.namespace == "" && strings.HasPrefix(g.resource, "pods")).To(BeFalse(), g.String())
		}
		p.waitGranted(ctx, grants)
		newNode(ctx, p.api, "node-1")
		defer runPods(ctx, p.api)()
		p.run(ctx, objects, "install-crds")
		p.install(ctx, objects, "ConfigMap", "Service", "MutatingWebhookConfiguration", "ValidatingWebhookConfiguration")
		p.serveDefinitions(testkit.GangDefinitions())
		s := &story{plane: p, objects: objects}
		stop := s.startOperator(ctx)
		server := s.startServer(ctx)
		before := s.submitElsewhere(ctx)

		s.trainWithCoordinator(ctx)
		s.trainWithWorkers(ctx)
		s.trainProbed(ctx)
		s.placePreemptible(ctx)
		s.submit(ctx, `{apiVersion: diengine.opendilab.org/v2alpha1, kind: DIJob, metadata: {name: gang},
  spec: {scheduling: {schedulerName: volcano, gang: {}}, tasks: [{type: none, name: work, replicas: 1, template: `+template+`}]}}`)
		s.expectPods(ctx, "gang", 1)
		s.waitInQueue(ctx)

		By("leaving the job of the other namespace alone, which di-server does not know")
		Expect(s.elsewhere(ctx).ResourceVersion).To(Equal(before.ResourceVersion))
		pods := specs.List[corev1.PodList](ctx, p.api, client.InNamespace(others))
		Expect(pods.Items).To(BeEmpty())
		Expect(p.api.Create(ctx, &rbacv1.RoleBinding{
			ObjectMeta: metav1.ObjectMeta{Namespace: others, Name: "caller"},
			RoleRef:    rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "ClusterRole", Name: "di-orchestrator-view"},
			Subjects:   []rbacv1.Subject{{Kind: "ServiceAccount", Namespace: jobs, Name: "default"}},
		})).To(Succeed())
		asked := call{
			method: http.MethodGet, path: "/v1alpha1/replicas?namespace=" + others + "&coordinator=foreign-coordinator",
			token: p.token(ctx, jobs, "default", nil, names.ServerAudience),
		}
		status, answer := asked.answer(ctx, s.base)
		Expect(status).To(Equal(http.StatusNotFound), answer)

		for _, name := range []string{"placed", "gang"} {
			Expect(p.api.Delete(ctx, &v2alpha1.DIJob{ObjectMeta: metav1.ObjectMeta{Namespace: jobs, Name: name}})).To(Succeed())
			s.expectGone(ctx, name)
		}
		By("storing all jobs in the other version, also those that it does not run")
		s.annotate(ctx, "storage-version", "v1alpha1")
		Eventually(func(g Gomega) {
			stored, _, err := unstructured.NestedStringSlice(s.definition(ctx, g, "dijobs").Object, "status", "storedVersions")
			g.Expect(err).NotTo(HaveOccurred())
			g.Expect(stored).To(Equal([]string{"v1alpha1"}), s.migrationRecord(ctx, g))
		}).Should(Succeed())
		server.stop()
		stop()
		p.stop()
		uses := specs.Must(readUses(p.auditLog))
		Expect(strings.Join(findings(nil, uses, nil, system), "\n")).To(BeEmpty())
	}, SpecTimeout(15*time.Minute))
})

// submitElsewhere creates a job in the namespace that is not watched. The webhooks serve all namespaces.
func (s *story) submitElsewhere(ctx context.Context) *v2alpha1.DIJob {
	GinkgoHelper()
	Expect(s.api.Create(ctx, specs.Job("v1alpha1", others, "foreign", `spec: {coordinator: {template: `+template+`}}`))).To(Succeed())
	return s.elsewhere(ctx)
}

func (s *story) elsewhere(ctx context.Context) *v2alpha1.DIJob {
	GinkgoHelper()
	return specs.Get[v2alpha1.DIJob](ctx, s.api, others, "foreign")
}
