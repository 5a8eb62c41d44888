// Copyright The DI Orchestrator Authors.
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"encoding/json"
	"fmt"
	"maps"
	"net/http"
	"slices"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"opendilab.org/di-orchestrator/apis/v2alpha1"
	"opendilab.org/di-orchestrator/cmd/kubectl-di/internal/ui/api"
	"opendilab.org/di-orchestrator/internal/names"
	"opendilab.org/di-orchestrator/test/testkit/expect"
	"opendilab.org/di-orchestrator/test/testkit/jobs"
)

func jobPath(job *v2alpha1.DIJob) string {
	return "/api/v1/namespaces/" + job.Namespace + "/jobs/" + job.Name
}

// partNamed returns a part of a job.
func partNamed(t *testing.T, detail *api.JobDetail, name string) api.Part {
	t.Helper()
	at := slices.IndexFunc(detail.Parts, func(part api.Part) bool { return part.Name == name })
	if at < 0 {
		t.Fatalf("no part is %s: %+v", name, detail.Parts)
	}
	return detail.Parts[at]
}

func TestPageOfACoordinatorLedJobShowsItsPartsAndFollowsThem(t *testing.T) {
	t.Parallel()
	w, ns := inNamespace(t)
	job := w.trainer(t, ns, "cartpole")
	b := w.browse(t, ns)
	events := b.listen(t, jobPath(job)+"/stream")
	first := until(t, b, events, "job", "JobDetail", func(detail api.JobDetail) bool { return len(detail.Parts) == 1 })
	if part := partNamed(t, &first, "coordinator"); part.Role != "coordinator" || part.Pod != "cartpole-coordinator" || len(first.Edges) != 1 {
		t.Errorf("the first page is %+v", first)
	}
	var list v2alpha1.Membership
	expect.NoError(t, w.live.Get(t.Context(), client.ObjectKeyFromObject(job), &list))
	list.Spec.Members = []v2alpha1.Member{
		{Slot: "a", Task: v2alpha1.TaskTypeCollector, PodName: "cartpole-collector-a"},
		{Slot: "b", Task: v2alpha1.TaskTypeLearner, PodName: "cartpole-aggregator-b", DDPGPUs: []int32{2, 2}},
	}
	expect.NoError(t, w.live.Update(t.Context(), &list))
	wanted := until(t, b, events, "job", "JobDetail", func(detail api.JobDetail) bool { return len(detail.Parts) == 5 })
	showsMissing(t, &wanted)
	w.pod(t, job, "cartpole-collector-a", names.ReplicaLabels("cartpole", names.ReplicaTypeCollector, "cartpole-collector-a"))
	w.event(t, job, corev1.EventTypeNormal, "Resized", "collectors: 0 to 1")
	w.setStatus(t, job, func(status *v2alpha1.DIJobStatus) {
		status.Phase, status.Conditions = v2alpha1.JobStarting, []v2alpha1.DIJobCondition{{
			Type: v2alpha1.ConditionReplicasStalled, Status: corev1.ConditionTrue, Reason: v2alpha1.ReasonImagePull, Message: "image di cannot be pulled",
		}}
		status.Profilings = ptr.To(jobs.Raw(`{"reward": 12.5, "throughput": [{"replicas": 2, "per_second": 40}]}`))
	})
	last := until(t, b, events, "job", "JobDetail", func(detail api.JobDetail) bool {
		return detail.Waiting != nil && slices.ContainsFunc(detail.Timeline, func(moment api.Moment) bool { return moment.Kind == "resize" }) &&
			partNamed(t, &detail, "collector-a").Pod != "" && len(detail.Curves) > 0
	})
	explains(t, &last)
	expect.NoError(t, w.live.Delete(t.Context(), job))
	for next := range events {
		if next.name == "gone" {
			return
		}
	}
	t.Error("the stream does not tell that the job is gone")
}

// showsMissing checks the members that have no pods.
func showsMissing(t *testing.T, wanted *api.JobDetail) {
	t.Helper()
	if part := partNamed(t, wanted, "collector-a"); part.State != "Missing" || part.Pod != "" {
		t.Errorf("the desired collector is %+v", part)
	}
	if part := partNamed(t, wanted, "aggregator-b"); part.Unit != "aggregator-b" || part.Role != "aggregator" {
		t.Errorf("the desired aggregator is %+v", part)
	}
}

