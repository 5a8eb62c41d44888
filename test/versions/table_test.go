// Copyright The DI Orchestrator Authors.
// SPDX-License-Identifier: Apache-2.0

package versions

import (
	"context"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"opendilab.org/di-orchestrator/test/testkit/specs"
)

// one is a container list; admission requires one in every template.
const one = `template: {spec: {containers: [{name: di-container}]}}`

// expectOneJob verifies that a stored job is the same job in both versions. Writing it back
// unchanged through either, spec and status, changes nothing in storage.
func expectOneJob(ctx context.Context, version, namespace, name string) {
	GinkgoHelper()
	before := specs.GetJob(ctx, c, version, namespace, name)
	for _, through := range []string{other(version), version} {
		seen := specs.GetJob(ctx, c, through, namespace, name)
		Expect(c.Update(ctx, seen)).To(Succeed())
		Expect(c.Status().Update(ctx, seen)).To(Succeed())
		Expect(seen.GetResourceVersion()).To(Equal(before.GetResourceVersion()), "unchanged through "+through)
	}
	after := specs.GetJob(ctx, c, version, namespace, name)
	expectSame(before.Object["spec"], after.Object["spec"])
	expectSame(before.Object["status"], after.Object["status"])
	expectSame(before.GetAnnotations(), after.GetAnnotations())
}

var _ = DescribeTable("A job is the same job in both versions, created through",
	func(ctx SpecContext, version, manifest, stored string) {
		namespace := specs.Namespace(ctx, c)
		if stored == "" {
			stored = manifest
		}
		created := create(ctx, version, namespace, "j", manifest)
		expectSame(part(stored, "spec"), created.Object["spec"])
		expectOneJob(ctx, version, namespace, "j")
	},
	Entry("v1alpha1, with the old spelling of cleanPodPolicy", v1,
		`spec: {cleanPodPolicy: ALL, coordinator: {`+one+`}}`,
		`spec: {cleanPodPolicy: All, coordinator: {`+one+`}}`),
	Entry("v1alpha1, with what is empty", v1,
		`spec: {group: "", priorityClassName: "", cleanPodPolicy: "", volumes: [], coordinator: {`+one+`}, extended: {}}`,
		`spec: {group: "", priorityClassName: "", cleanPodPolicy: Running, volumes: [], coordinator: {`+one+`}}`),
	Entry("v1alpha1, with nulls", v1,
		`spec: {group: null, volumes: null, coordinator: {`+one+`}, learner: null, extended: null}`,
		`spec: {cleanPodPolicy: Running, coordinator: {`+one+`}}`),
	Entry("v1alpha1, with fields that v1alpha1 does not know", v1,
		`spec: {suspend: true, tasks: [], coordinator: {replicas: 2, `+one+`}}`,
		`spec: {cleanPodPolicy: Running, coordinator: {`+one+`}}`),
	Entry("v1alpha1, with a null in extended", v1,
		`spec: {cleanPodPolicy: Running, coordinator: {`+one+`}, extended: {suspend: null, ttlSecondsAfterFinished: 1}}`,
		`spec: {cleanPodPolicy: Running, coordinator: {`+one+`}, extended: {ttlSecondsAfterFinished: 1}}`),
	Entry("v1alpha1, worker-led by extended", v1, `
spec:
  cleanPodPolicy: Running
  coordinator: {}
  collector: {`+one+`}
  extended: {lifecycle: WorkerLed, tasks: [{type: collector, name: collector, replicas: 2, `+one+`}]}
`, ""),
	Entry("v2alpha1, the least", v2,
		`spec: {tasks: [{type: learner, `+one+`}]}`, `
spec:
  priority: normal
  cleanPodPolicy: Running
  backoffLimit: 3
  elastic: {task: learner, replicas: 1}
  tasks: [{type: learner, name: learner, replicas: 1, `+one+`}]
`),
	Entry("v2alpha1, all that can be said of a worker-led job", v2, `
spec:
  lifecycle: WorkerLed
  group: g
  priority: high
  priorityClassName: p
  cleanPodPolicy: All
  preemptible: true
  backoffLimit: -1
  volumes: [{name: cache, emptyDir: {}}]
  tasks:
  - {type: learner, name: learner, replicas: 2, `+one+`}
  - {type: collector, name: actors, replicas: 0, `+one+`}
  - {type: evaluator, name: evaluator, replicas: 1, `+one+`}
  - {type: none, name: launcher, replicas: 1, `+one+`}
  elastic: {task: actors, minReplicas: 0, maxReplicas: 9, replicas: 0, onResize: Restart}
  suspend: false
  activeDeadlineSeconds: 2147483647
  ttlSecondsAfterFinished: 0
  failurePolicy: {rules: [{action: FailJob, tasks: [launcher], onExitCodes: {operator: NotIn, values: [1, 255]}}]}
  successPolicy: {operator: All, targetTasks: [learner]}
  managedBy: example.com/controller
  scheduling: {schedulerName: volcano, queue: q, gang: {minAvailable: 3}}
  clusterSpec: [TensorFlow, Torch, MPI]
  mpi: {implementation: MPICH, slotsPerWorker: 4096, sshAuthMountPath: /home/mpiuser/.ssh, runLauncherAsWorker: true}
  disruption: {minAvailable: 2}
`, ""),
	Entry("v2alpha1, with empty values and nulls", v2, `
spec:
  group: ""
  priority: normal
  cleanPodPolicy: Running
  priorityClassName: null
  backoffLimit: 3
  volumes: []
  failurePolicy: {rules: []}
  scheduling: {}
  clusterSpec: []
  suspend: null
  tasks: [{type: learner, name: learner, replicas: 1, `+one+`}]
  elastic: {task: learner, replicas: 1, minReplicas: null}
`, `
spec:
  group: ""
  priority: normal
  cleanPodPolicy: Running
  backoffLimit: 3
  volumes: []
  failurePolicy: {rules: []}
  scheduling: {}
  clusterSpec: []
  tasks: [{type: learner, name: learner, replicas: 1, `+one+`}]
  elastic: {task: learner, replicas: 1}
`),
	Entry("v2alpha1, with fields that v2alpha1 does not know", v2, `
spec:
  coordinator: {}
  extended: {a: b}
  priority: normal
  cleanPodPolicy: Running
  backoffLimit: 3
  tasks: [{type: learner, name: learner, replicas: 1, gpus: 1, template: {newerThanUs: {a: [null]}, spec: {containers: [{name: a}]}}}]
  elastic: {task: learner, replicas: 1, step: 2}
`, `
spec:
  priority: normal
  cleanPodPolicy: Running
  backoffLimit: 3
  tasks: [{type: learner, name: learner, replicas: 1, template: {newerThanUs: {a: [null]}, spec: {containers: [{name: a}]}}}]
  elastic: {task: learner, replicas: 1}
`),
)

