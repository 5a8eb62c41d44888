// Copyright The DI Orchestrator Authors.
// SPDX-License-Identifier: Apache-2.0

package wire

import (
	"errors"
	"testing"
	"unicode/utf8"

	"opendilab.org/di-orchestrator/server/failure"
)

// mustBeInvalid fails unless an error is nil or a short failure of kind Invalid.
func mustBeInvalid(t *testing.T, err error) {
	t.Helper()
	var failed *failure.Error
	if err != nil && (!errors.As(err, &failed) || failed.Kind != failure.Invalid || len(failed.Message) > 16<<10) {
		t.Fatalf("got %v, want a short failure of kind Invalid", err)
	}
}

func FuzzReplicasBody(f *testing.F) {
	for _, seed := range []string{
		`{"namespace":"n","coordinator":"c","collectors":{"replicas":2,"cpus":"500m"},"learners":{"gpus":1e9,"memory":"1e-10000000"}}`,
		`{"namespace":"n","coordinator":"c","learners":{"gpus":"1e1000000000"}}`, `null`, `[]`, `{`, ``,
	} {
		f.Add(seed)
	}
	f.Fuzz(func(t *testing.T, content string) {
		raw, err := ReadBody([]byte(content))
		mustBeInvalid(t, err)
		if err != nil {
			return
		}
		body, err := raw.Resize()
		mustBeInvalid(t, err)
		if err == nil && (body.Namespace == "" || body.Coordinator == "" || body.Collectors.Replicas < 0 || body.Learners.Replicas < 0) {
			t.Fatalf("%q is accepted as %+v", content, body)
		}
		_, err = raw.Failed()
		mustBeInvalid(t, err)
	})
}

func FuzzResizeBody(f *testing.F) {
	for _, seed := range []string{`{"replicas":1}`, `{"replicas":1e9}`, `{"replicas":-1}`, `{"data":{}}`, `{"data":null}`, `null`, ``} {
		f.Add(seed)
	}
	f.Fuzz(func(t *testing.T, content string) {
		replicas, err := ReadReplicas([]byte(content))
		mustBeInvalid(t, err)
		if replicas < 0 {
			t.Fatalf("%q is accepted as %d", content, replicas)
		}
		_, err = ReadProfilings([]byte(content))
		mustBeInvalid(t, err)
	})
}

func FuzzJobID(f *testing.F) {
	for _, seed := range []string{"n.j", "n.j.1", "n.j.-1", "..", "n.j.99999999999", "a/b.c"} {
		f.Add(seed)
	}
	f.Fuzz(func(t *testing.T, text string) {
		id, err := ParseJobID(text)
		mustBeInvalid(t, err)
		if err == nil && (id.Key.Namespace == "" || id.Key.Name == "" || id.generation < -1) {
			t.Fatalf("%q is accepted as %+v", text, id)
		}
	})
}

func FuzzQuery(f *testing.F) {
	for _, seed := range []string{"namespace=n&coordinator=c", "NAMESPACE=n&name=p", "a=%zz", "namespace=a&namespace=b", ";"} {
		f.Add(seed)
	}
	f.Fuzz(func(t *testing.T, query string) {
		wanted, err := ReadFilter(query)
		if err != nil && len(query) > 4<<10 {
			return
		}
		mustBeInvalid(t, err)
		if err == nil && wanted.Namespace == "" && wanted != (Filter{}) {
			t.Fatalf("%q is accepted as %+v", query, wanted)
		}
	})
}

func FuzzAck(f *testing.F) {
	for _, seed := range []string{
		`{"version":7}`, `{"version":7,"member":"job-ps-1","refuse":true,"reason":"saving"}`, `{"version":0}`, `{"version":1e300}`, `{"version":"7"}`,
		`{"version":7,"reason":"\ud800"}`, `null`, `[]`, ``,
	} {
		f.Add(seed)
	}
	f.Fuzz(func(t *testing.T, content string) {
		ack, err := ReadAck([]byte(content))
		mustBeInvalid(t, err)
		if err == nil && (ack.Version < 1 || len(ack.Reason) > maxReason || !utf8.ValidString(ack.Reason)) {
			t.Fatalf("%q is accepted as %+v", content, ack)
		}
	})
}

func FuzzCoordinatorWatch(f *testing.F) {
	for _, seed := range []string{
		"namespace=n&coordinator=c&watch=true&version=7", "Namespace=n&COORDINATOR=c&Watch=1", "version=-1", "watch=%zz", "namespace=a&namespace=b", "",
	} {
		f.Add(seed)
	}
	f.Fuzz(func(t *testing.T, query string) {
		coordinator, _, err := ReadCoordinatorWatch(query)
		mustBeInvalid(t, err)
		if err == nil && (coordinator.Namespace == "" || coordinator.Name == "") {
			t.Fatalf("%q is accepted as %s", query, coordinator)
		}
	})
}
