// Copyright The DI Orchestrator Authors.
// SPDX-License-Identifier: Apache-2.0

package dijob

import (
	"context"
	"fmt"
	"strconv"
	"strings"
	"time"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	autoscalingv1 "k8s.io/api/autoscaling/v1"
	corev1 "k8s.io/api/core/v1"
	eventsv1 "k8s.io/api/events/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/events"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"opendilab.org/di-orchestrator/apis/v2alpha1"
	"opendilab.org/di-orchestrator/internal/names"
	"opendilab.org/di-orchestrator/test/testkit/specs"
)

// resizer is a writer that resizes the collectors.
type resizer struct {
	// resize requests the given number of collectors beside the one learner.
	resize func(ctx context.Context, s *space, collectors int32) error
	// writer is the name of the writer in the Event.
	writer string
	// refused means that the writer gets an error if it exceeds the bounds. Otherwise the count is
	// clamped.
	refused bool
}

// resizers returns all writers of a job's counts.
func resizers() map[string]resizer {
	return map[string]resizer{
		"the replicas of the task": {writer: "editor", refused: true, resize: func(ctx context.Context, s *space, collectors int32) error {
			job := s.job(ctx)
			job.Spec.Tasks[1].Replicas = &collectors
			return shared.api.Update(ctx, job, client.FieldOwner("editor"))
		}},
		"spec.elastic.replicas": {writer: "editor", refused: true, resize: func(ctx context.Context, s *space, collectors int32) error {
			return s.patch(ctx, "", fmt.Sprintf(`{"spec":{"elastic":{"replicas":%d}}}`, collectors), "editor")
		}},
		"kubectl scale": {writer: "kubectl through /scale", refused: true, resize: func(ctx context.Context, s *space, collectors int32) error {
			return s.kubectl(ctx, "scale", "dijob/job", "--replicas="+strconv.Itoa(int(collectors)))
		}},
		"an autoscaler": {writer: "kube-controller-manager through /scale", refused: true, resize: func(ctx context.Context, s *space, collectors int32) error {
			api := clientOf("kube-controller-manager/v1.36.3 (linux/amd64) kubernetes/0000000/horizontal-pod-autoscaler")
			scale := &autoscalingv1.Scale{}
			if err := api.SubResource("scale").Get(ctx, s.job(ctx), scale); err != nil {
				return err
			}
			scale.Spec.Replicas = collectors
			return api.SubResource("scale").Update(ctx, s.job(ctx), client.WithSubResourceBody(scale))
		}},
		"kubectl patch of the status": {writer: "kubectl-patch through /status", resize: func(ctx context.Context, s *space, collectors int32) error {
			return s.kubectl(ctx, "patch", "dijob", "job", "--subresource=status", "--type=merge", "-p", fmt.Sprintf(`{"status":{"replicas":%d}}`, collectors+1))
		}},
		"the script of v1.1.3": {writer: "update_replicas through /status", resize: func(ctx context.Context, s *space, collectors int32) error {
			return s.updateStatus(ctx, collectors+1, nil)
		}},
		"a typed client of v1.1.3": {writer: "update_replicas through /status", resize: func(ctx context.Context, s *space, collectors int32) error {
			return s.updateStatus(ctx, collectors+1, []string{
				"completionTimestamp", "restarts", "reschedules", "phase", "replicas", "taskStatus", "readyReplicas", "allocation", "conditions",
			})
		}},
		"di-server": {writer: "di-server through /status", resize: func(ctx context.Context, s *space, collectors int32) error {
			job := s.job(ctx)
			patch := client.MergeFromWithOptions(job.DeepCopy(), client.MergeFromWithOptimisticLock{})
			job.Status.Replicas = collectors + 1
			return shared.api.Status().Patch(ctx, job, patch, client.FieldOwner(names.ServerName))
		}},
	}
}

