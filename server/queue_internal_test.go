// Copyright The DI Orchestrator Authors.
// SPDX-License-Identifier: Apache-2.0

package server

import (
	"context"
	"fmt"
	"net/http"
	"net/http/httptest"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	corev1 "k8s.io/api/core/v1"

	"opendilab.org/di-orchestrator/apis/v2alpha1"
)

// stuckStore is a store whose reads of one job's pods block until the test releases them.
type stuckStore struct {
	*memory
	stuck string
	ended chan struct{}

	mutex sync.Mutex
	reads int
}

func (s *stuckStore) Pods(ctx context.Context, index, key string) ([]*corev1.Pod, error) {
	if key == s.stuck {
		s.mutex.Lock()
		s.reads++
		s.mutex.Unlock()
		<-s.ended
	}
	return s.memory.Pods(ctx, index, key)
}

func TestReadsOfOneJobHoldUpNoOthers(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		const reads = 64
		store := &stuckStore{memory: newMemory(t), ended: make(chan struct{})}
		store.newCoordinatorLed(t)
		store.stuck = "ns/crowd-uid"
		crowd := &v2alpha1.DIJob{}
		crowd.Namespace, crowd.Name, crowd.UID = "ns", "crowd", "crowd-uid"
		store.mustCreate(t, crowd)
		server := newServerOver(t, store.memory, store)
		get := func(path string) string {
			recorder := httptest.NewRecorder()
			server.Handler().ServeHTTP(recorder, httptest.NewRequestWithContext(t.Context(), http.MethodGet, path, http.NoBody))
			return fmt.Sprintf("%d %.16s", recorder.Code, recorder.Body)
		}
		answers := make(chan string, reads)
		for range reads {
			go func() { answers <- get("/v2alpha1/ns.crowd/replicas") }()
		}
		synctest.Wait()
		if most := server.reads.queue.PerFlow(); store.reads > most {
			t.Errorf("%d reads of one job are worked on at once, want %d", store.reads, most)
		}
		begun := time.Now()
		if got := get(replicasPath + "?namespace=ns&coordinator=job-coordinator"); got != `200 {"success":true,` || time.Since(begun) > 0 {
			t.Errorf("another job's read gets %s after %s", got, time.Since(begun))
		}
		mustPass(t, DefaultTimes().Hold+time.Second)
		close(store.ended)
		counted := map[string]int{}
		for range reads {
			counted[<-answers]++
		}
		if share := server.reads.queue.PerFlow(); counted[`200 {"success":true,`] != share || counted[`200 {"success":false`] != reads-share {
			t.Errorf("got %v, want %d answered and the others asked to retry", counted, share)
		}
		if left := server.reads.queue.Len(); left != 0 {
			t.Errorf("%d reads are left behind", left)
		}
	})
}
