// Copyright The DI Orchestrator Authors.
// SPDX-License-Identifier: Apache-2.0

// Package service asks services that the installation names, such as an optimizer, by JSON over HTTP. A service is
// never trusted: what it answers is bounded, and it is connected to without proxies or redirects.
package service

import (
	"bytes"
	"context"
	"crypto/tls"
	"crypto/x509"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"mime"
	"net"
	"net/http"
	"net/url"
	"os"
	"strings"
	"time"
)

const (
	// maxAnswer is the maximum size of an answer, and maxRequest that of a request, in bytes.
	maxAnswer, maxRequest = 16 << 20, 8 << 20
	// maxToken is the maximum size of a token, in bytes.
	maxToken = 64 << 10
	// maxConnections bounds the connections to a service.
	maxConnections = 8
)

// Settings are those of the installation. A user cannot set them, so no job decides where the operator connects to.
type Settings struct {
	// Name is what errors call the service, such as optimizer.
	Name string
	// URL is that of the service, such as https://optimizer.example.svc:8443. Empty for none.
	URL string
	// Timeout is how long a request may take.
	Timeout time.Duration
	// TokenFile has the bearer token that is sent, if any. It is
	// read for each request. It needs an https URL.
	TokenFile string
	// CAFile has the certificates of the authorities that the service is verified by, instead of those of the
	// system. It is read for each connection, and may be missing until then.
	CAFile string
}

// check returns an error that names the first wrong setting.
func (s *Settings) check() error {
	parsed, err := url.Parse(s.URL)
	switch {
	case err != nil:
		return fmt.Errorf("%s URL does not parse: must be a URL such as https://%s.example.svc:8443", s.Name, s.Name)
	case parsed.Scheme != "http" && parsed.Scheme != "https", parsed.Hostname() == "":
		return fmt.Errorf("%s URL is %q: must be a URL such as https://%s.example.svc:8443", s.Name, parsed.Redacted(), s.Name)
	case parsed.User != nil, parsed.RawQuery != "", parsed.Fragment != "":
		return fmt.Errorf("%s URL is %q: must have no user, query or fragment", s.Name, parsed.Redacted())
	case s.TokenFile != "" && parsed.Scheme != "https":
		return fmt.Errorf("%s URL is %q: must be of scheme https, because a token is sent", s.Name, parsed.Redacted())
	case s.Timeout < time.Millisecond || s.Timeout > time.Minute:
		return fmt.Errorf("%s timeout is %s: must be between 1ms and 1m0s", s.Name, s.Timeout)
	}
	if _, err := s.authorities(); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	return nil
}

// Client asks a service. It may be used by several goroutines.
type Client struct {
	settings Settings
	http     *http.Client
}

// New returns a client that connects to the service only: it uses no proxy and follows no redirect.
func New(settings Settings) (*Client, error) {
	if err := settings.check(); err != nil {
		return nil, err
	}
	dialer := &net.Dialer{Timeout: settings.Timeout}
	return &Client{settings, &http.Client{
		Timeout: settings.Timeout,
		Transport: &http.Transport{
			DialContext: dialer.DialContext, DialTLSContext: settings.dialTLS,
			MaxConnsPerHost: maxConnections, MaxIdleConns: maxConnections, MaxIdleConnsPerHost: maxConnections, IdleConnTimeout: time.Minute,
			ResponseHeaderTimeout: settings.Timeout, MaxResponseHeaderBytes: 64 << 10,
		},
		CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse },
	}}, nil
}

// ErrUnanswered marks the error of a request that the service did not answer.
var ErrUnanswered = errors.New("does not answer")

