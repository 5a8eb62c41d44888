// Copyright The DI Orchestrator Authors.
// SPDX-License-Identifier: Apache-2.0

package gate

import (
	"encoding/json"
	"errors"
	"net/http"

	apierrors "k8s.io/apimachinery/pkg/api/errors"

	"opendilab.org/di-orchestrator/cmd/kubectl-di/internal/ui/api"
)

// refusal is an error with the code of its answer.
type refusal struct {
	code            int
	reason, message string
}

// Refuse returns an error that is answered with a code.
func Refuse(code int, reason, message string) error { return &refusal{code, reason, message} }

// BadRequest returns an error about what the caller sent.
func BadRequest(err error) error { return Refuse(http.StatusBadRequest, "BadRequest", err.Error()) }

// Error implements error.
func (r *refusal) Error() string { return r.message }

// Describe returns the answer about an error. The API server decides about its own refusals.
func Describe(err error) (int, api.Error) {
	var known *refusal
	var refused apierrors.APIStatus
	switch {
	case errors.As(err, &known):
		return known.code, api.Error{Message: known.message, Reason: known.reason}
	case errors.As(err, &refused):
		status := refused.Status()
		return int(max(status.Code, http.StatusBadRequest)), api.Error{Message: err.Error(), Reason: string(status.Reason)}
	}
	return http.StatusBadGateway, api.Error{Message: err.Error(), Reason: "Unavailable"}
}

// Fail answers with an error.
func Fail(w http.ResponseWriter, err error) {
	code, body := Describe(err)
	Reply(w, code, body)
}

// Reply answers with JSON.
func Reply(w http.ResponseWriter, code int, value any) {
	w.Header().Set("Content-Type", "application/json; charset=utf-8")
	w.Header().Set("Cache-Control", "no-store")
	w.WriteHeader(code)
	// The caller may be gone.
	_ = json.NewEncoder(w).Encode(value)
}
