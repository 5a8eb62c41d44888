// Copyright The DI Orchestrator Authors.
// SPDX-License-Identifier: Apache-2.0

package dijob

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/discovery"
	"k8s.io/utils/clock"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/cache"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/controller"
	"sigs.k8s.io/controller-runtime/pkg/event"
	"sigs.k8s.io/controller-runtime/pkg/handler"
	"sigs.k8s.io/controller-runtime/pkg/predicate"
	"sigs.k8s.io/controller-runtime/pkg/source"

	"opendilab.org/di-orchestrator/controllers"
	"opendilab.org/di-orchestrator/internal/gang"
	"opendilab.org/di-orchestrator/internal/lifecycle"
	"opendilab.org/di-orchestrator/internal/names"
)

// firstGroups is how long a job waits for the first list of an API's PodGroups
// before it is tried again later, so that one that cannot be listed is in the way
// of no other job.
const firstGroups = 5 * time.Second

// gangs finds out which schedulers gangs can be left to, and keeps what they have
// been told. Nothing is asked or watched until a job asks for a gang.
type gangs struct {
	setting       gang.Setting
	schedulerName string
	// serves asks the API server whether it serves an API.
	serves func(ctx context.Context, gvk schema.GroupVersionKind) (bool, error)
	// follow has the changes of a served API's PodGroups wake their jobs.
	follow func(gvk schema.GroupVersionKind) error
	// groups reads PodGroups, of those APIs that are followed.
	groups client.Reader
	now    func() time.Time

	// mutex guards what follows.
	mutex    sync.Mutex
	looked   time.Time
	served   []gang.Provider
	followed map[schema.GroupVersionKind]bool
}

// observeGang adds what there is of the job's gang, where that matters.
func (r *Reconciler) observeGang(ctx context.Context, observed *lifecycle.Observed) error {
	if r.gangs == nil || !lifecycle.MayBeGang(observed.Job, observed.Pods) {
		return nil
	}
	if err := r.gangs.observe(ctx, observed, 0); err != nil {
		return err
	}
	if len(observed.PodGroups) > 0 || lifecycle.IsFinished(&observed.Job.Status) {
		return nil
	}
	// Which scheduler is told of it is decided now, and one may have been installed.
	return r.gangs.observe(ctx, observed, lifecycle.GangRetryInterval/2)
}

// observe adds the schedulers that there are, of which the API server is asked
// again after so long, never for 0; and what they have been told of the job's gang.
func (g *gangs) observe(ctx context.Context, observed *lifecycle.Observed, age time.Duration) error {
	served, err := g.look(ctx, age)
	if err != nil {
		return err
	}
	observed.Gangs = lifecycle.Gangs{Setting: g.setting, Served: served}
	observed.PodGroups = nil
	ctx, cancel := context.WithTimeout(ctx, firstGroups)
	defer cancel()
	key := types.NamespacedName{Namespace: observed.Job.Namespace, Name: names.PodGroup(observed.Job.Name)}
	for i := range served {
		group, err := controllers.Find(ctx, g.groups, key, newGroup(served[i].GVK))
		if err != nil {
			return err
		}
		if group != nil && metav1.IsControlledBy(group, observed.Job) {
			observed.PodGroups = append(observed.PodGroups, group)
		}
	}
	return nil
}

func newGroup(gvk schema.GroupVersionKind) *unstructured.Unstructured {
	group := &unstructured.Unstructured{}
	group.SetGroupVersionKind(gvk)
	return group
}

// look returns the schedulers whose API is served, as it was found out no longer
// ago than an age, or ever for 0. An API server that does not answer leaves it at
// what was last found out.
func (g *gangs) look(ctx context.Context, age time.Duration) ([]gang.Provider, error) {
	g.mutex.Lock()
	defer g.mutex.Unlock()
	if now := g.now(); !g.looked.IsZero() && (age == 0 || now.Sub(g.looked) < age) {
		return g.served, nil
	}
	ctx, cancel := context.WithTimeout(ctx, firstGroups)
	defer cancel()
	served, err := g.findServed(ctx)
	switch {
	case err == nil:
		g.served = served
	case g.looked.IsZero():
		return nil, err
	}
	g.looked = g.now()
	return g.served, nil
}

// forget has it discover again which schedulers there are, as one that there was
// has gone.
func (g *gangs) forget() {
	g.mutex.Lock()
	defer g.mutex.Unlock()
	g.looked = time.Time{}
}

// findServed asks which schedulers' APIs are served, and follows them. The lock is held.
func (g *gangs) findServed(ctx context.Context) ([]gang.Provider, error) {
	var served []gang.Provider
	for _, provider := range gang.Providers() {
		// One version of an API is enough.
		if slices.ContainsFunc(served, func(other gang.Provider) bool { return other.Name == provider.Name }) {
			continue
		}
		is, err := g.serves(ctx, provider.GVK)
		if err != nil {
			return nil, err
		}
		if !is {
			continue
		}
		if err := g.start(provider.GVK); err != nil {
			return nil, err
		}
		if g.schedulerName != "" {
			provider.SchedulerName = g.schedulerName
		}
		served = append(served, provider)
	}
	return served, nil
}

// start follows an API, once. The lock is held.
func (g *gangs) start(gvk schema.GroupVersionKind) error {
	if g.followed[gvk] {
		return nil
	}
	if err := g.follow(gvk); err != nil {
		return fmt.Errorf("watching %s: %w", gvk, err)
	}
	if g.followed == nil {
		g.followed = map[schema.GroupVersionKind]bool{}
	}
	g.followed[gvk] = true
	return nil
}

