// Copyright The DI Orchestrator Authors.
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/go-logr/logr"
	"github.com/prometheus/client_golang/prometheus"
	"github.com/spf13/cobra"
	"github.com/spf13/pflag"
	"go.opentelemetry.io/otel/trace"
	"golang.org/x/sync/errgroup"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/events"
	"k8s.io/utils/clock"
	"k8s.io/utils/ptr"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/metrics"
	metricsserver "sigs.k8s.io/controller-runtime/pkg/metrics/server"

	"opendilab.org/di-orchestrator/apis/v2alpha1"
	"opendilab.org/di-orchestrator/controllers"
	"opendilab.org/di-orchestrator/internal/certs"
	"opendilab.org/di-orchestrator/internal/gang"
	"opendilab.org/di-orchestrator/internal/names"
	"opendilab.org/di-orchestrator/internal/workload"
	"opendilab.org/di-orchestrator/webhook"
)

// leaderElectionID names the lease of the operator whose controllers act.
const leaderElectionID = "di-orchestrator-operator"

const (
	// leaseTime is after how long without news of the elected operator another one
	// is elected, and renewTime how long that one goes on without a word from the API
	// server. It ends then, and its webhooks with it, which an API server needs
	// most that is slow: a brownout of etcd may take longer than the usual ten seconds.
	leaseTime = time.Minute
	renewTime = 40 * time.Second
)

// Where the webhooks' certificate is from.
const (
	certificatesOwn    = "own"
	certificatesSecret = "secret"
)

// Whose the queues are that jobs name.
const (
	queueingAuto  = "auto"
	queueingNone  = "none"
	queueingKueue = "kueue"
)

type operatorOptions struct {
	processOptions
	leaderElect    bool
	namespace      string
	webhookAddress string
	webhookService string
	webhookURL     string
	certificates   string
	webhookSecret  string
	workers        int
	settings       workload.Settings
	allocator      bool
	allocatorCycle time.Duration
	// queueing says whether the queues that jobs name are Kueue's.
	queueing       string
	gangScheduler  string
	gangName       string
	priorityNormal string
	priorityHigh   string
	// defaultConfig names the ConfigMap of the default AggregatorConfig.
	defaultConfig string
	// probeInterval is how often the way through the API server is probed, 0 for never.
	probeInterval time.Duration
	migration     migrationOptions
}

