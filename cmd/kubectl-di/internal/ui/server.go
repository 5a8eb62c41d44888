// Copyright The DI Orchestrator Authors.
// SPDX-License-Identifier: Apache-2.0

package ui

import (
	"context"
	"io/fs"
	"net/http"
	"net/url"
	"strings"

	"k8s.io/utils/clock"

	"opendilab.org/di-orchestrator/cmd/kubectl-di/internal/cluster"
	"opendilab.org/di-orchestrator/cmd/kubectl-di/internal/history/reader"
	"opendilab.org/di-orchestrator/cmd/kubectl-di/internal/ui/gate"
	"opendilab.org/di-orchestrator/cmd/kubectl-di/internal/ui/store"
)

// Options are what a server needs.
type Options struct {
	// Cluster is the connection of the user.
	Cluster *cluster.Cluster
	// Namespace is the only one that is shown; empty for all.
	Namespace string
	Notes     []string
	Files     fs.FS
	Clock     clock.WithTicker
	// Language is empty if the browser decides.
	Version, ClusterName, Context, Language string
	// Installation is the namespace of the operator.
	Installation string
	// Prices are those of an hour of gpu, cpu and memory, as far as they are given.
	Prices map[string]float64
	// Past is how the history is read; nil if it is not.
	Past *Past
	// Metering is how what pods used is read; nil if it is not.
	Metering *Metering
	// CanSignOut is set if the user signed in.
	CanSignOut bool
}

// Server serves the page and its API to one user.
type Server struct {
	Options
	jobs *store.Store
	mux  *http.ServeMux
	// past reads the history as the caller, and reads bounds it.
	past  *reader.Reader
	reads chan struct{}
	// measures bounds what the caller reads of Prometheus.
	measures chan struct{}
	// streams bounds the streams.
	streams chan struct{}
}

// mostStreams bounds the open streams of all pages.
const mostStreams = 32

// New returns the server of a user.
func New(options Options) *Server {
	server := &Server{Options: options, jobs: store.New(options.Clock), streams: make(chan struct{}, mostStreams), measures: make(chan struct{}, ownUsageReads)}
	if options.Past != nil {
		server.past, server.reads = options.Past.of(options.Cluster), make(chan struct{}, ownReads)
	}
	server.mux = server.newMux()
	return server
}

// Run watches the jobs until the context ends.
func (s *Server) Run(ctx context.Context) {
	if s.past != nil {
		defer s.past.End()
	}
	err := s.Cluster.Observe(ctx, cluster.WatchJobs(s.Namespace).Reduced(store.Reduce).Early(), s.jobs.Apply)
	if err != nil {
		// The page shows it.
		s.jobs.Stopped(err)
	}
}

// ServeHTTP implements http.Handler.
func (s *Server) ServeHTTP(w http.ResponseWriter, r *http.Request) { s.mux.ServeHTTP(w, r) }

func (s *Server) newMux() *http.ServeMux {
	mux := http.NewServeMux()
	mux.HandleFunc("GET /api/v1/session", s.answer(s.session))
	mux.HandleFunc("GET /api/v1/jobs", s.answer(s.listJobs))
	mux.HandleFunc("POST /api/v1/jobs/new", s.answer(s.create))
	mux.HandleFunc("GET /api/v1/jobs/stream", s.stream(s.streamJobs))
	const job = "/api/v1/namespaces/{namespace}/jobs/{name}"
	mux.HandleFunc("GET "+job, s.answer(s.getJob))
	mux.HandleFunc("GET "+job+"/stream", s.stream(s.streamJob))
	mux.HandleFunc("GET "+job+"/logs", s.stream(s.streamLogs))
	mux.HandleFunc("GET "+job+"/usage", s.answer(s.getUsage))
	mux.HandleFunc("GET "+job+"/manifest", s.answer(s.manifest))
	mux.HandleFunc("GET "+job+"/difference", s.answer(s.difference))
	mux.HandleFunc("POST "+job+"/actions/{action}", s.answer(s.act))
	mux.HandleFunc("GET /api/v1/cluster", s.answer(s.getCluster))
	mux.HandleFunc("GET /api/v1/cluster/stream", s.stream(s.streamCluster))
	const recorded = "/api/v1/history/namespaces/{namespace}/jobs/{name}"
	mux.HandleFunc("GET /api/v1/history/jobs", s.remembered(s.historyJobs))
	mux.HandleFunc("GET /api/v1/history/sums", s.remembered(s.historySums))
	mux.HandleFunc("GET /api/v1/history/comparison", s.remembered(s.historyComparison))
	mux.HandleFunc("GET "+recorded, s.ofJob(s.historyJob))
	mux.HandleFunc("GET "+recorded+"/tails", s.ofJob(s.historyTails))
	mux.HandleFunc("GET "+recorded+"/curves", s.ofJob(s.historyCurves))
	mux.HandleFunc("GET "+recorded+"/cost", s.ofJob(s.historyCost))
	mux.HandleFunc("/api/", s.answer(func(*http.Request) (any, error) {
		return nil, gate.Refuse(http.StatusNotFound, "NotFound", "no such path")
	}))
	mux.Handle("/", s.static())
	return mux
}

// static serves the files of the page. Other paths lead to the page.
func (s *Server) static() http.Handler {
	files := http.FileServerFS(s.Files)
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.Method != http.MethodGet && r.Method != http.MethodHead {
			gate.Fail(w, gate.Refuse(http.StatusMethodNotAllowed, "MethodNotAllowed", "the page has only files"))
			return
		}
		path := strings.TrimPrefix(r.URL.Path, "/")
		if info, err := fs.Stat(s.Files, path); path != "" && (err != nil || info.IsDir()) {
			// The page says that it has no such view.
			http.Redirect(w, r, "/#"+(&url.URL{Path: r.URL.Path}).EscapedPath(), http.StatusSeeOther)
			return
		}
		w.Header().Set("Cache-Control", "no-cache")
		files.ServeHTTP(w, r)
	})
}

// answering returns the answer to a request.
type answering func(*http.Request) (any, error)

// answer returns a handler that answers with JSON.
func (s *Server) answer(handle answering) http.HandlerFunc {
	return func(w http.ResponseWriter, r *http.Request) {
		value, err := handle(r)
		if err != nil {
			gate.Fail(w, err)
			return
		}
		gate.Reply(w, http.StatusOK, value)
	}
}

// inTurn waits until each bound has room, and returns what makes room again.
func inTurn(ctx context.Context, full string, bounds ...chan struct{}) (leave func(), err error) {
	taken := 0
	leave = func() {
		for _, bound := range bounds[:taken] {
			<-bound
		}
	}
	for _, bound := range bounds {
		select {
		case bound <- struct{}{}:
			taken++
		case <-ctx.Done():
			leave()
			return nil, gate.Refuse(http.StatusTooManyRequests, "TooManyRequests", full)
		}
	}
	return leave, nil
}
