// Copyright The DI Orchestrator Authors.
// SPDX-License-Identifier: Apache-2.0

// Package migration tests the migration of stored objects to another version on a real API server
// and etcd.
package migration

import (
	"context"
	"encoding/json"
	"fmt"
	"os"
	"testing"
	"time"

	"github.com/go-logr/logr"
	. "github.com/onsi/gomega"
	"github.com/prometheus/client_golang/prometheus"
	corev1 "k8s.io/api/core/v1"
	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/tools/events"
	clocktesting "k8s.io/utils/clock/testing"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/log"
	"sigs.k8s.io/yaml"

	"opendilab.org/di-orchestrator/apis/v2alpha1"
	"opendilab.org/di-orchestrator/test/testkit"
	"opendilab.org/di-orchestrator/test/testkit/etcd"
	"opendilab.org/di-orchestrator/test/webhooks"
	"opendilab.org/di-orchestrator/upgrade/crds"
	"opendilab.org/di-orchestrator/upgrade/migration"
	"opendilab.org/di-orchestrator/upgrade/storagemigration"
	"opendilab.org/di-orchestrator/webhook/admissionprobe"
)

// These are the names of the definitions.
const (
	dijobs            = "dijobs." + v2alpha1.GroupName
	aggregatorconfigs = "aggregatorconfigs." + v2alpha1.GroupName
)

// cluster is the API server of all tests. They run one after the other because the API server has
// one definition of each kind.
var cluster struct {
	*webhooks.API
	client client.WithWatch
}

func TestMain(m *testing.M) {
	log.SetLogger(logr.Discard())
	code, err := run(m)
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		code = 1
	}
	os.Exit(code)
}

func run(m *testing.M) (code int, err error) {
	if cluster.API, err = webhooks.StartAPIWithWebhooks(context.Background()); err != nil {
		return 1, err
	}
	defer func() { err = cluster.Stop() }()
	if cluster.client, err = testkit.NewClient(cluster.Config); err != nil {
		return 1, err
	}
	return m.Run(), nil
}

// world is the environment of one test: a namespace, and a clock for the operator.
type world struct {
	*WithT
	t         *testing.T
	namespace string
	clock     *clocktesting.FakePassiveClock
	events    *events.FakeRecorder
}

// newWorld returns a world in which the given version is the storage version of all kinds and both
// versions are served.
func newWorld(t *testing.T, storage string) *world {
	t.Helper()
	w := &world{WithT: NewWithT(t), t: t, clock: clocktesting.NewFakePassiveClock(time.Now()), events: events.NewFakeRecorder(1000)}
	w.SetDefaultEventuallyTimeout(testkit.Patience)
	namespace := &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{GenerateName: "migration-"}}
	w.Expect(cluster.client.Create(t.Context(), namespace)).To(Succeed())
	w.namespace = namespace.Name
	for _, name := range []string{dijobs, aggregatorconfigs} {
		w.change(name, func(definition *apiextensionsv1.CustomResourceDefinition) {
			definition.Annotations[crds.AnnotationStorageVersion] = storage
			definition.Annotations[crds.AnnotationStopServing] = ""
			definition.Spec = crds.WithoutServing(crds.WithStorage(definition, storage), "").Spec
		})
		// No object remains from earlier tests.
		w.changeStatus(name, func(definition *apiextensionsv1.CustomResourceDefinition) {
			definition.Status.StoredVersions = []string{storage}
		})
	}
	w.waitServed("v1alpha1", storage)
	t.Cleanup(w.end)
	return w
}