// explains checks what the page of a stalled job says.
func explains(t *testing.T, last *api.JobDetail) {
	t.Helper()
	if last.Waiting.Why != "image di cannot be pulled" || len(last.Waiting.Remedies) != 1 || !last.Conditions[0].Trouble {
		t.Errorf("why it waits: %+v, %+v", last.Waiting, last.Conditions)
	}
	if edge := (api.Edge{From: "coordinator", To: "collector-a", Kind: "commands"}); !slices.Contains(last.Edges, edge) {
		t.Errorf("the edges are %+v", last.Edges)
	}
	if last.Curves[0].Name != "reward" || last.Curves[0].Points[0][1] != 12.5 || last.Curves[len(last.Curves)-1].X != "replicas" {
		t.Errorf("the curves are %+v", last.Curves)
	}
}

// acted posts an action that must succeed.
func (b *browser) acted(t *testing.T, job *v2alpha1.DIJob, action, body string) api.ActionResult {
	t.Helper()
	code, answer := b.post(t, jobPath(job)+"/actions/"+action, body)
	if code != http.StatusOK {
		t.Fatalf("%s: status %d: %s", action, code, answer)
	}
	b.conforms(t, "ActionResult", answer)
	var result api.ActionResult
	expect.NoError(t, json.Unmarshal(answer, &result))
	return result
}

func TestActionsOfThePageTellWhatTheyDoAndDoIt(t *testing.T) {
	t.Parallel()
	w, ns := inNamespace(t)
	job := w.scalable(t, ns, "pong", nil)
	b := w.browse(t, ns)
	now := func() *v2alpha1.DIJob {
		read := &v2alpha1.DIJob{}
		expect.NoError(t, w.live.Get(t.Context(), client.ObjectKeyFromObject(job), read))
		return read
	}
	if result := b.acted(t, job, "suspend", `{"dryRun": true}`); result.Done || len(result.Effects) == 0 || now().Spec.Suspend != nil {
		t.Errorf("a dry run did %+v", result)
	}
	if result := b.acted(t, job, "suspend", `{"dryRun": false}`); !result.Done || now().Spec.Suspend == nil || !*now().Spec.Suspend {
		t.Errorf("suspending did %+v", result)
	}
	b.acted(t, job, "resume", `{"dryRun": false}`)
	if result := b.acted(t, job, "resize", `{"dryRun": true, "replicas": 5}`); result.Effects[0] != "The replicas of task collector change from 3 to 5." {
		t.Errorf("a resize would do %+v", result)
	}
	b.acted(t, job, "resize", `{"dryRun": false, "replicas": 5, "task": "collector"}`)
	if *now().Spec.Suspend || *now().Spec.Elastic.Replicas != 5 {
		t.Errorf("the job became %+v", now().Spec)
	}
	pod := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: ns, Name: names.WorkerPod("pong", "collector", 0)}}
	b.acted(t, job, "restart", `{"dryRun": false, "replica": "collector-0"}`)
	if err := w.live.Get(t.Context(), client.ObjectKeyFromObject(pod), pod); !apierrors.IsNotFound(err) && pod.DeletionTimestamp == nil {
		t.Errorf("pod %s is still there: %v", pod.Name, err)
	}
	if result := b.acted(t, job, "delete", `{"dryRun": false}`); !result.Done {
		t.Errorf("deleting did %+v", result)
	}
	if err := w.live.Get(t.Context(), client.ObjectKeyFromObject(job), job); !apierrors.IsNotFound(err) && job.DeletionTimestamp == nil {
		t.Errorf("the job is still there: %v", err)
	}
}

func TestWrongActionsAreRefusedBeforeTheyReachTheAPIServer(t *testing.T) {
	t.Parallel()
	w, ns := inNamespace(t)
	job := w.scalable(t, ns, "pong", nil)
	b := w.browse(t, ns)
	for body, want := range map[string]int{
		`{}`: http.StatusBadRequest, `{"dryRun": 1}`: http.StatusBadRequest, `{"dryRun": true, "colour": 1}`: http.StatusBadRequest,
		`{"dryRun": true, "replicas": -1}`: http.StatusBadRequest, `{"dryRun": true, "replicas": 3, "task": "x"}`: http.StatusBadRequest,
		`{"dryRun": true, "replicas": 3, "uid": "other"}`: http.StatusConflict, strings.Repeat(" ", 70_000) + `{"dryRun": true}`: http.StatusBadRequest,
	} {
		if code, answer := b.post(t, jobPath(job)+"/actions/resize", body); code != want {
			t.Errorf("%s: status %d: %s", body, code, answer)
		}
	}
}

