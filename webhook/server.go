// Copyright The DI Orchestrator Authors.
// SPDX-License-Identifier: Apache-2.0

package webhook

import (
	"bytes"
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	stdlog "log"
	"net"
	"net/http"
	"net/url"
	"strconv"
	"sync/atomic"
	"time"

	"github.com/go-logr/logr"
	"github.com/prometheus/client_golang/prometheus"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/wait"
	clientgoscheme "k8s.io/client-go/kubernetes/scheme"
	"k8s.io/client-go/rest"
	"k8s.io/utils/clock"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"opendilab.org/di-orchestrator/apis/v2alpha1"
	"opendilab.org/di-orchestrator/internal/certs"
	"opendilab.org/di-orchestrator/internal/names"
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
	AuthoritySecret = "di-orchestrator-webhook-ca"
	// MutatingConfiguration is the MutatingWebhookConfiguration.
	MutatingConfiguration = "di-orchestrator-mutating"
	// ValidatingConfiguration is the ValidatingWebhookConfiguration.
	ValidatingConfiguration = "di-orchestrator-validating"
	// CRD is the CustomResourceDefinition whose kinds are converted.
	CRD = "dijobs." + v2alpha1.GroupName
)

// publishInterval is how long to wait before publishing is tried again.
const publishInterval = 2 * time.Second

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
	// BindAddress is where to listen, :9443 by default. A Listener is used instead.
	BindAddress string
	Listener    net.Listener
	// DrainDelay is how long to go on serving after readiness was given up, so
	// that no more requests are sent here when the server closes.
	DrainDelay time.Duration
	// Clock is the real one by default.
	Clock clock.PassiveClock
	// Log receives what goes wrong and is tried again.
	Log logr.Logger
	// Registerer takes the metrics of conversion; without one there are none.
	Registerer prometheus.Registerer
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
	if o.Clock == nil {
		o.Clock = clock.RealClock{}
	}
}

// Server serves the webhooks and publishes its certificate authority.
type Server struct {
	options     Options
	api         client.Client
	publication certs.Publication
	hosts       []string
	handler     http.Handler

	published chan struct{}
	// serving is set from the publication until the server begins to stop.
	serving atomic.Pointer[servingState]
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
	api, err := client.New(options.Config, client.Options{Scheme: scheme})
	if err != nil {
		return nil, fmt.Errorf("webhooks: client: %w", err)
	}
	metrics, err := newConversionMetrics(options.Registerer, options.Log)
	if err != nil {
		return nil, err
	}
	handler, err := newHandler(options.Log, metrics)
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
	return &Server{
		options:     options,
		api:         api,
		publication: publication(endpoint),
		hosts:       endpoint.Hosts(host),
		handler:     handler,
		published:   make(chan struct{}),
	}, nil
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
	authority, err := s.authority(ctx)
	if err != nil {
		return err
	}
	leaf, err := certs.NewLeaf(authority, s.hosts, s.options.Clock)
	if err != nil {
		return fmt.Errorf("webhooks: %w", err)
	}
	listener := s.options.Listener
	if listener == nil {
		if listener, err = (&net.ListenConfig{}).Listen(ctx, "tcp", s.options.BindAddress); err != nil {
			return fmt.Errorf("webhooks: %w", err)
		}
	}
	server := s.newHTTPServer()
	failed := make(chan error, 1)
	go func() { failed <- server.Serve(tls.NewListener(listener, tlsConfig(leaf))) }()

	publishing, stop := context.WithCancel(ctx)
	defer stop()
	go s.publish(publishing, leaf, listener.Addr(), authority.Bundle())

	select {
	case err := <-failed:
		return fmt.Errorf("webhooks: serving: %w", err)
	case <-ctx.Done():
		return s.drain(ctx, server)
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
	state := s.serving.Load()
	if state == nil {
		return errors.New("the webhooks are not published, or are stopping")
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

func (s *Server) authority(ctx context.Context) (*certs.Authority, error) {
	name := types.NamespacedName{Namespace: s.options.Namespace, Name: AuthoritySecret}
	var authority *certs.Authority
	err := wait.PollUntilContextCancel(ctx, publishInterval, true, func(ctx context.Context) (bool, error) {
		var err error
		if authority, err = certs.LoadOrCreate(ctx, s.api, name, s.options.Clock); err != nil {
			s.options.Log.Error(err, "cannot get the certificate authority of the webhooks yet")
		}
		return err == nil, nil
	})
	if err != nil {
		return nil, fmt.Errorf("webhooks: certificate authority: %w", err)
	}
	return authority, nil
}

// publish makes the endpoint and the bundle known, and then lets the server
// count as ready.
func (s *Server) publish(ctx context.Context, leaf *certs.Leaf, address net.Addr, bundle []byte) {
	err := wait.PollUntilContextCancel(ctx, publishInterval, true, func(ctx context.Context) (bool, error) {
		err := errors.Join(leaf.VerifiedBy(bundle), s.publication.Publish(ctx, s.api, bundle))
		if err != nil {
			s.options.Log.Error(err, "cannot publish the webhooks yet")
		}
		return err == nil, nil
	})
	if err != nil {
		// Only the end of the context ends the attempts.
		return
	}
	s.serving.Store(&servingState{address: dialable(address), bundle: bundle})
	close(s.published)
	s.options.Log.Info("the webhooks are published", "hosts", s.hosts)
}

// dialable returns an address at which this process reaches its own listener.
func dialable(address net.Addr) string {
	tcp, ok := address.(*net.TCPAddr)
	if ok && tcp.IP.IsUnspecified() {
		return net.JoinHostPort("localhost", strconv.Itoa(tcp.Port))
	}
	return address.String()
}

// drain stops counting as ready, lets the last requests come, and closes.
func (s *Server) drain(ctx context.Context, server *http.Server) error {
	s.serving.Store(nil)
	timer := time.NewTimer(s.options.DrainDelay)
	defer timer.Stop()
	<-timer.C
	// The API server gives up on a conversion after 30 s.
	closing, cancel := context.WithTimeout(context.WithoutCancel(ctx), 30*time.Second)
	defer cancel()
	if err := server.Shutdown(closing); err != nil {
		return fmt.Errorf("webhooks: stopping: %w", err)
	}
	return nil
}

func (s *Server) newHTTPServer() *http.Server {
	return &http.Server{
		Handler:           s.handler,
		ReadHeaderTimeout: 10 * time.Second,
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
func tlsConfig(leaf *certs.Leaf) *tls.Config {
	return &tls.Config{
		MinVersion:     tls.VersionTLS12,
		GetCertificate: leaf.GetCertificate,
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
