// Copyright The DI Orchestrator Authors.
// SPDX-License-Identifier: Apache-2.0

package peer_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"opendilab.org/di-orchestrator/test/workload/cartpole/internal/peer"
	"opendilab.org/di-orchestrator/test/workload/cartpole/internal/policy"
	"opendilab.org/di-orchestrator/test/workload/cartpole/internal/rollout"
	"opendilab.org/di-orchestrator/test/workload/cartpole/internal/train"
)

func newMux() *peer.Mux {
	return peer.NewMux(func() peer.Identity { return peer.Identity{Role: "learner", Name: "me", Ready: true} })
}

// serve returns a client of a mux on loopback.
func serve(t *testing.T, mux http.Handler) *peer.Client {
	t.Helper()
	server := httptest.NewServer(mux)
	dialer := peer.NewDialer((&net.Dialer{}).DialContext)
	t.Cleanup(func() {
		dialer.Close()
		server.Close()
	})
	return dialer.Client(server.Listener.Addr().String())
}

func TestWorkAndStateTravelBitByBit(t *testing.T) {
	t.Parallel()
	mux := newMux()
	mux.ServeCollector(train.LocalCollector{})
	mux.ServeLearner(&train.Local{})
	far, near := serve(t, mux), &train.Local{}
	ctx := t.Context()
	state := policy.NewState(3)
	unit := rollout.Unit{Seed: 3, Kind: rollout.Collect, Episodes: 2}
	played, err := far.Collect(ctx, unit, state.Weights)
	if err != nil {
		t.Fatal(err)
	}
	request := train.StepRequest{State: state, Baseline: policy.NewBaseline(played.Returns), Units: [][]policy.Episode{played.Episodes}}
	var hashes []string
	for _, l := range []train.Learner{far, near} {
		next, err := l.Step(ctx, request)
		if err != nil {
			t.Fatal(err)
		}
		hashes = append(hashes, next.Hash())
	}
	if hashes[0] != hashes[1] {
		t.Errorf("got %s over the network and %s without", hashes[0], hashes[1])
	}
}

// refusing is a learner that answers with an error.
type refusing struct {
	train.Local
	err error
}

func (r *refusing) Step(context.Context, train.StepRequest) (policy.State, error) {
	return policy.State{}, fmt.Errorf("because: %w", r.err)
}

func TestErrorsThatCallersActOnKeepTheirMeaning(t *testing.T) {
	t.Parallel()
	for _, want := range []error{train.ErrNotReady, train.ErrDiverged} {
		mux := newMux()
		mux.ServeLearner(&refusing{err: want})
		_, err := serve(t, mux).Step(t.Context(), train.StepRequest{State: policy.NewState(1)})
		if !errors.Is(err, want) || !strings.Contains(err.Error(), "because") {
			t.Errorf("got %v, want %v", err, want)
		}
	}
}

func TestMalformedRequestsAreRefused(t *testing.T) {
	t.Parallel()
	mux := newMux()
	mux.ServeLearner(&train.Local{})
	tests := map[string]struct {
		method, path string
		body         io.Reader
		want         int
	}{
		"no JSON":        {http.MethodPost, "/step", strings.NewReader("{"), http.StatusBadRequest},
		"a wrong type":   {http.MethodPost, "/step", strings.NewReader(`{"units":"x"}`), http.StatusBadRequest},
		"too long":       {http.MethodPost, "/step", bytes.NewReader(bytes.Repeat([]byte(" "), 8<<20+1)), http.StatusBadRequest},
		"unknown path":   {http.MethodGet, "/nothing", http.NoBody, http.StatusNotFound},
		"other method":   {http.MethodPut, "/healthz", http.NoBody, http.StatusMethodNotAllowed},
		"health":         {http.MethodGet, "/healthz", http.NoBody, http.StatusOK},
		"identity":       {http.MethodGet, "/whoami", http.NoBody, http.StatusOK},
		"taking leave":   {http.MethodDelete, "/disconnect", strings.NewReader("{}"), http.StatusOK},
		"an empty state": {http.MethodPost, "/step", strings.NewReader("{}"), http.StatusInternalServerError},
	}
	for name, tc := range tests {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			recorder := httptest.NewRecorder()
			mux.ServeHTTP(recorder, httptest.NewRequestWithContext(t.Context(), tc.method, tc.path, tc.body))
			if recorder.Code != tc.want {
				t.Errorf("got status %d (%s), want %d", recorder.Code, recorder.Body, tc.want)
			}
		})
	}
}

func TestServingEndsWithItsContext(t *testing.T) {
	t.Parallel()
	listener, err := (&net.ListenConfig{}).Listen(t.Context(), "tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan error, 1)
	go func() { done <- peer.Serve(ctx, listener, newMux()) }()
	client := peer.NewDialer((&net.Dialer{}).DialContext).Client(listener.Addr().String())
	if identity, err := client.WhoAmI(t.Context()); err != nil || identity.Name != "me" {
		t.Errorf("got %+v and %v, want me", identity, err)
	}
	cancel()
	if err := <-done; err != nil {
		t.Error(err)
	}
	if _, err := client.Connect(t.Context()); err == nil {
		t.Error("want no answer after the end")
	}
}
