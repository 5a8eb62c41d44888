// Copyright The DI Orchestrator Authors.
// SPDX-License-Identifier: Apache-2.0

package gate

import (
	"crypto/rand"
	"crypto/subtle"
	"fmt"
	"net"
	"net/http"
	"sync"
)

// Once admits only the browser that opened a URL, which works once.
type Once struct {
	guard   *Guard
	address string
	cookie  string
	value   string

	mutex sync.Mutex
	// token opens the page once; empty when it did.
	token string
}

// NewOnce returns the gate of an address of this computer.
func NewOnce(address string) (*Once, error) {
	guard, err := OnLoopback(address)
	if err != nil {
		return nil, err
	}
	_, port, err := net.SplitHostPort(address)
	if err != nil {
		return nil, fmt.Errorf("address %q: %w", address, err)
	}
	// Cookies are not separate by port.
	return &Once{guard: guard, address: address, cookie: "di-ui-" + port, value: rand.Text(), token: rand.Text()}, nil
}

// URL returns the URL that opens the page once.
func (o *Once) URL() string { return "http://" + o.address + "/?token=" + o.token }

// Protect returns a handler that refuses all other requests.
func (o *Once) Protect(next http.Handler) http.Handler {
	return o.guard.Protect(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if err := checkChange(r); err != nil {
			Fail(w, err)
			return
		}
		if r.Method == http.MethodGet && r.URL.Path == "/" && r.URL.Query().Has("token") {
			o.open(w, r)
			return
		}
		switch {
		case r.URL.Path == stylePath:
			showStyle(w, r)
			return
		case !o.isKnown(r) && isPage(r):
			show(w, r, http.StatusUnauthorized, false, "")
			return
		case !o.isKnown(r):
			Fail(w, Refuse(http.StatusUnauthorized, "Unauthorized", "open the URL that kubectl di ui printed"))
			return
		}
		next.ServeHTTP(w, r)
	}))
}

func (o *Once) isKnown(r *http.Request) bool {
	cookie, err := r.Cookie(o.cookie)
	return err == nil && isEqual(cookie.Value, o.value)
}

// open exchanges the token for the cookie, once.
func (o *Once) open(w http.ResponseWriter, r *http.Request) {
	if !o.isKnown(r) && !o.spend(r.URL.Query().Get("token")) {
		show(w, r, http.StatusUnauthorized, false, "This URL is wrong, or was opened before.")
		return
	}
	http.SetCookie(w, &http.Cookie{Name: o.cookie, Value: o.value, Path: "/", HttpOnly: true, SameSite: http.SameSiteStrictMode})
	w.Header().Set("Cache-Control", "no-store")
	http.Redirect(w, r, "/", http.StatusSeeOther)
}

// spend reports whether the token is right, and makes it useless if it is.
func (o *Once) spend(token string) bool {
	o.mutex.Lock()
	defer o.mutex.Unlock()
	if o.token == "" || !isEqual(token, o.token) {
		return false
	}
	o.token = ""
	return true
}

func isEqual(a, b string) bool { return subtle.ConstantTimeCompare([]byte(a), []byte(b)) == 1 }
