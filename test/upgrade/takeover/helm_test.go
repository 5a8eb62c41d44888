// Copyright The DI Orchestrator Authors.
// SPDX-License-Identifier: Apache-2.0

package takeover

import (
	"context"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"opendilab.org/di-orchestrator/test/testkit/specs"
	"opendilab.org/di-orchestrator/test/upgrade/legacy"
)

var _ = Describe("Helm installs over the objects that the manifest of v0.2.2 has left, and they are taken over", func() {
	It("by Helm 4", func(ctx SpecContext) {
		takeOverByHelm(ctx, "HELM", "--force-conflicts")
	}, SpecTimeout(specTimeout))
	It("by Helm 3, and given back", func(ctx SpecContext) {
		takeOverByHelm(ctx, "HELM3").giveBack(ctx)
	}, SpecTimeout(specTimeout))
})

// takenOver is an installation of v0.2.2 that was taken over.
type takenOver struct {
	*machine
	release legacy.Release
	// left are the jobs of the earlier release, before is their previous status, and kept are the
	// definitions.
	left   []legacy.Job
	before map[string]map[string]any
	kept   map[string]types.UID
}

func takeOverByHelm(ctx context.Context, key string, more ...string) *takenOver {
	GinkgoHelper()
	p := newPlane(ctx)
	release := legacy.V022()
	left := specs.Must(release.Install(ctx, p.api, jobs, 10))
	p.runDeployments(ctx)
	before, service, kept := p.read(ctx, "v1alpha1"), p.service(ctx), p.uids(ctx)
	polling := p.poll(ctx, "v1alpha1", left[3].Name)

	m := newMachine(ctx, p)
	m.mustHelm(ctx, key, append(m.release("install", "--take-ownership"), more...)...)
	p.awaitStep(ctx, "Done")
	p.expectTakenOver(ctx)
	p.awaitAdopted(ctx)
	p.expectSameService(ctx, service)
	p.expectSameDefinitions(ctx, kept)
	Expect(m.deployments(ctx)).To(ContainElements("di-operator", "di-server", "di-webhook"), "they are for people to delete")
	expectKept(before, p.read(ctx, "v1alpha1"))
	p.expectAlive(ctx, left)
	Expect(p.tooEarly()).To(BeEmpty())
	polling.expectNoFailure()
	return &takenOver{m, release, left, before, kept}
}

var _ = DescribeTable("Helm upgrades its release of v1.1.3, which has the definition as an object of its own, and no job is lost",
	func(ctx SpecContext, key string) {
		p := newPlane(ctx)
		release := legacy.V113()
		Expect(p.api.Create(ctx, &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: system}})).To(Succeed())
		m := newMachine(ctx, p)
		m.mustHelm(ctx, "HELM3", "install", "di-orchestrator", earlierChart(release, true))
		left := specs.Must(release.Jobs(ctx, p.api, jobs, 10))
		left = going(left)
		// Its di-server does not end before its grace period.
		p.runUntilEnd(ctx, earlierGrace)
		watching := p.watchEndpoints(ctx)
		before, service, kept := p.read(ctx, "v2alpha1"), p.service(ctx), p.uids(ctx)
		polling := p.poll(ctx, "v2alpha1", left[0].Name)

		By("an operator of an earlier release running elsewhere")
		elsewhere := p.runElsewhere(ctx)
		generation := p.definition(ctx, dijobs).Generation
		output, err := m.helm(ctx, key, m.release("upgrade", "--reset-values")...)
		Expect(err).To(HaveOccurred(), output)
		Expect(m.log("preflight")).To(ContainSubstring("deployment elsewhere/rl: runs mirror/rl:7 with 1 replica, and the takeover does not stop it"))
		Expect(m.log("install-crds")).To(BeEmpty())
		Expect(p.definition(ctx, dijobs).Generation).To(Equal(generation))
		Expect(m.deployments(ctx)).To(Equal([]string{"di-operator", "di-server"}))
		p.expectReplicas(ctx, map[string]int32{"di-operator": 1, "di-server": 1})

		By("scaling that to zero, as it says")
		Expect(p.api.Patch(ctx, elsewhere, client.RawPatch(types.MergePatchType, []byte(`{"spec":{"replicas":0}}`)))).To(Succeed())
		m.mustHelm(ctx, key, m.release("upgrade", "--reset-values")...)
		p.awaitStep(ctx, "Done")
		Expect(m.deployments(ctx)).To(Equal([]string{"di-orchestrator-operator", "di-orchestrator-server", "di-orchestrator-webhook"}), "Helm deletes what the chart has no more")
		p.expectSameDefinitions(ctx, kept)
		p.expectSameService(ctx, service)
		p.awaitRanked(ctx, left)
		expectKept(before, p.read(ctx, "v2alpha1"))
		Expect(p.read(ctx, "v1alpha1")).To(HaveLen(len(before)))
		p.expectAlive(ctx, left)
		p.expectServed(ctx, left)
		Expect(p.tooEarly()).To(BeEmpty())
		polling.expectNoFailure()
		watching.expectOurs()
	},
	Entry("by Helm 3", "HELM3", SpecTimeout(specTimeout)),
	Entry("by Helm 4", "HELM", SpecTimeout(specTimeout)),
)

