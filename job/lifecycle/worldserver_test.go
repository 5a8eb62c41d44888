// Copyright The DI Orchestrator Authors.
// SPDX-License-Identifier: Apache-2.0

package lifecycle

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"math"
	"math/rand/v2"
	"time"

	"github.com/go-logr/logr"
	jsonpatch "gopkg.in/evanphx/json-patch.v4"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"opendilab.org/di-orchestrator/allocation/profilings"
	"opendilab.org/di-orchestrator/apis/v2alpha1"
	"opendilab.org/di-orchestrator/internal/names"
	"opendilab.org/di-orchestrator/job/lifecycle/state"
	"opendilab.org/di-orchestrator/job/membership"
	"opendilab.org/di-orchestrator/server/limit"
	"opendilab.org/di-orchestrator/server/rates"
	"opendilab.org/di-orchestrator/server/store"
)

// diServer is the di-server of a world: the real store, whose API server is the world.
type diServer struct {
	*store.Store
	world *world
	// book has what replicas report.
	book *rates.Book
	// end ends the current edit of the job, which the store would try again later.
	end context.CancelFunc
}

func newServer(w *world) *diServer {
	clock := serverClock{w}
	return &diServer{
		world: w, book: rates.NewBook("server"),
		Store: store.New(store.Options{
			Cluster: api{w}, Clock: clock, Log: logr.Discard(), AggregatorConfig: client.ObjectKeyFromObject(w.config),
			Rates: limit.NewRates("writes", math.MaxInt32, math.MaxInt32), Budget: limit.NewBudget(math.MaxInt32, clock, func() {}),
		}),
	}
}

// serverClock is the clock of di-server.
type serverClock struct{ world *world }

func (c serverClock) Now() time.Time                   { return c.world.by(c.world.clocks.server) }
func (c serverClock) Since(at time.Time) time.Duration { return c.Now().Sub(at) }

// jobEdit is an edit of the job that is made once: it ends if the store would try again later.
type jobEdit struct {
	kind   limit.Kind
	apply  func(*v2alpha1.DIJob) (store.JobPatch, error)
	server *diServer
}

func (e *jobEdit) Kind() limit.Kind                           { return e.kind }
func (*jobEdit) Check(context.Context, *v2alpha1.DIJob) error { return nil }

func (e *jobEdit) Apply(job *v2alpha1.DIJob) (store.JobPatch, error) {
	patch, err := e.apply(job)
	if errors.Is(err, store.ErrNotYet) {
		e.server.end()
	}
	return patch, err
}

// edit makes di-server edit the job. It returns why it does not.
func (s *diServer) edit(kind limit.Kind, apply func(*v2alpha1.DIJob) (store.JobPatch, error)) error {
	ctx, cancel := context.WithCancel(context.Background())
	defer cancel()
	outer := s.end
	s.end = cancel
	defer func() { s.end = outer }()
	_, err := s.EditJob(ctx, client.ObjectKeyFromObject(s.world.job), &jobEdit{kind, apply, s})
	return err
}

// resize adds replicas to a worker-led job, or removes some. Others act between its read and its write.
func (s *diServer) resize(by int64, others func()) error {
	request, _ := s.Claim(membership.Request{Content: fmt.Appendf(nil, "%+d", by), Removal: by < 0})
	return s.edit(limit.OfRequests, func(job *v2alpha1.DIJob) (store.JobPatch, error) {
		patch, granted, err := store.Resize(job, by)
		if err != nil {
			return patch, err
		}
		others()
		return patch, s.Record(job, request, granted)
	})
}

// acknowledge stores acknowledgements of the membership.
func (s *diServer) acknowledge(given ...store.Ack) error {
	return s.edit(limit.OfRequests, func(job *v2alpha1.DIJob) (store.JobPatch, error) { return store.Acknowledge(job, given), nil })
}

// report stores a report of the whole job.
func (s *diServer) report(content string) error {
	return s.edit(limit.OfReports, func(job *v2alpha1.DIJob) (store.JobPatch, error) { return store.Report(job, json.RawMessage(content)) })
}

// reportRole stores the sums of the reports of replicas about themselves.
func (s *diServer) reportRole(pod *corev1.Pod, samples float64) error {
	now := serverClock{s.world}.Now()
	report := &profilings.Role{Role: pod.Labels[names.LabelTaskName], Samples: samples}
	if err := s.book.Add(s.world.job.UID, string(pod.UID), report, now); err != nil {
		return err
	}
	return s.edit(limit.OfRates, func(job *v2alpha1.DIJob) (store.JobPatch, error) {
		return store.Rates(job, rates.Merge(job.Status.Rates, s.book.Of(job.UID, now), s.book.Server(), now))
	})
}

