// Copyright The DI Orchestrator Authors.
// SPDX-License-Identifier: Apache-2.0

package incluster

import (
	"context"
	"errors"
	"fmt"
	"path/filepath"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	clientgoscheme "k8s.io/client-go/kubernetes/scheme"
	"k8s.io/client-go/rest"
	"k8s.io/utils/ptr"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/cache"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/config"
	"sigs.k8s.io/controller-runtime/pkg/envtest"
	metricsserver "sigs.k8s.io/controller-runtime/pkg/metrics/server"

	"opendilab.org/di-orchestrator/allocation"
	"opendilab.org/di-orchestrator/apis/v2alpha1"
	"opendilab.org/di-orchestrator/controllers"
	"opendilab.org/di-orchestrator/controllers/allocator"
	"opendilab.org/di-orchestrator/controllers/dijob"
	"opendilab.org/di-orchestrator/internal/names"
	"opendilab.org/di-orchestrator/sim/simulator"
	"opendilab.org/di-orchestrator/test/testkit"
)

const (
	// namespace is the namespace of all jobs.
	namespace = "simulation"
	// gpu is the resource that jobs ask for.
	gpu corev1.ResourceName = "nvidia.com/gpu"
	// cycle is the simulated time between allocation rounds without changes.
	cycle = time.Minute
	// interval is the minimum simulated time between two rounds. A timer of the allocator takes as long in
	// reality, so it must be short.
	interval = 20 * time.Millisecond
	// writing is the simulated time for which a round starts writes: long enough for all, because simulated time
	// is fast.
	writing = time.Hour
	// drain is the simulated drain time of a removed replica.
	drain = 10 * time.Second
	// stopTimeout is how long the controllers may take to stop.
	stopTimeout = 10 * time.Second
)

// world is an API server with nodes and kubelets, and an operator.
type world struct {
	environment *envtest.Environment
	scheme      *runtime.Scheme
	clock       *Clock
	// api reads from the cache of the kubelets.
	api client.Client
	// kubelets and operator run until they are stopped.
	kubelets, operator *started
}

// started is a manager that runs.
type started struct {
	cancel context.CancelFunc
	ended  chan error
}

// start runs a manager and returns once its caches are synced.
func start(ctx context.Context, mgr ctrl.Manager) (*started, error) {
	ctx, cancel := context.WithCancel(ctx)
	running := &started{cancel: cancel, ended: make(chan error, 1)}
	go func() { running.ended <- mgr.Start(ctx) }()
	if !mgr.GetCache().WaitForCacheSync(ctx) {
		return nil, errors.Join(errors.New("the caches are not filled"), context.Cause(ctx), running.stop())
	}
	return running, nil
}

// stop returns when the manager has ended.
func (s *started) stop() error {
	if s == nil {
		return nil
	}
	s.cancel()
	return <-s.ended
}

// newWorld starts a world without an operator. The caller stops it.
func newWorld(ctx context.Context, fast *Clock, nodes simulator.Cluster) (_ *world, err error) {
	w := &world{scheme: runtime.NewScheme(), clock: fast}
	if err := errors.Join(clientgoscheme.AddToScheme(w.scheme), v2alpha1.AddToScheme(w.scheme)); err != nil {
		return nil, fmt.Errorf("registering kinds: %w", err)
	}
	w.environment = &envtest.Environment{
		CRDDirectoryPaths:     []string{filepath.Join(testkit.Root(), "config", "crd", "bases")},
		ErrorIfCRDPathMissing: true,
	}
	// The disk is not part of the measurement.
	w.environment.ControlPlane.Etcd = &envtest.Etcd{}
	w.environment.ControlPlane.Etcd.Configure().Set("unsafe-no-fsync", "true")
	defer func() {
		if err != nil {
			err = errors.Join(err, w.stop())
		}
	}()
	if err := testkit.Start(w.environment); err != nil {
		return nil, err
	}
	mgr, err := w.newManager(cache.Options{DefaultTransform: cache.TransformStripManagedFields()})
	if err != nil {
		return nil, err
	}
	w.api = mgr.GetClient()
	kubelets := &kubelet{api: w.api, gpus: nodes.GPUs, bound: map[types.NamespacedName]seat{}}
	if err := kubelets.setup(mgr); err != nil {
		return nil, err
	}
	if _, err := mgr.GetCache().GetInformer(ctx, &v2alpha1.DIJob{}); err != nil {
		return nil, fmt.Errorf("watching jobs: %w", err)
	}
	if w.kubelets, err = start(ctx, mgr); err != nil {
		return nil, err
	}
	return w, w.createNodes(ctx, nodes)
}

