// Copyright The DI Orchestrator Authors.
// SPDX-License-Identifier: Apache-2.0

package versions

import (
	"context"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/watch"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"opendilab.org/di-orchestrator/test/testkit/specs"
)

func list(version string) *unstructured.UnstructuredList {
	jobs := &unstructured.UnstructuredList{}
	jobs.SetGroupVersionKind(kind(version, "DIJobList"))
	return jobs
}

// next returns the next event of a watch.
func next(ctx context.Context, from watch.Interface) (watch.EventType, *unstructured.Unstructured) {
	GinkgoHelper()
	select {
	case event := <-from.ResultChan():
		seen, ok := event.Object.(*unstructured.Unstructured)
		Expect(ok).To(BeTrue(), "%v", event.Object)
		return event.Type, seen
	case <-ctx.Done():
		Fail("no event: " + ctx.Err().Error())
		return "", nil
	}
}

var _ = Describe("Watches", func() {
	It("of both versions show the same events, each in its own shape", func(ctx SpecContext) {
		namespace := specs.Namespace(ctx, c)
		watches := map[string]watch.Interface{}
		for _, version := range []string{v1, v2} {
			started := specs.Must(c.Watch(ctx, list(version), client.InNamespace(namespace)))
			DeferCleanup(started.Stop)
			watches[version] = started
		}
		expect := func(kind watch.EventType) {
			GinkgoHelper()
			versions := map[string]string{}
			for version, from := range watches {
				got, seen := next(ctx, from)
				Expect(got).To(Equal(kind))
				Expect(seen.GetAPIVersion()).To(Equal(group + "/" + version))
				spec, _, _ := unstructured.NestedMap(seen.Object, "spec")
				if version == v1 {
					Expect(spec).To(HaveKey("coordinator"))
				} else {
					Expect(spec).To(HaveKey("tasks"))
				}
				versions[version] = seen.GetResourceVersion()
			}
			Expect(versions[v1]).To(Equal(versions[v2]))
		}
		for _, version := range []string{v1, v2} {
			create(ctx, version, namespace, "j-"+version, ledIn(version))
			expect(watch.Added)
			written := specs.GetJob(ctx, c, other(version), namespace, "j-"+version)
			Expect(unstructured.SetNestedField(written.Object, "g", "spec", "group")).To(Succeed())
			Expect(c.Update(ctx, written)).To(Succeed())
			expect(watch.Modified)
			written.Object["status"] = map[string]any{"phase": "Running"}
			Expect(c.Status().Update(ctx, written)).To(Succeed())
			expect(watch.Modified)
			Expect(c.Delete(ctx, written)).To(Succeed())
			expect(watch.Deleted)
		}
	}, SpecTimeout(timeout))

	It("resumes at a version at which the other was listed", func(ctx SpecContext) {
		namespace := specs.Namespace(ctx, c)
		listed := list(v1)
		Expect(c.List(ctx, listed, client.InNamespace(namespace))).To(Succeed())
		create(ctx, v1, namespace, "j", ledIn(v1))
		resumed := specs.Must(c.Watch(ctx, list(v2), client.InNamespace(namespace),
			&client.ListOptions{Raw: &metav1.ListOptions{ResourceVersion: listed.GetResourceVersion()}}))
		DeferCleanup(resumed.Stop)
		kind, seen := next(ctx, resumed)
		Expect(kind).To(Equal(watch.Added))
		Expect(seen.GetAPIVersion()).To(Equal(group + "/" + v2))
	}, SpecTimeout(timeout))
})

