// Copyright The DI Orchestrator Authors.
// SPDX-License-Identifier: Apache-2.0

// Package cluster sets up what is measured: an API server, nodes that exist only in the API, a stand-in for
// the kubelets, a scheduler, and the programs, each as a process and a user of its own.
package cluster

import (
	"context"
	"errors"
	"fmt"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/wait"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"opendilab.org/di-orchestrator/apis/v2alpha1"
	"opendilab.org/di-orchestrator/hack/bench/internal/observe"
	"opendilab.org/di-orchestrator/hack/bench/internal/run"
	"opendilab.org/di-orchestrator/test/testkit/controlplane"
	"opendilab.org/di-orchestrator/test/testkit/kubelet"
)

// Namespace has the jobs, and NewNamespace those that are timed one after the other.
const (
	Namespace    = "bench"
	NewNamespace = "bench-new"
)

// These are the users whose requests are counted.
const (
	UserOperator  = "bench-operator"
	UserWebhooks  = "bench-webhook"
	UserServer    = "bench-server"
	UserScheduler = "bench-scheduler"
	UserManager   = "bench-controller-manager"
	UserKubelet   = "bench-kubelet"
	UserClient    = "bench-client"
)

// Patience is the timeout of every step.
const Patience = 20 * time.Minute

// Options configure a World.
type Options struct {
	// Nodes have Room each. Without nodes, nothing binds pods, and the kubelet runs them where they are.
	Nodes int
	Room  corev1.ResourceList
	// Scheduler binds pods to nodes.
	Scheduler Scheduler
	// Gangs enables Kubernetes' own gangs.
	Gangs bool
	// Server starts a di-server.
	Server bool
	// Coordinator is called when a coordinator begins to run.
	Coordinator func(pod *corev1.Pod)
}

// World is a cluster without operators.
type World struct {
	*run.Session
	*controlplane.Plane
	// Client is a user's client without a rate limit.
	Client  client.Client
	Pods    *observe.Pods
	Kubelet *kubelet.Kubelet
	// Programs are the running programs of di-orchestrator and Kubernetes.
	Programs *Programs
}

// Start starts a world. The caller stops it.
func Start(ctx context.Context, s *run.Session, o *Options) (*World, error) {
	s.Say("starting an API server")
	options := &controlplane.Options{
		Folder: s.Folder,
		Users:  []string{UserOperator, UserWebhooks, UserServer, UserScheduler, UserManager, UserKubelet, UserClient},
		// The disk is not part of the measurement, neither here nor in the references.
		Etcd: map[string]string{"quota-backend-bytes": "8589934592", "unsafe-no-fsync": "true"},
	}
	if o.Gangs {
		options.APIServer = map[string]string{"feature-gates": podGroupGate, "runtime-config": podGroupAPI}
	}
	plane, err := controlplane.Start(options)
	if err != nil {
		return nil, err
	}
	w := &World{Session: s, Plane: plane, Pods: observe.NewPods(o.Coordinator)}
	w.Programs = &Programs{world: w}
	if err := w.populate(ctx, o); err != nil {
		return nil, errors.Join(err, w.Stop())
	}
	return w, nil
}

func (w *World) populate(ctx context.Context, o *Options) (err error) {
	if w.Client, err = w.ClientOf(UserClient); err != nil {
		return err
	}
	if err := errors.Join(w.InstallWebhooks(ctx), w.createNamespaces(ctx)); err != nil {
		return err
	}
	nodes, err := w.addNodes(ctx, o)
	if err != nil {
		return err
	}
	user, err := w.User(UserKubelet)
	if err != nil {
		return err
	}
	started := &kubelet.Kubelet{Config: user.Config(), Seen: w.Pods.See, BoundOnly: o.Scheduler == Real}
	if o.Scheduler != Real {
		started.Nodes = nodes
	}
	if err := started.Start(ctx); err != nil {
		return err
	}
	w.Kubelet = started
	return w.Programs.start(ctx, o)
}

// Stop stops everything. The programs are killed, because what they would still write is of no use.
func (w *World) Stop() error {
	err := w.Programs.kill()
	if w.Kubelet != nil {
		w.Kubelet.Stop()
	}
	return errors.Join(err, w.Plane.Stop())
}

// ClientOf returns a client that authenticates as a user, without a rate limit.
func (w *World) ClientOf(name string) (client.Client, error) {
	user, err := w.User(name)
	if err != nil {
		return nil, err
	}
	return w.Plane.Client(user.Config(), -1, 0)
}

