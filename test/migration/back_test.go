// Copyright The DI Orchestrator Authors.
// SPDX-License-Identifier: Apache-2.0

package migration

import (
	"bytes"
	"context"
	"flag"
	"fmt"
	"testing"
	"time"

	. "github.com/onsi/gomega"
	"github.com/prometheus/client_golang/prometheus"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/utils/ptr"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
	metricsserver "sigs.k8s.io/controller-runtime/pkg/metrics/server"

	"opendilab.org/di-orchestrator/apis/v2alpha1"
	"opendilab.org/di-orchestrator/controllers"
	"opendilab.org/di-orchestrator/upgrade/crds"
	"opendilab.org/di-orchestrator/upgrade/storagemigration"
	"opendilab.org/di-orchestrator/webhook/admissionprobe"
)

// jobsThereAndBack is the number of jobs that are migrated forward, back and forward again.
var jobsThereAndBack = flag.Int("migration.jobs", 50, "jobs that are migrated forward, back and forward again")

func TestNothingIsLostForwardBackAndForwardAgain(t *testing.T) {
	w := newWorld(t, "v1alpha1")
	var names []string
	for i := range *jobsThereAndBack {
		names = append(names, fmt.Sprintf("job-%05d", i))
		job := w.job(names[i], "v1alpha1")
		w.create(job)
		w.own(job, names[i])
	}
	w.create(w.aggregatorConfig("config"))
	before := w.contents()
	w.Expect(before).To(HaveLen(2**jobsThereAndBack + 1))

	for _, version := range []string{"v2alpha1", "v1alpha1", "v2alpha1"} {
		w.want(version)
		began := time.Now()
		w.Expect(w.migrate(cluster.client)).To(Succeed())
		t.Logf("%d objects migrated to %s: %.0f a second", len(names)+1, version, float64(len(names)+1)/time.Since(began).Seconds())
		w.expectMigrated(version, names...)
		w.Expect(w.storedAs("aggregatorconfigs", "config")).To(Equal(version))
		w.Expect(w.contents()).To(Equal(before), "at storage version "+version)
		for _, owner := range w.owners() {
			w.Expect(owner).To(Equal("diengine.opendilab.org/"+version), "at storage version "+version)
		}
	}
	began := time.Now()
	for _, name := range names {
		job := w.job(name, "v2alpha1")
		w.Expect(cluster.client.Patch(t.Context(), job, client.RawPatch(types.MergePatchType, []byte(`{"metadata":{"labels":{"touched":"true"}}}`)))).To(Succeed())
	}
	t.Logf("a plain client writes %.0f objects a second", float64(len(names))/time.Since(began).Seconds())
}

// own creates a pod and a service that a job owns, as v0.2.2 wrote them.
func (w *world) own(job client.Object, name string) {
	made := metav1.ObjectMeta{Namespace: w.namespace, Name: name, OwnerReferences: []metav1.OwnerReference{{
		APIVersion: "diengine.opendilab.org/v1alpha1", Kind: "DIJob", Name: job.GetName(), UID: job.GetUID(),
		Controller: ptr.To(true), BlockOwnerDeletion: ptr.To(true),
	}}}
	w.create(
		&corev1.Pod{ObjectMeta: *made.DeepCopy(), Spec: corev1.PodSpec{Containers: []corev1.Container{{Name: "c", Image: "i"}}}},
		&corev1.Service{ObjectMeta: made, Spec: corev1.ServiceSpec{ClusterIP: corev1.ClusterIPNone, Ports: []corev1.ServicePort{{Port: 1}}}},
	)
}

// owners returns the versions in the owner references of pods and services.
func (w *world) owners() []string {
	var pods corev1.PodList
	var services corev1.ServiceList
	w.Expect(cluster.client.List(w.t.Context(), &pods, client.InNamespace(w.namespace))).To(Succeed())
	w.Expect(cluster.client.List(w.t.Context(), &services, client.InNamespace(w.namespace))).To(Succeed())
	var found []string
	for i := range pods.Items {
		found = append(found, pods.Items[i].OwnerReferences[0].APIVersion)
	}
	for i := range services.Items {
		found = append(found, services.Items[i].OwnerReferences[0].APIVersion)
	}
	w.Expect(found).To(HaveLen(2 * *jobsThereAndBack))
	return found
}

// contents returns the jobs in both versions and the AggregatorConfigs, without the fields that
// every write changes.
func (w *world) contents() map[string]any {
	found := map[string]any{}
	for _, kind := range []schema.GroupVersionKind{
		{Group: v2alpha1.GroupName, Version: "v1alpha1", Kind: "DIJobList"},
		{Group: v2alpha1.GroupName, Version: "v2alpha1", Kind: "DIJobList"},
		{Group: v2alpha1.GroupName, Version: "v1alpha1", Kind: "AggregatorConfigList"},
	} {
		var list unstructured.UnstructuredList
		list.SetGroupVersionKind(kind)
		w.Expect(cluster.client.List(w.t.Context(), &list, client.InNamespace(w.namespace))).To(Succeed())
		for i := range list.Items {
			object := &list.Items[i]
			object.SetResourceVersion("")
			object.SetManagedFields(nil)
			found[kind.String()+object.GetName()] = object.Object
		}
	}
	return found
}