var _ = Describe("An elastic job", func() {
	for name, writer := range resizers() {
		It("is resized by "+name+", and no other replica restarts", func(ctx SpecContext) {
			s := newElastic(ctx)
			before := s.seats(ctx)

			By("growing")
			Expect(writer.resize(ctx, s.space, 4)).To(Succeed())
			Expect(s.settle(ctx)).To(Succeed())
			Expect(s.resizes()).To(ConsistOf("Normal Resized 2 -> 4 replicas of task collector, by " + writer.writer))
			grown := s.seats(ctx)
			Expect(grown).To(HaveLen(5))
			for pod, seat := range before {
				Expect(grown).To(HaveKeyWithValue(pod, seat))
			}
			Expect(grown["job-collector-2"].rank).To(Equal("3"))
			Expect(grown["job-collector-3"].rank).To(Equal("4"))
			s.expectPeerList(ctx, "job-collector-2", "job-learner-0", "job-collector-0", "job-collector-1", "job-collector-2", "job-collector-3")
			s.expectPeerList(ctx, "job-collector-3", "job-learner-0", "job-collector-0", "job-collector-1", "job-collector-2", "job-collector-3")
			s.run(ctx)
			Expect(s.settle(ctx)).To(Succeed())
			s.expectAtRest(ctx, 4)

			By("shrinking")
			Expect(writer.resize(ctx, s.space, 1)).To(Succeed())
			Expect(s.settle(ctx)).To(Succeed())
			Expect(s.resizes()).To(ConsistOf("Normal Resized 4 -> 1 replica of task collector, by " + writer.writer))
			Expect(s.seats(ctx)).To(Equal(map[string]seat{"job-learner-0": before["job-learner-0"], "job-collector-0": before["job-collector-0"]}))
			s.expectAtRest(ctx, 1)

			By("asking for more than may be, and for less")
			for _, beyond := range []struct {
				asked, given int32
				want         string
			}{{9, 5, "1 -> 5 replicas"}, {0, 1, "5 -> 1 replica"}} {
				err := writer.resize(ctx, s.space, beyond.asked)
				if writer.refused {
					Expect(err).To(MatchError(ContainSubstring("as must the replicas of the task that it counts; not " + strconv.Itoa(int(beyond.asked)))))
					continue
				}
				Expect(err).NotTo(HaveOccurred())
				from := s.job(ctx).Status.Scaling
				Expect(s.settle(ctx)).To(Succeed())
				s.run(ctx)
				Expect(s.settle(ctx)).To(Succeed())
				Expect(s.resizes()).To(ConsistOf(fmt.Sprintf("Normal Resized %s of task collector (%d asked for), by %s",
					beyond.want, beyond.asked, writer.writer)), "from %v", from)
				s.expectAtRest(ctx, beyond.given)
			}
			s.expectAtRest(ctx, 1)
			Expect(s.seats(ctx)).To(HaveKeyWithValue("job-learner-0", before["job-learner-0"]))
		})
	}

	It("is as the last of two writers wants it", func(ctx SpecContext) {
		for first, second := range map[string]string{
			"di-server":             "kubectl scale",
			"spec.elastic.replicas": "kubectl patch of the status",
		} {
			s := newElastic(ctx)
			writers := resizers()
			Expect(writers[first].resize(ctx, s.space, 5)).To(Succeed())
			s.waitForNextSecond(ctx)
			Expect(writers[second].resize(ctx, s.space, 3)).To(Succeed())
			Expect(s.settle(ctx)).To(Succeed())
			Expect(s.resizes()).To(ConsistOf("Normal Resized 2 -> 3 replicas of task collector, by " + writers[second].writer))
			s.run(ctx)
			Expect(s.settle(ctx)).To(Succeed())
			s.expectAtRest(ctx, 3)
		}
	})

	It("records the scale subresource alone if no writer owns the count", func(ctx SpecContext) {
		s := newElastic(ctx, func(spec *v2alpha1.DIJobSpec) { spec.Elastic.Replicas = nil })
		writers := resizers()
		for _, step := range []struct {
			name       string
			from, to   int32
			wantWriter string
		}{
			{"kubectl scale", 2, 4, "through /scale"},
			{"an autoscaler", 4, 3, "through /scale"},
			{"spec.elastic.replicas", 3, 4, "by editor"},
			{"kubectl scale", 4, 3, "by kubectl through /scale"},
		} {
			s.waitForNextSecond(ctx)
			Expect(writers[step.name].resize(ctx, s.space, step.to)).To(Succeed())
			Expect(s.settle(ctx)).To(Succeed())
			Expect(s.resizes()).To(ConsistOf(fmt.Sprintf("Normal Resized %d -> %d replicas of task collector, %s", step.from, step.to, step.wantWriter)), step.name)
			s.run(ctx)
			Expect(s.settle(ctx)).To(Succeed())
		}
	})

	It("records one Event with the writer of a resize, though the cache lacks it", func(ctx SpecContext) {
		s := newElastic(ctx)
		s.startManager(ctx)
		for _, step := range []struct {
			name     string
			from, to int
		}{{"kubectl scale", 2, 4}, {"a typed client of v1.1.3", 4, 3}, {"an autoscaler", 3, 5}} {
			writer := resizers()[step.name]
			Expect(writer.resize(ctx, s.space, int32(step.to))).To(Succeed())
			Eventually(s.podNames).WithContext(ctx).WithTimeout(patience).Should(HaveLen(step.to + 1))
			Eventually(s.notes).WithContext(ctx).WithTimeout(patience).Should(ContainElement(
				fmt.Sprintf("Resized: %d -> %d replicas of task collector, by %s", step.from, step.to, writer.writer)))
			s.run(ctx)
			Eventually(func() int32 { return s.job(ctx).Status.ReadyReplicas }).WithContext(ctx).WithTimeout(patience).Should(BeEquivalentTo(step.to + 1))
		}
		Expect(s.notes(ctx)).To(HaveLen(3))
		Expect(s.managers(ctx)).To(ContainElements("kube-controller-manager scale Update", "dijob.test  Update"))
	})

	It("has an answer for the scale subresource though it was stored without one", func(ctx SpecContext) {
		s := newSpace(ctx)
		s.storeWithoutDefaults(ctx)
		scale := &autoscalingv1.Scale{}
		Expect(shared.api.SubResource("scale").Get(ctx, s.job(ctx), scale)).NotTo(Succeed())
		Expect(s.settle(ctx)).To(Succeed())
		Expect(s.job(ctx).Spec.Elastic).To(Equal(&v2alpha1.Elastic{Task: "collector", Replicas: ptr.To(int32(2))}))
		Expect(shared.api.SubResource("scale").Get(ctx, s.job(ctx), scale)).To(Succeed())
		Expect(scale.Spec.Replicas).To(BeEquivalentTo(2))
		Expect(scale.Status.Replicas).To(BeEquivalentTo(2))
		Expect(scale.Status.Selector).To(Equal("diengine/job=job,diengine/operator=di-operator,diengine/task-name=collector"))
		Expect(s.managers(ctx)).To(ContainElement("di-operator  Update"))
		Expect(s.kubectl(ctx, "scale", "dijob/job", "--replicas=3")).To(Succeed())
		Expect(s.settle(ctx)).To(Succeed())
		Expect(s.podNames(ctx)).To(HaveLen(4))
	})
})

