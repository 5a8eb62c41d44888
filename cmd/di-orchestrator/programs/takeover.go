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
	discoveryv1 "k8s.io/api/discovery/v1"
	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/util/wait"
	"k8s.io/client-go/discovery"
	clientgoscheme "k8s.io/client-go/kubernetes/scheme"
	"k8s.io/client-go/rest"
	"k8s.io/utils/clock"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"opendilab.org/di-orchestrator/apis/v1alpha1"
	"opendilab.org/di-orchestrator/apis/v2alpha1"
	"opendilab.org/di-orchestrator/internal/names"
	"opendilab.org/di-orchestrator/upgrade/crds"
	"opendilab.org/di-orchestrator/upgrade/takeover"
	"opendilab.org/di-orchestrator/webhook/admissionprobe"
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
		OwnCertificates: options.issuesCertificates(),
		NoTakeover:      !options.config.Common.Takeover,
		Log:             log.WithName("takeover"),
	}, nil
}

// addTakeover adds the takeover of an earlier release. The controllers wait for it. If it is
// switched off they do not wait, because the definitions show that there is no earlier release.
func (o *operator) addTakeover() (*takeover.Runner, error) {
	options, mgr := o.options, o.mgr
	if !options.config.Common.Takeover {
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
		Settle:   options.config.Operator.TakeoverSettle.Duration,
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

// servedInterval is the interval between checks whether the cluster is ready for a program.
const servedInterval = time.Second

// awaitConversion returns when the API server serves all kinds and converts jobs between their
// versions through our webhooks. The webhook program completes the definitions of an earlier
// release, and publishes its endpoint and CA bundle in them. If an earlier release is taken over,
// awaitConversion serves the version that this adds.
func (o *operatorOptions) awaitConversion(ctx context.Context, config *rest.Config, log logr.Logger) error {
	kinds, err := discovery.NewDiscoveryClientForConfig(config)
	if err != nil {
		return fmt.Errorf("making the client that looks for kinds: %w", err)
	}
	// Each list of v1alpha1 would log a warning that it is deprecated.
	quiet := rest.CopyConfig(config)
	quiet.WarningHandler = rest.NoWarnings{}
	scheme := runtime.NewScheme()
	if err := errors.Join(apiextensionsv1.AddToScheme(scheme), discoveryv1.AddToScheme(scheme)); err != nil {
		return fmt.Errorf("registering CustomResourceDefinitions and EndpointSlices: %w", err)
	}
	api, err := client.New(quiet, client.Options{Scheme: scheme})
	if err != nil {
		return fmt.Errorf("making the client that checks conversion: %w", err)
	}
	added := &addedVersion{api: api, settle: o.config.Operator.TakeoverSettle.Duration, clock: clock.RealClock{}}
	return awaitReady(ctx, log, "the webhooks to convert jobs", func(ctx context.Context) error {
		if o.config.Common.Takeover {
			if err := added.serve(ctx); err != nil {
				return err
			}
		}
		if err := checkServed(kinds); err != nil {
			return err
		}
		return checkConversion(ctx, api)
	})
}

// awaitServed returns when the API server serves all kinds of this version. If an earlier release is
// taken over, the webhook program adds the version, and the operator serves it.
func awaitServed(ctx context.Context, config *rest.Config, log logr.Logger) error {
	kinds, err := discovery.NewDiscoveryClientForConfig(config)
	if err != nil {
		return fmt.Errorf("making the client that looks for kinds: %w", err)
	}
	return awaitReady(ctx, log, "the API server to serve "+v2alpha1.GroupVersion.String(), func(context.Context) error { return checkServed(kinds) })
}

// awaitReady returns when a check succeeds. It logs each new reason to wait once.
func awaitReady(ctx context.Context, log logr.Logger, what string, check func(context.Context) error) error {
	logged := ""
	err := wait.PollUntilContextCancel(ctx, servedInterval, true, func(ctx context.Context) (bool, error) {
		err := check(ctx)
		if err != nil && ctx.Err() == nil && err.Error() != logged {
			logged = err.Error()
			log.Info("Waiting for "+what, "reason", logged)
		}
		return err == nil, nil
	})
	if err != nil {
		return fmt.Errorf("waiting for %s: %w", what, context.Cause(ctx))
	}
	return nil
}

// checkServed returns an error while the API server does not serve all kinds of this version.
func checkServed(api discovery.ServerResourcesInterface) error {
	version := v2alpha1.GroupVersion.String()
	found, err := api.ServerResourcesForGroupVersion(version)
	if err != nil {
		return fmt.Errorf("%s is not served, and the webhooks or install-crds install its CRDs: %w", version, err)
	}
	for _, name := range []string{"dijobs", "aggregatorconfigs", "memberships", "scaleplans"} {
		if !slices.ContainsFunc(found.APIResources, func(one metav1.APIResource) bool { return one.Name == name }) {
			return fmt.Errorf("%s of %s are not served, and the webhooks or install-crds install their CRD", name, version)
		}
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

// addedVersion serves the version that the webhook program has added to the definition of an earlier
// release. The webhook program cannot do so: its pod is an endpoint only once it is ready.
type addedVersion struct {
	api    client.Client
	settle time.Duration
	clock  clock.PassiveClock
	// ready is when this process first found an endpoint of the webhooks, and zero if there is none.
	ready time.Time
}

// serve serves the version once nodes know an endpoint of the webhooks. It returns an error that says
// what it waits for, and nil if there is nothing to serve.
func (v *addedVersion) serve(ctx context.Context) error {
	definition := &apiextensionsv1.CustomResourceDefinition{}
	if err := v.api.Get(ctx, client.ObjectKey{Name: names.DIJobDefinition}, definition); client.IgnoreNotFound(err) != nil {
		return fmt.Errorf("getting customresourcedefinition %s: %w", names.DIJobDefinition, err)
	}
	if !crds.AwaitsWebhooks(definition) {
		return nil
	}
	if at := definition.Spec.Conversion.Webhook.ClientConfig.Service; at != nil {
		if err := v.awaitEndpoint(ctx, client.ObjectKey{Namespace: at.Namespace, Name: at.Name}); err != nil {
			return err
		}
	}
	return crds.Serve(ctx, v.api, definition)
}

// awaitEndpoint returns an error until the Service of the webhooks has had a ready endpoint for the time
// in which nodes learn of it.
func (v *addedVersion) awaitEndpoint(ctx context.Context, service client.ObjectKey) error {
	var found discoveryv1.EndpointSliceList
	if err := v.api.List(ctx, &found, client.InNamespace(service.Namespace), client.MatchingLabels{discoveryv1.LabelServiceName: service.Name}); err != nil {
		return fmt.Errorf("listing endpoints of Service %s: %w", service, err)
	}
	isReady := slices.ContainsFunc(found.Items, func(slice discoveryv1.EndpointSlice) bool {
		return slices.ContainsFunc(slice.Endpoints, func(endpoint discoveryv1.Endpoint) bool { return ptr.Deref(endpoint.Conditions.Ready, true) })
	})
	switch isSettled := v.isSettled(v.clock.Now(), isReady); {
	case !isReady:
		return fmt.Errorf("the webhooks that convert to it have no ready endpoint in Service %s", service)
	case !isSettled:
		return fmt.Errorf("nodes learn of the endpoints of Service %s", service)
	}
	return nil
}

// isSettled reports whether there has been a ready endpoint for the time in which nodes learn of it.
func (v *addedVersion) isSettled(now time.Time, isReady bool) bool {
	if !isReady {
		v.ready = time.Time{}
		return false
	}
	if v.ready.IsZero() {
		v.ready = now
	}
	return now.Sub(v.ready) >= v.settle
}
