// Copyright The DI Orchestrator Authors.
// SPDX-License-Identifier: Apache-2.0

// Package settings contains the user's choices for the local cluster and derives addresses and
// paths from them. It has no side effects.
package settings

import (
	"cmp"
	"errors"
	"fmt"
	"net/netip"
	"os"
	"path/filepath"
	"strconv"
	"strings"
)

// These environment variables override the defaults.
const (
	EnvStateDir    = "DI_CLUSTER_STATE_DIR"
	EnvCacheDir    = "DI_CLUSTER_CACHE_DIR"
	EnvPodCIDR     = "DI_CLUSTER_POD_CIDR"
	EnvServiceCIDR = "DI_CLUSTER_SERVICE_CIDR"
	EnvBridge      = "DI_CLUSTER_BRIDGE"
)

// GPUs is the number of nvidia.com/gpu that each node advertises.
const GPUs = 8

const (
	// Domain is the DNS domain of the cluster.
	Domain = "cluster.local"
	// APIPort is the port of the API server on the bridge's address.
	APIPort = 6443
	// MetricsPort is the port of metrics-server on the bridge's address.
	MetricsPort = 4443
	// EtcdPort is the loopback port of etcd for clients.
	EtcdPort = 12379
	// EtcdPeerPort is the loopback port of etcd for its (nonexistent) peers.
	EtcdPeerPort = 12380
	// LeaseSeconds is the duration of a kubelet's lease. The kubelet renews it four times as often.
	LeaseSeconds = 16
	// GraceSeconds is how long a node may be silent before it is lost. It is shorter than elsewhere
	// because tests wait for it.
	GraceSeconds = 16
	// Network is the name of the pod network.
	Network = "di-orchestrator-cluster"
	// NFTable is the table with the rule that hides pods behind this machine.
	NFTable = "di-orchestrator-cluster"
)

// maxStateDir is the maximum length of the state directory. Unix sockets below it then fit in the
// 108 characters that the kernel allows.
const maxStateDir = 38

// maxBridge reserves characters for the number of a node in the 15 characters of a device's name.
const maxBridge = 13

// Settings contains all choices of a user.
type Settings struct {
	// StateDir contains everything of a running cluster. It is removed with the cluster.
	StateDir string
	// CacheDir contains built and downloaded files. It remains.
	CacheDir string
	// SourceDir is the folder hack/cluster of the checkout.
	SourceDir string
	// Bridge is the name of the network device of the first node's pods. The names of the others
	// derive from it.
	Bridge string
	// PodCIDR is the address range of pods.
	PodCIDR netip.Prefix
	// ServiceCIDR is the address range of Services.
	ServiceCIDR netip.Prefix
}

// FromEnvironment reads and validates the settings. Neither other Kubernetes distributions nor
// Docker use the default networks. It reads the pins from the given folder, the root of the
// checkout or hack/cluster.
func FromEnvironment(getenv func(string) string, folder string) (Settings, error) {
	get := func(name, fallback string) string { return cmp.Or(getenv(name), fallback) }
	var cache string
	if dir := cmp.Or(getenv("XDG_CACHE_HOME"), filepath.Join(getenv("HOME"), ".cache")); filepath.IsAbs(dir) {
		cache = filepath.Join(dir, "di-orchestrator")
	}
	source, err := filepath.Abs(filepath.Join(folder, "hack", "cluster"))
	if _, missing := os.Stat(filepath.Join(source, "binaries")); missing != nil {
		source, err = filepath.Abs(folder)
	}
	pods, podsErr := netip.ParsePrefix(get(EnvPodCIDR, "10.207.0.0/20"))
	services, servicesErr := netip.ParsePrefix(get(EnvServiceCIDR, "10.207.64.0/20"))
	if err := errors.Join(err, podsErr, servicesErr); err != nil {
		return Settings{}, fmt.Errorf("settings: %w", err)
	}
	s := Settings{
		StateDir: get(EnvStateDir, "/var/lib/di-orchestrator-cluster"), CacheDir: get(EnvCacheDir, cache), SourceDir: source,
		Bridge: get(EnvBridge, "di-cluster0"), PodCIDR: pods, ServiceCIDR: services,
	}
	return s, s.Validate()
}

// Validate returns an error that lists every invalid setting.
func (s Settings) Validate() error {
	return errors.Join(
		validateDir("state directory", s.StateDir, maxStateDir), validateDir("cache directory", s.CacheDir, 4096),
		validateBridge(s.Bridge),
		validateCIDR("pod CIDR", s.PodCIDR), validateCIDR("service CIDR", s.ServiceCIDR),
		validateApart(s.PodCIDR, s.ServiceCIDR),
	)
}

func validateDir(name, dir string, longest int) error {
	if !filepath.IsAbs(dir) || filepath.Clean(dir) != dir || dir == "/" || len(dir) > longest {
		return fmt.Errorf("%s %q: want a clean absolute path below / of at most %d characters", name, dir, longest)
	}
	return nil
}

func validateBridge(bridge string) error {
	if bridge == "" || len(bridge) > maxBridge || strings.ContainsAny(bridge, "/ \t\n") {
		return fmt.Errorf("bridge %q: want a device name of 1 to %d characters without spaces and slashes", bridge, maxBridge)
	}
	return nil
}

func validateCIDR(what string, cidr netip.Prefix) error {
	if !cidr.IsValid() || !cidr.Addr().Is4() || cidr.Masked() != cidr || cidr.Bits() < 12 || cidr.Bits() > 24 {
		return fmt.Errorf("%s %q: want an IPv4 network of size /12 to /24, such as 10.207.0.0/20", what, cidr)
	}
	return nil
}

func validateApart(pods, services netip.Prefix) error {
	if pods.IsValid() && services.IsValid() && pods.Overlaps(services) {
		return fmt.Errorf("pod CIDR %s and service CIDR %s overlap: want them apart", pods, services)
	}
	return nil
}

// Gateway returns the address of the first node's bridge, which is the address of that node, the
// API server and the DNS server.
func (s Settings) Gateway() netip.Addr { return s.PodCIDR.Addr().Next() }

// APIService returns the cluster address of the API server.
func (s Settings) APIService() netip.Addr { return s.ServiceCIDR.Addr().Next() }

// APIServer returns the address of the API server for this machine and the pods.
func (s Settings) APIServer() string { return fmt.Sprintf("https://%s:%d", s.Gateway(), APIPort) }

// OnGateway returns host:port with the first node's address.
func (s Settings) OnGateway(port uint16) string {
	return netip.AddrPortFrom(s.Gateway(), port).String()
}

// Etcd returns the address of etcd.
func (s Settings) Etcd() string { return fmt.Sprintf("https://127.0.0.1:%d", EtcdPort) }

// State returns a path below the state directory.
func (s Settings) State(elem ...string) string {
	return filepath.Join(append([]string{s.StateDir}, elem...)...)
}

// Kubeconfig returns the path of the administrator's kubeconfig.
func (s Settings) Kubeconfig() string { return s.State("kubeconfig") }

// Identity returns the choices that cannot change while a cluster exists.
func (s Settings) Identity() map[string]string {
	return map[string]string{
		"bridge": s.Bridge, "podCIDR": s.PodCIDR.String(), "serviceCIDR": s.ServiceCIDR.String(),
		"nodes": strconv.Itoa(nodeCount),
	}
}
