// Copyright The DI Orchestrator Authors.
// SPDX-License-Identifier: Apache-2.0

package server

import (
	"context"
	"encoding/json"
	"errors"
	"io"
	"net/http"
	"net/http/httptest"
	"sync"
	"testing"
	"time"

	"github.com/go-logr/logr"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/utils/clock"
	"sigs.k8s.io/controller-runtime/pkg/cache/informertest"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"

	"opendilab.org/di-orchestrator/apis/v2alpha1"
	"opendilab.org/di-orchestrator/server/auth"
	"opendilab.org/di-orchestrator/server/store"
	"opendilab.org/di-orchestrator/test/testkit/expect"
	"opendilab.org/di-orchestrator/test/testkit/jobs"
	"opendilab.org/di-orchestrator/test/testkit/pods"
)

// memory is a store without a cluster, in the time of a synctest bubble. Its cache equals the API server's
// state.
type memory struct {
	objects client.WithWatch

	lock sync.Mutex
	// followers are the servers whose caches follow the writes.
	followers []*Server
	// isAway makes every API call fail.
	isAway bool
	// losing is the number of further answers to writes that are lost. After that the API server is
	// unreachable.
	losing int
	// written are the sizes of the written objects as etcd stores them.
	written []int
}

var errAway = errors.New("connection refused")

func newMemory(t *testing.T) *memory {
	t.Helper()
	scheme := runtime.NewScheme()
	for _, add := range []func(*runtime.Scheme) error{corev1.AddToScheme, v2alpha1.AddToScheme} {
		expect.NoError(t, add(scheme))
	}
	return &memory{objects: fake.NewClientBuilder().WithScheme(scheme).WithStatusSubresource(&v2alpha1.DIJob{}, &v2alpha1.Membership{}).Build()}
}

func (m *memory) set(isAway bool) {
	m.lock.Lock()
	defer m.lock.Unlock()
	m.isAway = isAway
}

// lose makes the memory lose the answer to the next write.
func (m *memory) lose() {
	m.lock.Lock()
	defer m.lock.Unlock()
	m.losing = 1
}

func (m *memory) reachable() error {
	m.lock.Lock()
	defer m.lock.Unlock()
	if m.isAway {
		return errAway
	}
	return nil
}

// bytes returns the written bytes and the number of writes.
func (m *memory) bytes() (total, writes int) {
	m.lock.Lock()
	defer m.lock.Unlock()
	for _, size := range m.written {
		total += size
	}
	return total, len(m.written)
}

func (m *memory) Get(ctx context.Context, key types.NamespacedName, object client.Object) error {
	return m.objects.Get(ctx, key, object)
}

func (m *memory) Live(ctx context.Context, key types.NamespacedName, object client.Object) error {
	if err := m.reachable(); err != nil {
		return err
	}
	return m.objects.Get(ctx, key, object)
}

func (m *memory) Look(ctx context.Context, key types.NamespacedName, object client.Object) error {
	return m.Live(ctx, key, object)
}

func (m *memory) List(ctx context.Context, list client.ObjectList, options ...client.ListOption) error {
	return m.objects.List(ctx, list, options...)
}

func (m *memory) Pods(ctx context.Context, index, key string) ([]*corev1.Pod, error) {
	var list corev1.PodList
	if err := m.objects.List(ctx, &list); err != nil {
		return nil, err
	}
	var found []*corev1.Pod
	for i := range list.Items {
		owner := store.JobOwner(&list.Items[i])
		if index == store.OwnerIndex && owner != nil && store.OwnerKey(list.Items[i].Namespace, owner.UID) == key {
			found = append(found, &list.Items[i])
		}
	}
	return found, nil
}

func (m *memory) LiveList(ctx context.Context, list client.ObjectList, options ...client.ListOption) error {
	if err := m.reachable(); err != nil {
		return err
	}
	return m.objects.List(ctx, list, options...)
}

func (*memory) Create(context.Context, client.Object) error {
	return errors.New("nothing is reviewed here")
}

func (m *memory) Update(ctx context.Context, object client.Object) error {
	return m.write(object, func() error { return m.objects.Update(ctx, object) })
}

func (m *memory) Patch(ctx context.Context, object client.Object, subresource string, patch client.Patch) error {
	return m.write(object, func() error {
		if subresource == "" {
			return m.objects.Patch(ctx, object, patch)
		}
		return m.objects.SubResource(subresource).Patch(ctx, object, patch)
	})
}

