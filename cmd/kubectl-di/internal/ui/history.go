// Copyright The DI Orchestrator Authors.
// SPDX-License-Identifier: Apache-2.0

package ui

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"net/url"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/util/validation"

	"opendilab.org/di-orchestrator/cmd/kubectl-di/internal/cluster"
	"opendilab.org/di-orchestrator/cmd/kubectl-di/internal/cost"
	"opendilab.org/di-orchestrator/cmd/kubectl-di/internal/history/reader"
	"opendilab.org/di-orchestrator/cmd/kubectl-di/internal/ui/api"
	"opendilab.org/di-orchestrator/cmd/kubectl-di/internal/ui/gate"
	"opendilab.org/di-orchestrator/cmd/kubectl-di/internal/ui/past"
	"opendilab.org/di-orchestrator/cmd/kubectl-di/internal/ui/store"
	"opendilab.org/di-orchestrator/history/record"
	"opendilab.org/di-orchestrator/internal/names"
)

const (
	// mostCompared bounds the jobs of a comparison.
	mostCompared = 8
	// historyRows are those of a page of the history.
	historyRows = "100"
	// sumsDays are the days whose jobs are summed up by default, and mostSumsDays bounds them.
	sumsDays, mostSumsDays = 30, 366
	// historyAnswer bounds an answer of the history, in bytes, historyReads those that are read at once by all callers,
	// and ownReads those by one.
	historyAnswer = 8 << 20
	historyReads  = 4
	ownReads      = 2
)

// offText says how to switch the history on.
const offText = "The history of jobs is off. Switch it on by value history.enabled=true of the Helm chart."

// Past is how the callers of a server read the history: each as themselves.
type Past struct {
	// Server, Authority, Namespace and Account are those of a reader. In a cluster, only a Server is called.
	Server, Authority, Namespace, Account string
	// turns bounds the reads.
	turns chan struct{}
}

// NewPast returns a Past whose callers share the bound of reads.
func NewPast(server, authority, namespace, account string) *Past {
	return &Past{server, authority, namespace, account, make(chan struct{}, historyReads)}
}

// of returns the reader of a caller.
func (p *Past) of(found *cluster.Cluster) *reader.Reader {
	return reader.New(reader.Options{
		Cluster: found, Server: p.Server, Authority: p.Authority, Namespace: p.Namespace, Account: p.Account, MaxAnswer: historyAnswer, Shared: true,
	})
}

// historyState reports whether there is a history that the caller can reach.
func (s *Server) historyState(ctx context.Context) api.HistoryState {
	switch {
	case s.Past == nil:
		return api.HistoryState{Why: offText}
	case s.Past.Server != "":
		return api.HistoryState{Reachable: true}
	}
	err := s.Cluster.Get(ctx, s.Past.Namespace, names.HistoryService, &corev1.Service{})
	switch {
	case err == nil:
		return api.HistoryState{Reachable: true}
	case apierrors.IsNotFound(err):
		return api.HistoryState{Why: offText}
	case cluster.IsDenied(err):
		return api.HistoryState{Why: fmt.Sprintf("You may not forward a port in namespace %s, so the history of jobs is not shown: --history-server names its URL.", s.Past.Namespace)}
	}
	return api.HistoryState{Why: "The history of jobs cannot be reached: " + err.Error()}
}

// remembered answers from the history, when it is the request's turn.
func (s *Server) remembered(answer func(ctx context.Context, r *http.Request) (any, error)) http.HandlerFunc {
	return s.answer(func(r *http.Request) (any, error) {
		if s.Past == nil {
			return nil, gate.Refuse(http.StatusNotFound, "HistoryOff", offText)
		}
		ctx, stop := context.WithTimeout(r.Context(), patience)
		defer stop()
		leave, err := inTurn(ctx, "the history is read by many: try again", s.reads, s.Past.turns)
		if err != nil {
			return nil, err
		}
		defer leave()
		return answer(ctx, r)
	})
}

// historyNamespace returns the namespace that a query selects; empty for all.
func (s *Server) historyNamespace(asked string) (string, error) {
	switch {
	case asked != "" && len(validation.IsDNS1123Label(asked)) > 0:
		return "", gate.BadRequest(fmt.Errorf("namespace %q: want the name of a namespace", record.Text(asked, record.MaxName)))
	case s.Namespace != "" && asked != "" && asked != s.Namespace:
		return "", gate.Refuse(http.StatusForbidden, "Forbidden", "only the jobs of namespace "+s.Namespace+" are shown")
	case asked == "":
		return s.Namespace, nil
	}
	return asked, nil
}

