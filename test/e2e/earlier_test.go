// Copyright The DI Orchestrator Authors.
// SPDX-License-Identifier: Apache-2.0

//go:build e2e

package e2e

import (
	"fmt"
	"maps"
	"strconv"
	"strings"
	"time"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
)

// earlierImage is the image of the replacement for the programs of earlier releases.
const earlierImage = "earlier:e2e"

// The objects below are written here as those releases wrote them. Code under test must not define
// them because it would then prove nothing.

// leaveLed creates a job that v0.2.2 runs, with additional arguments for its coordinator. The names
// of its pods are the job's name and the given suffixes.
func leaveLed(ctx SpecContext, name, manifest string, args []string, pods ...string) {
	GinkgoHelper()
	ports := map[string]int{"coordinator": 22273, "collector": 22270, "learner": 22271}
	job := readManifest(manifest)
	job.SetName(name)
	specs := podSpecs(job)
	addArgs(specs["coordinator"], args...)
	if len(pods) > 1 {
		addArgs(specs["coordinator"], "--learner-gpus=0")
	}
	owner := leaveJob(ctx, job, map[string]any{
		"phase": "Running", "replicaStatus": map[string]any{"Coordinator": map[string]any{"active": int64(1)}},
	})
	for _, suffix := range pods {
		role, _, _ := strings.Cut(suffix, "-")
		pod := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{
			Name: name + "-" + suffix, OwnerReferences: []metav1.OwnerReference{owner},
			Labels: map[string]string{
				"group-name": "diengine.opendilab.org", "dijob-name": name, "controller-name": "di-operator",
				"replica-type": role, "pod-name": name + "-" + suffix,
			},
		}}
		pod.Spec = podSpec(specs[role])
		server := "di-server.di-system:8080"
		if role == "coordinator" {
			pod.Spec.RestartPolicy = corev1.RestartPolicyNever
			server = "http://" + server
			setEnv(pod, "KUBERNETES_COORDINATOR_URL", fmt.Sprintf("%s.%s:%d", pod.Name, upgradeNamespace, ports[role]))
		}
		setEnv(pod, "KUBERNETES_POD_NAMESPACE", upgradeNamespace)
		setEnv(pod, "KUBERNETES_POD_NAME", pod.Name)
		setEnv(pod, "KUBERNETES_SERVER_URL", server)
		setEnv(pod, strings.ToUpper(role)+"_PORT", strconv.Itoa(ports[role]))
		leavePod(ctx, pod)
		leaveService(ctx, pod.Name, pod.Labels, owner, int32(ports[role]))
	}
}

