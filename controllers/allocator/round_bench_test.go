// Copyright The DI Orchestrator Authors.
// SPDX-License-Identifier: Apache-2.0

package allocator

import (
	"context"
	"fmt"
	"strconv"
	"sync/atomic"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	corev1 "k8s.io/api/core/v1"
	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/tools/cache"
	"k8s.io/client-go/tools/events"
	clocktesting "k8s.io/utils/clock/testing"
	"k8s.io/utils/ptr"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"opendilab.org/di-orchestrator/allocation"
	"opendilab.org/di-orchestrator/allocation/fit"
	"opendilab.org/di-orchestrator/allocation/goodput"
	"opendilab.org/di-orchestrator/apis/v2alpha1"
	"opendilab.org/di-orchestrator/controllers"
	"opendilab.org/di-orchestrator/internal/names"
)

// The size of the cluster of the benchmark.
const (
	benchNodes    = 512
	benchJobs     = 1000
	benchReplicas = 4
	benchPods     = 50_000
)

// indexed is a client over informers' stores. It lists as controller-runtime's cache does, without copies.
type indexed struct {
	client.Client
	nodes, pods, jobs cache.Indexer
	writes            atomic.Int64
	// onPatch is called before each patch of a job, if it is set, and may refuse it.
	onPatch func(job client.Object) error
}

func newIndexed() *indexed {
	newStore := func() cache.Indexer { return cache.NewIndexer(cache.MetaNamespaceKeyFunc, cache.Indexers{}) }
	return &indexed{nodes: newStore(), pods: newStore(), jobs: newStore()}
}

func (c *indexed) List(_ context.Context, list client.ObjectList, _ ...client.ListOption) error {
	store := map[string]cache.Indexer{"*v1.NodeList": c.nodes, "*v1.PodList": c.pods, "*v2alpha1.DIJobList": c.jobs}[fmt.Sprintf("%T", list)]
	if store == nil {
		return nil
	}
	var objects []runtime.Object
	for _, object := range store.List() {
		if listed, isObject := object.(runtime.Object); isObject {
			objects = append(objects, listed)
		}
	}
	return meta.SetList(list, objects)
}

func (c *indexed) Get(context.Context, client.ObjectKey, client.Object, ...client.GetOption) error {
	return nil
}

func (c *indexed) Create(context.Context, client.Object, ...client.CreateOption) error { return nil }
func (c *indexed) Update(context.Context, client.Object, ...client.UpdateOption) error { return nil }
func (c *indexed) Status() client.SubResourceWriter                                    { return statusWriter{c} }

// statusWriter writes the status of jobs.
type statusWriter struct{ of *indexed }

func (statusWriter) Create(context.Context, client.Object, client.Object, ...client.SubResourceCreateOption) error {
	return nil
}

func (statusWriter) Update(context.Context, client.Object, ...client.SubResourceUpdateOption) error {
	return nil
}

func (statusWriter) Apply(context.Context, runtime.ApplyConfiguration, ...client.SubResourceApplyOption) error {
	return nil
}

func (w statusWriter) Patch(_ context.Context, object client.Object, _ client.Patch, _ ...client.SubResourcePatchOption) error {
	if w.of.onPatch != nil {
		if err := w.of.onPatch(object); err != nil {
			return err
		}
	}
	w.of.writes.Add(1)
	version, err := strconv.Atoi(object.GetResourceVersion())
	if err != nil {
		return err
	}
	object.SetResourceVersion(strconv.Itoa(version + 1))
	return w.of.jobs.Update(object.DeepCopyObject())
}

// keep is a policy that leaves all jobs as they are.
type keep struct{}

func (keep) Allocate(*allocation.Job, []*allocation.Node) allocation.Placement {
	return allocation.Placement{}
}

func (keep) Optimize(round *allocation.Round) map[types.NamespacedName]allocation.Placement {
	placements := make(map[types.NamespacedName]allocation.Placement, len(round.Jobs))
	for _, job := range round.Jobs {
		nodes := round.Previous[job.Name]
		placements[job.Name] = allocation.Placement{Nodes: nodes, Reason: v2alpha1.ReasonPlaced, Message: fmt.Sprintf("%d replicas", len(nodes))}
	}
	return placements
}

