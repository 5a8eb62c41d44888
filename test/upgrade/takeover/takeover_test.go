// Copyright The DI Orchestrator Authors.
// SPDX-License-Identifier: Apache-2.0

package takeover

import (
	"context"
	"slices"
	"strings"
	"time"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"opendilab.org/di-orchestrator/test/testkit/specs"
	"opendilab.org/di-orchestrator/test/upgrade/legacy"
)

// specTimeout exceeds the duration of a spec on a slow machine.
const specTimeout = 40 * time.Minute

var _ = Describe("Taking v0.2.2 over", func() {
	It("loses no field, deletes no pod and fails no read, with 200 jobs and while cert-manager writes its bundle", func(ctx SpecContext) {
		p := newPlane(ctx)
		release := legacy.V022()
		left := specs.Must(release.Install(ctx, p.api, jobs, 200))
		p.runDeployments(ctx)
		injected := p.injectBundles(ctx)
		before := p.read(ctx, "v1alpha1")
		polling := []*poller{p.poll(ctx, "v1alpha1", left[3].Name), p.poll(ctx, "v2alpha1", left[3].Name)}

		By("installing, which nobody converts for yet")
		began := time.Now()
		said := p.install(ctx)
		Expect(said).To(And(ContainSubstring("left as v0.2.2 made it"), ContainSubstring("next: start the webhooks and the operator")))
		Expect(p.definition(ctx, dijobs).Spec.Versions).To(HaveLen(1))
		Expect(p.definition(ctx, dijobs).Annotations).NotTo(HaveKey(inject))

		By("somebody applying the earlier manifest once more")
		Expect(p.api.Patch(ctx, p.definition(ctx, dijobs), client.RawPatch(types.MergePatchType,
			[]byte(`{"metadata":{"annotations":{"`+inject+`":"di-system/di-serving-cert"}}}`)))).To(Succeed())

		By("starting the operator, which waits for our di-server before it does anything to jobs")
		p.start(ctx)
		p.awaitStep(ctx, "AwaitServer")
		definition := p.definition(ctx, dijobs)
		Expect(definition.Annotations).NotTo(HaveKey(inject))
		Expect(definition.Spec.Conversion.Webhook.ClientConfig.CABundle).NotTo(Equal(injected))
		Expect(definition.Status.StoredVersions).To(Equal([]string{"v1alpha1"}))
		Expect(p.read(ctx, "v1alpha1")).To(Equal(before), "nothing is changed by what a definition knows more")
		Expect(p.read(ctx, "v2alpha1")).To(HaveLen(len(before)))
		p.expectReplicas(ctx, map[string]int32{"di-operator": 0, "di-webhook": 0, "di-server": 1})

		p.serve(ctx)
		p.awaitStep(ctx, "Done")
		GinkgoWriter.Printf("%d jobs are taken over %s after the installation began\n", len(left), time.Since(began).Round(time.Millisecond))
		p.expectTakenOver(ctx)
		p.awaitAdopted(ctx)
		expectKept(before, p.read(ctx, "v1alpha1"))
		p.expectAlive(ctx, left)
		Expect(p.tooEarly()).To(BeEmpty())
		for _, one := range polling {
			one.expectNoFailure()
		}
	}, SpecTimeout(specTimeout))
})

var _ = DescribeTable("Taking a release of workers over goes on wherever the operator was killed, and restarts nothing that runs",
	func(ctx SpecContext, release legacy.Release) {
		p := newPlane(ctx)
		left := specs.Must(release.Install(ctx, p.api, jobs, 10))
		left = going(left)
		p.runDeployments(ctx)
		before := p.read(ctx, "v2alpha1")
		polling := p.poll(ctx, "v2alpha1", left[0].Name)
		p.install(ctx)
		p.serve(ctx)

		p.killAfterEachWrite(ctx)
		p.expectTakenOver(ctx)
		p.awaitRanked(ctx, left)
		expectKept(before, p.read(ctx, "v2alpha1"))
		p.expectAlive(ctx, left)
		p.expectServed(ctx, left)
		Expect(p.tooEarly()).To(BeEmpty())
		polling.expectNoFailure()
	},
	Entry("v1.1.1", legacy.V111(), SpecTimeout(specTimeout)),
	Entry("v1.1.3", legacy.V113(), SpecTimeout(specTimeout)),
)

// going returns the jobs whose pods are all alive and keep running.
func going(left []legacy.Job) []legacy.Job {
	GinkgoHelper()
	kept := slices.DeleteFunc(left, func(job legacy.Job) bool {
		return job.State != "running" && job.State != "alone" && job.State != "starting"
	})
	Expect(kept).To(HaveLen(3))
	return kept
}

