// Copyright The DI Orchestrator Authors.
// SPDX-License-Identifier: Apache-2.0

package cluster

import (
	"context"
	"fmt"
	"net"
	"strings"
	"time"

	"opendilab.org/di-orchestrator/hack/cluster/internal/build"
	"opendilab.org/di-orchestrator/hack/cluster/internal/pki"
	"opendilab.org/di-orchestrator/hack/cluster/internal/process"
	"opendilab.org/di-orchestrator/hack/cluster/internal/render"
	"opendilab.org/di-orchestrator/hack/cluster/internal/settings"
)

// readyLimit is the timeout, on a busy machine, for a daemon to answer, a node to be ready, and the
// cluster to create its initial objects.
const readyLimit = 5 * time.Minute

// unusedControllers returns controllers for clouds, storage systems and devices that a local
// cluster does not have.
func unusedControllers() []string {
	return []string{
		"-bootstrap-signer-controller", "-token-cleaner-controller", "-node-ipam-controller",
		"-persistentvolume-attach-detach-controller", "-persistentvolume-expander-controller",
		"-resourceclaim-controller", "-device-taint-eviction-controller", "-volumeattributesclass-protection-controller",
		"-legacy-serviceaccount-token-cleaner-controller", "-ephemeral-volume-controller",
	}
}

// Kubernetes' own gang scheduling is alpha and off by default. It is always on here for tests of
// gangs. Pods without a PodGroup are scheduled as usual. The API server serves PodGroups, the
// scheduler places pods by them, and the controller manager removes the finalizers of PodGroups
// whose pods have finished.
const (
	podGroupGate = "GenericWorkload=true"
	gangGate     = "GangScheduling=true"
	podGroupAPI  = "scheduling.k8s.io/v1alpha2=true"
)

func (c *Cluster) etcdSpec() process.Spec {
	peer := fmt.Sprintf("http://127.0.0.1:%d", settings.EtcdPeerPort)
	return process.Spec{
		Name: build.Etcd, Program: c.cache.Path(build.Etcd), Inputs: []string{c.authorityContent()},
		Args: []string{
			"--name=local", "--data-dir=" + c.settings.State("etcd"), "--unsafe-no-fsync", "--log-level=warn",
			"--listen-client-urls=" + c.settings.Etcd(), "--advertise-client-urls=" + c.settings.Etcd(),
			"--listen-peer-urls=" + peer, "--initial-advertise-peer-urls=" + peer, "--initial-cluster=local=" + peer,
			"--client-cert-auth", "--trusted-ca-file=" + c.pkiFile(pki.CA+".crt"),
			"--cert-file=" + c.pkiFile(pki.Etcd+".crt"), "--key-file=" + c.pkiFile(pki.Etcd+".key"),
			"--quota-backend-bytes=4294967296", "--auto-compaction-retention=0",
		},
	}
}

func (c *Cluster) apiServerSpec() process.Spec {
	s := c.settings
	args := []string{
		"--bind-address=" + s.Gateway().String(), "--advertise-address=" + s.Gateway().String(),
		fmt.Sprintf("--secure-port=%d", settings.APIPort),
		"--service-cluster-ip-range=" + s.ServiceCIDR.String(),
		"--etcd-servers=" + s.Etcd(), "--etcd-cafile=" + c.pkiFile(pki.CA+".crt"),
		"--etcd-certfile=" + c.pkiFile(pki.APIServerEtcd+".crt"), "--etcd-keyfile=" + c.pkiFile(pki.APIServerEtcd+".key"),
		"--tls-cert-file=" + c.pkiFile(pki.APIServer+".crt"), "--tls-private-key-file=" + c.pkiFile(pki.APIServer+".key"),
		"--client-ca-file=" + c.pkiFile(pki.CA+".crt"),
		"--authorization-mode=Node,RBAC", "--enable-admission-plugins=NodeRestriction", "--allow-privileged",
		"--kubelet-certificate-authority=" + c.pkiFile(pki.CA+".crt"),
		"--kubelet-client-certificate=" + c.pkiFile(pki.APIServerKubelet+".crt"),
		"--kubelet-client-key=" + c.pkiFile(pki.APIServerKubelet+".key"),
		"--kubelet-preferred-address-types=InternalIP",
		"--service-account-issuer=https://kubernetes.default.svc." + settings.Domain,
		"--service-account-key-file=" + c.pkiFile(pki.ServiceAccount+".pub"),
		"--service-account-signing-key-file=" + c.pkiFile(pki.ServiceAccount+".key"),
		"--requestheader-client-ca-file=" + c.pkiFile(pki.FrontProxyCA+".crt"),
		"--requestheader-allowed-names=front-proxy-client",
		"--requestheader-username-headers=X-Remote-User", "--requestheader-group-headers=X-Remote-Group",
		"--requestheader-extra-headers-prefix=X-Remote-Extra-",
		"--proxy-client-cert-file=" + c.pkiFile(pki.FrontProxyClient+".crt"),
		"--proxy-client-key-file=" + c.pkiFile(pki.FrontProxyClient+".key"),
		"--feature-gates=" + podGroupGate, "--runtime-config=" + podGroupAPI,
		"--profiling=false",
	}
	return process.Spec{Name: build.APIServer, Program: c.cache.Path(build.APIServer), Args: args, Inputs: []string{c.authorityContent()}}
}

