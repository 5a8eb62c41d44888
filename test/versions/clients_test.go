// Copyright The DI Orchestrator Authors.
// SPDX-License-Identifier: Apache-2.0

package versions

import (
	"context"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"opendilab.org/di-orchestrator/test/testkit/specs"
)

// ledJob has fields in v2alpha1 that v1alpha1 cannot express.
const ledJob = `
metadata: {labels: {team: rl}}
spec:
  lifecycle: CoordinatorLed
  group: cartpole
  cleanPodPolicy: Running
  backoffLimit: 0
  suspend: true
  ttlSecondsAfterFinished: 60
  scheduling: {queue: fast}
  volumes: [{name: cache, emptyDir: {}}]
  tasks:
  - {type: coordinator, name: coordinator, replicas: 1, template: {metadata: {labels: {a: b}}, spec: {containers: [{name: di-container, image: a}]}}}
  - {type: collector, name: collector, replicas: 0, template: {spec: {containers: [{name: di-container, image: b}]}}}
  - {type: learner, name: learner, replicas: 0, template: {spec: {containers: [{name: di-container, image: c}]}}}
`

// ledStatus is a status of ledJob.
const ledStatus = `
status:
  phase: Starting
  restarts: 2
  observedGeneration: 1
  profilings: {rate: 1.5}
  taskStatus: {coordinator: {Pending: 1}, aggregator: {Running: 1}}
  conditions: [{type: Created, status: "True", reason: DIJobCreated, lastUpdateTime: "2026-01-01T00:00:00Z", lastTransitionTime: "2026-01-01T00:00:00Z"}]
`

// workerJob has fields that v1.1.3 does not know.
const workerJob = `
spec:
  lifecycle: WorkerLed
  priority: high
  cleanPodPolicy: Running
  backoffLimit: 3
  activeDeadlineSeconds: 3600
  elastic: {task: collector, minReplicas: 1, maxReplicas: 4, replicas: 2}
  tasks:
  - {type: learner, name: learner, replicas: 1, template: {spec: {containers: [{name: di-container, image: a}]}}}
  - {type: collector, name: collector, replicas: 2, template: {spec: {containers: [{name: di-container, image: b}]}}}
`

// oldClient returns a client that decodes the job into one type only.
func oldClient(version string, as runtime.Object) client.Client {
	GinkgoHelper()
	scheme := runtime.NewScheme()
	scheme.AddKnownTypeWithName(kind(version, "DIJob"), as)
	metav1.AddToGroupVersion(scheme, kind(version, "DIJob").GroupVersion())
	return specs.Must(client.New(api.Config, client.Options{Scheme: scheme}))
}

// writeStatus writes a status through v2alpha1.
func writeStatus(ctx context.Context, namespace, name, manifest string) {
	GinkgoHelper()
	stored := specs.GetJob(ctx, c, v2, namespace, name)
	stored.Object["status"] = part(manifest, "status")
	Expect(c.Status().Update(ctx, stored)).To(Succeed())
}

// serialSpec returns the spec of a job of a coordinator only, in v1alpha1.
func serialSpec(image string) any {
	GinkgoHelper()
	return specs.Object(`{cleanPodPolicy: Running, coordinator: {template: {spec: {containers: [{name: di-container, image: ` + image + `}]}}}}`).Object
}

// changed returns a copy of a part of a job in which one field has another value, or is removed
// when the value is nil.
func changed(part any, value any, fields ...string) map[string]any {
	GinkgoHelper()
	original, ok := part.(map[string]any)
	Expect(ok).To(BeTrue())
	copied := runtime.DeepCopyJSON(original)
	if value == nil {
		unstructured.RemoveNestedField(copied, fields...)
	} else {
		Expect(unstructured.SetNestedField(copied, value, fields...)).To(Succeed())
	}
	return copied
}

