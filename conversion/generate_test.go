// Copyright The DI Orchestrator Authors.
// SPDX-License-Identifier: Apache-2.0

package conversion

import (
	"encoding/json"
	"math/rand"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/intstr"
	"sigs.k8s.io/randfill"

	"opendilab.org/di-orchestrator/apis/v1alpha1"
	"opendilab.org/di-orchestrator/apis/v2alpha1"
)

// generator generates random jobs. The same seed generates the same jobs.
type generator struct {
	fill *randfill.Filler
	r    *rand.Rand
}

func newGenerator(seed int64) *generator {
	return &generator{fill: filler(2 * seed), r: rand.New(rand.NewSource(2*seed + 1))}
}

// hub returns a job of v2alpha1.
func (g *generator) hub(tb testing.TB) map[string]any {
	tb.Helper()
	job := &v2alpha1.DIJob{}
	g.fill.Fill(job)
	job.APIVersion, job.Kind = v2alpha1.GroupVersion.String(), "DIJob"
	content := decode(tb, encode(tb, job))
	if spec, ok := content["spec"].(map[string]any); ok {
		g.emptyTasks(spec)
	}
	return g.emptied(content, hubCandidates())
}

// v1 returns a job of v1alpha1 without extended.
func (g *generator) v1(tb testing.TB) map[string]any {
	tb.Helper()
	job := &v1alpha1.DIJob{}
	g.fill.Fill(job)
	job.APIVersion, job.Kind = v1alpha1.GroupVersion.String(), "DIJob"
	job.Spec.Extended, job.Status.Extended = nil, nil
	return g.emptied(decode(tb, encode(tb, job)), v1Candidates())
}

// seenFromV1 returns a job of v1alpha1 whose extended came from conversion.
func (g *generator) seenFromV1(tb testing.TB) map[string]any {
	tb.Helper()
	return decode(tb, mustConvert(tb, g.hub(tb), v1alpha1.GroupVersion.String()))
}

func pick[T any](r *rand.Rand, values ...T) T {
	return values[r.Intn(len(values))]
}

// anyV1 returns a job of v1alpha1 that a round trip must restore. It has no extended, except that
// every fourth job has an extended that came from conversion.
func (g *generator) anyV1(tb testing.TB) map[string]any {
	tb.Helper()
	if g.r.Intn(4) == 0 {
		return g.seenFromV1(tb)
	}
	return g.v1(tb)
}

// rawValue returns values that templates, volumes and profilings may contain: nulls, numbers of any
// size, empty values, unknown fields, and characters that encoders escape.
func rawValue(r *rand.Rand) []byte {
	return []byte(pick(r,
		`{}`,
		`{"metadata":{"creationTimestamp":null,"labels":{"a":"<&>"}},"spec":{"containers":[{"name":"di-container","image":"a","resources":{}}]}}`,
		`{"a":12345678901234567890,"b":1.50,"c":1e400,"d":[],"e":{},"f":"","g":[null,{"h":null}]}`,
		`{"\u0041\n\"\\":"\ud83d\ude00 \u2028 } ] , {"}`,
		`{"spec":{"containers":[{"name":"x","newerThanUs":{"deep":[[[{}]]]}}]}}`,
	))
}

