// Copyright The DI Orchestrator Authors.
// SPDX-License-Identifier: Apache-2.0

package dijob

import (
	"context"
	"encoding/json"
	"os"
	"path/filepath"
	"strings"
	"time"

	"github.com/fluxcd/cli-utils/pkg/kstatus/status"
	"github.com/google/cel-go/cel"
	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	lua "github.com/yuin/gopher-lua"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/util/jsonmergepatch"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/yaml"

	"opendilab.org/di-orchestrator/apis/v1alpha1"
	"opendilab.org/di-orchestrator/apis/v2alpha1"
	"opendilab.org/di-orchestrator/test/docs"
	"opendilab.org/di-orchestrator/test/testkit"
	"opendilab.org/di-orchestrator/test/testkit/specs"
)

// The healths of Argo CD.
const (
	progressing = "Progressing"
	healthy     = "Healthy"
	degraded    = "Degraded"
	suspended   = "Suspended"
)

// Flux' names of its expressions, by the result that they decide.
const (
	fluxCurrent    = "current"
	fluxFailed     = "failed"
	fluxInProgress = "inProgress"
)

// fluxOf returns the result of Flux that stands for a health of Argo CD.
func fluxOf(health string) string {
	switch health {
	case healthy, suspended:
		return fluxCurrent
	case degraded:
		return fluxFailed
	}
	return fluxInProgress
}

