// Copyright The DI Orchestrator Authors.
// SPDX-License-Identifier: Apache-2.0

package testkit

import (
	"context"
	"fmt"
	"net"
	"net/http/httptest"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

// CreateNode creates a node whose kubelet is a server with TLS, and returns its name. The API server asks it for
// the logs of pods on that node.
func CreateNode(ctx context.Context, api client.Client, kubelet *httptest.Server) (string, error) {
	address, isTCP := kubelet.Listener.Addr().(*net.TCPAddr)
	if !isTCP {
		return "", fmt.Errorf("%v is no TCP address", kubelet.Listener.Addr())
	}
	node := &corev1.Node{ObjectMeta: metav1.ObjectMeta{GenerateName: "node-"}}
	if err := api.Create(ctx, node); err != nil {
		return "", fmt.Errorf("creating a node: %w", err)
	}
	node.Status.Addresses = []corev1.NodeAddress{{Type: corev1.NodeInternalIP, Address: address.IP.String()}}
	node.Status.DaemonEndpoints.KubeletEndpoint.Port = int32(address.Port) // a port fits
	if err := api.Status().Update(ctx, node); err != nil {
		return "", fmt.Errorf("writing the address of node %s: %w", node.Name, err)
	}
	return node.Name, nil
}
