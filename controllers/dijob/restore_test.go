// Copyright The DI Orchestrator Authors.
// SPDX-License-Identifier: Apache-2.0

package dijob

import (
	"context"
	"os"
	"regexp"
	"testing"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"

	"opendilab.org/di-orchestrator/apis/v2alpha1"
	"opendilab.org/di-orchestrator/job/lifecycle"
	"opendilab.org/di-orchestrator/test/testkit/specs"
)

// restoreLabel is the label that Velero sets on restored objects.
const restoreLabel = "velero.io/restore-name"

// restoreOrder returns the kinds in the order in which Velero restores them. Pods come early. Kinds that
// Velero does not know come last, in the order of their resource names.
func restoreOrder() []schema.GroupVersionKind {
	return []schema.GroupVersionKind{
		corev1.SchemeGroupVersion.WithKind("Pod"),
		v2alpha1.GroupVersion.WithKind("DIJob"),
		v2alpha1.GroupVersion.WithKind("Membership"),
		corev1.SchemeGroupVersion.WithKind("Service"),
	}
}

// backUp reads all objects of the kinds in this order.
func (s *space) backUp(ctx context.Context, kinds ...schema.GroupVersionKind) []*unstructured.Unstructured {
	var all []*unstructured.Unstructured
	for _, kind := range kinds {
		var list unstructured.UnstructuredList
		list.SetGroupVersionKind(kind)
		Expect(shared.api.List(ctx, &list, client.InNamespace(s.name))).To(Succeed())
		all = append(all, pointers(list.Items)...)
	}
	return all
}

// lose deletes all objects of a backup, as the loss of a cluster does.
func (s *space) lose(ctx context.Context) {
	for _, object := range s.backUp(ctx, restoreOrder()...) {
		Expect(client.IgnoreNotFound(shared.api.Delete(ctx, object, client.GracePeriodSeconds(0)))).To(Succeed())
	}
	Expect(s.backUp(ctx, restoreOrder()...)).To(BeEmpty())
	// The operator of another cluster starts with an empty memory.
	s.operator = s.newOperator(interceptor.Funcs{})
}

// restore creates the objects of a backup as Velero does: with new UIDs, without owners, and without
// status except for the kinds in statusOf. It does not restore finished pods.
func (s *space) restore(ctx context.Context, backup []*unstructured.Unstructured, statusOf ...string) {
	for _, saved := range backup {
		object := saved.DeepCopy()
		phase, _, _ := unstructured.NestedString(object.Object, "status", "phase")
		if object.GetKind() == "Pod" && (phase == string(corev1.PodSucceeded) || phase == string(corev1.PodFailed)) {
			continue
		}
		object.Object["metadata"] = map[string]any{"name": saved.GetName(), "namespace": saved.GetNamespace()}
		object.SetAnnotations(saved.GetAnnotations())
		object.SetFinalizers(saved.GetFinalizers())
		object.SetLabels(withLabel(saved.GetLabels(), restoreLabel, "restore"))
		status, hasStatus := object.Object["status"]
		delete(object.Object, "status")
		Expect(shared.api.Create(ctx, object)).To(Succeed())
		for _, kind := range statusOf {
			if kind == object.GetKind() && hasStatus {
				object.Object["status"] = status
				Expect(shared.api.Status().Update(ctx, object)).To(Succeed())
			}
		}
	}
}

func withLabel(labels map[string]string, key, value string) map[string]string {
	all := map[string]string{key: value}
	for key, value := range labels {
		all[key] = value
	}
	return all
}

// asDocumented returns the objects that match the selector in docs/backup.md.
func asDocumented(backup []*unstructured.Unstructured) []*unstructured.Unstructured {
	guide := specs.Must(os.ReadFile("../../docs/backup.md"))
	told := regexp.MustCompile(`--selector '([^']+)'`).FindSubmatch(guide)
	Expect(told).NotTo(BeNil())
	selector := specs.Must(labels.Parse(string(told[1])))
	var taken []*unstructured.Unstructured
	for _, object := range backup {
		if selector.Matches(labels.Set(object.GetLabels())) {
			taken = append(taken, object)
			Expect(object.GetKind()).To(BeElementOf("DIJob", "Membership"))
		}
	}
	return taken
}

// deleteRestored deletes the restored pods and services.
func (s *space) deleteRestored(ctx context.Context) {
	for _, kind := range []client.Object{&corev1.Pod{}, &corev1.Service{}} {
		Expect(shared.api.DeleteAllOf(ctx, kind, client.InNamespace(s.name), client.HasLabels{restoreLabel},
			client.GracePeriodSeconds(0))).To(Succeed())
	}
}