func (w *World) createNamespaces(ctx context.Context) error {
	for _, name := range []string{Namespace, NewNamespace} {
		if err := w.API.Create(ctx, &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: name}}); err != nil {
			return fmt.Errorf("creating namespace %s: %w", name, err)
		}
	}
	return nil
}

// addNodes adds ready nodes and returns their names.
func (w *World) addNodes(ctx context.Context, o *Options) ([]string, error) {
	names := make([]string, o.Nodes)
	return names, Each(ctx, o.Nodes, func(ctx context.Context, index int) error {
		names[index] = fmt.Sprintf("node-%04d", index)
		return w.addNode(ctx, names[index], o.Room)
	})
}

func (w *World) addNode(ctx context.Context, name string, room corev1.ResourceList) error {
	node := &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: name, Labels: map[string]string{corev1.LabelHostname: name}}}
	if err := w.API.Create(ctx, node); err != nil {
		return fmt.Errorf("adding node %s: %w", name, err)
	}
	node.Status = corev1.NodeStatus{
		Capacity: room, Allocatable: room,
		Conditions: []corev1.NodeCondition{{Type: corev1.NodeReady, Status: corev1.ConditionTrue, Reason: "Bench"}},
	}
	if err := w.API.Status().Update(ctx, node); err != nil {
		return fmt.Errorf("making node %s ready: %w", name, err)
	}
	// The API server taints new nodes. A controller removes the taint in a complete cluster.
	if err := w.API.Patch(ctx, node, client.RawPatch(types.MergePatchType, []byte(`{"spec":{"taints":null}}`))); err != nil {
		return fmt.Errorf("taking the taint off node %s: %w", name, err)
	}
	return nil
}

// Poll returns when a condition holds.
func (w *World) Poll(ctx context.Context, what string, every time.Duration, holds func(context.Context) (bool, error)) error {
	err := wait.PollUntilContextTimeout(ctx, every, Patience, true, func(ctx context.Context) (bool, error) {
		done, err := holds(ctx)
		return done, errors.Join(err, w.Kubelet.Err())
	})
	if err != nil {
		return fmt.Errorf("waiting until %s: %w", what, err)
	}
	return nil
}

// WaitRunning returns when so many pods of a namespace run.
func (w *World) WaitRunning(ctx context.Context, namespace string, pods int) error {
	said := time.Now()
	return w.Poll(ctx, fmt.Sprintf("%d pods run", pods), 10*time.Millisecond, func(context.Context) (bool, error) {
		running := w.Pods.Of(namespace).Running
		if time.Since(said) > 10*time.Second {
			said = time.Now()
			w.Say("%d of %d pods run", running, pods)
		}
		return running == pods, nil
	})
}

// WaitQuiet returns the end of the audit log once the counted users have sent no requests, except
// for Leases, for the given time.
func (w *World) WaitQuiet(ctx context.Context, quiet time.Duration) (controlplane.Mark, error) {
	mark, err := w.Mark()
	if err != nil {
		return 0, err
	}
	since := time.Now()
	return mark, w.Poll(ctx, "requests cease", 50*time.Millisecond, func(context.Context) (bool, error) {
		counts, err := w.Since(mark)
		if err != nil {
			return false, err
		}
		for _, requests := range counts {
			if len(requests.Without("leases")) > 0 {
				since = time.Now()
				mark, err = w.Mark()
				break
			}
		}
		return time.Since(since) > quiet, err
	})
}

// Clear deletes the jobs of a namespace with all their objects, and forgets its pods once there are none.
func (w *World) Clear(ctx context.Context, namespace string) error {
	for _, object := range []client.Object{&v2alpha1.DIJob{}, &corev1.Pod{}, &corev1.Service{}, &corev1.ConfigMap{}, &v2alpha1.Membership{}} {
		if err := w.API.DeleteAllOf(ctx, object, client.InNamespace(namespace)); err != nil {
			return fmt.Errorf("deleting %T of %s: %w", object, namespace, err)
		}
	}
	err := w.Poll(ctx, "all pods are deleted", 50*time.Millisecond, func(context.Context) (bool, error) {
		return w.Pods.Of(namespace).Existing == 0, nil
	})
	w.Pods.Forget(namespace)
	return err
}