var _ = Describe("A fresh installation", func() {
	It("acts at once, and an operator that starts later looks for no earlier release", func(ctx SpecContext) {
		p := newPlane(ctx)
		for _, name := range []string{system, jobs} {
			Expect(p.api.Create(ctx, &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: name}})).To(Succeed())
		}
		Expect(strings.Count(p.install(ctx), "created")).To(Equal(4))
		first := p.start(ctx)
		p.awaitStep(ctx, "Done")
		Expect(first.kill()).To(Succeed())
		looks := p.looks.Load()
		Expect(looks).To(BeNumerically(">", 0))

		p.start(ctx)
		submitted := job("v2alpha1")
		submitted.SetNamespace(jobs)
		submitted.SetName("new")
		submitted.Object["spec"] = map[string]any{"tasks": []any{map[string]any{"type": "none", "name": "work", "template": map[string]any{
			"spec": map[string]any{"containers": []any{map[string]any{"name": "main", "image": "main"}}},
		}}}}
		Eventually(func() error { return client.IgnoreAlreadyExists(p.api.Create(ctx, submitted.DeepCopy())) }).WithContext(ctx).Should(Succeed())
		Eventually(func() error {
			return p.api.Get(ctx, client.ObjectKey{Namespace: jobs, Name: "new-work-0"}, &corev1.Pod{})
		}).WithContext(ctx).Should(Succeed())
		Expect(p.looks.Load()).To(Equal(looks))
	}, SpecTimeout(specTimeout))
})

// killAfterEachWrite runs operators one after the other, each until its first write of the
// takeover, until one has nothing left to do. That one keeps running. It returns the writes.
func (p *plane) killAfterEachWrite(ctx context.Context) []string {
	GinkgoHelper()
	var deaths []string
	for {
		var running *programs
		started := make(chan struct{})
		p.arm(func(string) {
			<-started
			_ = running.kill()
		})
		running = p.start(ctx)
		close(started)
		Eventually(ctx, func() bool { return p.killedAfter() != "" || p.isDone(ctx) }).Should(BeTrue())
		if p.isDone(ctx) {
			if killed := p.arm(nil) != ""; killed {
				p.start(ctx)
			}
			return deaths
		}
		Eventually(ctx, running.webhooks.Ended()).Should(BeClosed())
		Eventually(ctx, running.operator.Ended()).Should(BeClosed())
		deaths = append(deaths, p.killedAfter())
		Expect(len(deaths)).To(BeNumerically("<", 60), "%v", deaths)
	}
}

func (p *plane) expectReplicas(ctx context.Context, wanted map[string]int32) {
	GinkgoHelper()
	for name, replicas := range wanted {
		deployment := specs.Get[appsv1.Deployment](ctx, p.api, system, name)
		Expect(*deployment.Spec.Replicas).To(Equal(replicas), name)
	}
}

// expectTakenOver expects that no part of the earlier release acts and that stored objects remain.
func (p *plane) expectTakenOver(ctx context.Context) {
	GinkgoHelper()
	for _, name := range []string{"di-operator", "di-server", "di-webhook"} {
		deployment := &appsv1.Deployment{Spec: appsv1.DeploymentSpec{Replicas: ptr.To[int32](0)}}
		Expect(client.IgnoreNotFound(p.api.Get(ctx, client.ObjectKey{Namespace: system, Name: name}, deployment))).To(Succeed())
		Expect(*deployment.Spec.Replicas).To(BeZero(), name)
	}
	for _, configuration := range []client.Object{&admissionregistrationv1.MutatingWebhookConfiguration{}, &admissionregistrationv1.ValidatingWebhookConfiguration{}} {
		for _, name := range []string{"di-mutating-webhook-configuration", "di-validating-webhook-configuration"} {
			Expect(p.api.Get(ctx, client.ObjectKey{Name: name}, configuration)).To(Satisfy(apierrors.IsNotFound))
		}
	}
	Expect(p.definition(ctx, dijobs).Spec.Versions).To(HaveLen(2))
}

// awaitAdopted waits until each pod of v0.2.2 refers to its job in v2alpha1.
func (p *plane) awaitAdopted(ctx context.Context) {
	GinkgoHelper()
	Eventually(func(g Gomega) {
		var pods corev1.PodList
		g.Expect(p.api.List(ctx, &pods, client.InNamespace(jobs))).To(Succeed())
		for i := range pods.Items {
			g.Expect(pods.Items[i].OwnerReferences[0].APIVersion).To(Equal("diengine.opendilab.org/v2alpha1"), pods.Items[i].Name)
		}
	}).WithContext(ctx).Should(Succeed())
}

// awaitRanked waits until each pod of worker-led jobs has labels for its task and its attempt. Pods
// of v1.1.1 did not have them.
func (p *plane) awaitRanked(ctx context.Context, left []legacy.Job) {
	GinkgoHelper()
	Eventually(func(g Gomega) {
		for i := range left {
			for name := range left[i].Pods {
				pod := &corev1.Pod{}
				g.Expect(p.api.Get(ctx, client.ObjectKey{Namespace: jobs, Name: name}, pod)).To(Succeed())
				g.Expect(pod.Labels).To(HaveKey("diengine/task-name"), name)
				g.Expect(pod.Annotations).To(HaveKeyWithValue("diengine/attempt", "0"), name)
			}
		}
	}).WithContext(ctx).Should(Succeed())
}

// expectServed expects that each service of the jobs is the original one, under the name that its
// pods have in their environment.
func (p *plane) expectServed(ctx context.Context, left []legacy.Job) {
	GinkgoHelper()
	for i := range left {
		Expect(left[i].Services).NotTo(BeEmpty(), left[i].State)
		for name, uid := range left[i].Services {
			service := &corev1.Service{}
			Expect(p.api.Get(ctx, client.ObjectKey{Namespace: jobs, Name: name}, service)).To(Succeed(), name)
			Expect(service.UID).To(Equal(uid), name)
			Expect(service.DeletionTimestamp).To(BeNil(), name)
		}
	}
}
