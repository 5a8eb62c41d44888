// Copyright The DI Orchestrator Authors.
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"slices"
	"time"

	"github.com/go-logr/logr"
	"github.com/spf13/cobra"
	"github.com/spf13/pflag"
	"go.opentelemetry.io/otel/trace"
	"golang.org/x/sync/errgroup"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/util/uuid"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/events"
	"k8s.io/client-go/tools/leaderelection/resourcelock"
	"k8s.io/utils/clock"
	"k8s.io/utils/ptr"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/metrics"

	"opendilab.org/di-orchestrator/apis/v2alpha1"
	"opendilab.org/di-orchestrator/controllers/aggregatorconfig"
	"opendilab.org/di-orchestrator/controllers/allocator"
	"opendilab.org/di-orchestrator/controllers/dijob"
	"opendilab.org/di-orchestrator/controllers/dijob/discover"
	"opendilab.org/di-orchestrator/internal/admissionprobe"
	"opendilab.org/di-orchestrator/internal/election"
	"opendilab.org/di-orchestrator/internal/gang"
	"opendilab.org/di-orchestrator/internal/lifecycle/state"
	"opendilab.org/di-orchestrator/internal/limits"
	"opendilab.org/di-orchestrator/internal/upgrade/takeover"
	"opendilab.org/di-orchestrator/internal/workload"
	"opendilab.org/di-orchestrator/webhook"
)

// leaderElectionID names the lease of the operator whose controllers act.
const leaderElectionID = "di-orchestrator-operator"

const (
	// leaseTime is after how long without news of the elected operator another one
	// is elected, renewTime how long that one goes on without a word from the API
	// server, and leaseRetry how often each of them looks. Its webhooks outlive it, as
	// an API server that is slow needs them most.
	leaseTime  = 15 * time.Second
	renewTime  = 10 * time.Second
	leaseRetry = 2 * time.Second
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
	// forceDeleteAfter is how long pods that do not go are left; 0 for ever.
	forceDeleteAfter time.Duration
	// queueing reports whether the queues that jobs name are Kueue's.
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
	// takeover is whether an earlier release is taken over.
	takeover bool
	// takeoverSettle is how long nodes are given to learn where Services lead to.
	takeoverSettle time.Duration
}

func (o *operatorOptions) addFlags(flags *pflag.FlagSet) {
	o.processOptions.addFlags(flags)
	o.migration.addFlags(flags)
	defaults := workload.Settings{}.Defaults()
	flags.BoolVar(&o.leaderElect, "leader-elect", false, "elect a leader: only it runs controllers; all replicas serve webhooks")
	flags.StringVar(&o.namespace, "namespace", ownNamespace(), "namespace of the operator's own Secrets, Service and Lease")
	bindTakeover(flags, &o.takeover)
	o.takeoverSettle = takeover.DefaultSettle
	bindSettle(flags, &o.takeoverSettle)
	flags.StringVar(&o.webhookAddress, "webhook-address", webhook.DefaultBindAddress, "address to serve webhooks on")
	flags.StringVar(&o.webhookService, "webhook-service", webhook.DefaultService, "Service through which the API server calls the webhooks")
	flags.StringVar(&o.webhookURL, "webhook-url", "",
		"https://host:port at which the API server calls the webhooks if it cannot reach the Service")
	flags.StringVar(&o.certificates, "webhook-certificates", certificatesOwn,
		"source of the webhooks' certificate: own (signed by the operator) or secret (--webhook-secret, maintained by another tool such as cert-manager)")
	flags.StringVar(&o.webhookSecret, "webhook-secret", "",
		"Secret in the operator's namespace with the webhooks' certificate, its key and ca.crt; di-server's Secret "+serverCertificate+" is then maintained by the same tool")
	flags.IntVar(&o.workers, "workers", dijob.DefaultWorkers, "number of jobs that are reconciled concurrently")
	flags.BoolVar(&o.allocator, "allocator", true, "run the allocator of preemptible jobs; if false, they wait for another allocator")
	flags.DurationVar(&o.allocatorCycle, "allocator-cycle", allocator.DefaultCycle, "interval of allocation rounds while nothing changes")
	flags.StringVar(&o.queueing, "queueing", queueingAuto,
		"queue manager of jobs that name a queue: kueue, none, or auto (Kueue if its API is served)")
	flags.StringVar(&o.gangScheduler, "gang-scheduler", string(gang.Auto),
		"scheduler of jobs with a gang: auto (the one that the job names, or else the first of these whose PodGroups the API server serves), "+
			"volcano, coscheduling (scheduler-plugins) or kubernetes; with none, such jobs wait")
	flags.StringVar(&o.gangName, "gang-scheduler-name", "",
		"schedulerName of gang pods that name none, if it differs from "+gang.UsualNames())
	flags.StringVar(&o.priorityNormal, "priority-class-normal", "",
		"PriorityClass of pods of jobs with priority normal, if neither job nor template names one")
	flags.StringVar(&o.priorityHigh, "priority-class-high", "", "PriorityClass of pods of jobs with priority high, if neither job nor template names one")
	flags.StringVar(&o.defaultConfig, "default-aggregator-config", "",
		"ConfigMap in the operator's namespace with the pod template ("+aggregatorconfig.TemplateKey+") from which the operator creates the cluster's AggregatorConfig if there is none")
	flags.DurationVar(&o.probeInterval, "webhook-probe-interval", admissionprobe.DefaultInterval,
		"interval of the admission probe, a dry-run create of a job; 0 disables it")
	flags.DurationVar(&o.forceDeleteAfter, "force-delete-after", 0,
		"how long after its grace period a terminating pod on a lost or unready node is force-deleted; "+
			"0 disables it. If such a node is only partitioned, two processes of one rank may run")
	flags.Int32Var(&o.settings.MaxPods, "max-pods-per-job", defaults.MaxPods,
		"maximum number of pods of a job; the webhook refuses more, and the operator does not create or delete pods of a job that is scaled beyond it")
	flags.StringVar(&o.settings.ServiceDomain, "service-domain", defaults.ServiceDomain, "DNS domain of the cluster's Services")
	flags.StringVar(&o.settings.ServerURLCoordinator, "server-url-coordinator", defaults.ServerURLCoordinator, "URL of di-server in the environment of coordinators")
	flags.StringVar(&o.settings.ServerURLReplica, "server-url-replica", defaults.ServerURLReplica, "URL of di-server in the environment of a coordinator's replicas")
	flags.StringVar(&o.settings.ServerURLWorker, "server-url-worker", defaults.ServerURLWorker, "URL of di-server in the environment of worker-led pods")
}

