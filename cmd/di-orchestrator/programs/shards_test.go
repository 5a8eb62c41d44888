// Copyright The DI Orchestrator Authors.
// SPDX-License-Identifier: Apache-2.0

package programs

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"strings"
	"sync"
	"testing"
	"time"

	coordinationv1 "k8s.io/api/coordination/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/yaml"

	"opendilab.org/di-orchestrator/controllers/shards"
	"opendilab.org/di-orchestrator/internal/names"
)

// sharded are a cluster with operators that divide jobs.
type sharded struct {
	*elections
	count int
	made  *created
}

// created counts the pods that were ever created, by job and name.
type created struct {
	mutex sync.Mutex
	pods  map[string]map[string]int
}

func newSharded(t *testing.T, count int) *sharded {
	t.Helper()
	s := &sharded{elections: newElections(t), count: count, made: &created{pods: map[string]map[string]int{}}}
	startWebhooks(t, s.kubeconfigs)
	api, isWatching := s.api.(client.WithWatch)
	if !isWatching {
		t.Fatal("the client cannot watch")
	}
	events, err := api.Watch(t.Context(), &corev1.PodList{})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(events.Stop)
	go s.made.follow(events)
	return s
}

func (c *created) follow(events watch.Interface) {
	for event := range events.ResultChan() {
		pod, isPod := event.Object.(*corev1.Pod)
		if !isPod || event.Type != watch.Added {
			continue
		}
		c.mutex.Lock()
		of := pod.Namespace + "/" + pod.Labels[names.LabelJob]
		if c.pods[of] == nil {
			c.pods[of] = map[string]int{}
		}
		c.pods[of][pod.Name]++
		c.mutex.Unlock()
	}
}

// of returns how often each pod of a job was created.
func (c *created) of(job string) map[string]int {
	c.mutex.Lock()
	defer c.mutex.Unlock()
	return maps.Clone(c.pods["default/"+job])
}

// operator starts an operator with some shards.
func (s *sharded) operator(t *testing.T, count int) *process {
	t.Helper()
	return start(t, s.kubeconfigs, nil, "operator", "--leader-elect", "--metrics-address=0", "--probe-address=0",
		configured(t, fmt.Sprintf("operator: {shards: %d, probeInterval: 0s}", count)))
}

// holders returns the holders of shards; empty for free ones.
func (s *sharded) holders(ctx context.Context, count int) ([]string, error) {
	holders := make([]string, count)
	for shard := range holders {
		lease := &coordinationv1.Lease{}
		key := client.ObjectKey{Namespace: names.SystemNamespace, Name: shards.LeaseName(leaderElectionID, shard, count)}
		if err := s.api.Get(ctx, key, lease); client.IgnoreNotFound(err) != nil {
			return nil, err
		}
		holders[shard] = ptr.Deref(lease.Spec.HolderIdentity, "")
	}
	return holders, nil
}

// spread waits until a number of operators hold as many shards each.
func (s *sharded) spread(t *testing.T, operators int) {
	t.Helper()
	await(t, fmt.Sprintf("%d operators share the shards", operators), func(ctx context.Context) error {
		holders, err := s.holders(ctx, s.count)
		if err != nil {
			return err
		}
		has := map[string]int{}
		for _, holder := range holders {
			has[holder]++
		}
		for holder, number := range has {
			if holder == "" || len(has) != operators || number > (s.count+operators-1)/operators {
				return fmt.Errorf("they are held by %v", holders)
			}
		}
		return nil
	})
}

// submit creates jobs of two pods, until each shard has one at least, and returns their names.
func (s *sharded) submit(t *testing.T, prefix string) []string {
	t.Helper()
	var jobs []string
	has := map[int]bool{}
	for i := 0; len(has) < s.count || i < 3*s.count; i++ {
		name := fmt.Sprintf("%s-%d", prefix, i)
		has[shards.Of(types.NamespacedName{Namespace: "default", Name: name}, s.count)] = true
		jobs = append(jobs, name)
		await(t, "job "+name+" is admitted", func(ctx context.Context) error { return s.api.Create(ctx, pairJob(name)) })
	}
	return jobs
}

