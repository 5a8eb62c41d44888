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
	// MaxVariable is the maximum size of one environment variable on Linux, in bytes: 32 pages of 4
	// KiB. It includes the name and the terminating zero byte.
	MaxVariable = 128 << 10
	// MaxNodes is the maximum total size of the values of one ConfigMap, in bytes.
	MaxNodes = 1 << 20
	// inlineNodes is the default of Settings.InlineNodes. A write of a ConfigMap costs the API server
	// more than these bytes do in the pods of a small job.
	inlineNodes = 1 << 10
)

// addresses are the addresses that all pods of one assignment share. If they are long, one
// ConfigMap contains them and the pods refer to it.
type addresses struct {
	assignment *Assignment
	// inline is set if the variables of each pod contain the addresses themselves.
	inline bool
	// configMap is the name of the ConfigMap.
	configMap string
	// data is the content of the ConfigMap. Its keys are names of variables.
	data map[string]string
	// cluster is the description that DescribeCluster returns for the assignment.
	cluster string
	// mounted is set if pods need files, because some addresses do not fit into a variable.
	mounted bool
	// tensorflow is the cluster of TF_CONFIG, nil if pods get none.
	tensorflow *tfCluster
	// ranks are the ranks that have a replica, in order; set only for Torch.
	ranks []int32
}

// NeedsNodesConfigMap reports whether the pods of an assignment refer to a ConfigMap, because their
// addresses are too long for each pod.
func (b *Builder) NeedsNodesConfigMap(assignment *Assignment) (bool, error) {
	addresses, err := b.described(assignment)
	if err != nil {
		return false, err
	}
	return !addresses.inline, nil
}

// NodesConfigMap builds the ConfigMap that the pods of an assignment refer to if they need one. Its
// name contains a digest of its content, so the same assignment has the same ConfigMap.
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

// IsNodesConfigMap reports whether a ConfigMap of a job's pods is immutable and its content matches
// its name. Otherwise another program created it.
func IsNodesConfigMap(job *v2alpha1.DIJob, configMap *corev1.ConfigMap) bool {
	return ptr.Deref(configMap.Immutable, false) && len(configMap.BinaryData) == 0 &&
		configMap.Name == names.NodesConfigMap(job.Name, digestOf(job, configMap.Data))
}

// digestOf returns a digest of a ConfigMap's data. It depends on the job's UID, so that objects of
// an earlier job with the same name cause no conflict.
func digestOf(job *v2alpha1.DIJob, data map[string]string) string {
	hash := sha256.New()
	_, _ = hash.Write([]byte(job.UID))
	for _, key := range slices.Sorted(maps.Keys(data)) {
		// A hash never returns an error. The length separates the values.
		_, _ = fmt.Fprintf(hash, "%s=%d:%s", key, len(data[key]), data[key])
	}
	return hex.EncodeToString(hash.Sum(nil)[:8])
}

// NodesOf returns the name of the ConfigMap that a pod refers to. It returns "" if the pod's
// variables contain the addresses themselves.
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

// ToldNodes returns the addresses of the job's nodes that a worker-led pod was created with. They
// are in its variables or in one of the ConfigMaps, which are given by name. It returns "" if the
// addresses are unknown.
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

// ReadNodes returns the pod names, by rank, of the addresses that ToldNodes returns.
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

// described returns the addresses of an assignment, which it computes once.
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
	if err := b.describeMPI(result); err != nil {
		return nil, err
	}
	result.configMap = names.NodesConfigMap(b.job.Name, digestOf(b.job, result.data))
	// The launcher mounts the ConfigMap.
	result.inline = result.size() <= b.settings.InlineNodes && !names.HasMPI(&b.job.Spec)
	return result, result.checkSize()
}

// size returns the total size of the addresses, in bytes.
func (a *addresses) size() int {
	size := 0
	for _, value := range a.data {
		size += len(value)
	}
	return size
}

// checkSize returns an error if the addresses exceed the size of a ConfigMap.
func (a *addresses) checkSize() error {
	size := a.size()
	if size <= MaxNodes {
		return nil
	}
	return fmt.Errorf("spec.tasks: the addresses of all %d replicas take %d bytes, and a ConfigMap holds at most %d: "+
		"shorten the names of job, tasks and namespace, or have fewer replicas", len(a.assignment.Replicas), size, MaxNodes)
}

func (b *Builder) join(pods []string, subdomain string) string {
	joined := make([]string, len(pods))
	for i, pod := range pods {
		// A rank without a known replica has no address.
		if pod != "" {
			joined[i] = names.HostFQDN(pod, subdomain, b.job.Namespace, b.settings.ServiceDomain)
		}
	}
	return strings.Join(joined, ",")
}

// keyOf returns the key with the value of a variable. A task that has all replicas needs no key of
// its own.
func (a *addresses) keyOf(name string) string {
	if _, has := a.data[name]; has {
		return name
	}
	return names.EnvDINodes
}

// variable returns a variable with addresses, which refers to the ConfigMap if they are not inline.
// It names a file of the ConfigMap if no process could start with a value of that size.
func (a *addresses) variable(name string) corev1.EnvVar {
	key := a.keyOf(name)
	if a.inline {
		return variable(name, a.data[key])
	}
	if !a.fits(name) {
		return variable(name, names.NodesFilePrefix+path.Join(names.NodesDirectory, key))
	}
	return corev1.EnvVar{Name: name, ValueFrom: &corev1.EnvVarSource{ConfigMapKeyRef: &corev1.ConfigMapKeySelector{
		LocalObjectReference: corev1.LocalObjectReference{Name: a.configMap}, Key: key,
	}}}
}

// fits reports whether a process can start with a variable.
func (a *addresses) fits(name string) bool {
	return variableSize(name, len(a.data[a.keyOf(name)])) <= MaxVariable
}

// variableSize returns the size of a variable in a process's environment, in bytes.
func variableSize(name string, length int) int {
	return len(name) + len("=") + length + len("\x00")
}

// mount mounts the files in every container if they are needed.
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

// mountEverywhere mounts a volume in every container that has no other mount at its path.
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
