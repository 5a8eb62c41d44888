// Copyright The DI Orchestrator Authors.
// SPDX-License-Identifier: Apache-2.0

package takeover_test

import (
	"context"
	"fmt"
	"io"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/go-logr/logr"
	. "github.com/onsi/gomega"
	"github.com/prometheus/client_golang/prometheus"
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/intstr"
	"k8s.io/client-go/tools/events"
	clocktesting "k8s.io/utils/clock/testing"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"

	"opendilab.org/di-orchestrator/test/testkit"
	"opendilab.org/di-orchestrator/upgrade/takeover"
)

const (
	settle = 5 * time.Second
	// late is the maximum delay until a node learns of a change.
	late = settle - time.Millisecond
	// bridgeManager manages the EndpointSlices of bridges.
	bridgeManager = "takeover.diengine.opendilab.org"
)

// moment is the state from a time on.
type moment struct {
	since    time.Time
	services []corev1.Service
	slices   []discoveryv1.EndpointSlice
}

// nodes model kube-proxy: they learn of Services and of endpoints by separate updates, which arrive
// late and in any order. They record the calls that would have failed.
type nodes struct {
	*WithT
	// api triggers an observation after each write, and bare does not.
	api, bare client.Client
	namespace string
	clock     *clocktesting.FakeClock

	mu      sync.Mutex
	moments []moment
	ended   []string
	failed  []string
}

// happened updates the control plane and the nodes to the current state.
func (n *nodes) happened(ctx context.Context) {
	n.mu.Lock()
	defer n.mu.Unlock()
	n.look(ctx)
	n.Expect(testkit.SyncEndpoints(ctx, n.bare, n.namespace)).To(Succeed())
	n.look(ctx)
}

func (n *nodes) look(ctx context.Context) {
	var services corev1.ServiceList
	var found discoveryv1.EndpointSliceList
	n.Expect(n.bare.List(ctx, &services, client.InNamespace(n.namespace))).To(Succeed())
	n.Expect(n.bare.List(ctx, &found, client.InNamespace(n.namespace))).To(Succeed())
	n.moments = append(n.moments, moment{n.clock.Now(), services.Items, found.Items})
	known := n.moments[n.oldest():]
	for _, of := range known {
		for _, and := range known {
			n.call(of.services, and.slices)
		}
	}
	n.expectOurs(services.Items, found.Items)
}

// expectOurs records when a node that knows everything sends calls to a pod that is not ready,
// though the control plane lists a ready one.
func (n *nodes) expectOurs(services []corev1.Service, known []discoveryv1.EndpointSlice) {
	written := slices.DeleteFunc(slices.Clone(known), func(slice discoveryv1.EndpointSlice) bool {
		return slice.Labels[discoveryv1.LabelManagedBy] == bridgeManager
	})
	for i := range services {
		for _, port := range services[i].Spec.Ports {
			right, ready := testkit.PodsBehind(written, services[i].Name, port.Name)
			pods, _ := testkit.PodsBehind(known, services[i].Name, port.Name)
			if ready && slices.ContainsFunc(pods, func(pod string) bool { return !slices.Contains(right, pod) }) {
				n.failed = append(n.failed, fmt.Sprintf("%s %s: leads to %v, though %v are ready", services[i].Name, port.Name, pods, right))
			}
		}
	}
}

// oldest returns the earliest state that some node may still consider current.
func (n *nodes) oldest() int {
	i := len(n.moments) - 1
	for i > 0 && n.moments[i].since.After(n.clock.Now().Add(-late)) {
		i--
	}
	return i
}

// call makes a call to the port of v0.2.2 from a node with this knowledge.
func (n *nodes) call(services []corev1.Service, known []discoveryv1.EndpointSlice) {
	for i := range services {
		for _, port := range services[i].Spec.Ports {
			if port.Port != 8080 {
				continue
			}
			pods, _ := testkit.PodsBehind(known, services[i].Name, port.Name)
			at := services[i].Name + " " + port.Name
			if len(pods) == 0 {
				n.failed = append(n.failed, at+": refused")
			}
			for _, pod := range pods {
				if slices.Contains(n.ended, pod) {
					n.failed = append(n.failed, at+": "+pod+" has ended")
				}
			}
		}
	}
}

