// Copyright The DI Orchestrator Authors.
// SPDX-License-Identifier: Apache-2.0

package versions

import (
	"context"
	"fmt"
	"maps"
	"math/rand"
	"slices"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"

	"opendilab.org/di-orchestrator/test/testkit/specs"
)

// randomJobs is the number of jobs for each version. The pure tests of the conversion try many
// more. These tests prove the same for what the API server does to a job on its way to storage and
// back.
const randomJobs = 50

// random generates jobs that admission accepts.
type random struct {
	*rand.Rand
}

// maybe adds a member half of the time.
func (r random) maybe(to map[string]any, key string, value func() any) {
	if r.Intn(2) == 0 {
		to[key] = value()
	}
}

// some adds each member half of the time, with one of its values.
func (r random) some(to map[string]any, members map[string][]any) map[string]any {
	for _, key := range slices.Sorted(maps.Keys(members)) {
		r.maybe(to, key, r.of(members[key]...))
	}
	return to
}

func (r random) of(values ...any) func() any {
	return func() any { return values[r.Intn(len(values))] }
}

// value returns any JSON value.
func (r random) value(depth int) any {
	switch kinds := 8; r.Intn(kinds - 2*min(depth, 1)) {
	case 0:
		return nil
	case 1:
		return r.Int63() - r.Int63()
	case 2:
		return r.NormFloat64()
	case 3:
		return r.of("", "a", "日本語 😀", "<&>\u2028\"\\", "null")()
	case 4:
		return r.Intn(2) == 0
	case 5:
		return []any{}
	case 6:
		list := make([]any, r.Intn(4))
		for i := range list {
			list[i] = r.value(depth + 1)
		}
		return list
	default:
		return r.object(depth + 1)
	}
}

func (r random) object(depth int) map[string]any {
	object := map[string]any{}
	for range r.Intn(4) {
		object[fmt.Sprint(r.of("a", "b.c/d~e", "", "metadata", "extended", "日本")())] = r.value(depth)
	}
	return object
}

func (r random) template() any {
	container := r.object(1)
	container["name"] = "di-container"
	template := map[string]any{"spec": map[string]any{"containers": []any{container}}}
	r.maybe(template, "metadata", func() any { return map[string]any{"creationTimestamp": nil, "labels": map[string]any{}} })
	r.maybe(template, "newerThanUs", func() any { return r.value(0) })
	return template
}

// shared adds the fields that both versions have.
func (r random) shared(spec map[string]any) {
	r.some(spec, map[string][]any{
		"group": {"", "g"}, "priorityClassName": {"", "default"}, "cleanPodPolicy": {"", "Running", "All", "None"},
		"volumes": {[]any{}, []any{map[string]any{"name": "a", "x": r.value(0)}}},
	})
}

// hubOnly returns the fields of all jobs that only v2alpha1 has.
func (r random) hubOnly() map[string]any {
	return r.some(map[string]any{}, map[string][]any{
		"suspend": {true, false}, "activeDeadlineSeconds": {int64(1), int64(1) << 30}, "ttlSecondsAfterFinished": {int64(0), int64(7)},
		"disruption": {map[string]any{"maxUnavailable": int64(0)}, map[string]any{"minAvailable": "50%"}},
		"managedBy":  {"example.com/other"}, "scheduling": {map[string]any{}, map[string]any{"queue": "", "schedulerName": "s"}}, "preemptible": {false},
	})
}

// ledOnly adds the fields of a coordinator-led job that only v2alpha1 has.
func (r random) ledOnly(fields map[string]any) {
	r.maybe(fields, "aggregatorConfig", r.of(map[string]any{"name": "a"}, map[string]any{"name": "a", "namespace": "b"}))
}

func (r random) v1Spec() map[string]any {
	spec := map[string]any{"coordinator": map[string]any{"template": r.template()}}
	r.shared(spec)
	role := func() any { return map[string]any{"template": r.template()} }
	r.maybe(spec, "collector", role)
	r.maybe(spec, "learner", role)
	r.maybe(spec, "extended", func() any {
		extended := r.hubOnly()
		r.ledOnly(extended)
		r.maybe(extended, "backoffLimit", r.of(int64(-1), int64(0), int64(4)))
		return extended
	})
	return spec
}

func (r random) task(kind, name string, replicas ...any) any {
	task := map[string]any{"type": kind, "template": r.template()}
	if kind == "none" {
		task["name"] = name
	} else {
		r.maybe(task, "name", r.of("", kind, name))
	}
	r.maybe(task, "replicas", r.of(replicas...))
	return task
}

