// Copyright The DI Orchestrator Authors.
// SPDX-License-Identifier: Apache-2.0

package peer

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

	"opendilab.org/di-orchestrator/test/workload/cartpole/internal/policy"
	"opendilab.org/di-orchestrator/test/workload/cartpole/internal/rollout"
	"opendilab.org/di-orchestrator/test/workload/cartpole/internal/train"
)

// Timeouts of the clients.
const (
	callTimeout = 30 * time.Second
	// helloTimeout bounds the calls that carry no work.
	helloTimeout = 5 * time.Second
)

// Dialer makes clients that share their connections.
type Dialer struct {
	client *http.Client
}

// DialFunc opens a connection.
type DialFunc func(ctx context.Context, network, address string) (net.Conn, error)

// NewDialer returns a dialer.
func NewDialer(dial DialFunc) *Dialer {
	return &Dialer{client: &http.Client{
		Timeout: callTimeout,
		Transport: &http.Transport{
			DialContext:         dial,
			MaxIdleConnsPerHost: 4,
			IdleConnTimeout:     idleTimeout,
		},
	}}
}

// Close drops the connections that are idle.
func (d *Dialer) Close() {
	d.client.CloseIdleConnections()
}

// Client calls one other process. It is a train.Collector and a train.Learner.
type Client struct {
	http    *http.Client
	address string
}

// Client returns a client for the process at host:port.
func (d *Dialer) Client(address string) *Client {
	return &Client{http: d.client, address: address}
}

// Collect implements train.Collector.
func (c *Client) Collect(ctx context.Context, u rollout.Unit, w policy.Weights) (rollout.Result, error) {
	return call[rollout.Result](ctx, c, http.MethodPost, "/collect", CollectRequest{Unit: u, Weights: w})
}

// State implements train.Learner.
func (c *Client) State(ctx context.Context) (policy.State, error) {
	return hello[policy.State](ctx, c, http.MethodGet, "/state", Empty{})
}

// Step implements train.Learner.
func (c *Client) Step(ctx context.Context, r train.StepRequest) (policy.State, error) {
	state, err := call[policy.State](ctx, c, http.MethodPost, "/step", r)
	if err != nil {
		return policy.State{}, err
	}
	return state, state.Check()
}

// WhoAmI asks the process who it is.
func (c *Client) WhoAmI(ctx context.Context) (Identity, error) {
	return hello[Identity](ctx, c, http.MethodGet, "/whoami", Empty{})
}

// Connect tells the process that it is going to be used.
func (c *Client) Connect(ctx context.Context) (Identity, error) {
	return hello[Identity](ctx, c, http.MethodPost, "/connect", Empty{})
}

// Disconnect tells the process that it is not used any more.
func (c *Client) Disconnect(ctx context.Context) error {
	_, err := hello[Empty](ctx, c, http.MethodDelete, "/disconnect", Empty{})
	return err
}

// Announce tells the leading learner of this worker.
func (c *Client) Announce(ctx context.Context, a Announcement) (Reception, error) {
	return hello[Reception](ctx, c, http.MethodPost, "/announce", a)
}

// Finish tells a worker that training has ended.
func (c *Client) Finish(ctx context.Context) error {
	_, err := hello[Empty](ctx, c, http.MethodPost, "/finish", Empty{})
	return err
}

// Join tells the master of this part of a learner.
func (c *Client) Join(ctx context.Context, j Join) (Joined, error) {
	return hello[Joined](ctx, c, http.MethodPost, "/join", j)
}

func hello[Reply any](ctx context.Context, c *Client, method, path string, request any) (Reply, error) {
	ctx, cancel := context.WithTimeout(ctx, helloTimeout)
	defer cancel()
	return call[Reply](ctx, c, method, path, request)
}

func call[Reply any](ctx context.Context, c *Client, method, path string, request any) (Reply, error) {
	var reply Reply
	body, err := json.Marshal(request)
	if err != nil {
		return reply, fmt.Errorf("%s %s: encode request: %w", method, path, err)
	}
	httpRequest, err := http.NewRequestWithContext(ctx, method, "http://"+c.address+path, bytes.NewReader(body))
	if err != nil {
		return reply, fmt.Errorf("%s %s: %w", method, path, err)
	}
	httpRequest.Header.Set("Content-Type", "application/json")
	response, err := c.http.Do(httpRequest)
	if err != nil {
		return reply, fmt.Errorf("call %s: %w", c.address, err)
	}
	defer response.Body.Close() //nolint:errcheck // nothing is lost with a body that was read
	bounded := http.MaxBytesReader(nil, response.Body, maxBody)
	if response.StatusCode != http.StatusOK {
		return reply, fmt.Errorf("%s http://%s%s: status %d: %w", method, c.address, path, response.StatusCode, remoteError(bounded))
	}
	if err := decode(bounded, &reply); err != nil {
		return reply, fmt.Errorf("%s http://%s%s: decode reply: %w", method, c.address, path, err)
	}
	return reply, nil
}

// remoteError reads an error reply; the errors that callers act on are
// themselves again.
func remoteError(body io.Reader) error {
	var failure Failure
	if err := decode(body, &failure); err != nil {
		return errors.New("no reason given")
	}
	if k, ok := kinds()[failure.Kind]; ok {
		return fmt.Errorf("%w (%s)", k.err, failure.Error)
	}
	return errors.New(failure.Error)
}

// decode reads one JSON value; nothing at all counts as the zero value.
func decode(body io.Reader, into any) error {
	if err := json.NewDecoder(body).Decode(into); err != nil && !errors.Is(err, io.EOF) {
		return err
	}
	return nil
}
