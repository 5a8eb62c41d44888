// Copyright The DI Orchestrator Authors.
// SPDX-License-Identifier: Apache-2.0

package discover

import (
	"context"
	"fmt"
	"net/http"
	"slices"
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/discovery"
	"k8s.io/client-go/rest"
	"k8s.io/utils/clock"
)

// ResizeResource is the subresource by which pods are resized in place.
const ResizeResource = "pods/resize"

// resizeInterval is the interval of requests for the subresource until the API server serves it. Once
// found, it is assumed to exist permanently.
const resizeInterval = time.Minute

// Resize detects whether the API server resizes pods in place. It sends requests on demand only, so
// clusters without changed resources have none.
type Resize struct {
	list  func(context.Context) (*metav1.APIResourceList, error)
	clock clock.PassiveClock

	// mutex guards the fields below.
	mutex    sync.Mutex
	isServed bool
	looked   time.Time
}

// NewResize returns a Resize.
func NewResize(config *rest.Config, client *http.Client) (*Resize, error) {
	api, err := discovery.NewDiscoveryClientForConfigAndClient(config, client)
	if err != nil {
		return nil, fmt.Errorf("creating the discovery client for %s: %w", ResizeResource, err)
	}
	list := func(ctx context.Context) (*metav1.APIResourceList, error) {
		return api.ServerResourcesForGroupVersionWithContext(ctx, corev1.SchemeGroupVersion.String())
	}
	return &Resize{list: list, clock: clock.RealClock{}}, nil
}

// IsServed reports whether the API server serves the subresource.
func (r *Resize) IsServed(ctx context.Context) (bool, error) {
	r.mutex.Lock()
	defer r.mutex.Unlock()
	if now := r.clock.Now(); r.isServed || !r.looked.IsZero() && now.Sub(r.looked) < resizeInterval {
		return r.isServed, nil
	}
	ctx, cancel := context.WithTimeout(ctx, listTimeout)
	defer cancel()
	found, err := r.list(ctx)
	if err != nil {
		return false, fmt.Errorf("asking whether %s is served: %w", ResizeResource, err)
	}
	r.isServed = slices.ContainsFunc(found.APIResources, func(resource metav1.APIResource) bool { return resource.Name == ResizeResource })
	r.looked = r.clock.Now()
	return r.isServed, nil
}
