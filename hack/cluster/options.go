// Copyright The DI Orchestrator Authors.
// SPDX-License-Identifier: Apache-2.0

//go:build linux

package main

import (
	"fmt"
	"net/netip"
	"os"
	"path/filepath"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"opendilab.org/di-orchestrator/hack/cluster/internal/build"
	"opendilab.org/di-orchestrator/hack/cluster/internal/cluster"
	"opendilab.org/di-orchestrator/hack/cluster/internal/settings"
)

// options are the flags as they are given.
type options struct {
	settings.Settings
	podCIDR     string
	serviceCIDR string
	kubeconfig  string
}

// session is what a command works with: the cluster of this machine, unless a
// kubeconfig names another one.
type session struct {
	cache    *build.Cache
	local    *cluster.Cluster
	external *cluster.External
}

func newOptions() *options { return &options{} }

func (o *options) addGlobal(f *pflag.FlagSet) {
	f.StringVar(&o.StateDir, "state-dir", fromEnv(settings.EnvStateDir, settings.DefaultStateDir),
		"folder of the running cluster, removed by down ($"+settings.EnvStateDir+")")
	f.StringVar(&o.CacheDir, "cache-dir", fromEnv(settings.EnvCacheDir, defaultCacheDir()),
		"folder of built programs, which stays ($"+settings.EnvCacheDir+")")
	f.StringVar(&o.SourceDir, "source-dir", findSource("."), "folder hack/cluster of the checkout")
	f.StringVar(&o.Bridge, "bridge", fromEnv(settings.EnvBridge, settings.DefaultBridge),
		"network device of the pods ($"+settings.EnvBridge+")")
	f.StringVar(&o.podCIDR, "pod-cidr", fromEnv(settings.EnvPodCIDR, settings.DefaultPodCIDR),
		"network of the pods ($"+settings.EnvPodCIDR+")")
	f.StringVar(&o.serviceCIDR, "service-cidr", fromEnv(settings.EnvServiceCIDR, settings.DefaultServiceCIDR),
		"network of Services ($"+settings.EnvServiceCIDR+")")
	f.StringVar(&o.kubeconfig, "kubeconfig", os.Getenv("KUBECONFIG"), "use the cluster of this kubeconfig instead ($KUBECONFIG)")
}

func (o *options) addUp(f *pflag.FlagSet) {
	f.IntVar(&o.GPUs, "gpus", settings.DefaultGPUs, "nvidia.com/gpu every node advertises")
	f.IntVar(&o.FakeNodes, "fake-nodes", 0, "nodes which only pretend to run pods")
	f.BoolVar(&o.FakeNodesOpen, "fake-nodes-open", false, "let pods without toleration get on fake nodes")
	f.BoolVar(&o.Audit, "audit", false, "log every request to the API server")
}

func (o *options) open(cmd *cobra.Command) (*session, error) {
	s, err := o.parse()
	if err != nil {
		return nil, usageError{err}
	}
	cache, err := build.Open(s.CacheDir, s.SourceDir)
	if err != nil {
		return nil, fmt.Errorf("read what to build from %s (it has to be the folder hack/cluster): %w", s.SourceDir, err)
	}
	opened := &session{cache: cache, local: cluster.New(s, cache, cmd.ErrOrStderr())}
	if o.kubeconfig != "" && o.kubeconfig != s.Kubeconfig() {
		opened.external = cluster.NewExternal(o.kubeconfig, cache, cmd.ErrOrStderr())
	}
	return opened, nil
}

func (o *options) parse() (settings.Settings, error) {
	s := o.Settings
	var err error
	if s.SourceDir, err = filepath.Abs(s.SourceDir); err != nil {
		return s, fmt.Errorf("source directory: %w", err)
	}
	if s.PodCIDR, err = netip.ParsePrefix(o.podCIDR); err != nil {
		return s, fmt.Errorf("pod CIDR: %w", err)
	}
	if s.ServiceCIDR, err = netip.ParsePrefix(o.serviceCIDR); err != nil {
		return s, fmt.Errorf("service CIDR: %w", err)
	}
	return s, s.Validate()
}

// findSource is the folder with the pins, seen from the root of the checkout
// or from that folder itself.
func findSource(dir string) string {
	inRoot := filepath.Join(dir, "hack", "cluster")
	if _, err := os.Stat(filepath.Join(inRoot, "binaries")); err == nil {
		return inRoot
	}
	return dir
}

func fromEnv(name, fallback string) string {
	if value := os.Getenv(name); value != "" {
		return value
	}
	return fallback
}

// defaultCacheDir is empty where the user has no home; the settings then ask
// for one.
func defaultCacheDir() string {
	dir, err := os.UserCacheDir()
	if err != nil {
		return ""
	}
	return filepath.Join(dir, "di-orchestrator")
}
