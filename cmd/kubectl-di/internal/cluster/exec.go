// Copyright The DI Orchestrator Authors.
// SPDX-License-Identifier: Apache-2.0

package cluster

import (
	"context"
	"fmt"
	"net/http"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/client-go/kubernetes/scheme"
	corev1client "k8s.io/client-go/kubernetes/typed/core/v1"
	"k8s.io/client-go/tools/remotecommand"
	"k8s.io/streaming/pkg/httpstream"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

// Exec runs a command in a container of a pod, with the streams. Like kubectl, it falls back to SPDY if a proxy does not support
// websockets, or if a role allows create and not get.
func (c *Cluster) Exec(ctx context.Context, pod string, options *corev1.PodExecOptions, streams remotecommand.StreamOptions) error {
	api, err := corev1client.NewForConfig(c.Config())
	if err != nil {
		return fmt.Errorf("making a client: %w", err)
	}
	url := api.RESTClient().Post().Resource("pods").Namespace(c.Namespace).Name(pod).SubResource("exec").VersionedParams(options, scheme.ParameterCodec).URL()
	websocket, err := remotecommand.NewWebSocketExecutor(c.Config(), http.MethodGet, url.String())
	if err != nil {
		return fmt.Errorf("making an executor: %w", err)
	}
	bySPDY, err := remotecommand.NewSPDYExecutor(c.Config(), http.MethodPost, url)
	if err != nil {
		return fmt.Errorf("making an executor: %w", err)
	}
	both, err := remotecommand.NewFallbackExecutor(websocket, bySPDY, func(err error) bool {
		return httpstream.IsUpgradeFailure(err) || httpstream.IsHTTPSProxyError(err)
	})
	if err != nil {
		return fmt.Errorf("making an executor: %w", err)
	}
	return explain("running a command in container "+options.Container+" of pod "+c.Namespace+"/"+pod, both.StreamWithContext(ctx, streams))
}

// ForwardPod forwards a local port to a pod's port until the context ends. It returns the local address, and a channel that is
// closed when the forwarding has ended.
func (c *Cluster) ForwardPod(ctx context.Context, pod string, port int32) (string, <-chan struct{}, error) {
	address, ended, err := c.forward(ctx, client.ObjectKey{Namespace: c.Namespace, Name: pod}, port)
	return address, ended, explain("forwarding a port to pod "+c.Namespace+"/"+pod, err)
}
