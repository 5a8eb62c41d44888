// Copyright The DI Orchestrator Authors.
// SPDX-License-Identifier: Apache-2.0

package election

import (
	"context"
	"fmt"
	"net/http"
)

// Fence wraps the transport of a client that is for one term: what is sent after
// its end is refused, whoever sends it. What is under way then ends with the
// context that it was sent with.
func Fence(term context.Context) func(http.RoundTripper) http.RoundTripper {
	return func(next http.RoundTripper) http.RoundTripper {
		return fence(func(request *http.Request) (*http.Response, error) {
			if term.Err() != nil {
				if request.Body != nil {
					// Nobody reads what is not sent.
					_ = request.Body.Close()
				}
				return nil, fmt.Errorf("%s %s: the term has ended: %w", request.Method, request.URL.Path, context.Cause(term))
			}
			return next.RoundTrip(request)
		})
	}
}

type fence func(*http.Request) (*http.Response, error)

// RoundTrip implements http.RoundTripper.
func (f fence) RoundTrip(request *http.Request) (*http.Response, error) { return f(request) }
