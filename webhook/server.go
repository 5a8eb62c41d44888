// Copyright The DI Orchestrator Authors.
// SPDX-License-Identifier: Apache-2.0

package webhook

import (
	"bytes"
	"cmp"
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	stdlog "log"
	"net"
	"net/http"
	"net/url"
	"os"
	"strconv"
	"sync/atomic"
	"time"

	"github.com/go-logr/logr"
	"github.com/prometheus/client_golang/prometheus"
	"go.opentelemetry.io/otel/trace"
	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/wait"
	clientgoscheme "k8s.io/client-go/kubernetes/scheme"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/events"
	"k8s.io/utils/clock"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"opendilab.org/di-orchestrator/apis/v2alpha1"
	"opendilab.org/di-orchestrator/internal/certs"
	"opendilab.org/di-orchestrator/internal/drain"
	"opendilab.org/di-orchestrator/internal/names"
	"opendilab.org/di-orchestrator/internal/netlimit"
	"opendilab.org/di-orchestrator/internal/scope"
	"opendilab.org/di-orchestrator/internal/tracing"
	"opendilab.org/di-orchestrator/webhook/podcheck"
	"opendilab.org/di-orchestrator/webhook/podschema"
	"opendilab.org/di-orchestrator/webhook/validation"
)

// The objects of the webhooks.
const (
	// DefaultService is the Service of the webhooks.
	DefaultService = "di-orchestrator-webhook"
	// DefaultServicePort is the port of that Service.
	DefaultServicePort int32 = 443
	// DefaultBindAddress is the address that the webhooks listen on.
	DefaultBindAddress = ":9443"
	// AuthoritySecret is the Secret of the certificate authority.
	AuthoritySecret = names.WebhookAuthority
	// MutatingConfiguration is the MutatingWebhookConfiguration.
	MutatingConfiguration = names.MutatingWebhooks
	// ValidatingConfiguration is the ValidatingWebhookConfiguration.
	ValidatingConfiguration = names.ValidatingWebhooks
	// CRD is the CustomResourceDefinition whose kinds are converted.
	CRD = names.DIJobDefinition
)

// publishInterval is the interval between attempts to publish.
const publishInterval = 2 * time.Second

const (
	// settleTime is the maximum time that API servers take to learn an additional authority by
	// their watches. A new authority serves only after this time.
	settleTime = 10 * time.Second
	// overlapTime is how long the authorities of other replicas stay published. By then every other
	// replica has followed.
	overlapTime = time.Hour
	// repairInterval is the interval between checks whether the published configuration was
	// overwritten, in addition to watches.
	repairInterval = time.Minute
	// restorePause is the initial delay before a second restoration. It doubles up to
	// repairInterval, because another tool may reset the configuration forever.
	restorePause = time.Second
	// leaveTimeout bounds how long a stopping server announces its end to the other replicas.
	leaveTimeout = 5 * time.Second
)

// The maximum numbers of open connections. An API server has one for each request in flight, and by
// default at most 600 requests. An idle connection costs about 64 KiB.
const (
	connectionsPerAddress = 600
	connections           = 1200
)

// certificates provides the serving certificate.
type certificates interface {
	// Next returns the serving certificate once it differs from the current one, which is nil at
	// first. It returns an error if there is no usable certificate.
	Next(ctx context.Context, current *certs.Serving) (*certs.Serving, error)
	// Declare records the serving certificate for the other replicas, and returns the authorities
	// that no replica serves with anymore, as PEM. It returns ErrReplaced if the other replicas may
	// have removed this authority in the meantime.
	Declare(ctx context.Context, serving *certs.Serving) (gone []byte, err error)
	// Leave records that this replica no longer serves.
	Leave(ctx context.Context) error
}

