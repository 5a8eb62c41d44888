// Copyright The DI Orchestrator Authors.
// SPDX-License-Identifier: Apache-2.0

package names

import (
	"fmt"
	"hash/fnv"
	"regexp"
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

// PodsOf returns a regular expression of RE2 for the whole names of all pods that a job has or had: its first and second
// group together are the task or role of a pod.
//
// It is exact, because a job's name is quoted, and is followed by one of its tasks or roles and by a number or a suffix
// without a dash. Thus a-b-learner-0 is not of job a unless that has a task b-learner. Then jobs a and a-b share the
// name of a pod, and Kubernetes lets only one of them have it.
func PodsOf(job *v2alpha1.DIJob) string {
	var tasks []string
	for i := range job.Spec.Tasks {
		tasks = append(tasks, regexp.QuoteMeta(TaskName(&job.Spec.Tasks[i])))
	}
	own := regexp.QuoteMeta(job.Name)
	if job.Spec.Lifecycle != v2alpha1.LifecycleCoordinatorLed {
		return fmt.Sprintf("^%s-(%s)-(?:0|[1-9][0-9]{0,9})$", own, strings.Join(tasks, "|"))
	}
	roles := []string{string(ReplicaTypeCollector), string(ReplicaTypeLearner), string(ReplicaTypeDDPLearner), string(ReplicaTypeAggregator)}
	return fmt.Sprintf("^%s-(?:(%s)|(%s)-[%s]{%d})$", own, ReplicaTypeCoordinator, strings.Join(roles, "|"), suffixAlphabet, SuffixLength)
}

// SuffixLength is the number of characters of a replica's suffix.
const SuffixLength = 5

// suffixAlphabet is the alphabet of Kubernetes' own generated names. It has no vowels and no
// characters that look similar, so that suffixes form no words.
const suffixAlphabet = "bcdfghjklmnpqrstvwxz2456789"

// Suffix returns a suffix that depends only on the parts, in the alphabet of Kubernetes' generated
// names.
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

// PodGroup returns the name of the PodGroup of a worker-led job's gang.
func PodGroup(job string) string {
	return WorkerService(job)
}

// NodesConfigMap returns the name of the ConfigMap that lists the peers of a worker-led job's pods.
// The name ends with a digest of the content. Digests have a fixed length, so no two jobs share a
// name.
func NodesConfigMap(job, digest string) string {
	return WorkerService(job) + "-nodes-" + digest
}

// SSHSecret returns the name of the Secret with the keys of ssh of one attempt of a worker-led job. The digest is
// that of the job's UID and of the attempt.
func SSHSecret(job, digest string) string {
	return WorkerService(job) + "-ssh-" + digest
}

// EarlierWorkerServices returns the names that v1.1.0 and v1.1.1 gave to a worker-led job's service
// and to its pods' subdomain.
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

// PodOfURL returns the pod of an address that ReplicaURL returned. Names of a job's pods contain no
// dot, because they are host names.
func PodOfURL(url string) string {
	pod, _, _ := strings.Cut(url, ".")
	return pod
}

// JobID returns the ID by which a worker-led job's pods identify their job in calls to di-server.
// The generation counts restarts and reschedules.
func JobID(namespace, job string, generation int64) string {
	return fmt.Sprintf("%s.%s.%d", namespace, job, generation)
}

// Generation returns how often a job was restarted or rescheduled.
func Generation(status *v2alpha1.DIJobStatus) int64 {
	return int64(status.Restarts) + int64(status.Reschedules)
}

// ManagedByName is the value of spec.managedBy for jobs that DI Orchestrator itself manages.
const ManagedByName = v2alpha1.GroupName + "/di-operator"

// OtherManager returns the controller that manages a job instead of DI Orchestrator; empty if there
// is none.
func OtherManager(spec *v2alpha1.DIJobSpec) string {
	if manager := spec.ManagedBy; manager != nil && *manager != ManagedByName {
		return *manager
	}
	return ""
}

// ElasticTask returns the index of the elastic task: the one that the spec names, else the
// collector, else the only task; -1 if there is none.
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

// FollowsRatio reports whether the operator sizes the i-th task by a ratio rule.
func FollowsRatio(spec *v2alpha1.DIJobSpec, i int) bool {
	if spec.Autoscale == nil || spec.Autoscale.Ratio == nil || spec.Autoscale.Ratio.Driver == v2alpha1.RatioByCoordinator {
		return false
	}
	pools := spec.Autoscale.Ratio.Producers
	if len(pools) == 0 {
		return i == ElasticTask(spec)
	}
	return slices.ContainsFunc(pools, func(pool v2alpha1.ProducerPool) bool { return pool.Task == TaskName(&spec.Tasks[i]) })
}

// DynamicTask is the task whose replicas TensorFlow may add and remove while the others keep
// running.
const DynamicTask = "worker"

// LauncherTask is the task that starts the processes of an MPI job.
const LauncherTask = "launcher"

// HasDynamicWorkers reports whether a job with a clusterSpec sets onResize: Continue explicitly, and all its frameworks
// permit that the replicas of its elastic task come and go. TensorFlow permits it for task worker: the cluster spec
// of such a worker then lists only itself and the other tasks, and that of the other tasks lists no worker. MPI
// permits it for all tasks but the launcher, which discovers the hosts.
func HasDynamicWorkers(spec *v2alpha1.DIJobSpec) bool {
	elastic := ElasticTask(spec)
	if len(spec.ClusterSpec) == 0 || elastic < 0 || spec.Elastic == nil || spec.Elastic.OnResize != v2alpha1.OnResizeContinue {
		return false
	}
	task := TaskName(&spec.Tasks[elastic])
	return !slices.ContainsFunc(spec.ClusterSpec, func(framework v2alpha1.ClusterSpec) bool {
		switch framework {
		case v2alpha1.ClusterSpecTensorFlow:
			return task != DynamicTask
		case v2alpha1.ClusterSpecMPI:
			return task == LauncherTask
		default:
			return true
		}
	})
}

// HasMPI reports whether a job has the cluster spec of MPI.
func HasMPI(spec *v2alpha1.DIJobSpec) bool {
	return slices.Contains(spec.ClusterSpec, v2alpha1.ClusterSpecMPI)
}

// IsMPILauncher reports whether a task starts the processes of an MPI job.
func IsMPILauncher(spec *v2alpha1.DIJobSpec, task *v2alpha1.Task) bool {
	return HasMPI(spec) && TaskName(task) == LauncherTask
}

// DecidingTasks returns the names of the tasks whose success is that of a worker-led job; none if all decide. Of an
// MPI job it is the launcher by default, because daemons of ssh do not end.
func DecidingTasks(spec *v2alpha1.DIJobSpec) []string {
	switch {
	case spec.SuccessPolicy != nil && len(spec.SuccessPolicy.TargetTasks) > 0:
		return spec.SuccessPolicy.TargetTasks
	case HasMPI(spec):
		return []string{LauncherTask}
	}
	return nil
}

// TaskName returns a task's name, or its type if it has none.
func TaskName(task *v2alpha1.Task) string {
	if task.Name != "" {
		return task.Name
	}
	return string(task.Type)
}

// NameOfType returns the name of the first task of a type, or the type if there is none.
func NameOfType(spec *v2alpha1.DIJobSpec, kind v2alpha1.TaskType) string {
	for i := range spec.Tasks {
		if spec.Tasks[i].Type == kind {
			return TaskName(&spec.Tasks[i])
		}
	}
	return string(kind)
}

// maxManager is the maximum length of a field manager, in bytes.
const maxManager = 128

// PlanManager returns the field manager of what the operator writes for a ScalePlan.
func PlanManager(plan string) string {
	manager := "scaleplan/" + plan
	return manager[:min(len(manager), maxManager)]
}
