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

	"opendilab.org/di-orchestrator/apis/v2alpha1"
	"opendilab.org/di-orchestrator/internal/limits"
	"opendilab.org/di-orchestrator/internal/names"
	"opendilab.org/di-orchestrator/internal/scope"
	"opendilab.org/di-orchestrator/job/workload"
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

// processOptions are the options of all programs: log and traces, the addresses of probes, metrics
// and profiles, and the rate limit of calls to the API server.
type processOptions struct {
	// version is that of the build.
	version        string
	log            logOptions
	tracing        traceOptions
	metricsAddress string
	metricsSecure  bool
	probeAddress   string
	pprofAddress   string
	qps            float32
	burst          int
}

// jobOptions are the options that must be equal for the operator and di-server.
type jobOptions struct {
	aggregatorConfig configName
	gpuResource      string
	watchOptions
}

func (o *jobOptions) addFlags(flags *pflag.FlagSet) {
	o.aggregatorConfig = defaultAggregatorConfig()
	flags.Var(&o.aggregatorConfig, "aggregator-config", "namespace/name of the cluster's AggregatorConfig")
	flags.StringVar(&o.gpuResource, "gpu-resource", string(names.DefaultGPU), "resource name of GPUs in requests")
	o.watchOptions.addFlags(flags)
}

// scope returns the namespaces of the jobs.
func (o *jobOptions) scope() (scope.Namespaces, error) {
	return o.watchOptions.scope(o.aggregatorConfig.NamespacedName)
}

// watchOptions are the options that must be equal for the operator, di-server and the webhooks.
type watchOptions struct{ watchNamespaces []string }

func (o *watchOptions) addFlags(flags *pflag.FlagSet) {
	flags.StringSliceVar(&o.watchNamespaces, "watch-namespaces", nil,
		"namespaces whose jobs this installation runs; the programs watch no pods and jobs of others, and the webhooks warn of jobs there; empty for all")
}

// scope returns the namespaces of the jobs, and of the cluster's AggregatorConfig if a program needs it.
func (o *watchOptions) scope(config types.NamespacedName) (scope.Namespaces, error) {
	namespaces, err := scope.New(o.watchNamespaces, config)
	if err != nil {
		return scope.Namespaces{}, fmt.Errorf("--watch-namespaces: %w", err)
	}
	return namespaces, nil
}

// The sources of the certificates of the webhooks and of di-server.
const (
	certificatesOwn    = "own"
	certificatesSecret = "secret"
)

// installationOptions are the options that must be equal for the operator and the webhooks.
type installationOptions struct {
	namespace     string
	certificates  string
	takeover      bool
	maxPods       int32
	serviceDomain string
}

func (o *installationOptions) addFlags(flags *pflag.FlagSet) {
	flags.StringVar(&o.namespace, "namespace", ownNamespace(), "namespace of this installation: of its Secrets, Services and Leases")
	flags.StringVar(&o.certificates, "webhook-certificates", certificatesOwn,
		"source of the certificates of the webhooks and of di-server: own (signed by this installation's authority) or secret (maintained by another tool such as cert-manager)")
	bindTakeover(flags, &o.takeover)
	defaults := workload.Settings{}.Defaults()
	flags.Int32Var(&o.maxPods, "max-pods-per-job", defaults.MaxPods,
		"maximum number of pods of a job; the webhooks refuse more, and the operator does not create or delete pods of a job that is scaled beyond it")
	flags.StringVar(&o.serviceDomain, "service-domain", defaults.ServiceDomain, "DNS domain of the cluster's Services")
}

func (o *installationOptions) validate() error {
	if o.maxPods < 1 || o.maxPods > limits.Replicas {
		return fmt.Errorf("--max-pods-per-job %d: must be from 1 to %d", o.maxPods, limits.Replicas)
	}
	return checkCertificates(o.certificates)
}

func checkCertificates(source string) error {
	if source != certificatesOwn && source != certificatesSecret {
		return fmt.Errorf("--webhook-certificates %s: must be %s or %s", source, certificatesOwn, certificatesSecret)
	}
	return nil
}

func (o *processOptions) addFlags(flags *pflag.FlagSet) {
	o.log.addFlags(flags)
	o.tracing.addFlags(flags)
	flags.StringVar(&o.metricsAddress, "metrics-address", ":8082", "address of /metrics; 0 disables it")
	flags.BoolVar(&o.metricsSecure, "metrics-secure", false, "serve /metrics with TLS and only to authenticated callers whose roles allow get on /metrics")
	flags.StringVar(&o.probeAddress, "probe-address", ":8083", "address of /healthz and /readyz; 0 disables it")
	flags.StringVar(&o.pprofAddress, "pprof-address", "0", "address of /debug/pprof, which must not be reachable by others; 0 disables it")
	flags.Float32Var(&o.qps, "kube-api-qps", 0, "rate limit of calls to the API server, per second and kind of object; "+
		"0 leaves it to API Priority and Fairness, and is 200 where the API server lacks that")
	flags.IntVar(&o.burst, "kube-api-burst", limitedBurst, "burst of calls to the API server, where their rate is limited")
}

// The Secret that the operator issues and di-server serves with, and the ConfigMap of the CA bundle
// for clients of di-server.
const (
	serverCertificate = "di-orchestrator-server-tls"
	serverBundle      = "di-orchestrator-server-ca"
)

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
	log, err := o.log.newLogger()
	if err != nil {
		return err
	}
	config, err := o.restConfig(ctx)
	if err != nil {
		return err
	}
	return o.tracing.traced(ctx, p.name, o.version, log, func(traces trace.TracerProvider) error {
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
	if o.metricsSecure {
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
