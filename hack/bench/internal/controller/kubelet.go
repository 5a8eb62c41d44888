// Copyright The DI Orchestrator Authors.
// SPDX-License-Identifier: Apache-2.0

package controller

import (
	"context"
	"fmt"
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/metadata"
	"k8s.io/client-go/metadata/metadatainformer"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/cache"

	"opendilab.org/di-orchestrator/hack/bench/internal/harness"
	"opendilab.org/di-orchestrator/internal/names"
	"opendilab.org/di-orchestrator/internal/testkit/controlplane"
	"opendilab.org/di-orchestrator/internal/testkit/pace"
)

const (
	// progressEvery is how often is said how far something has come.
	progressEvery = 2 * time.Second
	pollEvery     = 10 * time.Millisecond
	// dyingDelay is how long a deletion may take that the API server does alone.
	dyingDelay = time.Second
)

// jobKey names a job.
type jobKey struct{ namespace, name string }

// tally is what there is of one job.
type tally struct {
	// pods and ready count what is there now.
	pods, ready int
	// created and running are when the last of them came, as the kubelet saw it.
	created, running time.Time
}

// tallies are what there is of all jobs.
type tallies map[jobKey]*tally

// total counts over all jobs.
func (t tallies) total() tally {
	var total tally
	for _, one := range t {
		total.pods += one.pods
		total.ready += one.ready
		if one.created.After(total.created) {
			total.created = one.created
		}
		if one.running.After(total.running) {
			total.running = one.running
		}
	}
	return total
}

// kubelet makes each pod run as soon as it exists, through the status that a
// kubelet writes. It sees pods' metadata only, so what it costs does not grow
// with what pods hold. Pods are bound to no node, so those that are deleted go
// at once, unless who deletes them is killed meanwhile: the kubelet deletes
// these, as the garbage collector of pods does in a cluster.
type kubelet struct {
	*harness.Kubelet

	pods metadata.Getter

	// mutex guards what follows.
	mutex sync.Mutex
	// known are the pods there are.
	known   map[types.NamespacedName]*podState
	tallies tallies
	// pause is how long it waits after each pod that it makes run.
	pause time.Duration
}

// podState is what the kubelet knows of a pod.
type podState struct {
	uid   types.UID
	job   jobKey
	ready bool
	// dying: its deletion has begun.
	dying bool
}

// startKubelet starts a kubelet and returns when it sees all pods.
func startKubelet(ctx context.Context, plane *controlplane.Plane) (*kubelet, error) {
	user, err := plane.User(userKubelet)
	if err != nil {
		return nil, err
	}
	config := rest.CopyConfig(user.Config())
	config.QPS = -1
	api, err := metadata.NewForConfig(config)
	if err != nil {
		return nil, fmt.Errorf("starting the kubelet: %w", err)
	}
	pods := corev1.SchemeGroupVersion.WithResource("pods")
	k := &kubelet{pods: api.Resource(pods), known: map[types.NamespacedName]*podState{}, tallies: tallies{}}
	k.Kubelet = harness.NewKubelet(k.start)
	informer := metadatainformer.NewFilteredMetadataInformer(api, pods, metav1.NamespaceAll, 0, cache.Indexers{}, nil).Informer()
	return k, k.Start(ctx, informer, cache.ResourceEventHandlerFuncs{
		AddFunc:    k.see,
		UpdateFunc: func(_, after any) { k.see(after) },
		DeleteFunc: k.forget,
	})
}

// see notes a pod that is new, or has the name of one that went.
func (k *kubelet) see(object any) {
	pod, ok := object.(*metav1.PartialObjectMetadata)
	if !ok {
		return
	}
	key := types.NamespacedName{Namespace: pod.Namespace, Name: pod.Name}
	k.mutex.Lock()
	defer k.mutex.Unlock()
	if known := k.known[key]; known != nil {
		if known.uid == pod.UID {
			if !known.dying && pod.DeletionTimestamp != nil {
				known.dying = true
				k.Due(key, dyingDelay)
			}
			return
		}
		k.drop(key)
	}
	state := &podState{uid: pod.UID, job: jobKey{pod.Namespace, pod.Labels[names.LabelJob]}}
	k.known[key] = state
	of := k.tallies[state.job]
	if of == nil {
		of = &tally{}
		k.tallies[state.job] = of
	}
	of.pods++
	of.created = time.Now()
	k.Due(key, 0)
}

