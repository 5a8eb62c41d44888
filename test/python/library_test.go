// Copyright The DI Orchestrator Authors.
// SPDX-License-Identifier: Apache-2.0

// Package python tests the Python library on a real API server, with the real operator and the real
// di-server over TCP and TLS. The tests themselves are in python/tests/server.
package python

import (
	"context"
	"encoding/json"
	"io/fs"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"testing"
	"time"

	"github.com/go-logr/logr"
	"github.com/go-logr/logr/testr"
	"github.com/prometheus/client_golang/prometheus"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/rest"
	"k8s.io/utils/clock"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/cache"
	"sigs.k8s.io/controller-runtime/pkg/client"
	metricsserver "sigs.k8s.io/controller-runtime/pkg/metrics/server"

	"opendilab.org/di-orchestrator/apis/v2alpha1"
	"opendilab.org/di-orchestrator/controllers"
	"opendilab.org/di-orchestrator/controllers/dijob"
	"opendilab.org/di-orchestrator/internal/certs"
	"opendilab.org/di-orchestrator/internal/names"
	"opendilab.org/di-orchestrator/server"
	"opendilab.org/di-orchestrator/server/store"
	"opendilab.org/di-orchestrator/test/testkit"
	"opendilab.org/di-orchestrator/test/testkit/expect"
)

// namespace is the namespace of all jobs of the tests.
const namespace = "python"

// interpreter is the program that runs the library.
const interpreter = "python3"

func TestTheLibraryOnTheRealServer(t *testing.T) {
	readAll(t, filepath.Join(testkit.Root(), "docs", "python.md"))
	ctx, cancel := context.WithTimeout(t.Context(), testkit.Patience)
	defer cancel()
	world := startWorld(ctx, t)

	command := python(ctx, t, "-m", "unittest", "discover", "--start-directory", "tests/server", "--verbose")
	command.Env = append(command.Env, "DI_TEST_WORLD="+world)
	runTests(t, command)
}

func TestTheLibraryAlone(t *testing.T) {
	readAll(t, filepath.Join(testkit.Root(), "examples"))
	runTests(t, python(t.Context(), t, "-m", "unittest", "discover", "--start-directory", "tests/unit"))
}

// python returns a command of the interpreter in the folder of the library, whose files it reads.
func python(ctx context.Context, t *testing.T, args ...string) *exec.Cmd {
	t.Helper()
	found, err := exec.LookPath(interpreter)
	if err != nil {
		t.Fatalf("%s is not in PATH: install Python 3.9 or later", interpreter)
	}
	library := filepath.Join(testkit.Root(), "python")
	readAll(t, library)
	command := exec.CommandContext(ctx, found, args...)
	command.Dir = library
	command.Env = append(os.Environ(), "PYTHONPATH="+filepath.Join(library, "src")+string(os.PathListSeparator)+os.Getenv("PYTHONPATH"), "PYTHONDONTWRITEBYTECODE=1")
	return command
}

func runTests(t *testing.T, command *exec.Cmd) {
	t.Helper()
	output, err := command.CombinedOutput()
	if err != nil {
		t.Errorf("%s: %v\n%s", command, err, output)
	}
	t.Logf("%s", output)
}

// readAll reads files, so that the cached result of this test counts only while they are unchanged.
func readAll(t *testing.T, paths ...string) {
	t.Helper()
	for _, path := range paths {
		err := filepath.WalkDir(path, func(path string, entry fs.DirEntry, err error) error {
			if err != nil || entry.IsDir() {
				return err
			}
			_, err = os.ReadFile(path)
			return err
		})
		expect.NoError(t, err)
	}
}

// world is what the Python tests know of their cluster.
type world struct {
	Namespace  string `json:"namespace"`
	URL        string `json:"url"`
	TLSURL     string `json:"tls_url"`
	CAFile     string `json:"ca_file"`
	Kubeconfig string `json:"kubeconfig"`
	// HistoryURL is that of the history, and TokenFile has a token of a reader.
	HistoryURL string `json:"history_url"`
	TokenFile  string `json:"token_file"`
	// Pods is the folder with a folder for each pod.
	Pods string `json:"pods"`
}

// startWorld starts a cluster for the duration of the test. It returns the file that describes it.
func startWorld(ctx context.Context, t *testing.T) string {
	t.Helper()
	environment, err := testkit.StartAPI(ctx)
	expect.NoError(t, err)
	t.Cleanup(func() { expect.NoError(t, environment.Stop()) })
	live, err := testkit.NewClient(environment.Config)
	expect.NoError(t, err)
	ctrl.SetLogger(logr.Discard())
	for _, object := range []client.Object{
		&corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: namespace}},
		&corev1.ServiceAccount{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: "default"}},
		aggregatorConfig(),
	} {
		expect.NoError(t, live.Create(ctx, object))
	}
	directory := t.TempDir()
	described := world{
		Namespace: namespace, CAFile: filepath.Join(directory, "ca.crt"),
		Kubeconfig: writeKubeconfig(t, directory, environment.Config), Pods: filepath.Join(directory, "pods"),
	}
	account, err := environment.As(testkit.Operator)
	expect.NoError(t, err)
	operator := newManager(t, account, controllers.CacheOptions())
	expect.NoError(t, dijob.Setup(ctx, operator, dijob.Options{Registerer: prometheus.NewRegistry(), Drain: time.Nanosecond}))
	start(t, operator)
	account, err = environment.As(testkit.Server)
	expect.NoError(t, err)
	certificate := startServer(ctx, t, account, live, &described)
	startHistory(ctx, t, environment.Config, live, certificate, &described)
	kubelet := &kubelet{live: live, server: described.URL, directory: described.Pods}
	stopped := make(chan struct{})
	running, stop := context.WithCancel(context.Background())
	go func() { defer close(stopped); kubelet.follow(running, t.Logf) }()
	t.Cleanup(func() { stop(); <-stopped })
	return writeJSON(t, filepath.Join(directory, "world.json"), described)
}