func (c *Cluster) controllerManagerSpec() process.Spec {
	kubeconfig := c.configFile(pki.ControllerManager + ".kubeconfig")
	args := []string{
		"--kubeconfig=" + kubeconfig, "--authentication-kubeconfig=" + kubeconfig, "--authorization-kubeconfig=" + kubeconfig,
		"--bind-address=" + c.settings.Gateway().String(), "--leader-elect=false", "--use-service-account-credentials",
		"--controllers=*," + strings.Join(unusedControllers(), ","),
		"--service-account-private-key-file=" + c.pkiFile(pki.ServiceAccount+".key"),
		"--root-ca-file=" + c.pkiFile(pki.CA+".crt"),
		"--cluster-signing-cert-file=" + c.pkiFile(pki.CA+".crt"), "--cluster-signing-key-file=" + c.pkiFile(pki.CA+".key"),
		"--cluster-cidr=" + c.settings.PodCIDR.String(), "--service-cluster-ip-range=" + c.settings.ServiceCIDR.String(),
		"--allocate-node-cidrs=false", "--feature-gates=" + podGroupGate, "--profiling=false",
		fmt.Sprintf("--node-monitor-grace-period=%ds", settings.GraceSeconds), "--node-monitor-period=2s",
	}
	return process.Spec{
		Name: build.ControllerManager, Program: c.cache.Path(build.ControllerManager), Inputs: []string{c.authorityContent()},
		Args: args,
	}
}

func (c *Cluster) schedulerSpec() process.Spec {
	kubeconfig := c.configFile(pki.Scheduler + ".kubeconfig")
	return process.Spec{
		Name: build.Scheduler, Program: c.cache.Path(build.Scheduler), Inputs: []string{c.authorityContent()},
		Args: []string{
			"--kubeconfig=" + kubeconfig, "--authentication-kubeconfig=" + kubeconfig, "--authorization-kubeconfig=" + kubeconfig,
			"--bind-address=" + c.settings.Gateway().String(), "--leader-elect=false", "--profiling=false",
			"--feature-gates=" + podGroupGate + "," + gangGate,
		},
	}
}

func (c *Cluster) runEtcd(ctx context.Context) error {
	return c.run(ctx, c.etcdSpec(), dialing("tcp", fmt.Sprintf("127.0.0.1:%d", settings.EtcdPort)))
}

func (c *Cluster) runAPIServer(ctx context.Context) error {
	return c.run(ctx, c.apiServerSpec(), func(ctx context.Context) error {
		_, err := c.kubectl(ctx, "", "get", "--raw=/readyz")
		return err
	})
}

func (c *Cluster) runControllerManager(ctx context.Context) error {
	return c.run(ctx, c.controllerManagerSpec(), dialing("tcp", c.settings.OnGateway(10257)))
}

func (c *Cluster) runScheduler(ctx context.Context) error {
	return c.run(ctx, c.schedulerSpec(), dialing("tcp", c.settings.OnGateway(10259)))
}

// run starts a daemon unless it is running, and waits until it is ready.
func (c *Cluster) run(ctx context.Context, spec process.Spec, ready func(context.Context) error) error {
	restarted, err := c.control.Ensure(ctx, spec)
	if err != nil {
		return err
	}
	if restarted {
		c.printf("  %s was running with other settings and is restarted\n", spec.Name)
	}
	return c.control.Await(ctx, spec, readyLimit, ready)
}

// dialing returns a check of whether a program listens on an address.
func dialing(kind, address string) func(context.Context) error {
	return func(ctx context.Context) error {
		dialer := net.Dialer{Timeout: 2 * time.Second}
		conn, err := dialer.DialContext(ctx, kind, address)
		if err != nil {
			return err
		}
		return conn.Close()
	}
}

// ensureObjects creates the first objects in the cluster. It waits for the objects that the cluster
// itself creates and without which no pod can be created.
func (c *Cluster) ensureObjects(ctx context.Context) error {
	if _, err := c.kubectl(ctx, render.ClusterObjects(), "apply", "-f", "-"); err != nil {
		return err
	}
	for _, object := range []string{"serviceaccount/default", "configmap/kube-root-ca.crt"} {
		if err := c.await(ctx, "--for=create", object); err != nil {
			return err
		}
	}
	return nil
}
