// Copyright The DI Orchestrator Authors.
// SPDX-License-Identifier: Apache-2.0

package server_test

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"sync"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"opendilab.org/di-orchestrator/internal/names"
	"opendilab.org/di-orchestrator/test/testkit/specs"
)

var errCrashed = errors.New("the server has crashed")

// mortalClient is the client of a server that crashes at its k-th write. The server may or may not make
// that write. Every later call fails.
type mortalClient struct {
	client.Client
	lock sync.Mutex
	// writes is the number of writes before the crash.
	writes int
	// done reports whether the last write reaches the API server.
	done bool
	dead bool
}

// dying counts a write. It reports whether to make the write, and returns the error. A request that calls
// after the crash is never answered.
func (m *mortalClient) dying(ctx context.Context) (bool, error) {
	m.lock.Lock()
	defer m.lock.Unlock()
	if m.dead {
		endTime(ctx)
		return false, errCrashed
	}
	m.writes--
	if m.writes > 0 {
		return true, nil
	}
	m.dead = true
	return m.done, errCrashed
}

func (m *mortalClient) Update(ctx context.Context, object client.Object, options ...client.UpdateOption) error {
	do, crash := m.dying(ctx)
	if do {
		if err := m.Client.Update(ctx, object, options...); err != nil {
			return err
		}
	}
	return crash
}

func (m *mortalClient) reader() client.Reader {
	return mortalReader{m}
}

type mortalReader struct{ mortal *mortalClient }

func (r mortalReader) Get(ctx context.Context, key client.ObjectKey, object client.Object, options ...client.GetOption) error {
	r.mortal.lock.Lock()
	dead := r.mortal.dead
	r.mortal.lock.Unlock()
	if dead {
		endTime(ctx)
		return errCrashed
	}
	return api.live.Get(ctx, key, object, options...)
}

func (mortalReader) List(context.Context, client.ObjectList, ...client.ListOption) error {
	return errors.New("the server lists nothing live")
}

var _ = Describe("a server that crashes", func() {
	// story returns the requests of a coordinator. Failed requests are repeated at another server. Only a
	// key distinguishes a repeated removal from another removal.
	story := func(namespace, known string) []struct{ method, path, body string } {
		caller := fmt.Sprintf(`{"namespace":%q,"coordinator":"cartpole-dqn-coordinator",`, namespace)
		return []struct{ method, path, body string }{
			{http.MethodPost, "/v1alpha1/replicas", caller + `"collectors":{"replicas":3},"learners":{"replicas":1}}`},
			{http.MethodPost, "/v1alpha1/replicas", caller + `"collectors":{"replicas":2}}`},
			{http.MethodPost, "/v1alpha1/replicas/failed", caller + `"collectors":["` + known + `"]}`},
			{http.MethodDelete, "/v1alpha1/replicas", caller + `"collectors":{"replicas":1}}`},
		}
	}

	key := func(method string) string {
		if method == http.MethodDelete {
			return "removal"
		}
		return ""
	}

	for _, done := range []bool{false, true} {
		for crashAt := 1; crashAt <= 5; crashAt++ {
			It(fmt.Sprintf("at its write %d, which is done: %t, leaves nothing doubled or lost", crashAt, done), func(ctx SpecContext) {
				namespace := specs.Namespace(ctx, api.live)
				job := newTrainer(ctx, namespace)
				mortal := newServer(&mortalClient{Client: api.cached, writes: crashAt, done: done})
				second := newServer(api.cached)

				collector := ""
				for step := range story(namespace, "") {
					request := story(namespace, collector)[step]
					status, answer, err := tryCall(ctx, request.method, mortal+request.path, request.body, "Idempotency-Key", key(request.method))
					Expect(err).NotTo(HaveOccurred())
					if isLater(status, answer) {
						status, answer = call(ctx, request.method, second+request.path, request.body, "Idempotency-Key", key(request.method))
					}
					Expect(status).To(Equal(http.StatusOK), answer)
					if step == 0 {
						collector = podOf(urlsIn(answer, names.ReplicaTypeCollector)[0])
					}
				}
				reports := int32(0)
				members := membershipOf(ctx, job).Spec.Members
				for _, member := range members {
					reports += member.FailureReports
				}
				Expect(members).To(HaveLen(3 + 1 + 2 - 1))
				Expect(reports).To(BeEquivalentTo(1))
			})
		}
	}
})
