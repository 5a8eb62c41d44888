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
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/rest"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/manager"

	"opendilab.org/di-orchestrator/webhook"
)

type webhookOptions struct {
	processOptions
	installationOptions
	watchOptions
	address string
	service string
	url     string
	secret  string
}

func (o *webhookOptions) addFlags(flags *pflag.FlagSet) {
	o.processOptions.addFlags(flags)
	o.installationOptions.addFlags(flags)
	o.watchOptions.addFlags(flags)
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

func newWebhookCommand(version string) *cobra.Command {
	options := webhookOptions{processOptions: processOptions{version: version}}
	command := &cobra.Command{
		Use:   "webhook",
		Short: "Run the webhooks: conversion, defaulting and validation",
		Args:  cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			if err := options.validate(); err != nil {
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
		Service:     o.service,
		URL:         o.url,
		BindAddress: o.address,
		DrainDelay:  drainDelay,
		Log:         log.WithName("webhook"),
		Registerer:  watching.metrics,
		Traces:      watching.traces,
		Prepare:     preparer.Prepare,

		CertificateSecret: o.secret,
		MaxPods:           o.maxPods,
		ServiceDomain:     o.serviceDomain,
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
