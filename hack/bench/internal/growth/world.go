// Copyright The DI Orchestrator Authors.
// SPDX-License-Identifier: Apache-2.0

package growth

import (
	"context"
	"errors"
	"fmt"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	"k8s.io/client-go/rest"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"opendilab.org/di-orchestrator/hack/bench/internal/harness"
	"opendilab.org/di-orchestrator/internal/testkit/controlplane"
	"opendilab.org/di-orchestrator/internal/testkit/program"
)

const (
	// namespace has the jobs of the rungs, newNamespace those that are timed.
	namespace    = "bench-growth"
	newNamespace = "bench-new"
	// These are the users, besides the programs, whose requests are counted.
	userSubmitter = "bench-submitter"
	userKubelet   = "bench-kubelet"
)

// world is an API server with fake nodes and all programs.
type world struct {
	*harness.World
	bench   *bench
	kubelet *harness.Kubelet
	watched *watched
	askers  *askers
	// submitter writes jobs without a rate limit.
	submitter                  client.Client
	webhooks, server, operator *program.Process
	// pprof is the address of the operator's profiles.
	pprof string
	// metrics reads the API server's metrics.
	metrics *rest.RESTClient
}

// newWorld starts a world with so many nodes. The caller stops it, also after an error.
func (b *bench) newWorld(ctx context.Context, nodes int) (_ *world, err error) {
	plane, err := b.NewWorld(&controlplane.Options{Users: []string{harness.UserOperator, harness.UserWebhooks, harness.UserServer, userSubmitter}})
	if err != nil {
		return nil, err
	}
	w := &world{World: plane, bench: b}
	if err := errors.Join(w.InstallWebhooks(ctx), w.CreateNamespaces(ctx, namespace, newNamespace)); err != nil {
		return w, err
	}
	if w.submitter, err = w.ClientOf(userSubmitter, -1, 0); err != nil {
		return w, err
	}
	if w.metrics, err = newMetrics(w.Config()); err != nil {
		return w, err
	}
	names := make([]string, nodes)
	err = w.SubmitAll(ctx, nodes, func(ctx context.Context, index int) error {
		names[index] = fmt.Sprintf("node-%04d", index)
		return w.AddNode(ctx, names[index], corev1.ResourceList{
			corev1.ResourceCPU: resource.MustParse("256"), corev1.ResourceMemory: resource.MustParse("2Ti"),
			corev1.ResourcePods: *resource.NewQuantity(2*podsOfNode, resource.DecimalSI),
		})
	})
	if err != nil {
		return w, err
	}
	return w, w.startPrograms(ctx, names)
}

func (w *world) startPrograms(ctx context.Context, nodes []string) (err error) {
	if w.webhooks, err = w.StartWebhooks(ctx, ""); err != nil {
		return err
	}
	if w.server, err = w.StartServer(ctx); err != nil {
		return err
	}
	if err := w.startOperator(ctx); err != nil {
		return err
	}
	w.askers = startAskers(ctx, w.server.Address)
	w.watched = newWatched(w.askers.add)
	user, err := w.User(userKubelet)
	if err != nil {
		return err
	}
	w.kubelet = &harness.Kubelet{Config: user.Config(), Nodes: nodes, Seen: w.watched.see}
	return w.kubelet.Start(ctx)
}

func (w *world) startOperator(ctx context.Context) (err error) {
	metrics := ""
	if w.pprof, metrics, err = program.FreeAddresses(ctx); err != nil {
		return err
	}
	w.operator, err = w.StartOperator(ctx, "--pprof-address", w.pprof, "--metrics-address", metrics)
	return err
}

// stop stops everything. The programs are killed, because what they would still write is of no use.
func (w *world) stop() (err error) {
	defer harness.Close(&err, w.Stop)
	if w.askers != nil {
		w.askers.stop()
	}
	for _, each := range []*program.Process{w.operator, w.server, w.webhooks} {
		if each != nil {
			err = errors.Join(err, each.Kill())
		}
	}
	if w.kubelet != nil {
		w.kubelet.Stop()
	}
	return err
}