// service returns the Service di-server.
func (p *plane) service(ctx context.Context) *corev1.Service {
	GinkgoHelper()
	return specs.Get[corev1.Service](ctx, p.api, system, "di-server")
}

// expectSameService expects that clients reach di-server, old pods and new ones, at the same
// address.
func (p *plane) expectSameService(ctx context.Context, before *corev1.Service) {
	GinkgoHelper()
	now := p.service(ctx)
	Expect(now.UID).To(Equal(before.UID))
	Expect(now.Spec.ClusterIP).To(Equal(before.Spec.ClusterIP))
	Expect(now.Spec.Selector).To(Equal(before.Spec.Selector))
	Expect(now.Spec.Ports).To(ContainElements(HaveField("Port", int32(8080)), HaveField("Port", int32(8081))))
}

// uids returns the UIDs of the definitions.
func (p *plane) uids(ctx context.Context) map[string]types.UID {
	GinkgoHelper()
	found := specs.List[apiextensionsv1.CustomResourceDefinitionList](ctx, p.api)
	uids := map[string]types.UID{}
	for i := range found.Items {
		Expect(found.Items[i].DeletionTimestamp).To(BeNil())
		uids[found.Items[i].Name] = found.Items[i].UID
	}
	return uids
}

// expectSameDefinitions expects that no definition was deleted, which would delete the objects of
// its kind.
func (p *plane) expectSameDefinitions(ctx context.Context, before map[string]types.UID) {
	GinkgoHelper()
	now := p.uids(ctx)
	for name, uid := range before {
		Expect(now).To(HaveKeyWithValue(name, uid))
	}
}

// runElsewhere creates an operator of v1.1 with another name in another namespace.
func (p *plane) runElsewhere(ctx context.Context) *appsv1.Deployment {
	GinkgoHelper()
	Expect(p.api.Create(ctx, &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: "elsewhere"}})).To(Succeed())
	labels := map[string]string{"control-plane": "rl"}
	made := &appsv1.Deployment{
		ObjectMeta: metav1.ObjectMeta{Namespace: "elsewhere", Name: "rl", Labels: labels},
		Spec: appsv1.DeploymentSpec{Selector: &metav1.LabelSelector{MatchLabels: labels}, Template: corev1.PodTemplateSpec{
			ObjectMeta: metav1.ObjectMeta{Labels: labels},
			Spec:       corev1.PodSpec{Containers: []corev1.Container{{Name: "manager", Image: "mirror/rl:7", Command: []string{"/di-orchestrator", "operator"}}}},
		}},
	}
	Expect(p.api.Create(ctx, made)).To(Succeed())
	return made
}
