// Copyright The DI Orchestrator Authors.
// SPDX-License-Identifier: Apache-2.0

package dijob

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/url"
	"syscall"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"opendilab.org/di-orchestrator/apis/v1alpha1"
	"opendilab.org/di-orchestrator/apis/v2alpha1"
	"opendilab.org/di-orchestrator/controllers"
	"opendilab.org/di-orchestrator/conversion"
	"opendilab.org/di-orchestrator/job/lifecycle/state"
	"opendilab.org/di-orchestrator/test/testkit/specs"
)

// denied returns the answer of an admission plugin, or of the authorizer.
func denied(why string) error {
	return apierrors.NewForbidden(schema.GroupResource{Resource: "pods"}, "job", errors.New(why))
}

// cut returns the error of a call whose answer never came.
func cut(why error) error {
	return &url.Error{Op: "Post", URL: "https://10.96.0.1/api/v1/namespaces/a/pods", Err: why}
}

var _ = Describe("A new job whose objects cannot be created", func() {
	answers := []struct {
		name, reason, says string
		err                error
		// isFault is set for a call without a final answer.
		isFault bool
	}{
		{"a quota", v2alpha1.ReasonQuotaExceeded, "exceeded quota: team", denied("exceeded quota: team, requested: pods=1, used: pods=2, limited: pods=2"), false},
		{"PodSecurity", v2alpha1.ReasonPodSecurityViolation, "violates PodSecurity", denied(`violates PodSecurity "restricted:latest": no`), false},
		{"a missing ServiceAccount", v2alpha1.ReasonFailedCreate, `serviceaccount "absent" not found`, denied(`error looking up service account a/absent: serviceaccount "absent" not found`), false},
		{"a missing right", v2alpha1.ReasonFailedCreate, "cannot create", denied(`User "operator" cannot create resource "pods"`), false},
		{"a webhook that denies", v2alpha1.ReasonFailedCreate, "denied the request: no", apierrors.NewBadRequest("admission webhook \"policy\" denied the request: no"), false},
		{"a webhook that does not answer", v2alpha1.ReasonFailedCreate, "failed calling webhook", apierrors.NewInternalError(errors.New(`failed calling webhook "policy": EOF`)), false},
		{"a broken stream", v2alpha1.ReasonFailedCreate, "cannot be created: stream error: INTERNAL_ERROR; received from peer; the operator retries", cut(errors.New("stream error: stream ID 14309; INTERNAL_ERROR; received from peer")), true},
		{"a cut connection", v2alpha1.ReasonFailedCreate, "cannot be created: read: connection reset by peer; the operator retries", cut(&net.OpError{Op: "read", Net: "tcp", Err: syscall.ECONNRESET}), true},
		{"a timeout", v2alpha1.ReasonFailedCreate, "cannot be created: context deadline exceeded", cut(context.DeadlineExceeded), true},
		{"an API server that is too busy", v2alpha1.ReasonFailedCreate, "too many requests", apierrors.NewTooManyRequestsError("too many requests"), true},
	}
	led := func(object client.Object) bool {
		_, isMembership := object.(*v2alpha1.Membership)
		return !isMembership
	}
	for _, job := range []struct {
		name, ready string
		submit      func(context.Context, *space)
		fails       func(client.Object) bool
	}{
		{"worker-led", "0/3", func(ctx context.Context, s *space) { s.submitMany(ctx, 3) }, func(client.Object) bool { return true }},
		{"coordinator-led", "0/1", func(ctx context.Context, s *space) { s.submitLed(ctx, "") }, led},
		{"coordinator-led, without its Membership", "0/1", func(ctx context.Context, s *space) { s.submitLed(ctx, "") }, func(client.Object) bool { return true }},
	} {
		for _, answer := range answers {
			It(fmt.Sprintf("has a phase and a reason: %s, %s", job.name, answer.name), func(ctx SpecContext) {
				s := newSpace(ctx)
				s.operator = s.newOperator(onCreate(func(object client.Object) error {
					if job.fails(object) {
						return answer.err
					}
					return nil
				}))
				job.submit(ctx, s)
				for range 3 {
					// A call without an answer is retried by the queue.
					if err := s.reconcile(ctx); !answer.isFault {
						Expect(err).To(Or(Succeed(), MatchError(answer.err)))
					}
					s.advance(state.FirstRefusalDelay)
				}
				stored := s.job(ctx)
				Expect(stored).To(condition(v2alpha1.ConditionReplicaFailure, corev1.ConditionTrue, answer.reason, ContainSubstring(answer.says)))
				Expect(stored.Status.Phase).To(Equal(v2alpha1.JobPending))
				Expect(stored.Status.ObservedGeneration).To(Equal(stored.Generation))
				Expect(stored.Status.Summary).To(HaveField("Reason", answer.reason))
				Expect(stored.Status.Summary).To(HaveField("Ready", job.ready))
				earlier := specs.Must(conversion.FromHub(stored))
				Expect(earlier.Status.Phase).To(Equal(v1alpha1.JobCreated))
			})
		}
	}
})

var _ = Describe("A job whose pod's name is taken", func() {
	for _, other := range []struct {
		says       string
		references []metav1.OwnerReference
	}{
		{"exists and has no owner", nil},
		{"exists and belongs to Deployment web", []metav1.OwnerReference{{APIVersion: "apps/v1", Kind: "Deployment", Name: "web", UID: "web-uid", Controller: ptr.To(true)}}},
		{"exists and belongs to DIJob b", []metav1.OwnerReference{{APIVersion: v2alpha1.GroupVersion.String(), Kind: controllers.JobKind, Name: "b", UID: "b-uid", Controller: ptr.To(true)}}},
		{"exists and belongs to Node n1", []metav1.OwnerReference{{APIVersion: "v1", Kind: "Node", Name: "n1", UID: "n1-uid"}}},
	} {
		for _, name := range []string{"job-learner-0", "job-coordinator"} {
			It(fmt.Sprintf("names the owner of %s: %s", name, other.says), func(ctx SpecContext) {
				s := newSpace(ctx)
				pod := &corev1.Pod{
					ObjectMeta: metav1.ObjectMeta{Namespace: s.name, Name: name, OwnerReferences: other.references},
					Spec:       corev1.PodSpec{Containers: []corev1.Container{{Name: "a", Image: "a"}}},
				}
				Expect(shared.api.Create(ctx, pod)).To(Succeed())
				if name == "job-coordinator" {
					s.submitLed(ctx, "")
				} else {
					s.submitWorkers(ctx, 0)
				}
				Expect(s.settle(ctx)).To(Succeed())
				stored := s.job(ctx)
				Expect(stored).To(condition(v2alpha1.ConditionNameConflict, corev1.ConditionTrue, v2alpha1.ConditionNameConflict, HaveSuffix(name+": "+other.says)))
				Expect(stored.Status.Phase).To(Equal(v2alpha1.JobPending))
				Expect(stored.Status.Summary).To(HaveField("Reason", v2alpha1.ConditionNameConflict))
			})
		}
	}
})
