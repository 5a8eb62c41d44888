// Copyright The DI Orchestrator Authors.
// SPDX-License-Identifier: Apache-2.0

package conversion

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"strconv"

	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
)

// MaxReviewBytes is the size up to which a review is read. The API server puts
// a whole list into one review: 10,000 jobs of 10 kB, the largest list that its
// service level for conversions names, are 100 MB. Twice that is room enough,
// and a bound that keeps one request from taking all memory.
const MaxReviewBytes = 256 << 20

// Handler serves ConversionReviews of apiextensions.k8s.io/v1.
type Handler struct {
	// maxBytes is the size up to which a review is read.
	maxBytes int64
}

// NewHandler returns the conversion endpoint.
func NewHandler() *Handler {
	return &Handler{maxBytes: MaxReviewBytes}
}

// ServeHTTP answers a review: all its objects in the wanted version, in their
// order, or a failure that names the object which did not convert. What is no
// review is answered 400, a review that is too big 413.
func (h *Handler) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	if r.Method != http.MethodPost {
		w.Header().Set("Allow", http.MethodPost)
		http.Error(w, "a ConversionReview is sent by POST", http.StatusMethodNotAllowed)
		return
	}
	body, err := readBody(http.MaxBytesReader(w, r.Body, h.maxBytes), r.ContentLength, h.maxBytes)
	if err != nil {
		status := http.StatusBadRequest
		if tooLarge := new(http.MaxBytesError); errors.As(err, &tooLarge) {
			status = http.StatusRequestEntityTooLarge
		}
		http.Error(w, fmt.Sprintf("reading the ConversionReview: %v", err), status)
		return
	}
	review, err := parseReview(body)
	if err != nil {
		http.Error(w, fmt.Sprintf("reading the ConversionReview: %v", err), http.StatusBadRequest)
		return
	}
	answer := review.answer().bytes()
	w.Header().Set("Content-Type", "application/json")
	w.Header().Set("Content-Length", strconv.Itoa(len(answer)))
	// A client that has gone away is no longer interested in the answer.
	_, _ = w.Write(answer)
}

// readBody reads a body into a buffer of its announced length, which spares
// growing it.
func readBody(body io.Reader, length, limit int64) ([]byte, error) {
	if length < 0 || length > limit {
		return io.ReadAll(body)
	}
	buffer := make([]byte, length)
	_, err := io.ReadFull(body, buffer)
	return buffer, err
}

// review is what was asked for.
type review struct {
	uid            []byte
	desiredVersion string
	objects        [][]byte
}

// parseReview reads a ConversionReview. It checks once that the body is valid
// JSON; then the objects in it are too.
func parseReview(body []byte) (*review, error) {
	if !json.Valid(body) {
		return nil, errors.New("the body is not valid JSON")
	}
	top, ok := parseObject(body)
	if !ok || top.text("kind") != "ConversionReview" || top.text("apiVersion") != apiextensionsv1.SchemeGroupVersion.String() {
		return nil, fmt.Errorf("the body is not a ConversionReview of %s", apiextensionsv1.SchemeGroupVersion)
	}
	raw, _ := top.get("request")
	request, ok := parseObject(raw)
	if !ok {
		return nil, errors.New("request: required")
	}
	uid, ok := request.get("uid")
	if !ok {
		return nil, errors.New("request.uid: required")
	}
	listed, _ := request.get("objects")
	objects, _ := parseArray(listed)
	return &review{uid: uid, desiredVersion: request.text("desiredAPIVersion"), objects: objects}, nil
}

// answer converts the objects and returns the answering ConversionReview.
func (r *review) answer() object {
	converted := make([][]byte, len(r.objects))
	response := object{{"uid", r.uid}}
	for i, raw := range r.objects {
		var err error
		if converted[i], err = convertContained(raw, r.desiredVersion); err != nil {
			message := fmt.Sprintf("request.objects[%d]%s: %v", i, describe(raw), err)
			return envelope(append(response,
				member{"convertedObjects", []byte("[]")},
				member{"result", object{{"status", quote("Failure")}, {"message", quote(message)}}.bytes()},
			))
		}
	}
	return envelope(append(response,
		member{"convertedObjects", joinArray(converted)},
		member{"result", []byte(`{"status":"Success"}`)},
	))
}

func envelope(response object) object {
	return object{
		{"kind", quote("ConversionReview")},
		{"apiVersion", quote(apiextensionsv1.SchemeGroupVersion.String())},
		{"response", response.bytes()},
	}
}

// convertContained turns a panic into an error: a fault in the mapping must
// cost one answer, not the process that answers for all objects.
func convertContained(raw []byte, apiVersion string) (converted []byte, err error) {
	defer func() {
		if cause := recover(); cause != nil {
			err = fmt.Errorf("panic while converting: %v", cause)
		}
	}()
	return convertValid(raw, apiVersion)
}

// describe returns kind, namespace and name of an object for an error.
func describe(raw []byte) string {
	parsed, ok := parseObject(raw)
	if !ok {
		return ""
	}
	metadata, _ := parsed.get("metadata")
	names, _ := parseObject(metadata)
	return fmt.Sprintf(" (%s %s/%s)", parsed.text("kind"), names.text("namespace"), names.text("name"))
}
