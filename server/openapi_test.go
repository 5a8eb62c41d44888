// Copyright The DI Orchestrator Authors.
// SPDX-License-Identifier: Apache-2.0

package server_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"regexp"
	"slices"
	"strings"
	"sync"

	"github.com/getkin/kin-openapi/openapi3"
	"github.com/getkin/kin-openapi/openapi3filter"
	"github.com/getkin/kin-openapi/routers"
	"github.com/getkin/kin-openapi/routers/legacy"
	"github.com/gin-gonic/gin"
	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"

	"opendilab.org/di-orchestrator/server"
	"opendilab.org/di-orchestrator/test/testkit/specs"
)

// documentPath is the document of the API that users read.
const documentPath = "../docs/reference/di-server.openapi.yaml"

// readDocument reads the document for requests to any host, because tests listen on free ports.
var readDocument = sync.OnceValues(func() (*openapi3.T, error) {
	document, err := openapi3.NewLoader().LoadFromFile(documentPath)
	if err != nil {
		return nil, err
	}
	document.Servers = nil
	return document, nil
})

// listen serves a handler. At the end of the spec it fails for each answer that the document does not
// allow.
func listen(handler http.Handler) string {
	GinkgoHelper()
	checked := newChecked(handler)
	listening := httptest.NewServer(checked)
	DeferCleanup(func() {
		listening.Close()
		Expect(checked.found).To(BeEmpty(), "%s does not say this", documentPath)
	})
	return listening.URL
}

// checked compares each call of a handler with the document.
type checked struct {
	handler  http.Handler
	document *openapi3.T
	router   routers.Router

	mutex sync.Mutex
	found []string
}

func newChecked(handler http.Handler) *checked {
	GinkgoHelper()
	document := specs.Must(readDocument())
	router := specs.Must(legacy.NewRouter(document))
	return &checked{handler: handler, document: document, router: router}
}

// ServeHTTP implements http.Handler. It does not check a call without an answer.
func (k *checked) ServeHTTP(writer http.ResponseWriter, request *http.Request) {
	var body bytes.Buffer
	asked := request.Clone(context.Background())
	request.Body = &copied{ReadCloser: request.Body, into: &body}
	told := &copiedAnswer{ResponseWriter: writer, status: http.StatusOK}
	k.handler.ServeHTTP(told, request)
	asked.Body = io.NopCloser(&body)
	if err := k.check(asked, told); err != nil {
		k.mutex.Lock()
		defer k.mutex.Unlock()
		k.found = append(k.found, fmt.Sprintf("%s %s answered with %d %s: %v", asked.Method, asked.URL, told.status, told.body.String(), err))
	}
}

// check compares an answer, and the request if it succeeded, with the document. It returns the
// differences.
func (k *checked) check(asked *http.Request, told *copiedAnswer) error {
	route, path, err := k.router.FindRoute(asked)
	if err != nil {
		route, err = k.undocumented(told.status)
	}
	if err != nil {
		return err
	}
	options := &openapi3filter.Options{
		IncludeResponseStatus: true, SkipSettingDefaults: true, AuthenticationFunc: openapi3filter.NoopAuthenticationFunc,
	}
	// The server ignores the type of a body, and deployed clients do not send one.
	asked.Header.Set("Content-Type", "application/json")
	input := &openapi3filter.RequestValidationInput{Request: asked, PathParams: path, Route: route, Options: options}
	answer := &openapi3filter.ResponseValidationInput{
		RequestValidationInput: input, Status: told.status, Header: told.Header(), Options: options,
	}
	answer.SetBodyBytes(told.body.Bytes())
	var granted error
	if told.status == http.StatusOK && !bytes.HasPrefix(told.body.Bytes(), []byte(failed)) {
		granted = openapi3filter.ValidateRequest(asked.Context(), input)
	}
	return errors.Join(granted, openapi3filter.ValidateResponse(asked.Context(), answer))
}

// undocumented returns the route of a path or method that the document does not name. The server answers
// all of them in the same way.
func (k *checked) undocumented(status int) (*routers.Route, error) {
	answers := map[int]string{http.StatusNotFound: "NotFound", http.StatusNotImplemented: "NotImplemented"}
	response, known := k.document.Components.Responses[answers[status]]
	if !known {
		return nil, fmt.Errorf("what the document does not name is answered with %d or %d", http.StatusNotFound, http.StatusNotImplemented)
	}
	operation := &openapi3.Operation{Responses: openapi3.NewResponses(openapi3.WithStatus(status, response))}
	return &routers.Route{Spec: k.document, PathItem: &openapi3.PathItem{}, Operation: operation}, nil
}

