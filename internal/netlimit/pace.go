// Copyright The DI Orchestrator Authors.
// SPDX-License-Identifier: Apache-2.0

package netlimit

import (
	"errors"
	"io"
	"net/http"
	"time"
)

// Pace is the minimum rate of an arriving body.
type Pace struct {
	// Grace is the extra time of the whole body, and the maximum pause within it.
	Grace time.Duration
	// BytesPerSecond is the minimum average rate.
	BytesPerSecond int64
}

// Body returns the body of a request. Its reads fail if the body arrives too slowly.
func (p Pace) Body(w http.ResponseWriter, body io.Reader) io.Reader {
	return &paced{pace: p, of: body, connection: http.NewResponseController(w), begin: time.Now()}
}

type paced struct {
	pace       Pace
	of         io.Reader
	connection *http.ResponseController
	begin      time.Time
	read       int64
}

// Read implements io.Reader.
func (p *paced) Read(into []byte) (int, error) {
	now := time.Now()
	deadline := p.begin.Add(p.pace.Grace + time.Duration(float64(p.read)/float64(p.pace.BytesPerSecond)*float64(time.Second)))
	if pause := now.Add(p.pace.Grace); pause.Before(deadline) {
		deadline = pause
	}
	// A writer that is not a connection has no deadline.
	_ = p.connection.SetReadDeadline(deadline)
	n, err := p.of.Read(into)
	p.read += int64(n)
	switch {
	case errors.Is(err, io.EOF):
		// The deadline is removed, because the server keeps reading the connection to detect whether the
		// client leaves.
		_ = p.connection.SetReadDeadline(time.Time{})
	case err != nil:
		// The deadline expires at once, because the server would read the rest of the body before it
		// closes the connection.
		_ = p.connection.SetReadDeadline(time.Unix(1, 0))
	}
	return n, err
}
