// Copyright The DI Orchestrator Authors.
// SPDX-License-Identifier: Apache-2.0

package programs

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/go-logr/logr"
	"github.com/spf13/cobra"
	"github.com/spf13/pflag"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/rest"
	"k8s.io/utils/clock"
	"k8s.io/utils/ptr"
	ctrl "sigs.k8s.io/controller-runtime"

	"opendilab.org/di-orchestrator/allocation"
	"opendilab.org/di-orchestrator/allocation/goodput"
	"opendilab.org/di-orchestrator/apis/v2alpha1"
	"opendilab.org/di-orchestrator/autoscale/optimizer"
	"opendilab.org/di-orchestrator/autoscale/optimizer/local"
	"opendilab.org/di-orchestrator/autoscale/optimizer/remote"
	"opendilab.org/di-orchestrator/controllers"
	"opendilab.org/di-orchestrator/controllers/aggregatorconfig"
	"opendilab.org/di-orchestrator/controllers/allocator"
	"opendilab.org/di-orchestrator/controllers/autoscaler/promql"
	"opendilab.org/di-orchestrator/controllers/dijob"
	"opendilab.org/di-orchestrator/controllers/dijob/jobmetrics"
	"opendilab.org/di-orchestrator/controllers/sharding"
	"opendilab.org/di-orchestrator/controllers/shards"
	"opendilab.org/di-orchestrator/job/gang"
	"opendilab.org/di-orchestrator/job/lifecycle/state"
	"opendilab.org/di-orchestrator/job/lifecycle/upkeep"
	"opendilab.org/di-orchestrator/job/workload"
	"opendilab.org/di-orchestrator/upgrade/takeover"
	"opendilab.org/di-orchestrator/webhook/admissionprobe"
)

// leaderElectionID is the name of the leader's Lease.
const leaderElectionID = "di-orchestrator-operator"

// The values of the flag --queueing.
const (
	queueingAuto  = "auto"
	queueingNone  = "none"
	queueingKueue = "kueue"
)

type operatorOptions struct {
	processOptions
	jobOptions
	installationOptions
	leaderElect bool
	// shards is the number of shards of jobs.
	shards   int
	workers  int
	settings workload.Settings
	// autoscaler runs the ratio rules of jobs, and prometheusURL is where they may read measurements.
	autoscaler    bool
	prometheusURL string
	prometheus    *promql.Client
	// optimizer is the service that optimizes jobs of type Remote; without a URL they are optimized locally.
	optimizer      remote.Settings
	remote         optimizer.Optimizer
	allocator      bool
	allocatorCycle time.Duration
	// policyName and fairness select the policy of the allocator, also among the linked ones.
	policyName string
	fairness   float64
	linked     Policies
	policy     allocation.Policy
	// forceDeleteAfter is how long after its grace period a pod on a lost node is force-deleted; 0
	// disables it.
	forceDeleteAfter time.Duration
	// metricsNamespaces is how many namespaces metrics name.
	metricsNamespaces int
	// maxMemory is the maximum memory of a replica after out-of-memory kills, and resizeTimeout how
	// long a pod may take to be resized in place.
	maxMemory     resource.QuantityValue
	resizeTimeout time.Duration
	// queueing names the queue manager of jobs that name a queue.
	queueing       string
	gangScheduler  string
	gangName       string
	priorityNormal string
	priorityHigh   string
	// defaultConfig names the ConfigMap of the default AggregatorConfig.
	defaultConfig string
	// probeInterval is the interval of the admission probe; 0 disables it.
	probeInterval time.Duration
	migration     migrationOptions
	// takeoverSettle is how long endpoint changes take to reach all nodes.
	takeoverSettle time.Duration
}

