// Copyright The DI Orchestrator Authors.
// SPDX-License-Identifier: Apache-2.0

package terminal

import (
	"fmt"
	"io"
	"net/http"
	"sync"
	"time"
)

// slow is the time after which the wait for an answer is reported.
const slow = time.Second

// TellSlow tells once, on a terminal, that an answer is waited for.
func TellSlow(out io.Writer, next http.RoundTripper) http.RoundTripper {
	if Width(out) == 0 {
		return next
	}
	return &patience{out: out, next: next}
}

// patience tells that an answer is waited for.
type patience struct {
	out  io.Writer
	next http.RoundTripper
	once sync.Once
}

// RoundTrip implements http.RoundTripper.
func (p *patience) RoundTrip(request *http.Request) (*http.Response, error) {
	if query := request.URL.Query(); query.Has("watch") || query.Has("follow") {
		// It is answered when something happens.
		return p.next.RoundTrip(request)
	}
	timer := time.AfterFunc(slow, func() {
		p.once.Do(func() { fmt.Fprintf(p.out, "kubectl-di: waiting for an answer of %s\n", request.URL.Host) })
	})
	defer timer.Stop()
	return p.next.RoundTrip(request)
}
