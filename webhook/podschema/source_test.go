// Copyright The DI Orchestrator Authors.
// SPDX-License-Identifier: Apache-2.0

package podschema_test

import (
	"context"
	"fmt"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"k8s.io/client-go/rest"
	testclock "k8s.io/utils/clock/testing"

	"opendilab.org/di-orchestrator/test/testkit"
	"opendilab.org/di-orchestrator/test/testkit/expect"
	"opendilab.org/di-orchestrator/webhook/podschema"
)

// document is a small document in the API server's own form.
const document = `{"components":{"schemas":{
"io.k8s.api.core.v1.PodTemplateSpec":{"type":"object","properties":{
	"metadata":{"default":{},"allOf":[{"$ref":"#/components/schemas/meta"}]},
	"spec":{"allOf":[{"$ref":"#/components/schemas/spec"}]}}},
"io.k8s.api.core.v1.Volume":{"type":"object","properties":{"name":{"type":"string"}}},
"meta":{"type":"object","properties":{
	"labels":{"type":"object","additionalProperties":{"type":"string"}},
	"fields":{"type":"object"}}},
"spec":{"type":"object","properties":{
	"NEWER":{"type":"object","properties":{"a":{"type":"string"}}},
	"volumes":{"type":"array","items":{"default":{},"allOf":[{"$ref":"#/components/schemas/io.k8s.api.core.v1.Volume"}]}}}}
}}}`

func TestUnknownMembersAreFoundByTheirPaths(t *testing.T) {
	t.Parallel()
	schema, err := podschema.Parse([]byte(document))
	expect.NoError(t, err)
	found := schema.UnknownInTemplate([]byte(`{"kind":"x","metadata":{"labels":{"any":"a"},"fields":{"f:any":{}},"name":"n"},
		"spec":{"NEWER":{"a":"1","b":2},"newer":{},"volumes":[{"name":"v"},{"nam":1,"name":"w"},null]},"none":null}`), "spec.template")
	slices.Sort(found)
	want := []string{"spec.template.kind", "spec.template.metadata.name", "spec.template.none", "spec.template.spec.NEWER.b", "spec.template.spec.newer", "spec.template.spec.volumes[1].nam"}
	if !slices.Equal(found, want) {
		t.Errorf("got %q, want %q", found, want)
	}
	if found := schema.UnknownInVolume([]byte(`{"name":"v","other":[]}`), "v[0]"); !slices.Equal(found, []string{"v[0].other"}) {
		t.Errorf("got %q, want the other member", found)
	}
}

func TestADocumentWithoutPodsIsNoSchema(t *testing.T) {
	t.Parallel()
	for _, bad := range []string{``, `[]`, `{}`, strings.Replace(document, `"meta":{`, `"other":{`, 1), strings.Replace(document, `"labels":{`, `"properties":1,"labels":[],"x":{`, 1)} {
		if _, err := podschema.Parse([]byte(bad)); err == nil {
			t.Errorf("%.40q: no error", bad)
		}
	}
}

// publisher is an API server that publishes schemas.
type publisher struct {
	mu       sync.Mutex
	document string
	hash     int
	asked    []string
}

func (p *publisher) ServeHTTP(w http.ResponseWriter, request *http.Request) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.asked = append(p.asked, request.URL.Path)
	switch {
	case p.document == "":
		w.WriteHeader(http.StatusForbidden)
	case request.URL.Path == "/openapi/v3":
		fmt.Fprintf(w, `{"paths":{"api/v1":{"serverRelativeURL":"/openapi/v3/api/v1?hash=%d"}}}`, p.hash)
	default:
		fmt.Fprint(w, p.document)
	}
}

// publish replaces the published document, and returns the number of previous requests.
func (p *publisher) publish(document string) int {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.document, p.hash = document, p.hash+1
	before := len(p.asked)
	p.asked = nil
	return before
}

func newSource(t *testing.T, published *publisher) (*podschema.Source, *testclock.FakeClock, func() int) {
	t.Helper()
	server := httptest.NewServer(published)
	t.Cleanup(server.Close)
	now := testclock.NewFakeClock(time.Unix(0, 0))
	log, told := testkit.ObserveLog()
	source, err := podschema.NewSource(&rest.Config{Host: server.URL}, now, log)
	expect.NoError(t, err)
	return source, now, told.Len
}

func knows(t *testing.T, source *podschema.Source, member string) bool {
	t.Helper()
	schema := source.Current(t.Context())
	return schema != nil && len(schema.UnknownInTemplate([]byte(`{"spec":{"`+member+`":{}}}`), "t")) == 0
}

func TestTheSchemaIsFetchedAgainOnlyWhenItIsAnother(t *testing.T) {
	t.Parallel()
	published := &publisher{document: document}
	source, now, _ := newSource(t, published)
	for range 3 {
		if !knows(t, source, "NEWER") || knows(t, source, "NEWEST") {
			t.Fatal("the schema is not the published one")
		}
	}
	if asked := published.publish(strings.ReplaceAll(document, "NEWER", "NEWEST")); asked != 2 {
		t.Errorf("%d requests, want one for the index and one for the document", asked)
	}
	now.Step(time.Minute)
	if !knows(t, source, "NEWEST") {
		t.Error("the schema is not the one that is published by now")
	}
	now.Step(time.Minute)
	if !knows(t, source, "NEWEST") {
		t.Error("the schema is lost")
	}
	if asked := published.publish(document); asked != 3 {
		t.Errorf("%d requests, want the index twice and the new document once", asked)
	}
}

func TestASchemaThatCannotBeFetchedIsNoneUntilItIsTriedAgain(t *testing.T) {
	t.Parallel()
	for name, bad := range map[string]string{
		"none":                "",
		"no JSON":             "{",
		"more than is read":   `{"x":"` + strings.Repeat("x", 9<<20) + `",` + document[1:],
		"a schema of nothing": "{}",
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			published := &publisher{document: bad}
			source, now, told := newSource(t, published)
			for range 3 {
				if source.Current(t.Context()) != nil {
					t.Fatal("there is a schema")
				}
			}
			if asked := published.publish(document); asked > 2 {
				t.Errorf("%d requests, want one attempt", asked)
			}
			now.Step(time.Minute)
			if !knows(t, source, "NEWER") {
				t.Error("there is still no schema")
			}
			if lines := told(); lines != 2 {
				t.Errorf("%d lines are logged, want one when it fails and one when it does not", lines)
			}
			published.publish("")
			now.Step(time.Minute)
			if source.Current(t.Context()) != nil {
				t.Error("a schema that may be old is taken for the current one")
			}
		})
	}
}

func TestACallerThatHasGoneDoesNotFailTheFetch(t *testing.T) {
	t.Parallel()
	source, _, _ := newSource(t, &publisher{document: document})
	gone, cancel := context.WithCancel(t.Context())
	cancel()
	source.Current(gone)
	if !knows(t, source, "NEWER") {
		t.Error("there is no schema for the next caller")
	}
}
