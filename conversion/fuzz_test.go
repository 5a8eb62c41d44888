// Copyright The DI Orchestrator Authors.
// SPDX-License-Identifier: Apache-2.0

package conversion

import (
	"bytes"
	"encoding/json"
	"net/http"
	"reflect"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	kjson "sigs.k8s.io/json"

	"opendilab.org/di-orchestrator/apis/v1alpha1"
	"opendilab.org/di-orchestrator/apis/v2alpha1"
)

func FuzzFromV1(f *testing.F) {
	for _, tc := range pairs() {
		f.Add(fromYAML(f, headV1+tc.v1))
	}
	f.Fuzz(func(t *testing.T, raw []byte) {
		neverFails(t, raw, v1alpha1.GroupVersion.String(), v2alpha1.GroupVersion.String())
		job := &v1alpha1.DIJob{}
		if kjson.UnmarshalCaseSensitivePreserveInts(raw, job) != nil {
			return
		}
		job.APIVersion, job.Kind = v1alpha1.GroupVersion.String(), "DIJob"
		job.Spec.Extended, job.Status.Extended = nil, nil
		if canonical, ok := CanonicalCleanPodPolicy(string(job.Spec.CleanPodPolicy)); ok {
			job.Spec.CleanPodPolicy = v1alpha1.CleanPodPolicy(canonical)
		}
		comesBack(t, job, v2alpha1.GroupVersion.String(), v1alpha1.GroupVersion.String())
	})
}

func FuzzFromV2(f *testing.F) {
	for _, tc := range pairs() {
		f.Add(fromYAML(f, headV2+tc.v2))
	}
	f.Fuzz(func(t *testing.T, raw []byte) {
		neverFails(t, raw, v2alpha1.GroupVersion.String(), v1alpha1.GroupVersion.String())
		job := &v2alpha1.DIJob{}
		if kjson.UnmarshalCaseSensitivePreserveInts(raw, job) != nil {
			return
		}
		job.APIVersion, job.Kind = v2alpha1.GroupVersion.String(), "DIJob"
		if canonical, ok := CanonicalCleanPodPolicy(string(job.Spec.CleanPodPolicy)); ok {
			job.Spec.CleanPodPolicy = canonical
		}
		comesBack(t, job, v1alpha1.GroupVersion.String(), v2alpha1.GroupVersion.String())
	})
}

// FuzzExtended writes arbitrary values into extended of a v1alpha1 job. The result must fit the
// type of v2alpha1, and a round trip through v1alpha1 must restore it.
func FuzzExtended(f *testing.F) {
	for _, tc := range pairs() {
		job := decode(f, fromYAML(f, headV1+tc.v1))
		spec, status := members(job["spec"]), members(job["status"])
		f.Add(encode(f, spec[fieldExtended]), encode(f, status[fieldExtended]))
	}
	f.Fuzz(func(t *testing.T, spec, status []byte) {
		if !json.Valid(spec) || !json.Valid(status) {
			return
		}
		raw := object{
			{"apiVersion", quote(v1alpha1.GroupVersion.String())}, {"kind", quote("DIJob")},
			{"spec", object{{"coordinator", []byte(`{"template":{"a":1}}`)}, {fieldExtended, spec}}.bytes()},
			{"status", object{{fieldPhase, quote("Created")}, {fieldExtended, status}}.bytes()},
		}.bytes()
		converted, err := Convert(raw, v2alpha1.GroupVersion.String())
		if err != nil {
			t.Fatalf("%s: %v", raw, err)
		}
		job := &v2alpha1.DIJob{}
		if err := kjson.UnmarshalCaseSensitivePreserveInts(converted, job); err != nil {
			t.Fatalf("%s became %s, which no typed client reads: %v", raw, converted, err)
		}
		comesBack(t, job, v1alpha1.GroupVersion.String(), v2alpha1.GroupVersion.String())
		if _, err := Lost(raw); err != nil {
			t.Fatalf("%s: %v", raw, err)
		}
	})
}

// comesBack makes a round trip with the object that a typed client writes. It skips objects that
// cannot be encoded, such as those with times beyond the year 9999.
func comesBack(t *testing.T, job any, other, own string) {
	t.Helper()
	raw, err := json.Marshal(job)
	if err != nil {
		return
	}
	roundTrip(t, decode(t, raw), other, own)
}

