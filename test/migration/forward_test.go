// Copyright The DI Orchestrator Authors.
// SPDX-License-Identifier: Apache-2.0

package migration

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	. "github.com/onsi/gomega"
	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"

	"opendilab.org/di-orchestrator/apis/v2alpha1"
	"opendilab.org/di-orchestrator/upgrade/crds"
	"opendilab.org/di-orchestrator/upgrade/migration"
	"opendilab.org/di-orchestrator/upgrade/storagemigration"
)

// expectMigrated expects that all objects are stored in a version and that storedVersions reports
// it.
func (w *world) expectMigrated(version string, names ...string) {
	w.t.Helper()
	for _, name := range names {
		w.Expect(w.storedAs("dijobs", name)).To(Equal(version), name)
	}
	for _, definition := range []string{dijobs, aggregatorconfigs} {
		w.Expect(crds.StorageOf(w.definition(definition))).To(Equal(version))
		w.Expect(w.definition(definition).Status.StoredVersions).To(Equal([]string{version}))
	}
	w.Expect(w.record("dijobs").Phase).To(Equal(migration.PhaseFinished))
	w.Expect(w.record("dijobs").Failed).To(BeEmpty())
}

// reasons returns the reasons of the Events so far.
func (w *world) reasons() string {
	var all []string
	for len(w.events.Events) > 0 {
		all = append(all, <-w.events.Events)
	}
	return strings.Join(all, "\n")
}

func TestStoredObjectsComeToBeStoredInTheWantedVersion(t *testing.T) {
	w := newWorld(t, "v1alpha1")
	names := []string{"a", "b", "c", "d", "e", "f", "g", "h", "i"}
	for _, name := range names {
		w.create(w.job(name, "v1alpha1"))
	}
	w.create(w.aggregatorConfig("config"))
	w.Expect(w.storedAs("dijobs", "a")).To(Equal("v1alpha1"))
	// A terminating job is stored until its finalizers are removed.
	deleted := w.job("deleted", "v1alpha1")
	deleted.SetFinalizers([]string{"example.com/held"})
	w.create(deleted)
	w.Expect(cluster.client.Delete(t.Context(), deleted)).To(Succeed())

	w.want("v2alpha1")
	w.Expect(w.migrate(cluster.client)).To(Succeed())

	w.expectMigrated("v2alpha1", append(names, "deleted")...)
	w.Expect(w.storedAs("aggregatorconfigs", "config")).To(Equal("v2alpha1"))
	w.Expect(w.record("dijobs").Total).To(BeEquivalentTo(10))
	w.Expect(w.record("dijobs").Done).To(BeEquivalentTo(10))
	w.Expect(w.reasons()).To(And(ContainSubstring("StorageSwitched"), ContainSubstring("StorageMigrated")))
}

func TestObjectsThatBreakRulesAreMigrated(t *testing.T) {
	w := newWorld(t, "v1alpha1")
	w.create(w.job("whole", "v1alpha1"))
	// A release with weaker validation has stored it: a required field is missing, and a value is
	// not in its enum.
	broken := map[string]any{
		"apiVersion": "diengine.opendilab.org/v1alpha1", "kind": "DIJob",
		"metadata": map[string]any{"name": "broken.by.dots", "namespace": w.namespace, "uid": "broken", "creationTimestamp": "2022-01-01T00:00:00Z", "generation": 1},
		"spec":     map[string]any{"cleanPodPolicy": "Sometimes", "learner": map[string]any{"template": map[string]any{"spec": map[string]any{"containers": []any{}}}}},
		"status":   map[string]any{"phase": "Odd"},
	}
	w.store("dijobs", "broken.by.dots", broken)

	w.want("v2alpha1")
	w.Expect(w.migrate(cluster.client)).To(Succeed())
	w.expectMigrated("v2alpha1", "whole", "broken.by.dots")
}

func TestAMigrationThatIsKilledAgainAndAgainGoesOn(t *testing.T) {
	w := newWorld(t, "v1alpha1")
	names := []string{"a", "b", "c", "d", "e", "f"}
	for _, name := range names {
		w.create(w.job(name, "v1alpha1"))
	}
	w.create(w.aggregatorConfig("config"))
	w.want("v2alpha1")
	// The first operator stops after its first write, the second after its second, and so on:
	// between any two consecutive writes.
	for writes := int64(1); ; writes++ {
		w.Expect(writes).To(BeNumerically("<", 100), "the migration comes to no end")
		err := w.migrate(interceptor.NewClient(cluster.client, dieAfter(writes)))
		if err == nil {
			break
		}
		w.Expect(err).To(MatchError(errDead))
	}
	w.expectMigrated("v2alpha1", names...)
	w.Expect(w.storedAs("aggregatorconfigs", "config")).To(Equal("v2alpha1"))
	w.Expect(w.record("dijobs").Done).To(BeEquivalentTo(6))
}