func pairJob(name string) *unstructured.Unstructured {
	return &unstructured.Unstructured{Object: map[string]any{
		"apiVersion": "diengine.opendilab.org/v2alpha1", "kind": "DIJob",
		"metadata": map[string]any{"namespace": "default", "name": name},
		"spec": map[string]any{"tasks": []any{map[string]any{
			"type": "none", "name": "worker", "replicas": int64(2), "template": podTemplate()["template"],
		}}},
	}}
}

// haveRun waits until each of the jobs has both pods.
func (s *sharded) haveRun(t *testing.T, jobs []string) {
	t.Helper()
	await(t, "all jobs have their pods", func(context.Context) error {
		for _, job := range jobs {
			if has := s.made.of(job); len(has) < 2 {
				return fmt.Errorf("job %s has pods %v", job, has)
			}
		}
		return nil
	})
}

// check fails if a pod was created twice, or one that the job does not have, and if a creation was reported twice.
func (s *sharded) check(t *testing.T, jobs []string) {
	t.Helper()
	for _, job := range jobs {
		has := s.made.of(job)
		for pod, times := range has {
			if times != 1 || len(has) != 2 {
				t.Errorf("job %s: pod %s was created %d times; all: %v", job, pod, times, has)
			}
		}
	}
	s.checkEvents(t)
}

// checkEvents fails if operators recorded the same Event.
func (s *sharded) checkEvents(t *testing.T) {
	t.Helper()
	var list corev1.EventList
	if err := s.api.List(t.Context(), &list, client.InNamespace("default")); err != nil {
		t.Fatal(err)
	}
	recorded := map[string]bool{}
	for i := range list.Items {
		event := &list.Items[i]
		text := fmt.Sprint(event.InvolvedObject.Name, " ", event.Reason, " ", event.Message)
		if recorded[text] {
			t.Errorf("two operators recorded Event %q", text)
		}
		recorded[text] = event.InvolvedObject.Kind == "DIJob"
	}
	if len(recorded) == 0 {
		t.Error("the operators recorded no Event")
	}
}

func (p *process) kill(t *testing.T) {
	t.Helper()
	if err := p.command.Process.Kill(); err != nil {
		t.Fatal(err)
	}
	if err := p.command.Wait(); err == nil {
		t.Error("a killed process ended well")
	}
}

func TestJobsOfAKilledOperatorGoOnInAnotherAndNoneIsRunTwice(t *testing.T) {
	t.Parallel()
	for _, count := range []int{2, 4} {
		t.Run(fmt.Sprintf("%d shards", count), func(t *testing.T) {
			t.Parallel()
			s := newSharded(t, count)
			var operators []*process
			for range count {
				operators = append(operators, s.operator(t, count))
			}
			s.spread(t, count)
			jobs := s.submit(t, "before")
			s.haveRun(t, jobs)

			operators[0].kill(t)
			killed := time.Now()
			// These are submitted while no operator has the shard of the killed operator.
			orphans := s.submit(t, "meanwhile")
			s.haveRun(t, orphans)
			// The benchmark of shards measures this time where no other test runs.
			t.Logf("the jobs of the killed operator continue after %s", time.Since(killed))

			// The replacement is given a shard, although none is free.
			operators[0] = s.operator(t, count)
			s.spread(t, count)
			last := s.submit(t, "after")
			s.haveRun(t, last)
			for _, operator := range operators {
				operator.stop(t)
			}
			s.check(t, append(append(jobs, orphans...), last...))
			if holders, err := s.holders(t.Context(), count); err != nil || strings.Join(holders, "") != "" {
				t.Errorf("operators that stopped hold shards: %v, %v", holders, err)
			}
		})
	}
}

