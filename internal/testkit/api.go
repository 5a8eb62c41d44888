// Copyright The DI Orchestrator Authors.
// SPDX-License-Identifier: Apache-2.0

// Package testkit starts what tests need and no product code may import: a
// real kube-apiserver and etcd with the project's CRDs.
package testkit

import (
	"fmt"
	"os"
	"path/filepath"
	"runtime"

	"sigs.k8s.io/controller-runtime/pkg/envtest"
)

// AssetsVariable is the environment key of the folder that holds etcd,
// kube-apiserver and kubectl; make test sets it.
const AssetsVariable = "KUBEBUILDER_ASSETS"

// StartAPI starts a real kube-apiserver and etcd and installs the project's
// CRDs. The caller stops the environment. One serves a whole test binary, as
// starting it takes seconds; tests keep apart by namespace.
func StartAPI() (*envtest.Environment, error) {
	if os.Getenv(AssetsVariable) == "" {
		return nil, fmt.Errorf("%s is not set: run the tests by make test, or set it to a folder with etcd, kube-apiserver and kubectl", AssetsVariable)
	}
	environment := &envtest.Environment{
		CRDDirectoryPaths:     []string{filepath.Join(Root(), "config", "crd", "bases")},
		ErrorIfCRDPathMissing: true,
	}
	if _, err := environment.Start(); err != nil {
		return nil, fmt.Errorf("starting kube-apiserver and etcd: %w", err)
	}
	return environment, nil
}

// Root returns the root folder of the checkout.
func Root() string {
	_, file, _, _ := runtime.Caller(0)
	return filepath.Dir(filepath.Dir(filepath.Dir(file)))
}
