// Copyright The DI Orchestrator Authors.
// SPDX-License-Identifier: Apache-2.0

package network

import (
	"fmt"
	"net"
	"net/netip"
	"slices"

	"github.com/google/nftables"
	"github.com/google/nftables/binaryutil"
	"github.com/google/nftables/expr"

	"opendilab.org/di-orchestrator/hack/cluster/internal/settings"
)

// proxyTable is the name of kube-proxy's tables.
const proxyTable = "kube-proxy"

// HasProxyTable reports whether a kube-proxy runs on this machine.
func HasProxyTable() (bool, error) {
	tables, err := new(nftables.Conn).ListTables()
	if err != nil {
		return false, fmt.Errorf("list tables of the packet filter: %w", err)
	}
	return slices.ContainsFunc(tables, func(t *nftables.Table) bool { return t.Name == proxyTable }), nil
}

// EnsureMasquerade gives pods access to everything that this machine can reach: packets that leave
// the pod network get the address of this machine. It uses a separate table, so that its removal
// affects nothing else.
func EnsureMasquerade(s settings.Settings) error {
	if err := RemoveTables(settings.NFTable); err != nil {
		return err
	}
	conn := new(nftables.Conn)
	table := conn.AddTable(&nftables.Table{Family: nftables.TableFamilyIPv4, Name: settings.NFTable})
	chain := conn.AddChain(&nftables.Chain{
		Name: "postrouting", Table: table, Type: nftables.ChainTypeNAT,
		Hooknum: nftables.ChainHookPostrouting, Priority: nftables.ChainPriorityNATSource,
	})
	const sourceOffset, destinationOffset = 12, 16
	exprs := slices.Concat(
		matchNetwork(sourceOffset, s.PodCIDR, expr.CmpOpEq),
		matchNetwork(destinationOffset, s.PodCIDR, expr.CmpOpNeq),
		[]expr.Any{&expr.Masq{}},
	)
	conn.AddRule(&nftables.Rule{Table: table, Chain: chain, Exprs: exprs})
	if err := conn.Flush(); err != nil {
		return fmt.Errorf("hide pods behind this machine: %w", err)
	}
	return nil
}

// matchNetwork compares the network of an address in the IPv4 header.
func matchNetwork(offset uint32, cidr netip.Prefix, op expr.CmpOp) []expr.Any {
	return []expr.Any{
		&expr.Payload{DestRegister: 1, Base: expr.PayloadBaseNetworkHeader, Offset: offset, Len: 4},
		&expr.Bitwise{
			SourceRegister: 1, DestRegister: 1, Len: 4,
			Mask: net.CIDRMask(cidr.Bits(), 32), Xor: binaryutil.NativeEndian.PutUint32(0),
		},
		&expr.Cmp{Op: op, Register: 1, Data: cidr.Masked().Addr().AsSlice()},
	}
}

// RemoveProxyTables removes the tables that kube-proxy leaves behind.
func RemoveProxyTables() error { return RemoveTables(proxyTable) }

// RemoveTables removes the tables with a name, if there are any.
func RemoveTables(name string) error {
	conn := new(nftables.Conn)
	tables, err := conn.ListTables()
	if err != nil {
		return fmt.Errorf("list tables of the packet filter: %w", err)
	}
	for _, table := range tables {
		if table.Name == name {
			conn.DelTable(table)
		}
	}
	if err := conn.Flush(); err != nil {
		return fmt.Errorf("remove tables %s: %w", name, err)
	}
	return nil
}