// befallServer makes a pod call di-server.
func (w *world) befallServer(random *rand.Rand) {
	if state.IsCoordinatorLed(w.job) {
		w.befallCoordinator(random)
		return
	}
	pods := w.podNames()
	var err error
	switch choice := random.IntN(9); {
	case choice == 8:
		w.resizeAtOnce(1+random.Int64N(2), 1+random.Int64N(2))
		return
	case choice < 4:
		by := random.Int64N(9) - 4
		err = w.server.resize(by, func() {})
		w.tell("di-server resizes by %d to %d, the range of a preemptible job to %d: %v", by, w.job.Status.Replicas, store.MaxReplicas(w.job), err)
	case choice < 6 || len(pods) == 0:
		err = w.server.report(fmt.Sprintf(`{"step":%d}`, random.IntN(100)))
		w.tell("the job reports: %v", err)
	default:
		name := pods[random.IntN(len(pods))]
		err = w.server.reportRole(w.pods[name], float64(random.IntN(100)))
		w.tell("%s reports: %v", name, err)
	}
}

// resizeAtOnce makes two di-servers add replicas at the same time. The job must get those of each request that is acknowledged.
func (w *world) resizeAtOnce(first, second int64) {
	w.t.Helper()
	if elastic := w.job.Spec.Elastic; w.job.Status.Replicas == 0 || w.job.Spec.Preemptible && (elastic == nil || elastic.MaxReplicas == nil) {
		return
	}
	before, added := store.MaxReplicas(w.job), int64(0)
	count := func(by int64, err error) {
		w.tell("one of two di-servers adds %d replicas: %v", by, err)
		if err == nil {
			added += by
		}
	}
	count(first, w.server.resize(first, func() { count(second, w.server.resize(second, func() {})) }))
	if after := store.MaxReplicas(w.job); after != before+added {
		w.t.Fatalf("two requests add %d replicas to %d, and there may be %d", added, before, after)
	}
}

// api is the API server of a world, as di-server uses it. Its caches are current.
type api struct{ world *world }

func (a api) Get(_ context.Context, key types.NamespacedName, object client.Object) error {
	w, isFound := a.world, false
	switch into := object.(type) {
	case *v2alpha1.DIJob:
		w.job.DeepCopyInto(into)
		isFound = true
	case *v2alpha1.Membership:
		if isFound = w.membership != nil; isFound {
			w.membership.DeepCopyInto(into)
		}
	case *v2alpha1.AggregatorConfig:
		if isFound = w.config != nil; isFound {
			w.config.DeepCopyInto(into)
		}
	}
	if !isFound {
		return apierrors.NewNotFound(schema.GroupResource{}, key.Name)
	}
	return nil
}

func (a api) Live(ctx context.Context, key types.NamespacedName, object client.Object) error {
	return a.Get(ctx, key, object)
}

func (a api) Look(ctx context.Context, key types.NamespacedName, object client.Object) error {
	return a.Get(ctx, key, object)
}

func (a api) Pods(context.Context, string, string) ([]*corev1.Pod, error) {
	var pods []*corev1.Pod
	for _, name := range a.world.podNames() {
		pods = append(pods, a.world.pods[name].DeepCopy())
	}
	return pods, nil
}

func (api) List(context.Context, client.ObjectList, ...client.ListOption) error {
	return errors.ErrUnsupported
}

func (api) LiveList(context.Context, client.ObjectList, ...client.ListOption) error {
	return errors.ErrUnsupported
}

func (api) Create(context.Context, client.Object) error { return errors.ErrUnsupported }

// Update writes the members of the job.
func (a api) Update(_ context.Context, object client.Object) error {
	w, wanted := a.world, object.(*v2alpha1.Membership) //nolint:errcheck,forcetypeassert // di-server updates nothing else
	if w.membership == nil {
		return apierrors.NewNotFound(schema.GroupResource{}, wanted.Name)
	}
	if w.membership.ResourceVersion != wanted.ResourceVersion {
		return conflict(wanted)
	}
	w.changeMembers(serverAccount, wanted.Spec)
	w.membership.DeepCopyInto(wanted)
	return nil
}

// Patch patches the job, or its status.
func (a api) Patch(_ context.Context, object client.Object, subresource string, patch client.Patch) error {
	w := a.world
	wanted, err := w.patched(object, patch)
	switch {
	case err != nil:
		// The store would try again for as long as it may.
		w.t.Fatalf("the API server rejects a patch of the job: %v", err)
	case wanted.ResourceVersion != w.job.ResourceVersion:
		w.server.end()
		return conflict(object)
	}
	w.changeAs(serverAccount, subresource, func(job *v2alpha1.DIJob) { *job = *wanted })
	return nil
}

// patched returns the job with a patch, for which the client has edited an object.
func (w *world) patched(object client.Object, patch client.Patch) (*v2alpha1.DIJob, error) {
	content, err := patch.Data(object)
	if err != nil {
		return nil, err
	}
	stored, err := json.Marshal(w.job)
	if err != nil {
		return nil, err
	}
	if stored, err = applied(stored, patch.Type(), content); err != nil {
		return nil, err
	}
	wanted := &v2alpha1.DIJob{}
	return wanted, json.Unmarshal(stored, wanted)
}

// applied returns an object with a patch.
func applied(object []byte, kind types.PatchType, content []byte) ([]byte, error) {
	if kind == types.MergePatchType {
		return jsonpatch.MergePatch(object, content)
	}
	patch, err := jsonpatch.DecodePatch(content)
	if err != nil {
		return nil, err
	}
	return patch.Apply(object)
}

func conflict(object metav1.Object) error {
	return apierrors.NewConflict(schema.GroupResource{}, object.GetName(), errors.New("it has changed"))
}
