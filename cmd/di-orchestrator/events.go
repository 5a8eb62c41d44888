// Copyright The DI Orchestrator Authors.
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"fmt"

	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/events"

	"opendilab.org/di-orchestrator/internal/names"
)

// eventShare is the share of the calls to the API server that Events may have,
// as one in so many. Each pod has an Event: where many are created at a time
// Events wait, so that pods do not.
const eventShare = 4

// newEventRecorder returns a recorder that sends Events at a rate of its own
// until the context ends. Each waits for its turn, and none is dropped for it.
func newEventRecorder(ctx context.Context, config *rest.Config, scheme *runtime.Scheme) (events.EventRecorder, error) {
	slower := rest.CopyConfig(config)
	slower.QPS, slower.Burst = config.QPS/eventShare, max(config.Burst/eventShare, 1)
	api, err := kubernetes.NewForConfig(slower)
	if err != nil {
		return nil, fmt.Errorf("making the client of Events: %w", err)
	}
	broadcaster := events.NewBroadcaster(&events.EventSinkImpl{Interface: api.EventsV1()})
	if err := broadcaster.StartRecordingToSinkWithContext(ctx); err != nil {
		return nil, fmt.Errorf("starting to record Events: %w", err)
	}
	return broadcaster.NewRecorder(scheme, names.ControllerName), nil
}
