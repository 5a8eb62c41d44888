// Copyright The DI Orchestrator Authors.
// SPDX-License-Identifier: Apache-2.0

package programs

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"time"

	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/events"
	"k8s.io/utils/clock"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"

	configv1alpha1 "opendilab.org/di-orchestrator/apis/config/v1alpha1"
	"opendilab.org/di-orchestrator/controllers/aggregatorconfig"
	"opendilab.org/di-orchestrator/controllers/allocator"
	"opendilab.org/di-orchestrator/controllers/autoscaler"
	"opendilab.org/di-orchestrator/controllers/dijob"
	"opendilab.org/di-orchestrator/controllers/dijob/discover"
	"opendilab.org/di-orchestrator/controllers/scaleplan"
	"opendilab.org/di-orchestrator/controllers/sharding"
	"opendilab.org/di-orchestrator/internal/certs"
	"opendilab.org/di-orchestrator/internal/names"
	"opendilab.org/di-orchestrator/internal/scope"
	"opendilab.org/di-orchestrator/job/gang"
	"opendilab.org/di-orchestrator/job/lifecycle/state"
	"opendilab.org/di-orchestrator/upgrade/storagemigration"
	"opendilab.org/di-orchestrator/webhook/admissionprobe"
)

// operator adds the controllers and runnables to a manager. Only the leader runs them, except for
// the admission probe and, if jobs have shards, the controllers of single jobs.
type operator struct {
	observers
	options  *operatorOptions
	mgr      ctrl.Manager
	recorder events.EventRecorder
	// namespaces are those whose jobs are run.
	namespaces scope.Namespaces
	// leases are those of the elections of operators; nil if there is only one operator. election is that of
	// shards; nil if the leader runs all jobs.
	leases   *sharding.Leases
	election *sharding.Election
	// watches select the pods that are watched; nil for all.
	watches *sharding.Watches
}

// add adds everything. The context ends with the process.
func (o *operator) add(ctx context.Context) error {
	definitions, err := storagemigration.WatchDefinitions(o.mgr)
	if err != nil {
		return err
	}
	earlier, err := o.addTakeover()
	if err != nil {
		return err
	}
	if err := o.addMigration(definitions, earlier.Done()); err != nil {
		return err
	}
	mayAct, err := o.addLeader(earlier.MayAct())
	if err != nil {
		return err
	}
	if err := o.addControllers(ctx, definitions, mayAct); err != nil {
		return err
	}
	if err := o.addIssuer(); err != nil {
		return err
	}
	return o.addProber()
}

// addLeader adds the declaration of the number of shards. It returns the channel that is closed when no other
// operator acts as a leader.
func (o *operator) addLeader(takenOver <-chan struct{}) (mayAct <-chan struct{}, err error) {
	if o.leases == nil {
		return takenOver, nil
	}
	leader := sharding.NewLeader(o.leases, int(o.options.config.Operator.Shards), takenOver, clock.RealClock{}, o.mgr.GetLogger().WithName("leader"))
	if err := o.mgr.Add(leader); err != nil {
		return nil, fmt.Errorf("adding the declaration of shards: %w", err)
	}
	return leader.MayAct(), nil
}

// allocatorOptions returns what the configuration says of the allocator.
func (o *operatorOptions) allocatorOptions() allocator.Options {
	config := &o.config.Operator.Allocator
	return allocator.Options{
		Policy: o.policy, PolicyName: config.Policy, Cycle: config.Cycle.Duration, MaxPods: o.config.Common.MaxPodsPerJob,
		Tenants: allocator.Tenants(config.Tenants), Topology: config.Topology,
		Groups: types.NamespacedName{Namespace: o.namespace, Name: names.AllocationGroups}, Archive: o.archive,
	}
}

