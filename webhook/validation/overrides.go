// Copyright The DI Orchestrator Authors.
// SPDX-License-Identifier: Apache-2.0

package validation

import (
	"cmp"
	"fmt"
	"maps"
	"slices"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/util/validation/field"
	"k8s.io/utils/ptr"

	"opendilab.org/di-orchestrator/apis/v2alpha1"
	"opendilab.org/di-orchestrator/internal/names"
	"opendilab.org/di-orchestrator/job/workload"
	"opendilab.org/di-orchestrator/webhook/validation/jsontype"
)

// overrides are the fields that the operator sets on the pods of a task in place of the
// template's.
type overrides struct {
	labels, annotations, env []string
	// cluster are the variables of the frameworks, which are the same for all tasks.
	cluster map[string]bool
}

// sets reports whether the operator sets a variable.
func (o *overrides) sets(variable string) bool {
	return o.cluster[variable] || slices.Contains(o.env, variable)
}

// overridesOf returns the overrides of a task's pods in a job with those cluster variables.
func overridesOf(spec *v2alpha1.DIJobSpec, task *v2alpha1.Task, clusterVariables map[string]bool) overrides {
	if !coordinatorLed(spec) {
		annotations := []string{
			names.AnnotationReplicas, names.AnnotationRank, names.AnnotationTaskRank, names.AnnotationNode, names.AnnotationAttempt,
			names.AnnotationContainers, names.AnnotationReplicaRestart,
		}
		if len(spec.ClusterSpec) > 0 {
			annotations = append(annotations, names.AnnotationCluster)
		}
		return overrides{
			labels: slices.Sorted(maps.Keys(names.WorkerLabels("", task.Type, "", ""))), annotations: annotations,
			env: []string{
				names.EnvDIJobID, names.EnvDIServerURL, names.EnvDIRank, names.EnvDINodes, names.EnvDIReplicaRestart, names.EnvDIJobReplicas,
				names.TaskNodesVariable(names.TaskName(task)),
			},
			cluster: clusterVariables,
		}
	}
	// The roles of tasks are named like their types.
	return replicaOverrides(names.ReplicaType(task.Type))
}

// clusterVariables returns the variables by which the frameworks of a job find their cluster. A job
// of one pod gets no variable of TensorFlow.
func clusterVariables(spec *v2alpha1.DIJobSpec) map[string]bool {
	variables := map[string]bool{}
	set := func(names ...string) {
		for _, name := range names {
			variables[name] = true
		}
	}
	replicas, elastic := int64(0), names.ElasticTask(spec)
	for i := range spec.Tasks {
		replicas += int64(desiredReplicas(spec, i, elastic))
	}
	if slices.Contains(spec.ClusterSpec, v2alpha1.ClusterSpecTensorFlow) && replicas != 1 {
		set(names.EnvTFConfig)
		for i := range spec.Tasks {
			set(names.TaskClusterVariable(names.TaskName(&spec.Tasks[i])))
		}
	}
	if slices.Contains(spec.ClusterSpec, v2alpha1.ClusterSpecTorch) {
		set(names.EnvMasterAddr, names.EnvMasterPort, names.EnvWorldSize, names.EnvRank,
			names.EnvPETMasterAddr, names.EnvPETMasterPort, names.EnvPETNodes, names.EnvPETNodeRank)
	}
	if names.HasMPI(spec) {
		set(workload.MPIVariables()...)
	}
	return variables
}

// replicaOverrides returns the fields that the operator sets on the pods of a role of
// coordinator-led jobs.
func replicaOverrides(role names.ReplicaType) overrides {
	set := overrides{
		labels:      slices.Sorted(maps.Keys(names.ReplicaLabels("", role, ""))),
		annotations: []string{names.AnnotationContainers},
		env:         []string{names.EnvPodNamespace, names.EnvPodName, names.EnvServerURL, names.PortVariable(role)},
	}
	switch role {
	case names.ReplicaTypeCoordinator:
		set.env = append(set.env, names.EnvCoordinatorURL)
	case names.ReplicaTypeAggregator:
		set.annotations = append(set.annotations, names.AnnotationSlot, names.AnnotationDDPGPUs, names.AnnotationDDPPort)
	case names.ReplicaTypeCollector, names.ReplicaTypeLearner, names.ReplicaTypeDDPLearner:
		set.annotations = append(set.annotations, names.AnnotationSlot)
	}
	return set
}

