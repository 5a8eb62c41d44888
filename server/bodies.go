// Copyright The DI Orchestrator Authors.
// SPDX-License-Identifier: Apache-2.0

package server

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"net/url"
	"os"
	"strings"

	"github.com/gin-gonic/gin"
	"k8s.io/apimachinery/pkg/api/resource"

	"opendilab.org/di-orchestrator/apis/v2alpha1"
	"opendilab.org/di-orchestrator/internal/netlimit"
)

// maxGPUs bounds the GPUs of one replica, as a learner of many is cut into as
// many pods and URLs.
const maxGPUs = 4096

// callerFields name the job that a request of the v1 protocol is about, by the
// pod that asks.
type callerFields struct {
	Namespace   string `json:"namespace"`
	Coordinator string `json:"coordinator"`
}

// replicasBody asks for more replicas, or fewer.
type replicasBody struct {
	callerFields
	Collectors askedReplicas `json:"collectors"`
	Learners   askedReplicas `json:"learners"`
}

// askedReplicas is a number of replicas and the resources of each; what is
// absent keeps the template's. Clients send further keys, which mean nothing.
type askedReplicas struct {
	Replicas int32              `json:"replicas"`
	CPUs     *resource.Quantity `json:"cpus"`
	GPUs     *resource.Quantity `json:"gpus"`
	Memory   *resource.Quantity `json:"memory"`
}

// failedBody reports replicas as failed, by their pods.
type failedBody struct {
	callerFields
	Collectors []string `json:"collectors"`
	Learners   []string `json:"learners"`
}

func (a *askedReplicas) resources() v2alpha1.MemberResources {
	return v2alpha1.MemberResources{CPUs: a.CPUs, GPUs: a.GPUs, Memory: a.Memory}
}

// rawAsked is askedReplicas as it came.
type rawAsked struct {
	Replicas json.RawMessage `json:"replicas"`
	CPUs     json.RawMessage `json:"cpus"`
	GPUs     json.RawMessage `json:"gpus"`
	Memory   json.RawMessage `json:"memory"`
}

// rawBody is a body of the v1 protocol as it came.
type rawBody struct {
	Namespace   json.RawMessage `json:"namespace"`
	Coordinator json.RawMessage `json:"coordinator"`
	Collectors  json.RawMessage `json:"collectors"`
	Learners    json.RawMessage `json:"learners"`
}

func (r *rawBody) caller(fields *fieldReader) callerFields {
	return callerFields{
		Namespace:   fields.required("namespace", r.Namespace),
		Coordinator: fields.required("coordinator", r.Coordinator),
	}
}

// asked reads a number of replicas and their resources under a name.
func (f *fieldReader) asked(name string, value json.RawMessage) askedReplicas {
	var raw rawAsked
	f.object(name, value, &raw)
	asked := askedReplicas{
		Replicas: f.count(name+".replicas", raw.Replicas),
		CPUs:     f.quantity(name+".cpus", raw.CPUs),
		GPUs:     f.quantity(name+".gpus", raw.GPUs),
		Memory:   f.quantity(name+".memory", raw.Memory),
	}
	switch gpus := asked.GPUs; {
	case gpus == nil:
	case gpus.CmpInt64(maxGPUs) > 0:
		f.add(name+".gpus", "%s is more than %d", gpus, maxGPUs)
	case gpus.MilliValue()%1000 != 0:
		f.add(name+".gpus", "%s is no whole number", gpus)
	}
	return asked
}

// readCaller reads a body as far as it says who asks. The rest is not worth to be
// looked at before it is known that its sender may ask.
func readCaller(c *gin.Context) (*rawBody, callerFields, error) {
	var raw rawBody
	if err := readBody(c, &raw); err != nil {
		return nil, callerFields{}, err
	}
	var fields fieldReader
	by := raw.caller(&fields)
	return &raw, by, fields.err()
}

func (r *rawBody) replicas(by callerFields) (*replicasBody, error) {
	var fields fieldReader
	body := &replicasBody{
		callerFields: by,
		Collectors:   fields.asked("collectors", r.Collectors),
		Learners:     fields.asked("learners", r.Learners),
	}
	return body, fields.err()
}

// failed reads a report; a pod may also be named by its URL.
func (r *rawBody) failed(by callerFields) (*failedBody, error) {
	var fields fieldReader
	body := &failedBody{
		callerFields: by,
		Collectors:   fields.pods("collectors", r.Collectors),
		Learners:     fields.pods("learners", r.Learners),
	}
	for _, pods := range [][]string{body.Collectors, body.Learners} {
		for i := range pods {
			pods[i], _, _ = strings.Cut(pods[i], ":")
			pods[i] = strings.TrimSuffix(pods[i], "."+body.Namespace)
		}
	}
	return body, fields.err()
}

