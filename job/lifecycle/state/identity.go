// Copyright The DI Orchestrator Authors.
// SPDX-License-Identifier: Apache-2.0

package state

import (
	"maps"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"opendilab.org/di-orchestrator/apis/v2alpha1"
	"opendilab.org/di-orchestrator/internal/conditions"
	"opendilab.org/di-orchestrator/internal/names"
	"opendilab.org/di-orchestrator/job/podstate"
	"opendilab.org/di-orchestrator/job/workload"
)

// Identity has the labels and annotations of a pod by which the operator, Services, di-server and users find
// it. It has only values that follow from what no one can change: the pod's name and variables, and the
// records of the job.
type Identity struct {
	labels, annotations []pair
}

type pair struct {
	key, value string
	isOmitted  bool
}

// Label adds a label.
func (i *Identity) Label(key, value string) {
	i.labels = append(i.labels, pair{key: key, value: value})
}

// Annotate adds an annotation.
func (i *Identity) Annotate(key, value string) {
	i.annotations = append(i.annotations, pair{key: key, value: value})
}

// AnnotateOrOmit adds an annotation that the pod must not have if the value is empty.
func (i *Identity) AnnotateOrOmit(key, value string) {
	i.annotations = append(i.annotations, pair{key, value, value == ""})
}

// LabelAll adds labels.
func (i *Identity) LabelAll(labels map[string]string) {
	for key, value := range labels {
		i.Label(key, value)
	}
}

// Identify completes the identity of a pod.
type Identify func(*corev1.Pod, *Identity)

// Restore replaces the pods that others changed by copies with their identity and their owner. All rules decide
// by the copies, so a changed label or rank costs no pod. RestorePods writes them.
func (in *Input) Restore(identify Identify) {
	var identity Identity
	isCopied := false
	for i, pod := range in.Pods {
		identity.labels, identity.annotations = identity.labels[:0], identity.annotations[:0]
		identify(pod, &identity)
		if in.isOfOtherShard(pod) {
			identity.Label(names.LabelShard, in.ShardLabel)
		}
		restored := in.restored(pod, &identity)
		if restored == nil {
			continue
		}
		if !isCopied {
			in.Pods, isCopied = slices.Clone(in.Pods), true
		}
		in.Pods[i], in.PodNamed[pod.Name] = restored, restored
		in.Changed = append(in.Changed, restored)
	}
}

// isOfOtherShard reports whether a pod has the label of another shard than its job, such as 2-of-2. A label of an earlier
// number of shards stays.
func (in *Input) isOfOtherShard(pod *corev1.Pod) bool {
	label, isLabelled := pod.Labels[names.LabelShard]
	count := func(label string) string { return label[strings.LastIndexByte(label, '-')+1:] }
	return isLabelled && in.ShardLabel != "" && label != in.ShardLabel && count(label) == count(in.ShardLabel)
}

// restored returns a copy of a pod with its identity and its owner; nil if others changed neither.
func (in *Input) restored(pod *corev1.Pod, identity *Identity) *corev1.Pod {
	labels, annotations := differing(pod.Labels, identity.labels), differing(pod.Annotations, identity.annotations)
	isOwned := metav1.IsControlledBy(pod, in.Job)
	if labels == nil && annotations == nil && isOwned {
		return nil
	}
	copied := *pod
	if labels != nil {
		copied.Labels = labels
	}
	if annotations != nil {
		copied.Annotations = annotations
	}
	if !isOwned {
		copied.OwnerReferences = OwnedBy(pod, in.Job, in.Settings.JobVersion)
	}
	return &copied
}

// differing returns a copy of metadata with the values that it lacks, without those that it must not have; nil if
// it is as wanted.
func differing(stored map[string]string, wanted []pair) map[string]string {
	var copied map[string]string
	for _, each := range wanted {
		if value, has := stored[each.key]; has != each.isOmitted && value == each.value {
			continue
		}
		if copied == nil {
			if copied = maps.Clone(stored); copied == nil {
				copied = map[string]string{}
			}
		}
		if copied[each.key] = each.value; each.isOmitted {
			delete(copied, each.key)
		}
	}
	return copied
}

// OwnedBy returns the owner references of an object with the one to its job, which others changed.
func OwnedBy(object metav1.Object, job *v2alpha1.DIJob, version string) []metav1.OwnerReference {
	others := slices.DeleteFunc(slices.Clone(object.GetOwnerReferences()), func(reference metav1.OwnerReference) bool {
		return reference.UID == job.UID
	})
	return append([]metav1.OwnerReference{*workload.Owner(job, version)}, others...)
}

// IsDisowned reports whether an object refers to a job, but no longer as its controller. An object with only the labels of
// a job is not its own.
func IsDisowned(object metav1.Object, job *v2alpha1.DIJob) bool {
	return metav1.GetControllerOf(object) == nil &&
		slices.ContainsFunc(object.GetOwnerReferences(), func(reference metav1.OwnerReference) bool { return reference.UID == job.UID })
}

// MustHaveNoPods reports whether a job was suspended, or is held while it is being deleted, and no status records
// that yet.
func MustHaveNoPods(job *v2alpha1.DIJob) bool {
	return IsSuspended(job) && !IsFinished(&job.Status) && !conditions.IsTrue(&job.Status, v2alpha1.ConditionSuspended) ||
		IsHeld(job) && !conditions.IsTrue(&job.Status, v2alpha1.ConditionTerminating)
}

// RestorePods puts back what others changed of pods that still run, and reports pods without an owner. The operator does
// not take these back: a deletion of an earlier job of the name may have orphaned them.
func (p *Plan) RestorePods() Result {
	for _, name := range slices.Sorted(maps.Keys(p.in.Strays)) {
		p.IsTaken("pod", name, p.in.Strays)
	}
	for _, pod := range p.in.Changed {
		if !podstate.Terminating(pod) {
			p.Decision.RestorePods = append(p.Decision.RestorePods, pod)
		}
	}
	return Continue
}