func TestAMigrationGoesOnWhereItIsUnlessObjectsMayHaveBeenStoredInAnotherVersion(t *testing.T) {
	w := newWorld(t, "v1alpha1")
	names := []string{"a", "b", "c", "d", "e", "f", "g", "h", "i", "j"}
	for _, name := range names {
		w.create(w.job(name, "v1alpha1"))
	}
	w.want("v2alpha1")
	m := storagemigration.New(w.options(cluster.client))
	stepUntil := func(done int64) {
		t.Helper()
		for range 100 {
			if record := w.record("dijobs"); record.Done >= done {
				return
			}
			w.clock.SetTime(w.clock.Now().Add(w.step(m).RequeueAfter))
		}
		t.Fatalf("it does not get on: %+v", w.record("dijobs"))
	}
	stepUntil(4)
	began := w.record("dijobs")

	// Another part of the definition changes.
	changes := 0
	rename := func() {
		changes++
		w.change(dijobs, func(definition *apiextensionsv1.CustomResourceDefinition) {
			definition.Spec.Names.Categories = []string{fmt.Sprintf("category-%d", changes)}
		})
	}
	rename()
	stepUntil(8)
	w.Expect(w.record("dijobs").Since).To(Equal(began.Since), "it has begun again")
	w.Expect(w.record("dijobs").Generation).To(Equal(began.Generation + 1))

	// The state between two changes is unknown.
	rename()
	rename()
	w.step(m)
	w.Expect(w.record("dijobs").Phase).To(Equal(migration.PhaseSettling))
	w.Expect(w.record("dijobs").Done).To(BeZero())

	w.Expect(w.migrate(cluster.client)).To(Succeed())
	w.expectMigrated("v2alpha1", names...)
}

var errDead = errors.New("the operator is dead")

// dieAfter returns functions with which every write fails after the given number.
func dieAfter(writes int64) interceptor.Funcs {
	var done atomic.Int64
	write := func(next func() error) error {
		if done.Add(1) > writes {
			return errors.Join(errDead, context.Canceled)
		}
		return next()
	}
	return interceptor.Funcs{
		Create: func(ctx context.Context, next client.WithWatch, object client.Object, options ...client.CreateOption) error {
			return write(func() error { return next.Create(ctx, object, options...) })
		},
		Update: func(ctx context.Context, next client.WithWatch, object client.Object, options ...client.UpdateOption) error {
			return write(func() error { return next.Update(ctx, object, options...) })
		},
		Patch: func(ctx context.Context, next client.WithWatch, object client.Object, patch client.Patch, options ...client.PatchOption) error {
			return write(func() error { return next.Patch(ctx, object, patch, options...) })
		},
		SubResourceUpdate: func(ctx context.Context, next client.Client, name string, object client.Object, options ...client.SubResourceUpdateOption) error {
			return write(func() error { return next.SubResource(name).Update(ctx, object, options...) })
		},
	}
}

func TestWhatOthersWriteMeanwhileIsNotOverwritten(t *testing.T) {
	w := newWorld(t, "v1alpha1")
	w.create(w.job("quiet", "v1alpha1"), w.job("busy", "v1alpha1"), w.job("gone", "v1alpha1"))
	w.want("v2alpha1")
	written := false
	between := interceptor.NewClient(cluster.client, interceptor.Funcs{
		List: func(ctx context.Context, next client.WithWatch, list client.ObjectList, options ...client.ListOption) error {
			err := next.List(ctx, list, options...)
			if _, isPage := list.(*metav1.PartialObjectMetadataList); isPage && !written && err == nil {
				written = true
				w.patch("busy", `{"metadata":{"labels":{"by":"others"}},"spec":{"group":"changed"}}`)
				w.Expect(cluster.client.Delete(ctx, w.job("gone", "v1alpha1"))).To(Succeed())
			}
			return err
		},
	})
	w.Expect(w.migrate(between)).To(Succeed())
	w.expectMigrated("v2alpha1", "quiet", "busy")
	w.Expect(written).To(BeTrue())
	w.Expect(w.read("busy").Labels).To(HaveKeyWithValue("by", "others"))
	w.Expect(w.read("busy").Spec.Group).To(Equal("changed"))
}

