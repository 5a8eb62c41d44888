// Copyright The DI Orchestrator Authors.
// SPDX-License-Identifier: Apache-2.0

package cluster

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"

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

// runNode starts a node. Its kubelet creates the Node object.
func (c *Cluster) runNode(ctx context.Context, node settings.Node) error {
	if err := network.EnsureBridge(c.settings, node); err != nil {
		return err
	}
	if err := c.runContainerd(ctx, node); err != nil {
		return err
	}
	return c.runKubelet(ctx, node)
}

func (c *Cluster) runContainerd(ctx context.Context, node settings.Node) error {
	if err := os.MkdirAll(node.State("tmp"), 0o755); err != nil {
		return fmt.Errorf("folder of containerd: %w", err)
	}
	snapshotter, err := machine.Snapshotter(c.settings.StateDir)
	if err != nil {
		return err
	}
	content := render.Containerd(node, render.Runtime{
		Shim: c.cache.Path(build.ContainerdShim), Runc: c.cache.Path(build.Runc),
		CNIBin: filepath.Dir(c.cache.Path(build.CNIBridge)), PauseImage: build.PauseImageName, Snapshotter: snapshotter,
	})
	config, err := c.writeConfig(node.Daemon(build.Containerd)+".toml", content)
	if err != nil {
		return err
	}
	if err := machine.WriteFile(filepath.Join(render.CNIDir(node), "10-bridge.conflist"), []byte(render.CNI(node))); err != nil {
		return err
	}
	spec := process.Spec{
		Name: node.Daemon(build.Containerd), Program: c.cache.Path(build.Containerd), Args: []string{"--config", config},
		Env: c.cache.NftEnvironment(), Inputs: []string{content},
	}
	if err := c.run(ctx, spec, dialing("unix", node.ContainerdSocket())); err != nil {
		return err
	}
	_, err = c.ctr(ctx, node, "images", "import", c.cache.Path(build.PauseImage))
	return err
}

// forgetOldBoot removes the records that containerd and runc have of containers from before a
// restart of the machine.
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
	for _, node := range c.settings.Nodes() {
		if err := forgetContainers(node); err != nil {
			return err
		}
	}
	return machine.WriteFile(file, current)
}

// forgetContainers removes the records of running containers that a node's containerd and runc
// have.
func forgetContainers(node settings.Node) error {
	for _, dir := range []string{node.State("run"), node.ShimSockets()} {
		if err := machine.RemoveTree(dir); err != nil {
			return err
		}
	}
	return nil
}

func (c *Cluster) runKubelet(ctx context.Context, node settings.Node) error {
	if err := machine.EnsureCgroup(node.Cgroup()); err != nil {
		return err
	}
	for _, dir := range []string{"pod-logs", "kubelet"} {
		if err := os.MkdirAll(node.State(dir), 0o755); err != nil {
			return fmt.Errorf("folder of the kubelet: %w", err)
		}
	}
	server := node.Daemon(pki.KubeletServer)
	content := render.Kubelet(node, c.settings.Gateway(), render.KubeletFiles{
		CA: c.pkiFile(pki.CA + ".crt"), Cert: c.pkiFile(server + ".crt"), Key: c.pkiFile(server + ".key"), ResolvConf: resolvConf,
	})
	config, err := c.writeConfig(node.Daemon(build.Kubelet)+".yaml", content)
	if err != nil {
		return err
	}
	spec := process.Spec{
		Name: node.Daemon(build.Kubelet), Program: c.cache.Path(build.Kubelet), Env: c.cache.NftEnvironment(),
		Inputs: []string{content, c.authorityContent()},
		Args: []string{
			"--config=" + config, "--kubeconfig=" + c.configFile(node.Daemon(pki.Kubelet)+".kubeconfig"),
			"--root-dir=" + node.State("kubelet"), "--cert-dir=" + node.State("kubelet", "pki"),
			"--hostname-override=" + node.Name(), "--node-ip=" + node.Address().String(),
		},
	}
	return c.run(ctx, spec, dialing("tcp", node.On(10250)))
}

func (c *Cluster) ensureNodes(ctx context.Context) error {
	for _, node := range c.settings.Nodes() {
		if err := c.ensureNode(ctx, node); err != nil {
			return err
		}
	}
	return nil
}

// ensureNode waits for a node and makes it advertise GPUs.
func (c *Cluster) ensureNode(ctx context.Context, of settings.Node) error {
	node := "node/" + of.Name()
	for _, state := range []string{"--for=create", "--for=condition=Ready"} {
		if err := c.await(ctx, state, node); err != nil {
			return err
		}
	}
	patch := []string{"patch", node, "--subresource=status", "--type=merge", "--patch=" + render.GPUPatch()}
	if _, err := c.kubectlUntilDone(ctx, patch...); err != nil {
		return err
	}
	return c.awaitPods(ctx, of)
}

// awaitPods waits until a kubelet has learned the pods of its node again. A node remains ready for
// a while after its kubelet died.
func (c *Cluster) awaitPods(ctx context.Context, node settings.Node) error {
	ctx, cancel := context.WithTimeout(ctx, readyLimit)
	defer cancel()
	return process.Until(ctx, func(ctx context.Context) (bool, error) {
		bound, err := c.kubectl(ctx, "", "get", "pods", "-A", "--field-selector=spec.nodeName="+node.Name(), "-o", "json")
		if err != nil {
			return false, process.Retryable(err)
		}
		known, err := c.kubectl(ctx, "", "get", "--raw=/api/v1/nodes/"+node.Name()+"/proxy/pods")
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

// unknownPods returns the pods of the first list that are not in the second.
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
