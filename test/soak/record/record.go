// Copyright The DI Orchestrator Authors.
// SPDX-License-Identifier: Apache-2.0

// Package record reads the changes of jobs and of their objects from etcd, in the order in which etcd stored them.
package record

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/serializer"
	"k8s.io/apimachinery/pkg/types"
	clientgoscheme "k8s.io/client-go/kubernetes/scheme"
	"k8s.io/utils/ptr"

	"opendilab.org/di-orchestrator/apis/v2alpha1"
	"opendilab.org/di-orchestrator/conversion"
	"opendilab.org/di-orchestrator/internal/names"
	"opendilab.org/di-orchestrator/test/soak/history"
	"opendilab.org/di-orchestrator/test/testkit/etcd"
)

// registry is the prefix of all objects of an API server.
const registry = "/registry/"

// identity is what a pod was created as. A stranger may change its labels and annotations later.
type identity struct{ owner, task, member, unit, attempt string }

// Recorder adds the changes of one namespace, and of nodes, to a log.
type Recorder struct {
	Store     etcd.Store
	Namespace string
	Log       *history.Log

	decoder runtime.Decoder
	pods    map[types.UID]identity
}

// Run records until the context ends. It fails if the history has a gap.
func (r *Recorder) Run(ctx context.Context, from int64) error {
	scheme := runtime.NewScheme()
	if err := clientgoscheme.AddToScheme(scheme); err != nil {
		return fmt.Errorf("registering kinds: %w", err)
	}
	r.decoder, r.pods = serializer.NewCodecFactory(scheme).UniversalDeserializer(), map[types.UID]identity{}
	if err := r.Store.Follow(ctx, registry, from, r.add); err != nil && ctx.Err() == nil {
		return err
	}
	return nil
}

func (r *Recorder) add(change etcd.Change) error {
	key := strings.TrimPrefix(change.Key, registry)
	kind := ""
	switch {
	case strings.HasPrefix(key, "pods/"+r.Namespace+"/"):
		kind = history.Pod
	case strings.HasPrefix(key, "services/specs/"+r.Namespace+"/"):
		kind = history.Service
	case strings.HasPrefix(key, "minions/"):
		kind = history.Node
	case strings.HasPrefix(key, v2alpha1.GroupName+"/dijobs/"+r.Namespace+"/"):
		kind = history.Job
	case strings.HasPrefix(key, v2alpha1.GroupName+"/memberships/"+r.Namespace+"/"):
		kind = history.Membership
	default:
		return nil
	}
	raw := change.Value
	if raw == nil {
		raw = change.Before
	}
	made, err := r.project(kind, raw)
	if err != nil {
		return fmt.Errorf("decoding %s at revision %d: %w", change.Key, change.Revision, err)
	}
	made.Revision, made.Kind, made.Gone = change.Revision, kind, change.Value == nil
	r.Log.Add(history.Entry{Change: made})
	return nil
}

// project returns what the checker needs of a stored object.
func (r *Recorder) project(kind string, raw []byte) (*history.Change, error) {
	switch kind {
	case history.Job:
		return projectJob(raw)
	case history.Membership:
		return projectMembership(raw)
	}
	object, _, err := r.decoder.Decode(raw, nil, nil)
	if err != nil {
		return nil, err
	}
	switch object := object.(type) {
	case *corev1.Pod:
		return r.projectPod(object), nil
	case metav1.Object:
		return changeOf(object), nil
	}
	return nil, errors.New("it has no metadata")
}

func changeOf(object metav1.Object) *history.Change {
	change := &history.Change{
		Namespace: object.GetNamespace(), Name: object.GetName(), UID: string(object.GetUID()), Deleting: object.GetDeletionTimestamp() != nil,
	}
	for _, owner := range object.GetOwnerReferences() {
		if owner.Kind == "DIJob" {
			change.Owner = string(owner.UID)
		}
	}
	return change
}