func TestWhatCannotBeWrittenIsNamedAndTriedAgainAndTheRestGoesOn(t *testing.T) {
	w := newWorld(t, "v1alpha1")
	w.create(w.job("stuck", "v1alpha1"), w.job("a", "v1alpha1"), w.job("z", "v1alpha1"))
	forbid := w.forbidUpdates("stuck")
	w.want("v2alpha1")

	m := storagemigration.New(w.options(cluster.client))
	for range 100 {
		result := w.step(m)
		if w.record("dijobs").Listed {
			break
		}
		w.clock.SetTime(w.clock.Now().Add(result.RequeueAfter))
	}
	record := w.record("dijobs")
	w.Expect(record.Failed).To(HaveLen(1))
	w.Expect(record.Failed[0].Name).To(Equal("stuck"))
	w.Expect(record.Failed[0].Message).To(ContainSubstring("not today"))
	w.Expect(record.Done).To(BeEquivalentTo(2))
	w.Expect(w.storedAs("dijobs", "z")).To(Equal("v2alpha1"))
	w.Expect(w.storedAs("dijobs", "stuck")).To(Equal("v1alpha1"))
	w.Expect(w.reasons()).To(ContainSubstring("StorageMigrationFailed 1 object could not be written"))
	// Nothing is pruned. The operator retries the object later.
	w.Expect(w.step(m).RequeueAfter).To(BeNumerically("~", time.Minute, time.Second))
	w.Expect(w.definition(dijobs).Status.StoredVersions).To(ConsistOf("v1alpha1", "v2alpha1"))

	forbid.allow()
	w.Expect(w.migrate(cluster.client)).To(Succeed())
	w.expectMigrated("v2alpha1", "a", "stuck", "z")
}

// policy is an admission policy that rejects updates of one job.
type policy struct {
	w    *world
	name string
}

// forbidUpdates makes the API server reject updates of a job.
func (w *world) forbidUpdates(name string) *policy {
	w.t.Helper()
	p := &policy{w: w, name: name}
	fail := admissionregistrationv1.Fail
	w.create(&admissionregistrationv1.ValidatingAdmissionPolicy{
		ObjectMeta: metav1.ObjectMeta{Name: "forbid"},
		Spec: admissionregistrationv1.ValidatingAdmissionPolicySpec{
			FailurePolicy: &fail,
			MatchConstraints: &admissionregistrationv1.MatchResources{ResourceRules: []admissionregistrationv1.NamedRuleWithOperations{{
				RuleWithOperations: admissionregistrationv1.RuleWithOperations{
					Operations: []admissionregistrationv1.OperationType{admissionregistrationv1.Update},
					Rule: admissionregistrationv1.Rule{
						APIGroups: []string{v2alpha1.GroupName}, APIVersions: []string{"*"}, Resources: []string{"dijobs"},
					},
				},
			}}},
			Validations: []admissionregistrationv1.Validation{{Expression: fmt.Sprintf("object.metadata.name != %q", name), Message: "not today"}},
		},
	}, &admissionregistrationv1.ValidatingAdmissionPolicyBinding{
		ObjectMeta: metav1.ObjectMeta{Name: "forbid"},
		Spec: admissionregistrationv1.ValidatingAdmissionPolicyBindingSpec{
			PolicyName: "forbid", ValidationActions: []admissionregistrationv1.ValidationAction{admissionregistrationv1.Deny},
		},
	})
	w.t.Cleanup(p.remove)
	w.Eventually(p.try).Should(MatchError(ContainSubstring("not today")))
	return p
}

// try updates the job as a dry run.
func (p *policy) try() error {
	job := &v2alpha1.DIJob{ObjectMeta: metav1.ObjectMeta{Namespace: p.w.namespace, Name: p.name}}
	patch := client.RawPatch(types.MergePatchType, []byte(`{"metadata":{"labels":{"tried":"yes"}}}`))
	return cluster.client.Patch(p.w.t.Context(), job, patch, client.DryRunAll)
}

func (p *policy) allow() {
	p.w.t.Helper()
	p.remove()
	p.w.Eventually(p.try).Should(Succeed())
}

func (p *policy) remove() {
	ctx := context.WithoutCancel(p.w.t.Context())
	for _, object := range []client.Object{&admissionregistrationv1.ValidatingAdmissionPolicyBinding{}, &admissionregistrationv1.ValidatingAdmissionPolicy{}} {
		object.SetName("forbid")
		p.w.Expect(client.IgnoreNotFound(cluster.client.Delete(ctx, object))).To(Succeed())
	}
}

// patch merges content into a job.
func (w *world) patch(name, content string) {
	w.t.Helper()
	job := &v2alpha1.DIJob{ObjectMeta: metav1.ObjectMeta{Namespace: w.namespace, Name: name}}
	w.Expect(cluster.client.Patch(w.t.Context(), job, client.RawPatch(types.MergePatchType, []byte(content)))).To(Succeed())
}

func (w *world) read(name string) *v2alpha1.DIJob {
	w.t.Helper()
	job := &v2alpha1.DIJob{}
	w.Expect(cluster.client.Get(w.t.Context(), client.ObjectKey{Namespace: w.namespace, Name: name}, job)).To(Succeed())
	return job
}
