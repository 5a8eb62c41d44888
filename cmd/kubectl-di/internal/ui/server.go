// Copyright The DI Orchestrator Authors.
// SPDX-License-Identifier: Apache-2.0

package ui

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"net/http"
	"strings"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/utils/clock"

	"opendilab.org/di-orchestrator/cmd/kubectl-di/internal/cluster"
	"opendilab.org/di-orchestrator/cmd/kubectl-di/internal/ui/api"
	"opendilab.org/di-orchestrator/cmd/kubectl-di/internal/ui/store"
)

// Options are what a server needs.
type Options struct {
	Cluster *cluster.Cluster
	// OnlyNamespace restricts the page to the namespace of the cluster.
	OnlyNamespace bool
	Files         fs.FS
	Clock         clock.WithTicker
	// Address is the host and port that the server listens on.
	Address                                 string
	Version, ClusterName, Context, Language string
}

// Server serves the page and its API to one user.
type Server struct {
	Options
	guard *guard
	jobs  *store.Store
	// namespace is the only one that is shown; empty for all.
	namespace string
	notes     []string
	// streams bounds the streams.
	streams chan struct{}
}

// mostStreams bounds the open streams of all pages.
const mostStreams = 32

// New returns the server of a user. It asks the API server which jobs the user may see.
func New(ctx context.Context, options Options) (*Server, error) {
	guard, err := newGuard(options.Address)
	if err != nil {
		return nil, err
	}
	server := &Server{
		Options: options, guard: guard, jobs: store.New(options.Clock), notes: []string{}, streams: make(chan struct{}, mostStreams),
	}
	if options.OnlyNamespace {
		server.namespace = options.Cluster.Namespace
		return server, nil
	}
	all, err := options.Cluster.May(ctx, jobsAttributes("list", ""))
	if err != nil {
		return nil, err
	}
	if !all {
		server.namespace = options.Cluster.Namespace
		server.notes = append(server.notes, fmt.Sprintf("You may not list the jobs of all namespaces, so only those of namespace %s are shown.",
			server.namespace))
	}
	return server, nil
}

// URL returns the URL that opens the page once.
func (s *Server) URL() string { return s.guard.url() }

// Run watches the jobs until the context ends.
func (s *Server) Run(ctx context.Context) error {
	err := s.Cluster.Observe(ctx, cluster.WatchJobs(s.namespace).Reduced(store.Reduce), s.jobs.Apply)
	if err != nil {
		// The page shows it.
		s.jobs.Stopped(err)
	}
	return nil
}

// Handler returns the handler of all paths.
func (s *Server) Handler() http.Handler {
	mux := http.NewServeMux()
	mux.HandleFunc("GET /api/v1/session", s.answer(s.session))
	mux.HandleFunc("GET /api/v1/jobs", s.answer(s.listJobs))
	mux.HandleFunc("GET /api/v1/jobs/stream", s.stream(s.streamJobs))
	const job = "/api/v1/namespaces/{namespace}/jobs/{name}"
	mux.HandleFunc("GET "+job, s.answer(s.getJob))
	mux.HandleFunc("GET "+job+"/stream", s.stream(s.streamJob))
	mux.HandleFunc("GET "+job+"/logs", s.stream(s.streamLogs))
	mux.HandleFunc("GET "+job+"/manifest", s.answer(s.manifest))
	mux.HandleFunc("GET "+job+"/difference", s.answer(s.difference))
	mux.HandleFunc("POST "+job+"/actions/{action}", s.answer(s.act))
	mux.HandleFunc("GET /api/v1/cluster", s.answer(s.getCluster))
	mux.HandleFunc("GET /api/v1/cluster/stream", s.stream(s.streamCluster))
	mux.HandleFunc("/api/", s.answer(func(*http.Request) (any, error) {
		return nil, &statusError{http.StatusNotFound, "NotFound", "no such path"}
	}))
	mux.Handle("/", s.static())
	return s.bound(s.guard.protect(mux))
}

// bound limits how long a browser may take to read an answer. A deadline outlives its request, so
// that each request sets one; streams set one for each event.
func (s *Server) bound(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		// Not every writer has a deadline.
		_ = http.NewResponseController(w).SetWriteDeadline(s.Clock.Now().Add(patience + slowest))
		next.ServeHTTP(w, r)
	})
}

// static serves the files of the page. The page itself decides about paths without a file.
func (s *Server) static() http.Handler {
	files := http.FileServerFS(s.Files)
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.Method != http.MethodGet && r.Method != http.MethodHead {
			fail(w, &statusError{http.StatusMethodNotAllowed, "MethodNotAllowed", "the page has only files"})
			return
		}
		path := strings.TrimPrefix(r.URL.Path, "/")
		if info, err := fs.Stat(s.Files, path); path != "" && (err != nil || info.IsDir()) {
			r = r.Clone(r.Context())
			r.URL.Path = "/"
		}
		w.Header().Set("Cache-Control", "no-cache")
		files.ServeHTTP(w, r)
	})
}

// answer returns a handler that answers with JSON.
func (s *Server) answer(handle func(*http.Request) (any, error)) http.HandlerFunc {
	return func(w http.ResponseWriter, r *http.Request) {
		value, err := handle(r)
		if err != nil {
			fail(w, err)
			return
		}
		reply(w, http.StatusOK, value)
	}
}

func reply(w http.ResponseWriter, code int, value any) {
	w.Header().Set("Content-Type", "application/json; charset=utf-8")
	w.Header().Set("Cache-Control", "no-store")
	w.WriteHeader(code)
	// The caller may be gone.
	_ = json.NewEncoder(w).Encode(value)
}

// statusError is an error with the code of its answer.
type statusError struct {
	code            int
	reason, message string
}

// Error implements error.
func (e *statusError) Error() string { return e.message }

func badRequest(err error) error {
	return &statusError{http.StatusBadRequest, "BadRequest", err.Error()}
}

func fail(w http.ResponseWriter, err error) {
	code, body := describe(err)
	reply(w, code, body)
}

// describe returns the answer about an error. The API server decides about its own refusals.
func describe(err error) (int, api.Error) {
	var known *statusError
	var refused apierrors.APIStatus
	switch {
	case errors.As(err, &known):
		return known.code, api.Error{Message: known.message, Reason: known.reason}
	case errors.As(err, &refused):
		status := refused.Status()
		return int(max(status.Code, http.StatusBadRequest)), api.Error{Message: err.Error(), Reason: string(status.Reason)}
	}
	return http.StatusBadGateway, api.Error{Message: err.Error(), Reason: "Unavailable"}
}
