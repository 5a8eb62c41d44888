// Copyright The DI Orchestrator Authors.
// SPDX-License-Identifier: Apache-2.0

package server

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/http"
	"sync/atomic"
	"time"

	"github.com/go-logr/logr"
	"github.com/prometheus/client_golang/prometheus"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/rand"
	"k8s.io/utils/clock"
	"sigs.k8s.io/controller-runtime/pkg/cache"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"opendilab.org/di-orchestrator/internal/membership"
	"opendilab.org/di-orchestrator/internal/names"
)

const (
	// requestTime bounds how long a request is worked on: the time for which a
	// write waits for the operator to create the Membership.
	requestTime = 30 * time.Second
	// readTime bounds how long a client may take to send its request.
	readTime = 15 * time.Second
	// sendTime bounds how long the answer may take on its way.
	sendTime = 10 * time.Second
	// idleTime is how long an idle connection is kept.
	idleTime = 2 * time.Minute
	// stopTime bounds how long a stopping server finishes what it has read.
	stopTime = requestTime + 5*time.Second
	// maxHeader bounds the bytes of a request's head.
	maxHeader = 64 << 10
	// maxBody bounds the bytes of a request's body.
	maxBody = 1 << 20
)

// Options are what a server is made of.
type Options struct {
	// Client reads from Cache and writes to the API server. Required.
	Client client.Client
	// APIReader reads from the API server. Required.
	APIReader client.Reader
	// Cache is what Client reads from; the server listens once it is warm. Required.
	Cache cache.Cache
	// Identity says what becomes of callers that are not identified, by default
	// ModeEnforce.
	Identity Mode
	// Limits bound what one job may ask for.
	Limits Limits
	// Metrics takes the server's metrics; nil for none.
	Metrics prometheus.Registerer
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
}

// Server is di-server.
type Server struct {
	options Options
	store   store
	gate    *gate
	pace    *pace
	handler http.Handler
	// serving is whether the server listens and does not stop.
	serving atomic.Bool
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
	store := clusterStore{cached: options.Client, informers: options.Cache, reader: options.APIReader, pod: &corev1.Pod{}}
	server := &Server{
		options: options,
		store:   store,
		gate:    newGate(options.Identity, store, options.Clock, told),
		pace:    newPace(options.Limits),
	}
	server.handler = server.routes()
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
	var err error
	if options.Limits, err = options.Limits.withDefaults(); err != nil {
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

// Ready tells why the server takes no requests: it does not listen yet, or it
// stops.
func (s *Server) Ready(*http.Request) error {
	if !s.serving.Load() {
		return errors.New("di-server does not listen: its caches are not warm yet, or it is stopping")
	}
	return nil
}

// NeedLeaderElection implements manager.LeaderElectionRunnable: every server serves.
func (*Server) NeedLeaderElection() bool {
	return false
}

// Start implements manager.Runnable. It listens once the caches are warm, as a
// client takes an answer from a cold cache for the truth, and serves until the
// context ends; then it refuses new connections and finishes what it has read.
func (s *Server) Start(ctx context.Context) error {
	if err := warm(ctx, s.options.Cache); err != nil {
		return err
	}
	listeners, err := listen(ctx, s.options.Addresses)
	if err != nil {
		return err
	}
	server := &http.Server{
		Handler:           s.handler,
		ReadHeaderTimeout: readTime,
		ReadTimeout:       readTime,
		WriteTimeout:      readTime + requestTime + sendTime,
		IdleTimeout:       idleTime,
		MaxHeaderBytes:    maxHeader,
		// Requests that were read are finished, also when the server stops.
		BaseContext: func(net.Listener) context.Context { return context.WithoutCancel(ctx) },
	}
	return s.serve(ctx, server, listeners)
}

// serve serves on all listeners until the context ends or one of them fails.
func (s *Server) serve(ctx context.Context, server *http.Server, listeners []net.Listener) error {
	failed := make(chan error, len(listeners))
	for _, listener := range listeners {
		s.options.Log.Info("Serving", "address", listener.Addr().String())
		go func() { failed <- server.Serve(listener) }()
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
	stopping, cancel := context.WithTimeout(context.WithoutCancel(ctx), stopTime)
	defer cancel()
	if err := server.Shutdown(stopping); err != nil {
		return errors.Join(cause, fmt.Errorf("finishing requests: %w", err))
	}
	return cause
}

// tellMode says at each start who is let in without being known.
func (s *Server) tellMode() {
	switch s.options.Identity {
	case ModeOff:
		s.options.Log.Info("WARNING: callers are not identified: whoever reaches this server reads and resizes every job. " +
			"Set identity to enforce or legacy")
	case ModeLegacy:
		s.options.Log.Info("Callers that cannot be identified are let in, counted and logged: set identity to enforce once there are none")
	case ModeEnforce:
	}
}

// listen opens all addresses or none.
func listen(ctx context.Context, addresses []string) ([]net.Listener, error) {
	var listeners []net.Listener
	var config net.ListenConfig
	for _, address := range addresses {
		listener, err := config.Listen(ctx, "tcp", address)
		if err != nil {
			for _, open := range listeners {
				err = errors.Join(err, open.Close())
			}
			return nil, fmt.Errorf("listening on %q: %w", address, err)
		}
		listeners = append(listeners, listener)
	}
	return listeners, nil
}