var _ = Describe("A preemptible job", func() {
	It("has the size of its allocation, despite other writers of the count", func(ctx SpecContext) {
		s := newElastic(ctx, func(spec *v2alpha1.DIJobSpec) { spec.Preemptible = true })
		// A job that waits for a placement prevents other jobs from growing.
		DeferCleanup(func(ctx SpecContext) { Expect(shared.api.Delete(ctx, s.job(ctx))).To(Succeed()) })
		Expect(s.podNames(ctx)).To(BeEmpty())
		Expect(s.patch(ctx, "status", `{"status":{"allocation":["a","a","b"]}}`, "allocator")).To(Succeed())
		Expect(s.settle(ctx)).To(Succeed())
		s.run(ctx)
		Expect(s.settle(ctx)).To(Succeed())
		before := s.seats(ctx)
		Expect(before).To(HaveLen(3))

		for name, writer := range resizers() {
			Expect(writer.resize(ctx, s.space, 4)).To(Succeed(), name)
			Expect(s.settle(ctx)).To(Succeed(), name)
			Expect(s.seats(ctx)).To(Equal(before), name)
			Expect(s.job(ctx).Status.Replicas).To(BeEquivalentTo(3), name)
			Expect(s.job(ctx).Status.Reschedules).To(BeZero(), name)
			Expect(s.resizes()).To(BeEmpty(), name)
			Expect(s.patch(ctx, "", `{"spec":{"elastic":{"replicas":2}}}`, "editor")).To(Succeed())
			Expect(s.settle(ctx)).To(Succeed(), name)
		}
	})
})

