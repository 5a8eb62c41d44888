// Copyright The DI Orchestrator Authors.
// SPDX-License-Identifier: Apache-2.0

package settings

import (
	"fmt"
	"net/netip"
	"strconv"
)

// nodeCount is the number of nodes that run containers. Two is the minimum for a test in which the
// pods of a lost node move to another. The code below splits the pod network into halves.
const nodeCount = 2

// Node is one of the nodes that run containers. All are on this machine. Each has what real
// machines do not share: a kubelet, a container runtime, a pod network, an address, and folders for
// its files.
type Node struct {
	settings Settings
	index    int
}

// Nodes returns the nodes of the cluster. The first one has the addresses of the control plane.
func (s Settings) Nodes() []Node {
	nodes := make([]Node, nodeCount)
	for i := range nodes {
		nodes[i] = Node{settings: s, index: i}
	}
	return nodes
}

// Node returns the node with a name.
func (s Settings) Node(name string) (Node, bool) {
	for _, node := range s.Nodes() {
		if node.Name() == name {
			return node, true
		}
	}
	return Node{}, false
}

// IsFirst reports whether this node has the addresses of the control plane.
func (n Node) IsFirst() bool { return n.index == 0 }

// Name returns the name of the node.
func (n Node) Name() string { return n.numbered("local") }

// Daemon returns the name of a daemon that runs once per node.
func (n Node) Daemon(name string) string { return n.numbered(name) }

// Bridge returns the name of the network device of the node's pods.
func (n Node) Bridge() string { return n.numbered(n.settings.Bridge) }

// Cgroup returns the parent of the cgroups of the node's pods.
func (n Node) Cgroup() string { return n.numbered("di-orchestrator-cluster") }

// numbered returns a name with the number of the node. The first node's names have no number.
func (n Node) numbered(name string) string {
	if n.IsFirst() {
		return name
	}
	return fmt.Sprintf("%s-%d", name, n.index+1)
}

// PodCIDR returns the address range of the node's pods.
func (n Node) PodCIDR() netip.Prefix {
	whole := n.settings.PodCIDR
	base := whole.Addr().As4()
	// Networks are of size /12 to /24, so the bit that distinguishes the halves is
	// in one of the last three bytes.
	base[whole.Bits()/8] |= byte(n.index) << (7 - whole.Bits()%8)
	return netip.PrefixFrom(netip.AddrFrom4(base), whole.Bits()+1)
}

// Address returns the address of the node and of its bridge.
func (n Node) Address() netip.Addr { return n.PodCIDR().Addr().Next() }

// On returns host:port with the node's address.
func (n Node) On(port uint16) string { return netip.AddrPortFrom(n.Address(), port).String() }

// State returns a path of the node below the state directory.
func (n Node) State(elem ...string) string {
	if n.IsFirst() {
		return n.settings.State(elem...)
	}
	return n.settings.State(append([]string{n.Name()}, elem...)...)
}

// ShimSockets returns the folder of the sockets of containerd's helpers. Its name is short because
// the names of the sockets almost fill a socket address.
func (n Node) ShimSockets() string {
	if n.IsFirst() {
		return n.settings.State("s")
	}
	return n.settings.State("s" + strconv.Itoa(n.index+1))
}

// ContainerdSocket returns the socket of the node's containerd.
func (n Node) ContainerdSocket() string { return n.State("run", "containerd.sock") }