// addControllers adds the controllers, which start once no other operator runs. Those of single jobs run in
// every operator if jobs have shards.
func (o *operator) addControllers(ctx context.Context, definitions *storagemigration.Definitions, mayAct <-chan struct{}) error {
	if err := o.addJobControllers(ctx, definitions, mayAct); err != nil {
		return err
	}
	config := &o.options.config.Operator
	if config.Allocator.Enabled {
		settings := o.options.allocatorOptions()
		settings.Recorder, settings.Registerer, settings.Traces, settings.MayAct = o.recorder, o.metrics, o.traces, mayAct
		settings.Everything = o.watches.Everything
		if err := allocator.Setup(o.mgr, settings); err != nil {
			return fmt.Errorf("setting up the allocator: %w", err)
		}
	}
	if config.DefaultAggregatorConfig == "" {
		return nil
	}
	err := o.mgr.Add(&aggregatorconfig.Default{
		Client:   o.mgr.GetClient(),
		Reader:   o.mgr.GetAPIReader(),
		Template: types.NamespacedName{Namespace: o.options.namespace, Name: config.DefaultAggregatorConfig},
		Config:   o.options.aggregatorConfig(),
		MayAct:   mayAct,
		Log:      o.mgr.GetLogger().WithName("aggregatorconfig"),
	})
	if err != nil {
		return fmt.Errorf("adding the default AggregatorConfig: %w", err)
	}
	return nil
}

// addJobControllers adds the controllers that act on one job at a time.
func (o *operator) addJobControllers(ctx context.Context, definitions *storagemigration.Definitions, mayAct <-chan struct{}) error {
	var held *sharding.Held
	if o.election != nil {
		// A shard is held only while the leader lets operators act.
		held, mayAct = o.election.Held(), nil
	}
	config := &o.options.config.Operator
	err := dijob.Setup(ctx, o.mgr, dijob.Options{
		JobVersion:       definitions.JobVersion,
		Recorder:         o.recorder,
		Settings:         o.options.settings(),
		AggregatorConfig: o.options.aggregatorConfig(),
		Workers:          int(config.Workers),
		NoAllocator:      !config.Allocator.Enabled,
		ForceDeleteAfter: config.ForceDeleteAfter.Duration,
		MaxMemory:        &config.AutoscaleMaxMemory,
		ResizeTimeout:    config.PodResizeTimeout.Duration,
		History:          state.History{Required: o.options.config.History.Require, Timeout: o.options.config.History.RequireTimeout.Duration},

		Gangs:             gang.Setting(config.Gangs.Scheduler),
		GangSchedulerName: config.Gangs.SchedulerName,
		Namespaces:        o.namespaces,
		Kueue:             o.findKueue(),

		MetricsNamespaces: int(config.MetricsNamespaces),
		Registerer:        o.metrics,
		Traces:            o.traces,
		MayAct:            mayAct,
		Shards:            held,
	})
	if err != nil {
		return fmt.Errorf("setting up the controllers: %w", err)
	}
	err = scaleplan.Setup(ctx, o.mgr, scaleplan.Options{
		MaxPods: o.options.config.Common.MaxPodsPerJob, JobVersion: definitions.JobVersion, Recorder: o.recorder, Registerer: o.metrics, Traces: o.traces,
		MayAct: mayAct, Shards: held,
	})
	if err != nil {
		return fmt.Errorf("setting up the controller of ScalePlans: %w", err)
	}
	return o.addAutoscaler(held, mayAct)
}

// addAutoscaler adds the autoscaler of jobs.
func (o *operator) addAutoscaler(held *sharding.Held, mayAct <-chan struct{}) error {
	if !o.options.config.Operator.Autoscaler.Enabled {
		return nil
	}
	options := autoscaler.Options{
		Remote: o.options.remote, MaxPods: o.options.config.Common.MaxPodsPerJob, Recorder: o.recorder, Registerer: o.metrics, Traces: o.traces, MayAct: mayAct, Shards: held,
	}
	if o.options.prometheus != nil {
		options.Prometheus = o.options.prometheus
	}
	if err := autoscaler.Setup(o.mgr, options); err != nil {
		return fmt.Errorf("setting up the autoscaler: %w", err)
	}
	return nil
}

