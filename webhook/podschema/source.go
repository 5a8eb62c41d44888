// Copyright The DI Orchestrator Authors.
// SPDX-License-Identifier: Apache-2.0

package podschema

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"time"

	"github.com/go-logr/logr"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/discovery"
	"k8s.io/client-go/openapi"
	"k8s.io/client-go/rest"
	"k8s.io/utils/clock"
)

const (
	// checkInterval is how long a schema is current, and how long after a failure to wait before
	// the next check.
	checkInterval = time.Minute
	// fetchTimeout limits each fetch: the API server waits 10 s for a webhook.
	fetchTimeout = 3 * time.Second
	// mostBytes limits the size of the API server's answers. The document of
	// Kubernetes 1.36 has 1.4 MiB.
	mostBytes = 8 << 20
	// corePath is the key of the core group in the index of documents.
	corePath = "api/v1"
)

// Source fetches the schema from the API server on demand, and again after it has
// changed there. It is safe for concurrent use.
type Source struct {
	api   openapi.ClientWithContext
	clock clock.PassiveClock
	log   logr.Logger
	// turn contains the state. A caller that receives it may change it and must send it back.
	turn chan known
}

// known is the state of a source.
type known struct {
	schema *Schema
	// url changes with the document.
	url string
	// checked is the time of the last check, and failed whether it failed.
	checked time.Time
	failed  bool
}

// NewSource returns a source that has not fetched anything yet.
func NewSource(config *rest.Config, now clock.PassiveClock, log logr.Logger) (*Source, error) {
	limited := rest.CopyConfig(config)
	limited.Wrap(func(next http.RoundTripper) http.RoundTripper { return bounded{next} })
	api, err := discovery.NewDiscoveryClientForConfig(limited)
	if err != nil {
		return nil, fmt.Errorf("client of the API server's schemas: %w", err)
	}
	source := &Source{api: openapi.NewClientWithContext(api.RESTClient()), clock: now, log: log, turn: make(chan known, 1)}
	source.turn <- known{}
	return source, nil
}

// Current returns the published schema, which is at most a minute old. It returns nil for a minute
// after a failed fetch.
func (s *Source) Current(ctx context.Context) *Schema {
	var state known
	select {
	case state = <-s.turn:
	case <-ctx.Done():
		return nil
	}
	defer func() { s.turn <- state }()
	if state.checked.IsZero() || s.clock.Since(state.checked) >= checkInterval {
		// Other callers need the answer even if this one has disconnected.
		fetching, cancel := context.WithTimeout(context.WithoutCancel(ctx), fetchTimeout)
		defer cancel()
		state.failed = s.told(s.refresh(fetching, &state), state.failed)
		state.checked = s.clock.Now()
	}
	if state.failed {
		return nil
	}
	return state.schema
}

// told logs when fetches start and stop failing. It reports whether the last one failed.
func (s *Source) told(err error, failed bool) bool {
	switch {
	case err != nil && !failed:
		s.log.Error(err, "Cannot fetch the API server's pod schema: unknown fields of templates are warned about and not refused")
	case err == nil && failed:
		s.log.Info("Fetched the API server's pod schema again")
	}
	return err != nil
}

// refresh fetches the index of documents, and the document if it has changed.
func (s *Source) refresh(ctx context.Context, state *known) error {
	documents, err := s.api.PathsWithContext(ctx)
	if err != nil {
		return fmt.Errorf("index: %w", err)
	}
	core, ok := documents[corePath]
	if !ok {
		return errors.New("index: has no " + corePath)
	}
	if state.schema != nil && core.ServerRelativeURL() == state.url {
		return nil
	}
	document, err := core.SchemaWithContext(ctx, runtime.ContentTypeJSON)
	if err != nil {
		return fmt.Errorf("document %s: %w", core.ServerRelativeURL(), err)
	}
	schema, err := Parse(document)
	if err != nil {
		return err
	}
	state.schema, state.url = schema, core.ServerRelativeURL()
	return nil
}

// bounded rejects answers that are too large for a schema.
type bounded struct{ next http.RoundTripper }

// RoundTrip implements http.RoundTripper.
func (b bounded) RoundTrip(request *http.Request) (*http.Response, error) {
	response, err := b.next.RoundTrip(request)
	if err != nil {
		return nil, err
	}
	response.Body = http.MaxBytesReader(nil, response.Body, mostBytes)
	return response, nil
}
