// Copyright The DI Orchestrator Authors.
// SPDX-License-Identifier: Apache-2.0

package dijob

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"time"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"

	"opendilab.org/di-orchestrator/allocation/goodput"
	"opendilab.org/di-orchestrator/apis/v2alpha1"
	allocatorcontroller "opendilab.org/di-orchestrator/controllers/allocator"
)

const (
	// productLabel is the label by which NVIDIA's GPU operator names the type of a node's GPUs.
	productLabel = "nvidia.com/gpu.product"
	slowType     = "Tesla-T4"
	fastType     = "NVIDIA-A100-SXM4-80GB"
)

var _ = Describe("A round of the allocator on nodes of two types of GPUs", func() {
	DescribeTable("gives the faster type to the job that gains from it, and no job GPUs of both", func(ctx SpecContext, label string) {
		r := newSpace(ctx).newTypedRounds(ctx, label)
		// The job that gains little comes first, and may take the faster type.
		r.submitGPUs(ctx, "indifferent", "")
		r.next(ctx, 0)
		r.submitGPUs(ctx, "keen", "")
		r.train(ctx, 12, map[string]float64{"indifferent": 1.1, "keen": 4})
		Expect(r.typesOf(ctx, "keen", label)).To(Equal([]string{fastType, fastType}))
		Expect(r.typesOf(ctx, "indifferent", label)).To(Equal([]string{slowType, slowType}))
	},
		Entry("by the label of the GPU operator", productLabel),
		Entry("by another label", "example.com/accelerator"),
	)

	It("keeps a job off the type that its node affinity forbids", func(ctx SpecContext) {
		r := newSpace(ctx).newTypedRounds(ctx, productLabel)
		r.submitGPUs(ctx, "keen", fastType)
		r.next(ctx, 0)
		r.submitGPUs(ctx, "indifferent", "")
		r.train(ctx, 12, map[string]float64{"indifferent": 1.1, "keen": 4})
		Expect(r.typesOf(ctx, "keen", productLabel)).To(Equal([]string{slowType, slowType}))
		Expect(r.typesOf(ctx, "indifferent", productLabel)).To(Equal([]string{fastType, fastType}))
	})
})

// newTypedRounds returns an allocator whose setting deviceLabel names a label, on a node of two GPUs of each type.
func (s *space) newTypedRounds(ctx context.Context, label string) *rounds {
	r := s.newRounds(interceptor.Funcs{})
	policies, err := allocatorcontroller.Policies(goodput.DefaultSettings().Fairness, label, nil)
	Expect(err).NotTo(HaveOccurred())
	r.policy, r.groups = policies[allocatorcontroller.PolicyGoodput], types.NamespacedName{Namespace: r.name, Name: "groups"}
	r.start(interceptor.Funcs{})
	for name, kind := range map[string]string{"fast": fastType, "slow": slowType} {
		editNode(ctx, r.newNode(ctx, name, 64), func(node *corev1.Node) {
			node.Labels[productLabel] = "same"
			node.Labels[label] = kind
		})
		node := &corev1.Node{}
		Expect(shared.api.Get(ctx, types.NamespacedName{Name: r.name + "-" + name}, node)).To(Succeed())
		node.Status.Allocatable["nvidia.com/gpu"] = resource.MustParse("2")
		Expect(shared.api.Status().Update(ctx, node)).To(Succeed())
	}
	return r
}

// submitGPUs submits a job of one or two replicas with a GPU each, on any type but the forbidden one.
func (r *rounds) submitGPUs(ctx context.Context, name, forbidden string) {
	affinity := ""
	if forbidden != "" {
		affinity = fmt.Sprintf(`"affinity":{"nodeAffinity":{"requiredDuringSchedulingIgnoredDuringExecution":{"nodeSelectorTerms":[{"matchExpressions":[
			{"key":%q,"operator":"NotIn","values":[%q]}]}]}}},`, productLabel, forbidden)
	}
	r.submitElastic(ctx, name, 1, 2, func(spec *v2alpha1.DIJobSpec) {
		spec.Group = name
		spec.Tasks[0].Template.Raw = fmt.Appendf(nil, `{"spec":{%s"nodeSelector":{"space":%q},
			"containers":[{"name":"di-container","image":"image","resources":{"limits":{"nvidia.com/gpu":"1"}}}]}}`, affinity, r.name)
	})
}

// train runs rounds in which jobs report what they measured on each type, as their checkpoints keep it. The ratios are the
// jobs' speeds on the faster type by those on the slower one.
func (r *rounds) train(ctx context.Context, rounds int, ratios map[string]float64) {
	for range rounds {
		for name, ratio := range ratios {
			var steps []string
			for device, seconds := range map[string]float64{slowType: 0.8, fastType: 0.8 / ratio} {
				for replicas := 1; replicas <= 2; replicas++ {
					each := seconds / float64(replicas)
					steps = append(steps, fmt.Sprintf(`{"nodes":1,"replicas":%d,"samples":%d,"seconds":%g,"compute_seconds":%g,"device":%q}`,
						replicas, 64/replicas, each*(1+0.05*float64(replicas-1)), each, device))
				}
			}
			slices.Sort(steps)
			r.report(ctx, name, `{"version":1,"batch":{"initial":64,"max":64},"steps":[`+strings.Join(steps, ",")+`]}`)
		}
		r.next(ctx, time.Minute)
		for name := range ratios {
			nodes := slices.Compact(slices.Sorted(slices.Values(r.get(ctx, name).Status.Allocation)))
			Expect(len(nodes)).To(BeNumerically("<=", 1), "each type has one node, and job %s is on %v", name, nodes)
		}
	}
}

// typesOf returns the type of each replica's node.
func (r *rounds) typesOf(ctx context.Context, name, label string) []string {
	var found []string
	for _, place := range r.get(ctx, name).Status.Allocation {
		node := &corev1.Node{}
		Expect(shared.api.Get(ctx, types.NamespacedName{Name: place}, node)).To(Succeed())
		found = append(found, node.Labels[label])
	}
	return found
}
