// Copyright The DI Orchestrator Authors.
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"errors"
	"fmt"

	"github.com/go-logr/logr"
	"github.com/prometheus/client_golang/prometheus"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/rest"
	"k8s.io/utils/clock"
	"k8s.io/utils/ptr"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/cache"
	"sigs.k8s.io/controller-runtime/pkg/client"
	ctrlconfig "sigs.k8s.io/controller-runtime/pkg/config"
	"sigs.k8s.io/controller-runtime/pkg/metrics"
	metricsserver "sigs.k8s.io/controller-runtime/pkg/metrics/server"

	"opendilab.org/di-orchestrator/controllers"
	"opendilab.org/di-orchestrator/controllers/aggregatorconfig"
	"opendilab.org/di-orchestrator/controllers/allocator"
	"opendilab.org/di-orchestrator/controllers/dijob"
	"opendilab.org/di-orchestrator/controllers/storagemigration"
	"opendilab.org/di-orchestrator/internal/certs"
	"opendilab.org/di-orchestrator/internal/election"
	"opendilab.org/di-orchestrator/internal/gang"
	"opendilab.org/di-orchestrator/internal/names"
	"opendilab.org/di-orchestrator/internal/upgrade/takeover"
	"opendilab.org/di-orchestrator/webhook"
)

// act does what the elected operator does, for one term. What is known is known of
// that term: another operator may act before the next one.
func (o *operator) act(term context.Context) error {
	registered := &termMetrics{Registerer: o.told.metrics}
	defer resetQueues(metrics.Registry)
	defer registered.unregister()
	mgr, err := o.newTerm(term, registered)
	if err == nil {
		if err = mgr.Start(term); err != nil {
			err = fmt.Errorf("running the controllers: %w", err)
		}
	}
	if err != nil && term.Err() != nil && !errors.Is(err, context.DeadlineExceeded) {
		// What fails as it is told to stop is of no account, but that it does not stop.
		o.log.V(1).Info("Leadership term ended", "reason", err.Error())
		return nil
	}
	return err
}

// newTerm makes the manager of what acts in a term, whose metrics are registered.
func (o *operator) newTerm(term context.Context, registerer prometheus.Registerer) (ctrl.Manager, error) {
	config := rest.CopyConfig(o.config)
	config.Wrap(election.Fence(term))
	mgr, err := ctrl.NewManager(config, ctrl.Options{
		Scheme:                  o.scheme,
		Logger:                  o.log,
		Cache:                   controllers.CacheOptions(),
		NewCache:                newTermCache(term),
		Metrics:                 metricsserver.Options{BindAddress: "0"},
		GracefulShutdownTimeout: ptr.To(stopTimeout),
		// Each term has the controllers of the last one.
		Controller: ctrlconfig.Controller{SkipNameValidation: ptr.To(true)},
	})
	if err != nil {
		return nil, fmt.Errorf("making the manager of the controllers: %w", err)
	}
	definitions, err := storagemigration.WatchDefinitions(mgr)
	if err != nil {
		return nil, err
	}
	takingOver, err := addTakeover(mgr, o.recorder, o.options, registerer)
	if err != nil {
		return nil, err
	}
	if err := addMigration(mgr, definitions, o.recorder, o.options, registerer, takingOver.Done()); err != nil {
		return nil, err
	}
	if err := o.addControllers(term, mgr, registerer, definitions, takingOver); err != nil {
		return nil, err
	}
	issuer, err := newIssuer(config, o.log, o.options)
	if err != nil {
		return nil, err
	}
	if err := mgr.Add(issuer); err != nil {
		return nil, fmt.Errorf("adding the issuer of di-server's certificate: %w", err)
	}
	return mgr, nil
}

