// Copyright The DI Orchestrator Authors.
// SPDX-License-Identifier: Apache-2.0

package model

import (
	"context"
	"errors"
	"fmt"
	"regexp"
	"sync"
	"time"

	"github.com/go-logr/logr"
	"github.com/go-logr/logr/funcr"
	"github.com/prometheus/client_golang/prometheus"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/client-go/rest"
	"k8s.io/utils/ptr"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/cache"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/config"
	metricsserver "sigs.k8s.io/controller-runtime/pkg/metrics/server"

	"opendilab.org/di-orchestrator/controllers"
	"opendilab.org/di-orchestrator/controllers/dijob"
	"opendilab.org/di-orchestrator/server"
	"opendilab.org/di-orchestrator/server/store"
	"opendilab.org/di-orchestrator/test/testkit/proxy"
)

const (
	// drain is the drain time of removed replicas in these jobs.
	drain = 200 * time.Millisecond
	// stopTime is the timeout for an ended process to release its resources.
	stopTime = 5 * time.Second
)

// program is a process that restarts whenever it has ended. Only state in the API server survives.
type program struct {
	name string
	// start runs a process until it ends.
	start func(context.Context, *process) error
	// cut stops the answers of an ending process to its clients.
	cut func()

	// held is locked while the program must not start.
	held sync.Mutex

	mutex   sync.Mutex
	current *process
	// starts counts the processes.
	starts int
}

// run keeps the program running until the context ends.
func (p *program) run(ctx context.Context) error {
	for ctx.Err() == nil {
		p.held.Lock()
		running, cancel := context.WithCancel(ctx)
		current := newProcess(p.cut, cancel)
		p.mutex.Lock()
		p.current, p.starts = current, p.starts+1
		p.mutex.Unlock()
		p.held.Unlock()
		err := p.start(running, current)
		cancel()
		if !current.isExpected() && ctx.Err() == nil {
			return fmt.Errorf("the %s ended by itself: %w", p.name, errors.Join(err, errors.New("it must run until the test stops it")))
		}
	}
	return nil
}

// running returns the current process, nil before the first, and
// its number.
func (p *program) running() (*process, int) {
	p.mutex.Lock()
	defer p.mutex.Unlock()
	return p.current, p.starts
}

// kill ends the current process.
func (p *program) kill() {
	if current, _ := p.running(); current != nil {
		current.end()
	}
}

// newOperator returns the operator for the jobs of one namespace.
func newOperator(api *cluster, namespace string) *program {
	start := func(ctx context.Context, process *process) error {
		mgr, err := newManager(api, api.operator, namespace, process, controllers.CacheOptions(), api.log)
		if err != nil {
			return err
		}
		err = dijob.Setup(ctx, mgr, dijob.Options{
			AggregatorConfig: client.ObjectKey{Namespace: namespace, Name: configName},
			Drain:            drain, Registerer: prometheus.NewRegistry(),
		})
		if err != nil {
			return fmt.Errorf("setting up the controllers: %w", err)
		}
		return mgr.Start(ctx)
	}
	return &program{name: "operator", start: start, cut: func() {}}
}

var servingAt = regexp.MustCompile(`"Serving" "address"="([^"]+)"`)

// newServer returns a di-server that clients reach through the proxy.
func newServer(api *cluster, namespace string, number int, at *proxy.Proxy) *program {
	start := func(ctx context.Context, process *process) error {
		defer at.Lead()
		log := funcr.New(func(_, line string) {
			if found := servingAt.FindStringSubmatch(line); found != nil {
				at.Lead(found[1])
				at.Set(proxy.Open)
			}
			api.log.Info(line, "server", number)
		}, funcr.Options{})
		mgr, err := newManager(api, api.server, namespace, process, store.CacheOptions(), log)
		if err != nil {
			return err
		}
		if err := store.SetupIndexes(ctx, mgr.GetCache()); err != nil {
			return err
		}
		served, err := server.New(server.Options{
			Client: mgr.GetClient(), APIReader: mgr.GetAPIReader(), Cache: mgr.GetCache(),
			Log: log, Addresses: []string{"127.0.0.1:0"},
			AggregatorConfig: client.ObjectKey{Namespace: namespace, Name: configName},
		})
		if err != nil {
			return err
		}
		if err := mgr.Add(served); err != nil {
			return fmt.Errorf("adding the server: %w", err)
		}
		return mgr.Start(ctx)
	}
	return &program{name: fmt.Sprintf("server %d", number), start: start, cut: func() { at.Set(proxy.Cut) }}
}

// newManager returns the manager of a process, with its own caches and a connection to the API
// server that ends with the process. Each job has its own processes, so that the end of one does
// not affect other jobs.
func newManager(api *cluster, account *rest.Config, namespace string, process *process, options cache.Options, log logr.Logger) (ctrl.Manager, error) {
	mortal := rest.CopyConfig(account)
	mortal.Wrap(process.wrap)
	// It selects by field. A cache that is limited to one namespace has another kind of informer
	// than the programs' cache.
	options.DefaultFieldSelector = fields.OneTermEqualSelector("metadata.namespace", namespace)
	nodes := &corev1.Node{}
	for object, by := range options.ByObject {
		if _, isNode := object.(*corev1.Node); isNode {
			delete(options.ByObject, object)
			by.Field = fields.Everything()
			options.ByObject[nodes] = by
		}
	}
	mgr, err := ctrl.NewManager(mortal, ctrl.Options{
		Scheme: api.client.Scheme(), Cache: options, Logger: log,
		Metrics: metricsserver.Options{BindAddress: "0"}, HealthProbeBindAddress: "0",
		// All managers run in this process.
		Controller:              config.Controller{SkipNameValidation: ptr.To(true)},
		GracefulShutdownTimeout: ptr.To(stopTime),
	})
	if err != nil {
		return nil, fmt.Errorf("making a manager: %w", err)
	}
	return mgr, nil
}