// recorded returns a client that triggers an observation after each write. A pod of an earlier
// di-server ends when its Deployment is scaled to zero.
func (n *nodes) recorded(api client.WithWatch) client.Client {
	return interceptor.NewClient(api, interceptor.Funcs{
		Create: func(ctx context.Context, api client.WithWatch, object client.Object, options ...client.CreateOption) error {
			defer n.happened(ctx)
			return api.Create(ctx, object, options...)
		},
		Patch: func(ctx context.Context, api client.WithWatch, object client.Object, patch client.Patch, options ...client.PatchOption) error {
			defer n.happened(ctx)
			return api.Patch(ctx, object, patch, options...)
		},
		Delete: func(ctx context.Context, api client.WithWatch, object client.Object, options ...client.DeleteOption) error {
			defer n.happened(ctx)
			return api.Delete(ctx, object, options...)
		},
		SubResourceUpdate: func(ctx context.Context, api client.Client, name string, object client.Object, options ...client.SubResourceUpdateOption) error {
			err := api.SubResource(name).Update(ctx, object, options...)
			if err == nil && name == "scale" {
				n.end(ctx)
			}
			return err
		},
	})
}

func (n *nodes) end(ctx context.Context) {
	n.mu.Lock()
	n.ended = append(n.ended, "di-server-5d9c-x")
	n.look(ctx)
	n.mu.Unlock()
	pod := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: n.namespace, Name: "di-server-5d9c-x"}}
	n.Expect(n.bare.Delete(ctx, pod, client.GracePeriodSeconds(0))).To(Succeed())
	n.happened(ctx)
}

func (n *nodes) failures() []string {
	n.mu.Lock()
	defer n.mu.Unlock()
	return n.failed
}

// installed returns a v0.2.2 with only its di-server left, and nodes that call it.
func installed(t *testing.T) *nodes {
	t.Helper()
	n := &nodes{WithT: NewWithT(t), clock: clocktesting.NewFakeClock(time.Now())}
	n.SetDefaultEventuallyTimeout(testkit.Patience)
	api, err := testkit.NewClient(environment.Config)
	n.Expect(err).NotTo(HaveOccurred())
	n.api, n.bare = api, api
	namespace := &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{GenerateName: "endpoints-"}}
	n.Expect(api.Create(t.Context(), namespace)).To(Succeed())
	n.namespace = namespace.Name

	selector := map[string]string{"control-plane": "di-server"}
	n.pod(t, "di-server-5d9c-x", "10.0.0.1", map[string]string{"control-plane": "di-server", appsv1.DefaultDeploymentUniqueLabelKey: "5d9c"})
	n.Expect(api.Create(t.Context(), &appsv1.Deployment{
		ObjectMeta: metav1.ObjectMeta{Namespace: n.namespace, Name: "di-server"},
		Spec: appsv1.DeploymentSpec{
			Replicas: ptr.To[int32](1), Selector: &metav1.LabelSelector{MatchLabels: selector},
			Template: corev1.PodTemplateSpec{
				ObjectMeta: metav1.ObjectMeta{Labels: selector}, Spec: corev1.PodSpec{Containers: []corev1.Container{{Name: "server", Image: "i"}}},
			},
		},
	})).To(Succeed())
	for _, name := range []string{"di-server", "di-server-nodeport"} {
		n.Expect(api.Create(t.Context(), &corev1.Service{
			ObjectMeta: metav1.ObjectMeta{Namespace: n.namespace, Name: name},
			Spec:       corev1.ServiceSpec{Selector: selector, Ports: []corev1.ServicePort{{Port: 8080, TargetPort: intstr.FromInt32(8080)}}},
		})).To(Succeed())
	}
	n.Expect(testkit.SyncEndpoints(t.Context(), n.bare, n.namespace)).To(Succeed())
	n.happened(t.Context())
	n.Expect(n.failures()).To(BeEmpty())
	n.api = n.recorded(api)
	return n
}

