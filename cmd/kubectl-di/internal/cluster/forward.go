// Copyright The DI Orchestrator Authors.
// SPDX-License-Identifier: Apache-2.0

package cluster

import (
	"context"
	"fmt"
	"io"
	"math/rand/v2"
	"net/http"
	"slices"
	"strconv"

	"github.com/dustin/go-humanize/english"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/runtime/serializer"
	"k8s.io/apimachinery/pkg/util/intstr"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/portforward"
	"k8s.io/client-go/transport/spdy"
	"k8s.io/klog/v2"
	"k8s.io/streaming/pkg/httpstream"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"opendilab.org/di-orchestrator/internal/names"
	"opendilab.org/di-orchestrator/job/podstate"
)

// localhost is the address of a forwarded port.
const localhost = "127.0.0.1"

// Program is a program of the installation that users call.
type Program struct {
	// Name is its name in messages, and Flags are those that say where it is.
	Name, Flags string
	// Service is the name of its Service, and Ports are those of it that serve by the scheme, the
	// preferred one first.
	Service, Scheme string
	Ports           []int32
}

// DIServer returns di-server behind a Service. It serves both protocols on each port.
func DIServer(service string) Program {
	return Program{
		Name: "di-server", Flags: "--server-namespace, --server-service", Service: service, Scheme: "http",
		Ports: []int32{names.ServerPortV1, names.ServerPortV2},
	}
}

// History returns the history of jobs.
func History() Program {
	return Program{Name: "the history", Flags: "--server-namespace", Service: names.HistoryService, Scheme: "https", Ports: []int32{names.HistoryPort}}
}

// Forward forwards a port to a program through the API server, like kubectl port-forward: to a
// ready pod of its Service.
type Forward struct {
	cluster *Cluster
	to      Program
	service client.ObjectKey
}

// Forward returns a Forward to a program in a namespace.
func (c *Cluster) Forward(namespace string, to Program) *Forward {
	return &Forward{cluster: c, to: to, service: client.ObjectKey{Namespace: namespace, Name: to.Service}}
}

// Open forwards a local port until end is called, and returns its URL.
func (f *Forward) Open(ctx context.Context) (string, func(), error) {
	pod, port, err := f.target(ctx)
	if err != nil {
		return "", nil, err
	}
	ctx, cancel := context.WithCancel(ctx)
	address, ended, err := f.cluster.forward(ctx, client.ObjectKey{Namespace: f.service.Namespace, Name: pod}, port)
	if err != nil {
		cancel()
		return "", nil, explain("forwarding a port to pod "+f.service.Namespace+"/"+pod+" of "+f.to.Name+" (--server calls a URL of it instead)", err)
	}
	return f.to.Scheme + "://" + address, func() { cancel(); <-ended }, nil
}

// target returns a ready pod of the Service and the port of the program in it.
func (f *Forward) target(ctx context.Context) (string, int32, error) {
	looking := "looking for " + f.to.Name + " (" + f.to.Flags + ")"
	var service corev1.Service
	if err := f.cluster.Get(ctx, f.service.Namespace, f.service.Name, &service); err != nil {
		return "", 0, fmt.Errorf("%s: %w", looking, err)
	}
	var pods corev1.PodList
	if err := f.cluster.List(ctx, f.service.Namespace, &pods, client.MatchingLabels(service.Spec.Selector)); err != nil {
		return "", 0, fmt.Errorf("%s: %w", looking, err)
	}
	ready := slices.DeleteFunc(pods.Items, func(pod corev1.Pod) bool { return !podstate.Ready(&pod) })
	if len(service.Spec.Selector) == 0 || len(ready) == 0 {
		return "", 0, fmt.Errorf("service %s has no ready pod: is %s up? See kubectl -n %s get pods", f.service, f.to.Name, f.service.Namespace)
	}
	// A random choice lets a retry reach another pod.
	pod := &ready[rand.IntN(len(ready))]
	port := targetPort(&service, pod, f.to.Ports)
	if port == 0 {
		return "", 0, fmt.Errorf("service %s has no port %s that its pods serve", f.service, english.OxfordWordSeries(textsOf(f.to.Ports), "or"))
	}
	return pod.Name, port, nil
}