// BenchmarkRound measures a whole round in which no job changes: survey, decision and comparison with what
// is written.
func BenchmarkRound(b *testing.B) {
	for _, of := range []struct {
		name   string
		policy allocation.Policy
	}{{"none", keep{}}, {"fit", fit.Fit{GrowAfter: defaultGrowAfter}}, {"goodput", goodput.New(goodput.DefaultSettings())}} {
		b.Run("policy="+of.name, func(b *testing.B) { benchmarkRound(b, of.policy) })
	}
}

func benchmarkRound(b *testing.B, policy allocation.Policy) {
	b.Helper()
	clock := clocktesting.NewFakeClock(time.Now())
	store := newIndexed()
	allocator, err := New(store, store, Options{
		Policy: policy, Registerer: prometheus.NewRegistry(), Recorder: &events.FakeRecorder{}, Clock: clock,
	})
	if err != nil {
		b.Fatal(err)
	}
	populate(b, store, clock.Now())
	round := func() {
		clock.Step(defaultInterval)
		if _, err := allocator.Reconcile(b.Context(), ctrl.Request{}); err != nil {
			b.Fatal(err)
		}
	}
	round()
	round()
	written := store.writes.Load()
	b.ReportAllocs()
	for b.Loop() {
		round()
	}
	b.ReportMetric(float64(store.writes.Load()-written)/float64(b.N), "writes/op")
}

// populate adds nodes, placed jobs that have reported, their pods and other pods.
func populate(b *testing.B, store *indexed, now time.Time) {
	b.Helper()
	add := func(to cache.Indexer, object client.Object) {
		object.SetUID(types.UID(fmt.Sprintf("%T %s", object, object.GetName())))
		object.SetResourceVersion("1")
		if err := to.Add(object); err != nil {
			b.Fatal(err)
		}
	}
	for i := range benchNodes {
		add(store.nodes, benchNode(i))
	}
	for i := range benchJobs {
		job := benchJob(i, now)
		add(store.jobs, job)
		for rank, node := range job.Status.Allocation {
			add(store.pods, benchPod(job, rank, node))
		}
	}
	transform := podTransform()
	for i := range benchPods - benchJobs*benchReplicas {
		trimmed, err := transform(&corev1.Pod{
			ObjectMeta: metav1.ObjectMeta{Namespace: "other", Name: fmt.Sprintf("other-%05d", i)},
			Spec: corev1.PodSpec{NodeName: nodeName(i % benchNodes), Containers: []corev1.Container{
				{Name: "one", Resources: requests("100m", "128Mi", "0")}, {Name: "two", Resources: requests("10m", "16Mi", "0")},
			}},
			Status: corev1.PodStatus{Phase: corev1.PodRunning},
		})
		if err != nil {
			b.Fatal(err)
		}
		pod, isPod := trimmed.(*corev1.Pod)
		if !isPod {
			b.Fatalf("got %T", trimmed)
		}
		add(store.pods, pod)
	}
}

// podTransform returns the transformation of pods in the operator's cache.
func podTransform() cache.TransformFunc {
	for object, options := range controllers.CacheOptions().ByObject {
		if _, isPod := object.(*corev1.Pod); isPod {
			return options.Transform
		}
	}
	return cache.TransformFunc(func(object any) (any, error) { return object, nil })
}

func nodeName(i int) string { return fmt.Sprintf("node-%03d", i) }

func benchNode(i int) *corev1.Node {
	return &corev1.Node{
		ObjectMeta: metav1.ObjectMeta{Name: nodeName(i), Labels: map[string]string{corev1.LabelHostname: nodeName(i), "zone": strconv.Itoa(i % 3)}},
		Status: corev1.NodeStatus{
			Allocatable: requests("96", "768Gi", "8").Limits,
			Conditions:  []corev1.NodeCondition{{Type: corev1.NodeReady, Status: corev1.ConditionTrue}},
		},
	}
}

func requests(cpu, memory, gpus string) corev1.ResourceRequirements {
	list := corev1.ResourceList{corev1.ResourceCPU: resource.MustParse(cpu), corev1.ResourceMemory: resource.MustParse(memory)}
	all := corev1.ResourceList{
		corev1.ResourceCPU: resource.MustParse(cpu), corev1.ResourceMemory: resource.MustParse(memory),
		corev1.ResourcePods: resource.MustParse("250"), "nvidia.com/gpu": resource.MustParse(gpus),
	}
	return corev1.ResourceRequirements{Requests: list, Limits: all}
}

