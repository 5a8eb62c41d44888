// Copyright The DI Orchestrator Authors.
// SPDX-License-Identifier: Apache-2.0

package cluster

import (
	"context"
	"os"
	"time"

	"opendilab.org/di-orchestrator/hack/cluster/internal/machine"
	"opendilab.org/di-orchestrator/hack/cluster/internal/pki"
	"opendilab.org/di-orchestrator/hack/cluster/internal/render"
	"opendilab.org/di-orchestrator/hack/cluster/internal/settings"
)

// certificates returns all identities of the cluster.
func certificates(s settings.Settings) []pki.Request {
	gateway := s.Gateway().String()
	const masters = "system:masters"
	requests := []pki.Request{
		{Name: pki.Etcd, CommonName: "etcd", Hosts: []string{"localhost", "127.0.0.1"}},
		{Name: pki.APIServer, CommonName: "kube-apiserver", Hosts: []string{
			"kubernetes", "kubernetes.default", "kubernetes.default.svc", "kubernetes.default.svc." + settings.Domain,
			"localhost", gateway, s.APIService().String(), "127.0.0.1",
		}},
		{Name: pki.APIServerEtcd, CommonName: "kube-apiserver-etcd-client"},
		{Name: pki.APIServerKubelet, CommonName: "kube-apiserver-kubelet-client", Groups: []string{masters}},
		{Name: pki.FrontProxyClient, CommonName: "front-proxy-client", Issuer: pki.FrontProxyCA},
		{Name: pki.ControllerManager, CommonName: "system:kube-controller-manager"},
		{Name: pki.Scheduler, CommonName: "system:kube-scheduler"},
		{Name: pki.Proxy, CommonName: "system:kube-proxy"},
		{Name: pki.CoreDNS, CommonName: render.DNSUser},
		{Name: pki.Admin, CommonName: "kubernetes-admin", Groups: []string{masters}},
	}
	for _, node := range s.Nodes() {
		user := "system:node:" + node.Name()
		requests = append(requests,
			pki.Request{Name: node.Daemon(pki.Kubelet), CommonName: user, Groups: []string{"system:nodes"}},
			pki.Request{Name: node.Daemon(pki.KubeletServer), CommonName: user, Hosts: []string{node.Name(), node.Address().String()}},
		)
	}
	return requests
}

// clients returns the identities that get a kubeconfig.
func clients(s settings.Settings) []string {
	names := []string{pki.ControllerManager, pki.Scheduler, pki.Proxy, pki.CoreDNS}
	for _, node := range s.Nodes() {
		names = append(names, node.Daemon(pki.Kubelet))
	}
	return names
}

func (c *Cluster) ensureIdentities(context.Context) error {
	if _, err := pki.Ensure(c.pkiDir(), certificates(c.settings), time.Now()); err != nil {
		return err
	}
	for _, client := range clients(c.settings) {
		if _, err := c.writeConfig(client+".kubeconfig", c.kubeconfigFor(client)); err != nil {
			return err
		}
	}
	return machine.WriteFile(c.Kubeconfig(), []byte(c.kubeconfigFor(pki.Admin)))
}

func (c *Cluster) kubeconfigFor(client string) string {
	return render.Kubeconfig(render.Credential{
		Server: c.settings.APIServer(), CAFile: c.pkiFile(pki.CA + ".crt"),
		CertFile: c.pkiFile(client + ".crt"), KeyFile: c.pkiFile(client + ".key"),
	})
}

// authorityContent returns the authority's certificate, so that every daemon restarts after the
// certificates were recreated. Without the file the daemon also restarts, which is correct.
func (c *Cluster) authorityContent() string {
	content, err := os.ReadFile(c.pkiFile(pki.CA + ".crt"))
	if err != nil {
		return ""
	}
	return string(content)
}