func (r *Recorder) projectPod(pod *corev1.Pod) *history.Change {
	change := changeOf(pod)
	known, has := r.pods[pod.UID]
	if !has {
		known = identity{
			owner: change.Owner, task: names.RoleOrTask(pod), member: memberOf(pod), unit: unitOf(pod),
			attempt: strings.Join([]string{
				pod.Annotations[names.AnnotationAttempt], pod.Annotations[names.AnnotationReschedule], pod.Annotations[names.AnnotationReplicaRestart],
			}, "/"),
		}
		r.pods[pod.UID] = known
	}
	change.Owner = known.owner
	change.Pod = &history.PodState{
		Task: known.task, Member: known.member, Unit: known.unit, Attempt: known.attempt, Phase: string(pod.Status.Phase), Node: pod.Spec.NodeName,
		Ready: slices.ContainsFunc(pod.Status.Conditions, func(condition corev1.PodCondition) bool {
			return condition.Type == corev1.PodReady && condition.Status == corev1.ConditionTrue
		}),
	}
	return change
}

// unitOf returns the UID of the pod that owns a pod; "" for none.
func unitOf(pod *corev1.Pod) string {
	for _, owner := range pod.OwnerReferences {
		if owner.Kind == "Pod" {
			return string(owner.UID)
		}
	}
	return ""
}

// memberOf returns which replica of its job a pod is. DDP learners have no number of their own, but names.
func memberOf(pod *corev1.Pod) string {
	role := names.RoleOf(pod)
	if role == names.ReplicaTypeCoordinator {
		return string(names.ReplicaTypeCoordinator)
	}
	if role == names.ReplicaTypeDDPLearner {
		return pod.Name
	}
	return cmp.Or(pod.Annotations[names.AnnotationSlot], pod.Annotations[names.AnnotationRank])
}

func projectJob(raw []byte) (*history.Change, error) {
	hub, err := conversion.Convert(raw, v2alpha1.GroupVersion.String())
	if err != nil {
		return nil, err
	}
	job := &v2alpha1.DIJob{}
	if err := json.Unmarshal(hub, job); err != nil {
		return nil, err
	}
	change := changeOf(job)
	change.Job = &history.JobState{
		CoordinatorLed: job.Spec.Lifecycle == v2alpha1.LifecycleCoordinatorLed, Generation: job.Generation,
		Suspended: job.Spec.Suspend != nil && *job.Spec.Suspend,
	}
	projectSpec(change.Job, &job.Spec)
	projectStatus(change.Job, &job.Status)
	return change, nil
}

func projectSpec(state *history.JobState, spec *v2alpha1.DIJobSpec) {
	for i := range spec.Tasks {
		task := &spec.Tasks[i]
		state.Tasks = append(state.Tasks, history.TaskState{
			Name: names.TaskName(task), Replicas: int(ptr.Deref(task.Replicas, 1)), Drain: task.Drain != nil,
		})
	}
	if elastic := names.ElasticTask(spec); elastic >= 0 {
		state.Elastic, state.ElasticReplicas = state.Tasks[elastic].Name, state.Tasks[elastic].Replicas
	}
	if spec.Elastic != nil && spec.Elastic.Replicas != nil {
		state.ElasticReplicas = int(*spec.Elastic.Replicas)
	}
}

func projectStatus(state *history.JobState, status *v2alpha1.DIJobStatus) {
	state.Phase, state.Observed = string(status.Phase), status.ObservedGeneration
	state.Total, state.Restarts, state.Reschedules = int(status.Replicas), int(status.Restarts), int(status.Reschedules)
	if scaling := status.Scaling; scaling != nil {
		state.LastTotal = int(scaling.LastReplicas)
		if scaling.Plan != nil {
			state.Plan = scaling.Plan.UID + "/" + string(scaling.Plan.Phase)
		}
	}
}

func projectMembership(raw []byte) (*history.Change, error) {
	list := &v2alpha1.Membership{}
	if err := json.Unmarshal(raw, list); err != nil {
		return nil, err
	}
	change := changeOf(list)
	change.Owner = cmp.Or(change.Owner, string(list.Spec.JobUID))
	change.Membership = &history.MembershipState{}
	for i := range list.Spec.Members {
		member := &list.Spec.Members[i]
		pods, mark := 1, ""
		if len(member.DDPGPUs) > 0 {
			pods += len(member.DDPGPUs)
		}
		if member.Resources.CPUs != nil {
			mark = member.Resources.CPUs.String()
		}
		change.Membership.Members = append(change.Membership.Members, history.Member{Slot: member.Slot, Task: string(member.Task), Pods: pods, Mark: mark})
	}
	return change, nil
}
