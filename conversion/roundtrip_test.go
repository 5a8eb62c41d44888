// Copyright The DI Orchestrator Authors.
// SPDX-License-Identifier: Apache-2.0

package conversion

import (
	"bytes"
	"encoding/json"
	"flag"
	"math/rand"
	"reflect"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/randfill"

	"opendilab.org/di-orchestrator/apis/v1alpha1"
	"opendilab.org/di-orchestrator/apis/v2alpha1"
)

// randomObjects is the number of random objects that make each round trip; a
// long run asks for more by -conversion.objects.
var randomObjects = flag.Int("conversion.objects", 10_000, "random objects for each round trip")

// decode returns JSON as plain values, numbers as they are written.
func decode(tb testing.TB, raw []byte) map[string]any {
	tb.Helper()
	decoder := json.NewDecoder(bytes.NewReader(raw))
	decoder.UseNumber()
	value := map[string]any{}
	if err := decoder.Decode(&value); err != nil {
		tb.Fatalf("decoding %s: %v", raw, err)
	}
	return value
}

func encode(tb testing.TB, value any) []byte {
	tb.Helper()
	raw, err := json.Marshal(value)
	if err != nil {
		tb.Fatalf("encoding %v: %v", value, err)
	}
	return raw
}

// mustConvert converts and checks that metadata stays and that the type of the
// wanted version can hold the result.
func mustConvert(tb testing.TB, raw []byte, apiVersion string) []byte {
	tb.Helper()
	converted, err := Convert(raw, apiVersion)
	if err != nil {
		tb.Fatalf("converting %s to %s: %v", raw, apiVersion, err)
	}
	before, after := decode(tb, raw), decode(tb, converted)
	if !reflect.DeepEqual(before["metadata"], after["metadata"]) {
		tb.Fatalf("metadata changed: %s became %s", raw, converted)
	}
	if after["apiVersion"] != apiVersion || after["kind"] != before["kind"] {
		tb.Fatalf("%s became %s, wanted %s", raw, converted, apiVersion)
	}
	var typed any = new(v2alpha1.DIJob)
	if apiVersion == v1alpha1.GroupVersion.String() {
		typed = new(v1alpha1.DIJob)
	}
	if err := json.Unmarshal(converted, typed); err != nil {
		tb.Fatalf("%s became %s, which no typed client reads: %v", raw, converted, err)
	}
	return converted
}

// roundTrip converts to the other version and back, and compares.
func roundTrip(tb testing.TB, raw []byte, other, own string) {
	tb.Helper()
	seen := mustConvert(tb, raw, other)
	back := mustConvert(tb, seen, own)
	want, got := decode(tb, raw), decode(tb, back)
	if !reflect.DeepEqual(want, got) {
		tb.Fatalf("the round trip through %s\n%s\nchanged (-want +got):\n%s", other, seen, cmp.Diff(want, got))
	}
}

func pick[T any](r *rand.Rand, values ...T) T {
	return values[r.Intn(len(values))]
}

// rawValues are what templates, volumes and profilings may hold: nulls, numbers
// of any size, empty values, unknown fields, characters that encoders escape.
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
		// Of a few characters, some of which encoders escape: the default's
		// long ones cost most of the time and show no more.
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
		func(p *v2alpha1.Phase, c randfill.Continue) {
			*p = pick(c.Rand, "", v2alpha1.JobPending, "Created", v2alpha1.JobStarting, v2alpha1.JobRestarting,
				v2alpha1.JobRescheduling, v2alpha1.JobRunning, v2alpha1.JobSucceeded, v2alpha1.JobFailed, v2alpha1.JobUnknown, "New")
		},
		func(p *v1alpha1.Phase, c randfill.Continue) {
			*p = pick(c.Rand, "", v1alpha1.JobCreated, v1alpha1.JobRunning, v1alpha1.JobSucceeded, v1alpha1.JobFailed, v1alpha1.JobUnknown, "New")
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
				(*m)[pick(c.Rand, "coordinator", "collector", "learner", "aggregator", "main", "Learner", "x")] = status
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
					v1alpha1.ReplicaTypeAggregator, "collector", "odd")] = status
			}
		},
	)
}

// fillHubSpec makes about a third of the coordinator-led jobs such as
// v1alpha1 writes them.
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

// emptied sets some members to explicit empty values, which no typed object
// writes but every client may, and drops others.
func emptied(r *rand.Rand, job map[string]any, candidates map[string][]any) map[string]any {
	for path, values := range candidates {
		if r.Intn(20) > 0 {
			continue
		}
		keys := strings.Split(path, ".")
		parent := job
		for _, key := range keys[:len(keys)-1] {
			next, ok := parent[key].(map[string]any)
			if !ok {
				next = map[string]any{}
				parent[key] = next
			}
			parent = next
		}
		last := keys[len(keys)-1]
		if value := pick(r, values...); value != "absent" {
			// Copied, as several places may be given the same value.
			parent[last] = runtime.DeepCopyJSONValue(value)
		} else {
			delete(parent, last)
		}
	}
	return job
}