func filler(seed int64) *randfill.Filler {
	return randfill.New().RandSource(rand.NewSource(seed)).NilChance(0.3).NumElements(0, 3).Funcs(
		func(o *v1alpha1.RawObject, c randfill.Continue) { o.Raw = rawValue(c.Rand) },
		func(o *v2alpha1.RawObject, c randfill.Continue) { o.Raw = rawValue(c.Rand) },
		func(m *metav1.ObjectMeta, c randfill.Continue) {
			m.Name = "job"
			m.UID = types.UID(pick(c.Rand, "", "1234"))
			m.Labels = pick(c.Rand, nil, map[string]string{}, map[string]string{"a": "<&>"})
			m.Finalizers = pick(c.Rand, nil, []string{"example.org/a"})
		},
		func(t *metav1.Time, c randfill.Continue) { *t = metav1.Unix(c.Int63n(1<<32), 0) },
		func(t *metav1.MicroTime, c randfill.Continue) {
			*t = metav1.MicroTime{Time: time.UnixMicro(c.Int63n(1 << 52))}
		},
		// What a typed client writes. Texts that it would write otherwise are in
		// TestAQuantityKeepsTheTextThatItsUserWrote.
		func(q *resource.Quantity, c randfill.Continue) {
			*q = resource.MustParse(pick(c.Rand, "0", "2", "500m", "4Gi", "1e18"))
		},
		// The strings have few characters, some of which encoders escape. The default's long
		// strings take most of the time and detect nothing more.
		func(s *string, c randfill.Continue) { *s = pick(c.Rand, "", "a", "<&>", "é\u2028\"\\") },
		func(l *v2alpha1.Lifecycle, c randfill.Continue) {
			*l = pick(c.Rand, "", v2alpha1.LifecycleWorkerLed, v2alpha1.LifecycleCoordinatorLed, v2alpha1.LifecycleCoordinatorLed)
		},
		func(p *v2alpha1.CleanPodPolicy, c randfill.Continue) {
			*p = pick(c.Rand, "", v2alpha1.CleanPodPolicyAll, v2alpha1.CleanPodPolicyNone, v2alpha1.CleanPodPolicyRunning, "other")
		},
		func(p *v1alpha1.CleanPodPolicy, c randfill.Continue) {
			*p = pick(c.Rand, "", v1alpha1.CleanPodPolicyAll, v1alpha1.CleanPodPolicyNone, "other")
		},
		func(t *v2alpha1.TaskType, c randfill.Continue) {
			*t = pick(c.Rand, v2alpha1.TaskTypeCoordinator, v2alpha1.TaskTypeCollector, v2alpha1.TaskTypeLearner,
				v2alpha1.TaskTypeEvaluator, v2alpha1.TaskTypeNone)
		},
		func(t *v2alpha1.Task, c randfill.Continue) {
			c.FillNoCustom(t)
			t.Name = pick(c.Rand, "", string(t.Type), string(t.Type), "collector", "main")
			if c.Bool() {
				one := int32(c.Intn(2))
				t.Replicas = &one
			}
		},
		func(s *v2alpha1.DIJobSpec, c randfill.Continue) { fillHubSpec(s, c) },
		// Pointers to numbers or strings are left nil otherwise.
		func(d *v2alpha1.Disruption, c randfill.Continue) {
			d.MaxUnavailable, d.MinAvailable = anyIntOrString(c.Rand), anyIntOrString(c.Rand)
		},
		func(p *v2alpha1.Phase, c randfill.Continue) {
			*p = pick(c.Rand, "", v2alpha1.JobPending, "Created", v2alpha1.JobStarting, v2alpha1.JobRestarting,
				v2alpha1.JobRescheduling, v2alpha1.JobRunning, v2alpha1.JobSucceeded, v2alpha1.JobFailed, v2alpha1.JobUnknown, "New", "v1alpha1/Starting", "v1alpha1/New")
		},
		func(p *v1alpha1.Phase, c randfill.Continue) {
			*p = pick(c.Rand, "", v1alpha1.JobCreated, v1alpha1.JobRunning, v1alpha1.JobSucceeded, v1alpha1.JobFailed, v1alpha1.JobUnknown, "New",
				"Pending", "Rescheduling", "v1alpha1/Starting")
		},
		func(m *map[string]v2alpha1.TaskStatus, c randfill.Continue) {
			if c.Float64() < 0.3 {
				return
			}
			*m = map[string]v2alpha1.TaskStatus{}
			for range c.Intn(4) {
				status := v2alpha1.TaskStatus{}
				for range c.Intn(4) {
					status[pick(c.Rand, corev1.PodRunning, corev1.PodRunning, corev1.PodPending, corev1.PodSucceeded,
						corev1.PodFailed, corev1.PodUnknown, "Odd")] = pick(c.Rand, 0, 1, int32(c.Uint32()))
				}
				(*m)[pick(c.Rand, "coordinator", "collector", "learner", "aggregator", "main", "Learner", "Collector", "x")] = status
			}
		},
		func(m *map[v1alpha1.ReplicaType]*v1alpha1.ReplicaStatus, c randfill.Continue) {
			if c.Float64() < 0.3 {
				return
			}
			*m = map[v1alpha1.ReplicaType]*v1alpha1.ReplicaStatus{}
			for range c.Intn(4) {
				status := &v1alpha1.ReplicaStatus{}
				c.Fill(status)
				(*m)[pick(c.Rand, v1alpha1.ReplicaTypeCoordinator, v1alpha1.ReplicaTypeCollector, v1alpha1.ReplicaTypeLearner,
					v1alpha1.ReplicaTypeAggregator, "collector", "main", "odd")] = status
			}
		},
	)
}

func anyIntOrString(r *rand.Rand) *intstr.IntOrString {
	value := pick(r, intstr.FromInt32(0), intstr.FromInt32(3), intstr.FromString("25%"), intstr.FromString("half"))
	return pick(r, nil, &value)
}

// fillHubSpec gives about a third of the coordinator-led jobs the form that v1alpha1 writes.
func fillHubSpec(s *v2alpha1.DIJobSpec, c randfill.Continue) {
	c.FillNoCustom(s)
	if s.Lifecycle != v2alpha1.LifecycleCoordinatorLed || c.Intn(3) > 0 {
		return
	}
	if c.Bool() {
		s.BackoffLimit = new(int32)
	}
	s.Tasks = nil
	for i, role := range roles() {
		if i > 0 && c.Bool() {
			continue
		}
		task := v2alpha1.Task{Type: v2alpha1.TaskType(role), Name: role, Replicas: new(int32)}
		if i == 0 {
			*task.Replicas = 1
		}
		c.Fill(&task.Template)
		s.Tasks = append(s.Tasks, task)
	}
}

