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
	url     string
	http    *http.Client
	every   time.Duration
	log     *slog.Logger
	latest  chan any
	closing chan struct{}
	done    chan struct{}
}

// NewProfilings returns a reporter for a job. An empty server URL reports nothing.
func NewProfilings(serverURL, jobID string, every time.Duration, client *http.Client, log *slog.Logger) (*Profilings, error) {
	p := &Profilings{
		http: client, every: every, log: log,
		latest: make(chan any, 1), closing: make(chan struct{}), done: make(chan struct{}),
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

// Report replaces the next post. Only one goroutine may report.
func (p *Profilings) Report(body any) {
	select {
	case <-p.latest:
	default:
	}
	p.latest <- body
}

// Close has Run post what is still to be posted, and waits for its end.
func (p *Profilings) Close() {
	close(p.closing)
	<-p.done
}

// Run posts until Close is called. A post that fails is logged and left at that.
func (p *Profilings) Run(ctx context.Context) {
	defer close(p.done)
	for {
		select {
		case body := <-p.latest:
			p.tryPost(ctx, body)
		case <-p.closing:
			p.postLast(ctx)
			return
		}
		timer := time.NewTimer(p.every)
		select {
		case <-timer.C:
		case <-p.closing:
		}
		timer.Stop()
	}
}

func (p *Profilings) postLast(ctx context.Context) {
	select {
	case body := <-p.latest:
		p.tryPost(ctx, body)
	default:
	}
}

func (p *Profilings) tryPost(ctx context.Context, body any) {
	if p.url == "" {
		return
	}
	if err := p.post(ctx, body); err != nil {
		p.log.Warn("profilings were not posted", "error", err)
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
