// Copyright The DI Orchestrator Authors.
// SPDX-License-Identifier: Apache-2.0

package server

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"net"
	"net/http"
	"runtime"
	"sync/atomic"
	"time"

	"github.com/go-logr/logr"
	"github.com/prometheus/client_golang/prometheus"
	"go.opentelemetry.io/otel/trace"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/rand"
	"k8s.io/utils/clock"
	"sigs.k8s.io/controller-runtime/pkg/cache"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"opendilab.org/di-orchestrator/internal/drain"
	"opendilab.org/di-orchestrator/internal/membership"
	"opendilab.org/di-orchestrator/internal/names"
	"opendilab.org/di-orchestrator/internal/netlimit"
	"opendilab.org/di-orchestrator/internal/tracing"
)

const (
	// sendTime bounds how long the answer may take on its way.
	sendTime = 10 * time.Second
	// idleTime is how long an idle connection is kept.
	idleTime = 30 * time.Second
	// headTime bounds how long the head of a request may take to come.
	headTime = 5 * time.Second
	// stopMargin is how much longer than a request may take a stopping server
	// finishes what it has read.
	stopMargin = 5 * time.Second
	// maxHeader bounds the bytes of a request's head.
	maxHeader = 16 << 10
	// maxBody bounds the bytes of a request's body.
	maxBody = 1 << 20
	// maxBodies bounds the bytes of all bodies that are being worked on, and
	// maxOwnBodies those of one sender.
	maxBodies, maxOwnBodies = 32 << 20, 4 << 20
)

// Options are what a server is made of.
type Options struct {
	// Client reads from Cache and writes to the API server. Required.
	Client client.Client
	// APIReader reads from the API server. Required.
	APIReader client.Reader
	// Lookups asks the API server on behalf of whoever calls: who sends a request,
	// and whether a name is one that the cache does not know yet. Give it calls of
	// its own, so that strangers take none from APIReader and Client, which are the
	// default.
	Lookups Asker
	// Cache is what Client reads from; the server listens once it is warm. Required.
	Cache cache.Cache
	// Identity says what becomes of callers that are not identified, by default
	// ModeEnforce.
	Identity Mode
	// StrictAddresses is whether pods that share their node's network are known by
	// a token alone. Otherwise a node's address stands for the jobs' pods that share
	// it, as deployed clients send no token.
	StrictAddresses bool
	// Limits bound what one job may ask for.
	Limits Limits
	// Times are how long the server waits for what.
	Times Times
	// Watches follows the watches that keep Cache current; requests are held
	// while one of them is broken. Nil for none.
	Watches *Watches
	// Metrics takes the server's metrics; nil for none.
	Metrics prometheus.Registerer
	// Traces makes a span of each request but probes; nil for none.
	Traces trace.TracerProvider
	// Log takes what clients are not told.
	Log logr.Logger
	// Clock tells the time; by default the system's.
	Clock clock.PassiveClock
	// Random gives the suffixes of new names; by default Kubernetes' own.
	Random membership.Random
	// GPUResource is the resource that counts GPUs, by default nvidia.com/gpu.
	GPUResource corev1.ResourceName
	// AggregatorConfig names the cluster's AggregatorConfig, by default
	// di-system/aggregator-config.
	AggregatorConfig types.NamespacedName
	// Addresses are where the server listens, by default :8080 and :8081; both
	// protocols are served on each.
	Addresses []string
	// TLSAddress is where the server listens for TLS; nowhere where it is empty.
	TLSAddress string
	// GetCertificate serves TLS handshakes. Required beside TLSAddress.
	GetCertificate func(*tls.ClientHelloInfo) (*tls.Certificate, error)
	// DrainDelay is how long requests are taken after the server has begun to stop
	// and is not ready any more, so that clients are led elsewhere before it refuses
	// them. None by default.
	DrainDelay time.Duration
}

// Server is di-server.
type Server struct {
	options Options
	store   store
	lookups *lookups
	gate    *gate
	pace    *pace
	// unanswered are the writes whose outcome nobody was told.
	unanswered unanswered
	budget     *budget
	reports    *reports
	bodies     *netlimit.Room
	turns      *turns
	sparse     *sparse
	bounds     *bounds
	requests   *requests
	handler    http.Handler
	// serving is whether the server listens and does not stop.
	serving atomic.Bool
	drain   drain.Drain
}