// write performs and counts a write. It loses the answer if lose was called.
func (m *memory) write(object client.Object, do func() error) error {
	if err := m.reachable(); err != nil {
		return err
	}
	if err := do(); err != nil {
		return err
	}
	stored, err := json.Marshal(object)
	if err != nil {
		return err
	}
	m.lock.Lock()
	defer m.lock.Unlock()
	m.written = append(m.written, len(stored))
	for _, server := range m.followers {
		switch written := object.(type) {
		case *v2alpha1.Membership:
			server.store.SeeMembership(written)
		case *v2alpha1.DIJob:
			server.store.SeeJob(written)
		}
	}
	if m.losing > 0 {
		m.losing--
		m.isAway = true
		return errAway
	}
	return nil
}

// newMemoryServer returns a server over a memory without authentication.
func newMemoryServer(t *testing.T, objects *memory, changes ...func(*Options)) *Server {
	t.Helper()
	return newServerOver(t, objects, objects, changes...)
}

// newServerOver returns a server over a cluster with the objects of a memory.
func newServerOver(t *testing.T, objects *memory, cluster store.Cluster, changes ...func(*Options)) *Server {
	t.Helper()
	options := Options{
		Client: objects.objects, APIReader: objects.objects, Cache: &informertest.FakeInformers{}, Identity: auth.ModeDisabled,
	}
	for _, change := range changes {
		change(&options)
	}
	expect.NoError(t, options.complete())
	calls, err := auth.NewMetrics(options.Metrics, options.Log)
	expect.NoError(t, err)
	served, err := newServer(options, calls, cluster)
	expect.NoError(t, err)
	objects.lock.Lock()
	defer objects.lock.Unlock()
	objects.followers = append(objects.followers, served)
	return served
}

func (m *memory) mustCreate(t *testing.T, object client.Object) {
	t.Helper()
	expect.NoError(t, m.objects.Create(t.Context(), object))
}

// newCoordinatorLed creates a coordinator-led job with its coordinator and its empty list.
func (m *memory) newCoordinatorLed(t *testing.T) *v2alpha1.DIJob {
	t.Helper()
	job := &v2alpha1.DIJob{
		ObjectMeta: metav1.ObjectMeta{Namespace: "ns", Name: "job", UID: "job-uid"}, Spec: jobs.CoordinatorLed(jobs.Template()),
	}
	m.mustCreate(t, job)
	m.mustCreate(t, jobs.Membership(job))
	coordinator := pods.Coordinator(job)
	coordinator.UID, coordinator.Status.Phase = "pod-uid", corev1.PodRunning
	m.mustCreate(t, coordinator)
	return job
}

// members returns a job's members.
func (m *memory) members(t *testing.T, job *v2alpha1.DIJob) []v2alpha1.Member {
	t.Helper()
	var list v2alpha1.Membership
	expect.NoError(t, m.objects.Get(t.Context(), client.ObjectKeyFromObject(job), &list))
	return list.Spec.Members
}

// endless is the body of a watch without events.
type endless struct{ closed chan struct{} }

func (e endless) Read([]byte) (int, error) { <-e.closed; return 0, io.EOF }
func (e endless) Close() error             { close(e.closed); return nil }

type roundTrip func(*http.Request) (*http.Response, error)

func (r roundTrip) RoundTrip(request *http.Request) (*http.Response, error) { return r(request) }

// openWatches returns open watches, and a function that opens or breaks them.
func openWatches(t *testing.T) (*store.Watches, func(open bool)) {
	t.Helper()
	watches := store.NewWatches(logr.Discard(), clock.RealClock{})
	transport := watches.Wrap(roundTrip(func(*http.Request) (*http.Response, error) {
		return &http.Response{StatusCode: http.StatusOK, Body: endless{make(chan struct{})}}, nil
	}))
	var streams []io.Closer
	set := func(open bool) {
		for _, stream := range streams {
			_ = stream.Close()
		}
		streams = nil
		for _, resource := range store.WatchedResources() {
			if !open {
				break
			}
			request := httptest.NewRequestWithContext(t.Context(), http.MethodGet, "/api/v1/"+resource+"?watch=true", http.NoBody)
			response, err := transport.RoundTrip(request) //nolint:bodyclose // closed by the next call
			if err != nil {
				t.Error(err)
				return
			}
			streams = append(streams, response.Body)
		}
	}
	set(true)
	return watches, set
}

// passed returns when wait has passed or the context has ended.
func passed(ctx context.Context, wait time.Duration) error {
	timer := time.NewTimer(wait)
	defer timer.Stop()
	select {
	case <-ctx.Done():
		return context.Cause(ctx)
	case <-timer.C:
		return nil
	}
}