var _ = Describe("A job that a GitOps tool applied", func() {
	expect := func(ctx context.Context, s *space, health, message string) {
		GinkgoHelper()
		for _, version := range []schema.GroupVersion{v1alpha1.GroupVersion, v2alpha1.GroupVersion} {
			job := s.whole(ctx, version.WithKind("DIJob"), "job")
			got, said := argoHealth(job)
			Expect(got).To(Equal(health), "%s: %s", version, said)
			Expect(said).To(HavePrefix(message), version.String())
		}
		job := s.whole(ctx, v2alpha1.GroupVersion.WithKind("DIJob"), "job")
		Expect(fluxResult(job)).To(Equal(fluxOf(health)))
		// The library alone knows only that the status describes the spec.
		Expect(status.Compute(job)).To(HaveField("Status", status.CurrentStatus))
	}

	It("progresses until it runs, and is healthy once it has succeeded", func(ctx SpecContext) {
		s := newWorkers(ctx, 1)
		job := s.whole(ctx, v2alpha1.GroupVersion.WithKind("DIJob"), "job")
		health, message := argoHealth(job)
		Expect([]string{health, message}).To(Equal([]string{progressing, "the operator has not observed the spec yet"}))
		Expect(fluxResult(job)).To(Equal(fluxInProgress))
		Expect(s.settle(ctx)).To(Succeed())
		expect(ctx, s, progressing, "JobStarting: ")
		s.run(ctx)
		Expect(s.settle(ctx)).To(Succeed())
		expect(ctx, s, healthy, "JobRunning: all 3 replicas are ready")

		By("changing the spec, which the operator observes later")
		s.change(ctx, func(spec *v2alpha1.DIJobSpec) { spec.TTLSecondsAfterFinished = ptr.To(int32(600)) })
		for _, version := range []schema.GroupVersion{v1alpha1.GroupVersion, v2alpha1.GroupVersion} {
			Expect(healthOf(s.whole(ctx, version.WithKind("DIJob"), "job"))).To(Equal(progressing), version.String())
		}
		job = s.whole(ctx, v2alpha1.GroupVersion.WithKind("DIJob"), "job")
		Expect(fluxResult(job)).To(Equal(fluxInProgress))
		Expect(status.Compute(job)).To(HaveField("Status", status.InProgressStatus))
		Expect(s.settle(ctx)).To(Succeed())
		expect(ctx, s, healthy, "JobRunning: ")

		By("restarting after a failure")
		s.end(ctx, "job-learner-0", 1)
		Expect(s.settle(ctx)).To(Succeed())
		expect(ctx, s, progressing, "JobStarting: ")
		s.start(ctx)
		s.endAll(ctx)
		expect(ctx, s, healthy, "JobSucceeded: ")
	})

	It("does not differ from its manifest, not even when it was resized", func(ctx SpecContext) {
		s := newSpace(ctx)
		manifest := &unstructured.Unstructured{}
		Expect(yaml.Unmarshal([]byte(exampleWith("kind: DIJob\nmetadata:")), manifest)).To(Succeed())
		manifest.SetName("job")
		manifest.SetNamespace(s.name)
		Expect(shared.api.Create(ctx, manifest.DeepCopy())).To(Succeed())
		s.start(ctx)
		s.resizeCollectors(ctx, 5)
		live := s.whole(ctx, manifest.GroupVersionKind(), "job")
		Expect(argoDiff(manifest, live)).To(Equal("{}"))

		By("comparing it with a manifest that leaves the names of tasks to the webhook")
		tasks, _, err := unstructured.NestedSlice(manifest.Object, "spec", "tasks")
		Expect(err).NotTo(HaveOccurred())
		unnamed, isMap := tasks[0].(map[string]any)
		Expect(isMap).To(BeTrue())
		delete(unnamed, "name")
		Expect(unstructured.SetNestedSlice(manifest.Object, tasks, "spec", "tasks")).To(Succeed())
		Expect(argoDiff(manifest, live)).To(HavePrefix(`{"spec":{"tasks":[`))
	})

	It("is complete as a hook only once it has succeeded", func(ctx SpecContext) {
		s := newLed(ctx, v2alpha1.CleanPodPolicyRunning)
		job := s.job(ctx)
		job.Annotations = map[string]string{"argocd.argoproj.io/hook": "Sync"}
		Expect(shared.api.Update(ctx, job)).To(Succeed())
		Expect(s.settle(ctx)).To(Succeed())
		kind := v2alpha1.GroupVersion.WithKind("DIJob")
		Expect(healthOf(s.whole(ctx, kind, "job"))).To(Equal(progressing))
		s.run(ctx)
		Expect(s.settle(ctx)).To(Succeed())
		health, message := argoHealth(s.whole(ctx, kind, "job"))
		Expect([]string{health, message}).To(Equal([]string{progressing, "DIJobRunning: " + s.messageOf(ctx, "Running")}))
		s.end(ctx, "job-coordinator", 0)
		Expect(s.settle(ctx)).To(Succeed())
		expect(ctx, s, healthy, "DIJobSucceeded: ")
	})

	It("is degraded when it failed", func(ctx SpecContext) {
		s := newWorkers(ctx, 0)
		Expect(s.settle(ctx)).To(Succeed())
		s.run(ctx)
		s.end(ctx, "job-collector-1", 3)
		Expect(s.settle(ctx)).To(Succeed())
		expect(ctx, s, degraded, "JobFailed: ")
	})

	It("is suspended while it is, and progresses when it is resumed", func(ctx SpecContext) {
		s := newWorkers(ctx, 0)
		s.suspend(ctx, true)
		Expect(s.settle(ctx)).To(Succeed())
		expect(ctx, s, suspended, "Suspended: ")
		s.suspend(ctx, false)
		Expect(s.settle(ctx)).To(Succeed())
		expect(ctx, s, progressing, "JobStarting: ")
	})

	DescribeTable("is judged by what keeps it from running",
		func(ctx SpecContext, pod, health, message string) {
			s := newWorkers(ctx, 0)
			Expect(s.settle(ctx)).To(Succeed())
			s.report(ctx, "job-collector-0", pod)
			Expect(s.settle(ctx)).To(Succeed())
			expect(ctx, s, health, message)
		},
		Entry("an image that cannot be pulled", imageBackOffStatus, degraded, "ImagePull: job-collector-0 (collector): "),
		Entry("a container that crashes repeatedly", crashStatus, degraded, "CrashLoop: job-collector-0 (collector): "),
		Entry("a pod that fits no node, which the cluster may get", unschedulableStatus, progressing, "Unschedulable: job-collector-0 (collector): "),
	)

	It("is degraded while a quota refuses its pods", func(ctx SpecContext) {
		s := newSpace(ctx)
		quota := &corev1.ResourceQuota{ObjectMeta: metav1.ObjectMeta{Namespace: s.name, Name: "quota"}}
		Expect(shared.api.Create(ctx, quota)).To(Succeed())
		s.setQuota(ctx, quota, "0")
		s.awaitRefusals(ctx, "exceeded quota")
		s.submitWorkers(ctx, 0)
		Expect(s.settle(ctx)).NotTo(Succeed())
		expect(ctx, s, degraded, "QuotaExceeded: ")
	})

	It("progresses while it waits in a queue or for capacity", func(ctx SpecContext) {
		s := newQueue(ctx)
		Expect(s.settle(ctx)).To(Succeed())
		expect(ctx, s, progressing, "WaitingInQueue: ")

		s = newSpace(ctx)
		s.operator.options.NoAllocator = true
		s.submitWith(ctx, func(spec *v2alpha1.DIJobSpec) { spec.Preemptible = true })
		Expect(s.settle(ctx)).To(Succeed())
		expect(ctx, s, progressing, "NoAllocator: ")
	})
})

