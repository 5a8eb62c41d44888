// Copyright The DI Orchestrator Authors.
// SPDX-License-Identifier: Apache-2.0

package cluster

import (
	"bytes"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"slices"
	"strings"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/rest"
)

// maxStatus is the maximum number of bytes of an answer that is examined.
const maxStatus = 64 << 10

// retrier repeats writes for which the API server could not call an admission webhook, for example
// because the pod of the webhook was just replaced. Such a write has stored nothing.
type retrier struct {
	next http.RoundTripper
	warn rest.WarningHandler
}

// pauses returns the pauses between the attempts of a write: half a minute in all.
func pauses() []time.Duration {
	return []time.Duration{time.Second, 2 * time.Second, 4 * time.Second, 8 * time.Second, 15 * time.Second}
}

// RoundTrip implements http.RoundTripper.
func (r *retrier) RoundTrip(request *http.Request) (*http.Response, error) {
	isWrite := slices.Contains([]string{http.MethodPost, http.MethodPut, http.MethodPatch}, request.Method)
	for _, pause := range pauses() {
		response, err := r.next.RoundTrip(request)
		if err != nil || !isWrite || response.StatusCode != http.StatusInternalServerError || request.GetBody == nil {
			return response, err
		}
		why, err := unreachedWebhook(response)
		if err != nil || why == "" {
			return response, err
		}
		r.report(why)
		select {
		case <-request.Context().Done():
			return response, nil
		case <-time.After(pause):
		}
		if request, err = again(request); err != nil {
			return nil, err
		}
	}
	return r.next.RoundTrip(request)
}

func (r *retrier) report(why string) {
	if r.warn != nil {
		// 299 is the code of all warnings of an API server.
		r.warn.HandleWarningHeader(299, "kubectl-di", why+"; trying again for half a minute")
	}
}

// again returns a request with its body from the start.
func again(request *http.Request) (*http.Request, error) {
	body, err := request.GetBody()
	if err != nil {
		return nil, fmt.Errorf("reading the request again: %w", err)
	}
	repeated := request.Clone(request.Context())
	repeated.Body = body
	return repeated, nil
}

// unreachedWebhook returns the message of an answer about an admission webhook that could not be
// called, "" for other answers. The body can still be read.
func unreachedWebhook(response *http.Response) (string, error) {
	rest := response.Body
	start, err := io.ReadAll(io.LimitReader(rest, maxStatus))
	if err != nil {
		return "", fmt.Errorf("reading the answer of the API server: %w", err)
	}
	response.Body = struct {
		io.Reader
		io.Closer
	}{io.MultiReader(bytes.NewReader(start), rest), rest}
	status := metav1.Status{}
	if isStatus := json.Unmarshal(start, &status) == nil; !isStatus || !strings.Contains(status.Message, "failed calling webhook ") {
		return "", nil
	}
	return status.Message, nil
}