func TestViewerSeesJobsAndIsRefusedByTheAPIServer(t *testing.T) {
	t.Parallel()
	w, ns := inNamespace(t)
	job := w.scalable(t, ns, "pong", nil)
	view := rule(v2alpha1.GroupName, "dijobs", "get")
	view.Verbs = append(view.Verbs, "list", "watch")
	w.grant(t, ns, user("vera"), view)
	b := w.browse(t, ns, "--as", "vera")
	var detail api.JobDetail
	b.get(t, jobPath(job), "JobDetail", &detail)
	for _, action := range detail.Actions {
		if action.Allowed || action.Reason == "" {
			t.Errorf("a viewer may %+v", action)
		}
	}
	if len(detail.Notes) != 3 || !strings.Contains(detail.Notes[0], "You may not read") {
		t.Errorf("the notes are %q", detail.Notes)
	}
	for action, body := range map[string]string{
		"suspend": `{"dryRun": false}`, "resume": `{"dryRun": true}`, "resize": `{"dryRun": false, "replicas": 9}`, "delete": `{"dryRun": false}`,
		"restart": `{"dryRun": false, "replica": "collector-0"}`,
	} {
		code, answer := b.post(t, jobPath(job)+"/actions/"+action, body)
		b.conforms(t, "Error", answer)
		if code != http.StatusForbidden || !strings.Contains(string(answer), `cannot`) {
			t.Errorf("%s: status %d: %s", action, code, answer)
		}
	}
	var page api.Cluster
	b.get(t, "/api/v1/cluster", "Cluster", &page)
	if len(page.Nodes) != 0 || !strings.Contains(strings.Join(page.Notes, "\n"), "You may not list the nodes") {
		t.Errorf("the cluster is %+v", page)
	}
	if message := b.refused(t, "/api/v1/namespaces/kube-system/jobs/x", http.StatusForbidden); !strings.Contains(message, "only the jobs of namespace "+ns) {
		t.Errorf("another namespace is refused by %q", message)
	}
}

func TestClusterShowsWhoseGPUsAreUsedAndWhyJobsWait(t *testing.T) {
	t.Parallel()
	w, ns := inNamespace(t)
	job := w.workers(t, ns, "pong", v2alpha1.Task{Type: v2alpha1.TaskTypeCollector})
	node := &corev1.Node{ObjectMeta: metav1.ObjectMeta{GenerateName: "gpus-"}}
	expect.NoError(t, w.live.Create(t.Context(), node))
	node.Status.Allocatable = corev1.ResourceList{names.DefaultGPU: resource.MustParse("8")}
	expect.NoError(t, w.live.Status().Update(t.Context(), node))
	eight := corev1.ResourceRequirements{Limits: corev1.ResourceList{names.DefaultGPU: resource.MustParse("3")}}
	expect.NoError(t, w.live.Create(t.Context(), &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{
			Namespace: ns, Name: "pong-collector-1",
			OwnerReferences: jobs.Owner(job),
		},
		Spec: corev1.PodSpec{ServiceAccountName: account, NodeName: node.Name, Containers: []corev1.Container{{Name: "c", Image: "di", Resources: eight}}},
	}))
	w.setStatus(t, job, func(status *v2alpha1.DIJobStatus) {
		status.ObservedGeneration, status.Phase = job.Generation, v2alpha1.JobPending
		status.Conditions = []v2alpha1.DIJobCondition{{
			Type: v2alpha1.ConditionAllocated, Status: corev1.ConditionFalse, Reason: v2alpha1.ReasonInsufficientCapacity, Message: "no node has 4 GPUs",
		}}
	})
	b := w.browse(t, ns)
	page := until(t, b, b.listen(t, "/api/v1/cluster/stream"), "cluster", "Cluster", func(page api.Cluster) bool { return len(page.Waiting) == 1 })
	at := slices.IndexFunc(page.Nodes, func(one api.Node) bool { return one.Name == node.Name })
	if at < 0 || page.Nodes[at].GPUs != (api.GPUs{Total: 8, Used: 3, Free: 5}) || !slices.Equal(page.Nodes[at].Jobs, []api.Share{{Namespace: ns, Name: "pong", GPUs: 3, Pods: 1}}) {
		t.Errorf("the nodes are %+v", page.Nodes)
	}
	if page.Waiting[0].Why != "no node has 4 GPUs" || len(page.Waiting[0].Remedies) == 0 || page.Rounds[0].Reason != v2alpha1.ReasonInsufficientCapacity {
		t.Errorf("what waits: %+v, rounds: %+v", page.Waiting, page.Rounds)
	}
	if len(page.Takeovers) < 2 || page.Takeovers[1].What != "storage migration of dijobs" {
		t.Errorf("the takeovers are %+v", page.Takeovers)
	}
}

