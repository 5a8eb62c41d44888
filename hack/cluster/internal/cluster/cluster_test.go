// Copyright The DI Orchestrator Authors.
// SPDX-License-Identifier: Apache-2.0

package cluster

import (
	"io"
	"net/netip"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"opendilab.org/di-orchestrator/hack/cluster/internal/build"
	"opendilab.org/di-orchestrator/hack/cluster/internal/process"
	"opendilab.org/di-orchestrator/hack/cluster/internal/settings"
)

func clusterIn(dir string) *Cluster {
	return New(settings.Settings{
		StateDir: dir, Bridge: "bridge0",
		PodCIDR: netip.MustParsePrefix("10.1.0.0/20"), ServiceCIDR: netip.MustParsePrefix("10.2.0.0/20"),
	}, nil, io.Discard)
}

func TestAStateDirectoryIsClaimedOnceAndKeepsItsNetworks(t *testing.T) {
	t.Parallel()
	dir := filepath.Join(t.TempDir(), "state")
	c := clusterIn(dir)
	for range 2 {
		if err := c.claimState(); err != nil {
			t.Fatal(err)
		}
	}
	c.settings.PodCIDR = netip.MustParsePrefix("10.3.0.0/20")
	if err := c.claimState(); err == nil || !strings.Contains(err.Error(), "podCIDR") {
		t.Errorf("got %v, want an error about the pod CIDR", err)
	}
}

func TestAFolderOfAnotherProgramIsNeitherClaimedNorRemoved(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	if err := os.WriteFile(filepath.Join(dir, "thesis.tex"), nil, 0o600); err != nil {
		t.Fatal(err)
	}
	c := clusterIn(dir)
	if err := c.claimState(); err == nil {
		t.Error("claimed a folder with other things")
	}
	if err := c.checkOwned(); err == nil {
		t.Error("would remove a folder with other things")
	}
}

func TestWhatACrashWhileClaimingLeavesIsNoObstacle(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	if err := os.WriteFile(filepath.Join(dir, "cluster.json.partial"), []byte("{"), 0o600); err != nil {
		t.Fatal(err)
	}
	c := clusterIn(dir)
	if err := c.checkOwned(); err != nil {
		t.Error(err)
	}
	if err := c.claimState(); err != nil {
		t.Error(err)
	}
}

func TestPodsTheKubeletDoesNotKnowYet(t *testing.T) {
	t.Parallel()
	list := func(ids ...string) string {
		items := make([]string, 0, len(ids))
		for _, id := range ids {
			items = append(items, `{"metadata":{"uid":"`+id+`"}}`)
		}
		return `{"items":[` + strings.Join(items, ",") + `]}`
	}
	for name, tc := range map[string]struct {
		bound, known string
		want         []string
	}{
		"none at all":          {list(), `{"items":null}`, nil},
		"all known":            {list("a", "b"), list("b", "a", "gone"), nil},
		"one unknown":          {list("a", "b"), list("a"), []string{"b"}},
		"the kubelet is empty": {list("a"), `{}`, []string{"a"}},
	} {
		got, err := unknownPods(tc.bound, tc.known)
		if err != nil || !slices.Equal(got, tc.want) {
			t.Errorf("%s: got %q (%v), want %q", name, got, err, tc.want)
		}
	}
	if _, err := unknownPods("nonsense", list()); err == nil {
		t.Error("accepted nonsense")
	}
}

func TestTheProcessesOfANodeAreDistinguished(t *testing.T) {
	t.Parallel()
	running := []process.Process{
		{PID: 1, Name: "kubelet", Program: "kubelet"}, {PID: 2, Name: "containerd", Program: "containerd"},
		{PID: 3, Name: "containerd", Program: "containerd-shim-runc-v2"}, {PID: 4, Name: "etcd", Program: "etcd"},
		{PID: 5, Name: "kubelet-2", Program: "kubelet"}, {PID: 6, Name: "containerd-2", Program: "containerd-shim-runc-v2"},
	}
	nodes := clusterIn("/state").settings.Nodes()
	for i, want := range [][]int{{1, 2, 3}, {5, 6}} {
		var got []int
		for _, p := range startedBy(nodes[i], running) {
			got = append(got, p.PID)
		}
		if !slices.Equal(got, want) {
			t.Errorf("node %s: got %v, want %v", nodes[i].Name(), got, want)
		}
	}
}

func TestOnlyNodesWithoutTheControlPlaneAreStopped(t *testing.T) {
	t.Parallel()
	for name, want := range map[string]string{"local": "control plane", "elsewhere": "want one of local, local-2"} {
		if err := clusterIn(t.TempDir()).StopNode(t.Context(), name); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("node %s: got %v, want an error about %q", name, err, want)
		}
	}
}

func TestEveryNodeHasAnIdentityOfItsOwn(t *testing.T) {
	t.Parallel()
	users := map[string]string{}
	for _, request := range certificates(clusterIn("/state").settings) {
		users[request.Name] = request.CommonName
	}
	for name, want := range map[string]string{
		"kubelet": "system:node:local", "kubelet-server": "system:node:local",
		"kubelet-2": "system:node:local-2", "kubelet-server-2": "system:node:local-2",
	} {
		if users[name] != want {
			t.Errorf("%s is %q, want %q", name, users[name], want)
		}
	}
}

func TestDNSServersOfTheMachineAreRead(t *testing.T) {
	t.Parallel()
	file := filepath.Join(t.TempDir(), "resolv.conf")
	content := "# comment\nsearch example.com\nnameserver 192.0.2.1\nnameserver nonsense\nnameserver 10.1.0.1\noptions ndots:1\n"
	if err := os.WriteFile(file, []byte(content), 0o600); err != nil {
		t.Fatal(err)
	}
	gateway := netip.MustParseAddr("10.1.0.1")
	if got, want := upstreamServers(file, gateway), []netip.Addr{netip.MustParseAddr("192.0.2.1")}; !slices.Equal(got, want) {
		t.Errorf("got %v, want %v", got, want)
	}
	if got := upstreamServers(filepath.Join(t.TempDir(), "missing"), gateway); len(got) != 0 {
		t.Errorf("got %v from no file", got)
	}
}

func TestGangSchedulingIsOnInEachProgram(t *testing.T) {
	t.Parallel()
	c := clusterIn(t.TempDir())
	cache, err := build.Open(t.TempDir(), filepath.Join("..", ".."))
	if err != nil {
		t.Fatal(err)
	}
	c.cache = cache
	for name, tc := range map[string]struct {
		spec process.Spec
		want []string
	}{
		"the API server serves PodGroups":         {c.apiServerSpec(), []string{"--feature-gates=" + podGroupGate, "--runtime-config=" + podGroupAPI}},
		"the scheduler places pods by them":       {c.schedulerSpec(), []string{"--feature-gates=" + podGroupGate + "," + gangGate}},
		"the controller manager lets go of these": {c.controllerManagerSpec(), []string{"--feature-gates=" + podGroupGate}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			for _, flag := range tc.want {
				if !slices.Contains(tc.spec.Args, flag) {
					t.Errorf("%s is started without %s", tc.spec.Name, flag)
				}
			}
		})
	}
}
