// Copyright The DI Orchestrator Authors.
// SPDX-License-Identifier: Apache-2.0

package cluster

import (
	"context"
	"errors"
	"net"
	"net/netip"
	"os"
	"strings"
	"time"

	"opendilab.org/di-orchestrator/hack/cluster/internal/build"
	"opendilab.org/di-orchestrator/hack/cluster/internal/machine"
	"opendilab.org/di-orchestrator/hack/cluster/internal/network"
	"opendilab.org/di-orchestrator/hack/cluster/internal/pki"
	"opendilab.org/di-orchestrator/hack/cluster/internal/process"
	"opendilab.org/di-orchestrator/hack/cluster/internal/render"
	"opendilab.org/di-orchestrator/hack/cluster/internal/settings"
)

// runProxy starts one kube-proxy for all nodes because they share this machine's packet filter.
func (c *Cluster) runProxy(ctx context.Context) error {
	if err := c.claimProxyTable(); err != nil {
		return err
	}
	content := render.Proxy(c.settings, c.configFile(pki.Proxy+".kubeconfig"))
	config, err := c.writeConfig("kube-proxy.yaml", content)
	if err != nil {
		return err
	}
	spec := process.Spec{
		Name: build.Proxy, Program: c.cache.Path(build.Proxy), Args: []string{"--config=" + config},
		Env: c.cache.NftEnvironment(), Inputs: []string{content, c.authorityContent()},
	}
	// The API server answers on its cluster address once Services work.
	service := netip.AddrPortFrom(c.settings.APIService(), 443)
	return c.run(ctx, spec, dialing("tcp", service.String()))
}

// claimProxyTable returns an error if another cluster's kube-proxy uses the packet filter: both
// would write the same table.
func (c *Cluster) claimProxyTable() error {
	if _, err := os.Stat(c.configFile("kube-proxy.yaml")); err == nil {
		return nil
	}
	taken, err := network.HasProxyTable()
	if err != nil {
		return err
	}
	if taken {
		return machine.UnsuitableError{Reason: errors.New("another Kubernetes on this machine runs kube-proxy with nftables")}
	}
	return nil
}

func (c *Cluster) runDNS(ctx context.Context) error {
	content := render.Corefile(c.settings, c.configFile(pki.CoreDNS+".kubeconfig"), upstreamServers(resolvConf, c.settings.Gateway()))
	config, err := c.writeConfig("Corefile", content)
	if err != nil {
		return err
	}
	spec := process.Spec{
		Name: build.CoreDNS, Program: c.cache.Path(build.CoreDNS), Args: []string{"-conf", config},
		Inputs: []string{content, c.authorityContent()},
	}
	return c.run(ctx, spec, func(ctx context.Context) error {
		dialer := net.Dialer{Timeout: 2 * time.Second}
		resolver := net.Resolver{PreferGo: true, Dial: func(ctx context.Context, kind, _ string) (net.Conn, error) {
			return dialer.DialContext(ctx, kind, c.settings.OnGateway(53))
		}}
		_, err := resolver.LookupHost(ctx, "kubernetes.default.svc."+settings.Domain+".")
		return err
	})
}

// upstreamServers returns the DNS servers of this machine, or none if the file cannot be read.
func upstreamServers(file string, except netip.Addr) []netip.Addr {
	content, err := os.ReadFile(file)
	if err != nil {
		return nil
	}
	var servers []netip.Addr
	for line := range strings.Lines(string(content)) {
		fields := strings.Fields(line)
		if len(fields) < 2 || fields[0] != "nameserver" {
			continue
		}
		if server, err := netip.ParseAddr(fields[1]); err == nil && server != except {
			servers = append(servers, server)
		}
	}
	return servers
}
