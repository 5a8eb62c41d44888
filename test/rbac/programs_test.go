// Copyright The DI Orchestrator Authors.
// SPDX-License-Identifier: Apache-2.0

package rbac

import (
	"context"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	authenticationv1 "k8s.io/api/authentication/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/client-go/tools/clientcmd"
	clientcmdapi "k8s.io/client-go/tools/clientcmd/api"
	"k8s.io/utils/ptr"

	"opendilab.org/di-orchestrator/test/testkit"
	"opendilab.org/di-orchestrator/test/testkit/specs"
)

// asAccount returns the environment of a process that runs as a service account.
func (p *plane) asAccount(ctx context.Context, name string) []string {
	GinkgoHelper()
	config := p.environment.Config
	path := filepath.Join(GinkgoT().TempDir(), name+".kubeconfig")
	Expect(clientcmd.WriteToFile(clientcmdapi.Config{
		Clusters:       map[string]*clientcmdapi.Cluster{"c": {Server: config.Host, CertificateAuthorityData: config.CAData}},
		AuthInfos:      map[string]*clientcmdapi.AuthInfo{"u": {Token: p.token(ctx, system, name, nil)}},
		Contexts:       map[string]*clientcmdapi.Context{"x": {Cluster: "c", AuthInfo: "u"}},
		CurrentContext: "x",
	}, path)).To(Succeed())
	return append(os.Environ(), "KUBECONFIG="+path, "POD_NAMESPACE="+system, fmt.Sprintf("KUBE_FEATURE_WatchListClient=%t", !p.onlyLists))
}

// token returns a token of a service account for the API server or for di-server. It is bound to a
// pod if one is given.
func (p *plane) token(ctx context.Context, namespace, name string, pod *corev1.Pod, audiences ...string) string {
	GinkgoHelper()
	request := &authenticationv1.TokenRequest{Spec: authenticationv1.TokenRequestSpec{Audiences: audiences, ExpirationSeconds: ptr.To[int64](3600)}}
	if pod != nil {
		request.Spec.BoundObjectRef = &authenticationv1.BoundObjectReference{APIVersion: "v1", Kind: "Pod", Name: pod.Name, UID: pod.UID}
	}
	account := &corev1.ServiceAccount{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: name}}
	Expect(p.api.SubResource("token").Create(ctx, account, request)).To(Succeed())
	return request.Status.Token
}

// run runs one of the hooks' commands, and the commands that the chart runs before it, until they
// exit.
func (p *plane) run(ctx context.Context, objects []*unstructured.Unstructured, name string) {
	GinkgoHelper()
	job := "di-orchestrator-" + name
	for _, field := range []string{"initContainers", "containers"} {
		for _, args := range allArgsOf(objects, "Job", job, field) {
			command := exec.CommandContext(ctx, p.binary, args...)
			command.Env = p.asAccount(ctx, job)
			output, err := command.CombinedOutput()
			Expect(err).NotTo(HaveOccurred(), string(output))
		}
	}
}

// argsOf returns the arguments that the chart sets for a program.
func argsOf(objects []*unstructured.Unstructured, kind, name string) []string {
	GinkgoHelper()
	return allArgsOf(objects, kind, name, "containers")[0]
}

// allArgsOf returns the arguments of each container in a field of the pods.
func allArgsOf(objects []*unstructured.Unstructured, kind, name, field string) [][]string {
	GinkgoHelper()
	for _, object := range objects {
		if object.GetKind() != kind || object.GetName() != name {
			continue
		}
		containers, _, err := unstructured.NestedSlice(object.Object, "spec", "template", "spec", field)
		Expect(err).NotTo(HaveOccurred())
		all := [][]string{}
		for i := range containers {
			container, isObject := containers[i].(map[string]any)
			Expect(isObject).To(BeTrue())
			args, _, err := unstructured.NestedStringSlice(container, "args")
			Expect(err).NotTo(HaveOccurred())
			all = append(all, args)
		}
		return all
	}
	Fail("the chart has no " + kind + " " + name)
	return nil
}

// process is a program that runs in parallel to the test.
type process struct {
	command *exec.Cmd
	ended   chan error
	log     string
}