func hubCandidates() map[string][]any {
	zero := int64(0)
	object := map[string]any{}
	return map[string][]any{
		"metadata":                   {"absent"},
		"spec":                       {"absent", object},
		"status":                     {"absent", object},
		"spec.lifecycle":             {"absent", "CoordinatorLed"},
		"spec.tasks":                 {"absent", []any{}},
		"spec.volumes":               {[]any{}},
		"spec.group":                 {""},
		"spec.cleanPodPolicy":        {""},
		"spec.preemptible":           {false},
		"spec.elastic":               {object},
		"spec.newerThanUs":           {object, zero},
		"status.phase":               {""},
		"status.replicas":            {zero},
		"status.taskStatus":          {object, map[string]any{"collector": object}},
		"status.conditions":          {[]any{}},
		"status.newerThanUs":         {object},
		"status.profilings":          {object},
		"status.scaling":             {object},
		"status.completionTimestamp": {"absent"},
	}
}

func v1Candidates() map[string][]any {
	zero := int64(0)
	object := map[string]any{}
	return map[string][]any{
		"metadata":               {"absent"},
		"spec":                   {"absent", object},
		"status":                 {"absent", object},
		"spec.coordinator":       {"absent", object, map[string]any{"template": object}},
		"spec.collector":         {"absent", object, map[string]any{"template": object}},
		"spec.learner":           {object},
		"spec.volumes":           {[]any{}},
		"spec.group":             {""},
		"spec.cleanPodPolicy":    {""},
		"spec.priorityClassName": {""},
		"status.phase":           {""},
		"status.conditions":      {[]any{}},
		"status.replicaStatus": {object, map[string]any{"Collector": object},
			map[string]any{"Learner": map[string]any{"active": zero, "failed": zero}},
			map[string]any{"Aggregator": map[string]any{"succeeded": zero}, "aggregator": object}},
	}
}

func randomHub(tb testing.TB, fill *randfill.Filler, r *rand.Rand) []byte {
	tb.Helper()
	job := &v2alpha1.DIJob{}
	fill.Fill(job)
	job.APIVersion, job.Kind = v2alpha1.GroupVersion.String(), "DIJob"
	return encode(tb, emptied(r, decode(tb, encode(tb, job)), hubCandidates()))
}

func randomV1(tb testing.TB, fill *randfill.Filler, r *rand.Rand) []byte {
	tb.Helper()
	job := &v1alpha1.DIJob{}
	fill.Fill(job)
	job.APIVersion, job.Kind = v1alpha1.GroupVersion.String(), "DIJob"
	job.Spec.Extended, job.Status.Extended = nil, nil
	return encode(tb, emptied(r, decode(tb, encode(tb, job)), v1Candidates()))
}

func TestEveryV2JobComesBackFromV1Unchanged(t *testing.T) {
	t.Parallel()
	fill, r := filler(1), rand.New(rand.NewSource(2))
	for range *randomObjects {
		roundTrip(t, randomHub(t, fill, r), v1alpha1.GroupVersion.String(), v2alpha1.GroupVersion.String())
	}
}

func TestEveryV1JobComesBackFromV2Unchanged(t *testing.T) {
	t.Parallel()
	fill, r := filler(3), rand.New(rand.NewSource(4))
	for range *randomObjects {
		raw := randomV1(t, fill, r)
		roundTrip(t, raw, v2alpha1.GroupVersion.String(), v1alpha1.GroupVersion.String())
	}
}

func TestAV1JobWithExtendedFromConversionComesBackUnchanged(t *testing.T) {
	t.Parallel()
	fill, r := filler(5), rand.New(rand.NewSource(6))
	for range *randomObjects / 4 {
		seen := mustConvert(t, randomHub(t, fill, r), v1alpha1.GroupVersion.String())
		roundTrip(t, seen, v2alpha1.GroupVersion.String(), v1alpha1.GroupVersion.String())
	}
}

func TestTypedHelpersAgreeBothWays(t *testing.T) {
	t.Parallel()
	fill := filler(7)
	for range *randomObjects / 20 {
		job := &v2alpha1.DIJob{}
		fill.Fill(job)
		job.APIVersion, job.Kind = v2alpha1.GroupVersion.String(), "DIJob"
		// The typed v1alpha1 always writes a coordinator.
		job.Spec.Tasks = append([]v2alpha1.Task{{Type: v2alpha1.TaskTypeCoordinator}}, job.Spec.Tasks...)
		seen, err := FromHub(job)
		if err != nil {
			t.Fatal(err)
		}
		back, err := ToHub(seen)
		if err != nil {
			t.Fatal(err)
		}
		// The typed v1alpha1 drops counts of zero.
		job.Status.TaskStatus, back.Status.TaskStatus = nil, nil
		if diff := cmp.Diff(decode(t, encode(t, job)), decode(t, encode(t, back))); diff != "" {
			t.Fatalf("the job changed (-want +got):\n%s", diff)
		}
	}
}