var _ = Describe("A coordinator-led job", func() {
	It("is not resized from outside", func(ctx SpecContext) {
		s := newLed(ctx, "")
		Expect(s.settle(ctx)).To(Succeed())
		before := s.podNames(ctx)
		Expect(s.patch(ctx, "", `{"spec":{"elastic":{"replicas":2}}}`, "editor")).To(MatchError(ContainSubstring(
			"spec.elastic: Forbidden: not for a job of lifecycle CoordinatorLed, whose coordinator decides about its replicas")))
		Expect(s.kubectl(ctx, "scale", "dijob/job", "--replicas=2")).NotTo(Succeed())
		Expect(s.patch(ctx, "status", `{"status":{"replicas":5}}`, "editor")).To(Succeed())
		Expect(s.settle(ctx)).To(Succeed())
		Expect(s.podNames(ctx)).To(Equal(before))
		Expect(s.job(ctx).Status.Replicas).To(BeEquivalentTo(1))
	})
})

// elastic is a space that keeps the Events of its operator.
type elastic struct {
	*space
	told *events.FakeRecorder
}

// newElastic submits and runs a job of a learner and two collectors, with one to five collectors allowed.
func newElastic(ctx context.Context, edits ...func(*v2alpha1.DIJobSpec)) *elastic {
	GinkgoHelper()
	s := &elastic{space: newSpace(ctx), told: events.NewFakeRecorder(1000)}
	s.operator.recorder = s.told
	spec := v2alpha1.DIJobSpec{
		Tasks: []v2alpha1.Task{
			{Type: v2alpha1.TaskTypeLearner, Template: podTemplate()},
			{Type: v2alpha1.TaskTypeCollector, Replicas: ptr.To(int32(2)), Template: podTemplate()},
		},
		Elastic: &v2alpha1.Elastic{MinReplicas: ptr.To(int32(1)), MaxReplicas: ptr.To(int32(5)), Replicas: ptr.To(int32(2))},
	}
	for _, edit := range edits {
		edit(&spec)
	}
	s.submit(ctx, spec)
	Expect(s.settle(ctx)).To(Succeed())
	s.run(ctx)
	Expect(s.settle(ctx)).To(Succeed())
	Expect(s.resizes()).To(BeEmpty(), "a job that starts is not resized")
	s.age(ctx)
	return s
}

// age backdates the earlier writes of the job. Their times have a resolution of one second, so the next
// writer is always later.
func (s *elastic) age(ctx context.Context) {
	GinkgoHelper()
	job := s.job(ctx)
	for i := range job.ManagedFields {
		if at := job.ManagedFields[i].Time; at != nil {
			job.ManagedFields[i].Time = ptr.To(metav1.NewTime(at.Add(-time.Minute)))
		}
	}
	// The API server ignores an update that changes only times.
	job.Annotations = map[string]string{"example.com/aged": "true"}
	Expect(shared.api.Update(ctx, job, client.FieldOwner("aged"))).To(Succeed())
}

// resizes returns the Events about resizes since the last call.
func (s *elastic) resizes() []string {
	var told []string
	for {
		select {
		case event := <-s.told.Events:
			if strings.Contains(event, " "+v2alpha1.ReasonResized+" ") {
				told = append(told, event)
			}
		default:
			return told
		}
	}
}