// stop stops everything.
func (w *world) stop() error {
	err := errors.Join(w.operator.stop(), w.kubelets.stop())
	return errors.Join(err, w.environment.Stop())
}

// newManager returns a manager with a cache.
func (w *world) newManager(options cache.Options) (ctrl.Manager, error) {
	settings := rest.CopyConfig(w.environment.Config)
	// The limit of the rate is per real second.
	settings.QPS, settings.WarningHandler = -1, rest.NoWarnings{}
	mgr, err := ctrl.NewManager(settings, ctrl.Options{
		Scheme: w.scheme, Cache: options, Metrics: metricsserver.Options{BindAddress: "0"}, GracefulShutdownTimeout: ptr.To(stopTimeout),
		// The operator is started several times in a process.
		Controller: config.Controller{SkipNameValidation: ptr.To(true)},
	})
	if err != nil {
		return nil, fmt.Errorf("making a manager: %w", err)
	}
	return mgr, nil
}

// startOperator starts the controllers of the operator.
func (w *world) startOperator(ctx context.Context, policy allocation.Policy, name string) error {
	mgr, err := w.newManager(controllers.CacheOptions())
	if err != nil {
		return err
	}
	registry := prometheus.NewRegistry()
	if err := dijob.Setup(ctx, mgr, dijob.Options{Registerer: registry, Drain: w.clock.Real(drain)}); err != nil {
		return fmt.Errorf("setting up the controllers: %w", err)
	}
	err = allocator.Setup(mgr, allocator.Options{
		Policy: policy, PolicyName: name, Cycle: w.clock.Real(cycle), Interval: interval, Writing: writing, Registerer: registry, Clock: w.clock,
		Groups: types.NamespacedName{Namespace: names.SystemNamespace, Name: names.AllocationGroups},
	})
	if err != nil {
		return fmt.Errorf("setting up the allocator: %w", err)
	}
	w.operator, err = start(ctx, mgr)
	return err
}

// createNodes creates the namespaces and the nodes.
func (w *world) createNodes(ctx context.Context, nodes simulator.Cluster) error {
	for _, name := range []string{namespace, names.SystemNamespace} {
		if err := w.api.Create(ctx, &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: name}}); err != nil {
			return fmt.Errorf("creating namespace %s: %w", name, err)
		}
	}
	for index := range nodes.Nodes {
		node := &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: nodeName(index)}}
		if err := w.api.Create(ctx, node); err != nil {
			return fmt.Errorf("creating node %s: %w", node.Name, err)
		}
		node.Spec.Taints = nil
		if err := w.api.Update(ctx, node); err != nil {
			return fmt.Errorf("removing the taints of node %s: %w", node.Name, err)
		}
		resources := corev1.ResourceList{gpu: *resource.NewQuantity(int64(nodes.GPUs), resource.DecimalSI), corev1.ResourcePods: resource.MustParse("110")}
		node.Status = corev1.NodeStatus{
			Capacity: resources, Allocatable: resources,
			Conditions: []corev1.NodeCondition{{Type: corev1.NodeReady, Status: corev1.ConditionTrue}},
		}
		if err := w.api.Status().Update(ctx, node); err != nil {
			return fmt.Errorf("writing the status of node %s: %w", node.Name, err)
		}
	}
	return nil
}

// nodeName returns the name of a node. Names are in the order of indexes.
func nodeName(index int) string { return fmt.Sprintf("node-%04d", index) }
