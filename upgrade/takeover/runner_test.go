// Copyright The DI Orchestrator Authors.
// SPDX-License-Identifier: Apache-2.0

package takeover_test

import (
	"context"
	"errors"
	"os"
	"sync/atomic"
	"testing"
	"time"

	"github.com/go-logr/logr"
	. "github.com/onsi/gomega"
	"github.com/prometheus/client_golang/prometheus"
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/tools/events"
	clocktesting "k8s.io/utils/clock/testing"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/envtest"

	"opendilab.org/di-orchestrator/test/testkit"
	"opendilab.org/di-orchestrator/upgrade/takeover"
)

var environment *envtest.Environment

func TestMain(m *testing.M) {
	os.Exit(testkit.RunOnBareAPI(m, &environment))
}

const definition = "dijobs.diengine.opendilab.org"

// running is a takeover that runs on a clock controlled by the test.
type running struct {
	*WithT
	api       client.Client
	namespace string
	clock     *clocktesting.FakeClock
	events    *events.FakeRecorder
	metrics   *prometheus.Registry
	runner    *takeover.Runner
	// refused makes the probe fail.
	refused atomic.Bool
}

// start creates an earlier operator in a namespace of its own, and runs the takeover until the test
// ends.
func start(t *testing.T) *running {
	t.Helper()
	r := &running{
		WithT: NewWithT(t), clock: clocktesting.NewFakeClock(time.Now()), events: events.NewFakeRecorder(100), metrics: prometheus.NewRegistry(),
	}
	r.SetDefaultEventuallyTimeout(testkit.Patience)
	api, err := testkit.NewClient(environment.Config)
	r.Expect(err).NotTo(HaveOccurred())
	r.api = api
	namespace := &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{GenerateName: "takeover-"}}
	r.Expect(api.Create(t.Context(), namespace)).To(Succeed())
	r.namespace = namespace.Name
	r.define(t)
	r.leaveOperator(t)
	metrics, err := takeover.NewMetrics(r.metrics)
	r.Expect(err).NotTo(HaveOccurred())
	r.runner = takeover.New(takeover.Options{
		API: api, Namespace: r.namespace, Definition: definition, Recorder: r.events, Metrics: metrics, Clock: r.clock, Log: logr.Discard(),
		Probe: func(context.Context) error {
			if r.refused.Load() {
				return errors.New("no answer")
			}
			return nil
		},
	})
	ctx, stop := context.WithCancel(t.Context())
	ended := make(chan error, 1)
	go func() { ended <- r.runner.Start(ctx) }()
	t.Cleanup(func() {
		stop()
		r.Expect(<-ended).To(Succeed())
	})
	return r
}

// define creates the definition that records the progress.
func (r *running) define(t *testing.T) {
	t.Helper()
	made := &apiextensionsv1.CustomResourceDefinition{ObjectMeta: metav1.ObjectMeta{Name: definition}}
	made.Spec = apiextensionsv1.CustomResourceDefinitionSpec{
		Group: "diengine.opendilab.org", Scope: apiextensionsv1.NamespaceScoped,
		Names: apiextensionsv1.CustomResourceDefinitionNames{Plural: "dijobs", Kind: "DIJob"},
		Versions: []apiextensionsv1.CustomResourceDefinitionVersion{{Name: "v1alpha1", Served: true, Storage: true, Schema: &apiextensionsv1.CustomResourceValidation{
			OpenAPIV3Schema: &apiextensionsv1.JSONSchemaProps{Type: "object"},
		}}},
	}
	r.Expect(r.api.Create(t.Context(), made)).To(Succeed())
	t.Cleanup(func() {
		ctx := context.WithoutCancel(t.Context())
		r.Expect(r.api.Delete(ctx, made)).To(Succeed())
		r.Eventually(func() error { return r.api.Get(ctx, client.ObjectKeyFromObject(made), made) }).ShouldNot(Succeed())
	})
}

