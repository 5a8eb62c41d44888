// Copyright The DI Orchestrator Authors.
// SPDX-License-Identifier: Apache-2.0

package render

import (
	"encoding/json"
	"net/netip"
	"slices"
	"strings"
	"testing"

	"sigs.k8s.io/yaml"

	"opendilab.org/di-orchestrator/hack/cluster/internal/settings"
)

func testSettings() settings.Settings {
	return settings.Settings{
		StateDir: "/state", CacheDir: "/cache", Bridge: "bridge0", GPUs: 4,
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
	config := parse(t, Kubelet(testSettings(), "/state/pki", "/etc/resolv.conf"))
	for path, want := range map[string]any{
		"podLogsDir": "/state/pod-logs", "volumePluginDir": "/state/volume-plugins",
		"cgroupRoot": "/" + settings.Cgroup, "cgroupDriver": "cgroupfs", "address": "10.1.0.1",
		"containerRuntimeEndpoint": "unix:///state/run/containerd.sock", "failSwapOn": false,
		"authentication.anonymous.enabled": false, "authorization.mode": "Webhook",
	} {
		if got := field(t, config, strings.Split(path, ".")...); got != want {
			t.Errorf("%s is %v, want %v", path, got, want)
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
	config := Containerd(testSettings(), Runtime{
		Shim: "/cache/shim", Runc: "/cache/runc", CNIBin: "/cache/cni", PauseImage: "pause:1", Snapshotter: "native",
	})
	for _, quoted := range strings.Split(config, `"`) {
		if strings.HasPrefix(quoted, "/") && !strings.HasPrefix(quoted, "/state/") && !strings.HasPrefix(quoted, "/cache/") {
			t.Errorf("%s is elsewhere", quoted)
		}
	}
	for _, want := range []string{`snapshotter = "native"`, `sandbox = "pause:1"`, "restrict_oom_score_adj = true"} {
		if !strings.Contains(config, want) {
			t.Errorf("the configuration lacks %s", want)
		}
	}
}

func TestThePodNetworkIsABridgeWithTheGateway(t *testing.T) {
	t.Parallel()
	var list struct {
		Plugins []struct {
			Type, Bridge string
			IPAM         struct {
				Ranges [][]struct{ Subnet, Gateway string }
			}
		}
	}
	if err := json.Unmarshal([]byte(CNI(testSettings())), &list); err != nil {
		t.Fatal(err)
	}
	plugin := list.Plugins[0]
	if plugin.Type != "bridge" || plugin.Bridge != "bridge0" || plugin.IPAM.Ranges[0][0].Gateway != "10.1.0.1" {
		t.Errorf("got %+v", plugin)
	}
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

func TestGPUsAreAdvertisedAndTakenAway(t *testing.T) {
	t.Parallel()
	for count, want := range map[int]string{
		8: `{"status":{"allocatable":{"nvidia.com/gpu":"8"},"capacity":{"nvidia.com/gpu":"8"}}}`,
		0: `{"status":{"allocatable":{"nvidia.com/gpu":null},"capacity":{"nvidia.com/gpu":null}}}`,
	} {
		if got := GPUPatch(count); got != want {
			t.Errorf("%d GPUs: got %s, want %s", count, got, want)
		}
	}
}

func TestFakeNodesAreTaintedUnlessOpen(t *testing.T) {
	t.Parallel()
	for _, open := range []bool{false, true} {
		documents := strings.Split(FakeNodes(3, 2, open), "---\n")
		if len(documents) != 3 {
			t.Fatalf("%d documents, want 3", len(documents))
		}
		node := parse(t, documents[2])
		if name := field(t, node, "metadata", "name"); name != "fake-0002" {
			t.Errorf("name %v", name)
		}
		if gpus := field(t, node, "status", "allocatable", GPU); gpus != "2" {
			t.Errorf("%v GPUs, want 2", gpus)
		}
		if tainted := field(t, node, "spec", "taints") != nil; tainted == open {
			t.Errorf("open: %t, tainted: %t", open, tainted)
		}
	}
}

func TestOnlyFakeNodesBeyondTheCountAreSurplus(t *testing.T) {
	t.Parallel()
	existing := []string{settings.NodeName, "fake-0000", "fake-0001", "fake-0002"}
	if got, want := SurplusNodes(existing, 1), []string{"fake-0001", "fake-0002"}; !slices.Equal(got, want) {
		t.Errorf("got %q, want %q", got, want)
	}
}

func TestAuditPolicyAndFirstObjectsAreWellFormed(t *testing.T) {
	t.Parallel()
	for _, text := range append(strings.Split(ClusterObjects(), "---\n"), AuditPolicy()) {
		if kind := field(t, parse(t, text), "kind"); kind == nil {
			t.Errorf("no kind in\n%s", text)
		}
	}
}
