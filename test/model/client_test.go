// Copyright The DI Orchestrator Authors.
// SPDX-License-Identifier: Apache-2.0

package model

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"time"

	"k8s.io/apimachinery/pkg/util/wait"

	"opendilab.org/di-orchestrator/test/testkit/proxy"
)

const (
	// retries and retryDelay configure how a client handles connection errors. A deployed client
	// waits for a second instead.
	retries    = 5
	retryDelay = 50 * time.Millisecond
	// callTime is the timeout of a call. A server delays an answer by at most 30 s.
	callTime = time.Minute
)

// caller is a client in a pod. It calls from the pod's address and sends the pod's name.
type caller struct {
	namespace, pod, address string
}

// answer is a server's answer about one job.
type answer struct {
	Collectors []string `json:"collectors"`
	Learners   []string `json:"learners"`
}

func (a answer) urls() urls {
	return urls{append([]string{}, a.Collectors...), append([]string{}, a.Learners...)}
}

// amount is the requested number and shape of replicas of one task.
type amount struct {
	Replicas int    `json:"replicas"`
	CPUs     string `json:"cpus,omitempty"`
	GPUs     int32  `json:"gpus,omitempty"`
}

// request is a call of a client.
type request struct {
	method, path string
	body         any
	// key is the Idempotency-Key; "" for none.
	key string
}

// statusError is an answer that makes a deployed client exit.
type statusError struct {
	status int
	body   string
}

func (e *statusError) Error() string {
	return fmt.Sprintf("answered with status %d: %s", e.status, e.body)
}

// refusal returns err if it is an answer that makes a deployed client exit, and nil if there was no
// answer.
func refusal(err error) error {
	var status *statusError
	if errors.As(err, &status) {
		return err
	}
	return nil
}

// call calls one of the servers. After a connection error it calls another one, as a Service
// directs a client to a ready server. It returns the server that answered.
func (t *fixture) call(ctx context.Context, by caller, server int, asked request) (answer, int, error) {
	body, err := json.Marshal(asked.body)
	if err != nil {
		return answer{}, 0, fmt.Errorf("encoding a request: %w", err)
	}
	var refused error
	for range 1 + retries {
		replied, err := t.send(ctx, by, "http://"+t.servers[server].at.Address()+asked.path, asked, body)
		if err == nil || refusal(err) != nil || ctx.Err() != nil {
			return replied, server, err
		}
		refused = err
		server = (server + 1) % len(t.servers)
		if err := pause(ctx, retryDelay); err != nil {
			return answer{}, server, err
		}
	}
	return answer{}, server, fmt.Errorf("%d attempts were in vain: %w", 1+retries, refused)
}

// send sends a request once over a new connection, as deployed clients do.
func (t *fixture) send(ctx context.Context, by caller, url string, asked request, body []byte) (answer, error) {
	ctx, cancel := context.WithTimeout(ctx, callTime)
	defer cancel()
	sent, err := http.NewRequestWithContext(ctx, asked.method, url, bytes.NewReader(body))
	if err != nil {
		return answer{}, err
	}
	// The only header is the one with the request's idempotency key.
	if asked.key != "" {
		sent.Header.Set("Idempotency-Key", asked.key)
	}
	transport := &http.Transport{DisableKeepAlives: true, DialContext: proxy.DialFrom(by.address)}
	response, err := transport.RoundTrip(sent)
	if err != nil {
		return answer{}, err
	}
	defer func() { _ = response.Body.Close() }()
	content, err := io.ReadAll(response.Body)
	if err != nil {
		return answer{}, err
	}
	if response.StatusCode != http.StatusOK {
		return answer{}, &statusError{response.StatusCode, string(content)}
	}
	var envelope struct {
		Success bool   `json:"success"`
		Data    answer `json:"data"`
	}
	if err := json.Unmarshal(content, &envelope); err != nil || !envelope.Success {
		return answer{}, &statusError{response.StatusCode, fmt.Sprintf("no success (%v): %s", err, content)}
	}
	return envelope.Data, nil
}

// list requests the replicas of a job from one server, once.
func (t *fixture) list(ctx context.Context, by caller, server int, parameter string) (answer, error) {
	query := url.Values{"namespace": {by.namespace}, parameter: {by.pod}}
	asked := request{method: http.MethodGet, path: "/v1alpha1/replicas?" + query.Encode()}
	return t.send(ctx, by, "http://"+t.servers[server].at.Address()+asked.path, asked, []byte("{}"))
}

func pause(ctx context.Context, delay time.Duration) error {
	timer := time.NewTimer(delay)
	defer timer.Stop()
	select {
	case <-ctx.Done():
		return ctx.Err()
	case <-timer.C:
		return nil
	}
}

// eventually retries until an attempt succeeds, and returns the last error at the timeout.
func eventually(ctx context.Context, within time.Duration, attempt func(context.Context) error) error {
	var last error
	err := wait.PollUntilContextTimeout(ctx, 20*time.Millisecond, within, true, func(ctx context.Context) (bool, error) {
		failed := attempt(ctx)
		if ctx.Err() == nil || last == nil {
			last = failed
		}
		var final *finalError
		if errors.As(failed, &final) {
			return false, failed
		}
		return failed == nil, nil
	})
	if err == nil {
		return nil
	}
	return errors.Join(last, err)
}

// finalError is an error that a retry does not resolve.
type finalError struct{ error }

func (e *finalError) Unwrap() error { return e.error }