// aggregatorConfig returns the cluster's AggregatorConfig.
func aggregatorConfig() *v2alpha1.AggregatorConfig {
	config := &v2alpha1.AggregatorConfig{ObjectMeta: metav1.ObjectMeta{Namespace: names.SystemNamespace, Name: names.AggregatorConfig}}
	config.Spec.Aggregator.Template.Raw = []byte(`{"spec":{"containers":[{"name":"di-container","image":"di"}]}}`)
	return config
}

// startServer starts di-server. It returns the getter of its certificate.
func startServer(ctx context.Context, t *testing.T, config *rest.Config, live client.Client, described *world) certificateGetter {
	t.Helper()
	of := func(name string) types.NamespacedName { return types.NamespacedName{Namespace: namespace, Name: name} }
	issuer := &certs.Issuer{
		API: live, Authority: of("authority"), Secret: of("certificate"), Bundle: of("trust"),
		Hosts: []string{"localhost"}, Clock: clock.RealClock{}, Log: logr.Discard(),
	}
	_, err := certs.LoadOrCreate(ctx, live, issuer.Authority, issuer.Clock)
	expect.NoError(t, err)
	expect.NoError(t, issuer.Issue(ctx))
	issued := &certs.Issued{API: live, Secret: issuer.Secret, Clock: clock.RealClock{}, Log: logr.Discard()}
	expect.NoError(t, issued.Read(ctx))
	var trust corev1.ConfigMap
	expect.NoError(t, live.Get(ctx, issuer.Bundle, &trust))
	expect.NoError(t, os.WriteFile(described.CAFile, []byte(trust.Data[certs.BundleKey]), 0o600))

	watches := store.NewWatches(logr.Discard(), clock.RealClock{})
	config.Wrap(watches.Wrap)
	mgr := newManager(t, config, store.CacheOptions())
	expect.NoError(t, store.SetupIndexes(ctx, mgr.GetCache()))
	address, secure := freeAddress(ctx, t), freeAddress(ctx, t)
	_, port, err := net.SplitHostPort(secure)
	expect.NoError(t, err)
	described.URL, described.TLSURL = "http://"+address, "https://localhost:"+port
	served, err := server.New(server.Options{
		Client: mgr.GetClient(), APIReader: mgr.GetAPIReader(), Cache: mgr.GetCache(), Watches: watches, Log: testr.New(t),
		Addresses: []string{address}, TLSAddress: secure, GetCertificate: issued.GetCertificate,
	})
	expect.NoError(t, err)
	expect.NoError(t, mgr.Add(served))
	start(t, mgr)
	for served.Ready(nil) != nil {
		select {
		case <-ctx.Done():
			t.Fatal("di-server does not become ready")
		case <-time.After(20 * time.Millisecond):
		}
	}
	return issued.GetCertificate
}

func newManager(t *testing.T, config *rest.Config, cached cache.Options) ctrl.Manager {
	t.Helper()
	scheme, err := testkit.NewClient(config)
	expect.NoError(t, err)
	mgr, err := ctrl.NewManager(config, ctrl.Options{
		Scheme: scheme.Scheme(), Cache: cached, Metrics: metricsserver.Options{BindAddress: "0"}, HealthProbeBindAddress: "0",
	})
	expect.NoError(t, err)
	return mgr
}

// start runs a manager for the duration of the test.
func start(t *testing.T, mgr ctrl.Manager) {
	t.Helper()
	running, stop := context.WithCancel(context.Background())
	stopped := make(chan error, 1)
	go func() { stopped <- mgr.Start(running) }()
	t.Cleanup(func() {
		stop()
		expect.NoError(t, <-stopped)
	})
}

func freeAddress(ctx context.Context, t *testing.T) string {
	t.Helper()
	listener, err := (&net.ListenConfig{}).Listen(ctx, "tcp", "127.0.0.1:0")
	expect.NoError(t, err)
	defer func() { expect.NoError(t, listener.Close()) }()
	return listener.Addr().String()
}

// writeKubeconfig writes a kubeconfig as JSON, which is YAML, too.
func writeKubeconfig(t *testing.T, directory string, config *rest.Config) string {
	t.Helper()
	named := func(key string, value any) []any { return []any{map[string]any{"name": "test", key: value}} }
	return writeJSON(t, filepath.Join(directory, "kubeconfig"), map[string]any{
		"apiVersion": "v1", "kind": "Config", "current-context": "test",
		"contexts": named("context", map[string]any{"cluster": "test", "user": "test", "namespace": namespace}),
		"clusters": named("cluster", map[string]any{"server": config.Host, "certificate-authority-data": config.CAData}),
		"users":    named("user", map[string]any{"client-certificate-data": config.CertData, "client-key-data": config.KeyData}),
	})
}

func writeJSON(t *testing.T, path string, value any) string {
	t.Helper()
	content, err := json.Marshal(value)
	expect.NoError(t, err)
	expect.NoError(t, os.WriteFile(path, content, 0o600))
	return path
}
