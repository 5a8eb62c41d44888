// Copyright The DI Orchestrator Authors.
// SPDX-License-Identifier: Apache-2.0

package server

import (
	"context"
	"encoding/json"
	"errors"
	"sync"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/utils/clock"
	"sigs.k8s.io/controller-runtime/pkg/cache/informertest"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"

	"opendilab.org/di-orchestrator/apis/v2alpha1"
	"opendilab.org/di-orchestrator/internal/names"
)

// memory is a store without a cluster, which runs in the time of a synctest
// bubble. Its cache is what the API server has.
type memory struct {
	objects client.WithWatch

	lock sync.Mutex
	// isAway has every call of the API server fail.
	isAway bool
	// losing is how many answers to writes are still to be lost; the API server is
	// away from then on.
	losing int
	// written are the sizes of the objects that were written, as etcd stores them.
	written []int
}

var errAway = errors.New("connection refused")

func newMemory(t *testing.T) *memory {
	t.Helper()
	scheme := runtime.NewScheme()
	for _, add := range []func(*runtime.Scheme) error{corev1.AddToScheme, v2alpha1.AddToScheme} {
		if err := add(scheme); err != nil {
			t.Fatal(err)
		}
	}
	return &memory{objects: fake.NewClientBuilder().WithScheme(scheme).WithStatusSubresource(&v2alpha1.DIJob{}, &v2alpha1.Membership{}).Build()}
}

func (m *memory) set(isAway bool) {
	m.lock.Lock()
	defer m.lock.Unlock()
	m.isAway = isAway
}

// lose has the answer to the next write be lost.
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

// bytes returns how much was written, and in how many writes.
func (m *memory) bytes() (total, writes int) {
	m.lock.Lock()
	defer m.lock.Unlock()
	for _, size := range m.written {
		total += size
	}
	return total, len(m.written)
}

func (m *memory) get(ctx context.Context, key types.NamespacedName, object client.Object) error {
	return m.objects.Get(ctx, key, object)
}

func (m *memory) live(ctx context.Context, key types.NamespacedName, object client.Object) error {
	if err := m.reachable(); err != nil {
		return err
	}
	return m.objects.Get(ctx, key, object)
}

func (m *memory) look(ctx context.Context, key types.NamespacedName, object client.Object) error {
	return m.live(ctx, key, object)
}

func (m *memory) list(ctx context.Context, list client.ObjectList, options ...client.ListOption) error {
	return m.objects.List(ctx, list, options...)
}

func (m *memory) pods(ctx context.Context, index, key string) ([]*corev1.Pod, error) {
	var list corev1.PodList
	if err := m.objects.List(ctx, &list); err != nil {
		return nil, err
	}
	var found []*corev1.Pod
	for i := range list.Items {
		owner := jobOwner(&list.Items[i])
		if index == ownerIndex && owner != nil && ownerKey(list.Items[i].Namespace, owner.UID) == key {
			found = append(found, &list.Items[i])
		}
	}
	return found, nil
}

func (m *memory) liveList(ctx context.Context, list client.ObjectList, options ...client.ListOption) error {
	if err := m.reachable(); err != nil {
		return err
	}
	return m.objects.List(ctx, list, options...)
}

func (*memory) create(context.Context, client.Object) error {
	return errors.New("nothing is reviewed here")
}

func (m *memory) update(ctx context.Context, object client.Object) error {
	return m.write(object, func() error { return m.objects.Update(ctx, object) })
}

func (m *memory) patch(ctx context.Context, object client.Object, subresource string, patch client.Patch) error {
	return m.write(object, func() error {
		if subresource == "" {
			return m.objects.Patch(ctx, object, patch)
		}
		return m.objects.SubResource(subresource).Patch(ctx, object, patch)
	})
}

// write does a write, counts it, and loses its answer if it is to be lost.
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
	if m.losing > 0 {
		m.losing--
		m.isAway = true
		return errAway
	}
	return nil
}

// newMemoryServer returns a server over a store, which identifies nobody.
func newMemoryServer(t *testing.T, store *memory, changes ...func(*Options)) *Server {
	t.Helper()
	options := Options{
		Client: store.objects, APIReader: store.objects, Cache: &informertest.FakeInformers{}, Identity: ModeOff,
	}
	for _, change := range changes {
		change(&options)
	}
	served, err := New(options)
	if err != nil {
		t.Fatal(err)
	}
	served.store = store
	served.lookups = newLookups(store, clock.RealClock{})
	served.gate = newGate(&served.options, store, served.lookups, nil)
	return served
}

func (m *memory) mustCreate(t *testing.T, object client.Object) {
	t.Helper()
	if err := m.objects.Create(t.Context(), object); err != nil {
		t.Fatal(err)
	}
}

func rawTemplate() v2alpha1.RawObject {
	return v2alpha1.RawObject{JSON: apiextensionsv1.JSON{Raw: []byte(`{"spec":{"containers":[{"name":"di-container","image":"di"}]}}`)}}
}

// newCoordinatorLed makes a coordinator-led job with its coordinator and its empty list.
func (m *memory) newCoordinatorLed(t *testing.T) *v2alpha1.DIJob {
	t.Helper()
	job := &v2alpha1.DIJob{
		ObjectMeta: metav1.ObjectMeta{Namespace: "ns", Name: "job", UID: "job-uid"},
		Spec: v2alpha1.DIJobSpec{Lifecycle: v2alpha1.LifecycleCoordinatorLed, Tasks: []v2alpha1.Task{
			{Type: v2alpha1.TaskTypeCoordinator, Template: rawTemplate()},
			{Type: v2alpha1.TaskTypeCollector, Template: rawTemplate()},
			{Type: v2alpha1.TaskTypeLearner, Template: rawTemplate()},
		}},
	}
	m.mustCreate(t, job)
	m.mustCreate(t, &v2alpha1.Membership{
		ObjectMeta: metav1.ObjectMeta{Namespace: job.Namespace, Name: job.Name},
		Spec:       v2alpha1.MembershipSpec{JobUID: job.UID},
	})
	name := names.CoordinatorPod(job.Name)
	m.mustCreate(t, &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{
			Namespace: job.Namespace, Name: name, UID: "pod-uid", Labels: names.ReplicaLabels(job.Name, names.ReplicaTypeCoordinator, name),
			OwnerReferences: []metav1.OwnerReference{*metav1.NewControllerRef(job, v2alpha1.GroupVersion.WithKind("DIJob"))},
		},
		Spec:   corev1.PodSpec{Containers: []corev1.Container{{Name: names.Container, Image: "di"}}},
		Status: corev1.PodStatus{Phase: corev1.PodRunning},
	})
	return job
}

// members returns a job's members.
func (m *memory) members(t *testing.T, job *v2alpha1.DIJob) []v2alpha1.Member {
	t.Helper()
	var list v2alpha1.Membership
	if err := m.objects.Get(t.Context(), client.ObjectKeyFromObject(job), &list); err != nil {
		t.Fatal(err)
	}
	return list.Spec.Members
}

// openWatches returns watches that are all open, and what opens and closes them.
func openWatches(log Options) (*Watches, func(open bool)) {
	watches := NewWatches(log.Log)
	set := func(open bool) {
		for _, resource := range watchedResources() {
			if open {
				watches.opened(resource)
			} else {
				watches.closed(resource)
			}
		}
	}
	set(true)
	return watches, set
}

// passed returns when so much time has passed, or the test has ended.
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