// Options configure how the webhooks are served and found.
type Options struct {
	// Config is the configuration of the API server's client. Required.
	Config *rest.Config
	// Namespace contains the Service and the authority's Secret; di-system by default.
	Namespace string
	// Service and ServicePort are the address of the webhooks in a cluster; di-orchestrator-webhook
	// and 443 by default.
	Service     string
	ServicePort int32
	// URL is the address of the webhooks, as https://host:port. It is for operators outside of the
	// cluster, where the API server cannot use the Service.
	URL string
	// CertificateSecret is the Secret of the namespace in which another tool keeps the certificate,
	// its key and its authority. If it is empty the server signs its own certificates.
	CertificateSecret string
	// Overlap is how long authorities of other replicas stay published; an hour by default.
	Overlap time.Duration
	// MaxPods is the maximum number of pods of a job; limits.PodsPerJob by default.
	MaxPods int32
	// ServiceDomain is the domain of the cluster's services. It affects the length of addresses.
	// The default is svc.cluster.local.
	ServiceDomain string
	// Namespaces are those whose jobs the operator runs. A job elsewhere is created with a warning.
	Namespaces scope.Namespaces
	// BindAddress is the address to listen on, :9443 by default. A Listener takes precedence.
	BindAddress string
	Listener    net.Listener
	// Prepare is called before each publication with the conversion that is served. If it fails,
	// nothing is published. None by default.
	Prepare func(ctx context.Context, conversion *apiextensionsv1.CustomResourceConversion) error
	// DrainDelay is how long the server keeps serving after it is no longer ready, so that no
	// requests arrive when it closes. None by default.
	DrainDelay time.Duration
	// Replica is the name that identifies this replica to the others; the host's name, which is the
	// pod's name, by default.
	Replica string
	// Clock is the source of time; the system's by default.
	Clock clock.WithTicker
	// Recorder records the Events about resets; nil for none.
	Recorder events.EventRecorder
	// Log logs errors that are retried.
	Log logr.Logger
	// Registerer registers the metrics; nil for none.
	Registerer prometheus.Registerer
	// Traces creates a span of each request; nil for none.
	Traces trace.TracerProvider
}

func (o *Options) complete() {
	if o.Namespace == "" {
		o.Namespace = names.SystemNamespace
	}
	if o.Service == "" {
		o.Service = DefaultService
	}
	if o.ServicePort == 0 {
		o.ServicePort = DefaultServicePort
	}
	if o.BindAddress == "" {
		o.BindAddress = DefaultBindAddress
	}
	if o.Replica == "" {
		// The replica announces itself even without a name.
		host, _ := os.Hostname()
		o.Replica = cmp.Or(host, "unknown")
	}
	if o.Overlap == 0 {
		o.Overlap = overlapTime
	}
	if o.Clock == nil {
		o.Clock = clock.RealClock{}
	}
}

// Server serves the webhooks and publishes its certificate authority.
type Server struct {
	options      Options
	api          client.WithWatch
	metrics      *hookMetrics
	certificates certificates
	publication  certs.Publication
	hosts        []string
	handler      http.Handler
	guard        guard
	drain        drain.Drain

	// lack is why there is no serving certificate yet, or why it is not published.
	lack atomic.Pointer[error]
	// current is the serving certificate.
	current   atomic.Pointer[certs.Serving]
	published chan struct{}
	// serving is set after the first publication.
	serving  atomic.Pointer[servingState]
	stopping atomic.Bool
}

// servingState is the input of the readiness check.
type servingState struct {
	address string
	bundle  []byte
}

// New returns a server that has not been started.
func New(options Options) (*Server, error) {
	options.complete()
	scheme := runtime.NewScheme()
	if err := clientgoscheme.AddToScheme(scheme); err != nil {
		return nil, fmt.Errorf("webhooks: %w", err)
	}
	if err := v2alpha1.AddToScheme(scheme); err != nil {
		return nil, fmt.Errorf("webhooks: %w", err)
	}
	api, err := client.NewWithWatch(options.Config, client.Options{Scheme: scheme})
	if err != nil {
		return nil, fmt.Errorf("webhooks: client: %w", err)
	}
	metrics, err := newHookMetrics(options.Registerer, options.Log)
	if err != nil {
		return nil, err
	}
	pods, err := podschema.NewSource(options.Config, options.Clock, options.Log)
	if err != nil {
		return nil, fmt.Errorf("webhooks: %w", err)
	}
	checker, err := podcheck.NewChecker(options.Config)
	if err != nil {
		return nil, fmt.Errorf("webhooks: %w", err)
	}
	bounds := validation.Bounds{MaxPods: options.MaxPods, Domain: options.ServiceDomain}
	s := &Server{}
	handler, err := newHandler(options.Log, metrics, hooks{
		bounds: bounds, fields: pods.Current, jobs: api, checks: newPodChecks(checker.Check), namespaces: options.Namespaces,
		namespace: options.Namespace, guard: &s.guard,
	})
	if err != nil {
		return nil, err
	}
	endpoint := certs.Endpoint{
		URL: options.URL, Namespace: options.Namespace, Service: options.Service, Port: options.ServicePort,
	}
	var host string
	if options.URL != "" {
		parsed, err := url.Parse(options.URL)
		if err != nil || parsed.Scheme != "https" || parsed.Hostname() == "" {
			return nil, fmt.Errorf("webhooks: URL %q must have the form https://host:port", options.URL)
		}
		host = parsed.Hostname()
	}
	hosts := endpoint.Hosts(host)
	s.options, s.api, s.metrics = options, api, metrics
	s.certificates = newCertificates(&options, api, hosts)
	s.publication, s.hosts = publication(endpoint), hosts
	s.handler = tracing.Handler(handler, options.Traces, every)
	// The API server's timeout of a conversion is 30 s.
	s.drain = drain.Drain{Delay: options.DrainDelay, Finish: 30 * time.Second}
	s.published = make(chan struct{})
	return s, nil
}