// expectAtRest expects a running job of a learner and the given number of collectors, the same number in
// the scale subresource, and no new Event.
func (s *elastic) expectAtRest(ctx context.Context, collectors int32) {
	GinkgoHelper()
	Expect(s.resizes()).To(BeEmpty())
	job := s.job(ctx)
	Expect(job.Status.Phase).To(Equal(v2alpha1.JobRunning))
	Expect(job.Status.Replicas).To(Equal(collectors + 1))
	Expect(job.Status.ReadyReplicas).To(Equal(collectors + 1))
	Expect(s.podNames(ctx)).To(HaveLen(int(collectors) + 1))
	scale := &autoscalingv1.Scale{}
	Expect(shared.api.SubResource("scale").Get(ctx, job, scale)).To(Succeed())
	Expect(scale.Status.Replicas).To(Equal(collectors))
	var selected corev1.PodList
	selector := specs.Must(metav1.ParseToLabelSelector(scale.Status.Selector))
	Expect(shared.api.List(ctx, &selected, client.InNamespace(s.name), client.MatchingLabels(selector.MatchLabels))).To(Succeed())
	Expect(selected.Items).To(HaveLen(int(collectors)))
}

// notes returns the stored Events about resizes.
func (s *elastic) notes(ctx context.Context) []string {
	list := specs.List[eventsv1.EventList](ctx, shared.api, client.InNamespace(s.name))
	var told []string
	for i := range list.Items {
		if event := &list.Items[i]; event.Reason == v2alpha1.ReasonResized {
			told = append(told, event.Reason+": "+event.Note)
		}
	}
	return told
}

// seat is the rank of a pod.
type seat struct {
	uid  types.UID
	rank string
}

func (s *space) seats(ctx context.Context) map[string]seat {
	seats := map[string]seat{}
	for _, pod := range s.pods(ctx) {
		seats[pod.Name] = seat{pod.UID, pod.Annotations[names.AnnotationRank]}
	}
	return seats
}

// expectPeerList expects that a pod reads these peers by rank, including itself.
func (s *space) expectPeerList(ctx context.Context, name string, peers ...string) {
	GinkgoHelper()
	pod := specs.Get[corev1.Pod](ctx, shared.api, s.name, name)
	env := variablesOf(ctx, pod)
	nodes := strings.Split(env[names.EnvDINodes], ",")
	Expect(nodes).To(HaveLen(len(peers)))
	for rank, peer := range peers {
		Expect(nodes[rank]).To(HavePrefix(peer + ".di-job."))
	}
	rank := specs.Must(strconv.Atoi(env["DI_RANK"]))
	Expect(peers[rank]).To(Equal(name))
}

// patch merges content into the job, or a subresource of it, as a field owner.
func (s *space) patch(ctx context.Context, subresource, content, owner string) error {
	patch := client.RawPatch(types.MergePatchType, []byte(content))
	if subresource == "" {
		return shared.api.Patch(ctx, s.job(ctx), patch, client.FieldOwner(owner))
	}
	return shared.api.SubResource(subresource).Patch(ctx, s.job(ctx), patch, client.FieldOwner(owner))
}

// updateStatus works like hack/update_replicas.go of v1.1.3: it gets the job and updates its whole status.
// If known is set, it drops all other fields, as the types of v1.1.3 do.
func (s *space) updateStatus(ctx context.Context, replicas int32, known []string) error {
	api := clientOf("update_replicas/v0.0.0 (linux/amd64) kubernetes/$Format")
	job := &unstructured.Unstructured{}
	job.SetGroupVersionKind(v2alpha1.GroupVersion.WithKind("DIJob"))
	if err := api.Get(ctx, client.ObjectKey{Namespace: s.name, Name: "job"}, job); err != nil {
		return err
	}
	status, _, err := unstructured.NestedMap(job.Object, "status")
	if err != nil {
		return err
	}
	if known != nil {
		kept := map[string]any{"profilings": map[string]any{}}
		for _, field := range known {
			if value, written := status[field]; written {
				kept[field] = value
			}
		}
		status = kept
	}
	status["replicas"] = int64(replicas)
	job.Object["status"] = status
	return api.Status().Update(ctx, job)
}