var _ = Describe("Lists", func() {
	It("of one version go on page by page where a page of the other ended", func(ctx SpecContext) {
		namespace := specs.Namespace(ctx, c)
		for _, name := range []string{"a", "b", "c"} {
			create(ctx, v1, namespace, name, ledIn(v1))
		}
		first, second := list(v1), list(v2)
		Expect(c.List(ctx, first, client.InNamespace(namespace), client.Limit(2))).To(Succeed())
		Expect(first.Items).To(HaveLen(2))
		Expect(c.List(ctx, second, client.InNamespace(namespace), client.Limit(2), client.Continue(first.GetContinue()))).To(Succeed())
		Expect(second.Items).To(HaveLen(1))
		Expect(second.Items[0].GetAPIVersion()).To(Equal(group + "/" + v2))
	})

	It("of both versions select alike", func(ctx SpecContext) {
		namespace := specs.Namespace(ctx, c)
		create(ctx, v1, namespace, "a", ledIn(v1))
		create(ctx, v2, namespace, "b", "metadata: {labels: {team: rl}}\n"+ledIn(v2))
		for _, version := range []string{v1, v2} {
			jobs := list(version)
			Expect(c.List(ctx, jobs, client.InNamespace(namespace), client.MatchingLabels{"team": "rl"})).To(Succeed())
			Expect(jobs.Items).To(HaveLen(1))
			jobs = list(version)
			Expect(c.List(ctx, jobs, client.InNamespace(namespace), client.MatchingFields{"metadata.name": "a"})).To(Succeed())
			Expect(jobs.Items).To(HaveLen(1))
		}
	})
})

var _ = DescribeTable("A patch changes in either version what it names, and nothing else",
	func(ctx SpecContext, version string, kind types.PatchType, body, status, want string) {
		namespace := specs.Namespace(ctx, c)
		before := create(ctx, v2, namespace, "j", ledJob)
		writeStatus(ctx, namespace, "j", ledStatus)
		patched := specs.GetJob(ctx, c, version, namespace, "j")
		if body != "" {
			Expect(c.Patch(ctx, patched, client.RawPatch(kind, []byte(body)))).To(Succeed())
		}
		if status != "" {
			Expect(c.Status().Patch(ctx, patched, client.RawPatch(kind, []byte(status)))).To(Succeed())
		}
		after := specs.GetJob(ctx, c, v2, namespace, "j")
		wanted := specs.Object(want).Object
		for key, value := range wanted {
			of := map[string]any{"spec": before.Object["spec"], "status": part(ledStatus, "status")}
			named, _ := value.(map[string]any)
			for field, content := range named {
				of[key] = changed(of[key], content, field)
			}
			expectSame(of[key], after.Object[key])
		}
		expectOneJob(ctx, v2, namespace, "j")
	},
	Entry("merge through v1alpha1", v1, types.MergePatchType, `{"spec":{"cleanPodPolicy":"ALL","group":null}}`, ``,
		`spec: {cleanPodPolicy: All, group: null}`),
	Entry("merge through v1alpha1 of what only v2alpha1 can say", v1, types.MergePatchType,
		`{"spec":{"extended":{"suspend":false,"ttlSecondsAfterFinished":null}}}`, ``,
		`spec: {suspend: false, ttlSecondsAfterFinished: null}`),
	Entry("merge through v2alpha1", v2, types.MergePatchType, `{"spec":{"cleanPodPolicy":"None","suspend":null}}`, ``,
		`spec: {cleanPodPolicy: None, suspend: null}`),
	Entry("JSON patch through v1alpha1", v1, types.JSONPatchType,
		`[{"op":"test","path":"/spec/group","value":"cartpole"},{"op":"replace","path":"/spec/group","value":"g"}]`, ``,
		`spec: {group: g}`),
	Entry("JSON patch through v2alpha1", v2, types.JSONPatchType,
		`[{"op":"test","path":"/spec/tasks/0/name","value":"coordinator"},{"op":"remove","path":"/spec/suspend"}]`, ``,
		`spec: {suspend: null}`),
	Entry("merge of the status through v1alpha1", v1, types.MergePatchType, ``,
		`{"status":{"phase":"Running","replicaStatus":{"Aggregator":{"active":2}}}}`,
		`status: {phase: Running, taskStatus: {coordinator: {Pending: 1}, aggregator: {Running: 2}}}`),
	Entry("merge of the status through v2alpha1", v2, types.MergePatchType, ``,
		`{"status":{"phase":"Running","restarts":null}}`, `status: {phase: Running, restarts: null}`),
	Entry("JSON patch of the status through v2alpha1", v2, types.JSONPatchType, ``,
		`[{"op":"replace","path":"/status/taskStatus/coordinator","value":{"Running":1}}]`,
		`status: {taskStatus: {coordinator: {Running: 1}, aggregator: {Running: 1}}}`),
)