// end deletes the created objects, so that none remains stored.
func (w *world) end() {
	ctx := context.WithoutCancel(w.t.Context())
	for _, list := range []client.ObjectList{&v2alpha1.DIJobList{}, &v2alpha1.AggregatorConfigList{}} {
		w.Expect(cluster.client.List(ctx, list)).To(Succeed())
		for _, object := range objectsOf(list) {
			object.SetFinalizers(nil)
			w.Expect(client.IgnoreNotFound(cluster.client.Patch(ctx, object, client.RawPatch(types.MergePatchType, []byte(`{"metadata":{"finalizers":null}}`))))).To(Succeed())
			w.Expect(client.IgnoreNotFound(cluster.client.Delete(ctx, object))).To(Succeed())
		}
	}
	record := &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Namespace: w.namespace, Name: migration.RecordName}}
	w.Expect(client.IgnoreNotFound(cluster.client.Delete(ctx, record))).To(Succeed())
}

func objectsOf(list client.ObjectList) []client.Object {
	var found []client.Object
	switch list := list.(type) {
	case *v2alpha1.DIJobList:
		for i := range list.Items {
			found = append(found, &list.Items[i])
		}
	case *v2alpha1.AggregatorConfigList:
		for i := range list.Items {
			found = append(found, &list.Items[i])
		}
	}
	return found
}

func (w *world) definition(name string) *apiextensionsv1.CustomResourceDefinition {
	definition := &apiextensionsv1.CustomResourceDefinition{}
	w.Expect(cluster.client.Get(w.t.Context(), client.ObjectKey{Name: name}, definition)).To(Succeed())
	return definition
}

// change changes a definition and retries, because the webhooks also write it.
func (w *world) change(name string, change func(*apiextensionsv1.CustomResourceDefinition)) {
	w.t.Helper()
	w.Eventually(func() error {
		definition := w.definition(name)
		change(definition)
		return cluster.client.Update(w.t.Context(), definition)
	}).Should(Succeed())
}

func (w *world) changeStatus(name string, change func(*apiextensionsv1.CustomResourceDefinition)) {
	w.t.Helper()
	w.Eventually(func() error {
		definition := w.definition(name)
		change(definition)
		return cluster.client.Status().Update(w.t.Context(), definition)
	}).Should(Succeed())
}

// want sets the desired storage version as an administrator does.
func (w *world) want(version string) { w.annotate(crds.AnnotationStorageVersion, version) }

func (w *world) annotate(key, value string) {
	w.t.Helper()
	w.change(dijobs, func(definition *apiextensionsv1.CustomResourceDefinition) { definition.Annotations[key] = value })
}

// waitServed waits until jobs that are created at one version are stored in another. The API server
// learns of both by its own watch.
func (w *world) waitServed(at, stored string) {
	w.t.Helper()
	w.Eventually(func(g Gomega) {
		job := w.job("probe", at)
		g.Expect(cluster.client.Create(w.t.Context(), job)).To(Succeed())
		defer func() { g.Expect(cluster.client.Delete(w.t.Context(), job)).To(Succeed()) }()
		g.Expect(w.storedAs("dijobs", "probe")).To(Equal(stored))
	}).Should(Succeed())
}

// options returns the options of an operator for the tests' API server.
func (w *world) options(api client.Client) storagemigration.Options {
	metrics, err := storagemigration.NewMetrics(prometheus.NewRegistry())
	w.Expect(err).NotTo(HaveOccurred())
	takenOver := make(chan struct{})
	close(takenOver)
	return storagemigration.Options{
		API: api, Cached: api, Recorder: w.events, Namespace: w.namespace, TakenOver: takenOver, Metrics: metrics,
		Clock: w.clock, Settle: time.Hour, Page: 4,
		Probe: func(ctx context.Context) error { return admissionprobe.Probe(ctx, cluster.client, w.namespace) },
	}
}

// migrate takes steps until the migration is complete, or returns the first error. It advances the
// clock to the next step.
func (w *world) migrate(api client.Client) error {
	m := storagemigration.New(w.options(api))
	for range 1000 {
		rests := true
		for _, name := range []string{dijobs, aggregatorconfigs} {
			result, err := m.Reconcile(w.t.Context(), ctrl.Request{NamespacedName: types.NamespacedName{Name: name}})
			if err != nil {
				return err
			}
			rests = rests && result.RequeueAfter == 0
			w.clock.SetTime(w.clock.Now().Add(result.RequeueAfter))
		}
		if rests {
			return nil
		}
	}
	return fmt.Errorf("the migration comes to no rest: %+v", w.record("dijobs"))
}