// pod creates a ready pod.
func (n *nodes) pod(t *testing.T, name, ip string, labels map[string]string) {
	t.Helper()
	pod := &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{Namespace: n.namespace, Name: name, Labels: labels},
		Spec: corev1.PodSpec{Containers: []corev1.Container{{
			Name: "server", Image: "i", Ports: []corev1.ContainerPort{{Name: "tls", ContainerPort: 8443}},
		}}},
	}
	if hash := labels[appsv1.DefaultDeploymentUniqueLabelKey]; hash != "" {
		pod.OwnerReferences = []metav1.OwnerReference{{APIVersion: "apps/v1", Kind: "ReplicaSet", Name: "di-server-" + hash, UID: "1", Controller: ptr.To(true)}}
		pod.Spec.Containers[0].Ports = nil
		// Without a node, its deletion would have no grace period.
		pod.Spec.NodeName = "node"
	}
	n.Expect(n.api.Create(t.Context(), pod)).To(Succeed())
	pod.Status = corev1.PodStatus{
		Phase: corev1.PodRunning, PodIP: ip, PodIPs: []corev1.PodIP{{IP: ip}},
		Conditions: []corev1.PodCondition{{Type: corev1.PodReady, Status: corev1.ConditionTrue}},
	}
	n.Expect(n.api.Status().Update(t.Context(), pod)).To(Succeed())
}

// serve makes a di-server of this release ready.
func (n *nodes) serve(t *testing.T) {
	t.Helper()
	n.pod(t, "di-orchestrator-server-1", "10.0.0.2", map[string]string{
		"app.kubernetes.io/name": "di-orchestrator", "app.kubernetes.io/component": "server", "control-plane": "di-server",
	})
	n.happened(t.Context())
}

// terminate deletes the Deployment of the earlier di-server, and lets its pod terminate.
func (n *nodes) terminate(t *testing.T, grace int64) {
	t.Helper()
	n.Expect(n.api.Delete(t.Context(), &appsv1.Deployment{ObjectMeta: metav1.ObjectMeta{Namespace: n.namespace, Name: "di-server"}})).To(Succeed())
	pod := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: n.namespace, Name: "di-server-5d9c-x"}}
	n.Expect(n.api.Delete(t.Context(), pod, client.GracePeriodSeconds(grace))).To(Succeed())
	n.Expect(n.api.Get(t.Context(), client.ObjectKeyFromObject(pod), pod)).To(Succeed())
	n.Expect(pod.DeletionTimestamp).NotTo(BeNil())
}

// bridges returns the names of the bridges.
func (n *nodes) bridges(t *testing.T) []string {
	t.Helper()
	var found discoveryv1.EndpointSliceList
	n.Expect(n.api.List(t.Context(), &found, client.InNamespace(n.namespace),
		client.MatchingLabels{discoveryv1.LabelManagedBy: bridgeManager})).To(Succeed())
	var all []string
	for i := range found.Items {
		all = append(all, found.Items[i].Name)
	}
	return all
}

// bridge runs a bridge until it returns.
func (n *nodes) bridge(build func(*takeover.Bridge) error) {
	ended := make(chan error, 1)
	go func() {
		ended <- build(&takeover.Bridge{API: n.api, Namespace: n.namespace, Settle: settle, Clock: n.clock, Out: io.Discard})
	}()
	n.Eventually(n.clock.HasWaiters).Should(BeTrue())
	n.clock.Step(settle)
	n.Eventually(ended).Should(Receive(BeNil()))
}

// rename sets the ports of Service di-server.
func (n *nodes) rename(t *testing.T, ports ...corev1.ServicePort) {
	t.Helper()
	service := &corev1.Service{}
	n.Expect(n.api.Get(t.Context(), client.ObjectKey{Namespace: n.namespace, Name: "di-server"}, service)).To(Succeed())
	before := service.DeepCopy()
	service.Spec.Ports = ports
	n.Expect(n.api.Patch(t.Context(), service, client.MergeFrom(before))).To(Succeed())
}

func ourPorts() []corev1.ServicePort {
	return []corev1.ServicePort{
		{Name: "v1", Port: 8080, TargetPort: intstr.FromInt32(8080)},
		{Name: "v2", Port: 8081, TargetPort: intstr.FromInt32(8081)},
		{Name: "tls", Port: 8443, TargetPort: intstr.FromString("tls")},
	}
}

