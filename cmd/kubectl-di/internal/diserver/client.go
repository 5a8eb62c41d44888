// Copyright The DI Orchestrator Authors.
// SPDX-License-Identifier: Apache-2.0

// Package diserver is the client of di-server that kubectl di calls it by: it speaks both
// protocols, retries calls without an answer, and returns what di-server said. It must not
// decide what to ask, nor who asks.
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
	"net/url"
	"time"

	"opendilab.org/di-orchestrator/internal/names"
)

const (
	// answerTime bounds one call: di-server works on a request for up to 30 seconds.
	answerTime = 45 * time.Second
	// attempts is how often a call is made when connections break.
	attempts = 5
	// maxReply bounds what is read of a reply, and shownReply what is shown of one that is
	// not di-server's.
	maxReply   = 8 << 20
	shownReply = 200
	// pathReplicas is the path of the v1 protocol.
	pathReplicas = "/v1alpha1/replicas"
)

// Way leads to di-server.
type Way interface {
	// Open returns a URL under which di-server answers until end is called.
	Open(ctx context.Context) (url string, end func(), err error)
}

// At is the way to a di-server that answers at a URL.
type At string

// Open implements Way.
func (u At) Open(context.Context) (string, func(), error) { return string(u), func() {}, nil }

// Options configure a client.
type Options struct {
	Way   Way
	Token string
	// IdempotencyKey names the one write that the client is for.
	IdempotencyKey string
	// RetryWait is the backoff before a retry.
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

// Asked is a number of replicas and the resources of each; an empty one is the template's.
type Asked struct {
	Replicas int32  `json:"replicas"`
	CPUs     string `json:"cpus,omitempty"`
	GPUs     string `json:"gpus,omitempty"`
	Memory   string `json:"memory,omitempty"`
}

// Coordinator names a coordinator-led job by its coordinator's pod.
type Coordinator struct {
	Namespace string `json:"namespace"`
	Name      string `json:"coordinator"`
}

// Demand is a request for more replicas of a job, or fewer.
type Demand struct {
	Coordinator
	Collectors *Asked `json:"collectors,omitempty"`
	Learners   *Asked `json:"learners,omitempty"`
}

// Failed names the pods to replace.
type Failed struct {
	Coordinator
	Collectors []string `json:"collectors,omitempty"`
	Learners   []string `json:"learners,omitempty"`
}

// Replicas are the addresses of replicas in an answer.
type Replicas struct {
	Collectors []string `json:"collectors"`
	Learners   []string `json:"learners"`
	// Raw is the answer as it came.
	Raw json.RawMessage `json:"-"`
}

// Add asks for more replicas of a coordinator-led job and returns them.
func (c *Client) Add(ctx context.Context, demand *Demand) (*Replicas, error) {
	return c.replicas(ctx, http.MethodPost, pathReplicas, demand)
}

// Delete asks for fewer replicas of a coordinator-led job and returns those that go.
func (c *Client) Delete(ctx context.Context, demand *Demand) (*Replicas, error) {
	return c.replicas(ctx, http.MethodDelete, pathReplicas, demand)
}

// Replace asks for new replicas in place of others and returns the new ones.
func (c *Client) Replace(ctx context.Context, failed *Failed) (*Replicas, error) {
	return c.replicas(ctx, http.MethodPost, pathReplicas+"/failed", failed)
}

func (c *Client) replicas(ctx context.Context, method, path string, body any) (*Replicas, error) {
	reply, err := c.call(ctx, method, path, body)
	if err != nil {
		return nil, err
	}
	answer := &Replicas{Raw: reply.Data}
	if err := json.Unmarshal(reply.Data, answer); err != nil {
		return nil, fmt.Errorf("decoding di-server's answer: %w", err)
	}
	return answer, nil
}

// Resize asks for more replicas of a worker-led job, or fewer if the number is negative,
// and returns di-server's message.
func (c *Client) Resize(ctx context.Context, namespace, job string, by int32) (string, error) {
	method := http.MethodPost
	if by < 0 {
		method, by = http.MethodDelete, -by
	}
	reply, err := c.call(ctx, method, "/v2alpha1/"+url.PathEscape(namespace+"."+job)+"/replicas", Asked{Replicas: by})
	return reply.Message, err
}

// Refusal is an answer that a request was not done.
type Refusal struct {
	Status  int
	Message string
}

// Error implements error.
func (r *Refusal) Error() string {
	if r.Status >= http.StatusInternalServerError {
		return "di-server could not do it: " + r.Message
	}
	return "di-server refuses: " + r.Message
}

// UnansweredError says that a request was sent and no answer came, or one that it cannot
// be done now, so that it is unknown whether it was done.
type UnansweredError struct{ cause error }

// Error implements error.
func (e *UnansweredError) Error() string {
	if later := (*Refusal)(nil); errors.As(e.cause, &later) {
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

// call makes a call, and retries it where no answer came: di-server recognizes it by its
// Idempotency-Key.
func (c *Client) call(ctx context.Context, method, path string, body any) (envelope, error) {
	encoded, err := json.Marshal(body)
	if err != nil {
		return envelope{}, fmt.Errorf("encoding a request: %w", err)
	}
	sent := false
	for attempt := 1; ; attempt++ {
		reply, err := c.once(ctx, method, path, encoded)
		var unanswered *UnansweredError
		if !errors.As(err, &unanswered) {
			return reply, stillUnknown(err, sent)
		}
		sent = sent || wasSent(err)
		if attempt == attempts || ctx.Err() != nil {
			if !sent {
				err = fmt.Errorf("di-server cannot be reached: %w", unanswered.cause)
			}
			return envelope{}, err
		}
		c.options.Report(err)
		select {
		case <-ctx.Done():
			return envelope{}, stillUnknown(context.Cause(ctx), sent)
		case <-time.After(c.options.RetryWait):
		}
	}
}

// stillUnknown marks an error after which it is unknown whether the request was done,
// because it was sent before. An answer says it.
func stillUnknown(err error, sent bool) error {
	if refusal := (*Refusal)(nil); err == nil || !sent || errors.As(err, &refusal) {
		return err
	}
	return &UnansweredError{err}
}

// wasSent reports whether a request may have reached di-server.
func wasSent(err error) bool {
	var failed *net.OpError
	return !errors.As(err, &failed) || failed.Op != "dial"
}

// once makes a call once, by a way of its own.
func (c *Client) once(ctx context.Context, method, path string, body []byte) (envelope, error) {
	base, end, err := c.options.Way.Open(ctx)
	if err != nil {
		return envelope{}, err
	}
	defer end()
	request, err := http.NewRequestWithContext(ctx, method, base+path, bytes.NewReader(body))
	if err != nil {
		return envelope{}, fmt.Errorf("making a request: %w", err)
	}
	request.Header.Set("Content-Type", "application/json")
	request.Header.Set(names.HeaderCaller, names.CallerUser)
	request.Header.Set(names.HeaderIdempotencyKey, c.options.IdempotencyKey)
	if c.options.Token != "" {
		request.Header.Set("Authorization", "Bearer "+c.options.Token)
	}
	response, err := c.http.Do(request)
	if err != nil {
		return envelope{}, &UnansweredError{err}
	}
	defer response.Body.Close() //nolint:errcheck // nothing is lost with a body that was read
	content, err := io.ReadAll(http.MaxBytesReader(nil, response.Body, maxReply))
	if err != nil {
		return envelope{}, &UnansweredError{err}
	}
	var reply envelope
	if err := json.Unmarshal(content, &reply); err != nil || reply.Success == nil {
		shown := content[:min(len(content), shownReply)]
		return envelope{}, fmt.Errorf("%s answered with status %d and no reply of di-server: %q", base, response.StatusCode, shown)
	}
	refusal := &Refusal{Status: response.StatusCode, Message: reply.Message}
	switch {
	case refusal.Status != http.StatusOK:
		return envelope{}, refusal
	case !*reply.Success:
		return envelope{}, &UnansweredError{refusal}
	}
	return reply, nil
}
