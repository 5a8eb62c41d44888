// Copyright The DI Orchestrator Authors.
// SPDX-License-Identifier: Apache-2.0

package webhook_test

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	autoscalingv1 "k8s.io/api/autoscaling/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/client-go/rest"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"opendilab.org/di-orchestrator/internal/names"
	"opendilab.org/di-orchestrator/test/testkit"
	"opendilab.org/di-orchestrator/test/testkit/expect"
	"opendilab.org/di-orchestrator/test/testkit/specs"
)

const (
	ratioJob = `spec: {tasks: [{type: learner, name: learner, template: {spec: {containers: [{name: a}]}}},
		{type: collector, name: actor, replicas: 2, template: {spec: {containers: [{name: a}]}}}], elastic: {minReplicas: 1, maxReplicas: 8}`
	withRatio = `, autoscale: {ratio: {}}`

	scaleRefused = `spec.replicas: Forbidden: the ratio rule in spec.autoscale.ratio sets the number of task actor: ` +
		`remove the rule before something else does, or bound the task by its minReplicas and maxReplicas`
)

// scaledTo writes the number to the scale subresource of a job.
func scaledTo(ctx SpecContext, job *unstructured.Unstructured, replicas int32, options ...client.SubResourceUpdateOption) error {
	scale := &autoscalingv1.Scale{Spec: autoscalingv1.ScaleSpec{Replicas: replicas}}
	return c.SubResource("scale").Update(ctx, job, append(options, client.WithSubResourceBody(scale))...)
}

var _ = Describe("The scale subresource", func() {
	It("is refused where a ratio rule sets the number, except for the autoscaler", func(ctx SpecContext) {
		ruled := specs.Job("v2alpha1", specs.Namespace(ctx, c), "j", ratioJob+withRatio+"}")
		Expect(c.Create(ctx, ruled)).To(Succeed())
		Expect(scaledTo(ctx, ruled, 5)).To(MatchError(ContainSubstring(scaleRefused)))
		Expect(scaledTo(ctx, ruled, 2)).To(Succeed(), "the same number")
		byAutoscaler := &client.SubResourceUpdateOptions{UpdateOptions: client.UpdateOptions{FieldManager: names.AutoscalerName}}
		Expect(scaledTo(ctx, ruled, 5, byAutoscaler)).To(MatchError(ContainSubstring(scaleRefused)), "anybody may use its name")
		as := rest.CopyConfig(api.Config)
		as.Impersonate = rest.ImpersonationConfig{UserName: "operator", Groups: []string{"system:masters", "system:serviceaccounts:" + names.SystemNamespace}}
		operator := specs.Must(client.New(as, client.Options{Scheme: c.Scheme()}))
		scale := &autoscalingv1.Scale{Spec: autoscalingv1.ScaleSpec{Replicas: 5}}
		Expect(operator.SubResource("scale").Update(ctx, ruled, client.WithSubResourceBody(scale))).To(MatchError(ContainSubstring(scaleRefused)))
		Expect(operator.SubResource("scale").Update(ctx, ruled, byAutoscaler, client.WithSubResourceBody(scale))).To(Succeed())
	})

	It("passes for any other job", func(ctx SpecContext) {
		free := specs.Job("v2alpha1", specs.Namespace(ctx, c), "j", ratioJob+"}")
		Expect(c.Create(ctx, free)).To(Succeed())
		Expect(scaledTo(ctx, free, 5)).To(Succeed())
	})
})

// plan returns a ScalePlan for job j.
func plan(namespace, spec string) *unstructured.Unstructured {
	GinkgoHelper()
	object := specs.Job("v2alpha1", namespace, "p", "spec: "+spec)
	object.SetKind("ScalePlan")
	return object
}

