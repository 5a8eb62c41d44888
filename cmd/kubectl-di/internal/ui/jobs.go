// Copyright The DI Orchestrator Authors.
// SPDX-License-Identifier: Apache-2.0

package ui

import (
	"context"
	"net/http"
	"time"

	"opendilab.org/di-orchestrator/cmd/kubectl-di/internal/ui/gate"
	"opendilab.org/di-orchestrator/cmd/kubectl-di/internal/ui/store"
)

// pagePause is the least time between two pages of a stream.
const pagePause = 250 * time.Millisecond

func (s *Server) listJobs(r *http.Request) (any, error) {
	query, err := store.ParseQuery(r.URL.Query())
	if err != nil {
		return nil, gate.BadRequest(err)
	}
	if err := s.jobs.Broken(); err != nil && s.jobs.Page(query).Total == 0 {
		return nil, err
	}
	return s.jobs.Page(query), nil
}

// streamJobs sends a page now and after each change.
func (s *Server) streamJobs(ctx context.Context, r *http.Request, to *sender) error {
	query, err := store.ParseQuery(r.URL.Query())
	if err != nil {
		return gate.BadRequest(err)
	}
	beats := s.Clock.NewTicker(heartbeat)
	defer beats.Stop()
	for {
		changed := s.jobs.Changed()
		if err := s.sendPage(query, to); err != nil {
			return err
		}
		select {
		case <-ctx.Done():
			return nil
		case <-s.Clock.After(pagePause):
		}
		for isSame := true; isSame; {
			select {
			case <-ctx.Done():
				return nil
			case <-changed:
				isSame = false
			case <-beats.C():
				if err := to.beat(); err != nil {
					return err
				}
			}
		}
	}
}

// sendPage sends a page, unless nothing of it has changed.
func (s *Server) sendPage(query *store.Query, to *sender) error {
	if err := s.jobs.Broken(); err != nil {
		return to.fail(err)
	}
	page := s.jobs.Page(query)
	// Other jobs may change the version alone.
	compared := page
	compared.ResourceVersion = ""
	return to.sendAs("page", compared, page)
}
