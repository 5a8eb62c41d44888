// Copyright The DI Orchestrator Authors.
// SPDX-License-Identifier: Apache-2.0

// Package testkit starts what tests need and product code must not import: a real kube-apiserver
// and etcd with the project's CRDs.
package testkit

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"time"

	"sigs.k8s.io/controller-runtime/pkg/envtest"
)

// AssetsVariable is the environment variable that names the folder of etcd, kube-apiserver and
// kubectl. `make test` sets it.
const AssetsVariable = "KUBEBUILDER_ASSETS"

// Patience is the timeout of tests. A slow and loaded machine takes many times as long as
// a fast one, and only a test that fails waits until the timeout.
const Patience = 5 * time.Minute

// startAttempts is the maximum number of attempts to start an API server. Another program may take
// the ports that were found free, and envtest waits only five seconds for its first namespace.
const startAttempts = 3

// firstStart is the timeout of the first attempt. Each further attempt gets the same time more. A
// start takes about 10 seconds, also on a loaded machine. An attempt that lost its port never ends.
const firstStart = time.Minute

// StartAPI starts a real kube-apiserver and etcd with the project's CRDs and all that Install creates.
// The caller stops it. One API server serves a whole test binary because a start takes seconds. Tests
// are isolated by namespace. The flags, without dashes, extend the API server's usual flags.
func StartAPI(ctx context.Context, flags ...string) (*API, error) {
	api, err := start(func() (*API, error) {
		api := &API{Environment: &envtest.Environment{
			CRDDirectoryPaths:     []string{filepath.Join(Root(), "config", "crd", "bases")},
			ErrorIfCRDPathMissing: true,
		}}
		AddFlags(api.Environment, flags...)
		return api, api.logRequests()
	})
	if err != nil {
		return nil, err
	}
	if err := Install(ctx, api.Config); err != nil {
		return nil, errors.Join(err, api.Stop())
	}
	return api, nil
}

// AddFlags adds flags, without dashes, to the usual flags of an environment's API server.
func AddFlags(environment *envtest.Environment, flags ...string) {
	for _, flag := range flags {
		name, value, _ := strings.Cut(flag, "=")
		environment.ControlPlane.GetAPIServer().Configure().Append(name, value)
	}
}

// GangDefinitions is the folder with the CRDs of gang schedulers.
func GangDefinitions() string {
	return filepath.Join(Root(), "test", "testkit", "gangs")
}

// QueueDefinitions is the folder with the CRD of Kueue's Workloads.
func QueueDefinitions() string {
	return filepath.Join(Root(), "test", "testkit", "queues")
}

// GangFlags make the API server serve Kubernetes' own PodGroups.
func GangFlags() []string {
	return []string{"feature-gates=GenericWorkload=true,GangScheduling=true", "runtime-config=scheduling.k8s.io/v1alpha2=true"}
}

// StartBareAPI starts a kube-apiserver and etcd without the project's CRDs.
func StartBareAPI() (*envtest.Environment, error) {
	api, err := start(func() (*API, error) { return &API{Environment: &envtest.Environment{}}, nil })
	if err != nil {
		return nil, err
	}
	return api.Environment, nil
}

// RunOnAPI runs a package's tests against an API server that StartAPI starts, and returns the exit code. The
// tests find the server in api. RunOnAPI prints its own errors.
func RunOnAPI(tests interface{ Run() int }, api **API) int {
	started, err := StartAPI(context.Background())
	return runOn(tests, api, started, err)
}

// RunOnBareAPI is RunOnAPI for StartBareAPI.
func RunOnBareAPI(tests interface{ Run() int }, environment **envtest.Environment) int {
	started, err := StartBareAPI()
	return runOn(tests, environment, started, err)
}

// runOn runs tests against a server that was started, unless that failed.
func runOn[S interface{ Stop() error }](tests interface{ Run() int }, server *S, started S, err error) int {
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	*server = started
	code := tests.Run()
	if err := started.Stop(); err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	return code
}

func start(newAPI func() (*API, error)) (*API, error) {
	if err := checkAssets(); err != nil {
		return nil, err
	}
	var failed error
	for attempt := range startAttempts {
		api, err := newAPI()
		if err != nil {
			return nil, err
		}
		if err = startWithin(api.Environment, time.Duration(attempt+1)*firstStart); err == nil {
			return api, nil
		}
		failed = errors.Join(err, api.Environment.Stop(), os.RemoveAll(api.folder))
	}
	return nil, failed
}

// Start starts a kube-apiserver and etcd with another configuration, with the timeout that a slow
// machine needs. The caller stops them.
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