// maxHostname is the maximum length of a host name on Linux.
const maxHostname = 64

// warnTemplates returns warnings about fields of templates that the pods will not have, or with which they
// do not find each other.
func warnTemplates(job *v2alpha1.DIJob, at paths, domain string) []string {
	var warnings []string
	spec := &job.Spec
	variables := clusterVariables(spec)
	for i := range spec.Tasks {
		if len(warnings) >= jsontype.MaxFindings {
			break
		}
		at := at.task(i, "template")
		template, found := jsontype.Read[corev1.PodTemplateSpec](spec.Tasks[i].Template.Raw, at)
		if len(found.Mistyped) == 0 {
			warnings = append(warnings, warnTemplate(spec, &spec.Tasks[i], variables, template, at)...)
			warnings = append(warnings, warnNetwork(job, &spec.Tasks[i], &template.Spec, at.Child("spec"), domain)...)
		}
	}
	return warnings
}

// warnTemplate does the same for one template.
func warnTemplate(
	spec *v2alpha1.DIJobSpec, task *v2alpha1.Task, clusterVariables map[string]bool, template *corev1.PodTemplateSpec, at *field.Path,
) []string {
	var w notes
	w.overridden(template, overridesOf(spec, task, clusterVariables), at)
	if own := template.Spec.PriorityClassName; own != "" && spec.PriorityClassName != "" && own != spec.PriorityClassName {
		w.add(at.Child("spec", "priorityClassName"), "is overridden by the job's, which is %s", spec.PriorityClassName)
	}
	if own := template.Spec.SchedulerName; own != "" && spec.Scheduling != nil && spec.Scheduling.SchedulerName != "" && own != spec.Scheduling.SchedulerName {
		w.add(at.Child("spec", "schedulerName"), "is overridden by the job's, which is %s", spec.Scheduling.SchedulerName)
	}
	if coordinatorLed(spec) {
		w.coordinatorLed(task, &template.Spec, at.Child("spec"))
	} else {
		w.workerLed(spec, task, &template.Spec, at.Child("spec"))
	}
	return w
}

// warnNetwork returns warnings about settings of a pod's network with which the addresses that the operator
// sets do not work.
func warnNetwork(job *v2alpha1.DIJob, task *v2alpha1.Task, pod *corev1.PodSpec, at *field.Path, domain string) []string {
	var w notes
	hasServers := pod.DNSConfig != nil && len(pod.DNSConfig.Nameservers) > 0
	switch {
	case pod.DNSPolicy == corev1.DNSDefault, pod.DNSPolicy == corev1.DNSNone && !hasServers:
		w.add(at.Child("dnsPolicy"), "is %s: the pods cannot resolve the names of Services, so neither their peers nor di-server; omit it", pod.DNSPolicy)
	case pod.DNSPolicy == corev1.DNSNone:
		w.add(at.Child("dnsPolicy"), "is None: dnsConfig.nameservers must resolve the names of Services, as those of peers and di-server; else omit it")
	}
	if !ptr.Deref(pod.SetHostnameAsFQDN, false) || coordinatorLed(&job.Spec) {
		return w
	}
	name := names.WorkerPod(job.Name, names.TaskName(task), max(0, replicasOf(task)-1))
	if fqdn := names.WorkerFQDN(name, job.Name, job.Namespace, cmp.Or(domain, names.DefaultDomain)); len(fqdn) > maxHostname {
		w.add(at.Child("setHostnameAsFQDN"), "keeps the pods from starting: %s has %d characters, and a host name has at most %d; omit it", fqdn, len(fqdn), maxHostname)
	}
	return w
}