func (r random) hubSpec() map[string]any {
	spec := r.hubOnly()
	r.shared(spec)
	r.some(spec, map[string][]any{"backoffLimit": {int64(-1), int64(0), int64(4)}, "priority": {"normal", "high"}})
	var tasks []any
	if r.Intn(2) == 0 {
		spec["lifecycle"] = "CoordinatorLed"
		r.ledOnly(spec)
		tasks = append(tasks, r.task("coordinator", "x", int64(1)))
		for _, kind := range []string{"collector", "learner"} {
			if r.Intn(2) == 0 {
				tasks = append(tasks, r.task(kind, "y"+kind, int64(0)))
			}
		}
	} else {
		r.maybe(spec, "lifecycle", r.of("WorkerLed"))
		tasks = append(tasks, r.task("none", "a", int64(0), int64(2)))
		for i, kind := range []string{"collector", "learner", "evaluator", "none"} {
			if r.Intn(2) == 0 {
				tasks = append(tasks, r.task(kind, fmt.Sprint("z", i), int64(0), int64(3)))
			}
		}
		r.some(spec, map[string][]any{"clusterSpec": {[]any{}, []any{"Torch"}}, "successPolicy": {map[string]any{}, map[string]any{"targetTasks": []any{"a"}}}})
	}
	r.Shuffle(len(tasks), func(i, j int) { tasks[i], tasks[j] = tasks[j], tasks[i] })
	spec["tasks"] = tasks
	return spec
}

func (r random) conditions() any {
	condition := map[string]any{"type": "Running", "status": "True"}
	r.maybe(condition, "message", r.of("", "日本"))
	return r.of([]any{}, []any{condition})()
}

// counted returns random tasks or roles with random counts.
func (r random) counted(names, counts []string) func() any {
	return func() any {
		found := map[string]any{}
		for range r.Intn(4) {
			of := map[string]any{}
			for _, count := range counts {
				r.maybe(of, count, r.of(int64(0), int64(2)))
			}
			found[names[r.Intn(len(names))]] = of
		}
		return found
	}
}

func (r random) v1Status() map[string]any {
	status := r.some(map[string]any{}, map[string][]any{"phase": {"", "Created", "Running", "Failed", "Odd"}})
	r.maybe(status, "conditions", r.conditions)
	r.maybe(status, "replicaStatus", r.counted(
		[]string{"Coordinator", "Collector", "Learner", "Aggregator", "learner", "odd"}, []string{"active", "succeeded", "failed"}))
	return status
}

func (r random) hubStatus() map[string]any {
	status := r.some(map[string]any{}, map[string][]any{
		"phase": {"", "Pending", "Starting", "Created", "Running", "Odd"}, "restarts": {int64(0), int64(2)}, "allocation": {[]any{}, []any{"", "node"}},
	})
	r.maybe(status, "conditions", r.conditions)
	r.maybe(status, "profilings", func() any { return r.object(0) })
	r.maybe(status, "taskStatus", r.counted(
		[]string{"coordinator", "collector", "learner", "aggregator", "a", "Learner"}, []string{"Pending", "Running", "Succeeded", "Failed", "Odd"}))
	return status
}

// createRandom creates a job of the version with a status and verifies that it is stored as
// written.
func createRandom(ctx context.Context, r random, version, namespace, name string) {
	GinkgoHelper()
	spec, status := r.v1Spec(), r.v1Status()
	if version == v2 {
		spec, status = r.hubSpec(), r.hubStatus()
	}
	written := &unstructured.Unstructured{Object: map[string]any{"spec": runtime.DeepCopyJSON(spec)}}
	written.SetGroupVersionKind(kind(version, "DIJob"))
	written.SetNamespace(namespace)
	written.SetName(name)
	Expect(c.Create(ctx, written)).To(Succeed())
	stored, _, _ := unstructured.NestedMap(written.Object, "spec")
	expectDefaulted(spec, stored)
	if len(status) == 0 {
		return
	}
	written.Object["status"] = runtime.DeepCopyJSON(status)
	Expect(c.Status().Update(ctx, written)).To(Succeed())
	expectSame(status, specs.GetJob(ctx, c, version, namespace, name).Object["status"])
}

// expectDefaulted verifies that a stored object has all written fields. Empty or absent fields may
// have got a default. The parts of extended that v1alpha1 implies anyway are not stored.
func expectDefaulted(written, stored map[string]any) {
	GinkgoHelper()
	for key, value := range written {
		switch value := value.(type) {
		case string:
			if value != "" || key != "cleanPodPolicy" && key != "name" {
				expectSame(value, stored[key])
			}
		case map[string]any:
			if key == "extended" {
				delete(value, "backoffLimit")
				of, _ := stored[key].(map[string]any)
				expectDefaulted(value, of)
				continue
			}
			expectSame(value, stored[key])
		case []any:
			if key != "tasks" {
				expectSame(value, stored[key])
				continue
			}
			tasks, _ := stored[key].([]any)
			Expect(tasks).To(HaveLen(len(value)))
			for i := range value {
				task, _ := value[i].(map[string]any)
				storedTask, _ := tasks[i].(map[string]any)
				expectDefaulted(task, storedTask)
			}
		default:
			expectSame(value, stored[key])
		}
	}
}

var _ = DescribeTable("Random jobs are the same jobs in both versions, created through",
	func(ctx SpecContext, version string, seed int64) {
		namespace := specs.Namespace(ctx, c)
		r := random{rand.New(rand.NewSource(seed))}
		for i := range randomJobs {
			name := fmt.Sprint("j", i)
			By(fmt.Sprintf("job %d of seed %d", i, seed))
			createRandom(ctx, r, version, namespace, name)
			expectOneJob(ctx, version, namespace, name)
		}
	},
	Entry("v1alpha1", v1, int64(1)),
	Entry("v2alpha1", v2, int64(2)),
)