func (o *operatorOptions) addFlags(flags *pflag.FlagSet) {
	o.processOptions.addFlags(flags)
	o.jobOptions.addFlags(flags)
	o.installationOptions.addFlags(flags)
	o.migration.addFlags(flags)
	defaults := workload.Settings{}.Defaults()
	flags.BoolVar(&o.leaderElect, "leader-elect", false, "elect a leader: only it runs controllers")
	flags.IntVar(&o.shards, "shards", 1, "number of shards of jobs, which the operators divide among themselves; with 1, the leader runs all jobs")
	o.takeoverSettle = takeover.DefaultSettle
	bindSettle(flags, &o.takeoverSettle)
	flags.IntVar(&o.workers, "workers", dijob.DefaultWorkers, "number of jobs that are reconciled concurrently")
	flags.BoolVar(&o.allocator, "allocator", true, "run the allocator of preemptible jobs; if false, they wait for another allocator")
	flags.BoolVar(&o.autoscaler, "autoscaler", true, "resize jobs with spec.autoscale.ratio; if false, their size stays")
	flags.StringVar(&o.prometheusURL, "prometheus-url", "",
		"URL of the Prometheus that jobs with spec.autoscale.ratio.prometheus query, such as http://prometheus.monitoring:9090; without it they wait")
	flags.StringVar(&o.optimizer.URL, "optimizer-url", "", "URL of the service that optimizes jobs with spec.autoscale.optimizer.type Remote; without it they are optimized locally")
	flags.DurationVar(&o.optimizer.Timeout, "optimizer-timeout", remote.DefaultTimeout, "how long a request to that service may take")
	flags.StringVar(&o.optimizer.TokenFile, "optimizer-token-file", "", "file with the bearer token for that service, which needs an https URL")
	flags.StringVar(&o.optimizer.CAFile, "optimizer-ca-file", "", "file with the certificates of the authorities of that service, instead of those of the system")
	flags.DurationVar(&o.allocatorCycle, "allocator-cycle", allocator.DefaultCycle, "interval of allocation rounds while nothing changes")
	flags.StringVar(&o.policyName, "allocator-policy", allocator.PolicyFit,
		"policy of the allocator: fit (every job keeps its placement, and grows while no job waits), goodput (replicas go where they speed up training most), "+
			"or the name of a linked policy")
	flags.Float64Var(&o.fairness, "allocator-fairness", goodput.DefaultSettings().Fairness,
		"for policy goodput, from 0 to 1: how much the weight of a job grows while it waits or progresses slowly")
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
	flags.IntVar(&o.metricsNamespaces, "metrics-namespaces", 0,
		"how many namespaces the metrics of jobs name; those beyond count as other; 0 for no metrics by namespace")
	flags.DurationVar(&o.forceDeleteAfter, "force-delete-after", 0,
		"how long after its grace period a terminating pod on a lost or unready node is force-deleted; "+
			"0 disables it. If such a node is only partitioned, two processes of one rank may run")
	o.maxMemory.Quantity = state.DefaultMaxMemory()
	flags.Var(&o.maxMemory, "autoscale-max-memory",
		"maximum memory that a replica is given after out-of-memory kills; the job's own maximum and the largest node limit it, too")
	flags.DurationVar(&o.resizeTimeout, "pod-resize-timeout", state.DefaultResizeTimeout,
		"how long a pod may take to be resized in place; after that it is replaced for a ScalePlan")
	flags.StringVar(&o.settings.ServerURLCoordinator, "server-url-coordinator", defaults.ServerURLCoordinator, "URL of di-server in the environment of coordinators")
	flags.StringVar(&o.settings.ServerURLReplica, "server-url-replica", defaults.ServerURLReplica, "URL of di-server in the environment of a coordinator's replicas")
	flags.StringVar(&o.settings.ServerURLWorker, "server-url-worker", defaults.ServerURLWorker, "URL of di-server in the environment of worker-led pods")
}

