// Copyright The DI Orchestrator Authors.
// SPDX-License-Identifier: Apache-2.0

package cluster

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"os"
	"path/filepath"
	"slices"
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

// resolvConf is the machine's own list of DNS servers.
const resolvConf = "/etc/resolv.conf"

func (c *Cluster) runContainerd(ctx context.Context) error {
	if err := c.forgetOldBoot(); err != nil {
		return err
	}
	snapshotter, err := machine.Snapshotter(c.settings.StateDir)
	if err != nil {
		return err
	}
	content := render.Containerd(c.settings, render.Runtime{
		Shim: c.cache.Path(build.ContainerdShim), Runc: c.cache.Path(build.Runc),
		CNIBin: filepath.Dir(c.cache.Path(build.CNIBridge)), PauseImage: build.PauseImageName, Snapshotter: snapshotter,
	})
	config, err := c.writeConfig("containerd.toml", content)
	if err != nil {
		return err
	}
	if err := machine.WriteFile(filepath.Join(render.CNIDir(c.settings), "10-bridge.conflist"), []byte(render.CNI(c.settings))); err != nil {
		return err
	}
	spec := process.Spec{
		Name: build.Containerd, Program: c.cache.Path(build.Containerd), Args: []string{"--config", config},
		Env: c.cache.NftEnvironment(), Inputs: []string{content},
	}
	if err := c.run(ctx, spec, dialing("unix", c.settings.ContainerdSocket())); err != nil {
		return err
	}
	_, err = c.ctr(ctx, "images", "import", c.cache.Path(build.PauseImage))
	return err
}

// forgetOldBoot removes what containerd and runc remember of running
// containers when the machine was restarted since.
func (c *Cluster) forgetOldBoot() error {
	current, err := os.ReadFile("/proc/sys/kernel/random/boot_id")
	if err != nil {
		return fmt.Errorf("read boot id: %w", err)
	}
	file := c.settings.State("boot-id")
	recorded, err := os.ReadFile(file)
	if err == nil && string(recorded) == string(current) {
		return nil
	}
	if err != nil && !errors.Is(err, os.ErrNotExist) {
		return fmt.Errorf("read recorded boot id: %w", err)
	}
	for _, dir := range []string{"run", "s"} {
		if err := machine.RemoveTree(c.settings.State(dir)); err != nil {
			return err
		}
	}
	return machine.WriteFile(file, current)
}

func (c *Cluster) runKubelet(ctx context.Context) error {
	if err := machine.EnsureCgroup(settings.Cgroup); err != nil {
		return err
	}
	content := render.Kubelet(c.settings, c.pkiDir(), resolvConf)
	config, err := c.writeConfig("kubelet.yaml", content)
	if err != nil {
		return err
	}
	spec := process.Spec{
		Name: build.Kubelet, Program: c.cache.Path(build.Kubelet), Env: c.cache.NftEnvironment(),
		Inputs: []string{content, c.authorityContent()},
		Args: []string{
			"--config=" + config, "--kubeconfig=" + c.configFile(pki.Kubelet+".kubeconfig"),
			"--root-dir=" + c.settings.State("kubelet"), "--cert-dir=" + c.settings.State("kubelet", "pki"),
			"--hostname-override=" + settings.NodeName, "--node-ip=" + c.settings.Gateway().String(),
		},
	}
	return c.run(ctx, spec, dialing("tcp", c.settings.OnGateway(10250)))
}

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

// claimProxyTable refuses to share the packet filter with another cluster's
// kube-proxy: both would write the same table.
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

// upstreamServers are the DNS servers of this machine. A file that cannot be
// read means that there are none.
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

// ensureNode waits for the node and lets it advertise the GPUs.
func (c *Cluster) ensureNode(ctx context.Context) error {
	node := "node/" + settings.NodeName
	if _, err := c.kubectl(ctx, "", "wait", "--for=create", node, "--timeout=60s"); err != nil {
		return err
	}
	if _, err := c.kubectl(ctx, "", "wait", "--for=condition=Ready", node, "--timeout=120s"); err != nil {
		return err
	}
	if _, err := c.kubectl(ctx, "", "patch", node, "--subresource=status", "--type=merge", "--patch="+render.GPUPatch(c.settings.GPUs)); err != nil {
		return err
	}
	return c.awaitPods(ctx)
}

// awaitPods waits until the kubelet knows the pods of its node again: a node
// counts as ready for a while after its kubelet died.
func (c *Cluster) awaitPods(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, time.Minute)
	defer cancel()
	return process.Until(ctx, func(ctx context.Context) (bool, error) {
		bound, err := c.kubectl(ctx, "", "get", "pods", "-A", "--field-selector=spec.nodeName="+settings.NodeName, "-o", "json")
		if err != nil {
			return false, process.Retryable(err)
		}
		known, err := c.kubectl(ctx, "", "get", "--raw=/api/v1/nodes/"+settings.NodeName+"/proxy/pods")
		if err != nil {
			return false, process.Retryable(err)
		}
		missing, err := unknownPods(bound, known)
		if err != nil {
			return false, err
		}
		if len(missing) > 0 {
			return false, process.Retryable(fmt.Errorf("the kubelet does not know pods %s yet", strings.Join(missing, ", ")))
		}
		return true, nil
	})
}

// unknownPods are the pods of the first list that the second one lacks.
func unknownPods(bound, known string) ([]string, error) {
	inBound, err := podIDs(bound)
	if err != nil {
		return nil, err
	}
	inKnown, err := podIDs(known)
	if err != nil {
		return nil, err
	}
	return slices.DeleteFunc(inBound, func(id string) bool { return slices.Contains(inKnown, id) }), nil
}

func podIDs(list string) ([]string, error) {
	var pods struct {
		Items []struct {
			Metadata struct {
				UID string `json:"uid"`
			} `json:"metadata"`
		} `json:"items"`
	}
	if err := json.Unmarshal([]byte(list), &pods); err != nil {
		return nil, fmt.Errorf("parse list of pods: %w", err)
	}
	ids := make([]string, 0, len(pods.Items))
	for _, pod := range pods.Items {
		ids = append(ids, pod.Metadata.UID)
	}
	return ids, nil
}