func TestClusterShowsWhatNodesUseWhereItIsMeasured(t *testing.T) {
	t.Parallel()
	w, ns := inNamespace(t)
	node := &corev1.Node{ObjectMeta: metav1.ObjectMeta{GenerateName: "measured-"}}
	expect.NoError(t, w.live.Create(t.Context(), node))
	node.Status.Allocatable = corev1.ResourceList{corev1.ResourceCPU: resource.MustParse("8"), corev1.ResourceMemory: resource.MustParse("4Gi")}
	expect.NoError(t, w.live.Status().Update(t.Context(), node))
	w.measured(t, node.Name, "2500m", "1Gi")
	var page api.Cluster
	b := w.browse(t, ns)
	b.get(t, "/api/v1/cluster", "Cluster", &page)
	at := slices.IndexFunc(page.Nodes, func(one api.Node) bool { return one.Name == node.Name })
	if at < 0 || page.Nodes[at].CPU != (api.Amount{Allocatable: 8000, Used: 2500}) || page.Nodes[at].Memory != (api.Amount{Allocatable: 4 << 30, Used: 1 << 30}) {
		t.Errorf("the nodes are %+v", page.Nodes)
	}
	if page.CPU.Used < 2500 {
		t.Errorf("in all, %d thousandths of a CPU are in use: want at least 2500", page.CPU.Used)
	}
	broken := objects(t, `{apiVersion: metrics.k8s.io/v1beta1, kind: NodeMetrics, metadata: {name: broken}, usage: {cpu: 2}}`)[0]
	expect.NoError(t, w.live.Create(t.Context(), broken))
	b.get(t, "/api/v1/cluster", "Cluster", &page)
	if notes := strings.Join(page.Notes, "\n"); !strings.Contains(notes, "What nodes use is left out: reading what nodes use: reading the NodeMetrics of node broken") {
		t.Errorf("with a measurement that cannot be read, the notes are %q", notes)
	}
	expect.NoError(t, w.live.Delete(t.Context(), broken))
}

// measured says what a node uses. The API server serves NodeMetrics from a definition, and not from measurements as one with
// metrics-server does.
func (w *world) measured(t *testing.T, node, cpu, memory string) {
	t.Helper()
	definition := objects(t, `{apiVersion: apiextensions.k8s.io/v1, kind: CustomResourceDefinition,
  metadata: {name: nodes.metrics.k8s.io, annotations: {api-approved.kubernetes.io: "unapproved, for a test"}},
  spec: {group: metrics.k8s.io, scope: Cluster, names: {kind: NodeMetrics, listKind: NodeMetricsList, plural: nodes, singular: node},
  versions: [{name: v1beta1, served: true, storage: true, schema: {openAPIV3Schema: {type: object, x-kubernetes-preserve-unknown-fields: true}}}]}}`)[0]
	expect.NoError(t, client.IgnoreAlreadyExists(w.live.Create(t.Context(), definition)))
	metrics := objects(t, fmt.Sprintf(`{apiVersion: metrics.k8s.io/v1beta1, kind: NodeMetrics, metadata: {name: %s}, usage: {cpu: %q, memory: %q}}`, node, cpu, memory))[0]
	eventually(t, "NodeMetrics are served", func() bool { return w.live.Create(t.Context(), metrics.DeepCopy()) == nil })
}

func TestManifestsOfAJobAreComparedLineByLine(t *testing.T) {
	t.Parallel()
	w, ns := inNamespace(t)
	job := w.trainer(t, ns, "cartpole")
	b := w.browse(t, ns)
	for _, version := range []string{"v1alpha1", "v2alpha1"} {
		var manifest api.Manifest
		b.get(t, jobPath(job)+"/manifest?version="+version, "Manifest", &manifest)
		if !strings.Contains(manifest.YAML, "apiVersion: diengine.opendilab.org/"+version+"\n") || strings.Contains(manifest.YAML, "managedFields") {
			t.Errorf("%s is\n%s", version, manifest.YAML)
		}
	}
	b.refused(t, jobPath(job)+"/manifest?version=v3", http.StatusBadRequest)
	var difference api.Difference
	b.get(t, jobPath(job)+"/difference", "Difference", &difference)
	if !slices.Contains(difference.Lines, api.DiffLine{Kind: "removed", Text: "apiVersion: diengine.opendilab.org/v1alpha1"}) {
		t.Errorf("the difference is %+v", difference)
	}
}

