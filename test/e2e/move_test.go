// Copyright The DI Orchestrator Authors.
// SPDX-License-Identifier: Apache-2.0

//go:build e2e

package e2e

import (
	"fmt"
	"path/filepath"
	"time"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/utils/ptr"

	"opendilab.org/di-orchestrator/apis/v2alpha1"
	"opendilab.org/di-orchestrator/internal/names"
)

const (
	// movingNamespace is the namespace of the job that is rescheduled.
	movingNamespace = "moving"
	// movedAfter is the round after which it is rescheduled.
	movedAfter = 5
	// exitPreempted is the exit code of a worker that was terminated.
	exitPreempted = 143
	// claims labels specs that repeat others with a PersistentVolumeClaim. CI excludes them.
	claims = "claims"
)

var _ = Describe("A preemptible job whose node is drained", Label(twoNodes), func() {
	const name = "preempted"
	learner := names.WorkerPod(name, "learner", 0)
	leads := driver{movingNamespace, learner, names.DefaultWorkerPort}

	DescribeTable("saves its state, is moved to another node, and reaches its target by the same curve", func(ctx SpecContext, isClaim bool) {
		folder := filepath.Join(GinkgoT().TempDir(), "checkpoints")
		makeNamespace(ctx, movingNamespace)
		DeferCleanup(func(ctx SpecContext) {
			if CurrentSpecReport().Failed() {
				explain(ctx, movingNamespace, []string{"get", "pods", "-o=wide"}, []string{"get", dijobs, "-o=yaml"},
					[]string{"get", "events"}, []string{"logs", learner})
			}
		})
		job := preemptibleJob(movingNamespace, name, folder)
		if isClaim {
			claimVolume(ctx, job, folder)
		}
		addArgs(podSpecs(job)["learner"], "--min-round=100ms", fmt.Sprintf("--pause-after=%d", movedAfter))
		submit(ctx, job)
		var before *v2alpha1.DIJob
		Eventually(func(g Gomega) {
			g.Expect(leads.round(ctx, g)).To(Equal(movedAfter))
			before = getJob(ctx, g, movingNamespace, name)
			g.Expect(before.Status.Phase).To(Equal(v2alpha1.JobRunning))
		}).WithTimeout(patience).WithPolling(200 * time.Millisecond).Should(Succeed())
		Expect(before.Status.Allocation).To(HaveLen(3))
		left := before.Status.Allocation[0]
		Expect(before.Status.Allocation).To(HaveEach(left), "the job on one node")

		By("draining node " + left)
		exited := watchExit(ctx, movingNamespace, learner)
		DeferCleanup(func(ctx SpecContext) { kubectlOutput(ctx, "uncordon", left) })
		kubectlOutput(ctx, "drain", left, "--pod-selector="+names.LabelJob+"="+name, "--ignore-daemonsets", waiting())
		Expect(exited()).To(Equal(int32(exitPreempted)), "the exit code of the learner that was moved")

		By("finding it on the other node, in the round in which it left")
		Eventually(func(g Gomega) {
			g.Expect(leads.round(ctx, g)).To(Equal(movedAfter))
			job := getJob(ctx, g, movingNamespace, name)
			g.Expect(job.Status.Phase).To(Equal(v2alpha1.JobRunning))
			g.Expect(job.Status.Allocation).To(HaveLen(3))
			g.Expect(job.Status.Allocation).NotTo(ContainElement(left))
			g.Expect(job.Status.Reschedules).To(Equal(int32(1)))
			g.Expect(job.Status.Restarts).To(Equal(int32(0)))
			g.Expect(conditionOf(job, v2alpha1.ConditionAllocated)).To(Equal(corev1.ConditionTrue))
			pods, err := core.CoreV1().Pods(movingNamespace).List(ctx, metav1.ListOptions{})
			g.Expect(err).NotTo(HaveOccurred())
			g.Expect(pods.Items).To(HaveLen(3))
			for i := range pods.Items {
				g.Expect(pods.Items[i].Spec.NodeName).NotTo(Equal(left), pods.Items[i].Name)
			}
		}).WithTimeout(patience).WithPolling(200 * time.Millisecond).Should(Succeed())
		Expect(logOf(ctx, movingNamespace, learner)).To(MatchRegexp(`continuing from a checkpoint.* round=%d steps=[1-9]`, movedAfter))
		Expect(kubectlOutput(ctx, "get", "events", "--namespace="+movingNamespace, "-o=jsonpath={.items[*].reason}")).
			To(And(ContainSubstring("Placed"), ContainSubstring(v2alpha1.ReasonJobRescheduling)))

		By("letting it train to its end")
		Eventually(func(g Gomega) { leads.pause(ctx, g, 0) }).WithTimeout(patience).WithPolling(time.Second).Should(Succeed())
		expectJobSucceeded(ctx, movingNamespace, name)
		Expect(outcome(logOf(ctx, movingNamespace, learner))).To(Equal(serialOutcome(ctx, "--seed=3")))
		Expect(getJob(ctx, Default, movingNamespace, name).Status.Reschedules).To(Equal(int32(1)))
	},
		Entry("with its checkpoints in a folder of the nodes", false),
		Entry("with its checkpoints in a PersistentVolumeClaim", Label(claims), true),
	)
})

