// Copyright The DI Orchestrator Authors.
// SPDX-License-Identifier: Apache-2.0

package workload

import (
	"fmt"
	"math"
	"math/big"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	"k8s.io/utils/ptr"

	"opendilab.org/di-orchestrator/apis/v2alpha1"
	"opendilab.org/di-orchestrator/internal/names"
	"opendilab.org/di-orchestrator/internal/quantity"
)

// A job records the CPU and memory that its pods have instead of their template's. Both are requests
// of the main container. A limit of the template keeps its ratio to the request:
//
//   - request and limit: the new limit is limit × new request / request, rounded up.
//   - only a limit: it is also the request, so both become the new request.
//   - only a request, or neither: the request is set, and no limit.
//
// A pod records in an annotation which resources it was built for. Admission may change the resources
// of its containers, so those do not show it.

// ReplicaID identifies a replica for its overrides.
type ReplicaID struct {
	// Task is the name of its task.
	Task string
	// Index is its index in the task.
	Index int32
	// Slot is the slot of a member of a coordinator-led job, which has no index.
	Slot string
	// Requested are the resources that the member's request names. They replace the template's.
	Requested v2alpha1.MemberResources
}

// Override returns an override of this replica alone, without resources.
func (id *ReplicaID) Override() v2alpha1.ResourceOverride {
	if id.Slot != "" {
		return v2alpha1.ResourceOverride{Task: id.Task, Slot: id.Slot}
	}
	index := id.Index
	return v2alpha1.ResourceOverride{Task: id.Task, Index: &index}
}

// isOf reports whether an override is of this replica alone.
func (id *ReplicaID) isOf(override *v2alpha1.ResourceOverride) bool {
	if id.Slot != "" || override.Slot != "" {
		return override.Slot == id.Slot
	}
	return override.Index != nil && *override.Index == id.Index
}

// Covers reports whether an override is of a replica, or of its whole task.
func (id *ReplicaID) Covers(override *v2alpha1.ResourceOverride) bool {
	return override.Task == id.Task && (IsWhole(override) || id.isOf(override))
}

// keeps reports whether the member's request stays beside an override of its whole task: it names as
// much memory as other members needed, or at most what can be scheduled.
func (id *ReplicaID) keeps(override *v2alpha1.ResourceOverride, name corev1.ResourceName) bool {
	requested := id.Requested.CPUs
	if name == corev1.ResourceMemory {
		requested = id.Requested.Memory
	}
	if !IsWhole(override) || !isPositive(requested) {
		return false
	}
	order := requested.Cmp(*AmountOf(override.Resources, name))
	return override.Reason == v2alpha1.OverrideOutOfMemory && order >= 0 || override.Reason == v2alpha1.OverrideUnschedulable && order <= 0
}

// IsWhole reports whether an override is of a whole task.
func IsWhole(override *v2alpha1.ResourceOverride) bool {
	return override.Index == nil && override.Slot == ""
}

// OverrideOf returns the CPU and memory that a replica has instead of its template's.
func OverrideOf(overrides []v2alpha1.ResourceOverride, id ReplicaID) v2alpha1.ReplicaResources {
	var found v2alpha1.ReplicaResources
	if winner := WinnerOf(overrides, id, corev1.ResourceCPU); winner != nil {
		found.CPU = winner.Resources.CPU
	}
	if winner := WinnerOf(overrides, id, corev1.ResourceMemory); winner != nil {
		found.Memory = winner.Resources.Memory
	}
	return found
}

// WinnerOf returns the override that decides about CPU or memory of a replica, nil for none. An override
// of the replica beats one of its task. Of several such overrides the last one counts.
func WinnerOf(overrides []v2alpha1.ResourceOverride, id ReplicaID, name corev1.ResourceName) *v2alpha1.ResourceOverride {
	var winner *v2alpha1.ResourceOverride
	for i := range overrides {
		override := &overrides[i]
		switch {
		case !id.Covers(override) || !isPositive(AmountOf(override.Resources, name)) || id.keeps(override, name):
		case winner == nil || IsWhole(winner) || !IsWhole(override):
			winner = override
		}
	}
	return winner
}

// AmountOf returns the CPU or memory of resources, nil for none.
func AmountOf(resources v2alpha1.ReplicaResources, name corev1.ResourceName) *resource.Quantity {
	if name == corev1.ResourceCPU {
		return resources.CPU
	}
	if name == corev1.ResourceMemory {
		return resources.Memory
	}
	return nil
}

func isPositive(amount *resource.Quantity) bool {
	return amount != nil && amount.Sign() > 0
}

// FormatResources returns resources as in the annotation of a pod, "" for none. Equal amounts have equal
// texts.
func FormatResources(resources v2alpha1.ReplicaResources) string {
	var parts []string
	if isPositive(resources.CPU) {
		parts = append(parts, "cpu="+resource.NewMilliQuantity(resources.CPU.MilliValue(), resource.DecimalSI).String())
	}
	if isPositive(resources.Memory) {
		parts = append(parts, "memory="+resource.NewQuantity(resources.Memory.Value(), resource.BinarySI).String())
	}
	return strings.Join(parts, ",")
}

