// Copyright The DI Orchestrator Authors.
// SPDX-License-Identifier: Apache-2.0

// Package build compiles the programs of the local cluster from Go modules into a cache outside the
// checkout. A cached program is complete and never rebuilt.
package build

import (
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"os"
	"path"
	"path/filepath"
	"runtime"
	"strings"

	"golang.org/x/mod/modfile"
)

// These are the names of the programs that other packages request from the cache.
const (
	Etcd              = "etcd"
	APIServer         = "kube-apiserver"
	ControllerManager = "kube-controller-manager"
	Scheduler         = "kube-scheduler"
	Kubelet           = "kubelet"
	Proxy             = "kube-proxy"
	Kubectl           = "kubectl"
	Containerd        = "containerd"
	ContainerdShim    = "containerd-shim-runc-v2"
	Ctr               = "ctr"
	Runc              = "runc"
	CNIBridge         = "bridge"
	CoreDNS           = "coredns"
	MetricsServer     = "metrics-server"
	Kueue             = "kueue"
	PauseImage        = "pause.tar"
)

// These are the programs of KEDA.
const (
	KEDAOperator = "keda-operator"
	KEDAAdapter  = "keda-adapter"
	KEDAWebhooks = "keda-webhooks"
)

// These are Prometheus and the programs of its operator.
const (
	Prometheus         = "prometheus"
	PrometheusOperator = "prometheus-operator"
	PrometheusReloader = "prometheus-config-reloader"
)

// component is a Go module below binaries, with the programs built from it.
type component struct {
	// folder is the folder below binaries with the go.mod.
	folder string
	// module is the module that determines the version of the programs.
	module string
	// packages are the main packages, by the names of the programs.
	packages []string
	// prefix begins the name of each program whose package has a name that says too little.
	prefix string
	// versionFlags returns linker flags that set a program's version.
	versionFlags func(version string) string
	// cgo builds with the C compiler, statically.
	cgo  bool
	tags string
}

func components() []component {
	const kubernetes, containerd, cni = "k8s.io/kubernetes/cmd/", "github.com/containerd/containerd/v2/cmd/", "github.com/containernetworking/plugins/plugins/"
	const metrics, kueue, keda = "sigs.k8s.io/metrics-server", "sigs.k8s.io/kueue", "github.com/kedacore/keda/v2"
	const prometheus, operator = "github.com/prometheus/prometheus", "github.com/prometheus-operator/prometheus-operator"
	return []component{
		{folder: "etcd", module: "go.etcd.io/etcd/server/v3", packages: []string{"go.etcd.io/etcd/server/v3"}},
		{folder: "kubernetes", module: "k8s.io/kubernetes", versionFlags: kubernetesVersionFlags, packages: []string{
			kubernetes + APIServer, kubernetes + Kubectl, kubernetes + ControllerManager, kubernetes + Scheduler,
			kubernetes + Kubelet, kubernetes + Proxy,
		}},
		{folder: "containerd", module: "github.com/containerd/containerd/v2", packages: []string{
			containerd + Containerd, containerd + ContainerdShim, containerd + Ctr,
		}},
		{folder: "cni", module: "github.com/containernetworking/plugins", packages: []string{
			cni + "ipam/host-local", cni + "main/" + CNIBridge, cni + "main/loopback",
		}},
		{
			folder: "runc", module: "github.com/opencontainers/runc", cgo: true, tags: "seccomp,netgo,osusergo",
			packages: []string{"github.com/opencontainers/runc"},
		},
		// Its main package is in this repository: it has only the plugins in the Corefile.
		{folder: "coredns", module: "github.com/coredns/coredns", packages: []string{"."}},
		{folder: "metrics-server", module: metrics, packages: []string{metrics + "/cmd/" + MetricsServer}},
		{folder: "kueue", module: kueue, packages: []string{kueue + "/cmd/" + Kueue}},
		{folder: "keda", module: keda, prefix: "keda-", packages: []string{keda + "/cmd/operator", keda + "/cmd/adapter", keda + "/cmd/webhooks"}},
		// It finds targets by the API server alone: the clients of the clouds take most of its build.
		{folder: "prometheus", module: prometheus, tags: "remove_all_sd,enable_kubernetes_sd", packages: []string{prometheus + "/cmd/" + Prometheus}},
		{folder: "prometheus-operator", module: operator, prefix: "prometheus-", packages: []string{operator + "/cmd/operator", operator + "/cmd/" + PrometheusReloader}},
	}
}

// program returns the name of the program of a main package.
func (c component) program(pkg string) string {
	switch pkg {
	case ".":
		return c.folder
	case "go.etcd.io/etcd/server/v3":
		return Etcd
	}
	return c.prefix + strings.TrimPrefix(path.Base(pkg), c.prefix)
}

// kubernetesVersionFlags returns flags that set the version, as Kubernetes' release scripts do.
// Without them the programs report v0.0.0.
func kubernetesVersionFlags(version string) string {
	const variable = "-X k8s.io/component-base/version."
	major, rest, _ := strings.Cut(strings.TrimPrefix(version, "v"), ".")
	minor, _, _ := strings.Cut(rest, ".")
	return strings.Join([]string{
		variable + "gitVersion=" + version, variable + "gitMajor=" + major, variable + "gitMinor=" + minor,
		variable + "gitTreeState=clean",
	}, " ")
}

// moduleVersion reads the version of a required module from a go.mod.
func moduleVersion(goMod []byte, module string) (string, error) {
	parsed, err := modfile.Parse("go.mod", goMod, nil)
	if err != nil {
		return "", fmt.Errorf("parse go.mod: %w", err)
	}
	for _, require := range parsed.Require {
		if require.Mod.Path == module {
			return require.Mod.Version, nil
		}
	}
	return "", fmt.Errorf("go.mod does not require %s", module)
}

// ldflags are the linker flags of a component.
func (c component) ldflags(version string) string {
	flags := "-s -w"
	if c.versionFlags != nil {
		flags += " " + c.versionFlags(version)
	}
	if c.cgo {
		flags += ` -extldflags "-static"`
	}
	return flags
}

// pins returns the version of a component and the hash of everything that determines the build,
// except the Go toolchain: a newer one does not require a rebuild.
func (c component) pins(folder string) (version, hash string, err error) {
	var contents [3]string
	for i, name := range []string{"go.mod", "go.sum", "main.go"} {
		content, err := os.ReadFile(filepath.Join(folder, name))
		if err != nil && (name != "main.go" || !errors.Is(err, os.ErrNotExist)) {
			return "", "", fmt.Errorf("read pins: %w", err)
		}
		contents[i] = string(content)
	}
	if version, err = moduleVersion([]byte(contents[0]), c.module); err != nil {
		return "", "", err
	}
	return version, hashOf(contents[0], contents[1], runtime.GOOS+"/"+runtime.GOARCH, c.ldflags(version), c.tags, contents[2]), nil
}

// hashOf returns a short hash of texts, including their lengths.
func hashOf(texts ...string) string {
	h := sha256.New()
	for _, text := range texts {
		_, _ = fmt.Fprintf(h, "%d:%s", len(text), text) // Writing to a hash never fails.
	}
	return hex.EncodeToString(h.Sum(nil))[:12]
}