const (
	led      = `spec: {lifecycle: CoordinatorLed, tasks: [{type: coordinator, ` + one + `}, {type: learner, ` + one + `}]}`
	workers  = `spec: {tasks: [{type: learner, name: main, ` + one + `}, {type: evaluator, ` + one + `}]}`
	dated    = `lastUpdateTime: "2026-01-02T03:04:05Z", lastTransitionTime: "2026-01-02T03:04:05Z"`
	v1Status = `
status:
  phase: Failed
  replicaStatus: {Coordinator: {failed: 1}, Collector: {active: 2, succeeded: 1}, Aggregator: {}}
  conditions: [{type: Created, status: "True", reason: DIJobCreated, message: "", ` + dated + `}, {type: Odd, status: Unknown}]
`
)

var _ = DescribeTable("A status is the same status in both versions, written through",
	func(ctx SpecContext, version, of, manifest, stored string) {
		namespace := specs.Namespace(ctx, c)
		create(ctx, v2, namespace, "j", of)
		if stored == "" {
			stored = manifest
		}
		written := specs.GetJob(ctx, c, version, namespace, "j")
		written.Object["status"] = part(manifest, "status")
		written.SetLabels(map[string]string{"not": "stored"})
		Expect(unstructured.SetNestedField(written.Object, "not stored", "spec", "group")).To(Succeed())
		Expect(c.Status().Update(ctx, written)).To(Succeed())
		seen := specs.GetJob(ctx, c, version, namespace, "j")
		expectSame(part(stored, "status"), seen.Object["status"])
		Expect(seen.GetLabels()).To(BeEmpty())
		Expect(seen.Object["spec"]).NotTo(HaveKey("group"))
		expectOneJob(ctx, version, namespace, "j")
	},
	Entry("v1alpha1", v1, led, v1Status, ""),
	Entry("v1alpha1 of a worker-led job", v1, workers, v1Status, ""),
	Entry("v1alpha1, Created", v1, led, `status: {phase: Created}`, ""),
	Entry("v1alpha1, with what is empty, null or unknown", v1, led,
		`status: {phase: "", conditions: [], replicaStatus: {}, extended: null, restarts: 3}`,
		`status: {phase: "", conditions: [], replicaStatus: {}}`),
	Entry("v1alpha1, with what only v2alpha1 can say", v1, led,
		`status: {phase: Created, extended: {phase: Starting, restarts: 1, allocation: [a], profilings: {x: [null, 1.5]}}}`, ""),
	Entry("v2alpha1, all that can be said", v2, workers, `
status:
  phase: Rescheduling
  replicas: 2
  readyReplicas: 1
  restarts: 1
  reschedules: 3
  taskStatus: {main: {Running: 1, Pending: 1}, evaluator: {Succeeded: 1}, learner: {Unknown: 1}, Learner: {Failed: 2}}
  allocation: [node-a, ""]
  profilings: {rate: 1.5, "日本": null, big: 9007199254740993, none: {}}
  conditions: [{type: Running, status: "False", `+dated+`}]
  completionTimestamp: "2026-01-02T03:04:05Z"
  observedGeneration: 9007199254740993
  completedRanks: 0-3,7
  lastFailure: {pod: p, exitCode: 0, reason: OOMKilled, message: m, time: "2026-01-02T03:04:05Z"}
  scaling: {specReplicas: {main: 1}, lastReplicas: 2}
  elasticReplicas: 1
  selector: a=b
`, ""),
	Entry("v2alpha1 of a coordinator-led job", v2, led,
		`status: {phase: Starting, taskStatus: {coordinator: {Pending: 1}, aggregator: {Running: 1}, learner: {}}}`, ""),
	Entry("v2alpha1, with what is empty, null or unknown", v2, workers,
		`status: {phase: Pending, replicas: 0, taskStatus: {}, allocation: [], profilings: {}, scaling: {}, lastFailure: null, replicaStatus: {}}`,
		`status: {phase: Pending, replicas: 0, taskStatus: {}, allocation: [], profilings: {}, scaling: {}}`),
)

