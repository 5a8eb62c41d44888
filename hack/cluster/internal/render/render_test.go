// Copyright The DI Orchestrator Authors.
// SPDX-License-Identifier: Apache-2.0

package render

import (
	"encoding/json"
	"net/netip"
	"os"
	"path/filepath"
	"reflect"
	"regexp"
	"slices"
	"strings"
	"testing"

	"sigs.k8s.io/yaml"

	"opendilab.org/di-orchestrator/hack/cluster/internal/settings"
)

func testSettings() settings.Settings {
	return settings.Settings{
		StateDir: "/state", CacheDir: "/cache", Bridge: "bridge0",
		PodCIDR: netip.MustParsePrefix("10.1.0.0/20"), ServiceCIDR: netip.MustParsePrefix("10.2.0.0/20"),
	}
}

func parse(t *testing.T, text string) map[string]any {
	t.Helper()
	var parsed map[string]any
	if err := yaml.Unmarshal([]byte(text), &parsed); err != nil {
		t.Fatalf("%v in\n%s", err, text)
	}
	return parsed
}

// field walks into nested mappings.
func field(t *testing.T, parsed map[string]any, path ...string) any {
	t.Helper()
	var current any = parsed
	for _, key := range path {
		mapping, ok := current.(map[string]any)
		if !ok {
			t.Fatalf("no %s on the way to %q", key, path)
		}
		current = mapping[key]
	}
	return current
}

func TestTheKubeletKeepsToItsStateDirectoryAndCgroup(t *testing.T) {
	t.Parallel()
	for i, wanted := range []map[string]any{{
		"podLogsDir": "/state/pod-logs", "volumePluginDir": "/state/volume-plugins",
		"cgroupRoot": "/di-orchestrator-cluster", "address": "10.1.0.1", "containerRuntimeEndpoint": "unix:///state/run/containerd.sock",
	}, {
		"podLogsDir": "/state/local-2/pod-logs", "volumePluginDir": "/state/local-2/volume-plugins",
		"cgroupRoot": "/di-orchestrator-cluster-2", "address": "10.1.8.1",
		"containerRuntimeEndpoint": "unix:///state/local-2/run/containerd.sock",
	}} {
		wanted["cgroupDriver"], wanted["failSwapOn"] = "cgroupfs", false
		wanted["authentication.anonymous.enabled"], wanted["authorization.mode"] = false, "Webhook"
		wanted["authentication.x509.clientCAFile"], wanted["tlsCertFile"] = "/pki/ca.crt", "/pki/server.crt"
		config := parse(t, Kubelet(testSettings().Nodes()[i], testSettings().Gateway(), KubeletFiles{
			CA: "/pki/ca.crt", Cert: "/pki/server.crt", Key: "/pki/server.key", ResolvConf: "/etc/resolv.conf",
		}))
		for path, want := range wanted {
			if got := field(t, config, strings.Split(path, ".")...); got != want {
				t.Errorf("node %d: %s is %v, want %v", i, path, got, want)
			}
		}
		if got := field(t, config, "clusterDNS"); !reflect.DeepEqual(got, []any{"10.1.0.1"}) {
			t.Errorf("node %d: pods ask %v for names, want the one server", i, got)
		}
	}
}

func TestTheProxyLeavesTheMachineAlone(t *testing.T) {
	t.Parallel()
	config := parse(t, Proxy(testSettings(), "/state/config/kube-proxy.kubeconfig"))
	for path, want := range map[string]any{
		"mode": "nftables", "clusterCIDR": "10.1.0.0/20", "bindAddress": "10.1.0.1",
		"conntrack.maxPerCore": float64(0), "conntrack.min": float64(0), "conntrack.tcpEstablishedTimeout": "0s",
	} {
		if got := field(t, config, strings.Split(path, ".")...); got != want {
			t.Errorf("%s is %v, want %v", path, got, want)
		}
	}
}

func TestEveryPathOfContainerdIsInTheStateDirectoryOrTheCache(t *testing.T) {
	t.Parallel()
	for _, node := range testSettings().Nodes() {
		config := containerdOf(node)
		for _, path := range pathsIn(config) {
			if !strings.HasPrefix(path, "/state/") && !strings.HasPrefix(path, "/cache/") {
				t.Errorf("%s is elsewhere", path)
			}
		}
		for _, want := range []string{`snapshotter = "native"`, `sandbox = "pause:1"`, "restrict_oom_score_adj = true"} {
			if !strings.Contains(config, want) {
				t.Errorf("the configuration lacks %s", want)
			}
		}
	}
}

func TestTheContainerdsOfTwoNodesShareNothingOfTheState(t *testing.T) {
	t.Parallel()
	nodes := testSettings().Nodes()
	others := pathsIn(containerdOf(nodes[1]))
	for _, path := range pathsIn(containerdOf(nodes[0])) {
		if strings.HasPrefix(path, "/state/") && slices.Contains(others, path) {
			t.Errorf("both have %s", path)
		}
	}
}

