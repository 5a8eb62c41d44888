// Copyright The DI Orchestrator Authors.
// SPDX-License-Identifier: Apache-2.0

package settings

import (
	"fmt"
	"net/netip"
	"strconv"
)

// nodeCount is how many nodes run containers. Two is the least with which a
// node can be lost and its pods find another one. Below, the network of the pods
// is cut into halves.
const nodeCount = 2

// Node is one of the nodes that run containers. All are on this machine, and
// each has what two machines do not share: a kubelet, a container runtime, a
// network for its pods, an address, and places for its files.
type Node struct {
	settings Settings
	index    int
}

// Nodes are the nodes of the cluster. The first one has the addresses of the
// control plane.
func (s Settings) Nodes() []Node {
	nodes := make([]Node, nodeCount)
	for i := range nodes {
		nodes[i] = Node{settings: s, index: i}
	}
	return nodes
}

// Node is the node with a name.
func (s Settings) Node(name string) (Node, bool) {
	for _, node := range s.Nodes() {
		if node.Name() == name {
			return node, true
		}
	}
	return Node{}, false
}

// IsFirst reports whether this is the node that has the addresses of the control
// plane.
func (n Node) IsFirst() bool { return n.index == 0 }

// Name is the name of the node.
func (n Node) Name() string { return n.numbered("local") }

// Daemon is the name of a daemon of which every node has one.
func (n Node) Daemon(name string) string { return n.numbered(name) }

// Bridge is the name of the network device of its pods.
func (n Node) Bridge() string { return n.numbered(n.settings.Bridge) }

// Cgroup is the parent of the cgroups of its pods.
func (n Node) Cgroup() string { return n.numbered("di-orchestrator-cluster") }

// numbered is the name of something of the node: the first node's have no number.
func (n Node) numbered(name string) string {
	if n.IsFirst() {
		return name
	}
	return fmt.Sprintf("%s-%d", name, n.index+1)
}

// PodCIDR is where its pods get their addresses from.
func (n Node) PodCIDR() netip.Prefix {
	whole := n.settings.PodCIDR
	base := whole.Addr().As4()
	// Networks are of size /12 to /24, so the bit that distinguishes the halves is
	// in one of the last three bytes.
	base[whole.Bits()/8] |= byte(n.index) << (7 - whole.Bits()%8)
	return netip.PrefixFrom(netip.AddrFrom4(base), whole.Bits()+1)
}

// Address is the address of its bridge, which is that of the node.
func (n Node) Address() netip.Addr { return n.PodCIDR().Addr().Next() }

// On is host:port on its address.
func (n Node) On(port uint16) string { return netip.AddrPortFrom(n.Address(), port).String() }

// State is a path of its own below the state directory.
func (n Node) State(elem ...string) string {
	if n.IsFirst() {
		return n.settings.State(elem...)
	}
	return n.settings.State(append([]string{n.Name()}, elem...)...)
}

// ShimSockets is where the helpers of containerd listen. Its name is short, for
// what is in it has names that fill a socket address.
func (n Node) ShimSockets() string {
	if n.IsFirst() {
		return n.settings.State("s")
	}
	return n.settings.State("s" + strconv.Itoa(n.index+1))
}

// ContainerdSocket is where its containerd listens.
func (n Node) ContainerdSocket() string { return n.State("run", "containerd.sock") }
