// Copyright The DI Orchestrator Authors.
// SPDX-License-Identifier: Apache-2.0

// Package diserver is kubectl di's client of di-server. It implements both protocols, retries
// unanswered calls, and returns di-server's responses. It must not decide which requests are made,
// or with which identity.
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

	"k8s.io/apimachinery/pkg/util/wait"

	"opendilab.org/di-orchestrator/internal/names"
)

const (
	// answerTime is the timeout of one call: di-server works on a request for up to 30 seconds.
	answerTime = 45 * time.Second
	// attempts is the maximum number of attempts when connections break.
	attempts = 6
	// maxReply limits the size of a response. shownReply limits the printed part of a response that
	// is not di-server's.
	maxReply   = 8 << 20
	shownReply = 200
	// pathReplicas is the path of the v1 protocol.
	pathReplicas = "/v1alpha1/replicas"
)

// Way provides a connection to di-server.
type Way interface {
	// Open returns a URL of di-server that works until end is called.
	Open(ctx context.Context) (url string, end func(), err error)
}

// At is the Way to a fixed URL.
type At string

// Open implements Way.
func (u At) Open(context.Context) (string, func(), error) { return string(u), func() {}, nil }

// Options configure a client.
type Options struct {
	Way   Way
	Token string
	// IdempotencyKey identifies the single write of the client.
	IdempotencyKey string
	// RetryWait is the backoff before the first retry. It doubles with each retry.
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
		// Redirects are not followed: only di-server may receive the token.
		CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse },
		// Each call may use another connection.
		Transport: &http.Transport{Proxy: http.ProxyFromEnvironment, DisableKeepAlives: true},
	}}
}

// Asked is a number of replicas and their resources; empty resources mean the template's.
type Asked struct {
	Replicas int32  `json:"replicas"`
	CPUs     string `json:"cpus,omitempty"`
	GPUs     string `json:"gpus,omitempty"`
	Memory   string `json:"memory,omitempty"`
}

// Coordinator identifies a coordinator-led job by its coordinator's pod.
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

// Failed identifies the pods to replace.
type Failed struct {
	Coordinator
	Collectors []string `json:"collectors,omitempty"`
	Learners   []string `json:"learners,omitempty"`
}

// Replicas contains the addresses of replicas in a response.
type Replicas struct {
	Collectors []string `json:"collectors"`
	Learners   []string `json:"learners"`
	// Raw is the original response.
	Raw json.RawMessage `json:"-"`
}

// Add requests more replicas of a coordinator-led job and returns them.
func (c *Client) Add(ctx context.Context, demand *Demand) (*Replicas, error) {
	return c.replicas(ctx, http.MethodPost, pathReplicas, demand)
}

// Delete requests fewer replicas of a coordinator-led job and returns the removed ones.
func (c *Client) Delete(ctx context.Context, demand *Demand) (*Replicas, error) {
	return c.replicas(ctx, http.MethodDelete, pathReplicas, demand)
}

// Replace requests replacements of replicas and returns the new ones.
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

// Resize requests more replicas of a worker-led job, or fewer if the number is negative, and
// returns di-server's message.
func (c *Client) Resize(ctx context.Context, namespace, job string, by int32) (string, error) {
	method := http.MethodPost
	if by < 0 {
		method, by = http.MethodDelete, -by
	}
	reply, err := c.call(ctx, method, "/v2alpha1/"+url.PathEscape(namespace+"."+job)+"/replicas", Asked{Replicas: by})
	return reply.Message, err
}

// Refusal is a response that a request was refused.
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

// UnansweredError reports that the result of a request is unknown: there was no response, or one
// that the request cannot be done now.
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

// envelope is the format of all responses.
type envelope struct {
	Success *bool           `json:"success"`
	Message string          `json:"message"`
	Data    json.RawMessage `json:"data"`
}

// call makes a call, and retries it if it was not answered. di-server recognizes a retry by the
// Idempotency-Key.
func (c *Client) call(ctx context.Context, method, path string, body any) (envelope, error) {
	encoded, err := json.Marshal(body)
	if err != nil {
		return envelope{}, fmt.Errorf("encoding a request: %w", err)
	}
	sent, backoff := false, wait.Backoff{Duration: c.options.RetryWait, Factor: 2, Steps: attempts}
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
		case <-time.After(backoff.Step()):
		}
	}
}

// stillUnknown marks an error whose request was sent before, so that its result is unknown. A
// definite response resolves that.
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

// once makes one attempt with its own connection.
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
	case refusal.Status != http.StatusOK, !*reply.Success && response.Header.Get("Retry-After") == "":
		// Without Retry-After the cluster refuses the request for good.
		return envelope{}, refusal
	case !*reply.Success:
		return envelope{}, &UnansweredError{refusal}
	}
	return reply, nil
}
