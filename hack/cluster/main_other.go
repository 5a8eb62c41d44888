// Copyright The DI Orchestrator Authors.
// SPDX-License-Identifier: Apache-2.0

//go:build !linux

package main

import (
	"fmt"
	"os"
	"runtime"
)

func main() {
	fmt.Fprintf(os.Stderr, "cluster: the local cluster cannot run here: it needs Linux, and this is %s\n"+
		"Use any other Kubernetes (kind, k3s, a real one) and name it by KUBECONFIG.\n", runtime.GOOS)
	os.Exit(3)
}