// validate tells which flags contradict each other.
func (o *operatorOptions) validate() error {
	if o.probeInterval < 0 {
		return fmt.Errorf("--webhook-probe-interval %s: want 0, for no probes, or more", o.probeInterval)
	}
	if after := o.forceDeleteAfter; after != 0 && after < state.MinForceDeleteAfter {
		return fmt.Errorf("--force-delete-after %s: want 0, for never, or at least %s", after, state.MinForceDeleteAfter)
	}
	if most := o.settings.MaxPods; most < 1 || most > limits.Replicas {
		return fmt.Errorf("--max-pods-per-job %d: must be from 1 to %d", most, limits.Replicas)
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
	o, err := newOperator(ctx, config, log, options, told)
	if err != nil {
		return err
	}
	log.Info("Starting the operator", "version", version)
	return o.run(ctx)
}

// operator is what an operator is whether it is elected or not: it serves webhooks,
// metrics and probes. What acts is recreated for each term.
type operator struct {
	options  *operatorOptions
	config   *rest.Config
	log      logr.Logger
	told     observers
	scheme   *runtime.Scheme
	recorder events.EventRecorder

	hooks *webhook.Server
	// standing serves metrics and probes, and watches nothing.
	standing ctrl.Manager
	election *election.Election
}

// newOperator makes an operator that does nothing yet, whose observers are told what
// it does. The context ends with the process.
func newOperator(ctx context.Context, config *rest.Config, log logr.Logger, options *operatorOptions, told observers) (*operator, error) {
	if err := registerBuild(told.metrics); err != nil {
		return nil, err
	}
	told.wrap(config)
	options.settings.GPUResource = corev1.ResourceName(options.gpuResource)
	options.settings.PriorityClasses = map[v2alpha1.Priority]string{
		v2alpha1.PriorityNormal: options.priorityNormal, v2alpha1.PriorityHigh: options.priorityHigh,
	}
	o := &operator{options: options, config: config, log: log, told: told}
	var err error
	if o.scheme, err = newScheme(); err != nil {
		return nil, err
	}
	if o.recorder, err = newEventRecorder(ctx, config, o.scheme, told.metrics); err != nil {
		return nil, err
	}
	if o.hooks, err = o.newWebhooks(); err != nil {
		return nil, err
	}
	if o.election, err = o.newElection(); err != nil {
		return nil, err
	}
	if o.standing, err = o.newStanding(); err != nil {
		return nil, err
	}
	return o, nil
}

// run runs the operator until the context ends. Of what ends otherwise the rest is
// stopped as by the context: webhooks drain.
func (o *operator) run(ctx context.Context) error {
	group, running := errgroup.WithContext(ctx)
	group.Go(func() error { return o.hooks.Run(running) })
	for _, part := range []func(context.Context) error{o.election.Run, o.standing.Start} {
		group.Go(func() error {
			// Informers read through the conversion webhook, which is this process:
			// none may start before the API server knows it.
			if err := o.hooks.WaitPublished(running); err != nil {
				return err
			}
			return part(running)
		})
	}
	return group.Wait()
}

func (o *operator) newWebhooks() (*webhook.Server, error) {
	preparer, err := newPreparer(o.config, o.log, o.options)
	if err != nil {
		return nil, err
	}
	return webhook.New(webhook.Options{
		Recorder:    o.recorder,
		Config:      o.config,
		Namespace:   o.options.namespace,
		Service:     o.options.webhookService,
		URL:         o.options.webhookURL,
		BindAddress: o.options.webhookAddress,
		DrainDelay:  drainDelay,
		Log:         o.log.WithName("webhook"),
		Registerer:  o.told.metrics,
		Traces:      o.told.traces,
		Prepare:     preparer.Prepare,

		CertificateSecret: o.options.webhookSecret,
		MaxPods:           o.options.settings.MaxPods,
		ServiceDomain:     o.options.settings.ServiceDomain,
	})
}

// newStanding makes the manager of what every operator does beside its webhooks.
func (o *operator) newStanding() (ctrl.Manager, error) {
	mgr, err := ctrl.NewManager(o.config, ctrl.Options{
		Scheme:                  o.scheme,
		Logger:                  o.log,
		Metrics:                 o.options.metricsServer(),
		HealthProbeBindAddress:  o.options.probeAddress,
		PprofBindAddress:        o.options.pprofAddress,
		GracefulShutdownTimeout: ptr.To(stopTimeout),
	})
	if err != nil {
		return nil, fmt.Errorf("making the manager: %w", err)
	}
	if o.options.probeInterval > 0 {
		if err := o.addProber(mgr); err != nil {
			return nil, err
		}
	}
	return mgr, addProbes(mgr, o.hooks.Ready)
}

// findKueue returns what reports whether the queues that jobs name are Kueue's.
func (o *operatorOptions) findKueue(mgr ctrl.Manager) func(context.Context) (bool, error) {
	switch o.queueing {
	case queueingKueue:
		return func(context.Context) (bool, error) { return true, nil }
	case queueingAuto:
		return discover.NewKueue(mgr.GetRESTMapper(), clock.RealClock{}).IsServed
	}
	return nil
}

// newElection makes what has one of several operators act.
func (o *operator) newElection() (*election.Election, error) {
	options := election.Options{
		Name: leaderElectionID, Lease: leaseTime, Renew: renewTime, Retry: leaseRetry,
		Act: o.act, Log: o.log.WithName("leaderelection"),
	}
	if o.options.leaderElect {
		lock, err := o.newLock()
		if err != nil {
			return nil, err
		}
		options.Lock = lock
	}
	return election.New(options), nil
}

// newLock makes the lease, for an operator that no other one has the name of.
func (o *operator) newLock() (resourcelock.Interface, error) {
	host, err := os.Hostname()
	if err != nil {
		return nil, fmt.Errorf("finding the name by which the operator is elected: %w", err)
	}
	lock, err := resourcelock.NewFromKubeconfig(resourcelock.LeasesResourceLock, o.options.namespace, leaderElectionID,
		resourcelock.ResourceLockConfig{Identity: host + "_" + string(uuid.NewUUID()), EventRecorder: leaseEvents{o.recorder}},
		o.config, renewTime)
	if err != nil {
		return nil, fmt.Errorf("making the client of the Lease: %w", err)
	}
	return lock, nil
}

// leaseEvents tells Events about the Lease.
type leaseEvents struct {
	recorder events.EventRecorder
}

// Eventf implements resourcelock.EventRecorder.
func (e leaseEvents) Eventf(lease runtime.Object, kind, reason, format string, arguments ...any) {
	e.recorder.Eventf(lease, nil, kind, reason, "Elect", format, arguments...)
}

// addProber adds what probes the way through the API server.
func (o *operator) addProber(mgr ctrl.Manager) error {
	// Each probe would be warned that its version is deprecated.
	quiet := rest.CopyConfig(mgr.GetConfig())
	quiet.WarningHandler = rest.NoWarnings{}
	api, err := client.New(quiet, client.Options{HTTPClient: mgr.GetHTTPClient(), Mapper: mgr.GetRESTMapper()})
	if err != nil {
		return fmt.Errorf("making the client of the probe of the webhooks: %w", err)
	}
	prober := &admissionprobe.Prober{
		API:       api,
		Reader:    mgr.GetAPIReader(),
		Namespace: o.options.namespace,
		Interval:  o.options.probeInterval,
		Clock:     clock.RealClock{},
		Recorder:  o.recorder,
		IsElected: o.election.IsElected,
		Log:       o.log.WithName("probe"),
	}
	if err := prober.Register(o.told.metrics); err != nil {
		return err
	}
	if err := mgr.Add(prober); err != nil {
		return fmt.Errorf("adding the probe of the webhooks: %w", err)
	}
	return nil
}