var _ = Describe("A typed client of v0.2.2", func() {
	var (
		old       client.Client
		namespace string
	)
	BeforeEach(func(ctx SpecContext) {
		old = oldClient(v1, &oldV1Job{})
		namespace = specs.Namespace(ctx, c)
	})
	read := func(ctx context.Context, name string) *oldV1Job {
		GinkgoHelper()
		seen := &oldV1Job{}
		Expect(old.Get(ctx, client.ObjectKey{Namespace: namespace, Name: name}, seen)).To(Succeed())
		return seen
	}

	It("labels a job of which v2alpha1 says more, and nothing is lost", func(ctx SpecContext) {
		before := create(ctx, v2, namespace, "j", ledJob)
		seen := read(ctx, "j")
		seen.Labels["seen"] = "yes"
		Expect(old.Update(ctx, seen)).To(Succeed())
		after := specs.GetJob(ctx, c, v2, namespace, "j")
		Expect(after.GetLabels()).To(Equal(map[string]string{"team": "rl", "seen": "yes"}))
		expectSame(withoutEmpty(before.Object["spec"]), withoutEmpty(after.Object["spec"]))
	})

	It("changes the spec, and what it does not know stays", func(ctx SpecContext) {
		before := create(ctx, v2, namespace, "j", ledJob)
		seen := read(ctx, "j")
		seen.Spec.CleanPodPolicy = "ALL"
		Expect(old.Update(ctx, seen)).To(Succeed())
		expectSame(withoutEmpty(changed(before.Object["spec"], "All", "cleanPodPolicy")), withoutEmpty(specs.GetJob(ctx, c, v2, namespace, "j").Object["spec"]))
	})

	It("drops fields of pod templates that it does not know, as a typed client does with any kind", func(ctx SpecContext) {
		create(ctx, v2, namespace, "j", `
spec:
  lifecycle: CoordinatorLed
  tasks:
  - {type: coordinator, template: {spec: {newerThanClient: 1, containers: [{name: di-container, newerThanClient: 1}]}}}
  - {type: collector, template: {spec: {containers: [{name: di-container}]}}}
  - {type: learner, template: {spec: {containers: [{name: di-container}]}}}
`)
		Expect(old.Update(ctx, read(ctx, "j"))).To(Succeed())
		tasks, _, _ := unstructured.NestedSlice(specs.GetJob(ctx, c, v2, namespace, "j").Object, "spec", "tasks")
		expectSame(withoutEmpty(specs.Object(`{type: coordinator, name: coordinator, replicas: 1, template: {spec: {containers: [{name: di-container}]}}}`).Object), withoutEmpty(tasks[0]))
	})

	It("creates a job of all roles", func(ctx SpecContext) {
		written := &oldV1Job{}
		written.Namespace, written.Name = namespace, "j"
		create(ctx, v2, namespace, "model", ledJob)
		written.Spec = read(ctx, "model").Spec
		Expect(old.Create(ctx, written)).To(Succeed())
		spec := specs.GetJob(ctx, c, v2, namespace, "j").Object["spec"]
		Expect(spec).To(And(HaveKeyWithValue("lifecycle", "CoordinatorLed"), HaveKeyWithValue("backoffLimit", int64(0)), Not(HaveKey("suspend"))))
	})

	It("creates a serial job, of which it writes all roles as well", func(ctx SpecContext) {
		written := &oldV1Job{}
		written.Namespace, written.Name = namespace, "j"
		written.Spec.Coordinator.Template.Spec.Containers = []corev1.Container{{Name: "di-container", Image: "a"}}
		Expect(old.Create(ctx, written)).To(Succeed())
		expectSame(serialSpec("a"), withoutEmpty(specs.GetJob(ctx, c, v1, namespace, "j").Object["spec"]))
	})

	It("labels and changes a serial job, which stays one", func(ctx SpecContext) {
		create(ctx, v1, namespace, "j", "spec: {coordinator: {template: {spec: {containers: [{name: di-container, image: a}]}}}}")
		seen := read(ctx, "j")
		seen.Labels = map[string]string{"seen": "yes"}
		Expect(old.Update(ctx, seen)).To(Succeed())
		labelled := specs.GetJob(ctx, c, v1, namespace, "j")
		Expect(labelled.GetLabels()).To(HaveKeyWithValue("seen", "yes"))
		expectSame(serialSpec("a"), withoutEmpty(labelled.Object["spec"]))

		seen = read(ctx, "j")
		seen.Spec.Coordinator.Template.Spec.Containers[0].Image = "b"
		Expect(old.Update(ctx, seen)).To(Succeed())
		expectSame(serialSpec("b"), withoutEmpty(specs.GetJob(ctx, c, v1, namespace, "j").Object["spec"]))
	})

	It("keeps the collector of a job that has one and no learner, and takes it away", func(ctx SpecContext) {
		before := create(ctx, v2, namespace, "j", `
spec:
  lifecycle: CoordinatorLed
  suspend: true
  tasks:
  - {type: coordinator, template: {spec: {containers: [{name: di-container, image: a}]}}}
  - {type: collector, name: other, template: {spec: {containers: [{name: di-container, image: b}]}}}
`)
		seen := read(ctx, "j")
		seen.Labels = map[string]string{"seen": "yes"}
		Expect(old.Update(ctx, seen)).To(Succeed())
		expectSame(withoutEmpty(before.Object["spec"]), withoutEmpty(specs.GetJob(ctx, c, v2, namespace, "j").Object["spec"]))

		seen = read(ctx, "j")
		seen.Spec.Collector = oldV1Role{}
		Expect(old.Update(ctx, seen)).To(Succeed())
		after := specs.GetJob(ctx, c, v2, namespace, "j").Object["spec"]
		Expect(after).To(And(HaveKeyWithValue("suspend", true), HaveKeyWithValue("tasks", HaveLen(1))))
	})

	It("writes the status, and what it does not know stays", func(ctx SpecContext) {
		create(ctx, v2, namespace, "j", ledJob)
		writeStatus(ctx, namespace, "j", ledStatus)
		seen := read(ctx, "j")
		seen.Status.Phase = "Running"
		Expect(old.Status().Update(ctx, seen)).To(Succeed())
		expectSame(changed(part(ledStatus, "status"), "Running", "phase"), specs.GetJob(ctx, c, v2, namespace, "j").Object["status"])

		By("counting what v2alpha1 counts more finely")
		seen = read(ctx, "j")
		Expect(seen.Status.ReplicaStatus).To(HaveKeyWithValue("Coordinator", &oldV1Replicas{Active: 1}))
		seen.Status.ReplicaStatus["Coordinator"] = &oldV1Replicas{Succeeded: 1}
		Expect(old.Status().Update(ctx, seen)).To(Succeed())
		Expect(specs.GetJob(ctx, c, v2, namespace, "j").Object["status"]).To(HaveKeyWithValue("taskStatus", specs.Object(
			`{aggregator: {Running: 1}, coordinator: {Succeeded: 1}}`).Object))
	})

	It("labels a worker-led job and cannot change its spec", func(ctx SpecContext) {
		before := create(ctx, v2, namespace, "j", workerJob)
		seen := read(ctx, "j")
		seen.Labels, seen.Finalizers = map[string]string{"seen": "yes"}, []string{"example.com/keep"}
		Expect(old.Update(ctx, seen)).To(Succeed())
		after := specs.GetJob(ctx, c, v2, namespace, "j")
		Expect(after.GetLabels()).To(HaveKeyWithValue("seen", "yes"))
		Expect(after.GetFinalizers()).To(ConsistOf("example.com/keep"))
		expectSame(before.Object["spec"], after.Object["spec"])

		seen = read(ctx, "j")
		seen.Spec.Group = "other"
		Expect(old.Update(ctx, seen)).To(MatchError(ContainSubstring("use v2alpha1, as in kubectl edit dijobs.v2alpha1.diengine.opendilab.org j")))
		seen = read(ctx, "j")
		seen.Finalizers = nil
		Expect(old.Update(ctx, seen)).To(Succeed())
	})
})

