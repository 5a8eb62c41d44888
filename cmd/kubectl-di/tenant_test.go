// Copyright The DI Orchestrator Authors.
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"strings"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/util/wait"
	"k8s.io/utils/ptr"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/cache"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/config"
	metricsserver "sigs.k8s.io/controller-runtime/pkg/metrics/server"

	"opendilab.org/di-orchestrator/apis/v2alpha1"
	"opendilab.org/di-orchestrator/controllers"
	"opendilab.org/di-orchestrator/controllers/dijob"
	"opendilab.org/di-orchestrator/controllers/scaleplan"
	"opendilab.org/di-orchestrator/internal/names"
	"opendilab.org/di-orchestrator/test/testkit"
	"opendilab.org/di-orchestrator/test/testkit/expect"
)

// operate runs the operator for the jobs of a namespace.
func (w *world) operate(t *testing.T, namespace string) {
	t.Helper()
	caches := controllers.CacheOptions()
	caches.DefaultNamespaces = map[string]cache.Config{namespace: {}}
	mgr, err := ctrl.NewManager(w.environment.Config, ctrl.Options{
		Scheme: w.live.Scheme(), Cache: caches, Metrics: metricsserver.Options{BindAddress: "0"},
		Controller: config.Controller{SkipNameValidation: ptr.To(true)},
	})
	expect.NoError(t, err)
	ctx, stop := context.WithCancel(context.WithoutCancel(t.Context()))
	registry := prometheus.NewRegistry()
	expect.NoError(t, dijob.Setup(ctx, mgr, dijob.Options{
		Registerer: registry, Drain: time.Nanosecond, AggregatorConfig: client.ObjectKey{Namespace: namespace, Name: names.AggregatorConfig},
	}))
	expect.NoError(t, scaleplan.Setup(ctx, mgr, scaleplan.Options{Registerer: registry}))
	stopped := make(chan error, 1)
	go func() { stopped <- mgr.Start(ctx) }()
	t.Cleanup(func() { stop(); expect.NoError(t, <-stopped) })
}

// eventually waits until a condition is true.
func eventually(t *testing.T, what string, is func() bool) {
	t.Helper()
	err := wait.PollUntilContextTimeout(t.Context(), 20*time.Millisecond, testkit.Patience, true, func(context.Context) (bool, error) { return is(), nil })
	if err != nil {
		t.Fatalf("%s: %v", what, err)
	}
}

// TestATenantsPlanChangesTheMembersOfACoordinatorLedJob has the operator execute what the commands of a
// user without rights in the namespace of di-server request.
func TestATenantsPlanChangesTheMembersOfACoordinatorLedJob(t *testing.T) {
	t.Parallel()
	w, ns, tenant := asTenant(t)
	system := w.namespace(t)
	w.readyServer(t, system, "")
	w.operate(t, ns)
	w.as(t, ns, tenant, "submit", "-f", "-")
	coordinator := &corev1.Pod{}
	eventually(t, "the operator creates the coordinator", func() bool {
		return w.live.Get(t.Context(), client.ObjectKey{Namespace: ns, Name: names.CoordinatorPod("cartpole")}, coordinator) == nil
	})
	job := &v2alpha1.DIJob{}
	expect.NoError(t, w.live.Get(t.Context(), client.ObjectKey{Namespace: ns, Name: "cartpole"}, job))
	coordinator.Status.Phase = corev1.PodRunning
	expect.NoError(t, w.live.Status().Update(t.Context(), coordinator))
	eventually(t, "the operator observes that the coordinator runs", func() bool {
		expect.NoError(t, w.live.Get(t.Context(), client.ObjectKeyFromObject(job), job))
		return job.Status.Phase == v2alpha1.JobRunning
	})
	members := func() int { return len(w.members(t, job, v2alpha1.TaskTypeCollector)) }
	w.cacheKnows(t, job)
	// The coordinator asks for the first replica, which a plan cannot.
	w.did(t, ns, "add", "collector", "cartpole")

	w.as(t, ns, tenant, "add", "collector", "cartpole", "--replicas", "2", "--server-namespace", system)
	eventually(t, "two collectors come", func() bool { return members() == 3 })
	eventually(t, "their pods exist", func() bool {
		pods := &corev1.PodList{}
		expect.NoError(t, w.live.List(t.Context(), pods, client.InNamespace(ns), client.MatchingLabels{names.LabelReplicaType: string(names.ReplicaTypeCollector)}))
		return len(pods.Items) == 3
	})
	w.as(t, ns, tenant, "delete", "collector", "cartpole", "--server-namespace", system)
	eventually(t, "one collector goes", func() bool { return members() == 2 })
}

// as runs a command as a user, which must succeed. Its stdin is a coordinator-led job.
func (w *world) as(t *testing.T, namespace, name string, args ...string) {
	t.Helper()
	const task = "  - type: TYPE\n    template:\n      spec:\n        serviceAccountName: trainer\n        containers:\n        - name: di-container\n          image: di\n"
	var text strings.Builder
	text.WriteString("apiVersion: diengine.opendilab.org/v2alpha1\nkind: DIJob\nmetadata:\n  name: cartpole\nspec:\n  lifecycle: CoordinatorLed\n  tasks:\n")
	for _, role := range []v2alpha1.TaskType{v2alpha1.TaskTypeCoordinator, v2alpha1.TaskTypeCollector, v2alpha1.TaskTypeLearner} {
		text.WriteString(strings.ReplaceAll(task, "TYPE", string(role)))
	}
	if got := w.fed(t, namespace, text.String(), append(args, "--as", name)...); got.code != 0 {
		t.Fatalf("%v: got %+v", args, got)
	}
}