// step takes one step of the migration of jobs.
func (w *world) step(m *storagemigration.Reconciler) ctrl.Result {
	w.t.Helper()
	result, err := m.Reconcile(w.t.Context(), ctrl.Request{NamespacedName: types.NamespacedName{Name: dijobs}})
	w.Expect(err).NotTo(HaveOccurred())
	return result
}

func (w *world) record(resource string) migration.Record {
	stored := &corev1.ConfigMap{}
	key := client.ObjectKey{Namespace: w.namespace, Name: migration.RecordName}
	w.Expect(client.IgnoreNotFound(cluster.client.Get(w.t.Context(), key, stored))).To(Succeed())
	var record migration.Record
	if content := stored.Data[resource]; content != "" {
		w.Expect(json.Unmarshal([]byte(content), &record)).To(Succeed())
	}
	return record
}

// storedAs returns the version in which an object is stored in etcd.
func (w *world) storedAs(resource, name string) string {
	w.t.Helper()
	value, err := w.etcd().Get(w.t.Context(), w.key(resource, name))
	if err != nil {
		return err.Error()
	}
	var stored metav1.TypeMeta
	w.Expect(json.Unmarshal(value, &stored)).To(Succeed())
	return stored.GroupVersionKind().Version
}

// store writes an object directly into etcd.
func (w *world) store(resource, name string, object map[string]any) {
	w.t.Helper()
	content, err := json.Marshal(object)
	w.Expect(err).NotTo(HaveOccurred())
	w.Expect(w.etcd().Put(w.t.Context(), []etcd.Value{{Key: []byte(w.key(resource, name)), Value: content}})).To(Succeed())
}

func (w *world) key(resource, name string) string {
	return fmt.Sprintf("/registry/%s/%s/%s/%s", v2alpha1.GroupName, resource, w.namespace, name)
}

func (*world) etcd() etcd.Store { return etcd.Store{URL: cluster.ControlPlane.Etcd.URL} }

// object parses a manifest.
func (w *world) object(manifest string) *unstructured.Unstructured {
	object := &unstructured.Unstructured{}
	w.Expect(yaml.Unmarshal([]byte(manifest), &object.Object)).To(Succeed())
	object.SetNamespace(w.namespace)
	return object
}

// job returns a coordinator-led job at a version.
func (w *world) job(name, version string) *unstructured.Unstructured {
	const template = `{metadata: {labels: {a: b}}, spec: {containers: [{name: di-container, image: di, command: [train]}]}}`
	if version == "v1alpha1" {
		return w.object(`{apiVersion: diengine.opendilab.org/v1alpha1, kind: DIJob, metadata: {name: ` + name + `},
  spec: {group: g, priorityClassName: default, coordinator: {template: ` + template + `}, collector: {template: ` + template + `}, learner: {template: ` + template + `}}}`)
	}
	return w.object(`{apiVersion: diengine.opendilab.org/v2alpha1, kind: DIJob, metadata: {name: ` + name + `},
  spec: {lifecycle: CoordinatorLed, tasks: [{type: coordinator, template: ` + template + `}]}}`)
}

func (w *world) create(objects ...client.Object) {
	w.t.Helper()
	for _, object := range objects {
		w.Expect(cluster.client.Create(w.t.Context(), object)).To(Succeed())
	}
}

// aggregatorConfig returns an AggregatorConfig of v1alpha1.
func (w *world) aggregatorConfig(name string) *unstructured.Unstructured {
	return w.object(`{apiVersion: diengine.opendilab.org/v1alpha1, kind: AggregatorConfig, metadata: {name: ` + name + `},
  spec: {aggregator: {template: {spec: {containers: [{name: di-container, image: di}]}}}}}`)
}