// claimVolume lets a job keep its checkpoints in a PersistentVolumeClaim of its own, whose volume is a folder that both nodes have.
func claimVolume(ctx SpecContext, job *unstructured.Unstructured, folder string) {
	GinkgoHelper()
	const claim = "checkpoints"
	size := corev1.ResourceList{corev1.ResourceStorage: resource.MustParse("1Gi")}
	modes := []corev1.PersistentVolumeAccessMode{corev1.ReadWriteOnce}
	volume := &corev1.PersistentVolume{
		ObjectMeta: metav1.ObjectMeta{GenerateName: claim + "-"},
		Spec: corev1.PersistentVolumeSpec{
			Capacity: size, AccessModes: modes, PersistentVolumeReclaimPolicy: corev1.PersistentVolumeReclaimRetain,
			ClaimRef: &corev1.ObjectReference{Namespace: job.GetNamespace(), Name: claim},
			PersistentVolumeSource: corev1.PersistentVolumeSource{HostPath: &corev1.HostPathVolumeSource{
				Path: folder, Type: ptr.To(corev1.HostPathDirectoryOrCreate),
			}},
		},
	}
	volume, err := core.CoreV1().PersistentVolumes().Create(ctx, volume, metav1.CreateOptions{})
	Expect(err).NotTo(HaveOccurred())
	DeferCleanup(func(ctx SpecContext) {
		Expect(core.CoreV1().PersistentVolumes().Delete(ctx, volume.Name, metav1.DeleteOptions{})).To(Succeed())
	})
	_, err = core.CoreV1().PersistentVolumeClaims(job.GetNamespace()).Create(ctx, &corev1.PersistentVolumeClaim{
		ObjectMeta: metav1.ObjectMeta{Name: claim},
		Spec: corev1.PersistentVolumeClaimSpec{
			// No class, so that no provisioner makes a volume.
			AccessModes: modes, StorageClassName: ptr.To(""), VolumeName: volume.Name, Resources: corev1.VolumeResourceRequirements{Requests: size},
		},
	}, metav1.CreateOptions{})
	Expect(err).NotTo(HaveOccurred())
	volumes, _, err := unstructured.NestedSlice(job.Object, "spec", "volumes")
	Expect(err).NotTo(HaveOccurred())
	Expect(unstructured.SetNestedSlice(job.Object, []any{map[string]any{
		"name": nameOf(volumes[0]), "persistentVolumeClaim": map[string]any{"claimName": claim},
	}}, "spec", "volumes")).To(Succeed())
}

// nameOf returns the name of a volume of a manifest.
func nameOf(volume any) any {
	GinkgoHelper()
	fields, ok := volume.(map[string]any)
	Expect(ok).To(BeTrue())
	return fields["name"]
}

// preemptibleJob returns the preemptible example, which saves its checkpoints in a folder.
func preemptibleJob(namespace, name, folder string) *unstructured.Unstructured {
	GinkgoHelper()
	job := readManifest("preemptible/v2alpha1.yaml")
	job.SetName(name)
	job.SetNamespace(namespace)
	volumes, _, err := unstructured.NestedSlice(job.Object, "spec", "volumes")
	Expect(err).NotTo(HaveOccurred())
	Expect(volumes).To(HaveLen(1))
	volume, ok := volumes[0].(map[string]any)
	Expect(ok).To(BeTrue())
	Expect(unstructured.SetNestedField(volume, folder, "hostPath", "path")).To(Succeed())
	Expect(unstructured.SetNestedSlice(job.Object, volumes, "spec", "volumes")).To(Succeed())
	return job
}

// watchExit starts a watch of a pod. The returned function waits for the pod's removal and returns
// the exit code that it had by then.
func watchExit(ctx SpecContext, namespace, name string) func() int32 {
	GinkgoHelper()
	watcher, err := core.CoreV1().Pods(namespace).Watch(ctx, metav1.ListOptions{
		FieldSelector: fields.OneTermEqualSelector(metav1.ObjectNameField, name).String(),
	})
	Expect(err).NotTo(HaveOccurred())
	DeferCleanup(watcher.Stop)
	return func() int32 {
		GinkgoHelper()
		code := int32(-1)
		Eventually(func(g Gomega) {
			var event watch.Event
			g.Expect(watcher.ResultChan()).To(Receive(&event))
			pod, ok := event.Object.(*corev1.Pod)
			g.Expect(ok).To(BeTrue())
			for _, status := range pod.Status.ContainerStatuses {
				if status.State.Terminated != nil {
					code = status.State.Terminated.ExitCode
				}
			}
			g.Expect(code).NotTo(Equal(int32(-1)), "the exit code of %s", name)
		}).WithTimeout(patience).WithPolling(10 * time.Millisecond).Should(Succeed())
		return code
	}
}

// conditionOf returns the status of a condition of a job.
func conditionOf(job *v2alpha1.DIJob, kind string) corev1.ConditionStatus {
	for _, condition := range job.Status.Conditions {
		if condition.Type == kind {
			return condition.Status
		}
	}
	return corev1.ConditionUnknown
}

func logOf(ctx SpecContext, namespace, pod string) string {
	GinkgoHelper()
	log, err := core.CoreV1().Pods(namespace).GetLogs(pod, &corev1.PodLogOptions{}).DoRaw(ctx)
	Expect(err).NotTo(HaveOccurred())
	return string(log)
}
