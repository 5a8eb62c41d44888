// Copyright The DI Orchestrator Authors.
// SPDX-License-Identifier: Apache-2.0

package dijob

import (
	"context"
	"fmt"
	"time"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"

	"opendilab.org/di-orchestrator/allocation"
	"opendilab.org/di-orchestrator/allocation/goodput"
	"opendilab.org/di-orchestrator/apis/v2alpha1"
	allocatorcontroller "opendilab.org/di-orchestrator/controllers/allocator"
	"opendilab.org/di-orchestrator/internal/configfile"
)

var _ = Describe("A round of the allocator with tenants", func() {
	DescribeTable("lends an idle share, and gives it back", func(ctx SpecContext, policy allocation.Policy) {
		r := newSpace(ctx).newTenantRounds(ctx, policy)
		for i := range 8 {
			r.submitGPU(ctx, r.also, fmt.Sprintf("borrower-%d", i), 1)
		}
		r.next(ctx, 0)
		Expect(r.gpus(ctx)).To(Equal(map[string]int{r.also: 8}))

		By("jobs of the lender")
		for i := range 8 {
			r.submitGPU(ctx, r.name, fmt.Sprintf("lender-%d", i), 1)
		}
		r.next(ctx, time.Minute)
		Expect(r.gpus(ctx)).To(Equal(map[string]int{r.name: 6, r.also: 2}))
		for range 3 {
			r.next(ctx, time.Minute)
			Expect(r.gpus(ctx)).To(Equal(map[string]int{r.name: 6, r.also: 2}), "nothing changes, so no job moves")
		}
		Expect(r.told.notes[v2alpha1.ReasonGaveBack]).To(And(HaveLen(6), HaveEach(HavePrefix(
			"the job gives back 1 nvidia.com/gpu to tenant vision, which tenant robots had borrowed: "))))
		Expect(r.messages(ctx, r.also)).To(ContainElement(HaveSuffix("; tenant robots holds 2 of its 2 nvidia.com/gpu")))
		Expect(samples(r.registry, "allocator_tenant")).To(Equal(map[string]float64{
			"allocator_tenant_resources{amount=entitled,resource=nvidia.com/gpu,tenant=vision}": 6,
			"allocator_tenant_resources{amount=held,resource=nvidia.com/gpu,tenant=vision}":     6,
			"allocator_tenant_resources{amount=wanted,resource=nvidia.com/gpu,tenant=vision}":   8,
			"allocator_tenant_resources{amount=entitled,resource=nvidia.com/gpu,tenant=robots}": 2,
			"allocator_tenant_resources{amount=held,resource=nvidia.com/gpu,tenant=robots}":     2,
			"allocator_tenant_resources{amount=wanted,resource=nvidia.com/gpu,tenant=robots}":   8,
		}))

		By("fewer jobs of the lender")
		for i := range 8 {
			if job := r.find(ctx, r.name, fmt.Sprintf("lender-%d", i)); i >= 4 || len(job.Status.Allocation) == 0 {
				Expect(shared.api.Delete(ctx, job)).To(Succeed())
			}
		}
		r.next(ctx, time.Minute)
		held := r.gpus(ctx)
		Expect(held[r.also]).To(Equal(8 - held[r.name]))
		r.next(ctx, time.Minute)
		Expect(r.messages(ctx, r.also)).To(ContainElement(HaveSuffix(fmt.Sprintf(
			"; tenant robots holds %d of its 2 nvidia.com/gpu, %d of them lent by tenant vision", held[r.also], held[r.also]-2))))
	},
		Entry("with policy fit", allocatorcontroller.Fit()),
		Entry("with policy goodput", goodput.New(goodput.DefaultSettings())),
	)

	It("shrinks a job before it stops one", func(ctx SpecContext) {
		r := newSpace(ctx).newTenantRounds(ctx, allocatorcontroller.Fit())
		r.submitGPU(ctx, r.also, "borrower", 8)
		r.next(ctx, 0)
		r.submitGPU(ctx, r.name, "lender", 8)
		r.next(ctx, time.Minute)
		Expect(r.gpus(ctx)).To(Equal(map[string]int{r.name: 6, r.also: 2}))
		Expect(r.find(ctx, r.also, "borrower")).To(condition(v2alpha1.ConditionAllocated, corev1.ConditionTrue, v2alpha1.ReasonPartiallyPlaced,
			Equal("2 replicas on 1 node; 8 of task collector are desired; tenant robots holds 2 of its 2 nvidia.com/gpu")))
		Expect(r.told.notes[v2alpha1.ReasonGaveBack]).To(HaveExactElements(HavePrefix("the job gives back 6 nvidia.com/gpu to tenant vision")))
	})
})