// clientOf returns a client with a user agent.
func clientOf(userAgent string) client.Client {
	GinkgoHelper()
	config := rest.CopyConfig(shared.config)
	config.UserAgent = userAgent
	return specs.Must(client.New(config, client.Options{Scheme: shared.scheme}))
}

// kubectl runs the real kubectl in the namespace.
func (s *space) kubectl(ctx context.Context, args ...string) error {
	GinkgoHelper()
	out, err := specs.Kubectl(ctx, shared.kubeConfig, append([]string{"--namespace", s.name}, args...)...)
	if err != nil {
		return fmt.Errorf("%w: %s", err, out)
	}
	return nil
}

// managers returns the field managers of the job, by subresource and operation.
func (s *space) managers(ctx context.Context) []string {
	var found []string
	for _, entry := range s.job(ctx).ManagedFields {
		found = append(found, fmt.Sprintf("%s %s %s", entry.Manager, entry.Subresource, entry.Operation))
	}
	return found
}

// waitForNextSecond waits until the API server stamps writes with a later time than all earlier writes.
// Its stamps have a resolution of one second.
func (s *space) waitForNextSecond(ctx context.Context) {
	GinkgoHelper()
	var last metav1.Time
	for _, entry := range s.job(ctx).ManagedFields {
		if entry.Time != nil && entry.Time.After(last.Time) {
			last = *entry.Time
		}
	}
	Eventually(func() bool { return time.Now().Truncate(time.Second).After(last.Time) }).WithContext(ctx).WithTimeout(patience).Should(BeTrue())
}

// storeWithoutDefaults stores a job as v1.1.3 did, whose webhook did not know elastic.
func (s *space) storeWithoutDefaults(ctx context.Context) {
	GinkgoHelper()
	s.exemptFromDefaults(ctx)
	job := func() *v2alpha1.DIJob {
		return &v2alpha1.DIJob{
			ObjectMeta: metav1.ObjectMeta{Namespace: s.name, Name: "job"},
			Spec: v2alpha1.DIJobSpec{Tasks: []v2alpha1.Task{
				{Type: v2alpha1.TaskTypeLearner, Name: "learner", Replicas: ptr.To(int32(1)), Template: podTemplate()},
				{Type: v2alpha1.TaskTypeCollector, Name: "collector", Replicas: ptr.To(int32(2)), Template: podTemplate()},
			}},
		}
	}
	// The API server learns of the exemption by a watch.
	Eventually(func(g Gomega) {
		dry := job()
		g.Expect(shared.api.Create(ctx, dry, client.DryRunAll)).To(Succeed())
		g.Expect(dry.Spec.Elastic).To(BeNil())
	}).WithContext(ctx).WithTimeout(patience).Should(Succeed())
	Expect(shared.api.Create(ctx, job())).To(Succeed())
	Expect(s.job(ctx).Spec.Elastic).To(BeNil())
}

// exemptFromDefaults exempts new jobs of the namespace from mutating webhooks.
func (s *space) exemptFromDefaults(ctx context.Context) {
	GinkgoHelper()
	list := specs.List[admissionregistrationv1.MutatingWebhookConfigurationList](ctx, shared.api)
	for i := range list.Items {
		configuration := &list.Items[i]
		original := configuration.DeepCopy()
		for j := range configuration.Webhooks {
			webhook := &configuration.Webhooks[j]
			webhook.MatchConditions = append(webhook.MatchConditions, admissionregistrationv1.MatchCondition{
				Name: "not-a-stored-job", Expression: fmt.Sprintf("request.operation != 'CREATE' || request.namespace != '%s'", s.name),
			})
		}
		Expect(shared.api.Patch(ctx, configuration, client.MergeFrom(original))).To(Succeed())
		DeferCleanup(func(ctx SpecContext) {
			restored := configuration.DeepCopy()
			restored.Webhooks = original.Webhooks
			Expect(shared.api.Patch(ctx, restored, client.MergeFrom(configuration))).To(Succeed())
		})
	}
}
