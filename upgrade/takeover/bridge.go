// Copyright The DI Orchestrator Authors.
// SPDX-License-Identifier: Apache-2.0

package takeover

import (
	"context"
	"fmt"
	"io"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/utils/clock"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"opendilab.org/di-orchestrator/internal/names"
)

// Bridge makes an earlier di-server known to nodes under all names that the ports of Service
// di-server have before and after the Service is written, in both directions.
type Bridge struct {
	// API reads pods and Services, and writes EndpointSlices.
	API       client.Client
	Namespace string
	// Settle is how long to wait until nodes have learned of endpoints.
	Settle time.Duration
	Clock  clock.Clock
	// Out receives a line for each change.
	Out io.Writer
}

// Ahead prepares for the Service of this program if the Service of an earlier release exists.
func (b *Bridge) Ahead(ctx context.Context) error {
	service, err := serviceOf(ctx, b.API, b.Namespace, names.ServerService)
	if service == nil || err != nil {
		return err
	}
	return b.build(ctx, service, renamed(service))
}

// Back prepares for the Service of an earlier release, whose di-server answers on a port beside
// ours or instead of ours.
func (b *Bridge) Back(ctx context.Context, port int32) error {
	service, err := serviceOf(ctx, b.API, b.Namespace, names.ServerService)
	if service == nil || err != nil {
		return err
	}
	return b.build(ctx, service, []int32{port})
}

// build writes the missing slices, and returns after nodes had time to learn of them.
func (b *Bridge) build(ctx context.Context, service *corev1.Service, ports []int32) error {
	if len(ports) == 0 {
		return nil
	}
	var pods corev1.PodList
	if err := b.API.List(ctx, &pods, client.InNamespace(b.Namespace)); err != nil {
		return fmt.Errorf("listing pods of namespace %s: %w", b.Namespace, err)
	}
	var bridged []string
	for i := range pods.Items {
		pod := &pods.Items[i]
		if !isEarlierServer(pod) {
			continue
		}
		for _, port := range ports {
			made, err := b.write(ctx, service, port, pod)
			if err != nil {
				return err
			}
			if made {
				bridged = append(bridged, pod.Name)
			}
		}
	}
	if len(bridged) == 0 {
		return nil
	}
	_, err := fmt.Fprintf(b.Out, "service %s: pods %s are endpoints under the port names of both releases; waiting %s until nodes know\n",
		service.Name, strings.Join(bridged, ", "), b.Settle)
	if err != nil {
		return fmt.Errorf("printing what was done: %w", err)
	}
	return b.wait(ctx)
}

// write writes the slices of a pod for a port, and reports whether any exist.
func (b *Bridge) write(ctx context.Context, service *corev1.Service, port int32, pod *corev1.Pod) (bool, error) {
	made := bridges(service, port, pod)
	for _, slice := range made {
		err := b.API.Create(ctx, slice, fieldManager)
		if apierrors.IsAlreadyExists(err) {
			err = b.API.Update(ctx, slice, fieldManager)
		}
		if err != nil {
			return false, fmt.Errorf("writing EndpointSlice %s/%s: %w", slice.Namespace, slice.Name, err)
		}
	}
	return len(made) > 0, nil
}

func (b *Bridge) wait(ctx context.Context) error {
	timer := b.Clock.NewTimer(b.Settle)
	defer timer.Stop()
	select {
	case <-timer.C():
		return nil
	case <-ctx.Done():
		return fmt.Errorf("waiting until nodes know the endpoints of Service %s: %w", names.ServerService, context.Cause(ctx))
	}
}
