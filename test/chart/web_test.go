// Copyright The DI Orchestrator Authors.
// SPDX-License-Identifier: Apache-2.0

package chart

import (
	"slices"
	"testing"

	corev1 "k8s.io/api/core/v1"
	networkingv1 "k8s.io/api/networking/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/tools/clientcmd"
)

// read reads an object as its type.
func read[T any](t *testing.T, object *unstructured.Unstructured) *T {
	t.Helper()
	typed := new(T)
	if err := runtime.DefaultUnstructuredConverter.FromUnstructured(object.Object, typed); err != nil {
		t.Fatal(err)
	}
	return typed
}

func TestThePageIsOffByDefault(t *testing.T) {
	t.Parallel()
	for _, object := range render(t, "di-system") {
		if object.GetLabels()["app.kubernetes.io/component"] == "web" {
			t.Errorf("%s is rendered", identify(object))
		}
	}
}

func TestThePageHasNoRights(t *testing.T) {
	t.Parallel()
	objects := render(t, "jobs", "web.enabled=true", "web.hosts={jobs.example.com,localhost:8080}", "image.registry=registry.example.com", "web.image.tag=v1",
		"web.prometheusURL=http://prometheus.monitoring:9090/base")
	pod := podOf(t, objects, "web")
	if pod.AutomountServiceAccountToken == nil || *pod.AutomountServiceAccountToken || pod.ServiceAccountName != "" {
		t.Errorf("the pod has a service account token: %+v", pod)
	}
	container := pod.Containers[0]
	for _, flag := range []string{"--in-cluster", "--host=jobs.example.com", "--host=localhost:8080", "--prometheus=http://prometheus.monitoring:9090/base"} {
		if !slices.Contains(container.Args, flag) {
			t.Errorf("the arguments %q have no %s", container.Args, flag)
		}
	}
	if container.Image != "registry.example.com/kubectl-di:v1" || !slices.Contains(container.Env, corev1.EnvVar{Name: "GOMEMLIMIT", Value: "921MiB"}) {
		t.Errorf("the container is %+v", container)
	}
	text := read[corev1.ConfigMap](t, find(t, objects, "ConfigMap", "di-orchestrator-web")).Data["kubeconfig"]
	config, err := clientcmd.Load([]byte(text))
	if err != nil || len(config.AuthInfos) > 0 || config.Clusters["cluster"].CertificateAuthority != "ca.crt" {
		t.Errorf("the kubeconfig is %+v: %v", config, err)
	}
	policy := read[networkingv1.NetworkPolicy](t, find(t, objects, "NetworkPolicy", "di-orchestrator-web"))
	if ports := policy.Spec.Ingress[0].Ports; len(policy.Spec.Ingress) != 1 || len(ports) != 1 || ports[0].Port.StrVal != "page" {
		t.Errorf("the policy is %+v", policy.Spec)
	}
}

func TestThePageServesTLSOfASecret(t *testing.T) {
	t.Parallel()
	objects := render(t, "di-system", "web.enabled=true", "web.hosts={jobs.example.com}", "web.tls.secretName=page")
	pod := podOf(t, objects, "web")
	if probe := pod.Containers[0].ReadinessProbe.HTTPGet; probe.Scheme != corev1.URISchemeHTTPS || probe.Path != "/healthz" {
		t.Errorf("the probe is %+v", probe)
	}
	isSecret := func(volume corev1.Volume) bool { return volume.Secret != nil && volume.Secret.SecretName == "page" }
	if !slices.ContainsFunc(pod.Volumes, isSecret) || !slices.Contains(pod.Containers[0].Args, "--tls-cert-file=/etc/di-web-tls/tls.crt") {
		t.Errorf("the pod is %+v", pod)
	}
	if port := read[corev1.Service](t, find(t, objects, "Service", "di-orchestrator-web")).Spec.Ports[0]; port.Port != 443 {
		t.Errorf("the port is %+v", port)
	}
}