func TestTheWayBackIsRefusedWhileThereAreJobsThatTheReleaseWouldMisrun(t *testing.T) {
	w := newWorld(t, "v2alpha1")
	workers := w.object(`{apiVersion: diengine.opendilab.org/v2alpha1, kind: DIJob, metadata: {name: workers},
  spec: {tasks: [{type: learner, template: {spec: {containers: [{name: di-container, image: di}]}}}]}}`)
	w.create(workers, w.job("led", "v1alpha1"))
	w.want("v1alpha1")
	m := storagemigration.New(w.options(cluster.client))
	for range 3 {
		w.step(m)
	}
	w.Expect(w.record("dijobs").Blocked).To(ContainSubstring(w.namespace + "/workers (it is led by its workers)"))
	w.Expect(w.record("dijobs").Blocked).NotTo(ContainSubstring("/led"))
	w.Expect(crds.StorageOf(w.definition(dijobs))).To(Equal("v2alpha1"))
	w.Expect(w.reasons()).To(ContainSubstring("StorageMigrationBlocked"))

	w.Expect(cluster.client.Delete(t.Context(), workers)).To(Succeed())
	w.Expect(w.migrate(cluster.client)).To(Succeed())
	w.expectMigrated("v1alpha1", "led")
	w.Expect(w.record("dijobs").Blocked).To(BeEmpty())
}

func TestAVersionCeasesToBeServedAndIsServedAgain(t *testing.T) {
	w := newWorld(t, "v1alpha1")
	applied := w.job("applied", "v1alpha1")
	w.Expect(cluster.client.Apply(t.Context(), client.ApplyConfigurationFromUnstructured(applied), client.FieldOwner("somebody"))).To(Succeed())
	w.create(w.aggregatorConfig("config"))

	// A version must be served while it is the desired storage version.
	w.annotate(crds.AnnotationStopServing, "v1alpha1")
	m := storagemigration.New(w.options(cluster.client))
	w.step(m)
	w.Expect(w.record("dijobs").Blocked).To(ContainSubstring("must be served while it is the desired storage version"))

	w.want("v2alpha1")
	w.Expect(w.migrate(cluster.client)).To(Succeed())
	w.expectMigrated("v2alpha1", "applied")
	w.expectServed("v2alpha1")
	for _, entry := range w.read("applied").ManagedFields {
		w.Expect(entry.APIVersion).NotTo(Equal("diengine.opendilab.org/v1alpha1"))
	}
	w.waitAnswer("v1alpha1", func(err error) bool { return apierrors.IsNotFound(err) || meta.IsNoMatchError(err) })
	w.patch("applied", `{"spec":{"group":"changed"}}`)
	w.Expect(admissionprobe.Probe(t.Context(), cluster.client, w.namespace)).To(Succeed(), "the probe goes the way that there is")

	// An installer leaves it unchanged.
	var printed bytes.Buffer
	w.Expect((&crds.Installer{API: cluster.client, Namespace: "di-system", Out: &printed}).Install(t.Context())).To(Succeed())
	w.expectServed("v2alpha1")

	w.annotate(crds.AnnotationStopServing, "")
	w.Expect(w.migrate(cluster.client)).To(Succeed())
	w.expectServed("v1alpha1", "v2alpha1")
	w.waitAnswer("v1alpha1", func(err error) bool { return err == nil })
	w.Expect(w.reasons()).To(And(ContainSubstring("VersionNotServed"), ContainSubstring("VersionServed")))
}

func (w *world) expectServed(versions ...string) {
	w.t.Helper()
	for _, name := range []string{dijobs, aggregatorconfigs} {
		var served []string
		for _, version := range w.definition(name).Spec.Versions {
			if version.Served {
				served = append(served, version.Name)
			}
		}
		w.Expect(served).To(Equal(versions), name)
	}
}

// waitAnswer waits until reading job applied at a version returns the expected error.
func (w *world) waitAnswer(version string, is func(error) bool) {
	w.t.Helper()
	job := &unstructured.Unstructured{}
	job.SetGroupVersionKind(schema.GroupVersionKind{Group: v2alpha1.GroupName, Version: version, Kind: "DIJob"})
	w.Eventually(func() error {
		return cluster.client.Get(w.t.Context(), client.ObjectKey{Namespace: w.namespace, Name: "applied"}, job)
	}).Should(Satisfy(is))
}

func TestARunningOperatorFollowsTheDesiredVersion(t *testing.T) {
	w := newWorld(t, "v2alpha1")
	w.create(w.job("job", "v2alpha1"))
	mgr, err := ctrl.NewManager(cluster.Config, ctrl.Options{
		Scheme: cluster.client.Scheme(), Cache: controllers.CacheOptions(), Metrics: metricsserver.Options{BindAddress: "0"},
	})
	w.Expect(err).NotTo(HaveOccurred())
	definitions, err := storagemigration.WatchDefinitions(mgr)
	w.Expect(err).NotTo(HaveOccurred())
	options := w.options(cluster.client)
	options.Cached, options.Settle, options.Clock = mgr.GetClient(), 0, nil
	options.Metrics, err = storagemigration.NewMetrics(prometheus.NewRegistry())
	w.Expect(err).NotTo(HaveOccurred())
	w.Expect(storagemigration.Setup(mgr, definitions, options)).To(Succeed())
	running, stop := context.WithCancel(t.Context())
	ended := make(chan error, 1)
	go func() { ended <- mgr.Start(running) }()
	defer func() {
		stop()
		w.Expect(<-ended).To(Succeed())
	}()
	for _, version := range []string{"v1alpha1", "v2alpha1"} {
		w.want(version)
		w.Eventually(func() []string { return w.definition(dijobs).Status.StoredVersions }).Should(Equal([]string{version}))
		w.Expect(w.storedAs("dijobs", "job")).To(Equal(version))
		w.Eventually(func() (string, error) { return definitions.JobVersion(running) }).Should(Equal(version))
	}
}