func textsOf(ports []int32) []string {
	texts := make([]string, len(ports))
	for i, port := range ports {
		texts[i] = strconv.Itoa(int(port))
	}
	return texts
}

// targetPort returns the pod's port behind the first wanted port of the Service, 0 for none.
func targetPort(service *corev1.Service, pod *corev1.Pod, ports []int32) int32 {
	for _, wanted := range ports {
		for _, port := range service.Spec.Ports {
			if port.Port != wanted {
				continue
			}
			if target := containerPort(pod, port.TargetPort); target != 0 {
				return target
			}
		}
	}
	return 0
}

func containerPort(pod *corev1.Pod, target intstr.IntOrString) int32 {
	if target.Type == intstr.Int {
		return target.IntVal
	}
	for i := range pod.Spec.Containers {
		for _, port := range pod.Spec.Containers[i].Ports {
			if port.Name == target.StrVal {
				return port.ContainerPort
			}
		}
	}
	return 0
}

// forward forwards a local port to a pod's port until the context ends. It returns the local address, and a
// channel that is closed when the forwarding has ended.
func (c *Cluster) forward(ctx context.Context, pod client.ObjectKey, port int32) (string, <-chan struct{}, error) {
	dialer, err := c.dialer(pod)
	if err != nil {
		return "", nil, err
	}
	ready := make(chan struct{})
	// The caller's request reports the failure.
	ctx = klog.NewContext(ctx, klog.Logger{})
	forwarder, err := portforward.NewOnAddressesForStreamingWithContext(ctx, dialer, []string{localhost}, []string{fmt.Sprintf("0:%d", port)},
		ready, io.Discard, io.Discard)
	if err != nil {
		return "", nil, err
	}
	failed, ended := make(chan error, 1), make(chan struct{})
	go func() {
		defer close(ended)
		failed <- forwarder.ForwardPorts()
	}()
	select {
	case <-ctx.Done():
		return "", nil, context.Cause(ctx)
	case err := <-failed:
		return "", nil, err
	case <-ready:
	}
	ports, err := forwarder.GetPorts()
	if err != nil {
		return "", nil, err
	}
	return fmt.Sprintf("%s:%d", localhost, ports[0].Local), ended, nil
}

// dialer returns a dialer for websockets. Like kubectl, it falls back to SPDY if a proxy does not
// support them, or if a role allows create and not get.
func (c *Cluster) dialer(pod client.ObjectKey) (httpstream.Dialer, error) {
	config := c.Config()
	config.APIPath, config.GroupVersion = "/api", &corev1.SchemeGroupVersion
	config.NegotiatedSerializer = serializer.NewCodecFactory(c.client.Scheme()).WithoutConversion()
	api, err := rest.RESTClientFor(config)
	if err != nil {
		return nil, fmt.Errorf("making a client: %w", err)
	}
	url := api.Post().Resource("pods").Namespace(pod.Namespace).Name(pod.Name).SubResource("portforward").URL()
	websocket, err := portforward.NewSPDYOverWebsocketDialerForStreaming(url, config)
	if err != nil {
		return nil, fmt.Errorf("making a dialer: %w", err)
	}
	transport, upgrader, err := spdy.RoundTripperFor(config)
	if err != nil {
		return nil, fmt.Errorf("making a dialer: %w", err)
	}
	bySPDY := spdy.NewDialerForStreaming(upgrader, &http.Client{Transport: transport}, http.MethodPost, url)
	return portforward.NewFallbackDialerForStreaming(websocket, bySPDY, func(err error) bool {
		return httpstream.IsUpgradeFailure(err) || httpstream.IsHTTPSProxyError(err)
	}), nil
}
