// Copyright The DI Orchestrator Authors.
// SPDX-License-Identifier: Apache-2.0

package conversion

import (
	"bytes"
	"encoding/json"
	"net/http"
	"reflect"
	"strings"
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	kjson "sigs.k8s.io/json"

	"opendilab.org/di-orchestrator/apis/v1alpha1"
)

// plainReview is a ConversionReview as encoding/json decodes it.
type plainReview struct {
	Kind       string        `json:"kind"`
	APIVersion string        `json:"apiVersion"`
	Request    *plainRequest `json:"request"`
}

type plainRequest struct {
	UID               *string           `json:"uid"`
	DesiredAPIVersion string            `json:"desiredAPIVersion"`
	Objects           []json.RawMessage `json:"objects"`
}

type plainAnswer struct {
	Kind       string `json:"kind"`
	APIVersion string `json:"apiVersion"`
	Response   struct {
		UID              string            `json:"uid"`
		ConvertedObjects []json.RawMessage `json:"convertedObjects"`
		Result           metav1.Status     `json:"result"`
	} `json:"response"`
}

// FuzzReview compares the endpoint with a library that reads the review and converts its objects
// one by one.
func FuzzReview(f *testing.F) {
	f.Add([]byte(reviewOf(manyJobs(3)...)))
	f.Add([]byte(reviewTo(v1alpha1.GroupVersion.String(), manyJobs(3)...)))
	f.Add([]byte(reviewOf(jobNamed("v1", "bad"), `null`, `[1]`)))
	f.Add([]byte(reviewTo("v3")))
	f.Add([]byte(strings.Replace(reviewOf(), `[]`, `null,"new":{"a":[1e5,"\u00e4"]}`, 1)))
	f.Add([]byte(strings.Replace(reviewOf(), `"uid"`, `"uid":"u-0","uid"`, 1)))
	f.Add([]byte(reviewOf(`{"a":[}`)))
	handler := NewHandler(Options{})
	f.Fuzz(func(t *testing.T, body []byte) {
		recorder := serve(t.Context(), handler, http.MethodPost, bytes.NewReader(body))
		asked, readable := readPlainly(t, body)
		switch {
		case recorder.Code == http.StatusBadRequest && !readable:
		case recorder.Code == http.StatusOK && asked != nil:
			checkAnswer(t, asked, recorder.Body.Bytes())
		default:
			t.Fatalf("status %d: %s", recorder.Code, recorder.Body)
		}
	})
}

// readPlainly returns the request of a review, and nil if there is none. It also returns whether
// the endpoint must answer it: a review with duplicate members may be rejected.
func readPlainly(t *testing.T, body []byte) (*plainRequest, bool) {
	t.Helper()
	var review plainReview
	strict, err := kjson.UnmarshalStrict(body, &review)
	if err != nil || review.Kind != "ConversionReview" || review.APIVersion != "apiextensions.k8s.io/v1" ||
		review.Request == nil || review.Request.UID == nil {
		return nil, false
	}
	for _, complaint := range strict {
		if strings.Contains(complaint.Error(), "duplicate field") {
			return review.Request, false
		}
	}
	return review.Request, true
}

// checkAnswer compares an answer with converting the objects one by one.
func checkAnswer(t *testing.T, asked *plainRequest, raw []byte) {
	t.Helper()
	var answer plainAnswer
	if err := json.Unmarshal(raw, &answer); err != nil {
		t.Fatalf("%v in %s", err, raw)
	}
	if answer.Kind != "ConversionReview" || answer.APIVersion != "apiextensions.k8s.io/v1" || answer.Response.UID != *asked.UID {
		t.Fatalf("answer: %s", raw)
	}
	_, wrong := knownVersion(asked.DesiredAPIVersion)
	failed := wrong != nil
	var want []json.RawMessage
	for _, object := range asked.Objects {
		converted, err := Convert(object, asked.DesiredAPIVersion)
		failed = failed || err != nil
		want = append(want, converted)
	}
	response := answer.Response
	if failed {
		if response.Result.Status != metav1.StatusFailure || response.Result.Message == "" || len(response.ConvertedObjects) != 0 {
			t.Fatalf("answer: %s, want a failure", raw)
		}
		return
	}
	if response.Result.Status != metav1.StatusSuccess || len(response.ConvertedObjects) != len(want) {
		t.Fatalf("answer: %s, want %d objects", raw, len(want))
	}
	for i := range want {
		if !reflect.DeepEqual(decode(t, want[i]), decode(t, response.ConvertedObjects[i])) {
			t.Fatalf("object %d became %s, want %s", i, response.ConvertedObjects[i], want[i])
		}
	}
}

// FuzzValid compares the validation of JSON with that of encoding/json.
func FuzzValid(f *testing.F) {
	for _, seed := range []string{
		`{"a":[1,-0.5e+10,"\u00e4\n",true,false,null,{}],"b":[]}`, `0`, `-`, `01`, `1.`, `1e`, `.5`, `"`, `"\`, `"\x"`, `"\u12g4"`, "\"\x01\"",
		"\"\xff\"", `[1,]`, `{"a":1,}`, `{,}`, `{"a"}`, `{1:2}`, `[1 2]`, `nul`, `truee`, " \t\r\n1 ", `{"a":[}`, `[]]`, ``,
		`"0123456789abcdef\"0123456\\"`, "\"0123456789abcde\x1f\"", `"0123456ä"`,
	} {
		f.Add([]byte(seed))
	}
	f.Fuzz(func(t *testing.T, raw []byte) {
		if got, want := valid(raw), json.Valid(raw); got != want {
			t.Fatalf("valid says %t of %q", got, raw)
		}
	})
}

func TestDepthIsBoundedAsByTheLibrary(t *testing.T) {
	t.Parallel()
	for _, depth := range []int{maxDepth, maxDepth + 1} {
		raw := []byte(strings.Repeat(`[`, depth) + strings.Repeat(`]`, depth))
		if got, want := valid(raw), json.Valid(raw); got != want {
			t.Errorf("%d levels: %t, want %t", depth, got, want)
		}
	}
}
