// Copyright The DI Orchestrator Authors.
// SPDX-License-Identifier: Apache-2.0

// Package diserver is the workload's client of di-server. It makes its calls as the deployed client
// does.
package diserver

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"net/http"
	"net/url"
	"os"
	"strings"
	"time"
)

const (
	// TokenFile is the path of a pod's token.
	TokenFile = "/var/run/secrets/diengine.opendilab.org/token"
	// maxReply is the maximum size of a reply.
	maxReply = 8 << 20
	// retries is the number of retries after a connection error, for every method.
	retries = 5
)

// Config contains the address of di-server and the identity of the caller.
type Config struct {
	// URL is the address of di-server, with or without http://.
	URL string
	// APIVersion is the path of the protocol.
	APIVersion string
	Namespace  string
	// Name is the pod name of the caller.
	Name string
	// TokenFile is the file with the token that authenticates the caller. Without it no token is
	// sent. The token is renewed, so each call reads the file.
	TokenFile string
	// RetryWait is the backoff before a retry.
	RetryWait time.Duration
	// HTTP makes the calls. Its timeout applies to each of them.
	HTTP *http.Client
}

// Client implements the v1 protocol.
type Client struct {
	config Config
	base   string
	http   *http.Client
}

// StatusError is an error answer of di-server.
type StatusError struct {
	Method, Path, Message string
	Status                int
}

// Error implements error.
func (e *StatusError) Error() string {
	return fmt.Sprintf("di-server answered %s %s with status %d: %s", e.Method, e.Path, e.Status, e.Message)
}

// LaterError is an answer of di-server that requests a later retry. Deployed clients survive it.
type LaterError struct {
	Method, Path, Message string
}

// Error implements error.
func (e *LaterError) Error() string {
	return fmt.Sprintf("di-server cannot do %s %s now: %s", e.Method, e.Path, e.Message)
}

// IsLater reports whether an error means that the same request may succeed later.
func IsLater(err error) bool {
	_, ok := errors.AsType[*LaterError](err)
	return ok
}

// New returns a client.
func New(config Config) (*Client, error) {
	base, err := baseURL(config.URL)
	if err != nil {
		return nil, err
	}
	return &Client{
		config: config,
		base:   base + "/" + strings.Trim(config.APIVersion, "/"),
		http:   config.HTTP,
	}, nil
}

// baseURL accepts an address with or without a scheme.
func baseURL(address string) (string, error) {
	if !strings.Contains(address, "://") {
		address = "http://" + address
	}
	parsed, err := url.Parse(address)
	if err != nil {
		return "", fmt.Errorf("di-server URL: %w", err)
	}
	if parsed.Host == "" {
		return "", fmt.Errorf("di-server URL %q: has no host, want host:port with or without http://", address)
	}
	return strings.TrimRight(address, "/"), nil
}

// Resources are the requested replicas of one kind. Empty quantities keep those of the job's
// template.
type Resources struct {
	Replicas int    `json:"replicas"`
	CPUs     string `json:"cpus,omitempty"`
	GPUs     string `json:"gpus,omitempty"`
	Memory   string `json:"memory,omitempty"`
}

// Replicas are the URLs (host:port) of a job's replicas, or of an aggregator's
// learners.
type Replicas struct {
	Namespace   string   `json:"namespace"`
	Coordinator string   `json:"coordinator"`
	Collectors  []string `json:"collectors"`
	Learners    []string `json:"learners"`
}

// demand is the body of a request about the collectors and learners of a job.
type demand[T Resources | []string] struct {
	Namespace   string `json:"namespace"`
	Coordinator string `json:"coordinator"`
	Collectors  T      `json:"collectors"`
	Learners    T      `json:"learners"`
}

func demandOf[T Resources | []string](c *Client, collectors, learners T) demand[T] {
	return demand[T]{Namespace: c.config.Namespace, Coordinator: c.config.Name, Collectors: collectors, Learners: learners}
}

// Failed lists the pods of replicas that do not answer.
type Failed struct {
	Collectors []string
	Learners   []string
}

// envelope is the form of all replies.
type envelope struct {
	Success bool            `json:"success"`
	Code    int             `json:"code"`
	Message string          `json:"message"`
	Data    json.RawMessage `json:"data"`
}

// Create requests replicas.
func (c *Client) Create(ctx context.Context, collectors, learners Resources) (Replicas, error) {
	return c.replicas(ctx, http.MethodPost, "/replicas", demandOf(c, collectors, learners))
}

// Delete requests the removal of replicas.
func (c *Client) Delete(ctx context.Context, collectors, learners int) (Replicas, error) {
	return c.replicas(ctx, http.MethodDelete, "/replicas",
		demandOf(c, Resources{Replicas: collectors}, Resources{Replicas: learners}))
}