var _ = Describe("A ScalePlan", func() {
	const refusedBefore = `.diengine.opendilab.org" denied the request: ScalePlan.diengine.opendilab.org "p" is invalid: `

	DescribeTable("is held to its job before it is stored",
		func(ctx SpecContext, fields, spec, message string) {
			namespace := specs.Namespace(ctx, c)
			if fields != "none" {
				Expect(c.Create(ctx, specs.Job("v2alpha1", namespace, "j", ratioJob+fields+"}"))).To(Succeed())
			}
			err := c.Create(ctx, plan(namespace, spec))
			if message == "" {
				Expect(err).NotTo(HaveOccurred())
				return
			}
			Expect(err).To(MatchError(And(HavePrefix(`admission webhook "validate-`), HaveSuffix(refusedBefore+strings.ReplaceAll(message, "NAMESPACE", namespace)))))
		},
		Entry("replicas and resources", "", `{job: j, tasks: [{name: actor, replicas: 4, resources: {memory: 2Gi}}]}`, ""),
		Entry("a migration", "", `{job: j, migrate: [{pod: j-actor-1}]}`, ""),
		Entry("no job", "none", `{job: j, remove: [j-actor-1]}`,
			`spec.job: Invalid value: "j": must be a job of namespace NAMESPACE, which has none of this name`),
		Entry("no name of a job", "none", `{job: J_, remove: [j-actor-1]}`,
			`spec.job: Invalid value: "J_": must be the name of a job: lower-case letters, digits and -`),
		Entry("no task", "", `{job: j, tasks: [{name: x, replicas: 4}]}`, `spec.tasks[0].name: Invalid value: "x": must be a task of job j`),
		Entry("no memory", "", `{job: j, tasks: [{name: actor, resources: {memory: 0}}]}`,
			`spec.tasks[0].resources.memory: Invalid value: "0": must be above 0`),
		Entry("no pod of the job", "", `{job: j, launch: [x-0]}`,
			`spec.launch[0]: Invalid value: "x-0": must be the name of a pod of the job, j-TASK-INDEX`),
		Entry("a pod that is removed and migrated", "", `{job: j, remove: [j-actor-1], migrate: [{pod: j-actor-1}]}`,
			`spec.migrate[0].pod: Invalid value: "j-actor-1": must be a pod of the job that the plan does not remove`),
		Entry("more than elastic allows", "", `{job: j, tasks: [{name: actor, replicas: 9}]}`,
			`spec: Invalid value: 9 replicas of task actor: must be at most 8, the job's spec.elastic.maxReplicas`),
		Entry("a number of the ratio rule", withRatio, `{job: j, tasks: [{name: actor, replicas: 4}]}`,
			`spec: Invalid value: replicas of task actor: they follow spec.autoscale.ratio of the job`),
		Entry("a number of the allocator", ", preemptible: true", `{job: j, tasks: [{name: actor, replicas: 4}]}`,
			`spec: Invalid value: replicas of task actor: the allocator sizes a preemptible job: change spec.elastic of the job instead`),
	)

	It("is immutable, and changes something", func(ctx SpecContext) {
		namespace := specs.Namespace(ctx, c)
		Expect(c.Create(ctx, specs.Job("v2alpha1", namespace, "j", ratioJob+"}"))).To(Succeed())
		Expect(c.Create(ctx, plan(namespace, `{job: j}`))).To(MatchError(WithTransform(withoutValues, ContainSubstring(
			`spec: Invalid value: must change something: tasks, launch, remove or migrate`))))
		stored := plan(namespace, `{job: j, remove: [j-actor-1]}`)
		Expect(c.Create(ctx, stored)).To(Succeed())
		Expect(c.Patch(ctx, stored, mergePatch(`{"spec":{"remove":["j-actor-0"]}}`))).To(MatchError(WithTransform(withoutValues, ContainSubstring(
			`spec: Invalid value: is immutable: create another plan, which supersedes this one`))))
	})
})

func TestTheRulesForPlansAreDocumentedWithTheirMessages(t *testing.T) {
	t.Parallel()
	page, err := os.ReadFile(filepath.Join(testkit.Root(), "docs", "validation.md"))
	expect.NoError(t, err)
	for _, message := range []string{
		scaleRefused,
		`spec: Invalid value: is immutable: create another plan, which supersedes this one`,
		`spec: Invalid value: must change something: tasks, launch, remove or migrate`,
		`spec.job: Invalid value: "j": must be a job of namespace rl, which has none of this name`,
		`spec.tasks[0].name: Invalid value: "x": must be a task of job j`,
		`spec: Invalid value: replicas of task actor: they follow spec.autoscale.ratio of the job`,
	} {
		if !strings.Contains(string(page), "`"+message+"`") {
			t.Errorf("docs/validation.md has no row with the message %s", message)
		}
	}
}
