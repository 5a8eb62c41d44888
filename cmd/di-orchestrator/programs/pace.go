// Copyright The DI Orchestrator Authors.
// SPDX-License-Identifier: Apache-2.0

package programs

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"time"

	flowcontrolv1 "k8s.io/api/flowcontrol/v1"
	"k8s.io/client-go/rest"
)

const (
	// limitedQPS and limitedBurst limit the calls to an API server without API Priority and Fairness.
	limitedQPS   = 200
	limitedBurst = 2 * limitedQPS
	// unlimitedQPS disables the rate limit of a client.
	unlimitedQPS = -1
	// paceTimeout bounds the request that finds out about API Priority and Fairness.
	paceTimeout = 10 * time.Second
)

// setPace sets the rate limit of a client configuration. Without common.kubeAPIQPS, API Priority and
// Fairness is the limit where the API server has it: it divides the capacity of the API server between
// all clients, while a fixed limit delays large jobs on an idle one.
func (o *processOptions) setPace(ctx context.Context, config *rest.Config) error {
	if qps := o.config.Common.KubeAPIQPS; qps > 0 {
		config.QPS, config.Burst = float32(qps), max(int(2*qps), 1)
		return nil
	}
	fair, err := hasPriorityAndFairness(ctx, config)
	if err != nil {
		return err
	}
	config.QPS, config.Burst = limitedQPS, limitedBurst
	if fair {
		config.QPS = unlimitedQPS
	}
	return nil
}

// hasPriorityAndFairness reports whether the API server names the flow of a request in its answer, as it
// does with API Priority and Fairness. Every authenticated client may read the version.
func hasPriorityAndFairness(ctx context.Context, config *rest.Config) (_ bool, err error) {
	ctx, cancel := context.WithTimeout(ctx, paceTimeout)
	defer cancel()
	api, err := rest.HTTPClientFor(config)
	if err != nil {
		return false, fmt.Errorf("client of the API server: %w", err)
	}
	address, _, err := rest.DefaultServerUrlFor(config)
	if err != nil {
		return false, fmt.Errorf("address of the API server: %w", err)
	}
	request, err := http.NewRequestWithContext(ctx, http.MethodGet, address.JoinPath("version").String(), http.NoBody)
	if err != nil {
		return false, fmt.Errorf("address of the API server: %w", err)
	}
	answer, err := api.Do(request)
	if err != nil {
		return false, fmt.Errorf("reaching the API server: %w", err)
	}
	defer func() { err = errors.Join(err, answer.Body.Close()) }()
	if _, err := io.CopyN(io.Discard, answer.Body, 1<<10); err != nil && !errors.Is(err, io.EOF) {
		return false, fmt.Errorf("reading the API server's answer: %w", err)
	}
	return answer.Header.Get(flowcontrolv1.ResponseHeaderMatchedFlowSchemaUID) != "", nil
}

// withShareOfPace returns a copy of a configuration with a rate limit of its own: a share of the other's,
// or of the default where that has none.
func withShareOfPace(config *rest.Config, share int) *rest.Config {
	limited := rest.CopyConfig(config)
	if config.QPS < 0 {
		limited.QPS, limited.Burst = limitedQPS, limitedBurst
	}
	limited.QPS, limited.Burst = limited.QPS/float32(share), max(limited.Burst/share, 1)
	return limited
}
