// Copyright The DI Orchestrator Authors.
// SPDX-License-Identifier: Apache-2.0

package webhook

import (
	"crypto/subtle"
	"net/http"
	"sync/atomic"
)

// guard lets only callers pass that know the token of a path. The webhooks answer some questions with their
// own permissions, and every pod can reach their port. The token is published in the webhook configurations
// only, so that only API servers and who may read these configurations know it.
type guard struct {
	// tokens are the current token and the one before it. API servers learn of a new one by their watches.
	tokens atomic.Pointer[[2]string]
}

// accept makes a token the current one.
func (g *guard) accept(token string) {
	known := g.tokens.Load()
	switch {
	case known == nil:
		g.tokens.Store(&[2]string{token, token})
	case known[0] != token:
		g.tokens.Store(&[2]string{token, known[0]})
	}
}

// handle registers a handler at a path that ends with a token. A wrong token is answered as an unknown path.
func (g *guard) handle(mux *http.ServeMux, path string, handler http.Handler) {
	mux.HandleFunc(path+"/{token}", func(w http.ResponseWriter, r *http.Request) {
		if !g.knows(r.PathValue("token")) {
			http.NotFound(w, r)
			return
		}
		handler.ServeHTTP(w, r)
	})
}

// knows reports whether a token is accepted. The time that it takes does not tell how much of a token is right.
func (g *guard) knows(token string) bool {
	known := g.tokens.Load()
	if known == nil {
		return false
	}
	same := 0
	for _, accepted := range known {
		same |= subtle.ConstantTimeCompare([]byte(token), []byte(accepted))
	}
	return same == 1
}
