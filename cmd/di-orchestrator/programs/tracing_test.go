// Copyright The DI Orchestrator Authors.
// SPDX-License-Identifier: Apache-2.0

package programs

import (
	"bytes"
	"context"
	"encoding/hex"
	"errors"
	"fmt"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/util/wait"
	"k8s.io/client-go/rest"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"opendilab.org/di-orchestrator/test/testkit"
	"opendilab.org/di-orchestrator/test/webhooks"
)

// mainVariable is the environment variable that makes this test binary run the program, so that a
// test can start it as a separate process.
const mainVariable = "DI_ORCHESTRATOR_TEST_MAIN"

func TestMain(m *testing.M) {
	if os.Getenv(mainVariable) != "" {
		os.Exit(Main("dev", nil))
	}
	os.Exit(m.Run())
}

// process is the program in a process of its own.
type process struct {
	command *exec.Cmd
	lock    sync.Mutex
	lines   bytes.Buffer
}

// Write collects the log of the process.
func (p *process) Write(lines []byte) (int, error) {
	p.lock.Lock()
	defer p.lock.Unlock()
	return p.lines.Write(lines)
}

func (p *process) log() string {
	p.lock.Lock()
	defer p.lock.Unlock()
	return p.lines.String()
}

// start runs the program for a cluster.
func start(t *testing.T, kubeconfigs string, environment []string, args ...string) *process {
	t.Helper()
	own, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	p := &process{command: exec.CommandContext(t.Context(), own, args...)}
	p.command.Env = append(append(os.Environ(), mainVariable+"=1", "KUBECONFIG="+filepath.Join(kubeconfigs, args[0])), environment...)
	p.command.Stdout, p.command.Stderr = p, p
	if err := p.command.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if t.Failed() {
			t.Logf("%s logged:\n%s", args[0], p.log())
		}
	})
	return p
}

// configured returns the flag that names a file with sections of the configuration.
func configured(t *testing.T, sections string) string {
	t.Helper()
	flag, err := testkit.Configuration(t.TempDir(), sections)
	if err != nil {
		t.Fatal(err)
	}
	return flag
}

// stop asks the process to stop, and waits until it exits.
func (p *process) stop(t *testing.T) {
	t.Helper()
	if err := p.command.Process.Signal(syscall.SIGTERM); err != nil {
		t.Fatal(err)
	}
	if err := p.command.Wait(); err != nil {
		t.Fatalf("the process ends with %v", err)
	}
}

// await polls until the condition holds. It takes long only if the test fails.
func await(t *testing.T, what string, isSo func(context.Context) error) {
	t.Helper()
	var last error
	err := wait.PollUntilContextTimeout(t.Context(), 50*time.Millisecond, 3*time.Minute, true, func(ctx context.Context) (bool, error) {
		last = isSo(ctx)
		return last == nil, nil
	})
	if err != nil {
		t.Fatalf("waiting until %s: %v: %v", what, err, last)
	}
}

