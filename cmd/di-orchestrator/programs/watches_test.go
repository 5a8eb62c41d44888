// Copyright The DI Orchestrator Authors.
// SPDX-License-Identifier: Apache-2.0

package programs

import (
	"io"
	"net/http"
	"strings"
	"testing"

	"k8s.io/client-go/rest"
)

// counted counts the reads of a body, and whether it was closed.
type counted struct {
	io.Reader
	reads  int
	closed bool
}

func (c *counted) Read(into []byte) (int, error) {
	c.reads++
	return c.Reader.Read(into)
}

func (c *counted) Close() error {
	c.closed = true
	return nil
}

// transport answers each request with a body.
type transport struct{ body *counted }

func (t transport) RoundTrip(*http.Request) (*http.Response, error) {
	return &http.Response{StatusCode: http.StatusOK, Body: t.body}, nil
}

func TestOnlyWatchesAreReadThroughABuffer(t *testing.T) {
	t.Parallel()
	for query, want := range map[string]int{"?watch=true": 1, "?limit=500": 3} {
		t.Run(query, func(t *testing.T) {
			t.Parallel()
			body, config := &counted{Reader: strings.NewReader("threeparts...")}, &rest.Config{}
			bufferWatches(config)
			request, err := http.NewRequestWithContext(t.Context(), http.MethodGet, "https://cluster/api/v1/pods"+query, http.NoBody)
			if err != nil {
				t.Fatal(err)
			}
			response, err := config.WrapTransport(transport{body}).RoundTrip(request)
			if err != nil {
				t.Fatal(err)
			}
			for _, part := range []string{"three", "parts", "..."} {
				got := make([]byte, len(part))
				if _, err := io.ReadFull(response.Body, got); err != nil || string(got) != part {
					t.Errorf("the body has %q (%v), want %q", got, err, part)
				}
			}
			if body.reads != want {
				t.Errorf("three parts were read by %d reads, want %d", body.reads, want)
			}
			if err := response.Body.Close(); err != nil || !body.closed {
				t.Errorf("the body is not closed: %v", err)
			}
		})
	}
}

func TestAWatchReturnsAnEventBeforeTheNextOneArrives(t *testing.T) {
	t.Parallel()
	reader, writer := io.Pipe()
	config := &rest.Config{}
	bufferWatches(config)
	request, err := http.NewRequestWithContext(t.Context(), http.MethodGet, "https://cluster/api/v1/pods?watch=true", http.NoBody)
	if err != nil {
		t.Fatal(err)
	}
	response, err := config.WrapTransport(transport{&counted{Reader: reader}}).RoundTrip(request)
	if err != nil {
		t.Fatal(err)
	}
	for _, event := range []string{"first", "second"} {
		go func() { _, _ = io.WriteString(writer, event) }()
		got := make([]byte, len(event))
		if _, err := io.ReadFull(response.Body, got); err != nil || string(got) != event {
			t.Errorf("the watch has %q (%v), want %q", got, err, event)
		}
	}
	if err := response.Body.Close(); err != nil {
		t.Error(err)
	}
}
