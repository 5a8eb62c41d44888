// Copyright The DI Orchestrator Authors.
// SPDX-License-Identifier: Apache-2.0

package takeover

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"sync"
	"time"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	discoveryv1 "k8s.io/api/discovery/v1"
	"k8s.io/apimachinery/pkg/watch"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"opendilab.org/di-orchestrator/test/testkit"
	"opendilab.org/di-orchestrator/test/testkit/specs"
)

const (
	// earlierGrace is the grace period of pods of v1.1.3, whose di-server answers until it is killed.
	earlierGrace = 10 * time.Second
	// bridgeManager manages the EndpointSlices that install-crds writes.
	bridgeManager = "takeover.diengine.opendilab.org"
)

// endpoints are the EndpointSlices of Service di-server, as nodes learn of them.
type endpoints struct {
	mu     sync.Mutex
	known  map[string]discoveryv1.EndpointSlice
	failed []string
	// alone is how often only a ready pod got calls while another one terminated.
	alone int
}

// watchEndpoints checks where calls go after each change, until the spec ends.
func (p *plane) watchEndpoints(ctx context.Context) *endpoints {
	GinkgoHelper()
	e := &endpoints{known: map[string]discoveryv1.EndpointSlice{}}
	changes := specs.Must(p.api.Watch(ctx, &discoveryv1.EndpointSliceList{}, client.InNamespace(system),
		client.MatchingLabels{discoveryv1.LabelServiceName: "di-server"}))
	var done sync.WaitGroup
	done.Go(func() {
		for change := range changes.ResultChan() {
			if slice, is := change.Object.(*discoveryv1.EndpointSlice); is {
				e.observe(change.Type, slice)
			}
		}
	})
	DeferCleanup(func() {
		changes.Stop()
		done.Wait()
	})
	return e
}

func (e *endpoints) observe(change watch.EventType, slice *discoveryv1.EndpointSlice) {
	e.mu.Lock()
	defer e.mu.Unlock()
	delete(e.known, slice.Name)
	if change != watch.Deleted {
		e.known[slice.Name] = *slice
	}
	all := slices.Collect(maps.Values(e.known))
	written := slices.DeleteFunc(slices.Clone(all), func(slice discoveryv1.EndpointSlice) bool {
		return slice.Labels[discoveryv1.LabelManagedBy] == bridgeManager
	})
	for _, port := range []string{"", "v2"} {
		right, ready := testkit.PodsBehind(written, "di-server", port)
		pods, _ := testkit.PodsBehind(all, "di-server", port)
		switch {
		case !ready:
		case slices.ContainsFunc(pods, func(pod string) bool { return !slices.Contains(right, pod) }):
			e.failed = append(e.failed, fmt.Sprintf("port %q leads to %v, though %v are ready", port, pods, right))
		case slices.ContainsFunc(written, terminates):
			e.alone++
		}
	}
}

// terminates reports whether a pod of the slice terminates.
func terminates(slice discoveryv1.EndpointSlice) bool {
	return slices.ContainsFunc(slice.Endpoints, func(endpoint discoveryv1.Endpoint) bool { return *endpoint.Conditions.Terminating })
}

// expectOurs expects that calls went to ready pods alone when there were any, also while the earlier
// pod terminated, and that no bridge is left.
func (e *endpoints) expectOurs() {
	GinkgoHelper()
	e.mu.Lock()
	defer e.mu.Unlock()
	Expect(e.failed).To(BeEmpty())
	Expect(e.alone).To(BeNumerically(">", 0))
	for name, slice := range e.known {
		Expect(slice.Labels).NotTo(HaveKeyWithValue(discoveryv1.LabelManagedBy, bridgeManager), name)
	}
}
