// Copyright The DI Orchestrator Authors.
// SPDX-License-Identifier: Apache-2.0

package versions

import (
	"os"
	"path/filepath"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"opendilab.org/di-orchestrator/test/testkit/specs"
)

var _ = DescribeTable("kubectl reads and edits a job that was written through the other version",
	func(ctx SpecContext, version string, columns, described string, schema []string, edit string) {
		namespace := specs.Namespace(ctx, c)
		create(ctx, other(version), namespace, "j", ledIn(other(version)))
		resource := "dijobs." + version + "." + group
		run := func(args ...string) string {
			GinkgoHelper()
			out, err := specs.Kubectl(ctx, api.KubeConfig, append([]string{"--namespace", namespace}, args...)...)
			Expect(err).NotTo(HaveOccurred(), out)
			return out
		}
		Expect(run("get", resource)).To(MatchRegexp(columns))
		Expect(run("describe", resource, "j")).To(And(
			ContainSubstring("API Version:  "+group+"/"+version), ContainSubstring(described)))
		explained := run("explain", "dijob.spec", "--api-version="+group+"/"+version)
		for _, field := range schema {
			Expect(explained).To(ContainSubstring(field))
		}
		editor := filepath.Join(GinkgoT().TempDir(), "editor")
		Expect(os.WriteFile(editor, []byte("#!/bin/sh\nsed -i '"+edit+"' \"$1\"\n"), 0o700)).To(Succeed())
		GinkgoT().Setenv("KUBE_EDITOR", editor)
		Expect(run("edit", resource, "j")).To(ContainSubstring("edited"))
		Expect(specs.GetJob(ctx, c, v2, namespace, "j").Object["spec"]).To(HaveKeyWithValue("cleanPodPolicy", "None"))
		expectOneJob(ctx, version, namespace, "j")
	},
	Entry("v1alpha1", v1, `NAME +PHASE +READY +REASON +RESTARTS +DURATION +AGE`, "Coordinator:", []string{"coordinator\t", "extended\t"}, "s/cleanPodPolicy: Running/cleanPodPolicy: None/"),
	Entry("v2alpha1", v2, `NAME +PHASE +READY +REASON +RESTARTS +DURATION +AGE`, "Tasks:", []string{"tasks\t", "lifecycle\t"},
		"s/cleanPodPolicy: Running/cleanPodPolicy: None/"),
)

var _ = DescribeTable("A deletion waits for finalizers, whichever version it and they are written through",
	func(ctx SpecContext, version string) {
		namespace := specs.Namespace(ctx, c)
		create(ctx, version, namespace, "j", "metadata: {finalizers: [example.com/keep]}\n"+ledIn(version))
		seen := specs.GetJob(ctx, c, other(version), namespace, "j")
		Expect(c.Delete(ctx, seen, client.PropagationPolicy(metav1.DeletePropagationForeground))).To(Succeed())
		seen = specs.GetJob(ctx, c, version, namespace, "j")
		Expect(seen.GetDeletionTimestamp()).NotTo(BeNil())
		Expect(seen.GetFinalizers()).To(ConsistOf("example.com/keep", metav1.FinalizerDeleteDependents))

		By("removing one by an update and one by a patch, as the garbage collector does")
		seen.SetFinalizers([]string{metav1.FinalizerDeleteDependents})
		Expect(c.Update(ctx, seen)).To(Succeed())
		last := specs.GetJob(ctx, c, other(version), namespace, "j")
		Expect(last.GetFinalizers()).To(ConsistOf(metav1.FinalizerDeleteDependents))
		Expect(c.Patch(ctx, last, client.RawPatch("application/merge-patch+json", []byte(`{"metadata":{"finalizers":null}}`)))).To(Succeed())
		err := c.Get(ctx, client.ObjectKeyFromObject(last), last)
		Expect(err).To(HaveOccurred())
		Expect(client.IgnoreNotFound(err)).To(Succeed())
	},
	Entry("v1alpha1", v1),
	Entry("v2alpha1", v2),
)