func (k *kubelet) forget(object any) {
	if gone, ok := object.(cache.DeletedFinalStateUnknown); ok {
		object = gone.Obj
	}
	if pod, ok := object.(*metav1.PartialObjectMetadata); ok {
		k.mutex.Lock()
		defer k.mutex.Unlock()
		k.drop(types.NamespacedName{Namespace: pod.Namespace, Name: pod.Name})
	}
}

// drop is called with the mutex held.
func (k *kubelet) drop(key types.NamespacedName) {
	state := k.known[key]
	if state == nil {
		return
	}
	delete(k.known, key)
	of := k.tallies[state.job]
	of.pods--
	if state.ready {
		of.ready--
	}
	if of.pods == 0 {
		delete(k.tallies, state.job)
	}
}

// start makes a pod run, or ends it.
func (k *kubelet) start(ctx context.Context, key types.NamespacedName) error {
	k.mutex.Lock()
	var dying bool
	state, pause := k.known[key], k.pause
	if state != nil {
		dying = state.dying
	}
	k.mutex.Unlock()
	if state == nil {
		return nil
	}
	if dying {
		return k.finish(ctx, key, state.uid)
	}
	if err := k.setRunning(ctx, key, state.uid); err != nil {
		return err
	}
	k.mutex.Lock()
	if k.known[key] == state && !state.ready {
		state.ready = true
		of := k.tallies[state.job]
		of.ready++
		of.running = time.Now()
	}
	k.mutex.Unlock()
	if pause > 0 {
		return pace.Pause(ctx, pause)
	}
	return nil
}

// finish deletes a pod whose deletion has begun.
func (k *kubelet) finish(ctx context.Context, key types.NamespacedName, uid types.UID) error {
	err := k.pods.Namespace(key.Namespace).Delete(ctx, key.Name, harness.AtOnce(uid))
	if err != nil && !apierrors.IsNotFound(err) && !apierrors.IsConflict(err) {
		return fmt.Errorf("deleting pod %s: %w", key, err)
	}
	return nil
}

// setRunning writes the status of a pod, unless the pod is gone.
func (k *kubelet) setRunning(ctx context.Context, key types.NamespacedName, uid types.UID) error {
	_, err := k.pods.Namespace(key.Namespace).Patch(ctx, key.Name, types.StrategicMergePatchType,
		fmt.Appendf(nil, harness.Running, uid), metav1.PatchOptions{}, "status")
	if apierrors.IsNotFound(err) || apierrors.IsConflict(err) || apierrors.IsInvalid(err) {
		return nil
	}
	if err != nil {
		return fmt.Errorf("writing the status of pod %s: %w", key, err)
	}
	return nil
}

// read gives what there is to a function, which may keep nothing of it.
func (k *kubelet) read(give func(tallies)) error {
	k.mutex.Lock()
	defer k.mutex.Unlock()
	give(k.tallies)
	return k.Err()
}

// setPause says how long it is to wait after each pod from now on.
func (k *kubelet) setPause(pause time.Duration) {
	k.mutex.Lock()
	defer k.mutex.Unlock()
	k.pause = pause
}

// wait returns when so much of what is counted is there as is wanted.
func (k *kubelet) wait(ctx context.Context, w *harness.World, what string, count func(tallies) (have, wanted int)) error {
	ctx, cancel := context.WithTimeoutCause(ctx, harness.Patience, fmt.Errorf("%s take too long", what))
	defer cancel()
	said := time.Now()
	for {
		var have, wanted int
		if err := k.read(func(of tallies) { have, wanted = count(of) }); err != nil {
			return err
		}
		if have >= wanted {
			return nil
		}
		if time.Since(said) > progressEvery {
			said = time.Now()
			w.Say("%s: %d of %d", what, have, wanted)
		}
		if err := pace.Pause(ctx, pollEvery); err != nil {
			return err
		}
	}
}