// leaveRanked creates a job that v1.1.3 runs, with an additional argument for its learner.
func leaveRanked(ctx SpecContext, name, arg string) {
	GinkgoHelper()
	job := readManifest("v2alpha1.yaml")
	job.SetName(name)
	specs := podSpecs(job)
	addArgs(specs["learner"], arg)
	owner := leaveJob(ctx, job, map[string]any{"phase": "Running", "replicas": int64(5), "readyReplicas": int64(5)})
	labels := map[string]string{"diengine/operator": "di-operator", "diengine/job": name}
	leaveService(ctx, "di-"+name, labels, owner, 22270)
	fqdn := func(pod string) string {
		return fmt.Sprintf("%s.di-%s.%s.svc.cluster.local", pod, name, upgradeNamespace)
	}
	team := []struct {
		task  string
		index int
	}{{"learner", 0}, {"evaluator", 0}, {"collector", 0}, {"collector", 1}, {"collector", 2}}
	var all []string
	ofTask := map[string][]string{}
	for _, one := range team {
		address := fqdn(fmt.Sprintf("%s-%s-%d", name, one.task, one.index))
		all, ofTask[one.task] = append(all, address), append(ofTask[one.task], address)
	}
	for rank, one := range team {
		pod := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{
			Name: fmt.Sprintf("%s-%s-%d", name, one.task, one.index), OwnerReferences: []metav1.OwnerReference{owner}, Labels: maps.Clone(labels),
			Annotations: map[string]string{
				"diengine/replicas": strconv.Itoa(len(team)), "diengine/rank": strconv.Itoa(rank),
				"diengine/task-rank": strconv.Itoa(one.index), "diengine/node": "",
			},
		}}
		pod.Labels["diengine/pod"], pod.Labels["diengine/task-type"], pod.Labels["diengine/task-name"] = pod.Name, one.task, one.task
		pod.Spec = podSpec(specs[one.task])
		pod.Spec.Hostname, pod.Spec.Subdomain, pod.Spec.RestartPolicy = pod.Name, "di-"+name, corev1.RestartPolicyNever
		setEnv(pod, "DI_JOB_ID", upgradeNamespace+"/"+name)
		setEnv(pod, "DI_SERVER_URL", "http://di-server.di-system.svc.cluster.local:8081")
		setEnv(pod, "DI_RANK", strconv.Itoa(rank))
		setEnv(pod, "DI_NODES", strings.Join(all, ","))
		setEnv(pod, "DI_"+strings.ToUpper(one.task)+"_NODES", strings.Join(ofTask[one.task], ","))
		leavePod(ctx, pod)
	}
}

// podSpec is the spec of a template.
func podSpec(fields map[string]any) corev1.PodSpec {
	GinkgoHelper()
	var spec corev1.PodSpec
	Expect(runtime.DefaultUnstructuredConverter.FromUnstructured(fields, &spec)).To(Succeed())
	return spec
}

func setEnv(pod *corev1.Pod, name, value string) {
	container := &pod.Spec.Containers[0]
	container.Env = append(container.Env, corev1.EnvVar{Name: name, Value: value})
}

// leaveJob creates a job of an earlier release with the status that the release wrote.
func leaveJob(ctx SpecContext, job *unstructured.Unstructured, status map[string]any) metav1.OwnerReference {
	GinkgoHelper()
	job.SetNamespace(upgradeNamespace)
	submit(ctx, job)
	began := time.Now().UTC().Format(time.RFC3339)
	phase := status["phase"]
	status["conditions"] = []any{map[string]any{
		"type": phase, "status": "True", "reason": "DIJob" + fmt.Sprint(phase), "message": "the job is running",
		"lastUpdateTime": began, "lastTransitionTime": began,
	}}
	job.Object["status"] = status
	Expect(api.Status().Update(ctx, job)).To(Succeed())
	controls := true
	return metav1.OwnerReference{APIVersion: job.GetAPIVersion(), Kind: job.GetKind(), Name: job.GetName(), UID: job.GetUID(), Controller: &controls}
}

// leavePod creates a pod as an earlier release did.
func leavePod(ctx SpecContext, pod *corev1.Pod) {
	GinkgoHelper()
	pod.Namespace = upgradeNamespace
	_, err := core.CoreV1().Pods(upgradeNamespace).Create(ctx, pod, metav1.CreateOptions{})
	Expect(err).NotTo(HaveOccurred(), pod.Name)
}

// leaveService creates a headless service as an earlier release did.
func leaveService(ctx SpecContext, name string, labels map[string]string, owner metav1.OwnerReference, port int32) {
	GinkgoHelper()
	_, err := core.CoreV1().Services(upgradeNamespace).Create(ctx, &corev1.Service{
		ObjectMeta: metav1.ObjectMeta{Name: name, Labels: labels, OwnerReferences: []metav1.OwnerReference{owner}},
		Spec: corev1.ServiceSpec{
			ClusterIP: corev1.ClusterIPNone, Selector: labels,
			Ports: []corev1.ServicePort{{Name: "di-port", Port: port}},
		},
	}, metav1.CreateOptions{})
	Expect(err).NotTo(HaveOccurred(), name)
}
