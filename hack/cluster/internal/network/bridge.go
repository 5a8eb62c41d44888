// Copyright The DI Orchestrator Authors.
// SPDX-License-Identifier: Apache-2.0

// Package network creates and removes the network between the pods of the local cluster and this
// machine.
package network

import (
	"errors"
	"fmt"
	"net"
	"net/netip"

	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"

	"opendilab.org/di-orchestrator/hack/cluster/internal/settings"
)

// owner returns the alias of the bridge, which identifies its owner even if all other state is
// lost.
func owner(s settings.Settings) string { return "di-orchestrator-cluster " + s.StateDir }

// CheckFree returns an error if the networks of the cluster cannot be used: another program's
// device has the name of the bridge, or a conflicting route exists.
func CheckFree(s settings.Settings) error {
	mine := map[int]bool{}
	for _, node := range s.Nodes() {
		bridge, err := findBridge(s, node)
		if err != nil {
			return err
		}
		if bridge != nil {
			mine[bridge.Attrs().Index] = true
		}
	}
	routes, err := netlink.RouteList(nil, netlink.FAMILY_V4)
	if err != nil {
		return fmt.Errorf("list routes: %w", err)
	}
	for _, route := range routes {
		if mine[route.LinkIndex] {
			continue
		}
		dst, ok := prefixOf(route.Dst)
		if !ok {
			continue
		}
		for setting, cidr := range map[string]netip.Prefix{settings.EnvPodCIDR: s.PodCIDR, settings.EnvServiceCIDR: s.ServiceCIDR} {
			if dst.Overlaps(cidr) {
				return fmt.Errorf("this machine has a route to %s, which overlaps %s: set %s to a free network", dst, cidr, setting)
			}
		}
	}
	return nil
}

// prefixOf converts the destination of a route to a prefix. The default route has none.
func prefixOf(dst *net.IPNet) (netip.Prefix, bool) {
	if dst == nil {
		return netip.Prefix{}, false
	}
	addr, ok := netip.AddrFromSlice(dst.IP.To4())
	ones, _ := dst.Mask.Size()
	return netip.PrefixFrom(addr, ones), ok && ones > 0
}

// EnsureBridge creates a node's bridge with its address, or completes the setup of an existing one.
// The first node's bridge is also the route to Services.
func EnsureBridge(s settings.Settings, node settings.Node) error {
	bridge, err := findBridge(s, node)
	if err != nil {
		return err
	}
	if bridge == nil {
		if bridge, err = createBridge(s, node); err != nil {
			return err
		}
	}
	address := &netlink.Addr{IPNet: ipNet(netip.PrefixFrom(node.Address(), node.PodCIDR().Bits()))}
	if err := netlink.AddrReplace(bridge, address); err != nil {
		return fmt.Errorf("address of bridge %s: %w", node.Bridge(), err)
	}
	// A bridge without a hardware address of its own takes the lowest one of its ports, so that pods that come and go
	// change it. The other pods send to the old one until they notice, up to a minute later.
	if err := netlink.LinkSetHardwareAddr(bridge, bridge.Attrs().HardwareAddr); err != nil {
		return fmt.Errorf("keep the hardware address of bridge %s: %w", node.Bridge(), err)
	}
	if err := netlink.LinkSetUp(bridge); err != nil {
		return fmt.Errorf("bring bridge %s up: %w", node.Bridge(), err)
	}
	if !node.IsFirst() {
		return nil
	}
	// With the route, this machine reaches Services even without a default route, from the address
	// of the bridge.
	route := &netlink.Route{LinkIndex: bridge.Attrs().Index, Dst: ipNet(s.ServiceCIDR), Src: s.Gateway().AsSlice(), Scope: unix.RT_SCOPE_LINK}
	if err := netlink.RouteReplace(route); err != nil {
		return fmt.Errorf("route to Services: %w", err)
	}
	return nil
}

func createBridge(s settings.Settings, node settings.Node) (netlink.Link, error) {
	attrs := netlink.NewLinkAttrs()
	attrs.Name, attrs.Alias = node.Bridge(), owner(s)
	if err := netlink.LinkAdd(&netlink.Bridge{LinkAttrs: attrs}); err != nil {
		return nil, fmt.Errorf("create bridge %s: %w", node.Bridge(), err)
	}
	bridge, err := netlink.LinkByName(node.Bridge())
	if err != nil {
		return nil, fmt.Errorf("look up bridge %s: %w", node.Bridge(), err)
	}
	if err := netlink.LinkSetAlias(bridge, owner(s)); err != nil {
		return nil, fmt.Errorf("name the owner of bridge %s: %w", node.Bridge(), err)
	}
	return bridge, nil
}

// Unplug disconnects a node from the network without notice, like pulling its cable.
func Unplug(s settings.Settings, node settings.Node) error {
	bridge, err := findBridge(s, node)
	if err != nil || bridge == nil {
		return err
	}
	if err := netlink.LinkSetDown(bridge); err != nil {
		return fmt.Errorf("take bridge %s down: %w", node.Bridge(), err)
	}
	return nil
}

func ipNet(p netip.Prefix) *net.IPNet {
	return &net.IPNet{IP: p.Addr().AsSlice(), Mask: net.CIDRMask(p.Bits(), p.Addr().BitLen())}
}

// findBridge returns the bridge of a node, or nil if it does not exist.
func findBridge(s settings.Settings, node settings.Node) (netlink.Link, error) {
	link, err := netlink.LinkByName(node.Bridge())
	if notFound := (netlink.LinkNotFoundError{}); errors.As(err, &notFound) {
		return nil, nil
	}
	if err != nil {
		return nil, fmt.Errorf("look up device %s: %w", node.Bridge(), err)
	}
	if alias := link.Attrs().Alias; alias != owner(s) && alias != "" {
		return nil, fmt.Errorf("device %s belongs to %q: set %s to another name", node.Bridge(), alias, settings.EnvBridge)
	}
	// A bridge without addresses and owner results from a crash between its creation and naming.
	// Any other bridge without an owner is foreign.
	if link.Attrs().Alias == "" {
		addresses, err := netlink.AddrList(link, netlink.FAMILY_V4)
		if err != nil || len(addresses) > 0 || link.Type() != "bridge" {
			return nil, fmt.Errorf("device %s belongs to another program: set %s to another name", node.Bridge(), settings.EnvBridge)
		}
		if err := netlink.LinkSetAlias(link, owner(s)); err != nil {
			return nil, fmt.Errorf("name the owner of bridge %s: %w", node.Bridge(), err)
		}
	}
	return link, nil
}

// RemoveBridge deletes the bridge of a node and all devices still attached to it. The kernel also
// removes its addresses and routes.
func RemoveBridge(s settings.Settings, node settings.Node) error {
	bridge, err := findBridge(s, node)
	if err != nil || bridge == nil {
		return err
	}
	links, err := netlink.LinkList()
	if err != nil {
		return fmt.Errorf("list devices: %w", err)
	}
	for _, link := range links {
		if link.Attrs().MasterIndex != bridge.Attrs().Index {
			continue
		}
		// A device may already be gone because its other end vanished with its pod.
		if err := netlink.LinkDel(link); err != nil && !errors.Is(err, unix.ENODEV) {
			return fmt.Errorf("delete device %s: %w", link.Attrs().Name, err)
		}
	}
	if err := netlink.LinkDel(bridge); err != nil {
		return fmt.Errorf("delete bridge %s: %w", node.Bridge(), err)
	}
	return nil
}