// leaveOperator creates a Deployment of v0.2.2 and its pod, which keeps running.
func (r *running) leaveOperator(t *testing.T) {
	t.Helper()
	labels := map[string]string{"control-plane": "di-operator", appsv1.DefaultDeploymentUniqueLabelKey: "5d9c"}
	template := corev1.PodTemplateSpec{ObjectMeta: metav1.ObjectMeta{Labels: labels}, Spec: corev1.PodSpec{Containers: []corev1.Container{{Name: "manager", Image: "i"}}}}
	r.Expect(r.api.Create(t.Context(), &appsv1.Deployment{
		ObjectMeta: metav1.ObjectMeta{Namespace: r.namespace, Name: "di-operator"},
		Spec:       appsv1.DeploymentSpec{Selector: &metav1.LabelSelector{MatchLabels: labels}, Template: template},
	})).To(Succeed())
	r.Expect(r.api.Create(t.Context(), &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{Namespace: r.namespace, Name: "di-operator-5d9c-x", Labels: labels, OwnerReferences: []metav1.OwnerReference{{
			APIVersion: "apps/v1", Kind: "ReplicaSet", Name: "di-operator-5d9c", UID: "1", Controller: ptr.To(true),
		}}},
		Spec: template.Spec,
	})).To(Succeed())
}

// pass advances the clock when the takeover waits, and returns after its next observation.
func (r *running) pass(time time.Duration) {
	r.Eventually(r.clock.HasWaiters).Should(BeTrue())
	r.clock.Step(time)
	r.Eventually(r.clock.HasWaiters).Should(BeTrue())
}

// waiting returns the seconds that each step has waited.
func (r *running) waiting() map[string]float64 {
	families, err := r.metrics.Gather()
	r.Expect(err).NotTo(HaveOccurred())
	found := map[string]float64{}
	for _, family := range families {
		for _, metric := range family.GetMetric() {
			found[metric.GetLabel()[0].GetValue()] = metric.GetGauge().GetValue()
		}
	}
	return found
}

// warnings returns the Warnings that were recorded since the last call.
func (r *running) warnings() []string {
	var sent []string
	for {
		select {
		case event := <-r.events.Events:
			if event[:len(corev1.EventTypeWarning)] == corev1.EventTypeWarning {
				sent = append(sent, event)
			}
		default:
			return sent
		}
	}
}

// endPod deletes the pod of the earlier operator.
func (r *running) endPod(t *testing.T) {
	t.Helper()
	pod := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: r.namespace, Name: "di-operator-5d9c-x"}}
	r.Expect(r.api.Delete(t.Context(), pod, client.GracePeriodSeconds(0))).To(Succeed())
}

// The takeovers share the definition, so they run sequentially.
func TestAStalledTakeover(t *testing.T) {
	t.Run("is reported after a minute, and seldom after that", func(t *testing.T) {
		r := start(t)
		r.pass(59 * time.Second)
		r.Expect(r.warnings()).To(BeEmpty())
		r.Expect(r.waiting()).To(Equal(map[string]float64{"AwaitOperator": 59}))
		r.pass(time.Second)
		r.Expect(r.warnings()).To(ConsistOf(
			"Warning TakeoverStalled AwaitOperator: no progress for 1m0s; waits for the end of pods di-operator-5d9c-x; " +
				"if the node of such a pod is lost, force-delete the pod once you are sure that it no longer runs"))
		r.pass(59 * time.Second)
		r.Expect(r.warnings()).To(BeEmpty())
		r.pass(time.Second)
		r.Expect(r.warnings()).To(HaveLen(1))

		// The next step has a minute of its own, and its Event contains the last error.
		r.refused.Store(true)
		r.endPod(t)
		r.pass(time.Second)
		r.Expect(r.waiting()).To(Equal(map[string]float64{"Probe": 0}))
		r.pass(time.Minute)
		r.Expect(r.warnings()).To(ConsistOf(And(HavePrefix("Warning TakeoverStalled Probe: no progress for 1m0s; "), ContainSubstring("no answer"))))

		r.refused.Store(false)
		r.Eventually(r.clock.HasWaiters).Should(BeTrue())
		r.clock.Step(time.Second)
		r.Eventually(r.runner.Done()).Should(BeClosed())
		r.Eventually(r.waiting).Should(BeEmpty())
	})
	t.Run("is reported also where a tool undoes a step again and again", func(t *testing.T) {
		r := start(t)
		for range 4 {
			r.pass(20 * time.Second)
			scaledUp := &appsv1.Deployment{ObjectMeta: metav1.ObjectMeta{Namespace: r.namespace, Name: "di-operator"}}
			r.Expect(r.api.Patch(t.Context(), scaledUp, client.RawPatch(types.MergePatchType, []byte(`{"spec":{"replicas":1}}`)))).To(Succeed())
		}
		r.Expect(r.warnings()).To(HaveLen(1))
	})
}
