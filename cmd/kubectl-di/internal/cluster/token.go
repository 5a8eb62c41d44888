// Copyright The DI Orchestrator Authors.
// SPDX-License-Identifier: Apache-2.0

package cluster

import (
	"context"
	"fmt"
	"net/http"
	"strings"

	authenticationv1 "k8s.io/api/authentication/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/rest"
	"k8s.io/utils/ptr"
)

// AccountToken returns a token of a ServiceAccount, for all that accept tokens of the API server.
func (c *Cluster) AccountToken(ctx context.Context, namespace, name string) (string, error) {
	request := &authenticationv1.TokenRequest{Spec: authenticationv1.TokenRequestSpec{ExpirationSeconds: ptr.To[int64](tokenSeconds)}}
	of := &corev1.ServiceAccount{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: name}}
	err := c.client.SubResource("token").Create(ctx, of, request)
	return request.Status.Token, explain("making a token of service account "+namespace+"/"+name, err)
}

// OwnToken returns the token of the kubeconfig, by which the API server knows the user. It is empty if
// the user has another credential, or acts as somebody else, whom no token names.
func (c *Cluster) OwnToken(ctx context.Context) (string, error) {
	config := c.Config()
	if config.Impersonate.UserName != "" {
		return "", nil
	}
	// A plugin of the kubeconfig adds its own.
	config.WrapTransport = nil
	seen := &headers{}
	wrapped, err := rest.HTTPWrappersForConfig(config, seen)
	if err != nil {
		return "", fmt.Errorf("reading the credentials of the kubeconfig: %w", err)
	}
	request, err := http.NewRequestWithContext(ctx, http.MethodGet, "https://localhost", http.NoBody)
	if err != nil {
		return "", err
	}
	response, err := wrapped.RoundTrip(request)
	if err != nil {
		return "", fmt.Errorf("reading the credentials of the kubeconfig: %w", err)
	}
	token, isToken := strings.CutPrefix(seen.authorization, "Bearer ")
	if !isToken {
		token = ""
	}
	return token, response.Body.Close()
}

// headers sends nothing: it notes what a request would be sent with.
type headers struct{ authorization string }

// RoundTrip implements http.RoundTripper.
func (h *headers) RoundTrip(request *http.Request) (*http.Response, error) {
	h.authorization = request.Header.Get("Authorization")
	return &http.Response{StatusCode: http.StatusOK, Body: http.NoBody, Request: request}, nil
}