func (o *operatorOptions) addFlags(flags *pflag.FlagSet) {
	o.processOptions.addFlags(flags)
	o.migration.addFlags(flags)
	defaults := workload.Settings{}.Defaults()
	flags.BoolVar(&o.leaderElect, "leader-elect", false, "let only one of several operators act; webhooks are served by all")
	flags.StringVar(&o.namespace, "namespace", ownNamespace(), "namespace of the operator's own Secrets, Service and Lease")
	flags.StringVar(&o.webhookAddress, "webhook-address", webhook.DefaultBindAddress, "address to serve webhooks on")
	flags.StringVar(&o.webhookService, "webhook-service", webhook.DefaultService, "Service by which the API server reaches the webhooks")
	flags.StringVar(&o.webhookURL, "webhook-url", "",
		"https://host:port by which the API server reaches the webhooks, where it cannot reach the Service")
	flags.StringVar(&o.certificates, "webhook-certificates", certificatesOwn,
		"where the webhooks' certificate is from: own, signed by the operator, or secret, kept by somebody else, such as cert-manager, in --webhook-secret")
	flags.StringVar(&o.webhookSecret, "webhook-secret", "",
		"Secret in the operator's namespace that has the webhooks' certificate, with its key and ca.crt; di-server's, in "+serverCertificate+", is kept by somebody else then, too")
	flags.IntVar(&o.workers, "workers", controllers.DefaultWorkers, "jobs that are worked on at a time")
	flags.BoolVar(&o.allocator, "allocator", true, "place preemptible jobs; where this is off they wait for an allocator of your own")
	flags.DurationVar(&o.allocatorCycle, "allocator-cycle", controllers.DefaultAllocatorCycle, "how often all preemptible jobs are placed anew though nothing changes")
	flags.StringVar(&o.queueing, "queueing", queueingAuto,
		"whose the queues are that jobs name: kueue, none for nobody's that this operator knows, or auto for Kueue's where its API is served")
	flags.StringVar(&o.gangScheduler, "gang-scheduler", string(gang.Auto),
		"which scheduler places jobs that ask for a gang: auto (the one that the job names, else the first of these whose PodGroups the API server serves), "+
			"volcano, coscheduling (of scheduler-plugins) or kubernetes; with none such jobs wait")
	flags.StringVar(&o.gangName, "gang-scheduler-name", "",
		"scheduler of the pods of gangs that name none, where it goes by another name than "+gang.UsualNames())
	flags.StringVar(&o.priorityNormal, "priority-class-normal", "",
		"PriorityClass of the pods of jobs of priority normal, where neither job nor template names one; none by default")
	flags.StringVar(&o.priorityHigh, "priority-class-high", "", "the same for jobs of priority high")
	flags.StringVar(&o.defaultConfig, "default-aggregator-config", "",
		"ConfigMap in the operator's namespace with the pod template ("+controllers.AggregatorTemplateKey+") of which the cluster's AggregatorConfig is made where there is none")
	flags.DurationVar(&o.probeInterval, "webhook-probe-interval", webhook.DefaultProbeInterval,
		"how often a job is created at the version that is not stored, without being stored, to see that jobs are admitted; 0 for never")
	flags.StringVar(&o.settings.ServiceDomain, "service-domain", defaults.ServiceDomain, "domain of the cluster's services")
	flags.StringVar(&o.settings.ServerURLCoordinator, "server-url-coordinator", defaults.ServerURLCoordinator, "what coordinators are told of di-server")
	flags.StringVar(&o.settings.ServerURLReplica, "server-url-replica", defaults.ServerURLReplica, "what a coordinator's replicas are told of di-server")
	flags.StringVar(&o.settings.ServerURLWorker, "server-url-worker", defaults.ServerURLWorker, "what worker-led pods are told of di-server")
}

// validate tells which flags contradict each other.
func (o *operatorOptions) validate() error {
	if o.probeInterval < 0 {
		return fmt.Errorf("--webhook-probe-interval %s: want 0, for no probes, or more", o.probeInterval)
	}
	if err := errors.Join(o.tracing.validate(), o.migration.validate()); err != nil {
		return err
	}
	if !slices.Contains([]string{queueingAuto, queueingNone, queueingKueue}, o.queueing) {
		return fmt.Errorf("--queueing %s: must be %s, %s or %s", o.queueing, queueingAuto, queueingNone, queueingKueue)
	}
	if _, err := gang.ParseSetting(o.gangScheduler); err != nil {
		return fmt.Errorf("--gang-scheduler: %w", err)
	}
	switch o.certificates {
	case certificatesOwn:
		if o.webhookSecret != "" {
			return fmt.Errorf("--webhook-secret %s: is for --webhook-certificates %s", o.webhookSecret, certificatesSecret)
		}
	case certificatesSecret:
		if o.webhookSecret == "" {
			return fmt.Errorf("--webhook-certificates %s: needs --webhook-secret, the name of a Secret", certificatesSecret)
		}
	default:
		return fmt.Errorf("--webhook-certificates %s: must be %s or %s", o.certificates, certificatesOwn, certificatesSecret)
	}
	return nil
}

func newOperatorCommand() *cobra.Command {
	var options operatorOptions
	command := &cobra.Command{
		Use:   "operator",
		Short: "Run the operator: controllers and webhooks",
		Args:  cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			return runOperator(cmd.Context(), &options)
		},
	}
	options.addFlags(command.Flags())
	return command
}

