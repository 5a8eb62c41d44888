// Copyright The DI Orchestrator Authors.
// SPDX-License-Identifier: Apache-2.0

package programs

import (
	"context"
	"fmt"

	"github.com/go-logr/logr"
	"github.com/spf13/cobra"
	"github.com/spf13/pflag"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/rest"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/manager"

	"opendilab.org/di-orchestrator/webhook"
)

type webhookOptions struct {
	processOptions
	address string
	url     string
}

func (o *webhookOptions) addFlags(flags *pflag.FlagSet) {
	o.processOptions.addFlags(flags)
	flags.StringVar(&o.address, "webhook-address", webhook.DefaultBindAddress, "address to serve webhooks on")
	flags.StringVar(&o.url, "webhook-url", "",
		"https://host:port at which the API server calls the webhooks if it cannot reach the Service")
}

func newWebhookCommand(version string) *cobra.Command {
	options := webhookOptions{processOptions: processOptions{version: version}}
	command := &cobra.Command{
		Use:   "webhook",
		Short: "Run the webhooks: conversion, defaulting and validation",
		Args:  cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			if err := options.load(); err != nil {
				return err
			}
			return options.run(cmd.Context(), &program{name: "di-orchestrator-webhook", title: "the webhooks", newManager: options.newManager})
		},
	}
	options.addFlags(command.Flags())
	return command
}

// newManager returns the manager of the webhooks. It has no informers and no leader, because every
// replica serves. The context ends with the process.
func (o *webhookOptions) newManager(ctx context.Context, config *rest.Config, log logr.Logger, watching observers) (ctrl.Manager, error) {
	if err := registerBuild(watching.metrics, o.version); err != nil {
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
	preparer, err := newPreparer(config, log, o)
	if err != nil {
		return nil, err
	}
	namespaces, err := o.scope(types.NamespacedName{})
	if err != nil {
		return nil, err
	}
	hooks, err := webhook.New(webhook.Options{
		Recorder:    recorder,
		Config:      config,
		Namespace:   o.namespace,
		Service:     webhook.DefaultService,
		URL:         o.url,
		BindAddress: o.address,
		DrainDelay:  drainDelay,
		Log:         log.WithName("webhook"),
		Registerer:  watching.metrics,
		Traces:      watching.traces,
		Prepare:     preparer.Prepare,

		CertificateSecret: o.config.Common.CertificateSecret,
		MaxPods:           o.config.Common.MaxPodsPerJob,
		ServiceDomain:     o.config.Common.ServiceDomain,
		Namespaces:        namespaces,
	})
	if err != nil {
		return nil, err
	}
	mgr, err := ctrl.NewManager(config, o.managerOptions(scheme, log))
	if err != nil {
		return nil, fmt.Errorf("making the manager: %w", err)
	}
	if err := mgr.Add(manager.RunnableFunc(hooks.Run)); err != nil {
		return nil, fmt.Errorf("adding the webhooks: %w", err)
	}
	return mgr, addProbes(mgr, hooks.Ready)
}
