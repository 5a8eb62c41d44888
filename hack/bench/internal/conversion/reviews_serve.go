// Copyright The DI Orchestrator Authors.
// SPDX-License-Identifier: Apache-2.0

package conversion

import (
	"context"
	"crypto/tls"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"runtime"
	"runtime/metrics"
	"strconv"
	"syscall"

	"opendilab.org/di-orchestrator/conversion"
	"opendilab.org/di-orchestrator/internal/testkit/program"
)

// The endpoints that can be served.
const (
	endpointOurs      = "ours"
	endpointReference = "controller-runtime"
	// endpointTransport answers with what it was sent: what TLS and HTTP cost.
	endpointTransport = "transport"
)

// cost is what a process has used.
type cost struct {
	// Allocated is the sum of all memory that was ever allocated, in bytes.
	Allocated uint64
	// CPUSeconds is the time that processors spent on it.
	CPUSeconds float64
}

// serve serves an endpoint on a port of the loopback interface, over TLS as a
// webhook does, says where in one line, and ends when its input does. It is a
// process of its own, so that what it uses is known.
func serve(name string, heap int, in io.Reader, out io.Writer) error {
	// As long as this lives, the collector runs as seldom as in a program with
	// so much in its caches.
	cached := make([]byte, heap)
	defer runtime.KeepAlive(cached)
	endpoint, err := newEndpoint(name)
	if err != nil {
		return err
	}
	mux := http.NewServeMux()
	mux.Handle("/convert", endpoint)
	mux.HandleFunc("/cost", func(w http.ResponseWriter, _ *http.Request) {
		if err := json.NewEncoder(w).Encode(ownCost()); err != nil {
			http.Error(w, err.Error(), http.StatusInternalServerError)
		}
	})
	server := httptest.NewUnstartedServer(mux)
	server.TLS = &tls.Config{MinVersion: tls.VersionTLS12, NextProtos: []string{"http/1.1"}}
	server.StartTLS()
	defer server.Close()
	fmt.Fprintln(out, server.URL)
	_, err = io.Copy(io.Discard, in)
	return err
}

func newEndpoint(name string) (http.Handler, error) {
	switch name {
	case endpointReference:
		return newReference()
	case endpointTransport:
		return http.HandlerFunc(sendBack), nil
	}
	return conversion.NewHandler(conversion.Options{}), nil
}

func sendBack(w http.ResponseWriter, r *http.Request) {
	body := make([]byte, r.ContentLength)
	if _, err := io.ReadFull(r.Body, body); err != nil {
		http.Error(w, err.Error(), http.StatusBadRequest)
		return
	}
	w.Header().Set("Content-Length", strconv.Itoa(len(body)))
	_, _ = w.Write(body)
}

// ownCost returns what this process has used.
func ownCost() cost {
	allocated := []metrics.Sample{{Name: "/gc/heap/allocs:bytes"}}
	metrics.Read(allocated)
	var usage syscall.Rusage
	_ = syscall.Getrusage(syscall.RUSAGE_SELF, &usage)
	return cost{
		Allocated:  allocated[0].Value.Uint64(),
		CPUSeconds: float64(usage.Utime.Nano()+usage.Stime.Nano()) / 1e9,
	}
}

// served is an endpoint in a process of its own.
type served struct {
	*program.Process
	client *http.Client
	// converts says that answers are reviews.
	converts bool
}

// start starts an endpoint in a process with so many further bytes in its heap, and
// with further environment.
func start(ctx context.Context, name string, heap int, environment ...string) (*served, error) {
	process, err := program.StartOwn(ctx, environment, "conversion", "-role", roleEndpoint, "-endpoint", name, "-heap", strconv.Itoa(heap))
	if err != nil {
		return nil, err
	}
	transport := &http.Transport{
		// The certificate is made up by the test server.
		TLSClientConfig: &tls.Config{InsecureSkipVerify: true, MinVersion: tls.VersionTLS12},
		WriteBufferSize: 64 << 10, ReadBufferSize: 64 << 10,
	}
	return &served{Process: process, client: &http.Client{Transport: transport}, converts: name != endpointTransport}, nil
}

// stop ends the process.
func (s *served) stop() error {
	s.client.CloseIdleConnections()
	return s.Stop()
}

// cost returns what the process has used.
func (s *served) cost(ctx context.Context) (cost, error) {
	request, err := http.NewRequestWithContext(ctx, http.MethodGet, s.Address+"/cost", http.NoBody)
	if err != nil {
		return cost{}, fmt.Errorf("asking for the cost: %w", err)
	}
	response, err := s.client.Do(request)
	if err != nil {
		return cost{}, fmt.Errorf("asking for the cost: %w", err)
	}
	var used cost
	err = json.NewDecoder(response.Body).Decode(&used)
	if err := errors.Join(err, response.Body.Close()); err != nil {
		return cost{}, fmt.Errorf("asking for the cost: %w", err)
	}
	return used, nil
}
