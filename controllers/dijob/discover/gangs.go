// Copyright The DI Orchestrator Authors.
// SPDX-License-Identifier: Apache-2.0

// Package discover detects which gang schedulers are installed, and whether Kueue is installed.
package discover

import (
	"context"
	"fmt"
	"slices"
	"sync"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
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
	"opendilab.org/di-orchestrator/internal/names"
	"opendilab.org/di-orchestrator/internal/scope"
	"opendilab.org/di-orchestrator/job/gang"
	"opendilab.org/di-orchestrator/job/lifecycle"
	"opendilab.org/di-orchestrator/job/lifecycle/state"
)

// listTimeout bounds the first list of an API's PodGroups, so that an API that cannot be listed does not
// block other jobs.
const listTimeout = 5 * time.Second

// Gangs discovers the installed gang schedulers and reads PodGroups. It sends no request and watches
// nothing until a job needs a gang.
type Gangs struct {
	Setting       gang.Setting
	SchedulerName string
	// Serves reports whether the API server serves an API.
	Serves func(ctx context.Context, gvk schema.GroupVersionKind) (bool, error)
	// Follow watches the PodGroups of a served API and reconciles their jobs.
	Follow func(gvk schema.GroupVersionKind) error
	// Groups reads PodGroups of the followed APIs.
	Groups client.Reader
	Clock  clock.PassiveClock

	// mutex guards the fields below.
	mutex    sync.Mutex
	looked   time.Time
	served   []gang.Provider
	followed map[schema.GroupVersionKind]bool
}

// Observe adds the installed schedulers and the job's PodGroups. It repeats the discovery if the last one
// is older than age. An age of 0 accepts any result.
func (g *Gangs) Observe(ctx context.Context, observed *lifecycle.Observed, age time.Duration) error {
	served, err := g.discover(ctx, age)
	if err != nil {
		return err
	}
	observed.Gangs = state.Gangs{Setting: g.Setting, Served: served}
	observed.PodGroups = nil
	observed.LeftBehind = slices.DeleteFunc(observed.LeftBehind, func(object state.Object) bool {
		_, isGroup := object.(*unstructured.Unstructured)
		return isGroup
	})
	ctx, cancel := context.WithTimeout(ctx, listTimeout)
	defer cancel()
	key := types.NamespacedName{Namespace: observed.Job.Namespace, Name: names.PodGroup(observed.Job.Name)}
	for i := range served {
		group, err := controllers.Find(ctx, g.Groups, key, NewGroup(served[i].GVK))
		if err != nil {
			return err
		}
		switch {
		case group == nil:
		case metav1.IsControlledBy(group, observed.Job):
			observed.PodGroups = append(observed.PodGroups, group)
		case slices.Contains(controllers.OwnerName(group), observed.Job.Name):
			observed.LeftBehind = append(observed.LeftBehind, group)
		}
	}
	return nil
}

// NewGroup returns an empty PodGroup of an API.
func NewGroup(gvk schema.GroupVersionKind) *unstructured.Unstructured {
	group := &unstructured.Unstructured{}
	group.SetGroupVersionKind(gvk)
	return group
}

// discover returns the schedulers whose API is served. If the API server does not answer, it returns the
// last result.
func (g *Gangs) discover(ctx context.Context, age time.Duration) ([]gang.Provider, error) {
	g.mutex.Lock()
	defer g.mutex.Unlock()
	if now := g.Clock.Now(); !g.looked.IsZero() && (age == 0 || now.Sub(g.looked) < age) {
		return g.served, nil
	}
	ctx, cancel := context.WithTimeout(ctx, listTimeout)
	defer cancel()
	served, err := g.findServed(ctx)
	switch {
	case err == nil:
		g.served = served
	case g.looked.IsZero():
		return nil, err
	}
	g.looked = g.Clock.Now()
	return g.served, nil
}

// Forget makes the next reconcile discover the schedulers again, because one of them was uninstalled.
func (g *Gangs) Forget() {
	g.mutex.Lock()
	defer g.mutex.Unlock()
	g.looked = time.Time{}
}

// findServed discovers which schedulers' APIs are served, and follows them. The caller holds the lock.
func (g *Gangs) findServed(ctx context.Context) ([]gang.Provider, error) {
	var served []gang.Provider
	for _, provider := range gang.Providers() {
		// One version of an API is enough.
		if slices.ContainsFunc(served, func(other gang.Provider) bool { return other.Name == provider.Name }) {
			continue
		}
		is, err := g.Serves(ctx, provider.GVK)
		if err != nil {
			return nil, err
		}
		if !is {
			continue
		}
		if err := g.start(provider.GVK); err != nil {
			return nil, err
		}
		if g.SchedulerName != "" {
			provider.SchedulerName = g.SchedulerName
		}
		served = append(served, provider)
	}
	return served, nil
}

// start follows an API, once. The caller holds the lock.
func (g *Gangs) start(gvk schema.GroupVersionKind) error {
	if g.followed[gvk] {
		return nil
	}
	if err := g.Follow(gvk); err != nil {
		return fmt.Errorf("watching %s: %w", gvk, err)
	}
	if g.followed == nil {
		g.followed = map[schema.GroupVersionKind]bool{}
	}
	g.followed[gvk] = true
	return nil
}

// ServesKind returns a function that reports whether the API server serves an API.
func ServesKind(api *discovery.DiscoveryClient) func(context.Context, schema.GroupVersionKind) (bool, error) {
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

// NewGangs returns Gangs with a separate cache. The cache has only the PodGroups of jobs, because
// schedulers create others for their own pods. An API is added when it is first found to be served.
func NewGangs(mgr ctrl.Manager, setting gang.Setting, schedulerName string, namespaces scope.Namespaces) (*Gangs, func(controller.Controller, handler.EventHandler), error) {
	api, err := discovery.NewDiscoveryClientForConfigAndClient(mgr.GetConfig(), mgr.GetHTTPClient())
	if err != nil {
		return nil, nil, fmt.Errorf("creating the discovery client for gang schedulers: %w", err)
	}
	groups, err := cache.New(mgr.GetConfig(), namespaces.Cache(cache.Options{
		HTTPClient: mgr.GetHTTPClient(), Scheme: mgr.GetScheme(), Mapper: mgr.GetRESTMapper(),
		DefaultTransform:     cache.TransformStripManagedFields(),
		DefaultLabelSelector: labels.SelectorFromSet(labels.Set{names.LabelOperator: names.ControllerName}),
	}))
	if err != nil {
		return nil, nil, fmt.Errorf("creating the cache of PodGroups: %w", err)
	}
	if err := controllers.AddCache(mgr, groups); err != nil {
		return nil, nil, fmt.Errorf("adding the cache of PodGroups: %w", err)
	}
	gangs := &Gangs{Setting: setting, SchedulerName: schedulerName, Serves: ServesKind(api), Groups: groups, Clock: clock.RealClock{}}
	follow := func(watching controller.Controller, owner handler.EventHandler) {
		gangs.Follow = func(gvk schema.GroupVersionKind) error {
			return watching.Watch(source.Kind[client.Object](groups, NewGroup(gvk), owner, GroupChanges()))
		}
	}
	return gangs, follow, nil
}

// GroupChanges passes the changes of a PodGroup that a decision may depend on. It ignores Volcano's count
// of running pods, because the events of the pods report the same change.
func GroupChanges() predicate.Predicate {
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
