// Copyright The DI Orchestrator Authors.
// SPDX-License-Identifier: Apache-2.0

package programs

import (
	"context"
	"errors"
	"fmt"

	"github.com/go-logr/logr"
	"github.com/spf13/cobra"
	"github.com/spf13/pflag"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/rest"
	"k8s.io/utils/clock"
	"k8s.io/utils/ptr"
	ctrl "sigs.k8s.io/controller-runtime"

	"opendilab.org/di-orchestrator/allocation"
	configv1alpha1 "opendilab.org/di-orchestrator/apis/config/v1alpha1"
	"opendilab.org/di-orchestrator/apis/v2alpha1"
	"opendilab.org/di-orchestrator/autoscale/optimizer"
	"opendilab.org/di-orchestrator/autoscale/optimizer/local"
	"opendilab.org/di-orchestrator/autoscale/optimizer/remote"
	"opendilab.org/di-orchestrator/controllers"
	"opendilab.org/di-orchestrator/controllers/allocator"
	"opendilab.org/di-orchestrator/controllers/sharding"
	"opendilab.org/di-orchestrator/history/archive"
	"opendilab.org/di-orchestrator/internal/names"
	"opendilab.org/di-orchestrator/internal/promapi"
	"opendilab.org/di-orchestrator/internal/service"
	"opendilab.org/di-orchestrator/job/workload"
)

// leaderElectionID is the name of the leader's Lease.
const leaderElectionID = "di-orchestrator-operator"

type operatorOptions struct {
	processOptions
	leaderElect bool
	// linked are policies beside the operator's own, and policy is the configured one.
	linked Policies
	policy allocation.Policy
	// prometheus is where the ratio rules of jobs may read measurements; nil for none.
	prometheus *promapi.Client
	// remote is the service that optimizes jobs of type Remote; nil if they are optimized locally.
	remote optimizer.Optimizer
	// archive is the history that knows more groups of jobs than the allocator keeps; nil for none.
	archive allocator.Archive
}

func (o *operatorOptions) addFlags(flags *pflag.FlagSet) {
	o.processOptions.addFlags(flags)
	flags.BoolVar(&o.leaderElect, "leader-elect", false, "elect a leader: only it runs controllers")
}

// prepare loads the configuration, and makes what it names.
func (o *operatorOptions) prepare() error {
	if err := o.load(); err != nil {
		return err
	}
	return o.wrapFault(errors.Join(o.checkShards(), o.choosePolicy(), o.makeArchive(), o.makeOptimizer(), o.makePrometheus()))
}

func (o *operatorOptions) checkShards() error {
	if shards := o.config.Operator.Shards; shards > 1 && !o.leaderElect {
		return fmt.Errorf("operator.shards: %d shards need --leader-elect", shards)
	}
	return nil
}

func (o *operatorOptions) makeOptimizer() (err error) {
	named := o.config.Operator.Autoscaler.Optimizer
	if named.URL == "" {
		return nil
	}
	if o.remote, err = remote.New(settingsOf(named), local.New(local.Defaults())); err != nil {
		return fmt.Errorf("operator.autoscaler.optimizer: %w", err)
	}
	return nil
}

func (o *operatorOptions) makeArchive() (err error) {
	named := o.config.Operator.Allocator.History
	if named.URL == "" {
		return nil
	}
	if o.archive, err = archive.New(settingsOf(named)); err != nil {
		return fmt.Errorf("operator.allocator.history: %w", err)
	}
	return nil
}

func settingsOf(named configv1alpha1.Service) service.Settings {
	return service.Settings{URL: named.URL, Timeout: named.Timeout.Duration, TokenFile: named.TokenFile, CAFile: named.CAFile}
}

func (o *operatorOptions) makePrometheus() (err error) {
	address := o.config.Operator.Autoscaler.PrometheusURL
	if address == "" {
		return nil
	}
	if o.prometheus, err = promapi.New(address); err != nil {
		return fmt.Errorf("operator.autoscaler.prometheusURL: %w", err)
	}
	return nil
}

// choosePolicy finds the policy of the allocator.
func (o *operatorOptions) choosePolicy() error {
	config := &o.config.Operator.Allocator
	policies, err := allocator.Policies(config.Fairness, config.DeviceLabel, o.linked)
	if err != nil {
		return err
	}
	o.policy, err = allocator.FindPolicy("operator.allocator.policy", config.Policy, policies)
	return err
}

func newOperatorCommand(version string, linked Policies) *cobra.Command {
	options := operatorOptions{processOptions: processOptions{version: version}, linked: linked}
	command := &cobra.Command{
		Use:   "operator",
		Short: "Run the operator: the controllers of jobs",
		Args:  cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			if err := options.prepare(); err != nil {
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
	scheme, err := newScheme()
	if err != nil {
		return nil, err
	}
	settings := o.managerOptions(scheme, log)
	namespaces, err := o.scope(o.aggregatorConfig())
	if err != nil {
		return nil, err
	}
	settings.Cache = namespaces.Cache(controllers.CacheOptions())
	settings.NewClient = namespaces.NewClient()
	var watches *sharding.Watches
	shards := int(o.config.Operator.Shards)
	if shards > 1 {
		watches = sharding.NewWatches(shards, clock.RealClock{})
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
			"namespaces", namespaces.Names(), "allocator", o.config.Operator.Allocator.Enabled)
	}
	made := &operator{options: o, mgr: mgr, observers: watching, recorder: recorder, namespaces: namespaces, leases: leases}
	if shards > 1 {
		made.election, made.watches = sharding.NewElection(leases, shards, watches, clock.RealClock{}, log.WithName("shards")), watches
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

// settings returns the settings of all jobs' pods. Their addresses of di-server follow from the installation.
func (o *operatorOptions) settings() workload.Settings {
	common, classes := &o.config.Common, &o.config.Operator.PriorityClasses
	near := names.ServerService + "." + o.namespace
	return workload.Settings{
		MaxPods: common.MaxPodsPerJob, ServiceDomain: common.ServiceDomain, GPUResource: corev1.ResourceName(common.GPUResource),
		PriorityClasses:      map[v2alpha1.Priority]string{v2alpha1.PriorityNormal: classes.Normal, v2alpha1.PriorityHigh: classes.High},
		ServerURLCoordinator: fmt.Sprintf("http://%s:%d", near, names.ServerPortV1),
		ServerURLReplica:     fmt.Sprintf("%s:%d", near, names.ServerPortV1),
		ServerURLWorker:      fmt.Sprintf("http://%s.%s:%d", near, common.ServiceDomain, names.ServerPortV2),
	}
}
