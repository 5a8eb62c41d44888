// Copyright The DI Orchestrator Authors.
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"net/http/httptest"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/go-logr/logr"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/wait"
	"k8s.io/cli-runtime/pkg/genericiooptions"
	"sigs.k8s.io/controller-runtime/pkg/cache"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/log"

	"opendilab.org/di-orchestrator/apis/v2alpha1"
	"opendilab.org/di-orchestrator/internal/names"
	"opendilab.org/di-orchestrator/server"
	"opendilab.org/di-orchestrator/server/store"
	"opendilab.org/di-orchestrator/test/testkit"
	"opendilab.org/di-orchestrator/test/testkit/expect"
	"opendilab.org/di-orchestrator/test/testkit/jobs"
	"opendilab.org/di-orchestrator/test/testkit/pods"
)

// account is the service account of the tests' pods.
const account = "trainer"

// world is a real API server and a real di-server with authentication.
type world struct {
	environment *testkit.API
	live        client.Client
	cached      client.Client
	// kubeconfig is the path of a cluster administrator's kubeconfig.
	kubeconfig string
	// url is the URL of di-server.
	url string
	// stop contains the functions that stop the world; they run in reverse order.
	stop []func() error
}

// started starts the world on its first use. All tests share it, in separate namespaces.
var started = sync.OnceValues(startWorld)

// needed reports whether a test has used the world.
var needed atomic.Bool

func TestMain(m *testing.M) {
	log.SetLogger(logr.Discard())
	code := m.Run()
	if needed.Load() {
		w, err := started()
		if err := errors.Join(err, w.end()); err != nil {
			fmt.Fprintln(os.Stderr, err)
			code = 1
		}
	}
	os.Exit(code)
}

// theWorld returns the shared world.
func theWorld(t *testing.T) *world {
	t.Helper()
	needed.Store(true)
	w, err := started()
	expect.NoError(t, err)
	return w
}

// inNamespace returns the shared world and a namespace of the test.
func inNamespace(t *testing.T) (w *world, namespace string) {
	t.Helper()
	w = theWorld(t)
	return w, w.namespace(t)
}

// end stops the world.
func (w *world) end() error {
	var errs []error
	for _, stop := range slices.Backward(w.stop) {
		errs = append(errs, stop())
	}
	return errors.Join(errs...)
}

// startWorld starts the world; the caller must end it even after an error.
func startWorld() (*world, error) {
	w, err := startCluster()
	if err != nil {
		return w, err
	}
	return w, errors.Join(w.allowLearnersOfGPUs(context.Background()), w.serve())
}

// startCluster starts an API server, and writes the kubeconfig of a cluster administrator.
func startCluster() (*world, error) {
	w := &world{}
	environment, err := testkit.StartAPI(context.Background())
	if err != nil {
		return w, err
	}
	w.environment, w.stop = environment, append(w.stop, environment.Stop)
	if w.live, err = testkit.NewClient(environment.Config); err != nil {
		return w, err
	}
	folder, err := os.MkdirTemp("", "kubectl-di-")
	if err != nil {
		return w, err
	}
	w.stop = append(w.stop, func() error { return os.RemoveAll(folder) })
	w.kubeconfig = filepath.Join(folder, "kubeconfig")
	return w, os.WriteFile(w.kubeconfig, environment.KubeConfig, 0o600)
}

// serve starts a cache and a di-server that uses it.
func (w *world) serve() error {
	options := store.CacheOptions()
	options.Scheme = w.live.Scheme()
	account, err := w.environment.As(testkit.Server)
	if err != nil {
		return err
	}
	informers, err := cache.New(account, options)
	if err != nil {
		return err
	}
	ctx, cancel := context.WithCancel(context.Background())
	stopped := make(chan error, 1)
	w.stop = append(w.stop, func() error { cancel(); return <-stopped })
	if err := store.SetupIndexes(ctx, informers); err != nil {
		stopped <- err
		return err
	}
	go func() { stopped <- informers.Start(ctx) }()
	w.cached, err = client.New(account, client.Options{Scheme: w.live.Scheme(), Cache: &client.CacheOptions{Reader: informers}})
	if err != nil {
		return err
	}
	own, err := testkit.NewClient(account)
	if err != nil {
		return err
	}
	served, err := server.New(server.Options{Client: w.cached, APIReader: own, Cache: informers})
	if err != nil {
		return err
	}
	listening := httptest.NewServer(served.Handler())
	w.stop = append(w.stop, func() error { listening.Close(); return nil })
	w.url = listening.URL
	return nil
}