// candidate is a member, by its path, and the values it may be set to in addition to those of typed
// clients: explicit empty values, nulls, unknown fields.
type candidate struct {
	path   string
	values []any
}

// absent represents a removed member.
type absent struct{}

// emptied sets some members to one of their candidates' values.
func (g *generator) emptied(job map[string]any, candidates []candidate) map[string]any {
	for _, c := range candidates {
		if g.r.Intn(20) > 0 {
			continue
		}
		keys := strings.Split(c.path, ".")
		parent := job
		for _, key := range keys[:len(keys)-1] {
			next, ok := parent[key].(map[string]any)
			if !ok {
				next = map[string]any{}
				parent[key] = next
			}
			parent = next
		}
		g.empty(parent, keys[len(keys)-1], c.values)
	}
	return job
}

func (g *generator) empty(parent map[string]any, key string, values []any) {
	switch value := pick(g.r, values...).(type) {
	case absent:
		delete(parent, key)
	default:
		// Copied, because several members may get the same value.
		parent[key] = runtime.DeepCopyJSONValue(value)
	}
}

// emptyTasks does the same to the members of tasks.
func (g *generator) emptyTasks(spec map[string]any) {
	tasks, _ := spec["tasks"].([]any)
	for _, entry := range tasks {
		task, ok := entry.(map[string]any)
		if !ok || g.r.Intn(10) > 0 {
			continue
		}
		switch key := pick(g.r, "replicas", "name", "template", "newerThanUs"); key {
		case "replicas":
			g.empty(task, key, []any{nil, json.Number("0"), json.Number("1"), absent{}})
		case "name":
			g.empty(task, key, []any{nil, "", absent{}})
		default:
			g.empty(task, key, []any{nil, map[string]any{}, absent{}})
		}
	}
}

func hubCandidates() []candidate {
	zero := json.Number("0")
	object := map[string]any{}
	return []candidate{
		{"metadata", []any{absent{}}},
		{"spec", []any{absent{}, object, nil}},
		{"status", []any{absent{}, object, nil}},
		{"spec.lifecycle", []any{absent{}, "CoordinatorLed", nil}},
		{"spec.tasks", []any{absent{}, []any{}, nil}},
		{"spec.volumes", []any{[]any{}, nil}},
		{"spec.group", []any{"", nil}},
		{"spec.priorityClassName", []any{"", nil}},
		{"spec.cleanPodPolicy", []any{"", nil}},
		{"spec.backoffLimit", []any{zero, nil}},
		{"spec.preemptible", []any{false, nil}},
		{"spec.elastic", []any{object, nil}},
		{"spec.suspend", []any{false, nil}},
		{"spec.newerThanUs", []any{object, zero, nil}},
		{"status.phase", []any{"", nil}},
		{"status.replicas", []any{zero, nil}},
		{"status.taskStatus", []any{object, map[string]any{"collector": object}, map[string]any{"learner": nil}, nil}},
		{"status.conditions", []any{[]any{}, nil}},
		{"status.newerThanUs", []any{object, nil}},
		{"status.profilings", []any{object, nil}},
		{"status.scaling", []any{object, nil}},
		{"status.completionTimestamp", []any{absent{}, nil}},
	}
}

func v1Candidates() []candidate {
	zero := json.Number("0")
	object := map[string]any{}
	role := []any{object, map[string]any{"template": object}, map[string]any{"template": nil}, map[string]any{"newerThanUs": object}}
	return []candidate{
		{"metadata", []any{absent{}}},
		{"spec", []any{absent{}, object, nil}},
		{"status", []any{absent{}, object, nil}},
		{"spec.coordinator", append(role, absent{})},
		{"spec.collector", append(role, absent{})},
		{"spec.learner", role},
		{"spec.volumes", []any{[]any{}, nil}},
		{"spec.group", []any{"", nil}},
		{"spec.cleanPodPolicy", []any{"", nil}},
		{"spec.priorityClassName", []any{"", nil}},
		{"status.phase", []any{"", nil}},
		{"status.conditions", []any{[]any{}, nil}},
		{"status.replicaStatus", []any{
			object, nil, map[string]any{"Collector": object}, map[string]any{"Collector": nil},
			map[string]any{"Learner": map[string]any{"active": zero, "failed": zero}},
			map[string]any{"Aggregator": map[string]any{"succeeded": zero}, "aggregator": object},
		}},
	}
}