// start starts a program with the chart's arguments except addresses. It returns when the program
// is ready.
func (p *plane) start(ctx context.Context, objects []*unstructured.Unstructured, name string, where ...string) *process {
	GinkgoHelper()
	probe := freeAddress(ctx)
	args := append(mount(objects, argsOf(objects, "Deployment", name)), "--metrics-address=0", "--probe-address="+probe)
	log := specs.Must(os.CreateTemp(GinkgoT().TempDir(), name))
	started := &process{command: exec.CommandContext(ctx, p.binary, append(args, where...)...), ended: make(chan error, 1), log: log.Name()}
	started.command.Env = p.asAccount(ctx, name)
	started.command.Stdout, started.command.Stderr = log, log
	Expect(started.command.Start()).To(Succeed())
	Expect(log.Close()).To(Succeed())
	go func() { started.ended <- started.command.Wait() }()
	DeferCleanup(started.tell)
	Eventually(func(g Gomega) {
		g.Expect(started.ended).NotTo(Receive(), started.said)
		g.Expect(get(ctx, "http://"+probe+"/readyz")).To(Equal(http.StatusOK), started.said)
	}).Should(Succeed())
	return started
}

// mount returns the arguments of a program with its configuration in a file.
func mount(objects []*unstructured.Unstructured, args []string) []string {
	GinkgoHelper()
	for _, object := range objects {
		if object.GetKind() != "ConfigMap" || object.GetName() != "di-orchestrator-configuration" {
			continue
		}
		data, _, err := unstructured.NestedStringMap(object.Object, "data")
		Expect(err).NotTo(HaveOccurred())
		mounted, err := testkit.MountConfiguration(GinkgoT().TempDir(), args, data)
		Expect(err).NotTo(HaveOccurred())
		return mounted
	}
	Fail("the chart has no configuration")
	return nil
}

func (s *process) said() string {
	content, err := os.ReadFile(s.log)
	return fmt.Sprintf("%s%v", content, err)
}

// tell prints the log of a program if the spec failed.
func (s *process) tell() {
	_ = s.command.Process.Kill()
	if CurrentSpecReport().Failed() {
		_, _ = fmt.Fprintf(GinkgoWriter, "%s:\n%s\n", s.command, s.said())
	}
}

// stop terminates the program as the deletion of its pod does.
func (s *process) stop() {
	GinkgoHelper()
	Expect(s.command.Process.Signal(syscall.SIGTERM)).To(Succeed())
	Eventually(s.ended).Should(Receive(BeNil()), s.said)
}

// programHost is the host address of the programs. No other program listens there, so a free port
// is not taken before it is used.
const programHost = "127.8.0.2"

func freeAddress(ctx context.Context) string {
	GinkgoHelper()
	listener := specs.Must((&net.ListenConfig{}).Listen(ctx, "tcp", net.JoinHostPort(programHost, "0")))
	defer func() { _ = listener.Close() }()
	return listener.Addr().String()
}

func get(ctx context.Context, url string) (int, error) {
	request, err := http.NewRequestWithContext(ctx, http.MethodGet, url, http.NoBody)
	if err != nil {
		return 0, fmt.Errorf("GET %s: %w", url, err)
	}
	response, err := http.DefaultClient.Do(request)
	if err != nil {
		return 0, fmt.Errorf("GET %s: %w", url, err)
	}
	return response.StatusCode, response.Body.Close()
}

// call is a request to di-server.
type call struct {
	method, path, body string
	// from is the source address of a call without a token.
	from, token string
}

// answer sends the call to a di-server and returns the status and the answer.
func (c *call) answer(ctx context.Context, base string) (int, string) {
	GinkgoHelper()
	dialer := &net.Dialer{}
	if c.from != "" {
		dialer.LocalAddr = &net.TCPAddr{IP: net.ParseIP(c.from)}
	}
	through := &http.Transport{DialContext: dialer.DialContext, DisableKeepAlives: true}
	request := specs.Must(http.NewRequestWithContext(ctx, c.method, base+c.path, strings.NewReader(c.body)))
	if c.token != "" {
		request.Header.Set("Authorization", "Bearer "+c.token)
	}
	response, err := (&http.Client{Transport: through}).Do(request)
	Expect(err).NotTo(HaveOccurred())
	defer func() { _ = response.Body.Close() }()
	content := specs.Must(io.ReadAll(response.Body))
	return response.StatusCode, string(content)
}
