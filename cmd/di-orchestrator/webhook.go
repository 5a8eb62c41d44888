// Copyright The DI Orchestrator Authors.
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"errors"
	"fmt"

	"github.com/go-logr/logr"
	"github.com/spf13/cobra"
	"github.com/spf13/pflag"
	"go.opentelemetry.io/otel/trace"
	"k8s.io/client-go/rest"
	"k8s.io/utils/ptr"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/manager"
	"sigs.k8s.io/controller-runtime/pkg/metrics"

	"opendilab.org/di-orchestrator/webhook"
)

type webhookOptions struct {
	processOptions
	installationOptions
	address string
	service string
	url     string
	secret  string
}

func (o *webhookOptions) addFlags(flags *pflag.FlagSet) {
	o.processOptions.addFlags(flags)
	o.installationOptions.addFlags(flags)
	flags.StringVar(&o.address, "webhook-address", webhook.DefaultBindAddress, "address to serve webhooks on")
	flags.StringVar(&o.service, "webhook-service", webhook.DefaultService, "Service through which the API server calls the webhooks")
	flags.StringVar(&o.url, "webhook-url", "",
		"https://host:port at which the API server calls the webhooks if it cannot reach the Service")
	flags.StringVar(&o.secret, "webhook-secret", "",
		"Secret in the webhooks' namespace with their certificate, its key and ca.crt; di-server's Secret "+serverCertificate+" is then maintained by the same tool")
}

// validate reports flags that are invalid or contradict each other.
func (o *webhookOptions) validate() error {
	if err := errors.Join(o.installationOptions.validate(), o.tracing.validate()); err != nil {
		return err
	}
	switch {
	case o.certificates == certificatesOwn && o.secret != "":
		return fmt.Errorf("--webhook-secret %s: is for --webhook-certificates %s", o.secret, certificatesSecret)
	case o.certificates == certificatesSecret && o.secret == "":
		return fmt.Errorf("--webhook-certificates %s: needs --webhook-secret, the name of a Secret", certificatesSecret)
	}
	return nil
}

func newWebhookCommand() *cobra.Command {
	var options webhookOptions
	command := &cobra.Command{
		Use:   "webhook",
		Short: "Run the webhooks: conversion, defaulting and validation",
		Args:  cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			return runWebhooks(cmd.Context(), &options)
		},
	}
	options.addFlags(command.Flags())
	return command
}

func runWebhooks(ctx context.Context, options *webhookOptions) error {
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
	return options.tracing.traced(ctx, "di-orchestrator-webhook", log, func(traces trace.TracerProvider) error {
		mgr, err := newWebhookManager(ctx, config, log, options, observers{metrics: metrics.Registry, traces: traces})
		if err != nil {
			return err
		}
		log.Info("Starting the webhooks", "version", version)
		if err := mgr.Start(ctx); err != nil {
			return fmt.Errorf("running the webhooks: %w", err)
		}
		return nil
	})
}

// newWebhookManager returns the manager of the webhooks. It has no informers and no leader, because
// every replica serves. The context ends with the process.
func newWebhookManager(ctx context.Context, config *rest.Config, log logr.Logger, options *webhookOptions, watching observers) (ctrl.Manager, error) {
	if err := registerBuild(watching.metrics); err != nil {
		return nil, err
	}
	watching.wrap(config)
	scheme, err := newScheme()
	if err != nil {
		return nil, err
	}
	recorder, err := newEventRecorder(ctx, config, scheme, watching.metrics)
	if err != nil {
		return nil, err
	}
	preparer, err := newPreparer(config, log, options)
	if err != nil {
		return nil, err
	}
	hooks, err := webhook.New(webhook.Options{
		Recorder:    recorder,
		Config:      config,
		Namespace:   options.namespace,
		Service:     options.service,
		URL:         options.url,
		BindAddress: options.address,
		DrainDelay:  drainDelay,
		Log:         log.WithName("webhook"),
		Registerer:  watching.metrics,
		Traces:      watching.traces,
		Prepare:     preparer.Prepare,

		CertificateSecret: options.secret,
		MaxPods:           options.maxPods,
		ServiceDomain:     options.serviceDomain,
	})
	if err != nil {
		return nil, err
	}
	mgr, err := ctrl.NewManager(config, ctrl.Options{
		Scheme:                  scheme,
		Logger:                  log,
		Metrics:                 options.metricsServer(),
		HealthProbeBindAddress:  options.probeAddress,
		PprofBindAddress:        options.pprofAddress,
		GracefulShutdownTimeout: ptr.To(stopTimeout),
	})
	if err != nil {
		return nil, fmt.Errorf("making the manager: %w", err)
	}
	if err := mgr.Add(manager.RunnableFunc(hooks.Run)); err != nil {
		return nil, fmt.Errorf("adding the webhooks: %w", err)
	}
	return mgr, addProbes(mgr, hooks.Ready)
}