// New returns a server, which serves once it is started.
func New(options Options) (*Server, error) {
	if options.Client == nil || options.APIReader == nil || options.Cache == nil {
		return nil, errors.New("server options: Client, APIReader and Cache are required")
	}
	if err := options.complete(); err != nil {
		return nil, err
	}
	told, err := newCalls(options.Metrics, options.Log)
	if err != nil {
		return nil, err
	}
	store := clusterStore{
		cached: options.Client, informers: options.Cache, reader: options.APIReader, pod: &corev1.Pod{},
		lookups: options.Lookups, callTime: options.Times.Call, told: told,
	}
	lookups := newLookups(store, options.Clock)
	server := &Server{
		options: options,
		store:   store,
		lookups: lookups,
		gate:    newGate(&options, store, lookups, told),
		pace:    newPace("writes for one job", options.Limits.WritesPerSecond, options.Limits.WriteBurst),

		unanswered: newUnanswered(options.Clock, options.Watches),
		bodies:     newRoom(options.Times.Body),
		turns:      newTurns(runtime.GOMAXPROCS(0)),
		sparse:     newSparse(options.Clock),
		drain:      drain.Drain{Delay: options.DrainDelay, Finish: options.Times.Request + stopMargin},
	}
	if server.bounds, err = newBounds(options.Metrics); err != nil {
		return nil, err
	}
	server.budget = newBudget(options.Limits.WriteBytesPerMinute, server.bounds.waitsForBudget)
	server.reports = &reports{
		every: options.Times.Profilings, timeout: options.Times.Request, write: server.writeProfilings, told: server.bounds.report,
		turns: map[types.UID]*turn{},
	}
	engine := server.routes()
	if server.requests, err = newRequests(options.Metrics, options.Log, options.Watches, paths(engine)); err != nil {
		return nil, err
	}
	server.handler = tracing.Public(engine, options.Traces, isNoProbe)
	return server, nil
}

// complete fills in the defaults.
func (options *Options) complete() error {
	switch options.Identity {
	case "":
		options.Identity = ModeEnforce
	case ModeEnforce, ModeLegacy, ModeOff:
	default:
		return fmt.Errorf("server options: Identity: %q must be %s, %s or %s", options.Identity, ModeEnforce, ModeLegacy, ModeOff)
	}
	if options.TLSAddress != "" && options.GetCertificate == nil {
		return errors.New("server options: GetCertificate is required beside TLSAddress")
	}
	if options.Lookups == nil {
		options.Lookups = readerAndCreator{options.APIReader, options.Client}
	}
	var err error
	if options.Limits, err = options.Limits.withDefaults(options.Identity); err != nil {
		return err
	}
	if options.Times, err = options.Times.withDefaults(); err != nil {
		return err
	}
	if options.Clock == nil {
		options.Clock = clock.RealClock{}
	}
	if options.Random == nil {
		options.Random = rand.String
	}
	if options.GPUResource == "" {
		options.GPUResource = names.DefaultGPU
	}
	if options.AggregatorConfig.Name == "" {
		options.AggregatorConfig = types.NamespacedName{Namespace: names.SystemNamespace, Name: names.AggregatorConfig}
	}
	if len(options.Addresses) == 0 {
		options.Addresses = []string{fmt.Sprintf(":%d", names.ServerPortV1), fmt.Sprintf(":%d", names.ServerPortV2)}
	}
	return nil
}

// Handler returns the handler of all routes.
func (s *Server) Handler() http.Handler {
	return s.handler
}

// Ready tells why the server takes no requests: it does not listen yet, it
// stops, or what it would answer with has been standing still for long.
func (s *Server) Ready(*http.Request) error {
	if !s.serving.Load() {
		return errors.New("di-server does not listen: its caches are not warm yet, or it is stopping")
	}
	if broken := s.options.Watches.broken(); broken > s.options.Times.BrokenWatch {
		return fmt.Errorf("a watch has been broken for %s: requests wait until the API server can be watched again", broken.Round(time.Second))
	}
	return nil
}