// newTenantRounds returns an allocator on a node of eight GPUs, which two tenants share three to one: that of the space, and that
// of another namespace.
func (s *space) newTenantRounds(ctx context.Context, policy allocation.Policy) *rounds {
	r := s.newRounds(interceptor.Funcs{})
	r.policy, r.also = policy, newSpace(ctx).name
	config, err := configfile.Parse(fmt.Appendf(nil, `apiVersion: config.diengine.opendilab.org/v1alpha1
kind: Configuration
operator:
  allocator:
    tenants:
    - {name: vision, namespaces: [%s], weight: 3}
    - {name: robots, namespaces: [%s]}
`, r.name, r.also))
	Expect(err).NotTo(HaveOccurred())
	r.tenants = allocatorcontroller.Tenants(config.Operator.Allocator.Tenants)
	r.start(interceptor.Funcs{})
	node := r.newNode(ctx, "gpus", 64)
	node.Status.Allocatable["nvidia.com/gpu"] = resource.MustParse("8")
	Expect(shared.api.Status().Update(ctx, node)).To(Succeed())
	return r
}

// submitGPU submits a job of up to so many replicas of a GPU each in a namespace.
func (r *rounds) submitGPU(ctx context.Context, namespace, name string, most int32) {
	job := &v2alpha1.DIJob{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: name}, Spec: v2alpha1.DIJobSpec{
		Preemptible: true, Elastic: &v2alpha1.Elastic{MinReplicas: ptr.To(int32(1)), MaxReplicas: &most},
		Tasks: []v2alpha1.Task{{Type: v2alpha1.TaskTypeCollector}},
	}}
	job.Spec.Tasks[0].Template.Raw = fmt.Appendf(nil, `{"spec":{"nodeSelector":{"space":%q},
		"containers":[{"name":"di-container","image":"image","resources":{"limits":{"nvidia.com/gpu":"1"}}}]}}`, r.name)
	Expect(shared.api.Create(ctx, job)).To(Succeed())
	DeferCleanup(func(ctx context.Context) {
		Expect(client.IgnoreNotFound(shared.api.Delete(ctx, job))).To(Succeed())
	})
}

func (r *rounds) find(ctx context.Context, namespace, name string) *v2alpha1.DIJob {
	job := &v2alpha1.DIJob{}
	Expect(shared.api.Get(ctx, client.ObjectKey{Namespace: namespace, Name: name}, job)).To(Succeed())
	return job
}

// gpus returns how many GPUs the jobs of each namespace have.
func (r *rounds) gpus(ctx context.Context) map[string]int {
	held := map[string]int{}
	for _, namespace := range []string{r.name, r.also} {
		var jobs v2alpha1.DIJobList
		Expect(shared.api.List(ctx, &jobs, client.InNamespace(namespace))).To(Succeed())
		for i := range jobs.Items {
			if count := len(jobs.Items[i].Status.Allocation); count > 0 {
				held[namespace] += count
			}
		}
	}
	return held
}

// messages returns the messages of condition Allocated of the jobs of a namespace.
func (r *rounds) messages(ctx context.Context, namespace string) []string {
	var jobs v2alpha1.DIJobList
	Expect(shared.api.List(ctx, &jobs, client.InNamespace(namespace))).To(Succeed())
	var all []string
	for i := range jobs.Items {
		for _, condition := range jobs.Items[i].Status.Conditions {
			if condition.Type == v2alpha1.ConditionAllocated {
				all = append(all, condition.Message)
			}
		}
	}
	return all
}
