// Copyright The DI Orchestrator Authors.
// SPDX-License-Identifier: Apache-2.0

package harness

import (
	"cmp"
	"context"
	"fmt"
	"strings"
	"time"

	"golang.org/x/sync/errgroup"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/wait"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"opendilab.org/di-orchestrator/apis/v2alpha1"
	"opendilab.org/di-orchestrator/internal/testkit/controlplane"
	"opendilab.org/di-orchestrator/internal/testkit/program"
)

// These are the users of the programs under measurement.
const (
	UserOperator = "bench-operator"
	UserWebhooks = "bench-webhook"
	UserServer   = "bench-server"
)

// These are the memory limits of config/operator, config/webhook and config/server.
const (
	OperatorMemoryLimit = "GOMEMLIMIT=690MiB"
	WebhooksMemoryLimit = "GOMEMLIMIT=690MiB"
	ServerMemoryLimit   = "GOMEMLIMIT=460MiB"
)

// garbage is the garbage collector's target in a deployment. The environment of a build may have another.
const garbage = "GOGC=100"

// Patience is the timeout of every step.
const Patience = 20 * time.Minute

// World is an API server whose audit log counts the requests of the named users.
type World struct {
	*Bench
	*controlplane.Plane
}

// NewWorld starts an API server. The caller stops it.
func (b *Bench) NewWorld(options *controlplane.Options) (*World, error) {
	b.Say("starting an API server")
	options.Folder = b.Folder
	if options.Etcd == nil {
		// The disk is not part of the measurement, neither here nor in the references.
		options.Etcd = map[string]string{"quota-backend-bytes": "8589934592", "unsafe-no-fsync": "true"}
	}
	plane, err := controlplane.Start(options)
	if err != nil {
		return nil, err
	}
	return &World{Bench: b, Plane: plane}, nil
}

// ClientOf returns a client that authenticates as a user. A negative qps disables the rate limit.
func (w *World) ClientOf(name string, qps float32, burst int) (client.WithWatch, error) {
	user, err := w.User(name)
	if err != nil {
		return nil, err
	}
	return w.Client(user.Config(), qps, burst)
}

// CreateNamespaces creates namespaces.
func (w *World) CreateNamespaces(ctx context.Context, names ...string) error {
	for _, name := range names {
		if err := w.API.Create(ctx, &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: name}}); err != nil {
			return fmt.Errorf("creating namespace %s: %w", name, err)
		}
	}
	return nil
}

// StartOperator starts an operator and returns when it is ready, which requires the webhooks.
func (w *World) StartOperator(ctx context.Context, flags ...string) (*program.Process, error) {
	return w.start(ctx, UserOperator, "operator", OperatorMemoryLimit, func(string) []string { return flags })
}

// StartWebhooks starts the webhooks and returns when they are ready. The API server calls them at
// the given address, or at their own if it is empty.
func (w *World) StartWebhooks(ctx context.Context, called string, flags ...string) (*program.Process, error) {
	return w.start(ctx, UserWebhooks, "webhook", WebhooksMemoryLimit, func(address string) []string {
		return append([]string{"--webhook-address", address, "--webhook-url", "https://" + cmp.Or(called, address)}, flags...)
	})
}

// StartServer starts a di-server, and returns when it is ready.
func (w *World) StartServer(ctx context.Context, flags ...string) (*program.Process, error) {
	return w.start(ctx, UserServer, "server", ServerMemoryLimit, func(address string) []string {
		return append([]string{"--address", address, "--tls-address="}, flags...)
	})
}

func (w *World) start(ctx context.Context, user, name, memoryLimit string, flags func(address string) []string) (*program.Process, error) {
	kubeconfig, err := w.Kubeconfig(user)
	if err != nil {
		return nil, err
	}
	return program.Start(ctx, &program.Command{
		Binary: w.Binary, Name: name, Folder: w.Folder, Environment: []string{kubeconfig, memoryLimit, garbage}, Flags: flags,
	})
}

// StartForeign starts a program of Kubernetes without leader election, as a user.
func (w *World) StartForeign(ctx context.Context, binary, user string, flags ...string) (*program.Process, error) {
	kubeconfig, err := w.Kubeconfig(user)
	if err != nil {
		return nil, err
	}
	_, path, _ := strings.Cut(kubeconfig, "=")
	common := []string{"--kubeconfig=" + path, "--leader-elect=false", "--secure-port=0"}
	return program.StartForeign(ctx, w.Folder, binary, append(common, flags...)...)
}

// AddNode adds a ready node.
func (w *World) AddNode(ctx context.Context, name string, room corev1.ResourceList) error {
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

// WaitQuiet returns the end of the audit log once the counted users have sent no requests, except
// for Leases, for the given time.
func (w *World) WaitQuiet(ctx context.Context, quiet time.Duration) (controlplane.Mark, error) {
	mark, err := w.Mark()
	if err != nil {
		return 0, err
	}
	since := time.Now()
	err = wait.PollUntilContextTimeout(ctx, 50*time.Millisecond, Patience, true, func(context.Context) (bool, error) {
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
	if err != nil {
		return 0, fmt.Errorf("waiting until requests cease: %w", err)
	}
	return mark, nil
}

// Clear deletes the jobs of a namespace with all their objects, and returns when the kubelet
// observes no pods.
func (w *World) Clear(ctx context.Context, namespace string, kubelet *Kubelet) error {
	w.Say("deleting all jobs of %s", namespace)
	for _, object := range []client.Object{&v2alpha1.DIJob{}, &corev1.Pod{}, &corev1.Service{}, &corev1.ConfigMap{}, &v2alpha1.Membership{}} {
		if err := w.API.DeleteAllOf(ctx, object, client.InNamespace(namespace)); err != nil {
			return fmt.Errorf("deleting %T of %s: %w", object, namespace, err)
		}
	}
	err := wait.PollUntilContextTimeout(ctx, 50*time.Millisecond, Patience, true, func(context.Context) (bool, error) {
		return kubelet.Pods() == 0, kubelet.Err()
	})
	if err != nil {
		return fmt.Errorf("deleting pods of %s, %d are left: %w", namespace, kubelet.Pods(), err)
	}
	return nil
}

// submitters is the number of concurrent submissions.
const submitters = 16

// SubmitAll submits the given number of jobs, several at a time.
func (w *World) SubmitAll(ctx context.Context, jobs int, submit func(ctx context.Context, index int) error) error {
	group, ctx := errgroup.WithContext(ctx)
	group.SetLimit(submitters)
	for i := range jobs {
		group.Go(func() error { return submit(ctx, i) })
	}
	return group.Wait()
}