func newCertificates(options *Options, api client.WithWatch, hosts []string) certificates {
	secret := types.NamespacedName{Namespace: options.Namespace, Name: options.CertificateSecret}
	if secret.Name != "" {
		// The API server uses the first host. The issuer decides whether the certificate has the
		// others.
		return &certs.Kept{API: api, Secret: secret, Hosts: hosts[:1], Clock: options.Clock}
	}
	secret.Name = AuthoritySecret
	return &certs.Own{API: api, Secret: secret, Hosts: hosts, Clock: options.Clock, Replica: options.Replica}
}

// publication returns where the endpoint and CA bundle are published.
func publication(endpoint certs.Endpoint) certs.Publication {
	suffix := "." + v2alpha1.GroupName
	return certs.Publication{
		CRD:            CRD,
		ConversionPath: PathConvert,
		Mutating:       MutatingConfiguration,
		Validating:     ValidatingConfiguration,
		MutatingPaths:  map[string]string{"mutate-v1alpha1" + suffix: PathMutateV1, "mutate-v2alpha1" + suffix: PathMutateV2},
		ValidatingPaths: map[string]string{
			"validate-v1alpha1" + suffix: PathValidateV1, "validate-v2alpha1" + suffix: PathValidateV2,
			"validate-aggregatorconfigs" + suffix: PathValidateAggregatorConfig,
			"validate-scaleplans" + suffix:        PathValidateScalePlan,
		},
		GuardedPaths: map[string]string{
			"validate-dijobs-scale" + suffix: PathValidateScale, "validate-planned-dijobs" + suffix: PathValidatePlannedJob,
			"check-dijob-pods" + suffix: PathCheckPods,
		},
		Endpoint: endpoint,
	}
}

// Run serves until the context ends and requests in flight are answered. It publishes the authority
// as soon as it serves, and retries until it succeeds: the API server, the CRD and the webhook
// configurations may appear later.
func (s *Server) Run(ctx context.Context) error {
	first := s.next(ctx, nil)
	if first == nil {
		return fmt.Errorf("webhooks: waiting for a certificate to serve with: %w", context.Cause(ctx))
	}
	s.current.Store(first)
	s.guard.accept(first.PathToken())
	var err error
	listener := s.options.Listener
	if listener == nil {
		if listener, err = (&net.ListenConfig{}).Listen(ctx, "tcp", s.options.BindAddress); err != nil {
			return fmt.Errorf("webhooks: %w", err)
		}
	}
	listener = netlimit.Listen(listener, netlimit.Limits{PerAddress: connectionsPerAddress, Total: connections, Refused: func() {
		s.metrics.connectionRefused()
		s.options.Log.V(1).Info("Closed a connection: too many from one client, or in total")
	}})
	server := s.newHTTPServer()
	failed := make(chan error, 1)
	go func() { failed <- server.Serve(tls.NewListener(listener, s.tlsConfig())) }()

	publishing, stop := context.WithCancel(ctx)
	kept := make(chan struct{})
	go func() {
		defer close(kept)
		s.keepPublished(publishing, dialable(listener.Addr()))
	}()
	defer func() {
		stop()
		<-kept
		s.leave(ctx)
	}()

	select {
	case err := <-failed:
		return fmt.Errorf("webhooks: serving: %w", err)
	case <-ctx.Done():
		s.stopping.Store(true)
		if err := s.drain.Shutdown(ctx, server); err != nil {
			return fmt.Errorf("webhooks: stopping: %w", err)
		}
		return nil
	}
}

