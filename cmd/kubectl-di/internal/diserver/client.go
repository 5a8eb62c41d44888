// Copyright The DI Orchestrator Authors.
// SPDX-License-Identifier: Apache-2.0

// Package diserver is the client of di-server that kubectl di calls it by: it
// speaks both protocols, calls again where no answer came, and gives back what
// di-server said. It must not decide what to ask, nor who asks.
package diserver

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"time"

	"opendilab.org/di-orchestrator/internal/names"
)

const (
	// answerTime bounds one call: di-server works on a request for up to 30
	// seconds, and then has some to answer.
	answerTime = 45 * time.Second
	// attempts is how often a call is made when connections break.
	attempts = 5
	// maxReply bounds what is read of a reply.
	maxReply = 8 << 20
	// shownReply bounds what is shown of a reply that is not di-server's.
	shownReply = 200
)

// Way leads to di-server.
type Way interface {
	// Open returns a URL under which di-server answers until end is called.
	Open(ctx context.Context) (url string, end func(), err error)
}

// At is the way to a di-server that answers at a URL.
type At string

// Open implements Way.
func (u At) Open(context.Context) (string, func(), error) {
	return string(u), func() {}, nil
}

// Options say how di-server is called.
type Options struct {
	// Way leads to it.
	Way Way
	// Token tells who calls.
	Token string
	// IdempotencyKey names the one write that the client is for.
	IdempotencyKey string
	// RetryWait is the pause before a retry.
	RetryWait time.Duration
	// Report is called with the reason of a retry.
	Report func(error)
}

// Client calls di-server.
type Client struct {
	options Options
	http    *http.Client
}

// New returns a client.
func New(options Options) *Client {
	return &Client{options: options, http: &http.Client{
		Timeout: answerTime,
		// The token is for di-server alone.
		CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse },
		// The way may be another one for each call.
		Transport: &http.Transport{Proxy: http.ProxyFromEnvironment, DisableKeepAlives: true},
	}}
}

// Refusal is an answer of di-server that says that a request was not done.
type Refusal struct {
	// Status is the HTTP status.
	Status int
	// Message is what di-server says of the reason.
	Message string
}

// Error implements error.
func (r *Refusal) Error() string {
	if r.Status >= http.StatusInternalServerError {
		return "di-server could not do it: " + r.Message
	}
	return "di-server refuses: " + r.Message
}

// UnansweredError says that a request was sent and no answer came, or one that
// it cannot be done now, so that it is unknown whether it was done.
type UnansweredError struct{ cause error }

// Error implements error.
func (e *UnansweredError) Error() string {
	var later *Refusal
	if errors.As(e.cause, &later) {
		return "di-server cannot do it now: " + later.Message
	}
	return fmt.Sprintf("di-server did not answer: %v", e.cause)
}

// Unwrap returns why no answer came.
func (e *UnansweredError) Unwrap() error { return e.cause }

// envelope is the form of all replies.
type envelope struct {
	Success *bool           `json:"success"`
	Message string          `json:"message"`
	Data    json.RawMessage `json:"data"`
}

// call is one request.
type call struct {
	method, path string
	body         []byte
}

func newCall(method, path string, body any) (*call, error) {
	encoded, err := json.Marshal(body)
	if err != nil {
		return nil, fmt.Errorf("encoding a request: %w", err)
	}
	return &call{method: method, path: path, body: encoded}, nil
}

// do makes a call, again where no answer came, as di-server knows it again by
// its Idempotency-Key, and returns the answer.
func (c *Client) do(ctx context.Context, asked *call) (envelope, error) {
	sent := false
	for attempt := 1; ; attempt++ {
		reply, err := c.once(ctx, asked)
		var unanswered *UnansweredError
		if !errors.As(err, &unanswered) {
			return reply, stillUnknown(err, sent)
		}
		sent = sent || wasSent(err)
		if attempt == attempts || ctx.Err() != nil {
			return envelope{}, unreached(unanswered, sent)
		}
		c.options.Report(err)
		if err := pause(ctx, c.options.RetryWait); err != nil {
			return envelope{}, stillUnknown(err, sent)
		}
	}
}

// stillUnknown marks an error after which it is unknown whether the request was
// done, as it was sent before. An answer says it.
func stillUnknown(err error, sent bool) error {
	var refusal *Refusal
	if err == nil || !sent || errors.As(err, &refusal) {
		return err
	}
	return &UnansweredError{err}
}

// unreached is the error of a call that got no answer.
func unreached(unanswered *UnansweredError, sent bool) error {
	if sent {
		return unanswered
	}
	return fmt.Errorf("di-server cannot be reached: %w", unanswered.cause)
}

// wasSent reports whether a request may have reached di-server.
func wasSent(err error) bool {
	var failed *net.OpError
	return !errors.As(err, &failed) || failed.Op != "dial"
}

func pause(ctx context.Context, wait time.Duration) error {
	timer := time.NewTimer(wait)
	defer timer.Stop()
	select {
	case <-ctx.Done():
		return context.Cause(ctx)
	case <-timer.C:
		return nil
	}
}

// once makes a call once, by a way of its own.
func (c *Client) once(ctx context.Context, asked *call) (envelope, error) {
	base, end, err := c.options.Way.Open(ctx)
	if err != nil {
		return envelope{}, err
	}
	defer end()
	request, err := http.NewRequestWithContext(ctx, asked.method, base+asked.path, bytes.NewReader(asked.body))
	if err != nil {
		return envelope{}, fmt.Errorf("making a request: %w", err)
	}
	request.Header.Set("Content-Type", "application/json")
	request.Header.Set(names.HeaderCaller, names.CallerUser)
	if c.options.Token != "" {
		request.Header.Set("Authorization", "Bearer "+c.options.Token)
	}
	request.Header.Set(names.HeaderIdempotencyKey, c.options.IdempotencyKey)
	response, err := c.http.Do(request)
	if err != nil {
		return envelope{}, &UnansweredError{err}
	}
	defer response.Body.Close() //nolint:errcheck // nothing is lost with a body that was read
	content, err := io.ReadAll(http.MaxBytesReader(nil, response.Body, maxReply))
	if err != nil {
		return envelope{}, &UnansweredError{err}
	}
	return read(base, response.StatusCode, content)
}

// read returns an answer, or why there is none.
func read(from string, status int, content []byte) (envelope, error) {
	var reply envelope
	if err := json.Unmarshal(content, &reply); err != nil || reply.Success == nil {
		shown := content[:min(len(content), shownReply)]
		return envelope{}, fmt.Errorf("%s answered with status %d and what is no reply of di-server: %q", from, status, shown)
	}
	switch {
	case status != http.StatusOK:
		return envelope{}, &Refusal{Status: status, Message: reply.Message}
	case !*reply.Success:
		return envelope{}, &UnansweredError{&Refusal{Status: status, Message: reply.Message}}
	}
	return reply, nil
}
