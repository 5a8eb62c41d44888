// Copyright The DI Orchestrator Authors.
// SPDX-License-Identifier: Apache-2.0

package programs

import (
	"context"
	"errors"
	"fmt"

	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	"k8s.io/client-go/rest"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"opendilab.org/di-orchestrator/upgrade/storagemigration"
	"opendilab.org/di-orchestrator/webhook/admissionprobe"
)

// addMigration adds the storage migration, which starts when the takeover of an earlier release has
// finished.
func (o *operator) addMigration(definitions *storagemigration.Definitions, takenOver <-chan struct{}) error {
	options := o.options
	migration := &options.config.Operator.StorageMigration
	api, err := newMigrationClient(o.mgr, float32(migration.QPS))
	if err != nil {
		return err
	}
	metrics, err := storagemigration.NewMetrics(o.metrics)
	if err != nil {
		return err
	}
	return storagemigration.Setup(o.mgr, definitions, storagemigration.Options{
		API:        api,
		Cached:     o.mgr.GetClient(),
		Everything: o.watches.Everything,
		Recorder:   o.recorder,
		Namespace:  options.namespace,
		TakenOver:  takenOver,
		Probe: func(ctx context.Context) error {
			return errors.Join(admissionprobe.Probe(ctx, api, options.namespace), admissionprobe.ProbeV2(ctx, api, options.namespace))
		},
		Metrics: metrics,
		Settle:  migration.Settle.Duration,
	})
}

// newMigrationClient returns a client with its own rate limit. The operator's calls for jobs
// therefore never wait for a migration. It suppresses warnings because it also writes objects in a
// deprecated version.
func newMigrationClient(mgr ctrl.Manager, qps float32) (client.Client, error) {
	config := rest.CopyConfig(mgr.GetConfig())
	config.QPS, config.Burst, config.RateLimiter = qps, max(int(qps), 1), nil
	config.WarningHandler = rest.NoWarnings{}
	scheme, err := newScheme()
	if err != nil {
		return nil, err
	}
	if err := apiextensionsv1.AddToScheme(scheme); err != nil {
		return nil, fmt.Errorf("registering CustomResourceDefinitions: %w", err)
	}
	// The manager's HTTP client shares its connections and has no rate limit.
	api, err := client.New(config, client.Options{HTTPClient: mgr.GetHTTPClient(), Mapper: mgr.GetRESTMapper(), Scheme: scheme})
	if err != nil {
		return nil, fmt.Errorf("making the client of the storage migration: %w", err)
	}
	return api, nil
}
