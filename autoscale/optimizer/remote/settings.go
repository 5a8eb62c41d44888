// Copyright The DI Orchestrator Authors.
// SPDX-License-Identifier: Apache-2.0

package remote

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"io/fs"
	"net"
	"net/http"
	"net/url"
	"os"
	"time"
)

// Path is the path of the operation below the URL of the service.
const Path = "/v1/optimize"

// Settings are those of the installation. A user cannot set them, so no job decides where the operator connects to.
type Settings struct {
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

// DefaultTimeout is the default of [Settings.Timeout].
const DefaultTimeout = 5 * time.Second

// The bounds of all that is sent, received and tried.
const (
	// maxAnswer is the maximum size of an answer, in bytes.
	maxAnswer = 1 << 20
	// maxRequest is the maximum size of a request, in bytes.
	maxRequest = 8 << 20
	// maxSamples is how many of the last samples are sent, and maxUsages bounds the replicas in them.
	maxSamples, maxUsages = 60, 40_000
	// maxConcurrent is how many requests are in flight at most.
	maxConcurrent = 8
	// maxToken is the maximum size of a token, in bytes.
	maxToken = 64 << 10
	// maxUnanswered is after how many requests in a row without an answer no job asks for a while.
	maxUnanswered = 3
	// minBackoff and maxBackoff are the delays after the first and after many failures.
	minBackoff, maxBackoff = 30 * time.Second, 10 * time.Minute
	// planInterval is the minimum time between two plans of a job that the service makes.
	planInterval = 5 * time.Minute
	// maxJobs is how many jobs' failures are remembered.
	maxJobs = 10_000
)

// Check returns an error that names the first wrong setting.
func (s *Settings) Check() error {
	parsed, err := url.Parse(s.URL)
	switch {
	case err != nil:
		return errors.New("optimizer URL does not parse: must be a URL such as https://optimizer.example.svc:8443")
	case parsed.Scheme != "http" && parsed.Scheme != "https", parsed.Hostname() == "":
		return fmt.Errorf("optimizer URL is %q: must be a URL such as https://optimizer.example.svc:8443", parsed.Redacted())
	case parsed.User != nil, parsed.RawQuery != "", parsed.Fragment != "":
		return fmt.Errorf("optimizer URL is %q: must have no user, query or fragment", parsed.Redacted())
	case s.TokenFile != "" && parsed.Scheme != "https":
		return fmt.Errorf("optimizer URL is %q: must be of scheme https, because a token is sent", parsed.Redacted())
	case s.Timeout < time.Millisecond || s.Timeout > time.Minute:
		return fmt.Errorf("optimizer timeout is %s: must be between 1ms and 1m0s", s.Timeout)
	}
	return nil
}

// client returns an HTTP client that connects to the service only: it uses no proxy and follows no redirect.
func (s *Settings) client() (*http.Client, error) {
	if _, err := s.authorities(); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return nil, err
	}
	dialer := &net.Dialer{Timeout: s.Timeout}
	return &http.Client{
		Timeout: s.Timeout,
		Transport: &http.Transport{
			DialContext: dialer.DialContext, DialTLSContext: s.dialTLS,
			MaxConnsPerHost: maxConcurrent, MaxIdleConns: maxConcurrent, MaxIdleConnsPerHost: maxConcurrent, IdleConnTimeout: time.Minute,
			ResponseHeaderTimeout: s.Timeout, MaxResponseHeaderBytes: 64 << 10,
		},
		CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse },
	}, nil
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
		return nil, fmt.Errorf("read the authorities of the optimizer: %w", err)
	}
	pool := x509.NewCertPool()
	if !pool.AppendCertsFromPEM(bundle) {
		return nil, fmt.Errorf("optimizer CA file %s has no certificate: must be PEM", s.CAFile)
	}
	return pool, nil
}
