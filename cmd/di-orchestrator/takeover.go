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
	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/util/wait"
	"k8s.io/client-go/discovery"
	clientgoscheme "k8s.io/client-go/kubernetes/scheme"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/events"
	"k8s.io/utils/clock"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"opendilab.org/di-orchestrator/apis/v2alpha1"
	"opendilab.org/di-orchestrator/internal/admissionprobe"
	"opendilab.org/di-orchestrator/internal/upgrade/crds"
	"opendilab.org/di-orchestrator/internal/upgrade/takeover"
	"opendilab.org/di-orchestrator/webhook"
)

// newPreparer makes what completes the definitions of an earlier release before
// the webhooks are published.
func newPreparer(config *rest.Config, log logr.Logger, options *operatorOptions) (*crds.Preparer, error) {
	scheme := runtime.NewScheme()
	if err := apiextensionsv1.AddToScheme(scheme); err != nil {
		return nil, fmt.Errorf("registering CustomResourceDefinitions: %w", err)
	}
	api, err := client.New(config, client.Options{Scheme: scheme})
	if err != nil {
		return nil, fmt.Errorf("making the client of definitions: %w", err)
	}
	return &crds.Preparer{
		API:             api,
		Namespace:       options.namespace,
		OwnCertificates: options.certificates == certificatesOwn,
		NoTakeover:      !options.takeover,
		Log:             log.WithName("takeover"),
	}, nil
}

// addTakeover adds what takes an earlier release over, and holds the controllers
// back until then. Where that is switched off, nothing holds them back: the definitions
// have shown that there is no earlier release.
func addTakeover(mgr ctrl.Manager, recorder events.EventRecorder, options *operatorOptions, registerer prometheus.Registerer) (*takeover.Runner, error) {
	if !options.takeover {
		return takeover.Finished(), nil
	}
	metrics, err := takeover.NewMetrics(registerer)
	if err != nil {
		return nil, err
	}
	// The probe of v1alpha1 would be warned that it is deprecated.
	quiet := rest.CopyConfig(mgr.GetConfig())
	quiet.WarningHandler = rest.NoWarnings{}
	api, err := client.New(quiet, client.Options{HTTPClient: mgr.GetHTTPClient(), Mapper: mgr.GetRESTMapper(), Scheme: clientgoscheme.Scheme})
	if err != nil {
		return nil, fmt.Errorf("making the client of the takeover: %w", err)
	}
	runner := takeover.New(takeover.Options{
		API:        api,
		Namespace:  options.namespace,
		Definition: webhook.CRD,
		Probe: func(ctx context.Context) error {
			return errors.Join(admissionprobe.Probe(ctx, api, options.namespace), admissionprobe.ProbeV2(ctx, api, options.namespace))
		},
		Settle:   options.takeoverSettle,
		Recorder: recorder,
		Metrics:  metrics,
		Clock:    clock.RealClock{},
		Log:      mgr.GetLogger().WithName("takeover"),
	})
	if err := mgr.Add(runner); err != nil {
		return nil, fmt.Errorf("adding the takeover: %w", err)
	}
	return runner, nil
}

// servedInterval is how often it is looked whether kinds are served.
const servedInterval = time.Second

// awaitServed returns when the API server serves what di-server watches: where an
// earlier release is taken over, the operator adds the version first.
func awaitServed(ctx context.Context, config *rest.Config, log logr.Logger) error {
	api, err := discovery.NewDiscoveryClientForConfig(config)
	if err != nil {
		return fmt.Errorf("making the client that looks for kinds: %w", err)
	}
	told := false
	err = wait.PollUntilContextCancel(ctx, servedInterval, true, func(context.Context) (bool, error) {
		found, err := api.ServerResourcesForGroupVersion(v2alpha1.GroupVersion.String())
		if err == nil && serves(found, "dijobs", "aggregatorconfigs", "memberships") {
			return true, nil
		}
		if !told {
			log.Info("Waiting for the API server to serve this version; the operator or install-crds installs its CRDs", "version", v2alpha1.GroupVersion, "error", err)
		}
		told = true
		return false, nil
	})
	if err != nil {
		return fmt.Errorf("waiting for the API server to serve %s: %w", v2alpha1.GroupVersion, context.Cause(ctx))
	}
	return nil
}

// serves reports whether all resources are among those that are served.
func serves(found *metav1.APIResourceList, resources ...string) bool {
	return !slices.ContainsFunc(resources, func(name string) bool {
		return !slices.ContainsFunc(found.APIResources, func(one metav1.APIResource) bool { return one.Name == name })
	})
}
