// Copyright The DI Orchestrator Authors.
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"fmt"
	"time"

	"github.com/go-logr/logr"
	"github.com/spf13/cobra"
	"github.com/spf13/pflag"
	"golang.org/x/sync/errgroup"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/rest"
	"k8s.io/utils/clock"
	"k8s.io/utils/ptr"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/metrics"
	metricsserver "sigs.k8s.io/controller-runtime/pkg/metrics/server"

	"opendilab.org/di-orchestrator/apis/v2alpha1"
	"opendilab.org/di-orchestrator/controllers"
	"opendilab.org/di-orchestrator/internal/certs"
	"opendilab.org/di-orchestrator/internal/names"
	"opendilab.org/di-orchestrator/internal/workload"
	"opendilab.org/di-orchestrator/webhook"
)

// leaderElectionID names the lease of the operator whose controllers act.
const leaderElectionID = "di-orchestrator-operator"

// drainDelay is how long a stopping operator still takes webhook calls, so
// that the API server learns first that it is leaving.
const drainDelay = 6 * time.Second

type operatorOptions struct {
	processOptions
	leaderElect    bool
	namespace      string
	webhookAddress string
	webhookService string
	webhookURL     string
	workers        int
	settings       workload.Settings
	allocator      bool
	allocatorCycle time.Duration
	priorityNormal string
	priorityHigh   string
}

func (o *operatorOptions) addFlags(flags *pflag.FlagSet) {
	o.processOptions.addFlags(flags)
	defaults := workload.Settings{}.Defaults()
	flags.BoolVar(&o.leaderElect, "leader-elect", false, "let only one of several operators act; webhooks are served by all")
	flags.StringVar(&o.namespace, "namespace", ownNamespace(), "namespace of the operator's own Secrets, Service and Lease")
	flags.StringVar(&o.webhookAddress, "webhook-address", webhook.DefaultBindAddress, "address to serve webhooks on")
	flags.StringVar(&o.webhookService, "webhook-service", webhook.DefaultService, "Service by which the API server reaches the webhooks")
	flags.StringVar(&o.webhookURL, "webhook-url", "",
		"https://host:port by which the API server reaches the webhooks, where it cannot reach the Service")
	flags.IntVar(&o.workers, "workers", controllers.DefaultWorkers, "jobs that are worked on at a time")
	flags.BoolVar(&o.allocator, "allocator", true, "place preemptible jobs; where this is off they wait for an allocator of your own")
	flags.DurationVar(&o.allocatorCycle, "allocator-cycle", controllers.DefaultAllocatorCycle, "how often all preemptible jobs are placed anew though nothing changes")
	flags.StringVar(&o.priorityNormal, "priority-class-normal", "",
		"PriorityClass of the pods of jobs of priority normal, where neither job nor template names one; none by default")
	flags.StringVar(&o.priorityHigh, "priority-class-high", "", "the same for jobs of priority high")
	flags.StringVar(&o.settings.ServiceDomain, "service-domain", defaults.ServiceDomain, "domain of the cluster's services")
	flags.StringVar(&o.settings.ServerURLCoordinator, "server-url-coordinator", defaults.ServerURLCoordinator, "what coordinators are told of di-server")
	flags.StringVar(&o.settings.ServerURLReplica, "server-url-replica", defaults.ServerURLReplica, "what a coordinator's replicas are told of di-server")
	flags.StringVar(&o.settings.ServerURLWorker, "server-url-worker", defaults.ServerURLWorker, "what worker-led pods are told of di-server")
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
	log, err := options.log.newLogger()
	if err != nil {
		return err
	}
	config, err := options.restConfig()
	if err != nil {
		return err
	}
	hooks, err := webhook.New(webhook.Options{
		Config:      config,
		Namespace:   options.namespace,
		Service:     options.webhookService,
		URL:         options.webhookURL,
		BindAddress: options.webhookAddress,
		DrainDelay:  drainDelay,
		Log:         log.WithName("webhook"),
		Registerer:  metrics.Registry,
	})
	if err != nil {
		return err
	}
	mgr, err := newOperatorManager(ctx, config, log, options)
	if err != nil {
		return err
	}
	if err := addProbes(mgr, hooks.Ready); err != nil {
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

func newOperatorManager(ctx context.Context, config *rest.Config, log logr.Logger, options *operatorOptions) (ctrl.Manager, error) {
	scheme, err := newScheme()
	if err != nil {
		return nil, err
	}
	mgr, err := ctrl.NewManager(config, ctrl.Options{
		Scheme:                        scheme,
		Logger:                        log,
		Cache:                         controllers.CacheOptions(),
		Metrics:                       metricsserver.Options{BindAddress: options.metricsAddress},
		HealthProbeBindAddress:        options.probeAddress,
		LeaderElection:                options.leaderElect,
		LeaderElectionID:              leaderElectionID,
		LeaderElectionNamespace:       options.namespace,
		LeaderElectionReleaseOnCancel: true,
		GracefulShutdownTimeout:       ptr.To(stopTimeout),
	})
	if err != nil {
		return nil, fmt.Errorf("making the manager: %w", err)
	}
	options.settings.GPUResource = corev1.ResourceName(options.gpuResource)
	options.settings.PriorityClasses = map[v2alpha1.Priority]string{
		v2alpha1.PriorityNormal: options.priorityNormal, v2alpha1.PriorityHigh: options.priorityHigh,
	}
	err = controllers.Setup(ctx, mgr, controllers.Options{
		Settings:         options.settings,
		AggregatorConfig: options.aggregatorConfig.NamespacedName,
		Workers:          options.workers,
	})
	if err != nil {
		return nil, fmt.Errorf("setting up the controllers: %w", err)
	}
	if options.allocator {
		if err := controllers.SetupAllocator(mgr, controllers.AllocatorOptions{Cycle: options.allocatorCycle}); err != nil {
			return nil, fmt.Errorf("setting up the allocator: %w", err)
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

// newIssuer keeps the certificate of di-server, which may not have the
// authority's key.
func newIssuer(config *rest.Config, log logr.Logger, options *operatorOptions) (*certs.Issuer, error) {
	api, err := client.New(config, client.Options{})
	if err != nil {
		return nil, fmt.Errorf("making the client of the issuer: %w", err)
	}
	of := func(name string) types.NamespacedName {
		return types.NamespacedName{Namespace: options.namespace, Name: name}
	}
	host := names.ServerService + "." + options.namespace
	return &certs.Issuer{
		API:       api,
		Authority: of(webhook.AuthoritySecret),
		Secret:    of(serverCertificate),
		Bundle:    of(serverBundle),
		Hosts:     []string{host, host + ".svc", host + "." + options.settings.ServiceDomain},
		Clock:     clock.RealClock{},
		Log:       log.WithName("issuer"),
	}, nil
}