const benchTemplate = `{"spec":{"nodeSelector":{"zone":"%d"},"tolerations":[{"key":"nvidia.com/gpu","operator":"Exists"}],
"containers":[{"name":"di-container","image":"diorchestrator/ding:v1.1.0","command":["python","train.py"],
"resources":{"requests":{"cpu":"1","memory":"2Gi","nvidia.com/gpu":"1"},"limits":{"cpu":"2","memory":"4Gi","nvidia.com/gpu":"1"}}}]}}`

const benchReport = `{"version":1,"batch":{"initial":128,"max":8192,"max_per_replica":1024},"steps":[
{"nodes":1,"replicas":1,"samples":128,"seconds":0.11,"compute_seconds":0.1},{"nodes":1,"replicas":2,"samples":128,"seconds":0.12,"compute_seconds":0.1},
{"nodes":1,"replicas":4,"samples":128,"seconds":0.14,"compute_seconds":0.1}],"gradient":{"sqr":0.01,"var":5},"progress":{"done":%d,"total":1000000}}`

// benchJob returns a job that runs on two nodes of its zone, with two replicas on each.
func benchJob(i int, now time.Time) *v2alpha1.DIJob {
	raw := func(text string) v2alpha1.RawObject {
		return v2alpha1.RawObject{JSON: apiextensionsv1.JSON{Raw: []byte(text)}}
	}
	job := &v2alpha1.DIJob{
		ObjectMeta: metav1.ObjectMeta{Namespace: "jobs", Name: fmt.Sprintf("job-%04d", i), CreationTimestamp: metav1.NewTime(now.Add(-time.Hour))},
		Spec: v2alpha1.DIJobSpec{
			Preemptible: true, Elastic: &v2alpha1.Elastic{MinReplicas: ptr.To[int32](1), MaxReplicas: ptr.To[int32](benchReplicas)},
			Tasks: []v2alpha1.Task{{Name: "worker", Replicas: ptr.To[int32](benchReplicas), Template: raw(fmt.Sprintf(benchTemplate, i%3))}},
		},
		Status: v2alpha1.DIJobStatus{
			Phase: v2alpha1.JobRunning, Profilings: ptr.To(raw(fmt.Sprintf(benchReport, i*1000))),
			Conditions: []v2alpha1.DIJobCondition{{
				Type: v2alpha1.ConditionAllocated, Status: corev1.ConditionTrue, Reason: v2alpha1.ReasonPlaced,
				Message: "4 replicas on 2 nodes", LastUpdateTime: ptr.To(metav1.NewTime(now.Add(-time.Minute))),
			}},
		},
	}
	// The zone of node n is n modulo 3, and each zone has 170 nodes at least.
	for rank := range benchReplicas {
		slot := i/3*2 + rank/2
		job.Status.Allocation = append(job.Status.Allocation, nodeName(slot%170*3+i%3))
	}
	return job
}

// benchPod returns a running pod of a job.
func benchPod(job *v2alpha1.DIJob, rank int, node string) *corev1.Pod {
	container := corev1.Container{Name: names.Container, Image: "diorchestrator/ding:v1.1.0", Resources: requests("1", "2Gi", "1")}
	container.Resources.Requests["nvidia.com/gpu"] = resource.MustParse("1")
	for i := range 20 {
		container.Env = append(container.Env, corev1.EnvVar{Name: fmt.Sprintf("DI_%d", i), Value: "value"})
	}
	pod := &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{
			Namespace: job.Namespace, Name: names.WorkerPod(job.Name, "worker", int32(rank)),
			Labels:          map[string]string{names.LabelJob: job.Name},
			Annotations:     map[string]string{names.AnnotationNode: node, names.AnnotationRank: strconv.Itoa(rank)},
			OwnerReferences: []metav1.OwnerReference{*metav1.NewControllerRef(job, v2alpha1.GroupVersion.WithKind(controllers.JobKind))},
		},
		Spec:   corev1.PodSpec{NodeName: node, Containers: []corev1.Container{container}},
		Status: corev1.PodStatus{Phase: corev1.PodRunning},
	}
	return pod
}