// Post sends a body to a path, and reads the answer of at most so many bytes.
func (c *Client) Post(ctx context.Context, path string, body, answer any, most int64) error {
	ctx, cancel := context.WithTimeout(ctx, c.settings.Timeout)
	defer cancel()
	sent, err := c.request(ctx, path, body)
	if err != nil {
		return err
	}
	response, err := c.http.Do(sent)
	if err != nil {
		var wrapped *url.Error // it has the URL, which users of jobs need not see
		if errors.As(err, &wrapped) {
			err = wrapped.Err
		}
		return fmt.Errorf("the %s service %w: %w", c.settings.Name, ErrUnanswered, err)
	}
	defer func() { _ = response.Body.Close() }() // nothing is lost: the body is read
	if response.StatusCode != http.StatusOK {
		return fmt.Errorf("the %s service answers with status %d", c.settings.Name, response.StatusCode)
	}
	if kind, _, err := mime.ParseMediaType(response.Header.Get("Content-Type")); err != nil || kind != "application/json" {
		return fmt.Errorf("the %s service answers with another type than application/json", c.settings.Name)
	}
	most = min(most, maxAnswer)
	encoded, err := io.ReadAll(io.LimitReader(response.Body, most+1))
	if err != nil {
		return fmt.Errorf("the %s service %w: read the answer: %w", c.settings.Name, ErrUnanswered, err)
	}
	if int64(len(encoded)) > most {
		return fmt.Errorf("the answer of the %s service is larger than %d bytes", c.settings.Name, most)
	}
	if err := json.Unmarshal(encoded, answer); err != nil {
		return fmt.Errorf("the answer of the %s service does not decode: %w", c.settings.Name, err)
	}
	return nil
}

func (c *Client) request(ctx context.Context, path string, body any) (*http.Request, error) {
	encoded, err := json.Marshal(body)
	if err != nil {
		return nil, fmt.Errorf("encode the request: %w", err)
	}
	if len(encoded) > maxRequest {
		return nil, fmt.Errorf("the request is larger than %d bytes", maxRequest)
	}
	sent, err := http.NewRequestWithContext(ctx, http.MethodPost, strings.TrimRight(c.settings.URL, "/")+path, bytes.NewReader(encoded))
	if err != nil {
		return nil, fmt.Errorf("build the request: %w", err)
	}
	sent.Header.Set("Content-Type", "application/json")
	sent.Header.Set("Accept", "application/json")
	return sent, c.settings.authorize(sent)
}

// authorize adds the token, if there is one.
func (s *Settings) authorize(request *http.Request) error {
	if s.TokenFile == "" {
		return nil
	}
	file, err := os.Open(s.TokenFile)
	if err != nil {
		return fmt.Errorf("read the token: %w", err)
	}
	defer func() { _ = file.Close() }() // it was only read
	token, err := io.ReadAll(io.LimitReader(file, maxToken))
	if err != nil {
		return fmt.Errorf("read the token: %w", err)
	}
	request.Header.Set("Authorization", "Bearer "+strings.TrimSpace(string(token)))
	return nil
}

// dialTLS reads the authorities for each connection: they may be issued later than this program starts, and again.
func (s *Settings) dialTLS(ctx context.Context, network, address string) (net.Conn, error) {
	authorities, err := s.authorities()
	if err != nil {
		return nil, err
	}
	dialer := &tls.Dialer{NetDialer: &net.Dialer{Timeout: s.Timeout}, Config: &tls.Config{MinVersion: tls.VersionTLS12, RootCAs: authorities}}
	return dialer.DialContext(ctx, network, address)
}

// authorities returns those that the service is verified by; nil for those of the system.
func (s *Settings) authorities() (*x509.CertPool, error) {
	if s.CAFile == "" {
		return nil, nil //nolint:nilnil // package tls takes nil for those of the system
	}
	bundle, err := os.ReadFile(s.CAFile)
	if err != nil {
		return nil, fmt.Errorf("read the authorities of the %s: %w", s.Name, err)
	}
	pool := x509.NewCertPool()
	if !pool.AppendCertsFromPEM(bundle) {
		return nil, fmt.Errorf("%s CA file %s has no certificate: must be PEM", s.Name, s.CAFile)
	}
	return pool, nil
}
