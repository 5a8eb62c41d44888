// Copyright The DI Orchestrator Authors.
// SPDX-License-Identifier: Apache-2.0

// Package takeover tests that the operator replaces earlier releases. It runs the built program on
// a real API server with the objects of such a release. Meanwhile it reads jobs continuously and
// kills the program after each of its writes.
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

	"opendilab.org/di-orchestrator/test/testkit"
	"opendilab.org/di-orchestrator/test/testkit/program"
	"opendilab.org/di-orchestrator/test/testkit/specs"
	"opendilab.org/di-orchestrator/test/webhooks"
)

func TestTakeover_Slow(t *testing.T) {
	SetDefaultEventuallyPollingInterval(50 * time.Millisecond)
	specs.Run(t, "An earlier release is taken over")
}

// binary is the built program.
var binary string

var _ = BeforeSuite(func(ctx SpecContext) {
	binary = specs.Must(program.Build(ctx, GinkgoT().TempDir()))
})

// plane is the API server of one spec, and the proxy through which programs reach it.
type plane struct {
	environment *envtest.Environment
	// api has all permissions.
	api client.WithWatch
	*gateway
	// address is the address of the webhooks, which one program after the other serves.
	address string
}

func newPlane(ctx context.Context) *plane {
	GinkgoHelper()
	environment := specs.Must(testkit.StartBareAPI())
	DeferCleanup(environment.Stop)
	api := specs.Must(testkit.NewClient(environment.Config))
	return &plane{environment: environment, api: api, gateway: newGateway(environment.Config, &ledger{leaders: set.New[string]()}, "operator"), address: freeAddress(ctx)}
}

// freeAddress returns an address that is not in use.
func freeAddress(ctx context.Context) string {
	GinkgoHelper()
	listener := specs.Must((&net.ListenConfig{}).Listen(ctx, "tcp", "127.8.0.3:0"))
	Expect(listener.Close()).To(Succeed())
	return listener.Addr().String()
}

// command returns the program, configured to reach the API server through the gateway.
func (g *gateway) command(ctx context.Context, args ...string) *exec.Cmd {
	GinkgoHelper()
	command := exec.CommandContext(ctx, binary, args...)
	command.Env = append(os.Environ(), g.environment()...)
	return command
}

// environment returns the environment with which a program reaches the API server through the
// gateway.
func (g *gateway) environment() []string {
	GinkgoHelper()
	return []string{"KUBECONFIG=" + g.kubeconfig(), "POD_NAMESPACE=di-system"}
}

// kubeconfig writes a kubeconfig for the gateway.
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

// install runs install-crds and returns its output.
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
	return p.startPrograms(ctx, p.address, p.address, "operator: {probeInterval: 0s, takeoverSettle: 100ms}")
}

// programs are the webhooks and an operator. They fail together.
type programs struct {
	webhooks, operator *program.Process
}

func (p *programs) kill() error {
	return errors.Join(p.webhooks.Kill(), p.operator.Kill())
}

// startPrograms starts the webhooks at one address, which the API server reaches at another, and an
// operator with more sections of the configuration and additional flags.
func (g *gateway) startPrograms(ctx context.Context, address, reached, configuration string, flags ...string) *programs {
	GinkgoHelper()
	configuration = quick + "\n" + configuration
	return &programs{g.startWebhooks(ctx, address, reached, configuration), g.startOperator(ctx, configuration, flags...)}
}

// quick is the section of the configuration with which programs call the API server without a rate limit.
const quick = "common: {kubeAPIQPS: 1000}"

func (g *gateway) startOperator(ctx context.Context, configuration string, flags ...string) *program.Process {
	GinkgoHelper()
	started := specs.Must(program.StartOperator(ctx, &program.Operator{
		Binary: binary, Folder: GinkgoT().TempDir(), Environment: g.environment(), Configuration: configuration, Flags: flags, NoWait: true,
	}))
	killAtEnd("the operator", started)
	return started
}

func (g *gateway) startWebhooks(ctx context.Context, address, reached, configuration string, flags ...string) *program.Process {
	GinkgoHelper()
	started := specs.Must(program.StartWebhooks(ctx, &program.Webhooks{
		Binary: binary, Folder: GinkgoT().TempDir(), Environment: g.environment(), Address: address, URL: "https://" + reached, Configuration: configuration,
		Flags: flags, NoWait: true,
	}))
	killAtEnd("the webhooks", started)
	return started
}

// killAtEnd kills a program at the end of the spec. It prints the program's log if the spec failed.
func killAtEnd(name string, started *program.Process) {
	DeferCleanup(func() {
		_ = started.Kill()
		if content, err := started.Log(); err == nil && CurrentSpecReport().Failed() {
			_, _ = fmt.Fprintf(GinkgoWriter, "%s:\n%s\n", name, content)
		}
	})
}

// isWrite reports whether a request changes a stored object.
func isWrite(request *http.Request) bool {
	return request.Method != http.MethodGet && request.Method != http.MethodHead && request.URL.Query().Get("dryRun") == ""
}
