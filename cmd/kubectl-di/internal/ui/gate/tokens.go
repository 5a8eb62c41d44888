// Copyright The DI Orchestrator Authors.
// SPDX-License-Identifier: Apache-2.0

package gate

import (
	"context"
	"crypto/rand"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"net"
	"net/http"
	"regexp"
	"strings"

	"k8s.io/apimachinery/pkg/util/validation"
	"k8s.io/utils/clock"
)

const (
	loginPath  = "/login"
	logoutPath = "/logout"
	// healthPath is that of the kubelet's probes, which name the pod as their host.
	healthPath = "/healthz"
	// longestToken bounds a token, in bytes.
	longestToken = 16 << 10
)

// tokenForm is the form of tokens that RFC 6750 allows.
var tokenForm = regexp.MustCompile(`^[A-Za-z0-9._~+/-]+=*$`)

// Tokens admits callers with a token for the API server: from an authenticating proxy in the
// Authorization header of each request, or from the form at /login.
type Tokens struct {
	guard *Guard
	table *table
}

// NewTokens returns the gate of a server in a cluster.
func NewTokens(guard *Guard, open Open, bounds Bounds, clk clock.WithTicker) *Tokens {
	return &Tokens{guard: guard, table: newTable(open, bounds, clk)}
}

// Run ends all callers when the context ends, and returns when they have ended.
func (t *Tokens) Run(ctx context.Context) { t.table.run(ctx) }

// Handler returns the handler of all paths.
func (t *Tokens) Handler() http.Handler {
	forms := http.NewServeMux()
	forms.HandleFunc("GET "+loginPath, func(w http.ResponseWriter, r *http.Request) { show(w, r, http.StatusOK, true, "") })
	forms.HandleFunc("GET "+stylePath, showStyle)
	forms.HandleFunc("POST "+loginPath, t.login)
	forms.HandleFunc("POST "+logoutPath, t.logout)
	forms.HandleFunc("/", t.serve)
	guarded := t.guard.Protect(forms)
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.URL.Path == healthPath {
			w.WriteHeader(http.StatusNoContent)
			return
		}
		guarded.ServeHTTP(w, r)
	})
}

// serve answers a request of a caller.
func (t *Tokens) serve(w http.ResponseWriter, r *http.Request) {
	if err := checkChange(r); err != nil {
		Fail(w, err)
		return
	}
	err := errNoCaller
	if token, isGiven := bearer(r); isGiven {
		err = t.serveBearer(token, w, r)
	} else if cookie, missing := r.Cookie(t.cookie(r)); missing == nil {
		err = t.table.serve(byCookie(cookie.Value), w, r)
	}
	switch {
	case err == nil:
	case isPage(r) && errors.Is(err, errNoCaller):
		http.Redirect(w, r, loginPath, http.StatusSeeOther)
	case isPage(r):
		showRefusal(w, r, err)
	case errors.Is(err, errNoCaller):
		Fail(w, Refuse(http.StatusUnauthorized, "Unauthorized", "sign in at "+loginPath))
	default:
		Fail(w, err)
	}
}

// addressOf returns the address of a request's connection, without its port.
func addressOf(r *http.Request) string {
	host, _, err := net.SplitHostPort(r.RemoteAddr)
	if err != nil {
		return r.RemoteAddr
	}
	return host
}

func isPage(r *http.Request) bool {
	return !strings.HasPrefix(r.URL.Path, "/api/") && (r.Method == http.MethodGet || r.Method == http.MethodHead)
}

// serveBearer serves the owner of a header's token, who needs no cookie.
func (t *Tokens) serveBearer(token string, w http.ResponseWriter, r *http.Request) error {
	login := Login{Token: token, Address: addressOf(r)}
	if cookie, err := r.Cookie(t.namespaceCookie(r)); err == nil {
		login.Namespace = cookie.Value
	}
	name := byToken(&login)
	err := t.table.serve(name, w, r)
	if !errors.Is(err, errNoCaller) {
		return err
	}
	if err := t.begin(name, login); err != nil {
		return err
	}
	return t.table.serve(name, w, r)
}