// notes are warnings, each with the path of its field.
type notes []string

func (w *notes) add(at *field.Path, message string, args ...any) {
	*w = append(*w, at.String()+": "+fmt.Sprintf(message, args...))
}

// overridden adds the fields of a template that the operator overrides.
func (w *notes) overridden(template *corev1.PodTemplateSpec, set overrides, at *field.Path) {
	w.metadata(template, &set, at.Child("metadata"))
	w.environment(template.Spec.InitContainers, &set, at.Child("spec", "initContainers"))
	w.environment(template.Spec.Containers, &set, at.Child("spec", "containers"))
}

func (w *notes) metadata(template *corev1.PodTemplateSpec, set *overrides, at *field.Path) {
	for _, ignored := range []struct {
		name  string
		isSet bool
	}{
		{"name", template.Name != ""}, {"generateName", template.GenerateName != ""},
		{"namespace", template.Namespace != ""}, {"ownerReferences", len(template.OwnerReferences) > 0},
	} {
		if ignored.isSet {
			w.add(at.Child(ignored.name), "is ignored: the operator names pods, and creates them in the job's namespace with the job as owner")
		}
	}
	if len(template.Finalizers) > 0 {
		w.add(at.Child("finalizers"), "is ignored: if no controller removes them, the pod is never deleted and its name is never free")
	}
	for _, key := range set.labels {
		if _, ok := template.Labels[key]; ok {
			w.add(at.Child("labels").Key(key), "is overridden: the operator sets this label")
		}
	}
	for _, key := range set.annotations {
		if _, ok := template.Annotations[key]; ok {
			w.add(at.Child("annotations").Key(key), "is overridden: the operator sets this annotation")
		}
	}
}

func (w *notes) environment(containers []corev1.Container, ours *overrides, at *field.Path) {
	for i := range containers {
		for j := range containers[i].Env {
			if name := containers[i].Env[j].Name; ours.sets(name) {
				w.add(at.Index(i).Child("env").Index(j), "is overridden: the operator sets %s", name)
			}
		}
	}
}

func (w *notes) coordinatorLed(task *v2alpha1.Task, pod *corev1.PodSpec, at *field.Path) {
	if task.Type == v2alpha1.TaskTypeCoordinator && pod.RestartPolicy == corev1.RestartPolicyAlways {
		w.add(at.Child("restartPolicy"), "is Always: the coordinator restarts after it has finished, so the job never finishes; omit it, or set Never")
	}
	w.ignoredPorts(names.ReplicaType(task.Type), pod, at)
}

// ignoredPorts adds ports that have the name of the advertised port but are not advertised.
func (w *notes) ignoredPorts(role names.ReplicaType, pod *corev1.PodSpec, at *field.Path) {
	served := names.DIPort(pod, role)
	for i := range pod.Containers {
		for j, port := range pod.Containers[i].Ports {
			if port.Name == names.Port && pod.Containers[i].Name != names.Container {
				w.add(at.Child("containers").Index(i).Child("ports").Index(j),
					"is not advertised: other pods use port %d, because only %s of a container named %s counts", served, names.Port, names.Container)
			}
		}
	}
}

func (w *notes) workerLed(spec *v2alpha1.DIJobSpec, task *v2alpha1.Task, pod *corev1.PodSpec, at *field.Path) {
	if policy := pod.RestartPolicy; policy != "" && policy != corev1.RestartPolicyNever {
		w.add(at.Child("restartPolicy"), "is overridden by Never: spec.backoffLimit limits the restarts of the job")
	}
	if pod.Hostname != "" {
		w.add(at.Child("hostname"), "is overridden: replicas find each other by their pods' names")
	}
	if pod.Subdomain != "" {
		w.add(at.Child("subdomain"), "is overridden: replicas find each other through the job's service")
	}
	if pod.HostNetwork && (replicasOf(task) > 1 || len(spec.Tasks) > 1) {
		w.add(at.Child("hostNetwork"), "keeps replicas that serve on the same port off the same node: without a free node they stay pending")
	}
}