// ReadResources returns the resources that a pod was built for, or resized to. Those that the annotation does
// not name are the template's.
func ReadResources(pod *corev1.Pod) v2alpha1.ReplicaResources {
	var resources v2alpha1.ReplicaResources
	for part := range strings.SplitSeq(pod.Annotations[names.AnnotationResources], ",") {
		key, value, _ := strings.Cut(part, "=")
		if quantity.Check(value) != nil {
			continue
		}
		amount, err := resource.ParseQuantity(value)
		if err != nil || amount.Sign() <= 0 {
			continue
		}
		if key == string(corev1.ResourceCPU) {
			resources.CPU = &amount
		}
		if key == string(corev1.ResourceMemory) {
			resources.Memory = &amount
		}
	}
	return resources
}

// WithOverride returns a copy of a container's resources with other requests of CPU and memory.
func WithOverride(template corev1.ResourceRequirements, override v2alpha1.ReplicaResources) corev1.ResourceRequirements {
	resources := *template.DeepCopy()
	setRequest(&resources, corev1.ResourceCPU, override.CPU)
	setRequest(&resources, corev1.ResourceMemory, override.Memory)
	return resources
}

func setRequest(resources *corev1.ResourceRequirements, name corev1.ResourceName, wanted *resource.Quantity) {
	if !isPositive(wanted) {
		return
	}
	request, hasRequest := resources.Requests[name]
	limit, hasLimit := resources.Limits[name]
	if resources.Requests == nil {
		resources.Requests = corev1.ResourceList{}
	}
	resources.Requests[name] = wanted.DeepCopy()
	if hasLimit {
		resources.Limits[name] = scaledLimit(name, limit, request, *wanted, hasRequest)
	}
}

// scaledLimit returns the limit of a new request. A limit beside a request of 0 has no ratio and stays,
// unless the new request exceeds it.
func scaledLimit(name corev1.ResourceName, limit, request, wanted resource.Quantity, hasRequest bool) resource.Quantity {
	switch {
	case !hasRequest:
		return wanted.DeepCopy()
	case request.Sign() <= 0 && limit.Cmp(wanted) < 0:
		return wanted.DeepCopy()
	case request.Sign() <= 0:
		return limit
	}
	if name == corev1.ResourceCPU {
		return *resource.NewMilliQuantity(Scale(limit.MilliValue(), wanted.MilliValue(), request.MilliValue()), resource.DecimalSI)
	}
	return *resource.NewQuantity(Scale(limit.Value(), wanted.Value(), request.Value()), resource.BinarySI)
}

// Scale returns amount × numerator / denominator, rounded up. A result beyond int64 is its maximum.
func Scale(amount, numerator, denominator int64) int64 {
	if denominator <= 0 {
		return amount
	}
	product := new(big.Int).Mul(big.NewInt(amount), big.NewInt(numerator))
	product.Add(product, big.NewInt(denominator-1))
	if product.Div(product, big.NewInt(denominator)); !product.IsInt64() {
		return math.MaxInt64
	}
	return product.Int64()
}

// SetOverride returns overrides with another one. It replaces the amounts that earlier overrides of the
// same replica, or of the same task, have of its resources. An override without any amount is removed.
func SetOverride(overrides []v2alpha1.ResourceOverride, next v2alpha1.ResourceOverride) []v2alpha1.ResourceOverride {
	kept := make([]v2alpha1.ResourceOverride, 0, len(overrides)+1)
	for i := range overrides {
		override := *overrides[i].DeepCopy()
		if IsOfSame(&override, &next) {
			if next.Resources.CPU != nil {
				override.Resources.CPU = nil
			}
			if next.Resources.Memory != nil {
				override.Resources.Memory = nil
			}
		}
		if override.Resources.CPU != nil || override.Resources.Memory != nil {
			kept = append(kept, override)
		}
	}
	return append(kept, *next.DeepCopy())
}

// IsOfSame reports whether two overrides are of the same replica, or of the same whole task.
func IsOfSame(a, b *v2alpha1.ResourceOverride) bool {
	return a.Task == b.Task && a.Slot == b.Slot && ptr.Equal(a.Index, b.Index)
}

// OverrideOf returns the recorded resources of a replica.
func (b *Builder) OverrideOf(id ReplicaID) v2alpha1.ReplicaResources {
	scaling := b.job.Status.Scaling
	if scaling == nil || len(scaling.Resources) == 0 {
		return v2alpha1.ReplicaResources{}
	}
	return OverrideOf(scaling.Resources, id)
}

// override sets the recorded resources of a replica in its pod.
func (b *Builder) override(pod *corev1.Pod, id ReplicaID) {
	override := b.OverrideOf(id)
	delete(pod.Annotations, names.AnnotationResources)
	if text := FormatResources(override); text != "" {
		main := names.MainContainer(&pod.Spec)
		main.Resources = WithOverride(main.Resources, override)
		setAnnotation(pod, names.AnnotationResources, text)
	}
}

