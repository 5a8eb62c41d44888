// Copyright The DI Orchestrator Authors.
// SPDX-License-Identifier: Apache-2.0

package sharding

import (
	"context"
	"encoding/json"
	"fmt"
	"os"
	"time"

	coordinationv1 "k8s.io/api/coordination/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/uuid"
	"k8s.io/client-go/kubernetes/scheme"
	coordinationclient "k8s.io/client-go/kubernetes/typed/coordination/v1"
	coreclient "k8s.io/client-go/kubernetes/typed/core/v1"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/leaderelection/resourcelock"
	"k8s.io/client-go/tools/record"
	"k8s.io/utils/clock"
	"k8s.io/utils/ptr"

	"opendilab.org/di-orchestrator/controllers"
	"opendilab.org/di-orchestrator/controllers/shards"
)

const (
	// labelLease marks the leader's Lease and those of shards, with the leader's name.
	labelLease = "diengine/lease"
	// annotationCharter is the declaration of the leader, and annotationAsk the request of an operator.
	annotationCharter = "diengine/shards"
	annotationAsk     = "diengine/asked-by"
	// maxLeases is how many Leases there may be: the leader's, and those of every number of shards.
	maxLeases = 1 + shards.Max*(shards.Max+1)/2
)

// Leases are the Leases of one installation.
type Leases struct {
	api      coordinationclient.LeasesGetter
	events   resourcelock.EventRecorder
	key      types.NamespacedName
	identity string
	clock    clock.WithDelayedExecution
	// changed is signalled when this process has taken a Lease, or changed an annotation.
	changed chan struct{}
	// lost has the reason when a Lease is lost.
	lost chan error
}

// NewLeases returns the Leases of the leader with a name, and of its shards.
func NewLeases(ctx context.Context, config *rest.Config, leader types.NamespacedName) (*Leases, error) {
	host, err := os.Hostname()
	if err != nil {
		return nil, fmt.Errorf("finding the name of this host: %w", err)
	}
	// AddUserAgent changes the config that it is given, which is that of all other requests, too.
	config = rest.AddUserAgent(rest.CopyConfig(config), "leader-election")
	config.Timeout = requestTimeout
	api, err := coordinationclient.NewForConfig(config)
	if err != nil {
		return nil, fmt.Errorf("making the client of Leases: %w", err)
	}
	core, err := coreclient.NewForConfig(config)
	if err != nil {
		return nil, fmt.Errorf("making the client of Events of Leases: %w", err)
	}
	broadcaster := record.NewBroadcaster(record.WithContext(ctx))
	broadcaster.StartRecordingToSink(&coreclient.EventSinkImpl{Interface: core.Events(leader.Namespace)})
	recorder := broadcaster.NewRecorder(scheme.Scheme, corev1.EventSource{Component: "di-orchestrator"})
	return newLeases(api, recorder, leader, host+"_"+string(uuid.NewUUID()), clock.RealClock{}), nil
}

func newLeases(api coordinationclient.LeasesGetter, events resourcelock.EventRecorder, leader types.NamespacedName, identity string, clock clock.WithDelayedExecution) *Leases {
	return &Leases{api: api, events: events, key: leader, identity: identity, clock: clock, changed: make(chan struct{}, 1), lost: make(chan error, 1)}
}

// Lock returns the lock of the leader.
func (l *Leases) Lock() resourcelock.Interface { return l.lock(l.key.Name) }

func (l *Leases) lock(name string) *guard {
	return &guard{clock: l.clock, lost: l.lose, Interface: &resourcelock.LeaseLock{
		LeaseMeta: metav1.ObjectMeta{Namespace: l.key.Namespace, Name: name}, Client: l.api,
		LockConfig: resourcelock.ResourceLockConfig{Identity: l.identity, EventRecorder: l.events}, Labels: map[string]string{labelLease: l.key.Name},
	}}
}

// wake makes the election read the Leases at once.
func (l *Leases) wake() {
	select {
	case l.changed <- struct{}{}:
	default:
	}
}

// list reads all Leases at one time.
func (l *Leases) list(ctx context.Context) ([]shards.Lease, error) {
	found, err := l.api.Leases(l.key.Namespace).List(ctx, metav1.ListOptions{LabelSelector: labelLease + "=" + l.key.Name, Limit: maxLeases})
	if err != nil {
		return nil, fmt.Errorf("listing Leases: %w", err)
	}
	if found.Continue != "" {
		return nil, fmt.Errorf("there are more than %d Leases with label %s", maxLeases, labelLease)
	}
	all := make([]shards.Lease, len(found.Items))
	for i := range found.Items {
		all[i] = leaseOf(&found.Items[i])
	}
	return all, nil
}

func leaseOf(lease *coordinationv1.Lease) shards.Lease {
	return shards.Lease{
		Name: lease.Name, Holder: ptr.Deref(lease.Spec.HolderIdentity, ""),
		Renewed:  ptr.Deref(lease.Spec.RenewTime, metav1.MicroTime{}).Time,
		Duration: time.Duration(ptr.Deref(lease.Spec.LeaseDurationSeconds, 0)) * time.Second,
		Charter:  lease.Annotations[annotationCharter], Ask: lease.Annotations[annotationAsk],
	}
}

// annotate sets an annotation of a Lease.
func (l *Leases) annotate(ctx context.Context, name, annotation, value string) error {
	patch, err := json.Marshal(map[string]any{"metadata": map[string]any{"annotations": map[string]string{annotation: value}}})
	if err != nil {
		return fmt.Errorf("making the patch of Lease %s: %w", name, err)
	}
	if _, err := l.api.Leases(l.key.Namespace).Patch(ctx, name, types.MergePatchType, patch, metav1.PatchOptions{FieldManager: string(controllers.FieldOwner)}); err != nil {
		return fmt.Errorf("setting annotation %s of Lease %s: %w", annotation, name, err)
	}
	l.wake()
	return nil
}