func runOperator(ctx context.Context, options *operatorOptions) error {
	if err := options.validate(); err != nil {
		return err
	}
	log, err := options.log.newLogger()
	if err != nil {
		return err
	}
	config, err := options.restConfig()
	if err != nil {
		return err
	}
	return options.tracing.traced(ctx, "di-orchestrator-operator", log, func(traces trace.TracerProvider) error {
		return serveOperator(ctx, config, log, options, observers{metrics: metrics.Registry, traces: traces})
	})
}

// serveOperator runs the operator until the context ends.
func serveOperator(ctx context.Context, config *rest.Config, log logr.Logger, options *operatorOptions, told observers) error {
	hooks, mgr, err := newOperator(ctx, config, log, options, told)
	if err != nil {
		return err
	}
	log.Info("Starting the operator", "version", version)
	group, running := errgroup.WithContext(ctx)
	group.Go(func() error { return hooks.Run(running) })
	group.Go(func() error {
		// Informers read through the conversion webhook, which is this process:
		// none may start before the API server knows it.
		if err := hooks.WaitPublished(running); err != nil {
			return err
		}
		if err := mgr.Start(running); err != nil {
			return fmt.Errorf("running the controllers: %w", err)
		}
		return nil
	})
	return group.Wait()
}

// newOperator makes the webhooks and the manager of the controllers, whose
// observers are told what they do.
func newOperator(ctx context.Context, config *rest.Config, log logr.Logger, options *operatorOptions, told observers,
) (*webhook.Server, ctrl.Manager, error) {
	if err := registerBuild(told.metrics); err != nil {
		return nil, nil, err
	}
	told.wrap(config)
	scheme, err := newScheme()
	if err != nil {
		return nil, nil, err
	}
	recorder, err := newEventRecorder(ctx, config, scheme)
	if err != nil {
		return nil, nil, err
	}
	preparer, err := newPreparer(config, log, options)
	if err != nil {
		return nil, nil, err
	}
	hooks, err := webhook.New(webhook.Options{
		Recorder:    recorder,
		Config:      config,
		Namespace:   options.namespace,
		Service:     options.webhookService,
		URL:         options.webhookURL,
		BindAddress: options.webhookAddress,
		DrainDelay:  drainDelay,
		Log:         log.WithName("webhook"),
		Registerer:  told.metrics,
		Traces:      told.traces,
		Prepare:     preparer.Prepare,

		CertificateSecret: options.webhookSecret,
	})
	if err != nil {
		return nil, nil, err
	}
	mgr, err := newOperatorManager(ctx, config, log, options, told, scheme, recorder)
	if err != nil {
		return nil, nil, err
	}
	return hooks, mgr, addProbes(mgr, hooks.Ready)
}

