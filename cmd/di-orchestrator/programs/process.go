// Copyright The DI Orchestrator Authors.
// SPDX-License-Identifier: Apache-2.0

package programs

import (
	"cmp"
	"context"
	"fmt"
	"os"
	"time"

	"github.com/go-logr/logr"
	"github.com/spf13/pflag"
	"go.opentelemetry.io/otel/trace"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	clientgoscheme "k8s.io/client-go/kubernetes/scheme"
	"k8s.io/client-go/rest"
	"k8s.io/utils/ptr"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/healthz"
	"sigs.k8s.io/controller-runtime/pkg/metrics"
	"sigs.k8s.io/controller-runtime/pkg/metrics/filters"
	metricsserver "sigs.k8s.io/controller-runtime/pkg/metrics/server"

	configv1alpha1 "opendilab.org/di-orchestrator/apis/config/v1alpha1"
	"opendilab.org/di-orchestrator/apis/v2alpha1"
	"opendilab.org/di-orchestrator/internal/names"
	"opendilab.org/di-orchestrator/internal/scope"
)

// The times of a graceful shutdown. The pods' terminationGracePeriodSeconds is longer.
const (
	// drainDelay is how long a stopping process still accepts calls, so that its clients first
	// observe that it is not ready. The kubelet probes readiness every 2 seconds, and endpoints
	// take additional time to reach each node.
	drainDelay = 6 * time.Second
	// stopTimeout bounds the whole shutdown: di-server drains, and then finishes requests in
	// flight, which may take 35 seconds.
	stopTimeout = 50 * time.Second
)

// processOptions are the options of all programs: the configuration, the level of the log, and the addresses of
// probes, metrics and profiles.
type processOptions struct {
	// version is that of the build.
	version    string
	configFile string
	logLevel   string
	namespace  string
	// config has what the file says, and defaults.
	config         *configv1alpha1.Configuration
	metricsAddress string
	probeAddress   string
	pprofAddress   string
}

// aggregatorConfig names the cluster's AggregatorConfig.
func (o *processOptions) aggregatorConfig() types.NamespacedName {
	return types.NamespacedName{Namespace: o.namespace, Name: o.config.Common.AggregatorConfig}
}

// scope returns the namespaces of the jobs, and of the cluster's AggregatorConfig if a program needs it.
func (o *processOptions) scope(config types.NamespacedName) (scope.Namespaces, error) {
	namespaces, err := scope.New(o.config.Common.WatchNamespaces, config)
	if err != nil {
		return scope.Namespaces{}, fmt.Errorf("common.watchNamespaces: %w", err)
	}
	return namespaces, nil
}

// issuesCertificates reports whether the programs issue the certificates of the webhooks and of di-server, and no other
// tool maintains them.
func (o *processOptions) issuesCertificates() bool { return o.config.Common.CertificateSecret == "" }

func (o *processOptions) addFlags(flags *pflag.FlagSet) {
	flags.StringVar(&o.configFile, "config", "", "file with the configuration; by default all fields have their defaults")
	flags.StringVar(&o.logLevel, "log-level", "info", "minimum log level: debug, info, warn or error")
	flags.StringVar(&o.namespace, "namespace", ownNamespace(), "namespace of this installation: of its Secrets, Services and Leases")
	flags.StringVar(&o.metricsAddress, "metrics-address", ":8082", "address of /metrics; 0 disables it")
	flags.StringVar(&o.probeAddress, "probe-address", ":8083", "address of /healthz and /readyz; 0 disables it")
	flags.StringVar(&o.pprofAddress, "pprof-address", "0", "address of /debug/pprof, which must not be reachable by others; 0 disables it")
}

// serverCertificate is the Secret that the operator issues and di-server serves with.
const serverCertificate = "di-orchestrator-server-tls"

// ownNamespace returns the namespace that the process runs in.
func ownNamespace() string {
	return cmp.Or(os.Getenv("POD_NAMESPACE"), names.SystemNamespace)
}

// restConfig returns the configuration of the cluster: the one that KUBECONFIG names, else the
// cluster that the process runs in, else the one of the user's kubeconfig.
func (o *processOptions) restConfig(ctx context.Context) (*rest.Config, error) {
	config, err := ctrl.GetConfig()
	if err != nil {
		return nil, fmt.Errorf("finding the cluster: %w", err)
	}
	return config, o.setPace(ctx, config)
}

// program is one of the programs of this binary.
type program struct {
	// name is the name of its service in traces, and title names it in logs and errors.
	name, title string
	// await returns when the cluster is ready for the program; nil if it needs nothing of it.
	await func(context.Context, *rest.Config, logr.Logger) error
	// newManager returns its manager. The context ends with the process.
	newManager func(context.Context, *rest.Config, logr.Logger, observers) (ctrl.Manager, error)
}

// run runs a program until the context ends.
func (o *processOptions) run(ctx context.Context, p *program) error {
	log, err := newLogger(o.logLevel, o.config.Common.LogFormat)
	if err != nil {
		return err
	}
	config, err := o.restConfig(ctx)
	if err != nil {
		return err
	}
	return withTraces(ctx, &o.config.Common.Tracing, build{p.name, o.version}, log, func(traces trace.TracerProvider) error {
		if p.await != nil {
			if err := p.await(ctx, config, log); err != nil {
				return err
			}
		}
		mgr, err := p.newManager(ctx, config, log, observers{metrics: metrics.Registry, traces: traces})
		if err != nil {
			return err
		}
		log.Info("Starting "+p.title, "version", o.version)
		if err := mgr.Start(ctx); err != nil {
			return fmt.Errorf("running %s: %w", p.title, err)
		}
		return nil
	})
}

// managerOptions returns the options that the managers of all programs share.
func (o *processOptions) managerOptions(scheme *runtime.Scheme, log logr.Logger) ctrl.Options {
	return ctrl.Options{
		Scheme:                  scheme,
		Logger:                  log,
		Metrics:                 o.metricsServer(),
		HealthProbeBindAddress:  o.probeAddress,
		PprofBindAddress:        o.pprofAddress,
		GracefulShutdownTimeout: ptr.To(stopTimeout),
	}
}

// metricsServer returns the options of the metrics server.
func (o *processOptions) metricsServer() metricsserver.Options {
	options := metricsserver.Options{BindAddress: o.metricsAddress}
	if o.config.Common.SecureMetrics {
		options.SecureServing = true
		options.FilterProvider = filters.WithAuthenticationAndAuthorization
	}
	return options
}

// newScheme returns a scheme of the kinds that the programs read and write.
func newScheme() (*runtime.Scheme, error) {
	scheme := runtime.NewScheme()
	if err := clientgoscheme.AddToScheme(scheme); err != nil {
		return nil, fmt.Errorf("registering Kubernetes' kinds: %w", err)
	}
	if err := v2alpha1.AddToScheme(scheme); err != nil {
		return nil, fmt.Errorf("registering our kinds: %w", err)
	}
	return scheme, nil
}

// addProbes adds a liveness check that succeeds as soon as the process answers, and the readiness
// check.
func addProbes(mgr ctrl.Manager, ready healthz.Checker) error {
	if err := mgr.AddHealthzCheck("ping", healthz.Ping); err != nil {
		return fmt.Errorf("adding the liveness probe: %w", err)
	}
	if err := mgr.AddReadyzCheck("ready", ready); err != nil {
		return fmt.Errorf("adding the readiness probe: %w", err)
	}
	return nil
}
