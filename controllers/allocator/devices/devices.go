// Copyright The DI Orchestrator Authors.
// SPDX-License-Identifier: Apache-2.0

// Package devices counts the devices of dynamic resource allocation (DRA). DRA publishes the devices of nodes in
// ResourceSlices, and pods request devices of a DeviceClass by claims. The allocator does not select devices: it
// counts them. Each class becomes a resource of nodes and of pods, with the name that Kubernetes reserves for it. A
// class whose devices cannot be counted is ignored, and the scheduler decides.
package devices

import (
	"bytes"
	"maps"
	"regexp"
	"slices"
	"strconv"
	"strings"

	corev1 "k8s.io/api/core/v1"
	resourcev1 "k8s.io/api/resource/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/utils/ptr"

	"opendilab.org/di-orchestrator/apis/v2alpha1"
)

// maxDevices is the maximum number of devices that a pod counts as. No node has as many.
const maxDevices = 1 << 16

// Counted are the countable devices of a round. The zero value has none.
type Counted struct {
	// free has the number of devices by class and node, without those of pods of other programs.
	free map[corev1.ResourceName]map[string]int64
	// requests has what a claim of a template requests, by the template.
	requests map[types.NamespacedName]map[corev1.ResourceName]int64
}

// Objects are the objects of the API resource.k8s.io.
type Objects struct {
	Classes   resourcev1.DeviceClassList
	Slices    resourcev1.ResourceSliceList
	Claims    resourcev1.ResourceClaimList
	Templates resourcev1.ResourceClaimTemplateList
}

// AreRequestedBy reports whether pods of a job may request devices by templates of claims.
func AreRequestedBy(job *v2alpha1.DIJob) bool {
	return slices.ContainsFunc(job.Spec.Tasks, func(task v2alpha1.Task) bool {
		return bytes.Contains(task.Template.Raw, []byte(`"resourceClaimTemplateName"`))
	})
}

func isFromTemplate(claim corev1.PodResourceClaim) bool {
	return claim.ResourceClaimTemplateName != nil
}

// Count counts the devices that are free for the jobs of a round. The devices of the jobs' own pods
// are free: the placement of these jobs takes them.
func Count(found *Objects, pods map[types.UID][]*corev1.Pod) *Counted {
	counted := &Counted{
		free:     map[corev1.ResourceName]map[string]int64{},
		requests: make(map[types.NamespacedName]map[corev1.ResourceName]int64, len(found.Templates.Items)),
	}
	taken := takenDevices(found.Claims.Items, pods)
	current := currentSlices(found.Slices.Items)
	for i := range found.Classes.Items {
		class := &found.Classes.Items[i]
		if selector, isReadable := readSelectors(class.Spec.Selectors); isReadable {
			if free, isCountable := selector.count(current, taken); isCountable {
				counted.free[nameOfClass(class.Name)] = free
			}
		}
	}
	for i := range found.Templates.Items {
		template := &found.Templates.Items[i]
		counted.requests[types.NamespacedName{Namespace: template.Namespace, Name: template.Name}] = counted.requestsOf(&template.Spec.Spec)
	}
	return counted
}

func nameOfClass(class string) corev1.ResourceName {
	return corev1.ResourceName(resourcev1.ResourceDeviceClassPrefix + class)
}

// deviceID identifies a device of the cluster.
type deviceID struct{ driver, pool, device string }

// takenDevices returns the devices of claims, except those that only pods of the jobs use.
func takenDevices(claims []resourcev1.ResourceClaim, pods map[types.UID][]*corev1.Pod) map[deviceID]bool {
	own := map[types.UID]bool{}
	for _, ofJob := range pods {
		for _, pod := range ofJob {
			own[pod.UID] = true
		}
	}
	taken := map[deviceID]bool{}
	for i := range claims {
		status := &claims[i].Status
		isForeign := func(user resourcev1.ResourceClaimConsumerReference) bool { return !own[user.UID] }
		if status.Allocation == nil || len(status.ReservedFor) > 0 && !slices.ContainsFunc(status.ReservedFor, isForeign) {
			continue
		}
		for _, result := range status.Allocation.Devices.Results {
			if !ptr.Deref(result.AdminAccess, false) {
				taken[deviceID{result.Driver, result.Pool, result.Device}] = true
			}
		}
	}
	return taken
}

// currentSlices returns the slices of the newest generation of each pool.
func currentSlices(all []resourcev1.ResourceSlice) []*resourcev1.ResourceSlice {
	type pool struct{ driver, name string }
	newest := map[pool]int64{}
	for i := range all {
		spec := &all[i].Spec
		of := pool{spec.Driver, spec.Pool.Name}
		newest[of] = max(newest[of], spec.Pool.Generation)
	}
	var current []*resourcev1.ResourceSlice
	for i := range all {
		if spec := &all[i].Spec; spec.Pool.Generation == newest[pool{spec.Driver, spec.Pool.Name}] {
			current = append(current, &all[i])
		}
	}
	return current
}

// selector is a conjunction of equations, which the selectors of most classes are.
type selector struct {
	driver string
	// attributes have the values as text, by name.
	attributes map[resourcev1.QualifiedName]string
}

var (
	driverEquation    = regexp.MustCompile(`^device\.driver\s*==\s*(?:"([^"]*)"|'([^']*)')$`)
	attributeEquation = regexp.MustCompile(`^device\.attributes\[(?:"([^"]*)"|'([^']*)')\]\.(\w+)\s*==\s*(?:"([^"]*)"|'([^']*)'|(true|false|-?\d+))$`)
)

