// Copyright The DI Orchestrator Authors.
// SPDX-License-Identifier: Apache-2.0

package testkit

import (
	"errors"
	"fmt"

	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	"k8s.io/apimachinery/pkg/runtime"
	clientgoscheme "k8s.io/client-go/kubernetes/scheme"
	"k8s.io/client-go/rest"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"opendilab.org/di-orchestrator/apis/v2alpha1"
)

// NewClient returns a client without a cache. Its scheme has Kubernetes' types,
// CustomResourceDefinitions and v2alpha1. It removes the rate limit of the configuration.
func NewClient(config *rest.Config) (client.WithWatch, error) {
	config.QPS, config.WarningHandler = -1, rest.NoWarnings{}
	scheme := runtime.NewScheme()
	if err := errors.Join(clientgoscheme.AddToScheme(scheme), apiextensionsv1.AddToScheme(scheme), v2alpha1.AddToScheme(scheme)); err != nil {
		return nil, fmt.Errorf("registering types: %w", err)
	}
	api, err := client.NewWithWatch(config, client.Options{Scheme: scheme})
	if err != nil {
		return nil, fmt.Errorf("client: %w", err)
	}
	return api, nil
}