var _ = Describe("A job", func() {
	It("has one generation and one UID in both versions, and moves on by one through either", func(ctx SpecContext) {
		namespace := specs.Namespace(ctx, c)
		create(ctx, v1, namespace, "j", `spec: {coordinator: {`+one+`}}`)
		for i, version := range []string{v1, v2, v1} {
			seen := specs.GetJob(ctx, c, version, namespace, "j")
			Expect(seen.GetGeneration()).To(BeEquivalentTo(i + 1))
			Expect(unstructured.SetNestedField(seen.Object, []string{"a", "b", "c"}[i], "spec", "group")).To(Succeed())
			Expect(c.Update(ctx, seen)).To(Succeed())
		}
		Expect(specs.GetJob(ctx, c, v1, namespace, "j").GetUID()).To(Equal(specs.GetJob(ctx, c, v2, namespace, "j").GetUID()))
	})

	It("refuses a write through one version that was read before a write through the other", func(ctx SpecContext) {
		namespace := specs.Namespace(ctx, c)
		stale := create(ctx, v1, namespace, "j", `spec: {coordinator: {`+one+`}}`)
		seen := specs.GetJob(ctx, c, v2, namespace, "j")
		seen.SetLabels(map[string]string{"a": "b"})
		Expect(c.Update(ctx, seen)).To(Succeed())
		Expect(c.Update(ctx, stale)).To(MatchError(ContainSubstring("the object has been modified")))
	})

	It("is deleted through either version", func(ctx SpecContext) {
		namespace := specs.Namespace(ctx, c)
		for _, version := range []string{v1, v2} {
			created := create(ctx, other(version), namespace, "j", ledIn(other(version)))
			created.SetGroupVersionKind(kind(version, "DIJob"))
			Expect(c.Delete(ctx, created)).To(Succeed())
			err := c.Get(ctx, client.ObjectKeyFromObject(created), created)
			Expect(client.IgnoreNotFound(err)).To(Succeed())
			Expect(err).To(HaveOccurred())
		}
	})
})

// ledIn returns a coordinator-led job in a version.
func ledIn(version string) string {
	if version == v1 {
		return `spec: {coordinator: {` + one + `}}`
	}
	return led
}
