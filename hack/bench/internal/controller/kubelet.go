// Copyright The DI Orchestrator Authors.
// SPDX-License-Identifier: Apache-2.0

package controller

import (
	"context"
	"fmt"
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"

	"opendilab.org/di-orchestrator/hack/bench/internal/harness"
	"opendilab.org/di-orchestrator/internal/testkit/pace"
)

const (
	// progressEvery is the interval between two lines of progress.
	progressEvery = 2 * time.Second
	pollEvery     = 10 * time.Millisecond
)

// tally counts the pods of a namespace, with the creation time of the last.
type tally struct {
	pods, ready int
	created     time.Time
}

// kubelet runs each pod once it exists and counts the pods.
type kubelet struct {
	harness.Kubelet

	mutex sync.Mutex
	// mutex guards all fields below. ready is by the UID of each pod.
	ready   map[types.UID]bool
	tallies map[string]*tally
}

// startKubelet starts a kubelet and returns when it has observed all pods.
func startKubelet(ctx context.Context, w *world) (*kubelet, error) {
	user, err := w.User(userKubelet)
	if err != nil {
		return nil, err
	}
	k := &kubelet{ready: map[types.UID]bool{}, tallies: map[string]*tally{}}
	k.Config, k.Seen = user.Config(), k.count
	return k, k.Start(ctx)
}

// count counts a pod once when it is created, ready and deleted.
func (k *kubelet) count(pod *corev1.Pod, gone bool) {
	k.mutex.Lock()
	defer k.mutex.Unlock()
	of := k.tallies[pod.Namespace]
	if of == nil {
		of = &tally{}
		k.tallies[pod.Namespace] = of
	}
	wasReady, known := k.ready[pod.UID]
	if !known {
		of.pods++
		of.created = time.Now()
	}
	isReady := !gone && pod.Status.Phase == corev1.PodRunning
	switch {
	case isReady && !wasReady:
		of.ready++
	case wasReady && !isReady:
		of.ready--
	}
	k.ready[pod.UID] = isReady
	if gone {
		of.pods--
		delete(k.ready, pod.UID)
	}
}

// in returns the tally of a namespace.
func (k *kubelet) in(namespace string) tally {
	k.mutex.Lock()
	defer k.mutex.Unlock()
	if of := k.tallies[namespace]; of != nil {
		return *of
	}
	return tally{}
}

// waitFor returns when a count has reached the target.
func (w *world) waitFor(ctx context.Context, what string, every time.Duration, wanted int, count func() (int, error)) error {
	ctx, cancel := context.WithTimeoutCause(ctx, harness.Patience, fmt.Errorf("%s take too long", what))
	defer cancel()
	said := time.Now()
	for {
		have, err := count()
		if err != nil || have >= wanted {
			return err
		}
		if time.Since(said) > progressEvery {
			said = time.Now()
			w.Say("%s: %d of %d", what, have, wanted)
		}
		if err := pace.Pause(ctx, every); err != nil {
			return err
		}
	}
}