// begin checks a login, and begins to serve its caller.
func (t *Tokens) begin(name string, login Login) error {
	switch {
	case login.Token == "" || len(login.Token) > longestToken || !tokenForm.MatchString(login.Token):
		return Refuse(http.StatusUnauthorized, "Unauthorized", "token: want a bearer token of the API server")
	case login.Namespace != "" && len(validation.IsDNS1123Label(login.Namespace)) > 0:
		return Refuse(http.StatusBadRequest, "BadRequest", "namespace: want the name of a namespace, or nothing for all")
	}
	return t.table.begin(name, login)
}

// bearer returns the token of a request's header.
func bearer(r *http.Request) (string, bool) {
	kind, token, _ := strings.Cut(r.Header.Get("Authorization"), " ")
	return strings.TrimSpace(token), strings.EqualFold(kind, "Bearer")
}

// The names of sessions do not overlap, and have no token.
func byCookie(value string) string { return "cookie " + value }

func byToken(login *Login) string {
	sum := sha256.Sum256([]byte(login.Token + "\n" + login.Namespace))
	return "token " + hex.EncodeToString(sum[:])
}

// cookie returns the name of the cookie of a session. Browsers keep the prefix for cookies of TLS.
func (t *Tokens) cookie(r *http.Request) string {
	if t.guard.isSecure(r) {
		return "__Host-di-ui"
	}
	return "di-ui"
}

func (t *Tokens) namespaceCookie(r *http.Request) string { return t.cookie(r) + "-namespace" }

// login reads the form. The namespace of a caller whom a proxy authenticates is kept by a cookie.
func (t *Tokens) login(w http.ResponseWriter, r *http.Request) {
	if err := checkForm(r); err != nil {
		Fail(w, err)
		return
	}
	login := Login{Address: addressOf(r), Namespace: strings.TrimSpace(r.PostFormValue("namespace"))}
	var isGiven bool
	login.Token, isGiven = bearer(r)
	cookie, value, name := t.namespaceCookie(r), login.Namespace, byToken(&login)
	if !isGiven {
		login.Token, login.ByForm = strings.TrimSpace(r.PostFormValue("token")), true
		cookie, value = t.cookie(r), rand.Text()
		name = byCookie(value)
	}
	if err := t.begin(name, login); err != nil {
		showRefusal(w, r, err)
		return
	}
	t.setCookie(w, r, cookie, value, 0)
	http.Redirect(w, r, "/", http.StatusSeeOther)
}

// logout ends the session of a cookie.
func (t *Tokens) logout(w http.ResponseWriter, r *http.Request) {
	if err := checkForm(r); err != nil {
		Fail(w, err)
		return
	}
	if cookie, err := r.Cookie(t.cookie(r)); err == nil {
		t.table.end(byCookie(cookie.Value))
	}
	t.setCookie(w, r, t.cookie(r), "", -1)
	t.setCookie(w, r, t.namespaceCookie(r), "", -1)
	http.Redirect(w, r, loginPath, http.StatusSeeOther)
}

func (t *Tokens) setCookie(w http.ResponseWriter, r *http.Request, name, value string, age int) {
	http.SetCookie(w, &http.Cookie{
		Name: name, Value: value, MaxAge: age, Path: "/", HttpOnly: true, Secure: t.guard.isSecure(r), SameSite: http.SameSiteStrictMode,
	})
}

// checkForm refuses a form of another page. Browsers send the origin of each form.
func checkForm(r *http.Request) error {
	if r.Header.Get("Origin") == "" {
		return forbid("header Origin is missing: use the form at " + loginPath)
	}
	if err := r.ParseForm(); err != nil {
		return BadRequest(err)
	}
	return nil
}

// showRefusal shows the form again, with an error.
func showRefusal(w http.ResponseWriter, r *http.Request, err error) {
	code, body := Describe(err)
	show(w, r, code, true, body.Message)
}