var _ = Describe("A job that is restored from a backup", func() {
	job, all := v2alpha1.GroupVersion.WithKind("DIJob"), restoreOrder()

	It("starts again where it is restored as documented, and ends well", func(ctx SpecContext) {
		s := newWorkers(ctx, 1)
		s.start(ctx)
		Expect(s.phase(ctx)).To(Equal(v2alpha1.JobRunning))
		before, backup := s.podNames(ctx), asDocumented(s.backUp(ctx, all...))
		s.lose(ctx)
		s.restore(ctx, backup)
		s.start(ctx)
		Expect(s.phase(ctx)).To(Equal(v2alpha1.JobRunning))
		Expect(s.podNames(ctx)).To(ConsistOf(before))
		s.endAll(ctx)
		Expect(s.phase(ctx)).To(Equal(v2alpha1.JobSucceeded))
	})

	DescribeTable("waits for restored pods and services to be deleted, and then continues",
		func(ctx SpecContext, submit func(*space, context.Context), statusOf []string) {
			s := newSpace(ctx)
			submit(s, ctx)
			before, backup := s.podNames(ctx), s.backUp(ctx, all...)
			s.lose(ctx)
			s.restore(ctx, backup, statusOf...)
			restored := s.identities(ctx)
			Expect(s.settle(ctx)).To(Succeed())
			Expect(s.identities(ctx)).To(Equal(restored), "what it does not own it leaves alone")
			Expect(s.conditions(ctx)).To(HaveKeyWithValue(v2alpha1.ConditionNameConflict, corev1.ConditionTrue))

			s.deleteRestored(ctx)
			s.advance(lifecycle.ConflictDelay)
			s.start(ctx)
			if s.job(ctx).Spec.Lifecycle == v2alpha1.LifecycleCoordinatorLed {
				s.askForReplicas(ctx)
				s.start(ctx)
			}
			Expect(s.conditions(ctx)).To(HaveKeyWithValue(v2alpha1.ConditionNameConflict, corev1.ConditionFalse))
			Expect(s.podNames(ctx)).To(ConsistOf(before))
			Expect(s.phase(ctx)).To(Equal(v2alpha1.JobRunning))
			s.expectStoredOwners(ctx)
		},
		Entry("worker-led, with all status", (*space).restorableWorkers, []string{"DIJob", "Membership", "Pod"}),
		Entry("coordinator-led, with all status", (*space).restorableTeam, []string{"DIJob", "Membership", "Pod"}),
	)

	It("rebuilds its list where an update of existing objects overwrites it", func(ctx SpecContext) {
		s := newSpace(ctx)
		s.restorableTeam(ctx)
		backup := s.backUp(ctx, job)
		former := s.membership(ctx)
		s.lose(ctx)
		s.restore(ctx, backup)
		s.start(ctx)
		list := s.membership(ctx)
		list.Spec = former.Spec
		Expect(shared.api.Update(ctx, list)).To(Succeed())
		s.start(ctx)
		Expect(s.membership(ctx).Spec.JobUID).To(Equal(s.job(ctx).UID))
		Expect(s.podNames(ctx)).To(ConsistOf("job-coordinator"))
		Expect(s.phase(ctx)).To(Equal(v2alpha1.JobRunning))
	})
})

// restorableWorkers runs a worker-led job.
func (s *space) restorableWorkers(ctx context.Context) {
	s.submitWorkers(ctx, 1)
	s.start(ctx)
}

// restorableTeam runs a coordinator-led job with replicas.
func (s *space) restorableTeam(ctx context.Context) {
	s.submitLed(ctx, v2alpha1.CleanPodPolicyRunning)
	s.start(ctx)
	s.askForReplicas(ctx)
	s.start(ctx)
}

// endAll makes all pods of a worker-led job succeed.
func (s *space) endAll(ctx context.Context) {
	for _, name := range s.podNames(ctx) {
		s.end(ctx, name, 0)
	}
	Expect(s.settle(ctx)).To(Succeed())
}

func TestAPodThatWasReadLiveReplacesItsNamesakeInTheCache(t *testing.T) {
	t.Parallel()
	pod := func(name, uid string) *corev1.Pod {
		return &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Name: name, UID: types.UID(uid)}}
	}
	kept, gone := pod("job-learner-0", "a"), pod("job-collector-0", "b")
	cached := []*corev1.Pod{kept, gone}
	left := withoutNamesakes(cached, []*corev1.Pod{pod("job-collector-0", "c"), pod("job-collector-1", "d")})
	if len(left) != 1 || left[0] != kept {
		t.Errorf("of the cache are left %v, want only %s", left, kept.Name)
	}
	if cached[1] != gone {
		t.Error("the pods of the cache were changed")
	}
}
