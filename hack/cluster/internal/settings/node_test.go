// Copyright The DI Orchestrator Authors.
// SPDX-License-Identifier: Apache-2.0

package settings

import (
	"net/netip"
	"strings"
	"testing"
)

func TestTheNodesHaveTheHalvesOfThePodNetwork(t *testing.T) {
	t.Parallel()
	for whole, halves := range map[string][2]string{
		"10.207.0.0/20": {"10.207.0.0/21", "10.207.8.0/21"},
		"10.16.0.0/12":  {"10.16.0.0/13", "10.24.0.0/13"},
		"10.1.0.0/16":   {"10.1.0.0/17", "10.1.128.0/17"},
		"10.1.2.0/23":   {"10.1.2.0/24", "10.1.3.0/24"},
		"10.1.2.0/24":   {"10.1.2.0/25", "10.1.2.128/25"},
	} {
		s := good()
		s.PodCIDR = netip.MustParsePrefix(whole)
		for i, node := range s.Nodes() {
			if got := node.PodCIDR().String(); got != halves[i] {
				t.Errorf("node %s of %s: got %s, want %s", node.Name(), whole, got, halves[i])
			}
		}
	}
}

func TestTheFirstNodeHasTheAddressOfTheControlPlane(t *testing.T) {
	t.Parallel()
	s := good()
	for _, node := range s.Nodes() {
		if got := node.Address() == s.Gateway(); got != node.IsFirst() {
			t.Errorf("node %s: has the address: %t", node.Name(), got)
		}
	}
}

func TestNodesShareNothing(t *testing.T) {
	t.Parallel()
	nodes := good().Nodes()
	for what, of := range map[string]func(Node) string{
		"name": Node.Name, "bridge": Node.Bridge, "cgroup": Node.Cgroup, "shim sockets": Node.ShimSockets,
		"containerd socket": Node.ContainerdSocket,
		"address":           func(n Node) string { return n.On(10250) },
		"state":             func(n Node) string { return n.State("kubelet") },
		"daemon":            func(n Node) string { return n.Daemon("kubelet") },
	} {
		if first, second := of(nodes[0]), of(nodes[1]); first == second {
			t.Errorf("%s: both have %s", what, first)
		}
	}
}

func TestNodesAreFoundByName(t *testing.T) {
	t.Parallel()
	for _, node := range good().Nodes() {
		if found, ok := good().Node(node.Name()); !ok || found != node {
			t.Errorf("node %s: got %v, %t", node.Name(), found, ok)
		}
	}
	if _, ok := good().Node("elsewhere"); ok {
		t.Error("found a node that is not there")
	}
}

// The names of the sockets are hashes of 64 characters, and containerd refuses
// paths of more than 106.
func TestSocketsFitInTheLongestStateDirectory(t *testing.T) {
	t.Parallel()
	s := good()
	s.StateDir = "/" + strings.Repeat("a", maxStateDir-1)
	for _, node := range s.Nodes() {
		if path := node.ShimSockets() + "/" + strings.Repeat("f", 64); len(path) > 106 {
			t.Errorf("node %s: %d characters", node.Name(), len(path))
		}
	}
}

func TestTheNameOfEveryBridgeFitsADevice(t *testing.T) {
	t.Parallel()
	s := good()
	s.Bridge = strings.Repeat("b", maxBridge)
	if err := s.Validate(); err != nil {
		t.Fatal(err)
	}
	for _, node := range s.Nodes() {
		if len(node.Bridge()) > 15 {
			t.Errorf("bridge %s has %d characters", node.Bridge(), len(node.Bridge()))
		}
	}
}
