// Copyright The DI Orchestrator Authors.
// SPDX-License-Identifier: Apache-2.0

package remote_test

import (
	"bytes"
	"encoding/json"
	"io"
	"net/http"
	"testing"

	"github.com/getkin/kin-openapi/openapi3"
	"github.com/getkin/kin-openapi/openapi3filter"
	"github.com/getkin/kin-openapi/routers"
	"github.com/getkin/kin-openapi/routers/legacy"

	"opendilab.org/di-orchestrator/autoscale/optimizer"
	"opendilab.org/di-orchestrator/autoscale/optimizer/local"
	"opendilab.org/di-orchestrator/autoscale/optimizer/remote"
	"opendilab.org/di-orchestrator/test/testkit/expect"
)

// documentPath is the document of the protocol that authors of services read.
const documentPath = "../../../docs/reference/optimizer.openapi.yaml"

// documented is a service that wraps the local optimizer, and compares each call with the document.
type documented struct {
	t        *testing.T
	router   routers.Router
	service  optimizer.Optimizer
	answered int
}

func newDocumented(t *testing.T) *documented {
	t.Helper()
	document, err := openapi3.NewLoader().LoadFromFile(documentPath)
	expect.NoError(t, err)
	document.Servers = nil
	router, err := legacy.NewRouter(document)
	expect.NoError(t, err)
	return &documented{t: t, router: router, service: local.New(local.Defaults())}
}

func (d *documented) ServeHTTP(writer http.ResponseWriter, request *http.Request) {
	said, err := d.answer(request)
	if err != nil {
		d.t.Errorf("%s %s: %v", request.Method, request.URL, err)
	}
	d.answered++
	says(string(said))(writer, request)
}

func (d *documented) answer(request *http.Request) ([]byte, error) {
	body, err := io.ReadAll(request.Body)
	if err != nil {
		return nil, err
	}
	request.Body = io.NopCloser(bytes.NewReader(body))
	route, parameters, err := d.router.FindRoute(request)
	if err != nil {
		return nil, err
	}
	input := &openapi3filter.RequestValidationInput{
		Request: request, PathParams: parameters, Route: route,
		Options: &openapi3filter.Options{AuthenticationFunc: openapi3filter.NoopAuthenticationFunc},
	}
	if err := openapi3filter.ValidateRequest(request.Context(), input); err != nil {
		return nil, err
	}
	var asked remote.Request
	if err := json.Unmarshal(body, &asked); err != nil {
		return nil, err
	}
	answer, err := asked.Answer(request.Context(), d.service)
	if err != nil {
		return nil, err
	}
	said, err := json.Marshal(answer)
	if err != nil {
		return nil, err
	}
	response := &openapi3filter.ResponseValidationInput{
		RequestValidationInput: input, Status: http.StatusOK, Header: http.Header{"Content-Type": {"application/json"}},
	}
	response.SetBodyBytes(said)
	return said, openapi3filter.ValidateResponse(request.Context(), response)
}

func TestTheDocumentDescribesWhatIsSentAndAnswered(t *testing.T) {
	t.Parallel()
	service := newDocumented(t)
	asks, fallback, _ := serve(t, service.ServeHTTP)
	of := job("a")
	of.Tasks[0].Requests.CPU, of.Tasks[0].Template.CPU, of.Tasks[0].Pods[0].Requests.CPU = 0, 0, 0
	of.History = &optimizer.History{Jobs: 1, Peaks: map[string]optimizer.Resources{"worker": {CPU: 500, Memory: gi}}}
	plan, err := asks.Generate(t.Context(), optimizer.StageCreate, of)
	if err != nil || plan.Empty() {
		t.Errorf("got %+v and %v", plan, err)
	}
	plan, err = asks.RecoverOOM(t.Context(), of.Tasks[0].Pods, of)
	if err != nil || len(plan.Migrate) != 1 || plan.Migrate[0].Requests.Memory != 16*gi {
		t.Errorf("got %+v and %v", plan, err)
	}
	if service.answered != 2 || fallback.calls.Load() != 0 {
		t.Errorf("the service answered %d times, and %d decisions were local, want 2 and 0", service.answered, fallback.calls.Load())
	}
}