// neverFails converts a job of the version with arbitrary content.
func neverFails(t *testing.T, raw []byte, from, to string) {
	t.Helper()
	var content map[string]any
	if json.Unmarshal(raw, &content) != nil || content == nil {
		if _, err := Convert(raw, to); err == nil {
			t.Fatalf("%s converts, which is no object", raw)
		}
		return
	}
	content["apiVersion"], content["kind"] = from, "DIJob"
	converted, err := Convert(encode(t, content), to)
	if err != nil || !json.Valid(converted) {
		t.Fatalf("%s to %s: %s, %v", raw, to, converted, err)
	}
	back, err := Convert(converted, from)
	if err != nil || !json.Valid(back) {
		t.Fatalf("%s back to %s: %s, %v", converted, from, back, err)
	}
}

func FuzzObjects(f *testing.F) {
	for _, seed := range []string{
		`{"a":[1,{"b":"}"}],"\u0061":null, "c" : "\\\"" , "a":-1.5e7}`,
		"{\"\xff\":1,\"é\":2}",
		// Invalid JSON: parsing only has to terminate.
		`{`, `{]`, `{"a"`, `{"a":1,`, `{"\`, `[1,`, `{"a":}`, `{"`, `{1`,
	} {
		f.Add([]byte(seed))
	}
	f.Fuzz(func(t *testing.T, raw []byte) {
		// Clipped, so that reading beyond the end fails.
		parsed, ok := parseObject(slices.Clip(raw))
		var want map[string]json.RawMessage
		if !json.Valid(raw) {
			return
		}
		if json.Unmarshal(raw, &want) != nil || want == nil {
			if ok {
				t.Fatalf("%s is taken for an object", raw)
			}
			return
		}
		got := map[string]json.RawMessage{}
		for _, m := range parsed {
			got[m.key] = m.value
		}
		if !reflect.DeepEqual(want, got) || len(parsed) != len(want) {
			t.Fatalf("%s: (-want +got):\n%s", raw, cmp.Diff(want, got))
		}
	})
}

// FuzzConvertReview sends arbitrary bodies to the endpoint. The answer must be a review with the
// same UID or an error, and its size must be bounded.
func FuzzConvertReview(f *testing.F) {
	for _, tc := range pairs() {
		f.Add([]byte(reviewTo(v2alpha1.GroupVersion.String(), string(fromYAML(f, headV1+tc.v1)))))
		f.Add([]byte(reviewTo(v1alpha1.GroupVersion.String(), string(fromYAML(f, headV2+tc.v2)), `{"kind":"DIJob"}`)))
	}
	for _, review := range []string{`{}`, `{"request":{"objects":[`, reviewOf(`{]`), reviewOf(`[`, `]`), reviewTo("other", manyJobs(3)...), reviewOf(`1,{},"a`)} {
		f.Add([]byte(review))
	}
	handler := NewHandler(Options{})
	f.Fuzz(func(t *testing.T, review []byte) {
		recorder := serve(t.Context(), handler, http.MethodPost, bytes.NewReader(review))
		// Missing fields are added to each object, and ten reasons are given at most.
		if most := 100*len(review) + 2*maxNamed*6*maxReasonBytes; recorder.Body.Len() > most {
			t.Fatalf("%q is answered with %d bytes", review, recorder.Body.Len())
		}
		if recorder.Code != http.StatusOK {
			if recorder.Code != http.StatusBadRequest && recorder.Code != http.StatusRequestEntityTooLarge {
				t.Fatalf("%q is answered %d: %s", review, recorder.Code, recorder.Body)
			}
			return
		}
		var asked, answer apiextensionsv1.ConversionReview
		if err := json.Unmarshal(recorder.Body.Bytes(), &answer); err != nil || answer.Response == nil || answer.Kind != "ConversionReview" {
			t.Fatalf("%q is answered %q: %v", review, recorder.Body, err)
		}
		if strings.Contains(answer.Response.Result.Message, "panic while converting") {
			t.Fatalf("%q: %s", review, answer.Response.Result.Message)
		}
		if answer.Response.Result.Status == "Success" && kjson.UnmarshalCaseSensitivePreserveInts(review, &asked) == nil && asked.Request != nil &&
			(answer.Response.UID != asked.Request.UID || len(answer.Response.ConvertedObjects) != len(asked.Request.Objects)) {
			t.Fatalf("%q is answered with %d objects to %q", review, len(answer.Response.ConvertedObjects), answer.Response.UID)
		}
	})
}