// BuiltFor returns the annotation of resources that a replica's pod must have, "" for none. Others may have changed it:
// then the pod's requests are those of the recorded override, or of the template, and not those that it claims.
func (b *Builder) BuiltFor(pod *corev1.Pod, id ReplicaID) string {
	text := pod.Annotations[names.AnnotationResources]
	recorded, claimed := b.OverrideOf(id), ReadResources(pod)
	if wanted := FormatResources(recorded); wanted == FormatResources(claimed) {
		return wanted
	}
	template, _, err := b.Resources(id, v2alpha1.ReplicaResources{})
	if err != nil || len(pod.Spec.Containers) == 0 {
		return text
	}
	stored := names.MainContainerOf(pod).Resources.Requests
	claim, isClaim := explains(WithOverride(template, claimed), stored)
	switch by, fits := explains(WithOverride(template, recorded), stored); {
	case fits && (!isClaim || by > claim):
		return FormatResources(recorded)
	case isClaim:
		return FormatResources(claimed)
	}
	if _, fits := explains(template, stored); fits {
		return ""
	}
	return text
}

// explains reports whether stored requests of CPU and memory may be those of built resources, and how many of them
// are. Admission may add a request that a template has not.
func explains(built corev1.ResourceRequirements, stored corev1.ResourceList) (count int, fits bool) {
	for _, name := range []corev1.ResourceName{corev1.ResourceCPU, corev1.ResourceMemory} {
		amount, isSet := built.Requests[name]
		if !isSet {
			amount, isSet = built.Limits[name]
		}
		if !isSet {
			continue
		}
		request, has := stored[name]
		if !has || request.Cmp(amount) != 0 {
			return count, false
		}
		count++
	}
	return count, true
}

// Resources returns the resources that a replica's main container has with an override, and whether its
// template's pods have resources of their own beside those of containers.
func (b *Builder) Resources(id ReplicaID, override v2alpha1.ReplicaResources) (resources corev1.ResourceRequirements, isPodLevel bool, err error) {
	task := slices.IndexFunc(b.job.Spec.Tasks, func(task v2alpha1.Task) bool { return names.TaskName(&task) == id.Task })
	if task < 0 {
		return corev1.ResourceRequirements{}, false, fmt.Errorf("spec.tasks: has no task %s", id.Task)
	}
	template, err := b.task(task)
	if err != nil {
		return corev1.ResourceRequirements{}, false, err
	}
	main := corev1.Container{Resources: *names.MainContainer(&template.Spec).Resources.DeepCopy()}
	setResources(&main, id.Requested, b.settings.GPUResource)
	return WithOverride(main.Resources, override), template.Spec.Resources != nil, nil
}

// Resized returns a copy of a pod whose main container has the resources of a replica. CPU and memory
// that are not named, and resources that admission has set, stay.
func (b *Builder) Resized(pod *corev1.Pod, id ReplicaID, target v2alpha1.ReplicaResources) (*corev1.Pod, error) {
	wanted, _, err := b.Resources(id, target)
	if err != nil {
		return nil, err
	}
	resized := pod.DeepCopy()
	resources := &names.MainContainerOf(resized).Resources
	for _, name := range []corev1.ResourceName{corev1.ResourceCPU, corev1.ResourceMemory} {
		if !isPositive(AmountOf(target, name)) {
			continue
		}
		resources.Requests = withAmount(resources.Requests, wanted.Requests, name)
		resources.Limits = withAmount(resources.Limits, wanted.Limits, name)
	}
	setAnnotation(resized, names.AnnotationResources, FormatResources(target))
	return resized, nil
}

// withAmount sets one amount of a list, if the other list has it.
func withAmount(list, from corev1.ResourceList, name corev1.ResourceName) corev1.ResourceList {
	amount, has := from[name]
	if !has {
		return list
	}
	if list == nil {
		list = corev1.ResourceList{}
	}
	list[name] = amount
	return list
}

// WithLargestOverride returns a task's spec with the largest requests that any of its replicas has. A
// placement must have a node for each of them.
func WithLargestOverride(spec *corev1.PodSpec, overrides []v2alpha1.ResourceOverride, task string) *corev1.PodSpec {
	var largest v2alpha1.ReplicaResources
	for i := range overrides {
		if overrides[i].Task == task {
			largest.CPU = larger(largest.CPU, overrides[i].Resources.CPU)
			largest.Memory = larger(largest.Memory, overrides[i].Resources.Memory)
		}
	}
	return withOverride(spec, largest)
}

func larger(a, b *resource.Quantity) *resource.Quantity {
	if a == nil || b != nil && b.Cmp(*a) > 0 {
		return b
	}
	return a
}

// ScaleDown returns amount × numerator / denominator, rounded down.
func ScaleDown(amount, numerator, denominator int64) int64 {
	if denominator <= 0 {
		return amount
	}
	product := new(big.Int).Mul(big.NewInt(amount), big.NewInt(numerator))
	if product.Div(product, big.NewInt(denominator)); !product.IsInt64() {
		return math.MaxInt64
	}
	return product.Int64()
}
