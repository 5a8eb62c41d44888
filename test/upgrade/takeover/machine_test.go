// Copyright The DI Orchestrator Authors.
// SPDX-License-Identifier: Apache-2.0

package takeover

import (
	"context"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"sync"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	appsv1 "k8s.io/api/apps/v1"
	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"opendilab.org/di-orchestrator/test/testkit"
	"opendilab.org/di-orchestrator/test/testkit/program"
	"opendilab.org/di-orchestrator/test/testkit/specs"
	"opendilab.org/di-orchestrator/test/upgrade/legacy"
)

// machine replaces the controllers and nodes of a cluster. It runs the chart's Jobs and the
// Deployments of the webhooks and the operator as local processes.
type machine struct {
	*plane
	kubeconfig string

	mu sync.Mutex
	// logs are the outputs of the hooks' containers, by container name.
	logs map[string]string
	// running are the running programs, by Deployment name.
	running map[string]*program.Process
	hooks   map[types.UID]bool
}

// newMachine starts to run the workloads in the system namespace.
func newMachine(ctx context.Context, p *plane) *machine {
	GinkgoHelper()
	m := &machine{plane: p, kubeconfig: p.kubeconfig(), logs: map[string]string{}, running: map[string]*program.Process{}, hooks: map[types.UID]bool{}}
	beside(ctx, m.runHooks)
	beside(ctx, m.runPrograms)
	return m
}

// runHooks runs the Jobs that have not run yet.
func (m *machine) runHooks(ctx context.Context) {
	var found batchv1.JobList
	if err := m.api.List(ctx, &found, client.InNamespace(system)); err != nil {
		return
	}
	for i := range found.Items {
		if job := &found.Items[i]; !m.hooks[job.UID] {
			m.hooks[job.UID] = true
			m.runHook(ctx, job)
		}
	}
}

// runHook runs the containers of a Job one after the other and reports how they ended.
func (m *machine) runHook(ctx context.Context, job *batchv1.Job) {
	GinkgoHelper()
	spec := &job.Spec.Template.Spec
	ended := batchv1.JobComplete
	for _, container := range slices.Concat(spec.InitContainers, spec.Containers) {
		output, err := m.command(ctx, container.Args...).CombinedOutput()
		m.mu.Lock()
		m.logs[container.Name] = string(output)
		m.mu.Unlock()
		if err != nil {
			ended = batchv1.JobFailed
			break
		}
	}
	began := metav1.Now()
	status := batchv1.JobStatus{StartTime: &began}
	first := batchv1.JobFailureTarget
	if ended == batchv1.JobComplete {
		first = batchv1.JobSuccessCriteriaMet
		status.Succeeded, status.CompletionTime = 1, &began
	} else {
		status.Failed = 1
	}
	for _, kind := range []batchv1.JobConditionType{first, ended} {
		status.Conditions = append(status.Conditions, batchv1.JobCondition{Type: kind, Status: corev1.ConditionTrue, Reason: "Ended", LastTransitionTime: began})
	}
	job.Status = status
	if err := m.api.Status().Update(ctx, job); err != nil && ctx.Err() == nil {
		Expect(client.IgnoreNotFound(err)).To(Succeed(), job.Name)
	}
}

// runPrograms starts the webhooks and an operator while their Deployments exist, and kills them
// when these are deleted. It also makes a di-server ready.
func (m *machine) runPrograms(ctx context.Context) {
	m.runProgram(ctx, "di-orchestrator-webhook", func(args []string) *program.Process {
		return m.startWebhooks(ctx, m.address, m.address, "", args...)
	})
	m.runProgram(ctx, "di-orchestrator-operator", func(args []string) *program.Process {
		defer m.serve(ctx)
		return m.startOperator(ctx, "", args...)
	})
}

// runProgram does so for one Deployment, given a function that starts its program with arguments.
func (m *machine) runProgram(ctx context.Context, name string, start func(args []string) *program.Process) {
	deployment := &appsv1.Deployment{}
	err := m.api.Get(ctx, client.ObjectKey{Namespace: system, Name: name}, deployment)
	m.mu.Lock()
	defer m.mu.Unlock()
	switch running, runs := m.running[name]; {
	case err == nil && !runs:
		m.running[name] = start(m.mount(ctx, deployment.Spec.Template.Spec.Containers[0].Args[1:]))
	case apierrors.IsNotFound(err) && runs:
		_ = running.Kill()
		delete(m.running, name)
	}
}

// mount returns the arguments of a program with its configuration in a file.
func (m *machine) mount(ctx context.Context, args []string) []string {
	GinkgoHelper()
	configuration := &corev1.ConfigMap{}
	Expect(m.api.Get(ctx, client.ObjectKey{Namespace: system, Name: "di-orchestrator-configuration"}, configuration)).To(Succeed())
	mounted, err := testkit.MountConfiguration(GinkgoT().TempDir(), args, configuration.Data)
	Expect(err).NotTo(HaveOccurred())
	return mounted
}

func (m *machine) log(container string) string {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.logs[container]
}

// helm runs the Helm that an environment variable names and returns its output.
func (m *machine) helm(ctx context.Context, key string, args ...string) (string, error) {
	GinkgoHelper()
	program := os.Getenv(key)
	Expect(program).NotTo(BeEmpty(), key+" is not set: run the tests by make test")
	home := GinkgoT().TempDir()
	command := exec.CommandContext(ctx, program, append(args, "--namespace", system, "--timeout", testkit.Patience.String())...)
	command.Env = append(os.Environ(), "KUBECONFIG="+m.kubeconfig, "HELM_CACHE_HOME="+home, "HELM_CONFIG_HOME="+home, "HELM_DATA_HOME="+home)
	output, err := command.CombinedOutput()
	return string(output), err
}

// mustHelm runs Helm and expects success.
func (m *machine) mustHelm(ctx context.Context, key string, args ...string) {
	GinkgoHelper()
	output, err := m.helm(ctx, key, args...)
	Expect(err).NotTo(HaveOccurred(), output)
}

// release returns Helm's arguments for the chart of this checkout, with the values of the upgrade
// guide.
func (m *machine) release(command string, more ...string) []string {
	return append([]string{
		command, "di-orchestrator", filepath.Join(testkit.Root(), "charts", "di-orchestrator"), "--set", "configuration.server.identity=legacy",
		"--set", "webhook.url=https://" + m.address, "--set", "hooks.timeout=" + testkit.Patience.String(),
		"--set", "configuration.common.kubeAPIQPS=1000,configuration.operator.probeInterval=0s,configuration.operator.storageMigration.settle=1s",
	}, more...)
}

// earlierChart writes a chart with the objects of a release, as the chart of v1.1 had them. It
// includes the definitions as templates only if requested.
func earlierChart(release legacy.Release, definitions bool) string {
	GinkgoHelper()
	objects := specs.Must(release.Objects())
	folder := GinkgoT().TempDir()
	Expect(release.WriteChart(folder, slices.DeleteFunc(objects, func(object *unstructured.Unstructured) bool {
		return object.GetKind() == "Namespace" || object.GetKind() == "CustomResourceDefinition" && !definitions
	}))).To(Succeed())
	return folder
}

// deployments returns the names of all Deployments of the system namespace.
func (m *machine) deployments(ctx context.Context) []string {
	GinkgoHelper()
	found := specs.List[appsv1.DeploymentList](ctx, m.api, client.InNamespace(system))
	names := map[string]bool{}
	for i := range found.Items {
		names[found.Items[i].Name] = true
	}
	return slices.Sorted(maps.Keys(names))
}
