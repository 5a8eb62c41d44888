// Copyright The DI Orchestrator Authors.
// SPDX-License-Identifier: Apache-2.0

package takeover

import (
	"context"
	"encoding/json"
	"fmt"
	"slices"
	"time"

	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"opendilab.org/di-orchestrator/internal/names"
)

// DefaultSettle is how long to wait by default until nodes have learned of Services and endpoints.
const DefaultSettle = 5 * time.Second

// unchanged measures how long a value has been the same. A new process starts from zero, which only
// makes the takeover wait longer.
type unchanged struct {
	seen  string
	since time.Time
}

func (l *unchanged) observe(seen string, now time.Time) time.Duration {
	if l.since.IsZero() || l.seen != seen {
		*l = unchanged{seen: seen, since: now}
	}
	return now.Sub(l.since)
}

// route contains the Services and where they lead.
type route struct {
	services []corev1.Service
	slices   []discoveryv1.EndpointSlice
}

// route reads where Services lead. It ignores Services that cannot lead to our di-server.
func (r *Runner) route(ctx context.Context) (*route, error) {
	found := &route{}
	for _, name := range earlierServices() {
		service, err := serviceOf(ctx, r.options.API, r.options.Namespace, name)
		if err != nil {
			return nil, err
		}
		if service != nil && selectsOurs(service) {
			found.services = append(found.services, *service)
		}
	}
	if len(found.services) == 0 {
		return found, nil
	}
	list, err := slicesOf(ctx, r.options.API, r.options.Namespace)
	found.slices = list
	return found, err
}

// serviceOf returns a Service, and nil if there is none.
func serviceOf(ctx context.Context, api client.Reader, namespace, name string) (*corev1.Service, error) {
	service := &corev1.Service{}
	err := api.Get(ctx, client.ObjectKey{Namespace: namespace, Name: name}, service)
	if apierrors.IsNotFound(err) {
		return nil, nil
	}
	if err != nil {
		return nil, fmt.Errorf("getting Service %s/%s: %w", namespace, name, err)
	}
	return service, nil
}

func slicesOf(ctx context.Context, api client.Reader, namespace string) ([]discoveryv1.EndpointSlice, error) {
	var list discoveryv1.EndpointSliceList
	if err := api.List(ctx, &list, client.InNamespace(namespace)); err != nil {
		return nil, fmt.Errorf("listing EndpointSlices of namespace %s: %w", namespace, err)
	}
	return list.Items, nil
}

// observe records where Services lead and whether our di-server is ready behind them.
func (r *route) observe(observed *Observed, ours []string, earlier []string) {
	for i := range r.services {
		if isNarrow(&r.services[i]) {
			observed.Narrow = append(observed.Narrow, r.services[i].Name)
		} else {
			observed.Wide = append(observed.Wide, r.services[i].Name)
		}
	}
	for i := range r.slices {
		slice := &r.slices[i]
		if isBridge(slice) {
			observed.Bridges = append(observed.Bridges, slice.Name)
		}
		for _, pod := range earlier {
			listed := slices.ContainsFunc(r.services, func(service corev1.Service) bool { return lists(slice, service.Name, pod) })
			if listed && !slices.Contains(observed.Listed, pod) {
				observed.Listed = append(observed.Listed, pod)
			}
		}
	}
	observed.ServerReady = slices.ContainsFunc(ours, r.leadsTo)
}

// leadsTo reports whether each port of each Service leads to a pod.
func (r *route) leadsTo(pod string) bool {
	for i := range r.services {
		service := &r.services[i]
		for _, port := range service.Spec.Ports {
			if !slices.ContainsFunc(r.slices, func(slice discoveryv1.EndpointSlice) bool { return leads(&slice, service.Name, port.Name, pod) }) {
				return false
			}
		}
	}
	return true
}

// ports returns the names of all ports.
func (r *route) ports() string {
	var all []string
	for i := range r.services {
		for _, port := range r.services[i].Spec.Ports {
			all = append(all, fmt.Sprintf("%s:%s/%d", r.services[i].Name, port.Name, port.Port))
		}
	}
	return fmt.Sprint(all)
}

// drain removes the pods of the earlier di-server from all endpoints. Ours are already listed, so
// nodes learn of ours before the earlier pods disappear.
func (r *Runner) drain(ctx context.Context, observed *Observed) error {
	for _, name := range observed.Wide {
		if err := r.selectBy(ctx, name, ourName); err != nil {
			return err
		}
	}
	return r.deleteBridges(ctx, observed)
}

// restore restores the selectors of the Services.
func (r *Runner) restore(ctx context.Context, observed *Observed) error {
	for _, name := range observed.Narrow {
		if err := r.selectBy(ctx, name, nil); err != nil {
			return err
		}
	}
	return r.deleteBridges(ctx, observed)
}

// selectBy adds our label to the selector of a Service, or removes it.
func (r *Runner) selectBy(ctx context.Context, name string, value any) error {
	patch, err := json.Marshal(map[string]any{"spec": map[string]any{"selector": map[string]any{ourLabel: value}}})
	if err != nil {
		return fmt.Errorf("encoding the selector of Service %s: %w", name, err)
	}
	service := &corev1.Service{ObjectMeta: metav1.ObjectMeta{Namespace: r.options.Namespace, Name: name}}
	err = r.options.API.Patch(ctx, service, client.RawPatch(types.MergePatchType, patch), fieldManager)
	if client.IgnoreNotFound(err) != nil {
		return fmt.Errorf("changing the selector of Service %s/%s: %w", r.options.Namespace, name, err)
	}
	return nil
}

func (r *Runner) deleteBridges(ctx context.Context, observed *Observed) error {
	for _, name := range observed.Bridges {
		slice := &discoveryv1.EndpointSlice{ObjectMeta: metav1.ObjectMeta{Namespace: r.options.Namespace, Name: name}}
		if err := client.IgnoreNotFound(r.options.API.Delete(ctx, slice)); err != nil {
			return fmt.Errorf("deleting EndpointSlice %s/%s: %w", r.options.Namespace, name, err)
		}
	}
	return nil
}

// isEarlierServer reports whether a pod is one of an earlier di-server.
func isEarlierServer(pod *corev1.Pod) bool { return earlierOf(pod) == names.EarlierServer }