// validateNumbers reports numbers and durations that are out of range.
func (o *operatorOptions) validateNumbers() error {
	if o.probeInterval < 0 {
		return fmt.Errorf("--webhook-probe-interval %s: want 0, for no probes, or more", o.probeInterval)
	}
	if after := o.forceDeleteAfter; after != 0 && after < upkeep.MinForceDeleteAfter {
		return fmt.Errorf("--force-delete-after %s: want 0, for never, or at least %s", after, upkeep.MinForceDeleteAfter)
	}
	if o.metricsNamespaces < 0 || o.metricsNamespaces > jobmetrics.MaxNamespaces {
		return fmt.Errorf("--metrics-namespaces %d: must be from 0 to %d", o.metricsNamespaces, jobmetrics.MaxNamespaces)
	}
	if o.shards < 1 || o.shards > shards.Max {
		return fmt.Errorf("--shards %d: must be from 1 to %d", o.shards, shards.Max)
	}
	if o.shards > 1 && !o.leaderElect {
		return fmt.Errorf("--shards %d: needs --leader-elect", o.shards)
	}
	if o.maxMemory.Sign() <= 0 {
		return fmt.Errorf("--autoscale-max-memory %s: want more than 0", o.maxMemory.String())
	}
	if o.resizeTimeout <= 0 {
		return fmt.Errorf("--pod-resize-timeout %s: want more than 0", o.resizeTimeout)
	}
	return nil
}

// validate reports flags that are invalid or contradict each other.
func (o *operatorOptions) validate() error {
	if err := errors.Join(o.validateNumbers(), o.installationOptions.validate(), o.tracing.validate(), o.migration.validate()); err != nil {
		return err
	}
	if !slices.Contains([]string{queueingAuto, queueingNone, queueingKueue}, o.queueing) {
		return fmt.Errorf("--queueing %s: must be %s, %s or %s", o.queueing, queueingAuto, queueingNone, queueingKueue)
	}
	if err := o.choosePolicy(); err != nil {
		return err
	}
	if o.optimizer.URL != "" {
		found, err := remote.New(o.optimizer, local.New(local.Defaults()))
		if err != nil {
			return fmt.Errorf("--optimizer-url: %w", err)
		}
		o.remote = found
	}
	if o.prometheusURL != "" {
		found, err := promql.New(o.prometheusURL)
		if err != nil {
			return fmt.Errorf("--prometheus-url: %w", err)
		}
		o.prometheus = found
	}
	if _, err := gang.ParseSetting(o.gangScheduler); err != nil {
		return fmt.Errorf("--gang-scheduler: %w", err)
	}
	return nil
}

// choosePolicy finds the policy of the allocator.
func (o *operatorOptions) choosePolicy() error {
	if !(o.fairness >= 0 && o.fairness <= 1) {
		return fmt.Errorf("--allocator-fairness %g: must be from 0 to 1", o.fairness)
	}
	policies, err := allocator.Policies(o.fairness, o.linked)
	if err != nil {
		return err
	}
	o.policy, err = allocator.FindPolicy("--allocator-policy", o.policyName, policies)
	return err
}

func newOperatorCommand(version string, linked Policies) *cobra.Command {
	options := operatorOptions{processOptions: processOptions{version: version}, linked: linked}
	command := &cobra.Command{
		Use:   "operator",
		Short: "Run the operator: the controllers of jobs",
		Args:  cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			if err := options.validate(); err != nil {
				return err
			}
			// Informers read through the conversion webhook.
			return options.run(cmd.Context(), &program{
				name: "di-orchestrator-operator", title: "the operator", await: options.awaitConversion, newManager: options.newManager,
			})
		},
	}
	options.addFlags(command.Flags())
	return command
}

