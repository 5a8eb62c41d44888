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
	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/util/wait"
	"k8s.io/client-go/discovery"
	clientgoscheme "k8s.io/client-go/kubernetes/scheme"
	"k8s.io/client-go/rest"
	"k8s.io/utils/clock"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"opendilab.org/di-orchestrator/apis/v1alpha1"
	"opendilab.org/di-orchestrator/apis/v2alpha1"
	"opendilab.org/di-orchestrator/internal/admissionprobe"
	"opendilab.org/di-orchestrator/internal/names"
	"opendilab.org/di-orchestrator/internal/upgrade/crds"
	"opendilab.org/di-orchestrator/internal/upgrade/takeover"
)

// newPreparer returns the preparer of an earlier release's definitions. It completes them before
// the webhooks are published.
func newPreparer(config *rest.Config, log logr.Logger, options *webhookOptions) (*crds.Preparer, error) {
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

// addTakeover adds the takeover of an earlier release. The controllers wait for it. If it is
// switched off they do not wait, because the definitions show that there is no earlier release.
func (o *operator) addTakeover() (*takeover.Runner, error) {
	options, mgr := o.options, o.mgr
	if !options.takeover {
		return takeover.Finished(), nil
	}
	metrics, err := takeover.NewMetrics(o.metrics)
	if err != nil {
		return nil, err
	}
	// The probe of v1alpha1 would log a warning that it is deprecated.
	quiet := rest.CopyConfig(mgr.GetConfig())
	quiet.WarningHandler = rest.NoWarnings{}
	api, err := client.New(quiet, client.Options{HTTPClient: mgr.GetHTTPClient(), Mapper: mgr.GetRESTMapper(), Scheme: clientgoscheme.Scheme})
	if err != nil {
		return nil, fmt.Errorf("making the client of the takeover: %w", err)
	}
	runner := takeover.New(takeover.Options{
		API:        api,
		Namespace:  options.namespace,
		Definition: names.DIJobDefinition,
		Probe: func(ctx context.Context) error {
			return errors.Join(admissionprobe.Probe(ctx, api, options.namespace), admissionprobe.ProbeV2(ctx, api, options.namespace))
		},
		Settle:   options.takeoverSettle,
		Recorder: o.recorder,
		Metrics:  metrics,
		Clock:    clock.RealClock{},
		Log:      mgr.GetLogger().WithName("takeover"),
	})
	if err := mgr.Add(runner); err != nil {
		return nil, fmt.Errorf("adding the takeover: %w", err)
	}
	return runner, nil
}

// awaitConversion returns when the API server serves all kinds and converts jobs between their
// versions through our webhooks. The webhook program completes the definitions of an earlier
// release, and publishes its endpoint and CA bundle in them.
func awaitConversion(ctx context.Context, config *rest.Config, log logr.Logger) error {
	if err := awaitServed(ctx, config, log); err != nil {
		return err
	}
	scheme := runtime.NewScheme()
	if err := apiextensionsv1.AddToScheme(scheme); err != nil {
		return fmt.Errorf("registering CustomResourceDefinitions: %w", err)
	}
	// Each list of v1alpha1 would log a warning that it is deprecated.
	quiet := rest.CopyConfig(config)
	quiet.WarningHandler = rest.NoWarnings{}
	api, err := client.New(quiet, client.Options{Scheme: scheme})
	if err != nil {
		return fmt.Errorf("making the client that checks conversion: %w", err)
	}
	logged := ""
	err = wait.PollUntilContextCancel(ctx, servedInterval, true, func(ctx context.Context) (bool, error) {
		err := checkConversion(ctx, api)
		if err != nil && ctx.Err() == nil && err.Error() != logged {
			logged = err.Error()
			log.Info("Waiting for the webhooks to convert jobs", "reason", logged)
		}
		return err == nil, nil
	})
	if err != nil {
		return fmt.Errorf("waiting for the webhooks to convert jobs: %w", context.Cause(ctx))
	}
	return nil
}

// checkConversion returns an error while jobs cannot be read in both versions.
func checkConversion(ctx context.Context, api client.Client) error {
	definition := &apiextensionsv1.CustomResourceDefinition{}
	if err := api.Get(ctx, client.ObjectKey{Name: names.DIJobDefinition}, definition); err != nil {
		return fmt.Errorf("getting customresourcedefinition %s: %w", names.DIJobDefinition, err)
	}
	if err := crds.CheckPublished(definition); err != nil {
		return err
	}
	for _, version := range []string{v1alpha1.Version, v2alpha1.Version} {
		jobs := &metav1.PartialObjectMetadataList{}
		jobs.SetGroupVersionKind(schema.GroupVersionKind{Group: v2alpha1.GroupName, Version: version, Kind: "DIJobList"})
		if err := api.List(ctx, jobs, client.Limit(1)); err != nil {
			return fmt.Errorf("listing jobs in %s: %w", version, err)
		}
	}
	return nil
}

// servedInterval is the interval between checks whether kinds are served.
const servedInterval = time.Second

// awaitServed returns when the API server serves all kinds of this version. If an earlier
// release is taken over, the webhook program adds the version first.
func awaitServed(ctx context.Context, config *rest.Config, log logr.Logger) error {
	api, err := discovery.NewDiscoveryClientForConfig(config)
	if err != nil {
		return fmt.Errorf("making the client that looks for kinds: %w", err)
	}
	told := false
	err = wait.PollUntilContextCancel(ctx, servedInterval, true, func(context.Context) (bool, error) {
		found, err := api.ServerResourcesForGroupVersion(v2alpha1.GroupVersion.String())
		if err == nil && serves(found, "dijobs", "aggregatorconfigs", "memberships", "scaleplans") {
			return true, nil
		}
		if !told {
			log.Info("Waiting for the API server to serve this version; the webhooks or install-crds install its CRDs", "version", v2alpha1.GroupVersion, "error", err)
		}
		told = true
		return false, nil
	})
	if err != nil {
		return fmt.Errorf("waiting for the API server to serve %s: %w", v2alpha1.GroupVersion, context.Cause(ctx))
	}
	return nil
}

// serves reports whether the API server serves all of the resources.
func serves(found *metav1.APIResourceList, resources ...string) bool {
	return !slices.ContainsFunc(resources, func(name string) bool {
		return !slices.ContainsFunc(found.APIResources, func(one metav1.APIResource) bool { return one.Name == name })
	})
}