// allowLearnersOfGPUs creates the prerequisites of learners with several GPUs.
func (w *world) allowLearnersOfGPUs(ctx context.Context) error {
	node := &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: "node"}}
	config := &v2alpha1.AggregatorConfig{ObjectMeta: metav1.ObjectMeta{Namespace: names.SystemNamespace, Name: names.AggregatorConfig}}
	config.Spec.Aggregator.Template = jobs.Serving()
	for _, object := range []client.Object{node, config} {
		if err := w.live.Create(ctx, object); err != nil {
			return err
		}
	}
	node.Status.Allocatable = corev1.ResourceList{names.DefaultGPU: resource.MustParse("8")}
	return w.live.Status().Update(ctx, node)
}

func (w *world) namespace(t *testing.T) string {
	t.Helper()
	namespace := &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{GenerateName: "test-"}}
	expect.NoError(t, w.live.Create(t.Context(), namespace))
	expect.NoError(t, w.live.Create(t.Context(), &corev1.ServiceAccount{ObjectMeta: metav1.ObjectMeta{Namespace: namespace.Name, Name: account}}))
	return namespace.Name
}

// job creates a job with these tasks.
func (w *world) job(t *testing.T, namespace, name string, lifecycle v2alpha1.Lifecycle, tasks ...v2alpha1.Task) *v2alpha1.DIJob {
	t.Helper()
	for i := range tasks {
		tasks[i].Template = jobs.Serving()
	}
	job := &v2alpha1.DIJob{
		ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: name},
		Spec:       v2alpha1.DIJobSpec{Lifecycle: lifecycle, Tasks: tasks},
	}
	expect.NoError(t, w.live.Create(t.Context(), job))
	return job
}

// trainer creates a coordinator-led job with its Membership and its coordinator, like the operator.
func (w *world) trainer(t *testing.T, namespace, name string) *v2alpha1.DIJob {
	t.Helper()
	job := w.job(t, namespace, name, v2alpha1.LifecycleCoordinatorLed,
		v2alpha1.Task{Type: v2alpha1.TaskTypeCoordinator}, v2alpha1.Task{Type: v2alpha1.TaskTypeCollector}, v2alpha1.Task{Type: v2alpha1.TaskTypeLearner})
	expect.NoError(t, w.live.Create(t.Context(), jobs.Membership(job)))
	coordinator := names.CoordinatorPod(name)
	w.pod(t, job, coordinator, names.ReplicaLabels(name, names.ReplicaTypeCoordinator, coordinator))
	return job
}

// workers creates a worker-led job with three replicas of a task, and one pod.
func (w *world) workers(t *testing.T, namespace, name string, task v2alpha1.Task) *v2alpha1.DIJob {
	t.Helper()
	three := int32(3)
	task.Replicas = &three
	job := w.job(t, namespace, name, v2alpha1.LifecycleWorkerLed, task)
	pod := names.WorkerPod(name, names.TaskName(&task), 0)
	w.pod(t, job, pod, names.WorkerLabels(name, task.Type, names.TaskName(&task), pod))
	return job
}

// pod creates a pod of a job.
func (w *world) pod(t *testing.T, job *v2alpha1.DIJob, name string, labels map[string]string) *corev1.Pod {
	t.Helper()
	pod := pods.Of(job, name, labels)
	pod.Spec.ServiceAccountName = account
	expect.NoError(t, w.live.Create(t.Context(), pod))
	return pod
}

// members returns the members of a job's task.
func (w *world) members(t *testing.T, job *v2alpha1.DIJob, task v2alpha1.TaskType) []v2alpha1.Member {
	t.Helper()
	var list v2alpha1.Membership
	expect.NoError(t, w.live.Get(t.Context(), client.ObjectKeyFromObject(job), &list))
	var found []v2alpha1.Member
	for _, member := range list.Spec.Members {
		if member.Task == task {
			found = append(found, member)
		}
	}
	return found
}