var _ = Describe("A ScalePlan that a GitOps tool applied", func() {
	It("is healthy when the job has its size, and degraded when it was not complete in time", func(ctx SpecContext) {
		s := newSpace(ctx)
		s.startManagerWith(ctx, shared.account, s.name)
		s.submitWorkers(ctx, 0)
		Eventually(s.podNames).WithContext(ctx).WithTimeout(patience).Should(HaveLen(3))
		s.run(ctx)
		Eventually(s.phase).WithContext(ctx).WithTimeout(patience).Should(Equal(v2alpha1.JobRunning))
		health := func(ctx context.Context, name string) string {
			return healthOf(s.whole(ctx, v2alpha1.GroupVersion.WithKind("ScalePlan"), name))
		}
		grow := []v2alpha1.TaskScale{{Name: "collector", Replicas: ptr.To(int32(3))}}
		s.submitPlan(ctx, "first", v2alpha1.ScalePlanSpec{Tasks: grow})
		Expect(health(ctx, "first")).To(Equal(progressing))
		s.expectPlan(ctx, "first", v2alpha1.PlanSucceeded)
		Expect(health(ctx, "first")).To(Equal(healthy))

		grow = []v2alpha1.TaskScale{{Name: "collector", Replicas: ptr.To(int32(4))}}
		s.submitPlan(ctx, "second", v2alpha1.ScalePlanSpec{Tasks: grow, DeadlineSeconds: ptr.To(int32(1))})
		Eventually(health).WithContext(ctx).WithArguments("second").WithTimeout(time.Minute).Should(Equal(degraded))
	})
})

// whole returns an object in a version as GitOps tools read it.
func (s *space) whole(ctx context.Context, kind schema.GroupVersionKind, name string) *unstructured.Unstructured {
	GinkgoHelper()
	object := &unstructured.Unstructured{}
	object.SetGroupVersionKind(kind)
	Expect(shared.api.Get(ctx, client.ObjectKey{Namespace: s.name, Name: name}, object)).To(Succeed())
	return object
}

func (s *space) messageOf(ctx context.Context, kind string) string {
	for _, condition := range s.job(ctx).Status.Conditions {
		if condition.Type == kind {
			return condition.Message
		}
	}
	return ""
}

// argoHealth runs the health check of config/argocd with the libraries that Argo CD opens.
func argoHealth(object *unstructured.Unstructured) (health, message string) {
	GinkgoHelper()
	settings := &corev1.ConfigMap{}
	content := specs.Must(os.ReadFile(filepath.Join(testkit.Root(), "config", "argocd", "argocd-cm.yaml")))
	Expect(yaml.UnmarshalStrict(content, settings)).To(Succeed())
	script := settings.Data["resource.customizations.health."+v2alpha1.GroupName+"_"+object.GetKind()]
	Expect(script).NotTo(BeEmpty())

	state := lua.NewState(lua.Options{SkipOpenLibs: true})
	defer state.Close()
	for name, open := range map[string]lua.LGFunction{lua.BaseLibName: lua.OpenBase, lua.TabLibName: lua.OpenTable} {
		Expect(state.CallByParam(lua.P{Fn: state.NewFunction(open), Protect: true}, lua.LString(name))).To(Succeed())
	}
	state.SetGlobal("obj", luaValue(state, object.Object))
	Expect(state.DoString(script)).To(Succeed())
	result, isTable := state.Get(-1).(*lua.LTable)
	Expect(isTable).To(BeTrue())
	return result.RawGetString("status").String(), result.RawGetString("message").String()
}

