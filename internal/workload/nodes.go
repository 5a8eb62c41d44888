// Copyright The DI Orchestrator Authors.
// SPDX-License-Identifier: Apache-2.0

package workload

import (
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"maps"
	"path"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"

	"opendilab.org/di-orchestrator/apis/v2alpha1"
	"opendilab.org/di-orchestrator/internal/names"
)

const (
	// MaxVariable is how many bytes one variable of a process's environment takes
	// at most on Linux, its name and its end included: 32 pages of 4 KiB.
	MaxVariable = 128 << 10
	// MaxNodes is how many bytes the values of one ConfigMap take at most.
	MaxNodes = 1 << 20
)

// addresses are what all pods of one assignment are told alike. It is long, so one
// ConfigMap holds it for all, and pods refer to it.
type addresses struct {
	assignment *Assignment
	// configMap is the name of the ConfigMap.
	configMap string
	// data is what it holds, by the variables that are its keys.
	data map[string]string
	// cluster is what DescribeCluster says of the assignment.
	cluster string
	// mounted says that pods need files, as a variable cannot carry all.
	mounted bool
	// tensorflow is the cluster of TF_CONFIG, nil where pods get none.
	tensorflow *tfCluster
	// ranks are those that have a replica, in order, where Torch counts them.
	ranks []int32
}

// NodesConfigMap builds the ConfigMap that the pods of an assignment refer to. Its
// name tells what it holds, so that the same assignment has the same one.
func (b *Builder) NodesConfigMap(assignment *Assignment) (*corev1.ConfigMap, error) {
	addresses, err := b.described(assignment)
	if err != nil {
		return nil, err
	}
	return &corev1.ConfigMap{
		ObjectMeta: metav1.ObjectMeta{
			Name: addresses.configMap, Namespace: b.job.Namespace, Labels: names.WorkerJobLabels(b.job.Name),
			OwnerReferences: []metav1.OwnerReference{*Owner(b.job, b.settings.JobVersion)},
		},
		Immutable: ptr.To(true),
		Data:      addresses.data,
	}, nil
}

// IsNodesConfigMap reports whether a ConfigMap holds what its name tells of a
// job's pods, for good. Another one of that name was not made by us.
func IsNodesConfigMap(job *v2alpha1.DIJob, configMap *corev1.ConfigMap) bool {
	return ptr.Deref(configMap.Immutable, false) && len(configMap.BinaryData) == 0 &&
		configMap.Name == names.NodesConfigMap(job.Name, digestOf(job, configMap.Data))
}

// digestOf returns what a ConfigMap's data is known by. Another job of the same
// name has other names, so that what an earlier one has left is not in its way.
func digestOf(job *v2alpha1.DIJob, data map[string]string) string {
	hash := sha256.New()
	_, _ = hash.Write([]byte(job.UID))
	for _, key := range slices.Sorted(maps.Keys(data)) {
		// A hash never fails to write. The length keeps values apart.
		_, _ = fmt.Fprintf(hash, "%s=%d:%s", key, len(data[key]), data[key])
	}
	return hex.EncodeToString(hash.Sum(nil)[:8])
}

// NodesOf returns the name of the ConfigMap that a pod refers to, "" where it was
// told all itself, as builds before this one did.
func NodesOf(pod *corev1.Pod) string {
	if len(pod.Spec.Containers) == 0 {
		return ""
	}
	for _, variable := range names.MainContainerOf(pod).Env {
		if variable.Name == names.EnvDINodes && variable.ValueFrom != nil && variable.ValueFrom.ConfigMapKeyRef != nil {
			return variable.ValueFrom.ConfigMapKeyRef.Name
		}
	}
	for i := range pod.Spec.Volumes {
		if volume := &pod.Spec.Volumes[i]; volume.Name == names.NodesVolume && volume.ConfigMap != nil {
			return volume.ConfigMap.Name
		}
	}
	return ""
}

// ToldNodes returns what a worker-led pod was told of its job's nodes when it was
// created: itself, or by one of the ConfigMaps, by name. It is "" where that is
// not known.
func ToldNodes(pod *corev1.Pod, configMaps map[string]*corev1.ConfigMap) string {
	name := NodesOf(pod)
	if name == "" {
		return told(pod, names.EnvDINodes)
	}
	if configMap := configMaps[name]; configMap != nil {
		return configMap.Data[names.EnvDINodes]
	}
	return ""
}

// CountNodes returns how many pod names ReadNodes reads.
func CountNodes(told string) int {
	if told == "" {
		return 0
	}
	return strings.Count(told, ",") + 1
}

// ReadNodes returns the pod names by rank that were told.
func ReadNodes(told string) []string {
	if told == "" {
		return nil
	}
	nodes := strings.Split(told, ",")
	for i := range nodes {
		nodes[i], _, _ = strings.Cut(nodes[i], ".")
	}
	return nodes
}

