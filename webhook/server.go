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
	"opendilab.org/di-orchestrator/internal/podschema"
	"opendilab.org/di-orchestrator/internal/tracing"
	"opendilab.org/di-orchestrator/internal/validation"
)

// The objects that the webhooks live in.
const (
	// DefaultService is the Service that leads to the webhooks.
	DefaultService = "di-orchestrator-webhook"
	// DefaultServicePort is its port.
	DefaultServicePort int32 = 443
	// DefaultBindAddress is where the webhooks listen.
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

// publishInterval is how long to wait before publishing is tried again.
const publishInterval = 2 * time.Second

const (
	// settleTime is how long API servers take to learn by their watches whom they
	// are to trust besides, at most: so much later it is served by that.
	settleTime = 10 * time.Second
	// overlapTime is how long an authority is still published by which this server
	// does not serve: until then every other has followed.
	overlapTime = time.Hour
	// repairInterval is how often it is seen to that nobody has overwritten what is
	// published, beside at each change.
	repairInterval = time.Minute
	// restorePause is how soon something is published again that was reset a second
	// time; it doubles up to repairInterval, as who resets it may do so forever.
	restorePause = time.Second
	// leaveTimeout bounds how long a server that stops tells the others of it.
	leaveTimeout = 5 * time.Second
)

// How many connections are open at a time. An API server has one for each request
// that it waits for, and by default 600 requests. An idle one costs some 64 KiB.
const (
	connectionsPerAddress = 600
	connections           = 1200
)

// certificates tells what to serve with.
type certificates interface {
	// Next returns what to serve with once it is something else than the current,
	// of which there is none at first. An error says what is in the way.
	Next(ctx context.Context, current *certs.Serving) (*certs.Serving, error)
	// Declare tells the other replicas what is served with, and returns the
	// authorities by which none of them serves any more, as PEM. It is ErrReplaced
	// where the others may have given up the authority of this one meanwhile.
	Declare(ctx context.Context, serving *certs.Serving) (gone []byte, err error)
	// Leave tells the other replicas that this one does not serve any more.
	Leave(ctx context.Context) error
}

// Options say how the webhooks are served and found.
type Options struct {
	// Config leads to the API server. Required.
	Config *rest.Config
	// Namespace has the Service and the authority's Secret; di-system by default.
	Namespace string
	// Service and ServicePort lead to the webhooks in a cluster;
	// di-orchestrator-webhook and 443 by default.
	Service     string
	ServicePort int32
	// URL leads to the webhooks, as https://host:port, where the API server
	// cannot use the Service: when the operator runs outside the cluster.
	URL string
	// CertificateSecret is the Secret of the namespace in which somebody else keeps
	// the certificate, with its key and its authority. Where it is empty the server
	// signs its own.
	CertificateSecret string
	// Overlap is how long authorities stay published by which this server does not
	// serve; an hour by default.
	Overlap time.Duration
	// MaxPods is how many pods a job may have; limits.PodsPerJob by default.
	MaxPods int32
	// ServiceDomain is the domain of the cluster's services, on which the length of
	// addresses depends; svc.cluster.local by default.
	ServiceDomain string
	// BindAddress is where to listen, :9443 by default. A Listener is used instead.
	BindAddress string
	Listener    net.Listener
	// Prepare makes a place for what is published, before each time that it is
	// published: it is given the conversion that is served. Nothing is published
	// where it fails. None by default.
	Prepare func(ctx context.Context, conversion *apiextensionsv1.CustomResourceConversion) error
	// DrainDelay is how long to go on serving after readiness was given up, so
	// that no more requests are sent here when the server closes. None by default.
	DrainDelay time.Duration
	// Replica is the name by which the other replicas know this one; the host's,
	// which is the pod's, by default.
	Replica string
	// Clock is the real one by default.
	Clock clock.WithTicker
	// Recorder takes the Events about what was reset; nil for none.
	Recorder events.EventRecorder
	// Log receives what goes wrong and is tried again.
	Log logr.Logger
	// Registerer takes the metrics of conversion; without one there are none.
	Registerer prometheus.Registerer
	// Traces makes a span of each request; nil for none.
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
		// Without a name it is heard of all the same.
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
	drain        drain.Drain

	// lack is why there is nothing to serve with yet, or why that is not published.
	lack atomic.Pointer[error]
	// current is what is served with.
	current   atomic.Pointer[certs.Serving]
	published chan struct{}
	// serving is set from the publication on.
	serving  atomic.Pointer[servingState]
	stopping atomic.Bool
}

// servingState is what a readiness check needs.
type servingState struct {
	address string
	bundle  []byte
}

// New returns a server that does nothing yet.
func New(options Options) (*Server, error) {
	options.complete()
	scheme := runtime.NewScheme()
	if err := clientgoscheme.AddToScheme(scheme); err != nil {
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
	handler, err := newHandler(options.Log, metrics, validation.Bounds{MaxPods: options.MaxPods, Domain: options.ServiceDomain}, pods.Current)
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
	return &Server{
		options:      options,
		api:          api,
		metrics:      metrics,
		certificates: newCertificates(&options, api, hosts),
		publication:  publication(endpoint),
		hosts:        hosts,
		handler:      tracing.Handler(handler, options.Traces, every),
		// The API server gives up on a conversion after 30 s.
		drain:     drain.Drain{Delay: options.DrainDelay, Finish: 30 * time.Second},
		published: make(chan struct{}),
	}, nil
}

func newCertificates(options *Options, api client.WithWatch, hosts []string) certificates {
	secret := types.NamespacedName{Namespace: options.Namespace, Name: options.CertificateSecret}
	if secret.Name != "" {
		// The API server uses the first; that others are missing is whoever's choice who issued it.
		return &certs.Kept{API: api, Secret: secret, Hosts: hosts[:1], Clock: options.Clock}
	}
	secret.Name = AuthoritySecret
	return &certs.Own{API: api, Secret: secret, Hosts: hosts, Clock: options.Clock, Replica: options.Replica}
}

// publication says where the webhooks are made known.
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
		},
		Endpoint: endpoint,
	}
}

