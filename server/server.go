// Copyright The DI Orchestrator Authors.
// SPDX-License-Identifier: Apache-2.0

package server

import (
	"crypto/tls"
	"errors"
	"fmt"
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
	"opendilab.org/di-orchestrator/internal/names"
	"opendilab.org/di-orchestrator/internal/tracing"
	"opendilab.org/di-orchestrator/job/membership"
	"opendilab.org/di-orchestrator/server/auth"
	"opendilab.org/di-orchestrator/server/limit"
	"opendilab.org/di-orchestrator/server/store"
)

const (
	// sendTime bounds the time to send an answer.
	sendTime = 10 * time.Second
	// idleTime is how long an idle connection is kept.
	idleTime = 30 * time.Second
	// headTime bounds the time to receive the head of a request.
	headTime = 5 * time.Second
	// stopMargin is added to Times.Request: a draining server waits that long in total for the requests
	// that it has read.
	stopMargin = 5 * time.Second
	// maxHeader bounds the bytes of a request's head.
	maxHeader = 16 << 10
	// serverNameLength is the length of the random name of a process, which tells its sums of reports apart.
	serverNameLength = 8
	// maxBody bounds the bytes of a request's body.
	maxBody = 1 << 20
	// maxBodies bounds the bytes of all bodies in memory. maxOwnBodies bounds those of one sender.
	maxBodies, maxOwnBodies = 32 << 20, 4 << 20
)

// Options configure a server.
type Options struct {
	// Client reads from Cache and writes to the API server. Required.
	Client client.Client
	// APIReader reads from the API server. Required.
	APIReader client.Reader
	// Lookups calls the API server on behalf of callers. It authenticates senders, and reads objects that
	// the cache does not have yet. By default it uses APIReader and Client. It should have its own rate
	// limit, so that unknown senders do not exhaust the calls of APIReader and Client.
	Lookups store.LookupClient
	// Cache is the cache behind Client. The server listens once the cache is synced. Required.
	Cache cache.Cache
	// Identity selects how unauthenticated callers are treated; by default ModeEnforce.
	Identity auth.Mode
	// StrictAddresses requires a token from pods in their node's network. By default a node's address
	// authenticates the pods of jobs that share it, because deployed clients send no token.
	StrictAddresses bool
	// Limits bound the requests of one job.
	Limits Limits
	// Times are the timeouts and intervals of the server.
	Times Times
	// Watches follows the watches that keep Cache current. Requests wait while one of them is broken. Nil
	// for none.
	Watches *store.Watches
	// Metrics registers the server's metrics; nil for none.
	Metrics prometheus.Registerer
	// Traces records a span of each request except probes; nil for none.
	Traces trace.TracerProvider
	// Log logs the details that clients do not see.
	Log logr.Logger
	// Clock provides the time; by default the system's.
	Clock clock.PassiveClock
	// Random generates the suffixes of new names; by default as Kubernetes does.
	Random membership.Random
	// GPUResource is the resource that counts GPUs, by default nvidia.com/gpu.
	GPUResource corev1.ResourceName
	// AggregatorConfig names the cluster's AggregatorConfig, by default
	// di-system/aggregator-config.
	AggregatorConfig types.NamespacedName
	// Addresses are the addresses that the server listens on, by default :8080 and :8081. Each serves both
	// protocols.
	Addresses []string
	// TLSAddress is the address that the server listens on for TLS; empty for none.
	TLSAddress string
	// GetCertificate returns the certificate of a TLS handshake. Required with TLSAddress.
	GetCertificate func(*tls.ClientHelloInfo) (*tls.Certificate, error)
	// DrainDelay is how long a draining server still accepts connections after it stops being ready. In
	// this time endpoints are updated. Zero by default.
	DrainDelay time.Duration
}

// Server is di-server.
type Server struct {
	options  Options
	cluster  store.Cluster
	store    *store.Store
	reports  *reportWriter
	rates    *rateWriter
	watchers *watchers
	reads    *readQueue
	log      *requestLog
	limited  *limitMetrics
	handler  http.Handler
	drain    drain.Drain
	// serving reports whether the server listens and is not draining.
	serving atomic.Bool
}

// New returns a server. The server serves once it is started.
func New(options Options) (*Server, error) {
	if options.Client == nil || options.APIReader == nil || options.Cache == nil {
		return nil, errors.New("server options: Client, APIReader and Cache are required")
	}
	if err := options.complete(); err != nil {
		return nil, err
	}
	calls, err := auth.NewMetrics(options.Metrics, options.Log)
	if err != nil {
		return nil, err
	}
	return newServer(options, calls, store.NewCluster(store.Clients{
		Cached: options.Client, Informers: options.Cache, Live: options.APIReader, Lookups: options.Lookups,
		CallTimeout: options.Times.Call, OnForbidden: calls.LogForbidden,
	}))
}