// leave records that this server no longer serves, so that the others need not wait until its
// heartbeat expires.
func (s *Server) leave(ctx context.Context) {
	leaving, cancel := context.WithTimeout(context.WithoutCancel(ctx), leaveTimeout)
	defer cancel()
	if err := s.certificates.Leave(leaving); err != nil {
		s.options.Log.V(1).Info("Cannot announce that this replica stops serving", "reason", err.Error())
	}
}

// WaitPublished returns when the endpoint and the CA bundle are published. Informers must not start
// earlier.
func (s *Server) WaitPublished(ctx context.Context) error {
	select {
	case <-s.published:
		return nil
	case <-ctx.Done():
		return fmt.Errorf("waiting for the webhooks to be published: %w", context.Cause(ctx))
	}
}

// Ready is a readiness check: this server answers with a certificate that clients of the published
// bundle accept.
func (s *Server) Ready(request *http.Request) error {
	if s.stopping.Load() {
		return errors.New("the webhooks are stopping")
	}
	state := s.serving.Load()
	if lack := s.lack.Load(); state == nil && lack != nil {
		return fmt.Errorf("the webhooks are not published yet: %w", *lack)
	}
	if state == nil {
		return errors.New("the webhooks are not published yet")
	}
	roots := x509.NewCertPool()
	roots.AppendCertsFromPEM(state.bundle)
	dialer := &tls.Dialer{Config: &tls.Config{
		MinVersion: tls.VersionTLS12, RootCAs: roots, ServerName: s.hosts[0], Time: s.options.Clock.Now,
	}}
	ctx, cancel := context.WithTimeout(request.Context(), time.Second)
	defer cancel()
	connection, err := dialer.DialContext(ctx, "tcp", state.address)
	if err != nil {
		return fmt.Errorf("the webhooks do not answer as published: %w", err)
	}
	return connection.Close()
}

// next waits for a serving certificate that differs from the current one; it returns nil when the
// context ends. It logs each distinct error once.
func (s *Server) next(ctx context.Context, current *certs.Serving) *certs.Serving {
	var found *certs.Serving
	told := ""
	err := wait.PollUntilContextCancel(ctx, publishInterval, true, func(ctx context.Context) (bool, error) {
		var err error
		if found, err = s.certificates.Next(ctx, current); err == nil {
			s.lack.Store(nil)
			return true, nil
		}
		told = s.tellLack(ctx, err, told)
		return false, nil
	})
	if err != nil {
		// Only the end of the context ends the retries.
		return nil
	}
	return found
}

// tellLack records why there is no serving certificate, logs it if it differs from the previous
// error, and returns the text of the last error. The end of the context is not an error.
func (s *Server) tellLack(ctx context.Context, err error, told string) string {
	if ctx.Err() != nil {
		return told
	}
	lack := fmt.Errorf("there is no certificate to serve with: %w", err)
	s.lack.Store(&lack)
	if err.Error() != told {
		s.options.Log.Error(err, "Serving certificate is not available yet")
	}
	return err.Error()
}

// dialable returns an address by which this process reaches its own listener.
func dialable(address net.Addr) string {
	tcp, ok := address.(*net.TCPAddr)
	if ok && tcp.IP.IsUnspecified() {
		return net.JoinHostPort("localhost", strconv.Itoa(tcp.Port))
	}
	return address.String()
}

func (s *Server) newHTTPServer() *http.Server {
	return &http.Server{
		Handler:           s.drain.Handler(s.handler),
		ConnState:         netlimit.Answered,
		ReadHeaderTimeout: 5 * time.Second,
		MaxHeaderBytes:    16 << 10,
		ReadTimeout:       time.Minute,
		WriteTimeout:      time.Minute,
		// IdleTimeout is longer than the API server keeps idle connections, so that it never sends
		// on a connection that is being closed here.
		IdleTimeout: 2 * time.Minute,
		ErrorLog:    stdlog.New(logWriter{s.options.Log}, "", 0),
	}
}

// tlsConfig disables HTTP/2, because one client could use its streams to exhaust the server.
func (s *Server) tlsConfig() *tls.Config {
	return &tls.Config{
		MinVersion:     tls.VersionTLS12,
		GetCertificate: func(*tls.ClientHelloInfo) (*tls.Certificate, error) { return s.current.Load().Certificate() },
		NextProtos:     []string{"http/1.1"},
	}
}

// logWriter logs errors of the HTTP server, such as the aborted handshakes of probes.
type logWriter struct {
	log logr.Logger
}

func (w logWriter) Write(line []byte) (int, error) {
	w.log.V(1).Info("webhook server", "message", string(bytes.TrimSpace(line)))
	return len(line), nil
}