// readResize reads how many replicas are asked for. None at all was well with
// earlier releases, and is.
func readResize(c *gin.Context) (int32, error) {
	var raw rawAsked
	if err := readBody(c, &raw); err != nil {
		return 0, err
	}
	var fields fieldReader
	replicas := fields.count("replicas", raw.Replicas)
	if err := fields.err(); err != nil {
		return 0, err
	}
	if isAbsent(raw.Replicas) {
		return 0, failure(KindInvalid, "replicas: is missing, such as 2")
	}
	return replicas, nil
}

// readProfilings reads the object that a job reports, which the design document
// wraps as data and deployed clients send bare.
func readProfilings(c *gin.Context) (json.RawMessage, error) {
	content, err := readAll(c)
	if err != nil {
		return nil, err
	}
	var object map[string]json.RawMessage
	if err := json.Unmarshal(content, &object); err != nil || object == nil {
		return nil, failure(KindInvalid, "the body must be a JSON object, not: %s", shown(bytes.TrimSpace(content))).because(err)
	}
	if data, wrapped := object["data"]; wrapped && len(object) == 1 && bytes.HasPrefix(data, []byte("{")) {
		return data, nil
	}
	return content, nil
}

// readBody reads a body into a struct of raw fields; keys that it does not know
// mean nothing.
func readBody(c *gin.Context, into any) error {
	content, err := readAll(c)
	if err != nil {
		return err
	}
	err = json.Unmarshal(content, into)
	var mistyped *json.UnmarshalTypeError
	switch trimmed := bytes.TrimSpace(content); {
	case errors.As(err, &mistyped), err == nil && trimmed[0] != '{':
		return failure(KindInvalid, "the body must be a JSON object, not: %s", shown(trimmed))
	case err != nil:
		return failure(KindInvalid, "the body is no JSON: %v", err)
	}
	return nil
}

func readAll(c *gin.Context) ([]byte, error) {
	content, err := whole(c.Request)
	var large *http.MaxBytesError
	switch {
	case errors.As(err, &large) && c.Request.ContentLength > large.Limit:
		return nil, failure(KindInvalid, "the body has %d bytes, more than the %d that it may have", c.Request.ContentLength, large.Limit)
	case errors.As(err, &large):
		return nil, failure(KindInvalid, "the body has more than the %d bytes that it may have", large.Limit)
	case errors.Is(err, os.ErrDeadlineExceeded), errors.Is(err, netlimit.ErrShed),
		errors.Is(err, context.Canceled), errors.Is(err, context.DeadlineExceeded):
		// The rest of the body is not worth reading.
		c.Header("Connection", "close")
		return nil, unavailable(fmt.Errorf("reading the body: %w", err))
	case err != nil:
		return nil, failure(KindInvalid, "the body could not be read").because(err)
	case len(bytes.TrimSpace(content)) == 0:
		return nil, failure(KindInvalid, "the body is empty: a JSON object is required")
	}
	return content, nil
}

// filter says which replicas a GET of the v1 protocol asks for.
type filter struct {
	namespace   string
	coordinator string
	aggregator  string
	name        string
}

// readFilter reads the query, whose keys are case-insensitive. Bodies of GETs,
// which deployed clients send, mean nothing.
func readFilter(c *gin.Context) (filter, error) {
	var wanted filter
	fields := map[string]*string{
		"namespace":   &wanted.namespace,
		"coordinator": &wanted.coordinator,
		"aggregator":  &wanted.aggregator,
		"name":        &wanted.name,
	}
	query, err := url.ParseQuery(c.Request.URL.RawQuery)
	if err != nil {
		return filter{}, failure(KindInvalid, "the query %q is malformed", c.Request.URL.RawQuery).because(err)
	}
	for key, values := range query {
		field, known := fields[strings.ToLower(key)]
		if !known {
			return filter{}, failure(KindInvalid, "query parameter %q is not known: use namespace, coordinator, aggregator or name", key)
		}
		for _, value := range values {
			if *field != "" && *field != value {
				return filter{}, failure(KindInvalid, "query parameter %q is given twice: %q and %q", key, *field, value)
			}
			*field = value
		}
	}
	if wanted.namespace == "" && (wanted.coordinator != "" || wanted.aggregator != "" || wanted.name != "") {
		return filter{}, failure(KindInvalid, "query parameter \"namespace\" is required beside coordinator, aggregator and name")
	}
	return wanted, nil
}
