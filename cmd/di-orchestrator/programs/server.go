// Copyright The DI Orchestrator Authors.
// SPDX-License-Identifier: Apache-2.0

package programs

import (
	"context"
	"fmt"

	"github.com/go-logr/logr"
	"github.com/spf13/cobra"
	"github.com/spf13/pflag"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/rest"
	"k8s.io/utils/clock"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"

	configv1alpha1 "opendilab.org/di-orchestrator/apis/config/v1alpha1"
	"opendilab.org/di-orchestrator/internal/certs"
	"opendilab.org/di-orchestrator/internal/names"
	"opendilab.org/di-orchestrator/server"
	"opendilab.org/di-orchestrator/server/auth"
	"opendilab.org/di-orchestrator/server/store"
)

type serverOptions struct {
	processOptions
	addresses  []string
	tlsAddress string
}

func (o *serverOptions) addFlags(flags *pflag.FlagSet) {
	o.processOptions.addFlags(flags)
	flags.StringSliceVar(&o.addresses, "address",
		[]string{fmt.Sprintf(":%d", names.ServerPortV1), fmt.Sprintf(":%d", names.ServerPortV2)},
		"addresses to listen on; each serves both protocols")
	flags.StringVar(&o.tlsAddress, "tls-address", fmt.Sprintf(":%d", names.ServerPortTLS),
		"address to listen on with TLS, for both protocols, once the operator has issued a certificate; empty disables it")
}

func newServerCommand(version string) *cobra.Command {
	options := serverOptions{processOptions: processOptions{version: version}}
	command := &cobra.Command{
		Use:   "server",
		Short: "Run di-server, the HTTP API that running jobs call",
		Args:  cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			if err := options.load(); err != nil {
				return err
			}
			return options.run(cmd.Context(), &program{
				name: "di-orchestrator-server", title: "di-server", await: awaitServed, newManager: options.newManager,
			})
		},
	}
	options.addFlags(command.Flags())
	return command
}

func limitsOf(config *configv1alpha1.Limits) server.Limits {
	return server.Limits{
		ReplicasPerRequest: config.ReplicasPerRequest, ReplicasPerJob: config.ReplicasPerJob,
		WritesPerSecond: config.WritesPerSecond, WriteBurst: int(config.WriteBurst), WriteBytesPerMinute: int(config.WriteBytesPerMinute),
		Connections: int(config.Connections), ConnectionsPerAddress: int(config.ConnectionsPerAddress),
		ProfilingBytes: int(config.ProfilingBytes),
	}
}

// newManager returns the manager of di-server, which reports to the observers.
func (o *serverOptions) newManager(ctx context.Context, config *rest.Config, log logr.Logger, watching observers) (ctrl.Manager, error) {
	if err := registerBuild(watching.metrics, o.version); err != nil {
		return nil, err
	}
	watching.wrap(config)
	namespaces, err := o.scope(o.aggregatorConfig())
	if err != nil {
		return nil, err
	}
	watches := store.NewWatches(log.WithName("watches"), clock.RealClock{})
	watches.Need(namespaces.Watches)
	config.Wrap(watches.Wrap)
	scheme, err := newScheme()
	if err != nil {
		return nil, err
	}
	settings := o.managerOptions(scheme, log)
	settings.Cache = namespaces.Cache(store.CacheOptions())
	settings.NewClient = namespaces.NewClient()
	mgr, err := ctrl.NewManager(config, settings)
	if err != nil {
		return nil, fmt.Errorf("making the manager: %w", err)
	}
	if err := store.SetupIndexes(ctx, mgr.GetCache()); err != nil {
		return nil, fmt.Errorf("setting up indexes: %w", err)
	}
	issued := &certs.Issued{
		API:    mgr.GetAPIReader(),
		Secret: types.NamespacedName{Namespace: o.namespace, Name: serverCertificate},
		Clock:  clock.RealClock{},
		Log:    log.WithName("certificate"),
	}
	lookups, err := newLookupClient(config, mgr)
	if err != nil {
		return nil, err
	}
	api, err := server.New(server.Options{
		Client:           mgr.GetClient(),
		APIReader:        namespaces.Reader(mgr.GetAPIReader()),
		Lookups:          namespaces.Live(lookups),
		Cache:            mgr.GetCache(),
		Identity:         auth.Mode(o.config.Server.Identity),
		StrictAddresses:  o.config.Server.StrictAddresses,
		Limits:           limitsOf(&o.config.Server.Limits),
		Watches:          watches,
		Metrics:          watching.metrics,
		Traces:           watching.traces,
		Log:              log.WithName("server"),
		GPUResource:      corev1.ResourceName(o.config.Common.GPUResource),
		AggregatorConfig: o.aggregatorConfig(),
		Addresses:        o.addresses,
		TLSAddress:       o.tlsAddress,
		GetCertificate:   issued.GetCertificate,
		DrainDelay:       drainDelay,
	})
	if err != nil {
		return nil, fmt.Errorf("making di-server: %w", err)
	}
	if err := mgr.Add(api); err != nil {
		return nil, fmt.Errorf("adding di-server: %w", err)
	}
	if o.tlsAddress != "" {
		if err := mgr.Add(issued); err != nil {
			return nil, fmt.Errorf("adding the certificate of di-server: %w", err)
		}
	}
	if err := addProbes(mgr, api.Ready); err != nil {
		return nil, err
	}
	return mgr, nil
}

// lookupShare is the divisor of the rate limit for calls to the API server that gives the rate
// limit for calls that untrusted clients cause.
const lookupShare = 4

// newLookupClient returns a client with its own rate limit. Callers of di-server therefore cannot
// exhaust the rate limit of the calls that write for jobs.
func newLookupClient(config *rest.Config, mgr ctrl.Manager) (client.Client, error) {
	lookups, err := client.New(withShareOfPace(config, lookupShare), client.Options{
		HTTPClient: mgr.GetHTTPClient(), Scheme: mgr.GetScheme(), Mapper: mgr.GetRESTMapper(),
	})
	if err != nil {
		return nil, fmt.Errorf("making the client of look-ups: %w", err)
	}
	return lookups, nil
}
