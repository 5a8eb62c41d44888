// Copyright The DI Orchestrator Authors.
// SPDX-License-Identifier: Apache-2.0

package gate

import (
	"errors"
	"fmt"
	"maps"
	"mime"
	"net"
	"net/http"
	"net/url"
	"slices"
	"strings"
)

const (
	// mostBody bounds the body of a request, in bytes.
	mostBody = 64 << 10
	// longestQuery bounds the query of a request, in bytes.
	longestQuery = 32 << 10
	// ownHeader is a header that no page of another origin can send without the server's consent.
	ownHeader = "X-DI-UI"
	// policy lets the page load only its own files, without inline scripts.
	policy = "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self' data:; font-src 'self'; connect-src 'self'; " +
		"manifest-src 'self'; base-uri 'none'; form-action 'self'; frame-ancestors 'none'"
)

// Guard refuses requests that other pages cause.
type Guard struct {
	// origins are the page's own, by their values of Host. Any other Host is that of a page whose
	// name resolves to this server.
	origins map[string]string
}

// OnLoopback returns the guard of an address of this computer.
func OnLoopback(address string) (*Guard, error) {
	_, port, err := net.SplitHostPort(address)
	if err != nil {
		return nil, fmt.Errorf("address %q: %w", address, err)
	}
	return &Guard{origins: map[string]string{
		address: "http://" + address, net.JoinHostPort("localhost", port): "http://localhost:" + port,
	}}, nil
}

// OfHosts returns the guard of the hosts that browsers know the server by. They use TLS, except that
// a plain server may be reached by a port that is forwarded to it.
func OfHosts(hosts []string, servesTLS bool) (*Guard, error) {
	if len(hosts) == 0 {
		return nil, errors.New("no host is given: want those that browsers know the page by")
	}
	guard := &Guard{origins: map[string]string{}}
	for _, host := range hosts {
		parsed, err := url.Parse("https://" + host)
		if err != nil || host == "" || parsed.Host != host || strings.ToLower(host) != host {
			return nil, fmt.Errorf("host %q: want a name in lower case, with a port if it is not 443, such as jobs.example.com", host)
		}
		guard.origins[host] = "https://" + host
		if !servesTLS && isLoopback(parsed.Hostname()) {
			guard.origins[host] = "http://" + host
		}
	}
	return guard, nil
}

func isLoopback(name string) bool {
	address := net.ParseIP(name)
	return name == "localhost" || address != nil && address.IsLoopback()
}

// isSecure reports whether browsers use TLS for a request.
func (g *Guard) isSecure(r *http.Request) bool { return strings.HasPrefix(g.origins[r.Host], "https:") }

// Protect returns a handler that refuses what other pages cause.
func (g *Guard) Protect(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		setHeaders(w.Header())
		if err := g.check(r); err != nil {
			Fail(w, err)
			return
		}
		r.Body = http.MaxBytesReader(w, r.Body, mostBody)
		next.ServeHTTP(w, r)
	})
}

func setHeaders(header http.Header) {
	header.Set("Content-Security-Policy", policy)
	header.Set("X-Content-Type-Options", "nosniff")
	header.Set("X-Frame-Options", "DENY")
	// Forms of a page without referrers have no origin.
	header.Set("Referrer-Policy", "same-origin")
	header.Set("Cross-Origin-Opener-Policy", "same-origin")
	header.Set("Cross-Origin-Resource-Policy", "same-origin")
}

func forbid(message string) error { return Refuse(http.StatusForbidden, "Forbidden", message) }

// check refuses requests that other pages cause.
func (g *Guard) check(r *http.Request) error {
	own, isKnown := g.origins[r.Host]
	if !isKnown {
		return forbid("the request names another host: open " + slices.Sorted(maps.Values(g.origins))[0])
	}
	if origin := r.Header.Get("Origin"); origin != "" && origin != own {
		return forbid("the request comes from another origin")
	}
	if site := r.Header.Get("Sec-Fetch-Site"); site != "" && site != "same-origin" && site != "none" {
		return forbid("the request comes from another site")
	}
	if len(r.URL.RawQuery) > longestQuery {
		return BadRequest(fmt.Errorf("the query has %d bytes: want at most %d", len(r.URL.RawQuery), longestQuery))
	}
	return nil
}

// checkChange refuses changes that no script of the page sends.
func checkChange(r *http.Request) error {
	if r.Method == http.MethodGet || r.Method == http.MethodHead {
		return nil
	}
	if r.Header.Get(ownHeader) != "1" {
		return forbid("header " + ownHeader + " is missing: want 1")
	}
	if kind, _, err := mime.ParseMediaType(r.Header.Get("Content-Type")); err != nil || kind != "application/json" {
		return Refuse(http.StatusUnsupportedMediaType, "UnsupportedMediaType", "the body must be application/json")
	}
	return nil
}