// readSelectors reads the selectors of a class; false if they are not just equations of the driver and of
// attributes.
func readSelectors(selectors []resourcev1.DeviceSelector) (selector, bool) {
	read := selector{attributes: map[resourcev1.QualifiedName]string{}}
	for _, each := range selectors {
		if each.CEL == nil {
			return selector{}, false
		}
		for equation := range strings.SplitSeq(each.CEL.Expression, "&&") {
			equation = strings.TrimSpace(equation)
			if found := driverEquation.FindStringSubmatch(equation); found != nil {
				read.driver = found[1] + found[2]
			} else if found := attributeEquation.FindStringSubmatch(equation); found != nil {
				name := resourcev1.QualifiedName(found[1] + found[2] + "/" + found[3])
				read.attributes[name] = found[4] + found[5] + found[6]
			} else {
				return selector{}, false
			}
		}
	}
	return read, read.driver != ""
}

// count counts the free devices of each node; false if devices are not of one node or share their capacity.
func (s *selector) count(current []*resourcev1.ResourceSlice, taken map[deviceID]bool) (map[string]int64, bool) {
	free := map[string]int64{}
	for _, slice := range current {
		if slice.Spec.Driver != s.driver {
			continue
		}
		for i := range slice.Spec.Devices {
			device := &slice.Spec.Devices[i]
			isShared := len(device.ConsumesCounters) > 0 || ptr.Deref(device.AllowMultipleAllocations, false)
			switch {
			case !s.matches(device):
			case isShared || slice.Spec.NodeName == nil:
				return nil, false
			case !slices.ContainsFunc(device.Taints, repels) && !taken[deviceID{s.driver, slice.Spec.Pool.Name, device.Name}]:
				free[*slice.Spec.NodeName]++
			}
		}
	}
	return free, true
}

func repels(taint resourcev1.DeviceTaint) bool {
	return taint.Effect == resourcev1.DeviceTaintEffectNoSchedule || taint.Effect == resourcev1.DeviceTaintEffectNoExecute
}

// matches reports whether a device has the attributes. The domain of an attribute is that of its driver by default.
func (s *selector) matches(device *resourcev1.Device) bool {
	for name, want := range s.attributes {
		attribute, known := device.Attributes[name]
		if local, isOfDriver := strings.CutPrefix(string(name), s.driver+"/"); !known && isOfDriver {
			attribute, known = device.Attributes[resourcev1.QualifiedName(local)]
		}
		if !known || textOf(&attribute) != want {
			return false
		}
	}
	return true
}

func textOf(attribute *resourcev1.DeviceAttribute) string {
	switch {
	case attribute.StringValue != nil:
		return *attribute.StringValue
	case attribute.BoolValue != nil:
		return strconv.FormatBool(*attribute.BoolValue)
	case attribute.IntValue != nil:
		return strconv.FormatInt(*attribute.IntValue, 10)
	}
	return ""
}

// requestsOf counts what a claim requests of each countable class. A request for one of several classes, for all
// devices or for administration counts as none.
func (d *Counted) requestsOf(claim *resourcev1.ResourceClaimSpec) map[corev1.ResourceName]int64 {
	requests := map[corev1.ResourceName]int64{}
	for i := range claim.Devices.Requests {
		exactly := claim.Devices.Requests[i].Exactly
		if exactly == nil || exactly.AllocationMode == resourcev1.DeviceAllocationModeAll || ptr.Deref(exactly.AdminAccess, false) {
			continue
		}
		if name := nameOfClass(exactly.DeviceClassName); d.free[name] != nil {
			requests[name] += min(max(exactly.Count, 1), maxDevices)
		}
	}
	return requests
}

// Node returns a node with the devices as resources.
func (d *Counted) Node(node *corev1.Node) *corev1.Node {
	if len(d.free) == 0 {
		return node
	}
	extended := *node
	extended.Status.Allocatable = maps.Clone(node.Status.Allocatable)
	for name, free := range d.free {
		if count := free[node.Name]; count > 0 && extended.Status.Allocatable != nil {
			extended.Status.Allocatable[name] = *resource.NewQuantity(count, resource.DecimalSI)
		}
	}
	return &extended
}

// Spec returns the spec of a pod with the devices of its claims as requests.
func (d *Counted) Spec(namespace string, spec *corev1.PodSpec) *corev1.PodSpec {
	total := map[corev1.ResourceName]int64{}
	for _, claim := range spec.ResourceClaims {
		if isFromTemplate(claim) {
			for name, count := range d.requests[types.NamespacedName{Namespace: namespace, Name: *claim.ResourceClaimTemplateName}] {
				total[name] = min(total[name]+count, maxDevices)
			}
		}
	}
	if len(total) == 0 || len(spec.Containers) == 0 {
		return spec
	}
	extended := *spec
	extended.Containers = slices.Clone(spec.Containers)
	requests := maps.Clone(extended.Containers[0].Resources.Requests)
	if requests == nil {
		requests = corev1.ResourceList{}
	}
	for name, count := range total {
		requests[name] = *resource.NewQuantity(count, resource.DecimalSI)
	}
	extended.Containers[0].Resources.Requests = requests
	return &extended
}

// Pod returns a pod with the devices of its claims as requests.
func (d *Counted) Pod(pod *corev1.Pod) *corev1.Pod {
	extended := *pod
	extended.Spec = *d.Spec(pod.Namespace, &pod.Spec)
	return &extended
}
