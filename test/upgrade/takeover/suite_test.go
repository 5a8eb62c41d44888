// Copyright The DI Orchestrator Authors.
// SPDX-License-Identifier: Apache-2.0

// Package takeover tests that the operator takes the place of earlier releases:
// the built program, on a real API server with what such a release has left,
// while jobs are read all the time, and with the program killed after each of
// its writes.
package takeover

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"testing"
	"time"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	"k8s.io/client-go/tools/clientcmd"
	clientcmdapi "k8s.io/client-go/tools/clientcmd/api"
	"k8s.io/utils/set"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/envtest"
	logf "sigs.k8s.io/controller-runtime/pkg/log"

	"opendilab.org/di-orchestrator/internal/testkit"
	"opendilab.org/di-orchestrator/internal/testkit/program"
	"opendilab.org/di-orchestrator/test/webhooks"
)

func TestTakeover_Slow(t *testing.T) {
	RegisterFailHandler(Fail)
	logf.SetLogger(GinkgoLogr)
	SetDefaultEventuallyTimeout(testkit.Patience)
	EnforceDefaultTimeoutsWhenUsingContexts()
	SetDefaultEventuallyPollingInterval(50 * time.Millisecond)
	RunSpecs(t, "An earlier release is taken over")
}

// binary is the built program.
var binary string

var _ = BeforeSuite(func(ctx SpecContext) {
	var err error
	binary, err = program.Build(ctx, GinkgoT().TempDir())
	Expect(err).NotTo(HaveOccurred())
})

// plane is an API server of one spec, and the way to it that programs take.
type plane struct {
	environment *envtest.Environment
	// api may do everything.
	api client.Client
	*gateway
	// address is where webhooks are served, by one program after the other.
	address string
}

func newPlane(ctx context.Context) *plane {
	GinkgoHelper()
	environment, err := testkit.StartBareAPI()
	Expect(err).NotTo(HaveOccurred())
	DeferCleanup(environment.Stop)
	api, err := testkit.NewClient(environment.Config)
	Expect(err).NotTo(HaveOccurred())
	return &plane{environment: environment, api: api, gateway: newGateway(environment.Config, &ledger{leaders: set.New[string]()}, "operator"), address: freeAddress(ctx)}
}

// freeAddress returns one that nobody listens on.
func freeAddress(ctx context.Context) string {
	GinkgoHelper()
	listener, err := (&net.ListenConfig{}).Listen(ctx, "tcp", "127.8.0.3:0")
	Expect(err).NotTo(HaveOccurred())
	Expect(listener.Close()).To(Succeed())
	return listener.Addr().String()
}

// command returns the program, which reaches the API server by the gateway.
func (g *gateway) command(ctx context.Context, args ...string) *exec.Cmd {
	GinkgoHelper()
	command := exec.CommandContext(ctx, binary, args...)
	command.Env = append(os.Environ(), g.environment()...)
	return command
}

// environment has a program reach the API server by the gateway.
func (g *gateway) environment() []string {
	GinkgoHelper()
	return []string{"KUBECONFIG=" + g.kubeconfig(), "POD_NAMESPACE=di-system"}
}

// kubeconfig writes one that leads by the gateway.
func (g *gateway) kubeconfig() string {
	GinkgoHelper()
	path := filepath.Join(GinkgoT().TempDir(), "kubeconfig")
	Expect(clientcmd.WriteToFile(clientcmdapi.Config{
		Clusters:       map[string]*clientcmdapi.Cluster{"c": {Server: g.url}},
		AuthInfos:      map[string]*clientcmdapi.AuthInfo{"u": {}},
		Contexts:       map[string]*clientcmdapi.Context{"x": {Cluster: "c", AuthInfo: "u"}},
		CurrentContext: "x",
	}, path)).To(Succeed())
	return path
}

// install runs install-crds to its end and returns what it said.
func (p *plane) install(ctx context.Context) string {
	GinkgoHelper()
	output, err := p.command(ctx, "install-crds", fmt.Sprintf("--timeout=%s", testkit.Patience)).CombinedOutput()
	Expect(err).NotTo(HaveOccurred(), string(output))
	Expect(webhooks.InstallConfigurations(ctx, p.environment.Config)).To(Succeed())
	return string(output)
}

// start starts the webhooks, which the API server reaches by a URL, and an operator.
func (p *plane) start(ctx context.Context) *programs {
	GinkgoHelper()
	return p.startPrograms(ctx, p.address, p.address, "--takeover-settle=100ms")
}

// programs are the webhooks and an operator, which fail together.
type programs struct {
	webhooks, operator *program.Process
}

func (p *programs) kill() error {
	return errors.Join(p.webhooks.Kill(), p.operator.Kill())
}

// startPrograms starts the webhooks at one address, which the API server reaches at
// another, and an operator with further flags.
func (g *gateway) startPrograms(ctx context.Context, address, reached string, flags ...string) *programs {
	GinkgoHelper()
	return &programs{g.startWebhooks(ctx, address, reached, quick()...), g.startOperator(ctx, append(flags, quick()...)...)}
}

// quick has programs call the API server without delay.
func quick() []string { return []string{"--kube-api-qps=1000", "--kube-api-burst=1000"} }

func (g *gateway) startOperator(ctx context.Context, flags ...string) *program.Process {
	GinkgoHelper()
	started, err := program.StartOperator(ctx, &program.Operator{
		Binary: binary, Folder: GinkgoT().TempDir(), Environment: g.environment(), Flags: append(flags, "--webhook-probe-interval=0"), NoWait: true,
	})
	Expect(err).NotTo(HaveOccurred())
	killAtEnd("the operator", started)
	return started
}

func (g *gateway) startWebhooks(ctx context.Context, address, reached string, flags ...string) *program.Process {
	GinkgoHelper()
	started, err := program.StartWebhooks(ctx, &program.Webhooks{
		Binary: binary, Folder: GinkgoT().TempDir(), Environment: g.environment(), Address: address, URL: "https://" + reached, Flags: flags, NoWait: true,
	})
	Expect(err).NotTo(HaveOccurred())
	killAtEnd("the webhooks", started)
	return started
}

// killAtEnd kills a program at the end of the spec, and prints its log if that failed.
func killAtEnd(name string, started *program.Process) {
	DeferCleanup(func() {
		_ = started.Kill()
		if content, err := started.Log(); err == nil && CurrentSpecReport().Failed() {
			_, _ = fmt.Fprintf(GinkgoWriter, "%s:\n%s\n", name, content)
		}
	})
}

// isWrite reports whether a request changes something that is stored.
func isWrite(request *http.Request) bool {
	return request.Method != http.MethodGet && request.Method != http.MethodHead && request.URL.Query().Get("dryRun") == ""
}
