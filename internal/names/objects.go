// Copyright The DI Orchestrator Authors.
// SPDX-License-Identifier: Apache-2.0

package names

import (
	"fmt"
	"hash/fnv"
	"slices"
	"strconv"
	"strings"

	"opendilab.org/di-orchestrator/apis/v2alpha1"
)

// CoordinatorPod returns the name of a job's coordinator pod and service.
func CoordinatorPod(job string) string {
	return job + "-" + string(ReplicaTypeCoordinator)
}

// ReplicaPod returns the name of a pod of a coordinator-led job, given its
// suffix of five characters.
func ReplicaPod(job string, role ReplicaType, suffix string) string {
	return job + "-" + string(role) + "-" + suffix
}

// SuffixLength is the number of characters of a replica's suffix.
const SuffixLength = 5

// suffixAlphabet is the alphabet of Kubernetes' own generated names: no vowels
// and no characters that look alike, so that no word arises.
const suffixAlphabet = "bcdfghjklmnpqrstvwxz2456789"

// Suffix returns the suffix that follows from the parts, the same for the same
// parts, in the alphabet of Kubernetes' generated names.
func Suffix(parts ...string) string {
	hash := fnv.New64a()
	// A hash never fails to write.
	_, _ = hash.Write([]byte(strings.Join(parts, "\x00")))
	sum := hash.Sum64()
	suffix := make([]byte, SuffixLength)
	for i := range suffix {
		suffix[i] = suffixAlphabet[sum%uint64(len(suffixAlphabet))]
		sum /= uint64(len(suffixAlphabet))
	}
	return string(suffix)
}

// WorkerService returns the name of a worker-led job's headless service,
// which is also the subdomain of its pods.
func WorkerService(job string) string {
	return "di-" + job
}

// PodGroup returns the name of the object by which a scheduler is told of a
// worker-led job's gang.
func PodGroup(job string) string {
	return WorkerService(job)
}

// NodesConfigMap returns the name of the ConfigMap that holds what pods of a
// worker-led job are told of each other. A digest of what it holds ends the name,
// always of the same length, so that no two jobs share a name.
func NodesConfigMap(job, digest string) string {
	return WorkerService(job) + "-nodes-" + digest
}

// EarlierWorkerServices returns the names that v1.1.0 and v1.1.1 gave to a
// worker-led job's service, and to its pods' subdomain.
func EarlierWorkerServices(job string) []string {
	return []string{"dijob-" + job, job}
}

// WorkerPod returns the name, and host name, of a worker-led job's pod.
func WorkerPod(job, task string, index int32) string {
	return fmt.Sprintf("%s-%s-%d", job, task, index)
}

// WorkerFQDN returns the address of a worker-led job's pod. The domain is the
// cluster's service domain, such as svc.cluster.local.
func WorkerFQDN(pod, job, namespace, domain string) string {
	return HostFQDN(pod, WorkerService(job), namespace, domain)
}

// HostFQDN returns the address of a pod in a subdomain.
func HostFQDN(pod, subdomain, namespace, domain string) string {
	return strings.Join([]string{pod, subdomain, namespace, domain}, ".")
}

// ReplicaURL returns the address of a coordinator-led job's pod as clients
// compare it, without scheme.
func ReplicaURL(pod, namespace string, port int32) string {
	return pod + "." + namespace + ":" + strconv.Itoa(int(port))
}

// PodOfURL returns the pod that an address of ReplicaURL leads to. Names of pods
// of jobs hold no dot, as they are host names.
func PodOfURL(url string) string {
	pod, _, _ := strings.Cut(url, ".")
	return pod
}

// JobID returns what a worker-led job's pods call their job when they call
// di-server: the generation counts restarts and reschedules.
func JobID(namespace, job string, generation int64) string {
	return fmt.Sprintf("%s.%s.%d", namespace, job, generation)
}

// Generation returns how often a job was restarted or placed again.
func Generation(status *v2alpha1.DIJobStatus) int64 {
	return int64(status.Restarts) + int64(status.Reschedules)
}

// ManagedByName is what spec.managedBy says when the job is for DI Orchestrator itself.
const ManagedByName = v2alpha1.GroupName + "/di-operator"

// OtherManager returns the controller that runs a job in DI Orchestrator's
// place; empty where none does.
func OtherManager(spec *v2alpha1.DIJobSpec) string {
	if manager := spec.ManagedBy; manager != nil && *manager != ManagedByName {
		return *manager
	}
	return ""
}

// ElasticTask returns the index of the task that is resized: the one that the
// spec names, else the collector, else the only one; -1 where there is none.
func ElasticTask(spec *v2alpha1.DIJobSpec) int {
	named := spec.Elastic != nil && spec.Elastic.Task != ""
	for i := range spec.Tasks {
		task := &spec.Tasks[i]
		if named && TaskName(task) == spec.Elastic.Task || !named && task.Type == v2alpha1.TaskTypeCollector {
			return i
		}
	}
	if !named && len(spec.Tasks) == 1 {
		return 0
	}
	return -1
}

// DynamicTask is the task whose replicas TensorFlow may add and remove while the
// others go on.
const DynamicTask = "worker"

// HasDynamicWorkers reports whether a job of TensorFlow asks, by writing out
// onResize: Continue, that its workers come and go: each is told of itself and of
// the other tasks only, and these are told of no worker.
func HasDynamicWorkers(spec *v2alpha1.DIJobSpec) bool {
	if spec.Elastic == nil || spec.Elastic.OnResize != v2alpha1.OnResizeContinue || slices.Contains(spec.ClusterSpec, v2alpha1.ClusterSpecTorch) {
		return false
	}
	elastic := ElasticTask(spec)
	return elastic >= 0 && TaskName(&spec.Tasks[elastic]) == DynamicTask && slices.Contains(spec.ClusterSpec, v2alpha1.ClusterSpecTensorFlow)
}

// TaskName returns a task's name, which is its type where it has none.
func TaskName(task *v2alpha1.Task) string {
	if task.Name != "" {
		return task.Name
	}
	return string(task.Type)
}