// logged returns a job with collectors, and the kubelet that serves logs of its pods.
func (w *world) logged(t *testing.T, namespace string) (*v2alpha1.DIJob, *logKubelet) {
	t.Helper()
	job := w.job(t, namespace, "cartpole", v2alpha1.LifecycleCoordinatorLed, v2alpha1.Task{Type: v2alpha1.TaskTypeCoordinator}, v2alpha1.Task{Type: v2alpha1.TaskTypeCollector})
	return job, w.newLogKubelet(t, job)
}

func TestLogsOfAllReplicasAreSearchedAndFollowed(t *testing.T) {
	t.Parallel()
	w, ns := inNamespace(t)
	job, k := w.logged(t, ns)
	k.replica(t, names.ReplicaTypeCoordinator, "", "round 1", "<b>Reward</b> 7")
	collector := k.replica(t, names.ReplicaTypeCollector, "bbbbb", "plays", "reward 3")
	b := w.browse(t, ns)
	count := 0
	for next := range b.listen(t, jobPath(job)+"/logs?search=REWARD") {
		if next.name == "lines" {
			b.conforms(t, "LogLines", next.data)
			var lines []api.LogLine
			expect.NoError(t, json.Unmarshal(next.data, &lines))
			count += len(lines)
		}
	}
	if count != 2 {
		t.Errorf("%d lines were found", count)
	}
	events := b.listen(t, jobPath(job)+"/logs?follow=true&replica=collector-bbbbb&tail=1")
	until(t, b, events, "lines", "LogLines", func(lines []api.LogLine) bool {
		return lines[0].Text == "reward 3" && lines[0].Replica == "collector-bbbbb"
	})
	k.write(collector, names.Container, "late")
	until(t, b, events, "lines", "LogLines", func(lines []api.LogLine) bool { return lines[0].Text == "late" })
}

func TestLogsOfThePreviousAttemptAreThoseBeforeARestart(t *testing.T) {
	t.Parallel()
	w, ns := inNamespace(t)
	job, k := w.logged(t, ns)
	pod := k.replica(t, names.ReplicaTypeCoordinator, "", "first attempt")
	k.end(t, pod, names.Container, 1)
	k.start(t, pod, names.Container, "second attempt")
	b := w.browse(t, ns)
	var texts []string
	for next := range b.listen(t, jobPath(job)+"/logs?previous=true") {
		if next.name == "lines" {
			var lines []api.LogLine
			expect.NoError(t, json.Unmarshal(next.data, &lines))
			for _, line := range lines {
				texts = append(texts, line.Text)
			}
		}
	}
	if !slices.Equal(texts, []string{"first attempt"}) {
		t.Errorf("the lines are %q", texts)
	}
	if message := b.refused(t, jobPath(job)+"/logs?previous=true&follow=true", http.StatusBadRequest); !strings.Contains(message, "previous and follow") {
		t.Errorf("both are refused by %q", message)
	}
}

func TestLogsOfChosenReplicasLeaveOutTheOthers(t *testing.T) {
	t.Parallel()
	w, ns := inNamespace(t)
	job, k := w.logged(t, ns)
	k.replica(t, names.ReplicaTypeCoordinator, "", "reward 1")
	collectors := []*corev1.Pod{k.replica(t, names.ReplicaTypeCollector, "aaaaa", "reward 2"), k.replica(t, names.ReplicaTypeCollector, "bbbbb", "reward 3")}
	left := k.replica(t, names.ReplicaTypeCollector, "ccccc", "reward 4")
	b := w.browse(t, ns)
	events := b.listen(t, jobPath(job)+"/logs?follow=true&search=reward&replica=collector-aaaaa&replica=collector-bbbbb")
	seen := map[string]int{}
	count := func(lines []api.LogLine) bool {
		for _, line := range lines {
			seen[line.Replica+": "+line.Text]++
		}
		return len(seen) >= 2
	}
	until(t, b, events, "lines", "LogLines", count)
	k.write(left, names.Container, "reward 5")
	for _, pod := range collectors {
		k.write(pod, names.Container, "loss 1", "reward 6")
	}
	until(t, b, events, "lines", "LogLines", func(lines []api.LogLine) bool { return count(lines) && len(seen) >= 4 })
	want := map[string]int{"collector-aaaaa: reward 2": 1, "collector-aaaaa: reward 6": 1, "collector-bbbbb: reward 3": 1, "collector-bbbbb: reward 6": 1}
	if !maps.Equal(seen, want) {
		t.Errorf("got %v, want %v", seen, want)
	}
}
