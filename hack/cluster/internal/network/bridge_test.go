// Copyright The DI Orchestrator Authors.
// SPDX-License-Identifier: Apache-2.0

package network

import (
	"errors"
	"net"
	"os"
	"os/exec"
	"syscall"
	"testing"

	"github.com/vishvananda/netlink"

	"opendilab.org/di-orchestrator/hack/cluster/internal/settings"
)

func TestAPodThatComesAndGoesChangesNoAddressOfABridge(t *testing.T) {
	if !inOwnNetwork(t) {
		return
	}
	s, err := settings.FromEnvironment(func(name string) string { return map[string]string{"HOME": "/root"}[name] }, "../..")
	if err != nil {
		t.Fatal(err)
	}
	for _, node := range s.Nodes() {
		if err := EnsureBridge(s, node); err != nil {
			t.Fatal(err)
		}
		bridge, err := findBridge(s, node)
		if err != nil {
			t.Fatal(err)
		}
		// No address is lower than this one, which is the first that a person may give.
		attrs := netlink.NewLinkAttrs()
		attrs.Name, attrs.MasterIndex, attrs.HardwareAddr = "pod", bridge.Attrs().Index, net.HardwareAddr{2, 0, 0, 0, 0, 1}
		pod := &netlink.Veth{LinkAttrs: attrs, PeerName: "peer"}
		if err := errors.Join(netlink.LinkAdd(pod), netlink.LinkSetUp(pod)); err != nil {
			t.Fatal(err)
		}
		if with, err := findBridge(s, node); err != nil || with.Attrs().HardwareAddr.String() != bridge.Attrs().HardwareAddr.String() {
			t.Errorf("bridge %s had %v, and with a pod %v (%v)", node.Bridge(), bridge.Attrs().HardwareAddr, with.Attrs().HardwareAddr, err)
		}
		if err := netlink.LinkDel(pod); err != nil {
			t.Fatal(err)
		}
	}
}

// inOwnNetwork runs the test again in a network of its own, and reports whether this is that run.
func inOwnNetwork(t *testing.T) bool {
	t.Helper()
	const inside = "NETWORK_OF_THE_TEST"
	if os.Getenv(inside) != "" {
		return true
	}
	own := exec.CommandContext(t.Context(), os.Args[0], "-test.run=^"+t.Name()+"$", "-test.v")
	own.Env = append(os.Environ(), inside+"=own")
	own.SysProcAttr = &syscall.SysProcAttr{
		Cloneflags:  syscall.CLONE_NEWUSER | syscall.CLONE_NEWNET,
		UidMappings: []syscall.SysProcIDMap{{HostID: os.Getuid(), Size: 1}},
		GidMappings: []syscall.SysProcIDMap{{HostID: os.Getgid(), Size: 1}},
	}
	if os.Geteuid() == 0 {
		own.SysProcAttr = &syscall.SysProcAttr{Cloneflags: syscall.CLONE_NEWNET}
	}
	output, err := own.CombinedOutput()
	if err != nil && os.Geteuid() != 0 {
		t.Skipf("root, or who may create bridges in a user namespace, runs this test: %v\n%s", err, output)
	}
	if err != nil {
		t.Errorf("in a network of its own: %v\n%s", err, output)
	}
	return false
}