// copied copies the bytes that are read from a body.
type copied struct {
	io.ReadCloser
	into io.Writer
}

func (c *copied) Read(into []byte) (int, error) {
	n, err := c.ReadCloser.Read(into)
	_, _ = c.into.Write(into[:n])
	return n, err
}

// copiedAnswer copies an answer.
type copiedAnswer struct {
	http.ResponseWriter
	status int
	body   bytes.Buffer
}

func (c *copiedAnswer) WriteHeader(status int) {
	c.status = status
	c.ResponseWriter.WriteHeader(status)
}

func (c *copiedAnswer) Write(content []byte) (int, error) {
	_, _ = c.body.Write(content)
	return c.ResponseWriter.Write(content)
}

// Unwrap gives http.ResponseController access to the connection.
func (c *copiedAnswer) Unwrap() http.ResponseWriter {
	return c.ResponseWriter
}

var _ = Describe("the OpenAPI document", func() {
	It("is valid, and so are its examples", func(ctx SpecContext) {
		document := specs.Must(readDocument())
		Expect(document.Validate(ctx, openapi3.EnableExamplesValidation())).To(Succeed())
	})

	It("names each route with its methods, and no other", func() {
		served := specs.Must(server.New(server.Options{Client: api.cached, APIReader: api.own, Cache: api.cache, Log: GinkgoLogr}))
		engine, isGin := served.Handler().(*gin.Engine)
		Expect(isGin).To(BeTrue())
		var routes, documented []string
		parameter := regexp.MustCompile(`:(\w+)`)
		for _, route := range engine.Routes() {
			routes = append(routes, route.Method+" "+parameter.ReplaceAllString(route.Path, "{$1}"))
		}
		document := specs.Must(readDocument())
		for path, item := range document.Paths.Map() {
			for method := range item.Operations() {
				documented = append(documented, method+" "+path)
			}
		}
		slices.Sort(documented)
		Expect(documented).To(ConsistOf(routes))
	})

	DescribeTable("finds what it does not say",
		func(ctx SpecContext, method, path, body string, status int, answer, want string) {
			checked := newChecked(http.HandlerFunc(func(writer http.ResponseWriter, request *http.Request) {
				_, _ = io.Copy(io.Discard, request.Body)
				writer.Header().Set("Content-Type", "application/json")
				writer.WriteHeader(status)
				_, _ = io.WriteString(writer, answer)
			}))
			request := httptest.NewRequestWithContext(ctx, method, path, strings.NewReader(body))
			checked.ServeHTTP(httptest.NewRecorder(), request)
			if want == "" {
				Expect(checked.found).To(BeEmpty())
				return
			}
			Expect(checked.found).To(ConsistOf(ContainSubstring(want)))
		},
		Entry("but not what it says", http.MethodGet, "/healthz", "", 200,
			`{"success":true,"code":0,"message":"healthy","data":null}`, ""),
		Entry("a status", http.MethodGet, "/healthz", "", 409,
			`{"success":false,"code":1,"message":"no","data":null}`, "status is not supported"),
		Entry("a field of the envelope", http.MethodGet, "/healthz", "", 200,
			`{"success":true,"code":0,"message":"healthy","data":null,"more":1}`, "more"),
		Entry("a field that is missing", http.MethodGet, "/healthz", "", 200,
			`{"success":true,"code":0,"message":"healthy"}`, "data"),
		Entry("a failure that says that it is none", http.MethodGet, "/v1alpha1/replicas", "", 404,
			`{"success":true,"code":0,"message":"no","data":null}`, "success"),
		Entry("an address that is none", http.MethodGet, "/v2alpha1/job/a.b.0/replicas", "", 200,
			`{"success":true,"code":0,"message":"ok","data":["a:1"]}`, "pattern"),
		Entry("a request that was granted", http.MethodPost, "/v2alpha1/a.b/replicas", `{"replicas":-1}`, 200,
			`{"success":true,"code":0,"message":"ok","data":null}`, "replicas"),
		Entry("an answer to a path that it does not name", http.MethodGet, "/v3/replicas", "", 200,
			`{"success":true,"code":0,"message":"ok","data":null}`, "404 or 501"),
	)
})