// healthOf returns the health without its message.
func healthOf(object *unstructured.Unstructured) string {
	GinkgoHelper()
	health, _ := argoHealth(object)
	return health
}

// luaValue converts a value of an object as Argo CD does.
func luaValue(state *lua.LState, value any) lua.LValue {
	switch value := value.(type) {
	case bool:
		return lua.LBool(value)
	case string:
		return lua.LString(value)
	case int64:
		return lua.LNumber(value)
	case float64:
		return lua.LNumber(value)
	case []any:
		table := state.NewTable()
		for _, item := range value {
			table.Append(luaValue(state, item))
		}
		return table
	case map[string]any:
		table := state.NewTable()
		for key, item := range value {
			table.RawSetString(key, luaValue(state, item))
		}
		return table
	}
	return lua.LNil
}

// fluxResult judges a job as Flux does: by its generations, then by the expressions of docs/gitops.md.
func fluxResult(object *unstructured.Unstructured) string {
	GinkgoHelper()
	observed, isSet, err := unstructured.NestedInt64(object.Object, "status", "observedGeneration")
	Expect(err).NotTo(HaveOccurred())
	// The expressions read a status, so Flux waits for one.
	if _, hasStatus := object.Object["status"]; !hasStatus || isSet && observed != object.GetGeneration() {
		return fluxInProgress
	}
	environment := specs.Must(cel.NewEnv(cel.OptionalTypes(), cel.CrossTypeNumericComparisons(true)))
	expressions := fluxExpressions()
	for _, result := range []string{fluxInProgress, fluxFailed, fluxCurrent} {
		expression, isGiven := expressions[result]
		if !isGiven {
			continue
		}
		parsed, issues := environment.Parse(expression)
		Expect(issues.Err()).NotTo(HaveOccurred())
		program := specs.Must(environment.Program(parsed))
		value, _, err := program.Eval(object.Object)
		Expect(err).NotTo(HaveOccurred(), expression)
		if value.Value() == true {
			return result
		}
	}
	return fluxInProgress
}

// fluxExpressions returns the expressions for DIJobs of the Kustomization in docs/gitops.md.
func fluxExpressions() map[string]string {
	GinkgoHelper()
	var settings struct {
		Spec struct {
			HealthCheckExprs []map[string]string `json:"healthCheckExprs"`
		} `json:"spec"`
	}
	Expect(yaml.Unmarshal([]byte(exampleWith("healthCheckExprs:")), &settings)).To(Succeed())
	Expect(settings.Spec.HealthCheckExprs).To(HaveLen(1))
	return settings.Spec.HealthCheckExprs[0]
}

// exampleWith returns the block of docs/gitops.md that has a text.
func exampleWith(text string) string {
	GinkgoHelper()
	blocks := specs.Must(docs.Blocks(testkit.Root(), "docs/gitops.md"))
	for _, block := range blocks {
		if strings.Contains(block.Text, text) {
			return block.Text
		}
	}
	Fail("docs/gitops.md has no block with " + text)
	return ""
}

// argoDiff returns the patch that Argo CD finds between a manifest and its object, without the ignored counts.
func argoDiff(manifest, live *unstructured.Unstructured) string {
	GinkgoHelper()
	var sides [][]byte
	for _, object := range []*unstructured.Unstructured{manifest, live} {
		object = object.DeepCopy()
		unstructured.RemoveNestedField(object.Object, "spec", "elastic", "replicas")
		tasks, _, err := unstructured.NestedSlice(object.Object, "spec", "tasks")
		Expect(err).NotTo(HaveOccurred())
		for _, task := range tasks {
			fields, isMap := task.(map[string]any)
			Expect(isMap).To(BeTrue())
			delete(fields, "replicas")
		}
		Expect(unstructured.SetNestedSlice(object.Object, tasks, "spec", "tasks")).To(Succeed())
		raw := specs.Must(json.Marshal(object.Object))
		sides = append(sides, raw)
	}
	patch := specs.Must(jsonmergepatch.CreateThreeWayJSONMergePatch(sides[0], sides[0], sides[1]))
	return string(patch)
}