// addControllers adds what acts on jobs once no earlier release does.
func (o *operator) addControllers(term context.Context, mgr ctrl.Manager, registerer prometheus.Registerer,
	definitions *storagemigration.Definitions, takingOver *takeover.Runner,
) error {
	err := dijob.Setup(term, mgr, dijob.Options{
		JobVersion:       definitions.JobVersion,
		Recorder:         o.recorder,
		Settings:         o.options.settings,
		AggregatorConfig: o.options.aggregatorConfig.NamespacedName,
		Workers:          o.options.workers,
		NoAllocator:      !o.options.allocator,
		ForceDeleteAfter: o.options.forceDeleteAfter,

		Gangs:             gang.Setting(o.options.gangScheduler),
		GangSchedulerName: o.options.gangName,
		Kueue:             o.options.findKueue(mgr),

		Registerer: registerer,
		Traces:     o.told.traces,
		MayAct:     takingOver.MayAct(),
	})
	if err != nil {
		return fmt.Errorf("setting up the controllers: %w", err)
	}
	if o.options.allocator {
		if err := allocator.Setup(mgr, allocator.Options{
			Cycle: o.options.allocatorCycle, MaxPods: o.options.settings.MaxPods, Recorder: o.recorder, Registerer: registerer, Traces: o.told.traces, MayAct: takingOver.MayAct(),
		}); err != nil {
			return fmt.Errorf("setting up the allocator: %w", err)
		}
	}
	if o.options.defaultConfig == "" {
		return nil
	}
	err = mgr.Add(&aggregatorconfig.Default{
		Client:   mgr.GetClient(),
		Reader:   mgr.GetAPIReader(),
		Template: types.NamespacedName{Namespace: o.options.namespace, Name: o.options.defaultConfig},
		Config:   o.options.aggregatorConfig.NamespacedName,
		MayAct:   takingOver.MayAct(),
		Log:      o.log.WithName("aggregatorconfig"),
	})
	if err != nil {
		return fmt.Errorf("adding the default AggregatorConfig: %w", err)
	}
	return nil
}

// newTermCache makes caches for which a manager does not wait longer than its term: it
// would wait for them without end, also when it is told to stop.
func newTermCache(term context.Context) cache.NewCacheFunc {
	return func(config *rest.Config, options cache.Options) (cache.Cache, error) {
		made, err := cache.New(config, options)
		return &termCache{Cache: made, term: term.Done()}, err
	}
}

type termCache struct {
	cache.Cache
	term <-chan struct{}
}

// WaitForCacheSync implements cache.Informers.
func (c *termCache) WaitForCacheSync(ctx context.Context) bool {
	waiting, cancel := context.WithCancel(ctx)
	defer cancel()
	go func() {
		select {
		case <-c.term:
			cancel()
		case <-waiting.Done():
		}
	}()
	if c.Cache.WaitForCacheSync(waiting) {
		return true
	}
	// Who waits is told that it can go on: it finds that it is to stop.
	return ctx.Err() == nil
}

// newIssuer keeps the certificate of di-server, which may not have the
// authority's key; where somebody else issues certificates, only what clients
// are to trust.
func newIssuer(config *rest.Config, log logr.Logger, options *operatorOptions) (*certs.Issuer, error) {
	api, err := client.New(config, client.Options{})
	if err != nil {
		return nil, fmt.Errorf("making the client of the issuer: %w", err)
	}
	of := func(name string) types.NamespacedName {
		return types.NamespacedName{Namespace: options.namespace, Name: name}
	}
	var authority types.NamespacedName
	if options.certificates == certificatesOwn {
		authority = of(webhook.AuthoritySecret)
	}
	host := names.ServerService + "." + options.namespace
	return &certs.Issuer{
		API:       api,
		Authority: authority,
		Secret:    of(serverCertificate),
		Bundle:    of(serverBundle),
		Hosts:     []string{host, host + ".svc", host + "." + options.settings.ServiceDomain},
		Clock:     clock.RealClock{},
		Log:       log.WithName("issuer"),
	}, nil
}