// newManager returns the manager of the operator. It ends when it loses its Lease. The context ends
// with the process.
func (o *operatorOptions) newManager(ctx context.Context, config *rest.Config, log logr.Logger, watching observers) (ctrl.Manager, error) {
	if err := registerBuild(watching.metrics, o.version); err != nil {
		return nil, err
	}
	watching.wrap(config)
	thinWatches(config)
	o.complete()
	scheme, err := newScheme()
	if err != nil {
		return nil, err
	}
	settings := o.managerOptions(scheme, log)
	namespaces, err := o.scope()
	if err != nil {
		return nil, err
	}
	settings.Cache = namespaces.Cache(controllers.CacheOptions())
	settings.NewClient = namespaces.NewClient()
	var watches *sharding.Watches
	if o.shards > 1 {
		watches = sharding.NewWatches(o.shards, clock.RealClock{})
		settings.Cache.NewInformer = watches.NewInformer
	}
	leases, err := o.elect(ctx, config, &settings)
	if err != nil {
		return nil, err
	}
	mgr, err := ctrl.NewManager(config, settings)
	if err != nil {
		return nil, fmt.Errorf("making the manager: %w", err)
	}
	if err := mgr.Add(memoryLimit{clock.RealClock{}}); err != nil {
		return nil, fmt.Errorf("limiting memory: %w", err)
	}
	recorder, err := newEventRecorder(ctx, config, scheme, watching.metrics)
	if err != nil {
		return nil, err
	}
	if !namespaces.IsAll() {
		log.Info("Watches only some namespaces; on nodes that pods of others share, the allocator counts more free capacity than there is",
			"namespaces", namespaces.Names(), "allocator", o.allocator)
	}
	made := &operator{options: o, mgr: mgr, observers: watching, recorder: recorder, namespaces: namespaces, leases: leases}
	if o.shards > 1 {
		made.election, made.watches = sharding.NewElection(leases, o.shards, watches, clock.RealClock{}, log.WithName("shards")), watches
	}
	if err := made.add(ctx); err != nil {
		return nil, err
	}
	if err := addProbes(mgr, made.ready); err != nil || leases == nil {
		return mgr, err
	}
	return &electedManager{Manager: mgr, leases: leases, election: made.election}, nil
}

// elect makes the manager elect a leader, and returns the Leases; nil if there is no election.
func (o *operatorOptions) elect(ctx context.Context, config *rest.Config, settings *ctrl.Options) (*sharding.Leases, error) {
	if !o.leaderElect {
		return nil, nil
	}
	leases, err := sharding.NewLeases(ctx, config, types.NamespacedName{Namespace: o.namespace, Name: leaderElectionID})
	if err != nil {
		return nil, fmt.Errorf("making the election of a leader: %w", err)
	}
	settings.LeaderElection, settings.LeaderElectionResourceLockInterface = true, leases.Lock()
	settings.LeaderElectionID, settings.LeaderElectionNamespace = leaderElectionID, o.namespace
	settings.LeaderElectionReleaseOnCancel = true
	settings.LeaseDuration, settings.RenewDeadline, settings.RetryPeriod = ptr.To(sharding.LeaseDuration), ptr.To(sharding.RenewDeadline), ptr.To(sharding.RetryPeriod)
	return leases, nil
}

// electedManager is a manager that ends when a Lease is lost. If jobs have shards, its controllers of jobs run in every operator,
// each for its shards.
type electedManager struct {
	ctrl.Manager
	leases *sharding.Leases
	// election is that of shards; nil if the leader runs all jobs.
	election *sharding.Election
}

// Start implements manager.Manager.
func (m *electedManager) Start(ctx context.Context) error {
	return m.leases.Guard(ctx, func(ctx context.Context) error {
		if m.election == nil {
			return m.Manager.Start(ctx)
		}
		return m.election.Run(ctx, m.GetCache().WaitForCacheSync, m.Manager.Start)
	})
}

// complete derives the settings that depend on several flags.
func (o *operatorOptions) complete() {
	o.settings.MaxPods, o.settings.ServiceDomain = o.maxPods, o.serviceDomain
	o.settings.GPUResource = corev1.ResourceName(o.gpuResource)
	o.settings.PriorityClasses = map[v2alpha1.Priority]string{
		v2alpha1.PriorityNormal: o.priorityNormal, v2alpha1.PriorityHigh: o.priorityHigh,
	}
}
