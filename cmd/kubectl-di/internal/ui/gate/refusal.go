// Copyright The DI Orchestrator Authors.
// SPDX-License-Identifier: Apache-2.0

package gate

import (
	"cmp"
	"encoding/json"
	"errors"
	"net/http"
	"regexp"
	"strings"

	apierrors "k8s.io/apimachinery/pkg/api/errors"

	"opendilab.org/di-orchestrator/cmd/kubectl-di/internal/cluster"
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
	case errors.As(err, new(*cluster.RefusedError)):
		return http.StatusUnprocessableEntity, refusalOf(err, "Invalid")
	case cluster.IsTaken(err):
		return http.StatusConflict, api.Error{Message: err.Error(), Reason: "AlreadyExists", Findings: []api.Finding{{Field: "metadata.name", Text: err.Error()}}}
	case errors.As(err, &refused):
		status := refused.Status()
		return int(max(status.Code, http.StatusBadRequest)), refusalOf(err, string(status.Reason))
	}
	return http.StatusBadGateway, api.Error{Message: err.Error(), Reason: "Unavailable"}
}

// refusalOf returns a refusal of the API server, with what would help.
func refusalOf(err error, reason string) api.Error {
	body := api.Error{Message: err.Error(), Reason: reason}
	var denied *cluster.DeniedError
	var missing *cluster.MissingJobError
	var findings *cluster.RefusedError
	switch {
	case errors.As(err, &denied):
		body.Message, body.Right, body.Grant = denied.Unwrap().Error(), denied.Right.String(), denied.Right.Grant()
	case errors.As(err, &missing) && missing.Near != "":
		body.Near = []string{missing.Near}
	case errors.As(err, &findings):
		body.Findings = findingsOf(findings.Lines)
	case errors.As(err, &missing):
		body.Near = missing.Others[:min(len(missing.Others), mostNear)]
	}
	return body
}

// field matches a line of a refusal that begins with a field.
var field = regexp.MustCompile(`^([A-Za-z][\w.\[\]/-]*): (.*)$|^(?:unknown|duplicate) field "([^"]+)"`)

// findingsOf returns the fields that the lines of a refusal are about.
func findingsOf(lines []string) []api.Finding {
	all := make([]api.Finding, 0, len(lines))
	for _, line := range lines {
		finding := api.Finding{Text: strings.TrimSpace(line)}
		if parts := field.FindStringSubmatch(finding.Text); parts != nil {
			finding.Field, finding.Text = cmp.Or(parts[1], parts[3]), cmp.Or(parts[2], finding.Text)
		}
		all = append(all, finding)
	}
	return all
}

// mostNear bounds the jobs that are offered in place of one that does not exist.
const mostNear = 8

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
