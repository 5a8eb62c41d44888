// Copyright The DI Orchestrator Authors.
// SPDX-License-Identifier: Apache-2.0

package programs

import (
	"bufio"
	"io"
	"net/http"

	"k8s.io/client-go/rest"
)

// watchBuffer is how many bytes of a watch are read at once: some events of pods. Each watch has a buffer.
const watchBuffer = 16 << 10

// bufferWatches makes watches read several events at once, if as many have arrived. HTTP/2 acknowledges each read with a
// packet of its own, and client-go reads each event in two parts. That took a twentieth of the operator's processor time.
func bufferWatches(config *rest.Config) {
	config.Wrap(func(next http.RoundTripper) http.RoundTripper { return watchBuffers{next} })
}

type watchBuffers struct{ next http.RoundTripper }

// WrappedRoundTripper implements net.RoundTripperWrapper.
func (b watchBuffers) WrappedRoundTripper() http.RoundTripper { return b.next }

// RoundTrip implements http.RoundTripper.
func (b watchBuffers) RoundTrip(request *http.Request) (*http.Response, error) {
	response, err := b.next.RoundTrip(request)
	if err == nil && request.URL.Query().Has("watch") {
		response.Body = bufferedBody{Reader: bufio.NewReaderSize(response.Body, watchBuffer), Closer: response.Body}
	}
	return response, err
}

// bufferedBody is a body that is read through a buffer. A read returns what has arrived, and waits only if nothing has.
type bufferedBody struct {
	io.Reader
	io.Closer
}