func (s *Server) historyJobs(ctx context.Context, r *http.Request) (any, error) {
	given := r.URL.Query()
	namespace, err := s.historyNamespace(given.Get("namespace"))
	if err != nil {
		return nil, err
	}
	query := url.Values{"namespace": {namespace}, "limit": {historyRows}}
	for asked, name := range map[string]string{"phase": "phase", "group": "group", "reason": "reason", "text": "text", "from": "from", "user": "creator"} {
		if length := len(given.Get(asked)); length > record.MaxText {
			return nil, gate.BadRequest(fmt.Errorf("%s has %d bytes: want at most %d", asked, length, record.MaxText))
		}
		query.Set(name, given.Get(asked))
	}
	if since := given.Get("since"); since != "" {
		days, err := store.Number(given, "since", 0, 1, 36_500)
		if err != nil {
			return nil, gate.BadRequest(fmt.Errorf("%w of days", err))
		}
		query.Set("since", s.Clock.Now().AddDate(0, 0, -days).UTC().Format(time.RFC3339))
	}
	page, err := s.past.Page(ctx, query)
	if err != nil {
		return nil, err
	}
	return past.Page(&page), nil
}

// historySums sums up the jobs that ended in the last days.
func (s *Server) historySums(ctx context.Context, r *http.Request) (any, error) {
	given := r.URL.Query()
	namespace, err := s.historyNamespace(given.Get("namespace"))
	if err != nil {
		return nil, err
	}
	days, err := store.Number(given, "since", sumsDays, 1, mostSumsDays)
	if err != nil {
		return nil, gate.BadRequest(fmt.Errorf("%w of days", err))
	}
	by := given.Get("by")
	if len(by) > record.MaxName {
		return nil, gate.BadRequest(errors.New("by is no name"))
	}
	list, err := s.past.Sums(ctx, url.Values{
		"namespace": {namespace}, "by": {by}, "since": {s.Clock.Now().AddDate(0, 0, -days).UTC().Format(time.RFC3339)}, "daily": {"true"},
	})
	if err != nil {
		return nil, err
	}
	return past.Sums(&list), nil
}

// recordedJob reads a job of the history by its names and UID.
func (s *Server) recordedJob(ctx context.Context, namespace, name, uid string) (*record.Job, error) {
	if len(validation.IsDNS1123Label(namespace)) > 0 || len(validation.IsDNS1123Subdomain(name)) > 0 || len(uid) > record.MaxName {
		return nil, gate.BadRequest(errors.New("the path names no job: want namespaces/NAMESPACE/jobs/NAME"))
	}
	if s.Namespace != "" && namespace != s.Namespace {
		return nil, gate.Refuse(http.StatusForbidden, "Forbidden", "only the jobs of namespace "+s.Namespace+" are shown")
	}
	return s.past.Job(ctx, namespace, name, uid)
}

// ofJob answers about the job that a path names.
func (s *Server) ofJob(answer func(ctx context.Context, of *record.Job) (any, error)) http.HandlerFunc {
	return s.remembered(func(ctx context.Context, r *http.Request) (any, error) {
		of, err := s.recordedJob(ctx, r.PathValue("namespace"), r.PathValue("name"), r.URL.Query().Get("uid"))
		if err != nil {
			return nil, err
		}
		return answer(ctx, of)
	})
}

func (s *Server) historyJob(_ context.Context, of *record.Job) (any, error) {
	return past.Job(of, s.Clock.Now()), nil
}

func (s *Server) historyCost(_ context.Context, of *record.Job) (any, error) {
	return cost.OfRecord(of, s.Clock.Now()), nil
}

func (s *Server) historyTails(ctx context.Context, of *record.Job) (any, error) {
	found, err := s.past.Tails(ctx, of)
	switch {
	case errors.Is(err, reader.ErrNoLogs):
		return nil, gate.Refuse(http.StatusForbidden, "Forbidden", err.Error())
	case err != nil:
		return nil, err
	}
	return past.Tails(of.Name, found), nil
}

func (s *Server) historyCurves(ctx context.Context, of *record.Job) (any, error) {
	page, err := s.past.Thinned(ctx, of, past.MostPoints)
	if err != nil {
		return nil, err
	}
	return past.Curves(of, &page), nil
}

// historyComparison compares jobs that are given as NAMESPACE/NAME/UID.
func (s *Server) historyComparison(ctx context.Context, r *http.Request) (any, error) {
	given := r.URL.Query()["job"]
	if len(given) < 2 || len(given) > mostCompared {
		return nil, gate.BadRequest(fmt.Errorf("job is given %d times: want from 2 to %d", len(given), mostCompared))
	}
	all := make([]past.Compared, 0, len(given))
	for _, one := range given {
		parts := strings.Split(one, "/")
		if len(parts) != 3 {
			return nil, gate.BadRequest(fmt.Errorf("job %q: want NAMESPACE/NAME/UID", record.Text(one, record.MaxName)))
		}
		of, err := s.recordedJob(ctx, parts[0], parts[1], parts[2])
		if err != nil {
			return nil, err
		}
		page, err := s.past.Thinned(ctx, of, past.MostCompared)
		if err != nil {
			return nil, err
		}
		// Nothing compares these, and they are large.
		of.Replicas, of.Events, of.Conditions, of.Placements = nil, nil, nil, nil
		all = append(all, past.Compared{Job: of, Curves: page.Series})
	}
	return past.Comparison(all, s.Clock.Now()), nil
}
