// Copyright The DI Orchestrator Authors.
// SPDX-License-Identifier: Apache-2.0

package render

import (
	"encoding/json"
	"fmt"

	"opendilab.org/di-orchestrator/hack/cluster/internal/settings"
)

// Runtime are the paths and choices containerd needs.
type Runtime struct {
	// Shim is the path of containerd-shim-runc-v2.
	Shim string
	// Runc is the path of runc.
	Runc string
	// CNIBin is the folder with the network plugins.
	CNIBin string
	// PauseImage is the reference of the image that holds a pod's namespaces.
	PauseImage string
	// Snapshotter is overlayfs, or native where that does not work.
	Snapshotter string
}

// Containerd renders the configuration of a node's containerd. Every path is below the
// state directory; plugins that would make other folders are off.
func Containerd(n settings.Node, r Runtime) string {
	return fmt.Sprintf(`version = 3
root = %[1]q
state = %[2]q
temp = %[3]q
disabled_plugins = [
  "io.containerd.internal.v1.opt",
  "io.containerd.nri.v1.nri",
  "io.containerd.image-verifier.v1.bindir",
  "io.containerd.tracing.processor.v1.otlp",
  "io.containerd.internal.v1.tracing",
  "io.containerd.snapshotter.v1.blockfile",
  "io.containerd.snapshotter.v1.btrfs",
  "io.containerd.snapshotter.v1.devmapper",
  "io.containerd.snapshotter.v1.erofs",
  "io.containerd.snapshotter.v1.zfs",
  "io.containerd.differ.v1.erofs",
  "io.containerd.mount-handler.v1.erofs",
]

[grpc]
  address = %[4]q

[plugins."io.containerd.shim.v1.manager"]
  socket_dir = %[5]q

[plugins."io.containerd.cri.v1.images"]
  snapshotter = %[6]q
[plugins."io.containerd.cri.v1.images".pinned_images]
  sandbox = %[7]q

[plugins."io.containerd.cri.v1.runtime"]
  # A process without CAP_SYS_RESOURCE must not lower its OOM score.
  restrict_oom_score_adj = true
  netns_mounts_under_state_dir = true
  tolerate_missing_hugetlb_controller = true
  disable_hugetlb_controller = true
  enable_unprivileged_ports = true
  enable_unprivileged_icmp = true
  cdi_spec_dirs = [%[8]q]
[plugins."io.containerd.cri.v1.runtime".cni]
  bin_dirs = [%[9]q]
  conf_dir = %[10]q
[plugins."io.containerd.cri.v1.runtime".containerd]
  default_runtime_name = "runc"
[plugins."io.containerd.cri.v1.runtime".containerd.runtimes.runc]
  runtime_type = "io.containerd.runc.v2"
  runtime_path = %[11]q
  snapshotter = %[6]q
[plugins."io.containerd.cri.v1.runtime".containerd.runtimes.runc.options]
  BinaryName = %[12]q
  Root = %[13]q
  SystemdCgroup = false
`,
		n.State("containerd"), n.State("run", "containerd"), n.State("tmp"), n.ContainerdSocket(), n.ShimSockets(),
		r.Snapshotter, r.PauseImage, n.State("cdi"), r.CNIBin, CNIDir(n), r.Shim, r.Runc, n.State("run", "runc"))
}

// CNIDir is the folder containerd reads the pod network from.
func CNIDir(n settings.Node) string { return n.State("config", "cni") }

// CNI renders the network of a node's pods: a bridge on this machine.
func CNI(n settings.Node) string {
	list := object{
		"cniVersion": "1.0.0", "name": settings.Network,
		"plugins": []object{
			{
				"type": "bridge", "bridge": n.Bridge(), "isGateway": true, "hairpinMode": true, "ipMasq": false,
				"ipam": object{
					"type": "host-local", "dataDir": n.State("ipam"),
					"ranges": [][]object{{{"subnet": n.PodCIDR().String(), "gateway": n.Address().String()}}},
					"routes": []object{{"dst": "0.0.0.0/0"}},
				},
			},
		},
	}
	content, err := json.MarshalIndent(list, "", "  ")
	if err != nil {
		panic(fmt.Sprintf("render: %v", err)) // Maps of plain values always can be encoded.
	}
	return string(content) + "\n"
}
