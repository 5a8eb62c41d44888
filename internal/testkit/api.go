// Copyright The DI Orchestrator Authors.
// SPDX-License-Identifier: Apache-2.0

// Package testkit starts what tests need and no product code may import: a
// real kube-apiserver and etcd with the project's CRDs.
package testkit

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"time"

	"sigs.k8s.io/controller-runtime/pkg/envtest"
)

// AssetsVariable is the environment key of the folder that holds etcd,
// kube-apiserver and kubectl; make test sets it.
const AssetsVariable = "KUBEBUILDER_ASSETS"

// Patience is the timeout of tests. A slow and loaded machine takes many times as long as
// a fast one, and only a test that fails waits until the timeout.
const Patience = 5 * time.Minute

// startAttempts bounds the attempts to start an API server: another program may take
// the ports that were found free for it, and envtest waits for its first namespace for
// five seconds only.
const startAttempts = 3

// firstStart bounds the first attempt; each further one gets as much more. A start takes
// some 10 seconds, also on a loaded machine, and an attempt that lost its port never ends.
const firstStart = time.Minute

// StartAPI starts a real kube-apiserver and etcd and installs the project's
// CRDs. The caller stops the environment. One serves a whole test binary, as
// starting it takes seconds; tests keep apart by namespace. The flags, without
// dashes, are those of the API server beside its usual ones.
func StartAPI(flags ...string) (*envtest.Environment, error) {
	return start(func() *envtest.Environment {
		environment := &envtest.Environment{
			CRDDirectoryPaths:     []string{filepath.Join(Root(), "config", "crd", "bases")},
			ErrorIfCRDPathMissing: true,
		}
		AddFlags(environment, flags...)
		return environment
	})
}

// AddFlags gives the API server of an environment flags beside its usual ones,
// without dashes.
func AddFlags(environment *envtest.Environment, flags ...string) {
	for _, flag := range flags {
		name, value, _ := strings.Cut(flag, "=")
		environment.ControlPlane.GetAPIServer().Configure().Append(name, value)
	}
}

// GangDefinitions is the folder with the CRDs of gang schedulers.
func GangDefinitions() string {
	return filepath.Join(Root(), "internal", "testkit", "gangs")
}

// GangFlags make the API server serve Kubernetes' own PodGroups.
func GangFlags() []string {
	return []string{"feature-gates=GenericWorkload=true,GangScheduling=true", "runtime-config=scheduling.k8s.io/v1alpha2=true"}
}

// StartBareAPI starts the same without the project's CRDs.
func StartBareAPI() (*envtest.Environment, error) {
	return start(func() *envtest.Environment { return &envtest.Environment{} })
}

// RunOnBareAPI runs a package's tests beside an API server as StartBareAPI starts it,
// which they find in environment, and returns the exit code. Its own errors are
// printed.
func RunOnBareAPI(tests interface{ Run() int }, environment **envtest.Environment) int {
	started, err := StartBareAPI()
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	*environment = started
	code := tests.Run()
	if err := started.Stop(); err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	return code
}

func start(newEnvironment func() *envtest.Environment) (*envtest.Environment, error) {
	if err := checkAssets(); err != nil {
		return nil, err
	}
	var failed error
	for attempt := range startAttempts {
		environment := newEnvironment()
		err := startWithin(environment, time.Duration(attempt+1)*firstStart)
		if err == nil {
			return environment, nil
		}
		failed = errors.Join(err, environment.Stop())
	}
	return nil, failed
}

// Start starts a kube-apiserver and etcd that were configured in another way,
// with the timeout that a slow machine needs. The caller stops them.
func Start(environment *envtest.Environment) error {
	return startWithin(environment, Patience)
}

func startWithin(environment *envtest.Environment, timeout time.Duration) error {
	if err := checkAssets(); err != nil {
		return err
	}
	environment.ControlPlaneStartTimeout, environment.ControlPlaneStopTimeout = timeout, Patience
	environment.CRDInstallOptions.MaxTime = Patience
	if _, err := environment.Start(); err != nil {
		return fmt.Errorf("starting kube-apiserver and etcd: %w", err)
	}
	return nil
}

func checkAssets() error {
	if os.Getenv(AssetsVariable) == "" {
		return fmt.Errorf("%s is not set: run the tests by make test, or set it to a folder with etcd, kube-apiserver and kubectl", AssetsVariable)
	}
	return nil
}

// Root returns the root folder of the checkout.
func Root() string {
	_, file, _, _ := runtime.Caller(0)
	return filepath.Dir(filepath.Dir(filepath.Dir(file)))
}