func containerdOf(node settings.Node) string {
	return Containerd(node, Runtime{
		Shim: "/cache/shim", Runc: "/cache/runc", CNIBin: "/cache/cni", PauseImage: "pause:1", Snapshotter: "native",
	})
}

func pathsIn(config string) []string {
	return slices.DeleteFunc(strings.Split(config, `"`), func(quoted string) bool { return !strings.HasPrefix(quoted, "/") })
}

func TestThePodNetworkOfANodeIsABridgeWithItsAddress(t *testing.T) {
	t.Parallel()
	for node, want := range map[string]struct{ bridge, subnet, gateway string }{
		"local":   {"bridge0", "10.1.0.0/21", "10.1.0.1"},
		"local-2": {"bridge0-2", "10.1.8.0/21", "10.1.8.1"},
	} {
		bridge, subnet, gateway := podNetworkOf(t, node)
		if bridge != want.bridge || subnet != want.subnet || gateway != want.gateway {
			t.Errorf("node %s: got bridge %s, subnet %s and gateway %s, want %v", node, bridge, subnet, gateway, want)
		}
	}
}

func podNetworkOf(t *testing.T, name string) (bridge, subnet, gateway string) {
	t.Helper()
	node, found := testSettings().Node(name)
	if !found {
		t.Fatalf("no node %s", name)
	}
	var list struct {
		Plugins []struct {
			Type, Bridge string
			IPAM         struct {
				Ranges [][]struct{ Subnet, Gateway string }
			}
		}
	}
	if err := json.Unmarshal([]byte(CNI(node)), &list); err != nil {
		t.Fatal(err)
	}
	plugin := list.Plugins[0]
	if plugin.Type != "bridge" {
		t.Errorf("got %+v", plugin)
	}
	return plugin.Bridge, plugin.IPAM.Ranges[0][0].Subnet, plugin.IPAM.Ranges[0][0].Gateway
}

func TestNamesOutsideTheClusterAreForwardedOnlyIfThereIsAServer(t *testing.T) {
	t.Parallel()
	for want, upstream := range map[bool][]netip.Addr{true: {netip.MustParseAddr("192.0.2.1")}, false: nil} {
		corefile := Corefile(testSettings(), "/kubeconfig", upstream)
		if got := strings.Contains(corefile, "forward . 192.0.2.1"); got != want {
			t.Errorf("forwards: %t, want %t in\n%s", got, want, corefile)
		}
	}
}

func TestCoreDNSHasTheCorefilesPluginsAndNoOthers(t *testing.T) {
	t.Parallel()
	main, err := os.ReadFile(filepath.Join("..", "..", "binaries", "coredns", "main.go"))
	if err != nil {
		t.Fatal(err)
	}
	var linked, named []string
	for _, found := range regexp.MustCompile(`_ "github.com/coredns/coredns/plugin/(.+)"`).FindAllSubmatch(main, -1) {
		linked = append(linked, string(found[1]))
	}
	corefile := Corefile(testSettings(), "/kubeconfig", []netip.Addr{netip.MustParseAddr("192.0.2.1")})
	for _, found := range regexp.MustCompile(`(?m)^ {4}(\w+)`).FindAllStringSubmatch(corefile, -1) {
		named = append(named, found[1])
	}
	slices.Sort(named)
	if !slices.Equal(linked, named) {
		t.Errorf("linked are %q, and the Corefile names %q", linked, named)
	}
}

func TestAKubeconfigRefersToItsFiles(t *testing.T) {
	t.Parallel()
	text := Kubeconfig(Credential{Server: "https://10.1.0.1:6443", CAFile: "/ca", CertFile: "/cert", KeyFile: "/key"})
	parse(t, text)
	for _, want := range []string{"server: https://10.1.0.1:6443", "certificate-authority: /ca", "client-certificate: /cert", "client-key: /key"} {
		if !strings.Contains(text, want) {
			t.Errorf("kubeconfig lacks %s", want)
		}
	}
}

func TestGPUsAreAdvertised(t *testing.T) {
	t.Parallel()
	for _, resources := range []string{"capacity", "allocatable"} {
		if got := field(t, parse(t, GPUPatch()), "status", resources, GPU); got != "8" {
			t.Errorf("%s is %v, want 8", resources, got)
		}
	}
}

func TestTheFirstObjectsAreWellFormed(t *testing.T) {
	t.Parallel()
	objects := ClusterObjects() + "---\n" + MetricsObjects(testSettings())
	for _, text := range strings.Split(objects, "---\n") {
		if kind := field(t, parse(t, text), "kind"); kind == nil {
			t.Errorf("no kind in\n%s", text)
		}
	}
}
