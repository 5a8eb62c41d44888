// Copyright The DI Orchestrator Authors.
// SPDX-License-Identifier: Apache-2.0

package diserver

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"net/url"
	"time"
)

// Profilings posts what a job of workers reports of itself, in the background
// and never more often than once in a while, so that training does not wait.
type Profilings struct {
	url    string
	http   *http.Client
	every  time.Duration
	log    *slog.Logger
	latest chan any
	done   chan struct{}
}

// NewProfilings returns a reporter for a job. An empty server URL reports nothing.
func NewProfilings(serverURL, jobID string, every, timeout time.Duration, log *slog.Logger) (*Profilings, error) {
	p := &Profilings{
		http: &http.Client{Timeout: timeout}, every: every, log: log,
		latest: make(chan any, 1), done: make(chan struct{}),
	}
	if serverURL == "" {
		return p, nil
	}
	base, err := baseURL(serverURL)
	if err != nil {
		return nil, err
	}
	p.url = base + "/v2alpha1/job/" + url.PathEscape(jobID) + "/profilings"
	return p, nil
}

// Report replaces what is to be posted next. Only one goroutine may report.
func (p *Profilings) Report(body any) {
	select {
	case <-p.latest:
	default:
	}
	p.latest <- body
}

// Close posts what is still to be posted and ends Run. Nothing may be reported
// after it.
func (p *Profilings) Close() {
	close(p.latest)
	<-p.done
}

// Run posts until Close is called. A post that fails is logged and left at that.
func (p *Profilings) Run(ctx context.Context) {
	defer close(p.done)
	for body := range p.latest {
		if p.url == "" {
			continue
		}
		if err := p.post(ctx, body); err != nil {
			p.log.Warn("profilings were not posted", "error", err)
		}
		timer := time.NewTimer(p.every)
		select {
		case <-timer.C:
		case <-ctx.Done():
		}
		timer.Stop()
	}
}

func (p *Profilings) post(ctx context.Context, body any) error {
	encoded, err := json.Marshal(body)
	if err != nil {
		return fmt.Errorf("encode profilings: %w", err)
	}
	request, err := http.NewRequestWithContext(ctx, http.MethodPost, p.url, bytes.NewReader(encoded))
	if err != nil {
		return fmt.Errorf("post profilings: %w", err)
	}
	response, err := p.http.Do(request)
	if err != nil {
		return fmt.Errorf("post profilings: %w", err)
	}
	defer response.Body.Close() //nolint:errcheck // nothing is lost with a body that was read
	if response.StatusCode >= http.StatusBadRequest {
		reason, _ := io.ReadAll(io.LimitReader(response.Body, 1<<10)) // the status tells enough without it
		return &StatusError{Method: http.MethodPost, Path: p.url, Message: string(reason), Status: response.StatusCode}
	}
	return nil
}
