// Copyright The DI Orchestrator Authors.
// SPDX-License-Identifier: Apache-2.0

package testkit

import (
	"context"
	"errors"
	"fmt"
	"net"
	"path/filepath"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/envtest"

	"opendilab.org/di-orchestrator/internal/names"
	"opendilab.org/di-orchestrator/webhook"
)

// API is an API server with the project's webhooks, which run in the test's
// own process.
type API struct {
	*envtest.Environment
	// Webhooks is the server of the webhooks.
	Webhooks *webhook.Server

	stopWebhooks func() error
}

// StartAPIWithWebhooks starts what StartAPI starts, and conversion, defaulting
// and validation with it, which the API server reaches by URL. It returns when
// the webhooks are published. The caller stops it; the context is only for the
// start.
func StartAPIWithWebhooks(ctx context.Context) (*API, error) {
	environment, err := StartAPI()
	if err != nil {
		return nil, err
	}
	api := &API{Environment: environment}
	if err := api.startWebhooks(ctx); err != nil {
		return nil, errors.Join(err, api.Stop())
	}
	return api, nil
}

// Stop stops the API server and then the webhooks.
func (a *API) Stop() error {
	err := a.Environment.Stop()
	if a.stopWebhooks != nil {
		err = errors.Join(err, a.stopWebhooks())
	}
	return err
}

func (a *API) startWebhooks(ctx context.Context) error {
	if err := a.installWebhooks(ctx); err != nil {
		return err
	}
	listener, err := (&net.ListenConfig{}).Listen(ctx, "tcp", "127.0.0.1:0")
	if err != nil {
		return fmt.Errorf("listening for webhooks: %w", err)
	}
	server, err := webhook.New(webhook.Options{
		Config: a.Config, URL: "https://" + listener.Addr().String(), Listener: listener,
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
	waiting, cancelWait := context.WithTimeout(ctx, time.Minute)
	defer cancelWait()
	return server.WaitPublished(waiting)
}

// installWebhooks creates the system namespace and the webhook configurations
// as they are deployed.
func (a *API) installWebhooks(ctx context.Context) error {
	api, err := client.New(a.Config, client.Options{})
	if err != nil {
		return fmt.Errorf("client: %w", err)
	}
	namespace := &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: names.SystemNamespace}}
	if err := api.Create(ctx, namespace); err != nil {
		return fmt.Errorf("creating the system namespace: %w", err)
	}
	folder := filepath.Join(Root(), "config", "webhook")
	for _, file := range []string{"service.yaml", "mutating.yaml", "validating.yaml"} {
		if err := createFile(ctx, api, filepath.Join(folder, file)); err != nil {
			return err
		}
	}
	return nil
}