var _ = Describe("A typed client of v1.1.3", func() {
	var (
		old       client.Client
		namespace string
	)
	BeforeEach(func(ctx SpecContext) {
		old = oldClient(v2, &oldV2Job{})
		namespace = specs.Namespace(ctx, c)
	})
	read := func(ctx context.Context) *oldV2Job {
		GinkgoHelper()
		seen := &oldV2Job{}
		Expect(old.Get(ctx, client.ObjectKey{Namespace: namespace, Name: "j"}, seen)).To(Succeed())
		return seen
	}

	It("keeps who leads the job, and loses the fields that are newer than it", func(ctx SpecContext) {
		create(ctx, v2, namespace, "j", ledJob)
		seen := read(ctx)
		seen.Labels["seen"] = "yes"
		Expect(old.Update(ctx, seen)).To(Succeed())
		after := specs.GetJob(ctx, c, v2, namespace, "j")
		Expect(after.GetLabels()).To(Equal(map[string]string{"team": "rl", "seen": "yes"}))
		want := part(ledJob, "spec")
		for _, newer := range []string{"group", "suspend", "ttlSecondsAfterFinished", "scheduling"} {
			want = changed(want, nil, newer)
		}
		expectSame(withoutEmpty(want), withoutEmpty(after.Object["spec"]))
	})

	It("changes the replicas of a worker-led job", func(ctx SpecContext) {
		create(ctx, v2, namespace, "j", workerJob)
		seen := read(ctx)
		seen.Spec.Tasks[1].Replicas = 3
		Expect(old.Update(ctx, seen)).To(Succeed())
		spec := specs.GetJob(ctx, c, v2, namespace, "j").Object["spec"]
		Expect(spec).To(And(
			HaveKeyWithValue("lifecycle", "WorkerLed"),
			HaveKeyWithValue("elastic", specs.Object(`{task: collector, replicas: 3}`).Object),
			Not(HaveKey("activeDeadlineSeconds")),
		))
	})

	It("cannot say zero replicas, and so writes one", func(ctx SpecContext) {
		create(ctx, v2, namespace, "j", `
spec:
  tasks:
  - {type: learner, template: {spec: {containers: [{name: di-container}]}}}
  - {type: collector, replicas: 0, template: {spec: {containers: [{name: di-container}]}}}
`)
		Expect(old.Update(ctx, read(ctx))).To(Succeed())
		Expect(read(ctx).Spec.Tasks[1].Replicas).To(BeEquivalentTo(1))
	})

	It("writes the status less profilings and the fields that are newer than it", func(ctx SpecContext) {
		create(ctx, v2, namespace, "j", ledJob)
		writeStatus(ctx, namespace, "j", ledStatus)
		seen := read(ctx)
		seen.Status.Replicas = 4
		Expect(old.Status().Update(ctx, seen)).To(Succeed())
		want := changed(changed(part(ledStatus, "status"), nil, "observedGeneration"), int64(4), "replicas")
		expectSame(changed(want, map[string]any{}, "profilings"), specs.GetJob(ctx, c, v2, namespace, "j").Object["status"])
	})
})
