// Copyright The DI Orchestrator Authors.
// SPDX-License-Identifier: Apache-2.0

package wire

import (
	"bytes"
	"encoding/json"
	"errors"
	"strings"

	"k8s.io/apimachinery/pkg/api/resource"
	"k8s.io/apimachinery/pkg/types"

	"opendilab.org/di-orchestrator/apis/v2alpha1"
	"opendilab.org/di-orchestrator/server/failure"
)

// MaxGPUs bounds the GPUs of one replica, because a learner of several GPUs is split into pods and has one
// URL per GPU.
const MaxGPUs = 4096

// Caller names the pod that a request of the v1 protocol acts for.
type Caller struct {
	// Namespace is the namespace of the pod.
	Namespace string `json:"namespace"`
	// Coordinator is the name of the pod.
	Coordinator string `json:"coordinator"`
}

// Key returns the namespace and name of the pod.
func (c Caller) Key() types.NamespacedName {
	return types.NamespacedName{Namespace: c.Namespace, Name: c.Coordinator}
}

// Resize requests that replicas be added or removed. Its JSON identifies the request, so neither the names
// nor the order of its fields may change.
type Resize struct {
	Caller
	// Collectors are the collectors to add or remove.
	Collectors Demand `json:"collectors"`
	// Learners are the learners to add or remove.
	Learners Demand `json:"learners"`
}

// Demand is a number of replicas and the resources of each. Absent resources default to those of the
// template. Unknown keys are ignored.
type Demand struct {
	// Replicas is the requested number of replicas.
	Replicas int32 `json:"replicas"`
	// CPUs, GPUs and Memory are the resources of each replica.
	CPUs   *resource.Quantity `json:"cpus"`
	GPUs   *resource.Quantity `json:"gpus"`
	Memory *resource.Quantity `json:"memory"`
}

// Resources returns the resources of each replica.
func (d *Demand) Resources() v2alpha1.MemberResources {
	return v2alpha1.MemberResources{CPUs: d.CPUs, GPUs: d.GPUs, Memory: d.Memory}
}

// Failed is a failure report that names the failed pods. As in Resize, its JSON identifies the request.
type Failed struct {
	Caller
	// Collectors and Learners are the names of the pods.
	Collectors []string `json:"collectors"`
	Learners   []string `json:"learners"`
}

// Pods returns the names of all reported pods.
func (f *Failed) Pods() []string {
	return append(append([]string{}, f.Collectors...), f.Learners...)
}

// rawDemand is a Demand before validation.
type rawDemand struct {
	Replicas json.RawMessage `json:"replicas"`
	CPUs     json.RawMessage `json:"cpus"`
	GPUs     json.RawMessage `json:"gpus"`
	Memory   json.RawMessage `json:"memory"`
}

// Body is a body of the v1 protocol with a parsed caller. The rest is parsed after the sender is
// authorized to act for the caller.
type Body struct {
	// Caller is the pod that the request acts for.
	Caller                     Caller
	collectors, learners, data json.RawMessage
}

// ReadBody parses the caller of a body.
func ReadBody(content []byte) (*Body, error) {
	var raw struct {
		Namespace   json.RawMessage `json:"namespace"`
		Coordinator json.RawMessage `json:"coordinator"`
		Collectors  json.RawMessage `json:"collectors"`
		Learners    json.RawMessage `json:"learners"`
		Data        json.RawMessage `json:"data"`
	}
	if err := decode(content, &raw); err != nil {
		return nil, err
	}
	var fields fieldReader
	by := Caller{
		Namespace:   fields.required("namespace", raw.Namespace),
		Coordinator: fields.required("coordinator", raw.Coordinator),
	}
	return &Body{by, raw.Collectors, raw.Learners, raw.Data}, fields.err()
}

// Resize parses the body of a request that adds or removes replicas.
func (b *Body) Resize() (*Resize, error) {
	var fields fieldReader
	body := &Resize{
		Caller:     b.Caller,
		Collectors: fields.demand("collectors", b.collectors),
		Learners:   fields.demand("learners", b.learners),
	}
	return body, fields.err()
}

