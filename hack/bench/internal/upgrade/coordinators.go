// Copyright The DI Orchestrator Authors.
// SPDX-License-Identifier: Apache-2.0

package upgrade

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"opendilab.org/di-orchestrator/internal/testkit/coordinator"
	"opendilab.org/di-orchestrator/internal/testkit/pace"
	"opendilab.org/di-orchestrator/internal/testkit/program"
)

// pollEvery is the interval at which a coordinator polls di-server.
const pollEvery = time.Second

// strict simulates deployed coordinators. Any answer but a list ends a coordinator. So does a URL
// that leaves the list, when the coordinator notices it.
type strict struct {
	by []coordinator.Caller
	// address is the address of di-server.
	address string

	mutex sync.Mutex
	// known are the URLs in answers to each coordinator. The mutex guards it.
	known []map[string]bool
}

// newStrict returns coordinators by the names of their pods.
func newStrict(address string, pods []string) *strict {
	s := &strict{address: address, known: make([]map[string]bool, len(pods))}
	for i, pod := range pods {
		s.by = append(s.by, coordinator.Caller{From: coordinator.Address(i, 0), Namespace: namespace, Pod: pod})
		s.known[i] = map[string]bool{}
	}
	return s
}

// prober polls for all coordinators, each at its interval, over a new connection each time.
func (s *strict) prober() *pace.Prober {
	return &pace.Prober{
		Name: fmt.Sprintf("%d coordinators", len(s.by)), Every: pollEvery / time.Duration(len(s.by)),
		Call: func(ctx context.Context, number int) error { return s.poll(ctx, number%len(s.by)) },
	}
}

func (s *strict) poll(ctx context.Context, i int) error {
	line := coordinator.NewLine(s.address, &s.by[i], false)
	defer line.Close()
	listed, err := line.List(ctx)
	if err != nil {
		return fmt.Errorf("%s: %w", s.by[i].Pod, err)
	}
	s.mutex.Lock()
	defer s.mutex.Unlock()
	if gone := learn(s.known[i], listed); len(gone) > 0 {
		return fmt.Errorf("%s: no longer listed: %s", s.by[i].Pod, strings.Join(gone, ", "))
	}
	return nil
}

// learn adds the listed URLs to the known ones and returns those that are no longer listed.
func learn(known map[string]bool, listed []string) []string {
	var gone []string
	for url := range known {
		if !slices.Contains(listed, url) {
			gone = append(gone, url)
		}
	}
	for _, url := range listed {
		known[url] = true
	}
	slices.Sort(gone)
	return gone
}

// urls returns the total number of URLs that the coordinators know.
func (s *strict) urls() int {
	s.mutex.Lock()
	defer s.mutex.Unlock()
	total := 0
	for _, known := range s.known {
		total += len(known)
	}
	return total
}

// addressPods assigns coordinators their source addresses. di-server delays answers to callers at
// unknown addresses.
func (w *world) addressPods(ctx context.Context, pods []string) error {
	for i, name := range pods {
		address := coordinator.Address(i, 0)
		pod := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: name}}
		patch := client.RawPatch(types.StrategicMergePatchType, fmt.Appendf(nil, `{"status":{"podIP":%q,"podIPs":[{"ip":%q}]}}`, address, address))
		if err := w.API.Status().Patch(ctx, pod, patch); err != nil {
			return fmt.Errorf("writing the address of pod %s: %w", name, err)
		}
	}
	return nil
}

// startServers starts two di-servers behind a Service with session affinity. They accept callers
// without identity, as after a takeover.
func (w *world) startServers(ctx context.Context) (err error) {
	w.Say("starting two di-servers")
	if w.calls, err = startService(ctx, true); err != nil {
		return err
	}
	w.servers = &deployment{name: "di-server", service: w.calls, start: func(ctx context.Context) (*program.Process, error) {
		return w.StartServer(ctx, "--identity", "legacy")
	}}
	for range 2 {
		if err := w.servers.add(ctx); err != nil {
			return err
		}
	}
	return nil
}