// freeAddress returns an address of this machine without a listener.
func freeAddress(t *testing.T) string {
	t.Helper()
	listener, err := (&net.ListenConfig{}).Listen(t.Context(), "tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	address := listener.Addr().String()
	if err := listener.Close(); err != nil {
		t.Fatal(err)
	}
	return address
}

// traced are a cluster and a collector of traces, with the programs.
type traced struct {
	config      *rest.Config
	api         client.Client
	kubeconfigs string
	collector   *testkit.Collector
}

func newTraced(t *testing.T) *traced {
	t.Helper()
	environment := startAPI(t)
	var err error
	made := &traced{config: environment.Config, kubeconfigs: writeKubeconfigs(t, environment)}
	if made.api, err = client.New(environment.Config, client.Options{}); err != nil {
		t.Fatal(err)
	}
	if made.collector, err = testkit.StartCollector(t.Context()); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(made.collector.Stop)
	return made
}

func (c *traced) startOperator(t *testing.T) *process {
	t.Helper()
	return start(t, c.kubeconfigs, nil, "operator", configured(t, "common: {tracing: {endpoint: \""+c.collector.Endpoint+"\"}}\noperator: {probeInterval: 0s}"),
		"--metrics-address=0", "--probe-address=0", "--log-level=debug")
}

func (c *traced) startWebhooks(t *testing.T) *process {
	t.Helper()
	return startWebhooks(t, c.kubeconfigs, configured(t, "common: {tracing: {endpoint: \""+c.collector.Endpoint+"\"}}"))
}

// startWebhooks starts the webhooks; the API server reaches them by a URL.
func startWebhooks(t *testing.T, kubeconfigs string, args ...string) *process {
	t.Helper()
	address := freeAddress(t)
	return start(t, kubeconfigs, nil, append([]string{
		"webhook", "--webhook-address=" + address, "--webhook-url=https://" + address, "--metrics-address=0", "--probe-address=0",
	}, args...)...)
}

// startServer returns the server and its URL.
func (c *traced) startServer(t *testing.T) (server *process, url string) {
	t.Helper()
	server = start(t, c.kubeconfigs, []string{"OTEL_EXPORTER_OTLP_ENDPOINT=" + c.collector.Endpoint}, "server",
		"--address=127.0.0.1:0", "--tls-address=", configured(t, "server: {identity: disabled}"), "--metrics-address=0", "--probe-address=0")
	serving := regexp.MustCompile(`"Serving","address":"([^"]+)"`)
	await(t, "di-server serves", func(context.Context) error {
		found := serving.FindStringSubmatch(server.log())
		if found == nil {
			return errors.New("no line says so")
		}
		url = "http://" + found[1]
		return nil
	})
	return server, url
}

// submit creates a job of v1alpha1, which is converted, and waits until it has started. It also
// creates a job that waits for placement, because there is no node.
func (c *traced) submit(t *testing.T) {
	t.Helper()
	// A job would not be converted if it were created before the API server calls the webhooks.
	if err := webhooks.WaitCalled(t.Context(), c.config); err != nil {
		t.Fatal(err)
	}
	if err := c.api.Create(t.Context(), &unstructured.Unstructured{Object: map[string]any{
		"apiVersion": "diengine.opendilab.org/v1alpha1", "kind": "DIJob",
		"metadata": map[string]any{"namespace": "default", "name": "traced"},
		"spec":     map[string]any{"coordinator": podTemplate(), "collector": podTemplate(), "learner": podTemplate()},
	}}); err != nil {
		t.Fatal(err)
	}
	await(t, "the job is started", func(ctx context.Context) error {
		status, err := c.status(ctx, "traced")
		if err == nil && status["phase"] != "Starting" {
			err = fmt.Errorf("its status is %v", status)
		}
		return err
	})
	if err := c.api.Create(t.Context(), &unstructured.Unstructured{Object: map[string]any{
		"apiVersion": "diengine.opendilab.org/v2alpha1", "kind": "DIJob",
		"metadata": map[string]any{"namespace": "default", "name": "placed"},
		"spec": map[string]any{"preemptible": true, "tasks": []any{
			map[string]any{"type": "learner", "replicas": int64(1), "template": podTemplate()["template"]},
		}},
	}}); err != nil {
		t.Fatal(err)
	}
	await(t, "the other job is told that it waits", func(ctx context.Context) error {
		status, err := c.status(ctx, "placed")
		if err == nil && !strings.Contains(fmt.Sprint(status["conditions"]), "Allocated") {
			err = fmt.Errorf("its status is %v", status)
		}
		return err
	})
}

// status returns the status of a job.
func (c *traced) status(ctx context.Context, name string) (map[string]any, error) {
	job := &unstructured.Unstructured{Object: map[string]any{"apiVersion": "diengine.opendilab.org/v2alpha1", "kind": "DIJob"}}
	if err := c.api.Get(ctx, client.ObjectKey{Namespace: "default", Name: name}, job); err != nil {
		return nil, err
	}
	status, _, err := unstructured.NestedMap(job.Object, "status")
	return status, err
}

func podTemplate() map[string]any {
	return map[string]any{"template": map[string]any{"spec": map[string]any{
		"containers": []any{map[string]any{"name": "di-container", "image": "di"}},
	}}}
}

// ask repeats a request that belongs to a trace until the answer is 200.
func ask(t *testing.T, method, url, body, traceparent string) {
	t.Helper()
	await(t, method+" "+url+" is answered", func(ctx context.Context) error {
		request, err := http.NewRequestWithContext(ctx, method, url, strings.NewReader(body))
		if err != nil {
			return err
		}
		request.Header.Set("Traceparent", traceparent)
		response, err := http.DefaultClient.Do(request)
		if err != nil {
			return err
		}
		if response.StatusCode != http.StatusOK {
			err = fmt.Errorf("answered %s", response.Status)
		}
		if closed := response.Body.Close(); closed != nil {
			return closed
		}
		return err
	})
}

// one returns a span that matches, and fails the test if there is none.
func (c *traced) one(t *testing.T, what string, wanted func(*testkit.Span) bool) *testkit.Span {
	t.Helper()
	spans := c.collector.Spans(wanted)
	if len(spans) == 0 {
		var names []string
		for _, span := range c.collector.Spans(func(*testkit.Span) bool { return true }) {
			names = append(names, fmt.Sprintf("%s: %s %v", span.Service, span.GetName(), span.Attributes))
		}
		t.Fatalf("there is no span of %s among\n%s", what, strings.Join(names, "\n"))
	}
	return spans[0]
}

func isChild(child, parent *testkit.Span) bool {
	return bytes.Equal(child.GetParentSpanId(), parent.GetSpanId()) && bytes.Equal(child.GetTraceId(), parent.GetTraceId())
}

const (
	operatorService = "di-orchestrator-operator"
	webhookService  = "di-orchestrator-webhook"
	serverService   = "di-orchestrator-server"
)

func TestAllProgramsSendTheirTracesUntilTheyStop(t *testing.T) {
	t.Parallel()
	c := newTraced(t)
	hooks, operator := c.startWebhooks(t), c.startOperator(t)
	c.submit(t)
	server, url := c.startServer(t)
	const callersTrace = "0af7651916cd43dd8448eb211c80319c"
	ask(t, http.MethodGet, url+"/healthz", "", "00-"+callersTrace+"-b7ad6b7169203331-01")
	ask(t, http.MethodPost, url+"/v1alpha1/replicas",
		`{"namespace":"default","coordinator":"traced-coordinator","collectors":{"replicas":1}}`, "00-"+callersTrace+"-b7ad6b7169203331-01")
	server.stop(t)
	operator.stop(t)
	hooks.stop(t)

	c.expectOperatorSpans(t)
	c.expectServerSpans(t, callersTrace)
	if !regexp.MustCompile(`"trace_id":"[0-9a-f]{32}"`).MatchString(operator.log()) {
		t.Error("no line of the operator names a trace")
	}
}

func (c *traced) expectOperatorSpans(t *testing.T) {
	t.Helper()
	pass := c.one(t, "the pass that creates the coordinator", func(s *testkit.Span) bool {
		created := c.collector.Spans(func(child *testkit.Span) bool { return child.GetName() == "POST pods" && isChild(child, s) })
		return s.Service == operatorService && s.Attributes["di.job.name"] == "traced" && len(created) > 0
	})
	for key, want := range map[string]any{
		"k8s.namespace.name": "default", "di.job.name": "traced", "di.job.lifecycle": "CoordinatorLed",
	} {
		if pass.Attributes[key] != want {
			t.Errorf("the pass has %s %v, want %v", key, pass.Attributes[key], want)
		}
	}
	if pass.GetName() != "reconcile dijob" {
		t.Errorf("the pass is %q", pass.GetName())
	}
	c.expectServedSpans(t)
	round := c.one(t, "the round in which a job waits", func(s *testkit.Span) bool {
		return s.GetName() == "allocator round" && s.Attributes["di.allocator.jobs.waiting"] == int64(1)
	})
	if named := round.Attributes["di.job.name"]; named != nil {
		t.Errorf("a round is said to be of job %v", named)
	}
	for _, name := range []string{"leases", "events"} {
		if spans := c.collector.Spans(func(s *testkit.Span) bool { return strings.HasSuffix(s.GetName(), " "+name) }); len(spans) > 0 {
			t.Errorf("what belongs to no trace began one: %v", spans)
		}
	}
}

// expectServedSpans expects one span of each operation.
func (c *traced) expectServedSpans(t *testing.T) {
	t.Helper()
	c.one(t, "the pass that starts the job", func(s *testkit.Span) bool {
		return s.GetName() == "reconcile dijob" && s.Attributes["di.job.name"] == "traced" && s.Attributes["di.status_written"] == true &&
			s.Attributes["di.job.phase.before"] == "Pending" && s.Attributes["di.job.phase.after"] == "Starting"
	})
	c.one(t, "a conversion", func(s *testkit.Span) bool {
		return s.Service == webhookService && s.GetName() == "POST /convert" && s.Attributes["di.conversion.objects"] == int64(1)
	})
	c.one(t, "admission", func(s *testkit.Span) bool {
		return s.GetName() == "POST /validate-v1alpha1-dijob" && s.Attributes["di.admission.result"] == "allowed" &&
			s.Attributes["di.admission.name"] == "traced" && s.Attributes["di.admission.operation"] == "CREATE"
	})
}

func (c *traced) expectServerSpans(t *testing.T, callersTrace string) {
	t.Helper()
	request := c.one(t, "the request", func(s *testkit.Span) bool { return s.GetName() == "POST /v1alpha1/replicas" })
	// Callers are untrusted and must not decide which traces are recorded.
	linked := len(request.GetLinks()) == 1 && hex.EncodeToString(request.GetLinks()[0].GetTraceId()) == callersTrace
	if hex.EncodeToString(request.GetTraceId()) == callersTrace || !linked || request.Attributes["di.job.name"] != "traced" {
		t.Errorf("the request of job %v has trace %x and links %v, want a trace of its own, linked to its caller's",
			request.Attributes["di.job.name"], request.GetTraceId(), request.GetLinks())
	}
	c.one(t, "the write of the request", func(s *testkit.Span) bool {
		return s.Service == serverService && s.GetName() == "PUT memberships" && isChild(s, request)
	})
	if probes := c.collector.Spans(func(s *testkit.Span) bool {
		return s.Service == serverService && strings.Contains(s.GetName(), "healthz")
	}); len(probes) > 0 {
		t.Errorf("probes have spans: %v", probes)
	}
}
