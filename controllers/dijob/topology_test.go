// Copyright The DI Orchestrator Authors.
// SPDX-License-Identifier: Apache-2.0

package dijob

import (
	"fmt"
	"slices"
	"time"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"

	"opendilab.org/di-orchestrator/allocation"
	"opendilab.org/di-orchestrator/allocation/goodput"
	"opendilab.org/di-orchestrator/apis/v2alpha1"
	allocatorcontroller "opendilab.org/di-orchestrator/controllers/allocator"
	"opendilab.org/di-orchestrator/internal/configfile"
)

// rackLabel names the rack of a node.
const rackLabel = "example.com/rack"

var _ = Describe("A round of the allocator on nodes of several racks", func() {
	DescribeTable("places a job of two nodes in the rack that holds it, and says where", func(ctx SpecContext, policy allocation.Policy) {
		r := newSpace(ctx).newRounds(interceptor.Funcs{})
		config, err := configfile.Parse([]byte("apiVersion: config.diengine.opendilab.org/v1alpha1\nkind: Configuration\n" +
			"operator: {allocator: {topology: [topology.kubernetes.io/zone, " + rackLabel + "]}}\n"))
		Expect(err).NotTo(HaveOccurred())
		r.policy, r.topology = policy, config.Operator.Allocator.Topology
		r.start(interceptor.Funcs{})
		for _, name := range []string{"r1-a", "r2-a", "r2-b", "r3-a"} {
			editNode(ctx, r.newNode(ctx, name, 4), func(node *corev1.Node) { node.Labels[rackLabel] = name[:2] })
		}
		r.submitWhole(ctx, "first")
		r.next(ctx, 0)
		first := r.get(ctx, "first")
		Expect(slices.Sorted(slices.Values(first.Status.Allocation))).To(Equal([]string{r.name + "-r2-a", r.name + "-r2-b"}))
		Expect(r.messages(ctx, r.name)).To(ContainElement(HavePrefix("2 replicas on 2 nodes in rack r2")))

		By("another job, which no rack holds")
		r.submitWhole(ctx, "second")
		r.next(ctx, time.Minute)
		Expect(slices.Sorted(slices.Values(r.get(ctx, "second").Status.Allocation))).To(Equal([]string{r.name + "-r1-a", r.name + "-r3-a"}))
		Expect(r.messages(ctx, r.name)).To(ContainElement(HavePrefix("2 replicas on 2 nodes across 2 racks")))
		Expect(r.get(ctx, "first").Status.Allocation).To(Equal(first.Status.Allocation))
	},
		Entry("with policy fit", allocatorcontroller.Fit()),
		Entry("with policy goodput", goodput.New(goodput.DefaultSettings())),
	)

	It("learns where a job measured its steps, and keeps it for the group", func(ctx SpecContext) {
		r := newSpace(ctx).newRounds(interceptor.Funcs{})
		r.policy, r.topology = goodput.New(goodput.DefaultSettings()), []string{rackLabel}
		r.groups = types.NamespacedName{Namespace: r.name, Name: "groups"}
		r.start(interceptor.Funcs{})
		for _, name := range []string{"r1-a", "r2-a"} {
			editNode(ctx, r.newNode(ctx, name, 4), func(node *corev1.Node) { node.Labels[rackLabel] = name[:2] })
		}
		r.submitWhole(ctx, "job")
		r.next(ctx, 0)
		for _, seconds := range []float64{0.5, 0.51, 0.52} {
			r.report(ctx, "job", fmt.Sprintf(`{"version":1,"batch":{"initial":64,"max":64},"steps":[
				{"nodes":1,"replicas":1,"samples":64,"seconds":0.8},
				{"nodes":2,"replicas":2,"samples":32,"seconds":%g,"compute_seconds":0.4}]}`, seconds))
			r.next(ctx, 4*time.Minute)
		}
		Expect(r.get(ctx, "job").Status.Allocation).To(HaveLen(2))
		Expect(r.storedGroups(ctx)).To(ContainSubstring(`"spans":[0,2]`))
	})
})

// submitWhole submits a job of two replicas, each as large as a node.
func (r *rounds) submitWhole(ctx SpecContext, name string) {
	r.submitElastic(ctx, name, 2, 2, func(spec *v2alpha1.DIJobSpec) {
		spec.Group = name
		spec.Tasks[0].Template.Raw = fmt.Appendf(nil, `{"spec":{"nodeSelector":{"space":%q},
			"containers":[{"name":"di-container","image":"image","resources":{"requests":{"cpu":"4"}}}]}}`, r.name)
	})
}
