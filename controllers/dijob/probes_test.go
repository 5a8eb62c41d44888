// Copyright The DI Orchestrator Authors.
// SPDX-License-Identifier: Apache-2.0

package dijob

import (
	"context"
	"fmt"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"

	"opendilab.org/di-orchestrator/apis/v2alpha1"
	"opendilab.org/di-orchestrator/test/testkit/jobs"
	"opendilab.org/di-orchestrator/test/testkit/specs"
)

var _ = Describe("A pod that ends after SIGTERM", func() {
	// start runs a job of some replicas with a probe of the kind in its template.
	start := func(ctx context.Context, s *space, probe string, replicas int32) {
		template := jobs.Raw(fmt.Sprintf(`{"spec":{"containers":[{"name":"di-container","image":"image",%q:{"tcpSocket":{"port":9}}}]}}`, probe))
		s.submit(ctx, v2alpha1.DIJobSpec{
			BackoffLimit: ptr.To(int32(0)),
			Tasks:        []v2alpha1.Task{{Type: v2alpha1.TaskTypeLearner, Template: template, Replicas: ptr.To(replicas)}},
		})
		s.start(ctx)
	}
	report := func(ctx context.Context, s *space, reason, message string) {
		pod := specs.Get[corev1.Pod](ctx, shared.api, s.name, "job-learner-0")
		Expect(shared.api.Create(ctx, &corev1.Event{
			ObjectMeta: metav1.ObjectMeta{Namespace: s.name, GenerateName: "job-learner-0."}, Reason: reason, Message: message,
			InvolvedObject: corev1.ObjectReference{Kind: "Pod", Namespace: s.name, Name: pod.Name, UID: pod.UID, FieldPath: "spec.containers{di-container}"},
		})).To(Succeed())
	}
	// countEvents counts the lists of Events.
	countEvents := func(s *space) *int {
		lists := 0
		s.operator.live = interceptor.NewClient(shared.api, interceptor.Funcs{
			List: func(ctx context.Context, next client.WithWatch, list client.ObjectList, options ...client.ListOption) error {
				if _, isEvents := list.(*corev1.EventList); isEvents {
					lists++
				}
				return next.List(ctx, list, options...)
			},
		})
		return &lists
	}

	for _, replicas := range []int32{1, 10} {
		It(fmt.Sprintf("has failed if its liveness probe failed, of %d", replicas), func(ctx SpecContext) {
			s := newSpace(ctx)
			start(ctx, s, "livenessProbe", replicas)
			report(ctx, s, "Unhealthy", "Liveness probe failed: dial tcp 10.0.0.1:9: connection refused")
			report(ctx, s, "Killing", "Stopping container di-container")
			for index := range replicas {
				s.end(ctx, fmt.Sprintf("job-learner-%d", index), 0)
			}
			lists := countEvents(s)
			Expect(s.settle(ctx)).To(Succeed())
			status := s.job(ctx).Status
			Expect(status.Phase).To(Equal(v2alpha1.JobFailed))
			Expect(status.LastFailure).To(And(HaveField("Reason", v2alpha1.ReasonProbeFailed), HaveField("ExitCode", ptr.To(int32(0))),
				HaveField("Message", HavePrefix("the kubelet killed container di-container: "))))
			Expect(*lists).To(Equal(1))
		})
	}

	It("has succeeded if no probe killed it", func(ctx SpecContext) {
		s := newSpace(ctx)
		start(ctx, s, "startupProbe", 1)
		report(ctx, s, "Unhealthy", "Startup probe failed: dial tcp 10.0.0.1:9: connection refused")
		s.end(ctx, "job-learner-0", 0)
		lists := countEvents(s)
		Expect(s.settle(ctx)).To(Succeed())
		Expect(s.job(ctx).Status.Phase).To(Equal(v2alpha1.JobSucceeded))
		Expect(*lists).To(Equal(1))
	})

	It("costs no read without a probe that kills", func(ctx SpecContext) {
		s := newSpace(ctx)
		start(ctx, s, "readinessProbe", 1)
		s.end(ctx, "job-learner-0", 0)
		lists := countEvents(s)
		Expect(s.settle(ctx)).To(Succeed())
		Expect(s.job(ctx).Status.Phase).To(Equal(v2alpha1.JobSucceeded))
		Expect(*lists).To(BeZero())
	})
})
