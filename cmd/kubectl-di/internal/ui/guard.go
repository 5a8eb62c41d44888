// Copyright The DI Orchestrator Authors.
// SPDX-License-Identifier: Apache-2.0

package ui

import (
	"crypto/rand"
	"crypto/subtle"
	"fmt"
	"mime"
	"net"
	"net/http"
	"slices"
	"sync"
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
		"manifest-src 'self'; base-uri 'none'; form-action 'none'; frame-ancestors 'none'"
)

// guard admits only the browser that opened the printed URL, and only requests of its own page.
type guard struct {
	// hosts are the values of Host that name this server. Any other is that of a page whose name
	// resolves to this computer.
	hosts  []string
	cookie string
	value  string

	mutex sync.Mutex
	// token opens the page once; empty when it did.
	token string
}

func newGuard(address string) (*guard, error) {
	_, port, err := net.SplitHostPort(address)
	if err != nil {
		return nil, fmt.Errorf("address %q: %w", address, err)
	}
	return &guard{
		hosts: []string{address, net.JoinHostPort("localhost", port)},
		// Cookies are not separate by port.
		cookie: "di-ui-" + port, value: rand.Text(), token: rand.Text(),
	}, nil
}

func (g *guard) url() string { return "http://" + g.hosts[0] + "/?token=" + g.token }

// protect returns a handler that refuses all other requests.
func (g *guard) protect(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		setHeaders(w.Header())
		if err := g.check(r); err != nil {
			fail(w, err)
			return
		}
		if r.Method == http.MethodGet && r.URL.Path == "/" && r.URL.Query().Has("token") {
			g.open(w, r)
			return
		}
		if !g.isKnown(r) {
			fail(w, &statusError{http.StatusUnauthorized, "Unauthorized", "open the URL that kubectl di ui printed"})
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
	header.Set("Referrer-Policy", "no-referrer")
	header.Set("Cross-Origin-Opener-Policy", "same-origin")
	header.Set("Cross-Origin-Resource-Policy", "same-origin")
}

// check refuses requests that other pages cause.
func (g *guard) check(r *http.Request) error {
	refuse := func(message string) error { return &statusError{http.StatusForbidden, "Forbidden", message} }
	if !slices.Contains(g.hosts, r.Host) {
		return refuse("the request names another host: open http://" + g.hosts[0])
	}
	if origin := r.Header.Get("Origin"); origin != "" && origin != "http://"+r.Host {
		return refuse("the request comes from another origin")
	}
	if site := r.Header.Get("Sec-Fetch-Site"); site != "" && site != "same-origin" && site != "none" {
		return refuse("the request comes from another site")
	}
	if len(r.URL.RawQuery) > longestQuery {
		return badRequest(fmt.Errorf("the query has %d bytes: want at most %d", len(r.URL.RawQuery), longestQuery))
	}
	if r.Method == http.MethodGet || r.Method == http.MethodHead {
		return nil
	}
	if r.Header.Get(ownHeader) != "1" {
		return refuse("header " + ownHeader + " is missing: want 1")
	}
	if kind, _, err := mime.ParseMediaType(r.Header.Get("Content-Type")); err != nil || kind != "application/json" {
		return &statusError{http.StatusUnsupportedMediaType, "UnsupportedMediaType", "the body must be application/json"}
	}
	return nil
}

func (g *guard) isKnown(r *http.Request) bool {
	cookie, err := r.Cookie(g.cookie)
	return err == nil && isEqual(cookie.Value, g.value)
}

// open exchanges the token for the cookie, once.
func (g *guard) open(w http.ResponseWriter, r *http.Request) {
	if !g.isKnown(r) && !g.spend(r.URL.Query().Get("token")) {
		fail(w, &statusError{http.StatusUnauthorized, "Unauthorized",
			"this URL is wrong, or was opened before: run kubectl di ui again, and open the URL that it prints"})
		return
	}
	http.SetCookie(w, &http.Cookie{Name: g.cookie, Value: g.value, Path: "/", HttpOnly: true, SameSite: http.SameSiteStrictMode})
	w.Header().Set("Cache-Control", "no-store")
	http.Redirect(w, r, "/", http.StatusSeeOther)
}

// spend reports whether the token is right, and makes it useless if it is.
func (g *guard) spend(token string) bool {
	g.mutex.Lock()
	defer g.mutex.Unlock()
	if g.token == "" || !isEqual(token, g.token) {
		return false
	}
	g.token = ""
	return true
}

func isEqual(a, b string) bool { return subtle.ConstantTimeCompare([]byte(a), []byte(b)) == 1 }
