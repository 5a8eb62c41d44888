// Copyright The DI Orchestrator Authors.
// SPDX-License-Identifier: Apache-2.0

package gang

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"opendilab.org/di-orchestrator/hack/bench/internal/harness"
	"opendilab.org/di-orchestrator/internal/names"
	"opendilab.org/di-orchestrator/internal/testkit/controlplane"
	"opendilab.org/di-orchestrator/internal/testkit/program"
)

// These are the users whose requests are counted, and the submitter, whose requests are not.
const (
	userScheduler   = "bench-scheduler"
	userControllers = "bench-controllers"
	userSubmitter   = "bench-submitter"
)

const (
	// These are the namespaces of jobs with gangs, of the same jobs without, and of the first job.
	gangNamespace  = "bench-gang"
	plainNamespace = "bench-bare"
	firstNamespace = "bench-warm"
	// These settings enable Kubernetes' own gangs.
	podGroupGate = "GenericWorkload=true"
	gangGate     = "GangScheduling=true"
	podGroupAPI  = "scheduling.k8s.io/v1alpha2=true"
	// protection is the controller that removes the finalizer of PodGroups whose pods have
	// finished.
	protection = "podgroup-protection-controller"
	// restTime is the time without requests after which the programs are idle.
	restTime = 2 * time.Second
)

// world is an API server with the real scheduler, nodes that exist only in the API, and an
// operator.
type world struct {
	*harness.World
	*options
	submitter client.Client
	kubelet   *harness.Kubelet
	ledgers   map[string]*ledger
	webhooks  *program.Process
	operator  *program.Process
	// foreign are the programs of other projects.
	foreign []*program.Process
}

// newWorld starts a world. The caller stops it, also after an error.
func (b *bench) newWorld(ctx context.Context) (*world, error) {
	plane, err := b.NewWorld(&controlplane.Options{
		Users:     []string{harness.UserOperator, harness.UserWebhooks, userScheduler, userControllers},
		APIServer: map[string]string{"feature-gates": podGroupGate, "runtime-config": podGroupAPI},
	})
	if err != nil {
		return nil, err
	}
	w := &world{World: plane, options: &b.options, ledgers: map[string]*ledger{
		gangNamespace: newLedger(b.size), plainNamespace: newLedger(b.size), firstNamespace: newLedger(1),
	}}
	return w, w.populate(ctx)
}

// populate creates the objects that jobs need.
func (w *world) populate(ctx context.Context) error {
	if err := w.InstallWebhooks(ctx); err != nil {
		return err
	}
	if err := w.CreateNamespaces(ctx, slices.Collect(maps.Keys(w.ledgers))...); err != nil {
		return err
	}
	for i := range w.room {
		if err := w.AddNode(ctx, fmt.Sprintf("node-%03d", i), w.roomOfNode()); err != nil {
			return err
		}
	}
	var err error
	if w.submitter, err = w.ClientOf(userSubmitter, -1, 0); err != nil {
		return err
	}
	kubelet := &harness.Kubelet{Config: w.Config(), BoundOnly: true, Work: w.work, Seen: w.see}
	if err := kubelet.Start(ctx); err != nil {
		return err
	}
	w.kubelet = kubelet
	return w.startPrograms(ctx)
}

// see passes each event of a pod to the ledger of its namespace.
func (w *world) see(pod *corev1.Pod, gone bool) {
	of := w.ledgers[pod.Namespace]
	if gone || of == nil || pod.Spec.NodeName == "" {
		return
	}
	phase := pod.Status.Phase
	of.see(&sight{
		job: pod.Labels[names.LabelJob], uid: pod.UID, bound: true, at: time.Now(),
		runs: phase == corev1.PodRunning, ended: phase == corev1.PodSucceeded || phase == corev1.PodFailed,
	})
}

// roomOfNode is the capacity of a node: one gang.
func (w *world) roomOfNode() corev1.ResourceList {
	return corev1.ResourceList{
		corev1.ResourceCPU:    *resource.NewQuantity(int64(w.size), resource.DecimalSI),
		corev1.ResourceMemory: *resource.NewQuantity(int64(w.size)*(8<<30), resource.BinarySI),
		corev1.ResourcePods:   *resource.NewQuantity(int64(w.size)*2, resource.DecimalSI),
	}
}

// startPrograms starts the scheduler, the controller that it needs, the webhooks and the operator,
// each with its own defaults.
func (w *world) startPrograms(ctx context.Context) error {
	w.Say("starting %s, %s, the webhooks and the operator", w.scheduler, w.controllerManager)
	err := errors.Join(
		w.startForeign(ctx, w.scheduler, userScheduler, "--feature-gates="+podGroupGate+","+gangGate),
		w.startForeign(ctx, w.controllerManager, userControllers, "--feature-gates="+podGroupGate, "--controllers="+protection),
	)
	if err != nil {
		return err
	}
	if w.webhooks, err = w.StartWebhooks(ctx, ""); err != nil {
		return err
	}
	w.operator, err = w.StartOperator(ctx, strings.Fields(w.operatorFlags)...)
	return err
}

func (w *world) startForeign(ctx context.Context, binary, user string, flags ...string) error {
	started, err := w.StartForeign(ctx, binary, user, flags...)
	if err != nil {
		return err
	}
	w.foreign = append(w.foreign, started)
	return nil
}

// stop stops everything, clients first.
func (w *world) stop() error {
	var err error
	if w.operator != nil {
		err = w.operator.Stop()
	}
	if w.webhooks != nil {
		err = errors.Join(err, w.webhooks.Stop())
	}
	for _, each := range w.foreign {
		err = errors.Join(err, each.Kill())
	}
	if w.kubelet != nil {
		w.kubelet.Stop()
	}
	return errors.Join(err, w.Plane.Stop())
}