// newServer returns a server with complete options over a cluster.
func newServer(options Options, calls *auth.Metrics, cluster store.Cluster) (*Server, error) {
	limited, err := newLimitMetrics(options.Metrics)
	if err != nil {
		return nil, err
	}
	access := auth.New(auth.Options{
		Mode: options.Identity, StrictAddresses: options.StrictAddresses,
		AddressTimeout: options.Times.Address, RestartTimeout: options.Times.Successor,
		Cluster: cluster, Watches: options.Watches, Clock: options.Clock, Metrics: calls,
	})
	objects := store.New(store.Options{
		Cluster: cluster, Watches: options.Watches, Clock: options.Clock, Log: options.Log, AggregatorConfig: options.AggregatorConfig,
		Rates:  limit.NewRates("writes for one job", options.Limits.WritesPerSecond, options.Limits.WriteBurst),
		Budget: limit.NewBudget(options.Limits.WriteBytesPerMinute, options.Clock, limited.writeDelayed),
	})
	server := &Server{
		options: options, cluster: cluster, store: objects, limited: limited,
		watchers: newWatchers(objects, options.Times.Watch),
		reads:    &readQueue{queue: limit.NewQueue(runtime.GOMAXPROCS(0)), hold: options.Times.Hold},
		log:      &requestLog{to: options.Log, lines: limit.NewLines(options.Clock)},
		drain:    drain.Drain{Delay: options.DrainDelay, Finish: options.Times.Request + stopMargin},
	}
	writes, outcomes := &jobWrites{access: access, store: objects}, &reportOutcomes{log: server.log, metrics: limited}
	server.reports, server.rates = newReportWriter(&options, writes, outcomes), newRateWriter(&options, writes, outcomes)
	handlers := server.newHandlers(writes)
	engine := handlers.routes()
	if handlers.gate.metrics, err = newRequestMetrics(options, paths(engine)); err != nil {
		return nil, err
	}
	server.handler = tracing.Public(engine, options.Traces, isNoProbe)
	return server, nil
}

// newHandlers returns the handlers of the routes.
func (s *Server) newHandlers(writes *jobWrites) *handlers {
	options, access, objects := &s.options, writes.access, writes.store
	return &handlers{
		gate: &gate{
			senders: access.Authenticator, watches: options.Watches, clock: options.Clock,
			timeout: options.Times.Request, hold: options.Times.Hold,
		},
		answers:      &answers{log: s.log},
		bodies:       &bodyLimit{room: newBodyRoom(options.Times.Body), metrics: s.limited},
		replicaReads: &replicaReads{access: access, store: objects, reads: s.reads, gpus: options.GPUResource},
		replicaWrites: &replicaWrites{
			access: access, store: objects, limits: options.Limits, random: options.Random, log: s.log,
			gpus: &gpuSplit{lookups: access.Lookups, store: objects, resource: options.GPUResource},
		},
		workerReads:   &workerReads{access: access, store: objects, reads: s.reads},
		workerResizes: &workerResizes{writes: writes, limits: options.Limits, clock: options.Clock, log: s.log},
		profilings:    &profilingReports{access: access, reports: s.reports, rates: s.rates, maxBytes: options.Limits.ProfilingBytes},
		advices:       &advices{access: access, reads: s.reads, clock: options.Clock},
		memberships:   &memberships{access: access, store: objects, reads: s.reads, watchers: s.watchers},
		acknowledgements: &acknowledgements{
			access: access, store: objects, watchers: s.watchers, mode: options.Identity,
			batches: newAckBatcher(objects, s.log, options.Times.Request),
		},
	}
}

// complete sets the defaults.
func (options *Options) complete() error {
	switch options.Identity {
	case "":
		options.Identity = auth.ModeEnforce
	case auth.ModeEnforce, auth.ModeLegacy, auth.ModeDisabled:
	default:
		return fmt.Errorf("server options: Identity: %q must be %s, %s or %s", options.Identity, auth.ModeEnforce, auth.ModeLegacy, auth.ModeDisabled)
	}
	if options.TLSAddress != "" && options.GetCertificate == nil {
		return errors.New("server options: GetCertificate is required beside TLSAddress")
	}
	if options.Lookups == nil {
		options.Lookups = store.NewLookupClient(options.APIReader, options.Client)
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

// Handler returns the HTTP handler of all routes.
func (s *Server) Handler() http.Handler {
	return s.handler
}

// Ready returns the reason why the server is not ready: it does not listen yet, it is draining, or its
// cache has been stale for too long.
func (s *Server) Ready(*http.Request) error {
	if !s.serving.Load() {
		return errors.New("di-server does not listen: its caches are not warm yet, or it is stopping")
	}
	if broken := s.options.Watches.Broken(); broken > s.options.Times.BrokenWatch {
		return fmt.Errorf("a watch has been broken for %s: requests wait until the API server can be watched again", broken.Round(time.Second))
	}
	return nil
}

// NeedLeaderElection implements manager.LeaderElectionRunnable. Every server serves, without an election.
func (*Server) NeedLeaderElection() bool {
	return false
}