// setStatus changes a job's status like the operator.
func (w *world) setStatus(t *testing.T, job *v2alpha1.DIJob, change func(*v2alpha1.DIJobStatus)) {
	t.Helper()
	change(&job.Status)
	expect.NoError(t, w.live.Status().Update(t.Context(), job))
	w.cacheKnows(t, job)
}

// cacheKnows waits until di-server's cache contains the current version of an object.
func (w *world) cacheKnows(t *testing.T, object client.Object) {
	t.Helper()
	version := object.GetResourceVersion()
	seen, isObject := object.DeepCopyObject().(client.Object)
	if !isObject {
		t.Fatalf("%T is no object", object)
	}
	expect.NoError(t, wait.PollUntilContextTimeout(t.Context(), 10*time.Millisecond, testkit.Patience, true, func(ctx context.Context) (bool, error) {
		err := w.cached.Get(ctx, client.ObjectKeyFromObject(object), seen)
		return err == nil && seen.GetResourceVersion() == version, client.IgnoreNotFound(err)
	}))
}

// run runs a command in a namespace.
func (w *world) run(t *testing.T, namespace string, args ...string) ran {
	t.Helper()
	return w.fed(t, namespace, "", args...)
}

// fed runs a command with stdin.
func (w *world) fed(t *testing.T, namespace, stdin string, args ...string) ran {
	t.Helper()
	return kubectlDI(t, stdin, append([]string{args[0], "--kubeconfig", w.kubeconfig, "-n", namespace}, args[1:]...)...)
}

// di runs a command with di-server's URL.
func (w *world) di(t *testing.T, namespace string, args ...string) ran {
	t.Helper()
	return w.run(t, namespace, append([]string{args[0], "--server", w.url}, args[1:]...)...)
}

// did runs a command that calls di-server and must succeed without errors on stderr.
func (w *world) did(t *testing.T, namespace string, args ...string) string {
	t.Helper()
	return w.di(t, namespace, args...).well(t, args)
}

// ranWell runs a command that must succeed without errors on stderr.
func (w *world) ranWell(t *testing.T, namespace string, args ...string) string {
	t.Helper()
	return w.run(t, namespace, args...).well(t, args)
}

func (r ran) well(t *testing.T, args []string) string {
	t.Helper()
	if r.code != 0 || r.stderr != "" {
		t.Fatalf("%v: exit code %d: %s", args, r.code, r.stderr)
	}
	return r.stdout
}

// screen collects the output of a running command.
type screen struct {
	mutex sync.Mutex
	text  bytes.Buffer
}

// Write implements io.Writer.
func (s *screen) Write(text []byte) (int, error) {
	s.mutex.Lock()
	defer s.mutex.Unlock()
	return s.text.Write(text)
}

// String implements fmt.Stringer.
func (s *screen) String() string {
	s.mutex.Lock()
	defer s.mutex.Unlock()
	return s.text.String()
}

// shows waits until the output contains a text.
func (s *screen) shows(t *testing.T, text string) {
	t.Helper()
	err := wait.PollUntilContextTimeout(t.Context(), 10*time.Millisecond, testkit.Patience, true, func(context.Context) (bool, error) {
		return strings.Contains(s.String(), text), nil
	})
	if err != nil {
		t.Fatalf("%q is not among the output: %s", text, s)
	}
}

// running is a command that runs concurrently with the test.
type running struct {
	out, report *screen
	stop        context.CancelFunc
	code        chan int
}

// start starts a command in a namespace.
func (w *world) start(t *testing.T, namespace, stdin string, args ...string) *running {
	t.Helper()
	ctx, cancel := context.WithCancel(t.Context())
	started := &running{out: &screen{}, report: &screen{}, stop: cancel, code: make(chan int, 1)}
	command := newCommand(genericiooptions.IOStreams{In: strings.NewReader(stdin), Out: started.out, ErrOut: started.report})
	command.SetArgs(append([]string{args[0], "--kubeconfig", w.kubeconfig, "-n", namespace}, args[1:]...))
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		started.code <- run(ctx, command)
	}()
	t.Cleanup(func() { cancel(); <-ended })
	return started
}

// ended waits until the command has ended, and returns its exit code.
func (r *running) ended(t *testing.T) int {
	t.Helper()
	select {
	case code := <-r.code:
		return code
	case <-time.After(testkit.Patience):
	}
	t.Fatalf("the command does not end; it printed\n%s\n%s", r.out, r.report)
	return 0
}