// Failed parses a failure report. It also accepts the URLs of pods.
func (b *Body) Failed() (*Failed, error) {
	var fields fieldReader
	body := &Failed{
		Caller:     b.Caller,
		Collectors: fields.pods("collectors", b.collectors),
		Learners:   fields.pods("learners", b.learners),
	}
	for _, pods := range [][]string{body.Collectors, body.Learners} {
		for i := range pods {
			pods[i], _, _ = strings.Cut(pods[i], ":")
			pods[i] = strings.TrimSuffix(pods[i], "."+body.Namespace)
		}
	}
	return body, fields.err()
}

// Profilings parses the profiling report of a coordinator.
func (b *Body) Profilings() (json.RawMessage, error) {
	var fields fieldReader
	if isAbsent(b.data) {
		fields.add("data", "is missing, such as {\"version\": 1}")
	} else {
		fields.object("data", b.data, &map[string]json.RawMessage{})
	}
	return b.data, fields.err()
}

// demand parses a Demand.
func (f *fieldReader) demand(name string, value json.RawMessage) Demand {
	var raw rawDemand
	f.object(name, value, &raw)
	demand := Demand{
		Replicas: f.count(name+".replicas", raw.Replicas),
		CPUs:     f.quantity(name+".cpus", raw.CPUs),
		GPUs:     f.quantity(name+".gpus", raw.GPUs),
		Memory:   f.quantity(name+".memory", raw.Memory),
	}
	switch gpus := demand.GPUs; {
	case gpus == nil:
	case gpus.CmpInt64(MaxGPUs) > 0:
		f.add(name+".gpus", "%s is more than %d", gpus, MaxGPUs)
	case gpus.MilliValue()%1000 != 0:
		f.add(name+".gpus", "%s is no whole number", gpus)
	}
	return demand
}

// ReadReplicas parses the number of replicas that a worker requests. Zero is valid, as in earlier
// releases.
func ReadReplicas(content []byte) (int32, error) {
	var raw rawDemand
	if err := decode(content, &raw); err != nil {
		return 0, err
	}
	var fields fieldReader
	replicas := fields.count("replicas", raw.Replicas)
	if err := fields.err(); err != nil {
		return 0, err
	}
	if isAbsent(raw.Replicas) {
		return 0, failure.New(failure.Invalid, "replicas: is missing, such as 2")
	}
	return replicas, nil
}

// ReadProfilings parses a profiling report. The design document wraps the object as data. Deployed clients
// send the object itself.
func ReadProfilings(content []byte) (json.RawMessage, error) {
	if err := checkPresent(content); err != nil {
		return nil, err
	}
	var object map[string]json.RawMessage
	if err := json.Unmarshal(content, &object); err != nil || object == nil {
		return nil, failure.New(failure.Invalid, "the body must be a JSON object, not: %s", excerpt(bytes.TrimSpace(content))).Because(err)
	}
	if data, wrapped := object["data"]; wrapped && len(object) == 1 && bytes.HasPrefix(data, []byte("{")) {
		return data, nil
	}
	return content, nil
}

// decode decodes a body into a struct of raw fields. Unknown keys are ignored.
func decode(content []byte, into any) error {
	if err := checkPresent(content); err != nil {
		return err
	}
	err := json.Unmarshal(content, into)
	var mistyped *json.UnmarshalTypeError
	switch trimmed := bytes.TrimSpace(content); {
	case errors.As(err, &mistyped), err == nil && trimmed[0] != '{':
		return failure.New(failure.Invalid, "the body must be a JSON object, not: %s", excerpt(trimmed))
	case err != nil:
		return failure.New(failure.Invalid, "the body is no JSON: %v", err)
	}
	return nil
}

func checkPresent(content []byte) error {
	if len(bytes.TrimSpace(content)) == 0 {
		return failure.New(failure.Invalid, "the body is empty: a JSON object is required")
	}
	return nil
}