// findKueue returns a function that reports whether Kueue manages the queues that jobs name.
func (o *operator) findKueue() func(context.Context) (bool, error) {
	switch o.options.config.Operator.Queueing {
	case configv1alpha1.QueueingKueue:
		return func(context.Context) (bool, error) { return true, nil }
	case configv1alpha1.QueueingAuto:
		return discover.NewKueue(o.mgr.GetRESTMapper(), clock.RealClock{}).IsServed
	case configv1alpha1.QueueingNone:
	}
	return nil
}

// addIssuer adds the issuer of the certificate of di-server and the history. di-server may not read the authority's key.
// If another tool issues certificates, the issuer publishes only the CA bundle.
func (o *operator) addIssuer() error {
	api, err := client.New(o.mgr.GetConfig(), client.Options{})
	if err != nil {
		return fmt.Errorf("making the client of the issuer: %w", err)
	}
	of := func(name string) types.NamespacedName {
		return types.NamespacedName{Namespace: o.options.namespace, Name: name}
	}
	var authority types.NamespacedName
	if o.options.issuesCertificates() {
		authority = of(names.WebhookAuthority)
	}
	var hosts []string
	for _, service := range []string{names.ServerService, names.HistoryService} {
		host := service + "." + o.options.namespace
		hosts = append(hosts, host, host+".svc", host+"."+o.options.config.Common.ServiceDomain)
	}
	issuer := &certs.Issuer{
		API:       api,
		Authority: authority,
		Secret:    of(serverCertificate),
		Bundle:    of(names.ServerBundle),
		Hosts:     hosts,
		Clock:     clock.RealClock{},
		Log:       o.mgr.GetLogger().WithName("issuer"),
	}
	if err := o.mgr.Add(issuer); err != nil {
		return fmt.Errorf("adding the issuer of di-server's certificate: %w", err)
	}
	return nil
}

// addProber adds the admission probe.
func (o *operator) addProber() error {
	if o.options.config.Operator.ProbeInterval.Duration == 0 {
		return nil
	}
	mgr := o.mgr
	// Each probe would log a warning that its version is deprecated.
	quiet := rest.CopyConfig(mgr.GetConfig())
	quiet.WarningHandler = rest.NoWarnings{}
	api, err := client.New(quiet, client.Options{HTTPClient: mgr.GetHTTPClient(), Mapper: mgr.GetRESTMapper()})
	if err != nil {
		return fmt.Errorf("making the client of the admission probe: %w", err)
	}
	prober := &admissionprobe.Prober{
		API:       api,
		Reader:    mgr.GetAPIReader(),
		Namespace: o.options.namespace,
		Interval:  o.options.config.Operator.ProbeInterval.Duration,
		Clock:     clock.RealClock{},
		Recorder:  o.recorder,
		IsElected: o.isElected,
		Log:       mgr.GetLogger().WithName("probe"),
	}
	if err := prober.Register(o.metrics); err != nil {
		return err
	}
	if err := mgr.Add(prober); err != nil {
		return fmt.Errorf("adding the admission probe: %w", err)
	}
	return nil
}

func (o *operator) isElected() bool {
	select {
	case <-o.mgr.Elected():
		return true
	default:
		return false
	}
}

// cacheCheck bounds how long the readiness check waits for the caches. It is shorter than the
// kubelet's timeout of the check.
const cacheCheck = 500 * time.Millisecond

// ready is a readiness check: the caches are synced, and this operator can become the leader.
func (o *operator) ready(request *http.Request) error {
	ctx, cancel := context.WithTimeout(request.Context(), cacheCheck)
	defer cancel()
	if !o.mgr.GetCache().WaitForCacheSync(ctx) {
		return errors.New("the caches are not filled yet")
	}
	return nil
}