// servesKind asks the API server whether it serves an API.
func servesKind(api *discovery.DiscoveryClient) func(context.Context, schema.GroupVersionKind) (bool, error) {
	return func(ctx context.Context, gvk schema.GroupVersionKind) (bool, error) {
		list, err := api.ServerResourcesForGroupVersionWithContext(ctx, gvk.GroupVersion().String())
		if apierrors.IsNotFound(err) {
			return false, nil
		}
		if err != nil {
			return false, fmt.Errorf("asking whether %s is served: %w", gvk, err)
		}
		return slices.ContainsFunc(list.APIResources, func(resource metav1.APIResource) bool { return resource.Kind == gvk.Kind }), nil
	}
}

// newGangs makes what follows the schedulers of gangs, by a cache of its own: it
// has the PodGroups of jobs only, of which schedulers make others for pods of
// their own, and APIs are added to it when they are first seen to be served.
func newGangs(mgr ctrl.Manager, options *Options) (*gangs, cache.Cache, error) {
	api, err := discovery.NewDiscoveryClientForConfigAndClient(mgr.GetConfig(), mgr.GetHTTPClient())
	if err != nil {
		return nil, nil, fmt.Errorf("making the client that asks which schedulers of gangs there are: %w", err)
	}
	groups, err := cache.New(mgr.GetConfig(), cache.Options{
		HTTPClient: mgr.GetHTTPClient(), Scheme: mgr.GetScheme(), Mapper: mgr.GetRESTMapper(),
		DefaultTransform:     cache.TransformStripManagedFields(),
		DefaultLabelSelector: labels.SelectorFromSet(labels.Set{names.LabelOperator: names.ControllerName}),
	})
	if err != nil {
		return nil, nil, fmt.Errorf("making the cache of PodGroups: %w", err)
	}
	if err := mgr.Add(groups); err != nil {
		return nil, nil, fmt.Errorf("adding the cache of PodGroups: %w", err)
	}
	return &gangs{
		setting: options.Gangs, schedulerName: options.GangSchedulerName, serves: servesKind(api), groups: groups, now: clock.RealClock{}.Now,
	}, groups, nil
}

// followBy has a controller watch the PodGroups of an API.
func followBy(watching controller.Controller, groups cache.Cache, owner handler.EventHandler) func(schema.GroupVersionKind) error {
	return func(gvk schema.GroupVersionKind) error {
		return watching.Watch(source.Kind[client.Object](groups, newGroup(gvk), owner, groupChanges()))
	}
}

// groupChanges lets the changes of a PodGroup pass that a decision may rest on.
// Volcano counts in it how many pods run, of which the pods tell as well.
func groupChanges() predicate.Predicate {
	return predicate.Funcs{UpdateFunc: func(update event.UpdateEvent) bool {
		before, okBefore := update.ObjectOld.(*unstructured.Unstructured)
		after, okAfter := update.ObjectNew.(*unstructured.Unstructured)
		if !okBefore || !okAfter {
			return false
		}
		provider := gang.ProviderOf(gang.Providers(), after.GroupVersionKind())
		return provider == nil || before.GetDeletionTimestamp().IsZero() != after.GetDeletionTimestamp().IsZero() ||
			provider.Least(before) != provider.Least(after) || provider.Read(before) != provider.Read(after)
	}}
}

// writePodGroup brings the object of the job's gang to what the creation of pods
// rests on. Only what differs is written, as its scheduler writes into it too. What
// is not found may be the kind, as its scheduler was uninstalled.
func (r *Reconciler) writePodGroup(ctx context.Context, observed *lifecycle.Observed, decision *lifecycle.Decision) effect {
	done := r.putPodGroup(ctx, observed, decision)
	if apierrors.IsNotFound(done.err) || meta.IsNoMatchError(done.err) {
		r.gangs.forget()
	}
	return done
}

func (r *Reconciler) putPodGroup(ctx context.Context, observed *lifecycle.Observed, decision *lifecycle.Decision) effect {
	switch {
	case decision.CreatePodGroup != nil:
		return r.create(ctx, observed.Job, decision.CreatePodGroup, nil)
	case decision.UpdatePodGroup != nil:
		return r.patchPodGroup(ctx, observed, decision.UpdatePodGroup)
	}
	return effect{}
}

func (r *Reconciler) patchPodGroup(ctx context.Context, observed *lifecycle.Observed, wanted *unstructured.Unstructured) effect {
	content := changesTo(func(client.Object) client.Object { return observed.PodGroups[0] })
	return r.write(ctx, observed, verbUpdate, []client.Object{wanted}, content, func(ctx context.Context, _ client.Object) effect {
		if err := r.client.Patch(ctx, wanted, client.MergeFrom(observed.PodGroups[0]), controllers.FieldOwner); err != nil {
			return effect{err: fmt.Errorf("patching %s %s/%s: %w", typeOf(wanted), wanted.GetNamespace(), wanted.GetName(), err)}
		}
		r.assumed.add(observed.Job, wanted, r.now())
		return effect{}
	})[0]
}

// errGoing is what a create ends in where the object of the name is being deleted.
var errGoing = errors.New("is still being deleted")

// typeOf says of what type an object is.
func typeOf(object client.Object) string {
	if _, is := object.(*unstructured.Unstructured); is {
		return object.GetObjectKind().GroupVersionKind().GroupKind().String()
	}
	return fmt.Sprintf("%T", object)
}
