// Copyright The DI Orchestrator Authors.
// SPDX-License-Identifier: Apache-2.0

// Package promapi queries a Prometheus over its HTTP API. The installation sets its address; who asks only chooses the
// queries.
package promapi

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"strconv"
	"strings"
	"time"
)

const (
	// timeout bounds a query.
	timeout = 5 * time.Second
	// maxAnswer bounds the bytes of an answer, of which one value is read, and maxRange those of curves.
	maxAnswer = 64 << 10
	maxRange  = 2 << 20
	// maxError bounds the logged text of an error of Prometheus.
	maxError = 200
)

// UpstreamError is a failure whose cause only the operator's log may tell: it names the address of Prometheus, or
// series of others.
type UpstreamError struct {
	// Message is for the author of the query.
	Message string
	// Cause is for the log.
	Cause error
}

// Error implements error.
func (e *UpstreamError) Error() string { return e.Message }

// upstream returns an UpstreamError.
func upstream(message string, cause error) error { return &UpstreamError{message, cause} }

// Client is a client of the HTTP API of Prometheus.
type Client struct {
	api  *url.URL
	http *http.Client
}

// New returns a client of the Prometheus with the address, such as http://prometheus.monitoring:9090. The path of
// the address precedes that of the API.
func New(address string) (*Client, error) {
	base, err := url.Parse(address)
	switch {
	case err != nil:
		return nil, fmt.Errorf("%q is no URL: %w", address, err)
	case base.Scheme != "http" && base.Scheme != "https", base.Host == "", base.RawQuery != "", base.Fragment != "":
		return nil, fmt.Errorf("%q: must be a URL such as http://prometheus.monitoring:9090", address)
	}
	// A redirect could lead the operator elsewhere than the installation set.
	refuse := func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse }
	return &Client{api: base.JoinPath("api", "v1"), http: &http.Client{Timeout: timeout, CheckRedirect: refuse}}, nil
}

// answer is an answer of the API. A scalar has the value as result, a vector a list of series.
type answer struct {
	Status    string `json:"status"`
	ErrorType string `json:"errorType"`
	Error     string `json:"error"`
	Data      struct {
		Type   string          `json:"resultType"`
		Result json.RawMessage `json:"result"`
	} `json:"data"`
}

// value is a time and a number, which is a string.
type value [2]json.RawMessage

// Query returns the value of a query. It must have one series.
func (c *Client) Query(ctx context.Context, query string) (float64, error) {
	content, status, err := c.post(ctx, "query", url.Values{"query": {query}}, maxAnswer)
	if err != nil {
		return 0, err
	}
	return read(content, status)
}

// post returns an answer of at most so many bytes, and its status.
func (c *Client) post(ctx context.Context, path string, form url.Values, most int64) ([]byte, int, error) {
	form.Set("timeout", timeout.String())
	request, err := http.NewRequestWithContext(ctx, http.MethodPost, c.api.JoinPath(path).String(), strings.NewReader(form.Encode()))
	if err != nil {
		return nil, 0, fmt.Errorf("making the request to Prometheus: %w", err)
	}
	request.Header.Set("Content-Type", "application/x-www-form-urlencoded")
	response, err := c.http.Do(request)
	if err != nil {
		return nil, 0, upstream("Prometheus does not answer", err)
	}
	defer func() { _ = response.Body.Close() }()
	content, err := io.ReadAll(io.LimitReader(response.Body, most+1))
	if err != nil {
		return nil, 0, upstream("the answer of Prometheus breaks off", err)
	}
	if int64(len(content)) > most {
		return nil, 0, fmt.Errorf("the answer of Prometheus has more than %d bytes: the query must have fewer series", most)
	}
	return content, response.StatusCode, nil
}

// read returns the value of an answer with a status.
func read(content []byte, status int) (float64, error) {
	got, err := decode(content, status)
	if err != nil {
		return 0, err
	}
	return got.value()
}

// decode returns an answer that is a success.
func decode(content []byte, status int) (*answer, error) {
	var got answer
	if err := json.Unmarshal(content, &got); err != nil {
		return nil, fmt.Errorf("the answer of Prometheus, with status %d, is no JSON of its API", status)
	}
	if got.Status != "success" {
		return nil, upstream(got.failure(), errors.New(strconv.QuoteToGraphic(got.Error[:min(len(got.Error), maxError)])))
	}
	return &got, nil
}

// failure returns what the author of a query may learn of its failure: a type of the API's documentation.
func (a *answer) failure() string {
	switch a.ErrorType {
	case "bad_data", "execution":
		return "Prometheus cannot execute the query (" + a.ErrorType + ")"
	case "timeout", "canceled":
		return "the query takes Prometheus too long"
	}
	return "Prometheus cannot answer now"
}

// value returns the only value of an answer.
func (a *answer) value() (float64, error) {
	var only value
	switch a.Data.Type {
	case "scalar":
		if err := json.Unmarshal(a.Data.Result, &only); err != nil {
			return 0, errors.New("the scalar in the answer of Prometheus cannot be read")
		}
	case "vector":
		var series []struct {
			Value value `json:"value"`
		}
		if err := json.Unmarshal(a.Data.Result, &series); err != nil {
			return 0, errors.New("the vector in the answer of Prometheus cannot be read")
		}
		if len(series) != 1 {
			return 0, fmt.Errorf("the query has %d series: must be one, such as by sum()", len(series))
		}
		only = series[0].Value
	default:
		return 0, fmt.Errorf("the query has a result of type %.20q: must be one number", a.Data.Type)
	}
	return only.number()
}

// number returns the number of a value.
func (v value) number() (float64, error) {
	var text string
	if err := json.Unmarshal(v[1], &text); err != nil {
		return 0, errors.New("the value in the answer of Prometheus cannot be read")
	}
	number, err := strconv.ParseFloat(text, 64)
	if err != nil {
		return 0, fmt.Errorf("the value in the answer of Prometheus is %.20q: must be a number", text)
	}
	return number, nil
}