// occupy creates a pod that runs on a node, with the label of a shard.
func (s *sharded) occupy(t *testing.T, node string, shard int) {
	t.Helper()
	pod := &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{Namespace: "default", GenerateName: "other-", Labels: map[string]string{names.LabelShard: shards.Label(shard, s.count)}},
		Spec: corev1.PodSpec{NodeName: node, Containers: []corev1.Container{{
			Name: "a", Image: "a", Resources: corev1.ResourceRequirements{Requests: corev1.ResourceList{corev1.ResourceCPU: resource.MustParse("1")}},
		}}},
	}
	if err := s.api.Create(t.Context(), pod); err != nil {
		t.Fatal(err)
	}
}

func TestTheAllocatorCountsThePodsOfAllShards(t *testing.T) {
	t.Parallel()
	s := newSharded(t, 2)
	operators := []*process{s.operator(t, 2), s.operator(t, 2)}
	s.spread(t, 2)
	node := &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: "node"}}
	if err := s.api.Create(t.Context(), node); err != nil {
		t.Fatal(err)
	}
	// The API server taints new nodes.
	node.Spec.Taints = nil
	if err := s.api.Update(t.Context(), node); err != nil {
		t.Fatal(err)
	}
	node.Status.Allocatable = corev1.ResourceList{corev1.ResourceCPU: resource.MustParse("4"), corev1.ResourceMemory: resource.MustParse("4Gi"), corev1.ResourcePods: resource.MustParse("100")}
	node.Status.Capacity = node.Status.Allocatable
	node.Status.Conditions = []corev1.NodeCondition{{Type: corev1.NodeReady, Status: corev1.ConditionTrue}}
	if err := s.api.Status().Update(t.Context(), node); err != nil {
		t.Fatal(err)
	}
	for shard := range s.count {
		s.occupy(t, node.Name, shard)
	}

	job := pairJob("preemptible")
	spec := `{preemptible: true, elastic: {minReplicas: 1, maxReplicas: 4, task: worker}, tasks: [{type: none, name: worker, replicas: 4,
  template: {spec: {containers: [{name: di-container, image: di, resources: {requests: {cpu: 1}}}]}}}]}`
	decoded := map[string]any{}
	if err := yaml.Unmarshal([]byte(spec), &decoded); err != nil {
		t.Fatal(err)
	}
	job.Object["spec"] = decoded
	await(t, "the job is admitted", func(ctx context.Context) error { return s.api.Create(ctx, job.DeepCopy()) })
	await(t, "the job is placed", func(ctx context.Context) error {
		if err := s.api.Get(ctx, client.ObjectKeyFromObject(job), job); err != nil {
			return err
		}
		placed, _, err := unstructured.NestedStringSlice(job.Object, "status", "allocation")
		if err == nil && len(placed) == 0 {
			err = errors.New("it has no place")
		}
		return err
	})
	if placed, _, err := unstructured.NestedStringSlice(job.Object, "status", "allocation"); err != nil || len(placed) != 2 {
		t.Errorf("the job is placed on %v (%v), want two replicas: other pods have two of four processors", placed, err)
	}
	for _, operator := range operators {
		operator.stop(t)
	}
}

func TestOperatorsOfAnotherNumberOfShardsNeverActSideBySide(t *testing.T) {
	t.Parallel()
	s := newSharded(t, 2)
	old := []*process{s.operator(t, 2), s.operator(t, 2)}
	s.spread(t, 2)
	jobs := s.submit(t, "old")
	s.haveRun(t, jobs)

	// One operator leads with another number. Those of the earlier one release their shards, and do not act.
	next := s.operator(t, 1)
	next.logs(t, "Starting the operator")
	for _, operator := range old {
		operator.stop(t)
	}
	one := s.submit(t, "one")
	s.haveRun(t, one)
	again := s.operator(t, 2)
	again.logs(t, "Starting the operator")
	next.stop(t)
	await(t, "one operator holds both shards", func(ctx context.Context) error {
		holders, err := s.holders(ctx, 2)
		if err == nil && (holders[0] == "" || holders[0] != holders[1]) {
			err = errors.New(strings.Join(holders, " "))
		}
		return err
	})
	two := s.submit(t, "two")
	s.haveRun(t, two)
	again.stop(t)
	s.check(t, append(append(jobs, one...), two...))
}
