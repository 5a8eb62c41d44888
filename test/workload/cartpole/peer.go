// Copyright The DI Orchestrator Authors.
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"time"
)

const (
	// callTimeout is the timeout of a call to another process. All work is short.
	callTimeout = 5 * time.Second
	// maxBody is the maximum size of requests and replies.
	maxBody = 1 << 20
)

// These errors keep their identity between processes.
var (
	// errNotReady means that a learner has not found all its parts.
	errNotReady = errors.New("the learner is not ready yet")
	// errDiverged means that learners have different states after the same step.
	errDiverged = errors.New("learners diverged")
)

// identity is the answer of a process to a new connection.
type identity struct {
	Name string `json:"name"`
	// Rank and WorldSize are set by the parts of a data-parallel learner.
	Rank      int `json:"rank"`
	WorldSize int `json:"worldSize"`
}

// empty is the body of requests and replies without content.
type empty struct{}

// newMux returns a mux for the kubelet's probe and for connections.
func newMux(who identity) *http.ServeMux {
	mux := http.NewServeMux()
	handle(mux, "GET /healthz", func(context.Context, empty) (empty, error) { return empty{}, nil })
	handle(mux, "POST /connect", func(context.Context, empty) (identity, error) { return who, nil })
	handle(mux, "DELETE /disconnect", func(context.Context, empty) (empty, error) { return empty{}, nil })
	return mux
}

func servePlayer(mux *http.ServeMux, p player) {
	handle(mux, "POST /play", p.play)
}

func serveLearner(mux *http.ServeMux, l learner) {
	handle(mux, "POST /step", l.step)
	handle(mux, "GET /state", func(ctx context.Context, _ empty) (state, error) { return l.last(ctx) })
}

// handle adds a route whose request and reply are JSON.
func handle[Request, Reply any](mux *http.ServeMux, pattern string, serve func(context.Context, Request) (Reply, error)) {
	mux.HandleFunc(pattern, func(w http.ResponseWriter, r *http.Request) {
		var request Request
		if err := decode(http.MaxBytesReader(w, r.Body, maxBody), &request); err != nil {
			http.Error(w, "request body: "+err.Error(), http.StatusBadRequest)
			return
		}
		reply, err := serve(r.Context(), request)
		switch {
		case errors.Is(err, errNotReady):
			http.Error(w, err.Error(), http.StatusServiceUnavailable)
		case errors.Is(err, errDiverged):
			http.Error(w, err.Error(), http.StatusConflict)
		case err != nil:
			http.Error(w, err.Error(), http.StatusInternalServerError)
		default:
			_ = json.NewEncoder(w).Encode(reply) // the caller may have disconnected
		}
	})
}

// decode reads one JSON value; an empty body is the zero value.
func decode(body io.Reader, into any) error {
	if err := json.NewDecoder(body).Decode(into); err != nil && !errors.Is(err, io.EOF) {
		return err
	}
	return nil
}

// remote is another process: a player, a learner, or the leader of workers.
type remote struct {
	client  *http.Client
	address string
}

func (r remote) play(ctx context.Context, u unit) ([]int, error) {
	returns, err := call[[]int](ctx, r.client, http.MethodPost, "http://"+r.address+"/play", u)
	if err != nil {
		return nil, err
	}
	return returns, u.check(returns)
}

func (r remote) step(ctx context.Context, request stepRequest) (state, error) {
	return call[state](ctx, r.client, http.MethodPost, "http://"+r.address+"/step", request)
}

func (r remote) last(ctx context.Context) (state, error) {
	return call[state](ctx, r.client, http.MethodGet, "http://"+r.address+"/state", empty{})
}

func (r remote) connect(ctx context.Context) (identity, error) {
	return call[identity](ctx, r.client, http.MethodPost, "http://"+r.address+"/connect", empty{})
}

func (r remote) disconnect(ctx context.Context) error {
	_, err := call[empty](ctx, r.client, http.MethodDelete, "http://"+r.address+"/disconnect", empty{})
	return err
}

// call sends JSON and reads JSON.
func call[Reply any](ctx context.Context, client *http.Client, method, url string, request any) (reply Reply, err error) {
	ctx, cancel := context.WithTimeout(ctx, callTimeout)
	defer cancel()
	body, err := json.Marshal(request)
	if err != nil {
		return reply, fmt.Errorf("%s %s: %w", method, url, err)
	}
	httpRequest, err := http.NewRequestWithContext(ctx, method, url, bytes.NewReader(body))
	if err != nil {
		return reply, fmt.Errorf("%s %s: %w", method, url, err)
	}
	response, err := client.Do(httpRequest)
	if err != nil {
		return reply, fmt.Errorf("call: %w", err)
	}
	defer response.Body.Close() //nolint:errcheck // nothing is lost with a body that was read
	content := io.LimitReader(response.Body, maxBody)
	if response.StatusCode == http.StatusOK {
		return reply, decode(content, &reply)
	}
	reason, _ := io.ReadAll(content) // the status is enough without it
	err = fmt.Errorf("%s %s: status %d: %s", method, url, response.StatusCode, bytes.TrimSpace(reason))
	switch response.StatusCode {
	case http.StatusServiceUnavailable:
		err = fmt.Errorf("%w: %w", errNotReady, err)
	case http.StatusConflict:
		err = fmt.Errorf("%w: %w", errDiverged, err)
	}
	return reply, err
}