func newOperatorManager(ctx context.Context, config *rest.Config, log logr.Logger, options *operatorOptions, told observers,
	scheme *runtime.Scheme, recorder events.EventRecorder,
) (ctrl.Manager, error) {
	mgr, err := ctrl.NewManager(config, ctrl.Options{
		Scheme:                        scheme,
		Logger:                        log,
		Cache:                         controllers.CacheOptions(),
		Metrics:                       metricsserver.Options{BindAddress: options.metricsAddress},
		HealthProbeBindAddress:        options.probeAddress,
		PprofBindAddress:              options.pprofAddress,
		LeaderElection:                options.leaderElect,
		LeaderElectionID:              leaderElectionID,
		LeaderElectionNamespace:       options.namespace,
		LeaderElectionReleaseOnCancel: true,
		LeaseDuration:                 ptr.To(leaseTime),
		RenewDeadline:                 ptr.To(renewTime),
		GracefulShutdownTimeout:       ptr.To(stopTimeout),
	})
	if err != nil {
		return nil, fmt.Errorf("making the manager: %w", err)
	}
	options.settings.GPUResource = corev1.ResourceName(options.gpuResource)
	options.settings.PriorityClasses = map[v2alpha1.Priority]string{
		v2alpha1.PriorityNormal: options.priorityNormal, v2alpha1.PriorityHigh: options.priorityHigh,
	}
	definitions, err := controllers.WatchDefinitions(mgr)
	if err != nil {
		return nil, err
	}
	takingOver, err := addTakeover(mgr, recorder, options, told.metrics)
	if err != nil {
		return nil, err
	}
	if err := addMigration(mgr, definitions, recorder, options, told.metrics, takingOver.Done()); err != nil {
		return nil, err
	}
	err = controllers.Setup(ctx, mgr, controllers.Options{
		JobVersion:       definitions.JobVersion,
		Recorder:         recorder,
		Settings:         options.settings,
		AggregatorConfig: options.aggregatorConfig.NamespacedName,
		Workers:          options.workers,
		NoAllocator:      !options.allocator,

		Gangs:             gang.Setting(options.gangScheduler),
		GangSchedulerName: options.gangName,
		Kueue:             options.findKueue(mgr),

		Registerer: told.metrics,
		Traces:     told.traces,
		MayAct:     takingOver.MayAct(),
	})
	if err != nil {
		return nil, fmt.Errorf("setting up the controllers: %w", err)
	}
	if options.allocator {
		if err := controllers.SetupAllocator(mgr, controllers.AllocatorOptions{
			Cycle: options.allocatorCycle, Registerer: told.metrics, Traces: told.traces, MayAct: takingOver.MayAct(),
		}); err != nil {
			return nil, fmt.Errorf("setting up the allocator: %w", err)
		}
	}
	if options.defaultConfig != "" {
		err := mgr.Add(&controllers.DefaultAggregatorConfig{
			Client:   mgr.GetClient(),
			Reader:   mgr.GetAPIReader(),
			Template: types.NamespacedName{Namespace: options.namespace, Name: options.defaultConfig},
			Config:   options.aggregatorConfig.NamespacedName,
			MayAct:   takingOver.MayAct(),
			Log:      log.WithName("aggregatorconfig"),
		})
		if err != nil {
			return nil, fmt.Errorf("adding the default AggregatorConfig: %w", err)
		}
	}
	if options.probeInterval > 0 {
		if err := addProber(mgr, recorder, options, told.metrics); err != nil {
			return nil, err
		}
	}
	issuer, err := newIssuer(config, log, options)
	if err != nil {
		return nil, err
	}
	if err := mgr.Add(issuer); err != nil {
		return nil, fmt.Errorf("adding the issuer of di-server's certificate: %w", err)
	}
	return mgr, nil
}

// findKueue returns what tells whether the queues that jobs name are Kueue's.
func (o *operatorOptions) findKueue(mgr ctrl.Manager) func(context.Context) (bool, error) {
	switch o.queueing {
	case queueingKueue:
		return func(context.Context) (bool, error) { return true, nil }
	case queueingAuto:
		return controllers.NewKueueFinder(mgr.GetRESTMapper(), clock.RealClock{}).IsServed
	}
	return nil
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

// addProber adds what probes the way through the API server.
func addProber(mgr ctrl.Manager, recorder events.EventRecorder, options *operatorOptions, registerer prometheus.Registerer) error {
	// Each probe would be warned that its version is deprecated.
	quiet := rest.CopyConfig(mgr.GetConfig())
	quiet.WarningHandler = rest.NoWarnings{}
	api, err := client.New(quiet, client.Options{HTTPClient: mgr.GetHTTPClient(), Mapper: mgr.GetRESTMapper()})
	if err != nil {
		return fmt.Errorf("making the client of the probe of the webhooks: %w", err)
	}
	prober := &webhook.Prober{
		API:       api,
		Reader:    mgr.GetAPIReader(),
		Namespace: options.namespace,
		Interval:  options.probeInterval,
		Clock:     clock.RealClock{},
		Recorder:  recorder,
		Elected:   mgr.Elected(),
		Log:       mgr.GetLogger().WithName("probe"),
	}
	if err := prober.Register(registerer); err != nil {
		return err
	}
	if err := mgr.Add(prober); err != nil {
		return fmt.Errorf("adding the probe of the webhooks: %w", err)
	}
	return nil
}