// NeedLeaderElection implements manager.LeaderElectionRunnable: every server serves.
func (*Server) NeedLeaderElection() bool {
	return false
}

// Start implements manager.Runnable. It listens once the caches are warm, as a
// client takes an answer from a cold cache for the truth, and serves until the
// context ends; then it drains, refuses new connections and finishes what it has read.
func (s *Server) Start(ctx context.Context) error {
	if err := warm(ctx, s.options.Cache); err != nil {
		return err
	}
	doors, err := s.open(ctx)
	if err != nil {
		return err
	}
	server := &http.Server{
		Handler:           s.drain.Handler(s.handler),
		ReadHeaderTimeout: min(headTime, s.options.Times.Read),
		ReadTimeout:       s.options.Times.Read,
		WriteTimeout:      s.options.Times.Read + s.options.Times.Request + sendTime,
		IdleTimeout:       idleTime,
		MaxHeaderBytes:    maxHeader,
		TLSConfig:         s.tlsConfig(),
		ErrorLog:          s.httpLog(),
		// Requests that were read are finished, also when the server stops.
		BaseContext: func(net.Listener) context.Context { return context.WithoutCancel(ctx) },
	}
	return s.serve(ctx, server, doors)
}

// tlsConfig returns how TLS is spoken. HTTP/2 is named as the first door to open
// sets it up for all, which one without TLS would not do by itself.
func (s *Server) tlsConfig() *tls.Config {
	return &tls.Config{
		MinVersion:     tls.VersionTLS12,
		NextProtos:     []string{"h2", "http/1.1"},
		GetCertificate: s.options.GetCertificate,
	}
}

// serve serves at all doors until the context ends or one of them fails.
func (s *Server) serve(ctx context.Context, server *http.Server, doors []door) error {
	failed := make(chan error, len(doors))
	for _, door := range doors {
		s.options.Log.Info("Serving", "address", door.listener.Addr().String(), "tls", door.tls)
		go func() { failed <- door.serve(server) }()
	}
	s.tellMode()
	s.serving.Store(true)
	var cause error
	select {
	case <-ctx.Done():
	case cause = <-failed:
		cause = fmt.Errorf("serving: %w", cause)
	}
	s.serving.Store(false)
	err := s.drain.Shutdown(ctx, server)
	s.reports.flush()
	return errors.Join(cause, err)
}

// tellMode says at each start who is let in without being known.
func (s *Server) tellMode() {
	switch s.options.Identity {
	case ModeOff:
		s.options.Log.Info("WARNING: authentication is off: any client that reaches this server can read and resize every job.  " +
			"Set identity to enforce or legacy")
	case ModeLegacy:
		s.options.Log.Info("Unauthenticated callers are admitted, counted and logged: set identity to enforce once there are none")
	case ModeEnforce:
	}
}

// door is where the server listens, and how it serves there.
type door struct {
	address  string
	tls      bool
	listener net.Listener
}

func (d door) serve(server *http.Server) error {
	if d.tls {
		// The certificate comes from the server's configuration.
		return server.ServeTLS(d.listener, "", "")
	}
	return server.Serve(d.listener)
}

// open listens on all addresses or on none.
func (s *Server) open(ctx context.Context) ([]door, error) {
	var doors []door
	for _, address := range s.options.Addresses {
		doors = append(doors, door{address: address})
	}
	if s.options.TLSAddress != "" {
		doors = append(doors, door{address: s.options.TLSAddress, tls: true})
	}
	var config net.ListenConfig
	for i := range doors {
		listener, err := config.Listen(ctx, "tcp", doors[i].address)
		if err != nil {
			for _, opened := range doors[:i] {
				err = errors.Join(err, opened.listener.Close())
			}
			return nil, fmt.Errorf("listening on %q: %w", doors[i].address, err)
		}
		doors[i].listener = netlimit.Listen(listener, netlimit.Limits{
			PerAddress: s.options.Limits.ConnectionsPerAddress, Total: s.options.Limits.Connections,
			Refused: s.bounds.connectionRefused,
		})
	}
	return doors, nil
}