// OfCoordinator lists the replicas of the calling coordinator.
func (c *Client) OfCoordinator(ctx context.Context) (Replicas, error) {
	return c.list(ctx, "coordinator")
}

// OfAggregator lists the learners of the calling aggregator.
func (c *Client) OfAggregator(ctx context.Context) (Replicas, error) {
	return c.list(ctx, "aggregator")
}

// ReportFailed requests replacements of replicas that do not answer.
func (c *Client) ReportFailed(ctx context.Context, f Failed) error {
	_, err := c.call(ctx, http.MethodPost, "/replicas/failed",
		demandOf(c, append([]string{}, f.Collectors...), append([]string{}, f.Learners...)))
	return err
}

// list sends an empty JSON object with GET, as deployed clients do.
func (c *Client) list(ctx context.Context, as string) (Replicas, error) {
	query := url.Values{"namespace": {c.config.Namespace}, as: {c.config.Name}}
	return c.replicas(ctx, http.MethodGet, "/replicas?"+query.Encode(), struct{}{})
}

func (c *Client) replicas(ctx context.Context, method, path string, body any) (Replicas, error) {
	data, err := c.call(ctx, method, path, body)
	if err != nil {
		return Replicas{}, err
	}
	var replicas Replicas
	if err := json.Unmarshal(data, &replicas); err != nil {
		return Replicas{}, fmt.Errorf("%s %s: data of the reply: %w", method, path, err)
	}
	return replicas, nil
}

// call makes a call. It retries after connection errors but never after an answer.
func (c *Client) call(ctx context.Context, method, path string, body any) (json.RawMessage, error) {
	encoded, err := json.Marshal(body)
	if err != nil {
		return nil, fmt.Errorf("%s %s: encode request: %w", method, path, err)
	}
	var data json.RawMessage
	err = Retry(ctx, c.config.RetryWait, func() error {
		data, err = c.once(ctx, method, path, encoded)
		return err
	})
	return data, err
}

// Retry repeats a call until it succeeds, returns an error status, or its first attempt and five
// retries have failed. It pauses between attempts.
func Retry(ctx context.Context, pause time.Duration, call func() error) error {
	for attempt := 0; ; attempt++ {
		err := call()
		if err == nil || attempt == retries || isAnswer(err) {
			return err
		}
		timer := time.NewTimer(pause)
		select {
		case <-ctx.Done():
			timer.Stop()
			return fmt.Errorf("%w (last error: %w)", context.Cause(ctx), err)
		case <-timer.C:
		}
	}
}

func isAnswer(err error) bool {
	_, ok := errors.AsType[*StatusError](err)
	return ok || IsLater(err)
}

// authorize adds the token, if there is one.
func (c *Client) authorize(request *http.Request) error {
	if c.config.TokenFile == "" {
		return nil
	}
	token, err := os.ReadFile(c.config.TokenFile)
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	if err != nil {
		return fmt.Errorf("read the token for di-server: %w", err)
	}
	request.Header.Set("Authorization", "Bearer "+strings.TrimSpace(string(token)))
	return nil
}

// once makes one call. It sends no Content-Type, as deployed clients do.
func (c *Client) once(ctx context.Context, method, path string, body []byte) (json.RawMessage, error) {
	httpRequest, err := http.NewRequestWithContext(ctx, method, c.base+path, bytes.NewReader(body))
	if err != nil {
		return nil, fmt.Errorf("%s %s: %w", method, path, err)
	}
	if err := c.authorize(httpRequest); err != nil {
		return nil, err
	}
	return Send(c.http, httpRequest)
}

// Send sends a request once and returns the data of the answer. Its error is a StatusError or a LaterError if di-server
// has answered.
func Send(client *http.Client, request *http.Request) (json.RawMessage, error) {
	method, path := request.Method, request.URL.RequestURI()
	response, err := client.Do(request)
	if err != nil {
		return nil, fmt.Errorf("call di-server: %w", err)
	}
	defer response.Body.Close() //nolint:errcheck // nothing is lost with a body that was read
	content, err := io.ReadAll(http.MaxBytesReader(nil, response.Body, maxReply))
	if err != nil {
		return nil, fmt.Errorf("%s %s: read reply: %w", method, path, err)
	}
	var reply envelope
	err = json.Unmarshal(content, &reply)
	switch {
	case response.StatusCode >= http.StatusBadRequest:
		return nil, &StatusError{Method: method, Path: path, Message: reply.Message, Status: response.StatusCode}
	case err != nil:
		return nil, fmt.Errorf("%s %s: decode reply: %w", method, path, err)
	case !reply.Success:
		return nil, &LaterError{Method: method, Path: path, Message: reply.Message}
	}
	return reply.Data, nil
}