// takeOver runs the takeover until the earlier di-server has zero replicas and the selectors of
// Services are restored. It calls a function before each second.
func (n *nodes) takeOver(t *testing.T, before func(second int)) {
	t.Helper()
	metrics, err := takeover.NewMetrics(prometheus.NewRegistry())
	n.Expect(err).NotTo(HaveOccurred())
	runner := takeover.New(takeover.Options{
		API: n.api, Namespace: n.namespace, Definition: definition, Recorder: events.NewFakeRecorder(100), Metrics: metrics, Clock: n.clock,
		Settle: settle, Log: logr.Discard(), Probe: func(context.Context) error { return nil },
	})
	ctx, stop := context.WithCancel(t.Context())
	ended := make(chan error, 1)
	go func() { ended <- runner.Start(ctx) }()
	second := 0
	n.Eventually(func() bool {
		select {
		case <-runner.Done():
			return true
		default:
			if n.clock.HasWaiters() {
				second++
				before(second)
				n.clock.Step(time.Second)
			}
			return false
		}
	}).Should(BeTrue())
	stop()
	n.Expect(<-ended).To(Succeed())
}

func TestEveryNodeSendsEachCallToAReadyPod(t *testing.T) {
	t.Run("while v0.2.2 is taken over", func(t *testing.T) {
		n := installed(t)
		(&running{WithT: n.WithT, api: n.api, namespace: n.namespace}).define(t)
		n.bridge(func(b *takeover.Bridge) error { return b.Ahead(t.Context()) })
		n.rename(t, ourPorts()...)
		n.Expect(n.failures()).To(BeEmpty())
		n.serve(t)
		n.takeOver(t, func(int) {})
		n.Expect(n.ended).NotTo(BeEmpty())
		n.Expect(n.failures()).To(BeEmpty())

		var left corev1.ServiceList
		n.Expect(n.api.List(t.Context(), &left, client.InNamespace(n.namespace))).To(Succeed())
		for i := range left.Items {
			n.Expect(left.Items[i].Spec.Selector).To(Equal(map[string]string{"control-plane": "di-server"}))
		}
		n.Expect(n.bridges(t)).To(BeEmpty())
	})
	t.Run("while Helm deletes the Deployment of a di-server that answers for its grace period", func(t *testing.T) {
		n := installed(t)
		(&running{WithT: n.WithT, api: n.api, namespace: n.namespace}).define(t)
		n.bridge(func(b *takeover.Bridge) error { return b.Ahead(t.Context()) })
		n.rename(t, ourPorts()...)
		n.terminate(t, 10)
		n.Expect(n.failures()).To(BeEmpty())
		n.takeOver(t, func(second int) {
			switch second {
			case 2:
				n.serve(t)
			case 9:
				n.Expect(n.bridges(t)).To(BeEmpty(), "they are deleted before the pod ends")
			case 10:
				n.end(t.Context())
			}
		})
		n.Expect(n.ended).NotTo(BeEmpty())
		n.Expect(n.failures()).To(BeEmpty())
		n.Expect(n.bridges(t)).To(BeEmpty())
	})
	t.Run("while its own Service is put back", func(t *testing.T) {
		n := installed(t)
		n.bridge(func(b *takeover.Bridge) error { return b.Ahead(t.Context()) })
		n.rename(t, ourPorts()...)
		n.clock.Step(settle)
		n.bridge(func(b *takeover.Bridge) error { return b.Back(t.Context(), 8080) })
		n.rename(t, corev1.ServicePort{Port: 8080, TargetPort: intstr.FromInt32(8080)})
		n.Expect(n.failures()).To(BeEmpty())
	})
	t.Run("but would where its Service is renamed without a bridge", func(t *testing.T) {
		n := installed(t)
		n.rename(t, ourPorts()...)
		n.Expect(n.failures()).To(ContainElement("di-server v1: refused"))
	})
}

func TestABridgeIsBuiltOnlyWhereAPortIsRenamed(t *testing.T) {
	n := installed(t)
	n.rename(t, ourPorts()...)
	n.Expect((&takeover.Bridge{API: n.api, Namespace: n.namespace, Settle: settle, Clock: n.clock, Out: io.Discard}).Ahead(t.Context())).To(Succeed())
	n.Expect((&takeover.Bridge{API: n.api, Namespace: "default", Settle: settle, Clock: n.clock, Out: io.Discard}).Ahead(t.Context())).To(Succeed())
}
