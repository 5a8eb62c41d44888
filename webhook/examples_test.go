// Copyright The DI Orchestrator Authors.
// SPDX-License-Identifier: Apache-2.0

package webhook_test

import (
	"context"
	"errors"
	"io"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	utilyaml "k8s.io/apimachinery/pkg/util/yaml"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"opendilab.org/di-orchestrator/apis/v2alpha1"
	"opendilab.org/di-orchestrator/internal/names"
	"opendilab.org/di-orchestrator/job/workload"
	"opendilab.org/di-orchestrator/test/testkit"
	"opendilab.org/di-orchestrator/test/testkit/specs"
)

// example is an object of a manifest.
type example struct {
	file   string
	object *unstructured.Unstructured
}

// examples returns the objects of all manifests of examples/, a plan after its job.
func examples() []example {
	GinkgoHelper()
	folder := filepath.Join(testkit.Root(), "examples")
	var found []example
	for _, pattern := range []string{"*/*.yaml", "*/*/*.yaml"} {
		files := specs.Must(filepath.Glob(filepath.Join(folder, pattern)))
		Expect(files).NotTo(BeEmpty(), pattern)
		for _, file := range files {
			name := specs.Must(filepath.Rel(folder, file))
			for _, object := range objectsOf(file) {
				found = append(found, example{name, object})
			}
		}
	}
	isPlan := func(e example) int { return strings.Count(e.object.GetKind(), "ScalePlan") }
	slices.SortStableFunc(found, func(a, b example) int { return isPlan(a) - isPlan(b) })
	return found
}

func objectsOf(file string) []*unstructured.Unstructured {
	GinkgoHelper()
	opened := specs.Must(os.Open(file))
	defer func() { Expect(opened.Close()).To(Succeed()) }()
	var objects []*unstructured.Unstructured
	decoder := utilyaml.NewYAMLOrJSONDecoder(opened, 4096)
	for {
		object := &unstructured.Unstructured{}
		err := decoder.Decode(&object.Object)
		if errors.Is(err, io.EOF) {
			return objects
		}
		Expect(err).NotTo(HaveOccurred(), file)
		objects = append(objects, object)
	}
}

// podsOf returns a pod of each task of a stored job, as the operator creates them.
func podsOf(ctx context.Context, stored client.Object) []*corev1.Pod {
	GinkgoHelper()
	job := &v2alpha1.DIJob{}
	read := specs.GetJob(ctx, c, "v2alpha1", stored.GetNamespace(), stored.GetName())
	Expect(runtime.DefaultUnstructuredConverter.FromUnstructured(read.Object, job)).To(Succeed())
	builder := workload.NewBuilder(job, workload.Settings{})
	assignment := &workload.Assignment{}
	for i := range job.Spec.Tasks {
		pod := job.Name + "-" + names.TaskName(&job.Spec.Tasks[i]) + "-0"
		assignment.Replicas = append(assignment.Replicas, workload.Replica{Task: i, Rank: int32(i), Pod: pod})
		assignment.Nodes = append(assignment.Nodes, pod)
	}
	var pods []*corev1.Pod
	for i := range job.Spec.Tasks {
		var pod *corev1.Pod
		var err error
		switch task := job.Spec.Tasks[i].Type; {
		case job.Spec.Lifecycle != v2alpha1.LifecycleCoordinatorLed:
			pod, err = builder.Worker(assignment, &assignment.Replicas[i])
		case task == v2alpha1.TaskTypeCoordinator:
			pod, err = builder.Coordinator()
		default:
			pod, err = builder.Replica(&v2alpha1.Member{Task: task, Slot: "a"}, job.Name+"-"+string(task)+"-a")
		}
		Expect(err).NotTo(HaveOccurred())
		pods = append(pods, pod)
	}
	return pods
}

// variables are the variables that the commands of a container expect from outside.
func variables(container *corev1.Container) []string {
	script := strings.Join(slices.Concat(container.Command, container.Args), "\n")
	var found []string
	for _, match := range regexp.MustCompile(`\$[({]?([A-Z][A-Z0-9_]+)`).FindAllStringSubmatch(script, -1) {
		found = append(found, match[1])
	}
	return found
}

var _ = Describe("The examples", func() {
	It("are admitted as they are, and so are their pods, whose commands read variables that exist", func(ctx SpecContext) {
		namespace := specs.Namespace(ctx, c)
		strict := &client.CreateOptions{Raw: &metav1.CreateOptions{FieldValidation: metav1.FieldValidationStrict}}
		for _, e := range examples() {
			By(e.file)
			kind := e.object.GroupVersionKind()
			if _, err := c.RESTMapper().RESTMapping(kind.GroupKind(), kind.Version); minor() < 34 && kind.Group == "resource.k8s.io" && meta.IsNoMatchError(err) {
				continue // Claims of devices are in v1 since Kubernetes 1.34.
			}
			e.object.SetNamespace(namespace)
			Expect(c.Create(ctx, e.object.DeepCopy(), strict, client.DryRunAll)).To(Succeed(), e.file)
			Expect(c.Create(ctx, e.object, strict)).To(Succeed(), e.file)
			if e.object.GetKind() != "DIJob" {
				continue
			}
			for _, pod := range podsOf(ctx, e.object) {
				Expect(c.Create(ctx, pod.DeepCopy(), client.DryRunAll)).To(Succeed(), "%s: pod %s", e.file, pod.Name)
				for i := range pod.Spec.Containers {
					var set []string
					for _, variable := range pod.Spec.Containers[i].Env {
						set = append(set, variable.Name)
					}
					for _, variable := range variables(&pod.Spec.Containers[i]) {
						Expect(set).To(ContainElement(variable), "%s: pod %s", e.file, pod.Name)
					}
				}
			}
		}
	})
})