// Run serves until the context ends, and then until running requests are
// answered. It publishes the authority as soon as it serves, and tries again
// until it can: the API server may be late, and the CRD and the webhook
// configurations too.
func (s *Server) Run(ctx context.Context) error {
	first := s.next(ctx, nil)
	if first == nil {
		return fmt.Errorf("webhooks: waiting for a certificate to serve with: %w", context.Cause(ctx))
	}
	s.current.Store(first)
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

// leave lets the others not wait for this server, which has stopped serving. They
// would do without it in time.
func (s *Server) leave(ctx context.Context) {
	leaving, cancel := context.WithTimeout(context.WithoutCancel(ctx), leaveTimeout)
	defer cancel()
	if err := s.certificates.Leave(leaving); err != nil {
		s.options.Log.V(1).Info("Cannot announce that this replica stops serving", "reason", err.Error())
	}
}

// WaitPublished returns when the API server has been told where the webhooks
// are and whom to trust. Informers must not start before.
func (s *Server) WaitPublished(ctx context.Context) error {
	select {
	case <-s.published:
		return nil
	case <-ctx.Done():
		return fmt.Errorf("waiting for the webhooks to be published: %w", context.Cause(ctx))
	}
}

// Ready is a readiness check: this server answers, with a certificate that
// whoever trusts the published bundle accepts.
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

// next waits for something else to serve with than the current; nil at the end
// of the context. Until then what is in the way is told once.
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
		// Only the end of the context ends the attempts.
		return nil
	}
	return found
}

// tellLack makes known why there is nothing to serve with, and returns what was
// told last. That the context ended is no reason.
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

// dialable returns an address at which this process reaches its own listener.
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
		// Longer than the API server keeps idle connections, so that it never
		// sends on one that is being closed here.
		IdleTimeout: 2 * time.Minute,
		ErrorLog:    stdlog.New(logWriter{s.options.Log}, "", 0),
	}
}

// tlsConfig leaves out HTTP/2, whose streams one client could use to take all
// of the server.
func (s *Server) tlsConfig() *tls.Config {
	return &tls.Config{
		MinVersion:     tls.VersionTLS12,
		GetCertificate: func(*tls.ClientHelloInfo) (*tls.Certificate, error) { return s.current.Load().Certificate() },
		NextProtos:     []string{"http/1.1"},
	}
}

// logWriter passes on what the HTTP server complains about, such as handshakes
// that were broken off, which probes do.
type logWriter struct {
	log logr.Logger
}

func (w logWriter) Write(line []byte) (int, error) {
	w.log.V(1).Info("webhook server", "message", string(bytes.TrimSpace(line)))
	return len(line), nil
}
