// Copyright The DI Orchestrator Authors.
// SPDX-License-Identifier: Apache-2.0

// Package webhooks starts an API server with the project's webhooks for the test suites of other
// packages.
package webhooks

import (
	"context"
	"errors"
	"fmt"
	"net"
	"path/filepath"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/util/wait"
	"k8s.io/client-go/rest"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"opendilab.org/di-orchestrator/apis/v2alpha1"
	"opendilab.org/di-orchestrator/test/testkit"
	"opendilab.org/di-orchestrator/webhook"
)

// API is an API server with the project's webhooks, which run in the test's process.
type API struct {
	*testkit.API
	// Webhooks is the webhook server.
	Webhooks *webhook.Server

	stopWebhooks func() error
}

// StartAPIWithWebhooks starts the API server of testkit.StartAPI with conversion, defaulting and
// validation, which the API server reaches by URL. It returns when the API server calls them. The
// caller stops it. The context applies only to the start. The flags extend the API server's usual
// flags.
//
// The suites of package webhook and of the packages that it imports must be external test packages
// to use it.
func StartAPIWithWebhooks(ctx context.Context, flags ...string) (*API, error) {
	environment, err := testkit.StartAPI(ctx, flags...)
	if err != nil {
		return nil, err
	}
	api := &API{API: environment}
	if err := api.startWebhooks(ctx); err != nil {
		return nil, errors.Join(err, api.Stop())
	}
	return api, nil
}

// Stop stops the webhooks and then the API server, which would otherwise wait a minute for their
// watches.
func (a *API) Stop() error {
	var err error
	if a.stopWebhooks != nil {
		err = a.stopWebhooks()
	}
	return errors.Join(err, a.API.Stop())
}

func (a *API) startWebhooks(ctx context.Context) error {
	if err := InstallConfigurations(ctx, a.Config); err != nil {
		return err
	}
	listener, err := (&net.ListenConfig{}).Listen(ctx, "tcp", "127.0.0.1:0")
	if err != nil {
		return fmt.Errorf("listening for webhooks: %w", err)
	}
	account, err := a.As(testkit.Webhook)
	if err != nil {
		return errors.Join(err, listener.Close())
	}
	server, err := webhook.New(webhook.Options{
		Config: account, URL: "https://" + listener.Addr().String(), Listener: listener,
	})
	if err != nil {
		return errors.Join(err, listener.Close())
	}
	a.Webhooks = server
	running, cancel := context.WithCancel(context.WithoutCancel(ctx))
	ended := make(chan error, 1)
	go func() { ended <- server.Run(running) }()
	a.stopWebhooks = func() error {
		cancel()
		return <-ended
	}
	waiting, cancelWait := context.WithTimeout(ctx, testkit.Patience)
	defer cancelWait()
	if err := server.WaitPublished(waiting); err != nil {
		return err
	}
	return WaitCalled(waiting, a.Config)
}

// WaitCalled waits until the API server calls the webhooks of both versions and converts. It learns
// of published configurations by its own watches.
func WaitCalled(ctx context.Context, config *rest.Config) error {
	api, err := client.New(config, client.Options{})
	if err != nil {
		return fmt.Errorf("client: %w", err)
	}
	var last error
	err = wait.PollUntilContextCancel(ctx, 50*time.Millisecond, true, func(ctx context.Context) (bool, error) {
		last = errors.Join(
			probeAdmission(ctx, api, "v1alpha1", map[string]any{"coordinator": map[string]any{}}),
			probeAdmission(ctx, api, "v2alpha1", map[string]any{}),
			probeConversion(ctx, api),
		)
		return last == nil, nil
	})
	return errors.Join(err, last)
}

// probeAdmission returns nil if a job that only the webhooks reject is rejected.
func probeAdmission(ctx context.Context, api client.Client, version string, spec map[string]any) error {
	err := api.Create(ctx, probe(version, "webhooks.probe", spec), client.DryRunAll)
	switch {
	case apierrors.IsInvalid(err):
		return nil
	case err == nil:
		return fmt.Errorf("admission of %s is not called yet", version)
	}
	return fmt.Errorf("admission of %s does not work yet: %w", version, err)
}

// probeConversion returns nil if a job can be created through the version that is not the storage
// version.
func probeConversion(ctx context.Context, api client.Client) error {
	job := probe("v1alpha1", "webhooks-probe", map[string]any{"coordinator": map[string]any{
		"template": map[string]any{"spec": map[string]any{"containers": []any{map[string]any{"name": "probe"}}}},
	}})
	if err := api.Create(ctx, job); err != nil {
		return fmt.Errorf("conversion does not work yet: %w", err)
	}
	return api.Delete(ctx, job)
}

func probe(version, name string, spec map[string]any) *unstructured.Unstructured {
	job := &unstructured.Unstructured{Object: map[string]any{"spec": spec}}
	job.SetGroupVersionKind(schema.GroupVersionKind{Group: v2alpha1.GroupName, Version: version, Kind: "DIJob"})
	job.SetNamespace(metav1.NamespaceDefault)
	job.SetName(name)
	return job
}

// InstallConfigurations creates the webhook configurations as deployed. The server of the webhooks
// publishes its address.
func InstallConfigurations(ctx context.Context, config *rest.Config) error {
	api, err := client.New(config, client.Options{})
	if err != nil {
		return fmt.Errorf("client: %w", err)
	}
	folder := filepath.Join(testkit.Root(), "config", "webhook")
	for _, file := range []string{"service.yaml", "mutating.yaml", "validating.yaml"} {
		if err := testkit.CreateFile(ctx, api, filepath.Join(folder, file)); err != nil {
			return err
		}
	}
	return nil
}