// described returns what the pods of an assignment are told, worked out once.
func (b *Builder) described(assignment *Assignment) (*addresses, error) {
	if b.addresses == nil || b.addresses.assignment != assignment {
		addresses, err := b.addressesOf(assignment)
		if err != nil {
			return nil, err
		}
		b.addresses = addresses
	}
	return b.addresses, nil
}

func (b *Builder) addressesOf(assignment *Assignment) (*addresses, error) {
	byTask := map[int][]string{}
	counts := make([]int32, len(b.job.Spec.Tasks))
	for i := range assignment.Replicas {
		replica := &assignment.Replicas[i]
		byTask[replica.Task] = append(byTask[replica.Task], replica.Pod)
		counts[replica.Task]++
	}
	subdomain := b.subdomain(assignment)
	nodes := b.join(assignment.Nodes, subdomain)
	result := &addresses{
		assignment: assignment, cluster: DescribeCluster(&b.job.Spec, counts), data: map[string]string{names.EnvDINodes: nodes},
	}
	result.mounted = !result.fits(names.EnvDINodes)
	for task, pods := range byTask {
		name := names.TaskNodesVariable(names.TaskName(&b.job.Spec.Tasks[task]))
		if joined := b.join(pods, subdomain); joined != nodes {
			result.data[name] = joined
		}
		result.mounted = result.mounted || !result.fits(name)
	}
	if err := b.describeTensorFlow(result); err != nil {
		return nil, err
	}
	result.configMap = names.NodesConfigMap(b.job.Name, digestOf(b.job, result.data))
	return result, result.checkSize()
}

// checkSize says where no ConfigMap can hold the addresses.
func (a *addresses) checkSize() error {
	size := 0
	for _, value := range a.data {
		size += len(value)
	}
	if size <= MaxNodes {
		return nil
	}
	return fmt.Errorf("spec.tasks: the addresses of all %d replicas take %d bytes, and a ConfigMap holds at most %d: "+
		"shorten the names of job, tasks and namespace, or have fewer replicas", len(a.assignment.Replicas), size, MaxNodes)
}

func (b *Builder) join(pods []string, subdomain string) string {
	joined := make([]string, len(pods))
	for i, pod := range pods {
		// A rank that nobody is known to have had has no address.
		if pod != "" {
			joined[i] = names.HostFQDN(pod, subdomain, b.job.Namespace, b.settings.ServiceDomain)
		}
	}
	return strings.Join(joined, ",")
}

// keyOf returns the key that holds what a variable says. A task that has all
// replicas needs none of its own.
func (a *addresses) keyOf(name string) string {
	if _, has := a.data[name]; has {
		return name
	}
	return names.EnvDINodes
}

// variable returns a variable that refers to the ConfigMap, or to a file of it
// where no process could start with all of it.
func (a *addresses) variable(name string) corev1.EnvVar {
	key := a.keyOf(name)
	if !a.fits(name) {
		return variable(name, names.NodesFilePrefix+path.Join(names.NodesDirectory, key))
	}
	return corev1.EnvVar{Name: name, ValueFrom: &corev1.EnvVarSource{ConfigMapKeyRef: &corev1.ConfigMapKeySelector{
		LocalObjectReference: corev1.LocalObjectReference{Name: a.configMap}, Key: key,
	}}}
}

// fits reports whether a process starts with a variable.
func (a *addresses) fits(name string) bool {
	return variableSize(name, len(a.data[a.keyOf(name)])) <= MaxVariable
}

// variableSize returns what a variable takes of a process's environment.
func variableSize(name string, length int) int {
	return len(name) + len("=") + length + len("\x00")
}

// mount gives every container the files, where they are needed.
func (a *addresses) mount(spec *corev1.PodSpec) error {
	if !a.mounted {
		return nil
	}
	if slices.ContainsFunc(spec.Volumes, func(volume corev1.Volume) bool { return volume.Name == names.NodesVolume }) {
		return fmt.Errorf("volume %s: the job has so many replicas that their addresses need a volume of this name: give yours another", names.NodesVolume)
	}
	spec.Volumes = append(spec.Volumes, corev1.Volume{
		Name: names.NodesVolume,
		VolumeSource: corev1.VolumeSource{ConfigMap: &corev1.ConfigMapVolumeSource{
			LocalObjectReference: corev1.LocalObjectReference{Name: a.configMap},
		}},
	})
	mount := corev1.VolumeMount{Name: names.NodesVolume, MountPath: names.NodesDirectory, ReadOnly: true}
	mountEverywhere(spec, &mount)
	return nil
}

// mountEverywhere mounts a volume in every container that has nothing of its own
// in that place.
func mountEverywhere(spec *corev1.PodSpec, mount *corev1.VolumeMount) {
	for _, containers := range [][]corev1.Container{spec.InitContainers, spec.Containers} {
		for i := range containers {
			taken := func(own corev1.VolumeMount) bool { return path.Clean(own.MountPath) == mount.MountPath }
			if !slices.ContainsFunc(containers[i].VolumeMounts, taken) {
				containers[i].VolumeMounts = append(containers[i].VolumeMounts, *mount)
			}
		}
	}
}
