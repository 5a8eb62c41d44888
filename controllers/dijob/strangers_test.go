// Copyright The DI Orchestrator Authors.
// SPDX-License-Identifier: Apache-2.0

package dijob

import (
	"context"
	"maps"
	"slices"
	"strings"
	"time"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	admissionv1 "k8s.io/api/admissionregistration/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/intstr"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"

	"opendilab.org/di-orchestrator/apis/v2alpha1"
	"opendilab.org/di-orchestrator/controllers/sharding"
	"opendilab.org/di-orchestrator/controllers/shards"
	"opendilab.org/di-orchestrator/internal/names"
	"opendilab.org/di-orchestrator/job/lifecycle"
	"opendilab.org/di-orchestrator/test/testkit/specs"
)

// identity is the metadata of a pod, without what the API server writes.
type identity struct {
	uid                 types.UID
	labels, annotations map[string]string
	owners              []metav1.OwnerReference
}

func (s *space) podIdentities(ctx context.Context) map[string]identity {
	all := map[string]identity{}
	for _, pod := range s.pods(ctx) {
		all[pod.Name] = identity{pod.UID, pod.Labels, pod.Annotations, pod.OwnerReferences}
	}
	return all
}

// vandalize changes every pod as an administrator may.
func (s *space) vandalize(ctx context.Context, change func(*corev1.Pod)) {
	GinkgoHelper()
	for _, pod := range s.pods(ctx) {
		before := pod.DeepCopy()
		change(&pod)
		Expect(shared.api.Patch(ctx, &pod, client.MergeFrom(before))).To(Succeed())
	}
}

// mutate lets admission change the pods that are created in the space, by a JSON patch, and returns once it does. The
// returned function ends that.
func (s *space) mutate(ctx context.Context, patch string) func() {
	GinkgoHelper()
	policy := &admissionv1.MutatingAdmissionPolicy{
		ObjectMeta: metav1.ObjectMeta{Name: s.name},
		Spec: admissionv1.MutatingAdmissionPolicySpec{
			ReinvocationPolicy: admissionv1.NeverReinvocationPolicy,
			MatchConstraints: &admissionv1.MatchResources{
				NamespaceSelector: &metav1.LabelSelector{MatchLabels: map[string]string{corev1.LabelMetadataName: s.name}},
				ResourceRules: []admissionv1.NamedRuleWithOperations{{RuleWithOperations: admissionv1.RuleWithOperations{
					Operations: []admissionv1.OperationType{admissionv1.Create, admissionv1.Update},
					Rule:       admissionv1.Rule{APIGroups: []string{""}, APIVersions: []string{"v1"}, Resources: []string{"pods"}},
				}}},
			},
			Mutations: []admissionv1.Mutation{{
				PatchType: admissionv1.PatchTypeJSONPatch, JSONPatch: &admissionv1.JSONPatch{Expression: patch},
			}},
		},
	}
	binding := &admissionv1.MutatingAdmissionPolicyBinding{
		ObjectMeta: metav1.ObjectMeta{Name: s.name}, Spec: admissionv1.MutatingAdmissionPolicyBindingSpec{PolicyName: s.name},
	}
	Expect(shared.api.Create(ctx, policy)).To(Succeed())
	Expect(shared.api.Create(ctx, binding)).To(Succeed())
	probe := func() (bool, error) {
		asked := &corev1.Pod{
			ObjectMeta: metav1.ObjectMeta{Namespace: s.name, Name: "probe", Labels: map[string]string{names.LabelTaskName: "probe"}},
			Spec:       corev1.PodSpec{RestartPolicy: corev1.RestartPolicyNever, Containers: []corev1.Container{{Name: "c", Image: "i"}}},
		}
		sent := asked.DeepCopy()
		if err := shared.api.Create(ctx, asked, client.DryRunAll); err != nil {
			return false, err
		}
		return !maps.Equal(asked.Labels, sent.Labels) || asked.Spec.RestartPolicy != sent.Spec.RestartPolicy ||
			asked.Spec.DNSPolicy != corev1.DNSClusterFirst, nil
	}
	end := func() { _ = client.IgnoreNotFound(shared.api.Delete(context.WithoutCancel(ctx), binding)) }
	DeferCleanup(end)
	Eventually(probe).WithContext(ctx).WithTimeout(patience).Should(BeTrue())
	return func() {
		end()
		Eventually(probe).WithContext(ctx).WithTimeout(patience).Should(BeFalse())
	}
}

// garble changes all labels and annotations by which a pod is found.
func garble(pod *corev1.Pod) {
	for key := range pod.Labels {
		if names.IsSelecting(key) {
			pod.Labels[key] = "other"
		}
	}
	for _, key := range []string{
		names.AnnotationRank, names.AnnotationTaskRank, names.AnnotationAttempt, names.AnnotationSlot,
	} {
		if pod.Annotations[key] != "" {
			pod.Annotations[key] = "7"
		}
	}
	delete(pod.Annotations, names.AnnotationContainers)
}

// strip removes what garble changes.
func strip(pod *corev1.Pod) {
	for key := range pod.Labels {
		if names.IsSelecting(key) {
			delete(pod.Labels, key)
		}
	}
	for _, key := range []string{
		names.AnnotationRank, names.AnnotationTaskRank, names.AnnotationAttempt, names.AnnotationSlot, names.AnnotationContainers,
	} {
		delete(pod.Annotations, key)
	}
}

// built are the annotations that describe what a pod was built with.
var built = []string{names.AnnotationReplicas, names.AnnotationReplicaRestart, names.AnnotationResources, names.AnnotationCluster}

// sizeCollectors records other resources of collectors, as the execution of a plan does.
func (s *space) sizeCollectors(ctx context.Context) {
	GinkgoHelper()
	job := s.job(ctx)
	if job.Status.Scaling == nil {
		job.Status.Scaling = &v2alpha1.ScalingStatus{}
	}
	job.Status.Scaling.Resources = []v2alpha1.ResourceOverride{{
		Task: "collector", Reason: v2alpha1.OverrideScalePlan, Resources: v2alpha1.ReplicaResources{CPU: ptr.To(resource.MustParse("2"))},
	}}
	Expect(shared.api.Status().Update(ctx, job)).To(Succeed())
}

var _ = Describe("A job whose objects others change", func() {
	const failing = v2alpha1.ConditionReplicaFailure

	for name, change := range map[string]func(*corev1.Pod){"changed": garble, "removed": strip} {
		It("puts back labels and annotations of workers that are "+name+", and replaces no pod", func(ctx SpecContext) {
			s := newWorkers(ctx, 0)
			s.start(ctx)
			before := s.podIdentities(ctx)
			s.vandalize(ctx, change)
			Expect(s.settle(ctx)).To(Succeed())
			Expect(s.podIdentities(ctx)).To(Equal(before))
			Expect(s.job(ctx).Status.Restarts).To(BeZero())
		})
		It("puts back labels and slots of replicas that are "+name+", and replaces no pod", func(ctx SpecContext) {
			s := newLed(ctx, "")
			s.start(ctx)
			s.askForReplicas(ctx)
			Expect(s.settle(ctx)).To(Succeed())
			s.run(ctx)
			Expect(s.settle(ctx)).To(Succeed())
			before := s.podIdentities(ctx)
			Expect(before).To(HaveLen(5))
			s.vandalize(ctx, change)
			Expect(s.settle(ctx)).To(Succeed())
			Expect(s.podIdentities(ctx)).To(Equal(before))
		})
	}

	for name, change := range map[string]func(*corev1.Pod){
		"changed": func(pod *corev1.Pod) {
			for _, key := range built {
				metav1.SetMetaDataAnnotation(&pod.ObjectMeta, key, "2")
			}
		},
		"changed to what is possible": func(pod *corev1.Pod) {
			metav1.SetMetaDataAnnotation(&pod.ObjectMeta, names.AnnotationReplicas, "2")
			metav1.SetMetaDataAnnotation(&pod.ObjectMeta, names.AnnotationReplicaRestart, "2")
			metav1.SetMetaDataAnnotation(&pod.ObjectMeta, names.AnnotationResources, "cpu=3,memory=8Gi")
			metav1.SetMetaDataAnnotation(&pod.ObjectMeta, names.AnnotationCluster, "TensorFlow: learner=1,collector=3")
		},
		"removed": func(pod *corev1.Pod) {
			for _, key := range built {
				delete(pod.Annotations, key)
			}
		},
	} {
		It("puts back what workers were built with that is "+name+" while no operator runs, and replaces no pod", func(ctx SpecContext) {
			s := newSpace(ctx)
			s.submitWith(ctx, func(spec *v2alpha1.DIJobSpec) {
				spec.Tasks[0].Template, spec.Tasks[1].Template = requesting(oneGi), requesting(oneGi)
				spec.ClusterSpec = []v2alpha1.ClusterSpec{v2alpha1.ClusterSpecTensorFlow}
				spec.FailurePolicy = &v2alpha1.FailurePolicy{Rules: []v2alpha1.FailurePolicyRule{{Action: v2alpha1.FailurePolicyRestartReplica}}}
			})
			Expect(s.settle(ctx)).To(Succeed())
			s.sizeCollectors(ctx)
			s.start(ctx)
			s.end(ctx, "job-collector-1", 1)
			s.start(ctx)
			before := s.podIdentities(ctx)
			Expect(before["job-collector-1"].annotations).To(And(HaveKeyWithValue(names.AnnotationReplicaRestart, "1"),
				HaveKeyWithValue(names.AnnotationResources, "cpu=2"), HaveKeyWithValue(names.AnnotationReplicas, "3"),
				HaveKeyWithValue(names.AnnotationCluster, "TensorFlow: learner=1,collector=2")))
			s.vandalize(ctx, change)
			s.operator = s.newOperator(interceptor.Funcs{})
			Expect(s.settle(ctx)).To(Succeed())
			Expect(s.podIdentities(ctx)).To(Equal(before))
			Expect(s.job(ctx).Status.ReplicaRestarts).To(Equal(map[string]int32{"job-collector-1": 1}))
		})
		It("puts back what replicas were built with that is "+name+" while no operator runs, and replaces no pod", func(ctx SpecContext) {
			s := newLed(ctx, "")
			job := s.job(ctx)
			for i := range job.Spec.Tasks {
				job.Spec.Tasks[i].Template = requesting(oneGi)
			}
			Expect(shared.api.Update(ctx, job)).To(Succeed())
			Expect(s.settle(ctx)).To(Succeed())
			s.sizeCollectors(ctx)
			s.start(ctx)
			s.askForReplicas(ctx)
			s.start(ctx)
			before := s.podIdentities(ctx)
			Expect(before).To(HaveLen(5))
			s.vandalize(ctx, func(pod *corev1.Pod) {
				if names.RoleOf(pod) == names.ReplicaTypeAggregator {
					return
				}
				change(pod)
				// No pod of a coordinator-led job has the others.
				for _, key := range []string{names.AnnotationReplicas, names.AnnotationReplicaRestart, names.AnnotationCluster} {
					delete(pod.Annotations, key)
				}
			})
			s.operator = s.newOperator(interceptor.Funcs{})
			Expect(s.settle(ctx)).To(Succeed())
			Expect(s.podIdentities(ctx)).To(Equal(before))
		})
	}

	It("says who is in its way if a label is changed each time", func(ctx SpecContext) {
		s := newSpace(ctx)
		s.clock()
		s.submitWorkers(ctx, 0)
		s.start(ctx)
		rewrite := func(pod *corev1.Pod) { pod.Labels[names.LabelTaskName] = "other" }
		for range toleratedRestorations + 2 {
			s.vandalize(ctx, rewrite)
			_ = s.reconcile(ctx)
		}
		says := condition(failing, corev1.ConditionTrue, v2alpha1.ReasonFailedUpdate, ContainSubstring("another writer changes label diengine/task-name"))
		Expect(s.job(ctx)).To(says)
		s.vandalize(ctx, rewrite)
		_ = s.reconcile(ctx)
		Expect(s.job(ctx)).To(says, "it lasts while the writes wait")
		s.reconcileFor(ctx, 15*time.Minute)
		Expect(s.job(ctx)).To(condition(failing, corev1.ConditionFalse, "", BeEmpty()))
	})

	It("puts back services that others change, and creates deleted ones", func(ctx SpecContext) {
		s := newWorkers(ctx, 0)
		s.start(ctx)
		led := newSpace(ctx)
		led.submitLed(ctx, "")
		led.start(ctx)
		for _, each := range []*space{s, led} {
			stored := func() []corev1.Service {
				list := specs.List[corev1.ServiceList](ctx, shared.api, client.InNamespace(each.name))
				for i := range list.Items {
					list.Items[i].ManagedFields, list.Items[i].ResourceVersion, list.Items[i].UID = nil, "", ""
					list.Items[i].CreationTimestamp = metav1.Time{}
				}
				return list.Items
			}
			before := stored()
			Expect(before).To(HaveLen(1))
			for what, change := range map[string]func(*corev1.Service){
				"labels":   func(service *corev1.Service) { service.Labels = nil },
				"selector": func(service *corev1.Service) { service.Spec.Selector = map[string]string{"team": "blue"} },
				"ports": func(service *corev1.Service) {
					service.Spec.Ports = []corev1.ServicePort{{Name: "other", Port: 1, TargetPort: intstr.FromInt32(2), Protocol: corev1.ProtocolTCP}}
				},
				"readiness": func(service *corev1.Service) {
					service.Spec.PublishNotReadyAddresses = !service.Spec.PublishNotReadyAddresses
				},
			} {
				list := specs.List[corev1.ServiceList](ctx, shared.api, client.InNamespace(each.name))
				changed := list.Items[0].DeepCopy()
				change(changed)
				Expect(shared.api.Patch(ctx, changed, client.MergeFrom(&list.Items[0]))).To(Succeed(), what)
				Expect(each.settle(ctx)).To(Succeed(), what)
				Expect(stored()).To(Equal(before), what)
			}
			Expect(shared.api.DeleteAllOf(ctx, &corev1.Service{}, client.InNamespace(each.name))).To(Succeed())
			Expect(each.settle(ctx)).To(Succeed())
			Expect(stored()).To(Equal(before))
		}
	})

	It("takes back the Membership, and pods and services that it no longer controls", func(ctx SpecContext) {
		s := newLed(ctx, "")
		s.start(ctx)
		before := s.podIdentities(ctx)
		disown := func(object client.Object) {
			changed, _ := object.DeepCopyObject().(client.Object)
			references := changed.GetOwnerReferences()
			references[0].Controller = nil
			changed.SetOwnerReferences(references)
			Expect(shared.api.Patch(ctx, changed, client.MergeFrom(object))).To(Succeed())
		}
		for _, pod := range s.pods(ctx) {
			disown(&pod)
		}
		var list corev1.ServiceList
		Expect(shared.api.List(ctx, &list, client.InNamespace(s.name))).To(Succeed())
		for i := range list.Items {
			disown(&list.Items[i])
		}
		s.edit(ctx, func(list *v2alpha1.Membership) { list.OwnerReferences = nil })
		Expect(s.settle(ctx)).To(Succeed())
		Expect(s.podIdentities(ctx)).To(Equal(before))
		Expect(metav1.IsControlledBy(s.membership(ctx), s.job(ctx))).To(BeTrue())
		Expect(shared.api.List(ctx, &list, client.InNamespace(s.name))).To(Succeed())
		for i := range list.Items {
			Expect(metav1.IsControlledBy(&list.Items[i], s.job(ctx))).To(BeTrue())
		}
	})

	disownWhileDown := func(ctx context.Context, s *space, isOf func(*corev1.Pod) bool) (putBack func()) {
		GinkgoHelper()
		owners := map[string][]metav1.OwnerReference{}
		s.vandalize(ctx, func(pod *corev1.Pod) {
			if isOf(pod) {
				owners[pod.Name], pod.OwnerReferences = pod.OwnerReferences, nil
			}
		})
		Expect(owners).NotTo(BeEmpty())
		s.operator = s.newOperator(interceptor.Funcs{})
		Expect(s.settle(ctx)).To(Succeed())
		for name := range owners {
			Expect(s.job(ctx)).To(condition(v2alpha1.ConditionNameConflict, corev1.ConditionTrue, v2alpha1.ConditionNameConflict, ContainSubstring(name)))
		}
		return func() {
			GinkgoHelper()
			s.vandalize(ctx, func(pod *corev1.Pod) {
				if owners[pod.Name] != nil {
					pod.OwnerReferences = owners[pod.Name]
				}
			})
			s.advance(lifecycle.ConflictDelay)
			Expect(s.settle(ctx)).To(Succeed())
			Expect(s.job(ctx)).To(condition(v2alpha1.ConditionNameConflict, corev1.ConditionFalse, "", BeEmpty()))
		}
	}
	for _, role := range []names.ReplicaType{
		names.ReplicaTypeCoordinator, names.ReplicaTypeCollector, names.ReplicaTypeAggregator, names.ReplicaTypeDDPLearner,
	} {
		It("names a pod of role "+string(role)+" whose owner is removed while no operator runs, and replaces none", func(ctx SpecContext) {
			s := newLed(ctx, "")
			s.start(ctx)
			s.askForReplicas(ctx)
			s.start(ctx)
			before := s.podIdentities(ctx)
			s.edit(ctx, func(list *v2alpha1.Membership) { list.OwnerReferences = nil })
			putBack := disownWhileDown(ctx, s, func(pod *corev1.Pod) bool { return names.RoleOf(pod) == role })
			Expect(s.podNames(ctx)).To(ConsistOf(slices.Collect(maps.Keys(before))))
			Expect(metav1.IsControlledBy(s.membership(ctx), s.job(ctx))).To(BeTrue())
			putBack()
			Expect(s.podIdentities(ctx)).To(Equal(before))
		})
	}

	It("names workers whose owner is removed while no operator runs, also when the job is shrunk or suspended meanwhile", func(ctx SpecContext) {
		for _, change := range []func(*v2alpha1.DIJob){
			func(*v2alpha1.DIJob) {},
			func(job *v2alpha1.DIJob) { job.Spec.Tasks[1].Replicas = ptr.To(int32(1)) },
			func(job *v2alpha1.DIJob) { job.Spec.Suspend = ptr.To(true) },
		} {
			s := newWorkers(ctx, 0)
			s.start(ctx)
			job := s.job(ctx)
			change(job)
			Expect(shared.api.Update(ctx, job)).To(Succeed())
			disownWhileDown(ctx, s, func(pod *corev1.Pod) bool { return pod.Name == "job-collector-1" })
			s.advance(lifecycle.ConflictDelay)
			Expect(s.settle(ctx)).To(Succeed())
			Expect(s.job(ctx)).To(condition(v2alpha1.ConditionNameConflict, corev1.ConditionTrue, v2alpha1.ConditionNameConflict, ContainSubstring("job-collector-1")))
			Expect(shared.api.Delete(ctx, &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: s.name, Name: "job-collector-1"}}, client.GracePeriodSeconds(0))).To(Succeed())
			s.advance(lifecycle.ConflictDelay)
			Expect(s.settle(ctx)).To(Succeed())
			Expect(s.job(ctx)).To(condition(v2alpha1.ConditionNameConflict, corev1.ConditionFalse, "", BeEmpty()))
		}
	})

	It("names the finalizers that keep pods of a suspended job", func(ctx SpecContext) {
		s := newWorkers(ctx, 0)
		s.start(ctx)
		release := s.hold(ctx, "job-learner-0")
		s.suspend(ctx, true)
		Expect(s.settle(ctx)).To(Succeed())
		s.advance(3 * time.Minute)
		Expect(s.settle(ctx)).To(Succeed())
		Expect(s.job(ctx)).To(condition(v2alpha1.ConditionReplicasStalled, corev1.ConditionTrue, v2alpha1.ReasonTerminating, ContainSubstring("example.com/hold")))
		release()
		Expect(s.settle(ctx)).To(Succeed())
		Expect(s.job(ctx)).To(condition(v2alpha1.ConditionReplicasStalled, corev1.ConditionFalse, "", BeEmpty()))
	})

	// moveToOtherShard gives pods the label of another shard, whose pods the cache of the next operator lacks.
	moveToOtherShard := func(ctx context.Context, s *space, isOf func(*corev1.Pod) bool) {
		GinkgoHelper()
		held := sharding.NewHeld(2)
		own := held.Label(client.ObjectKey{Namespace: s.name, Name: "job"})
		other := shards.Label(0, 2)
		if own == other {
			other = shards.Label(1, 2)
		}
		s.vandalize(ctx, func(pod *corev1.Pod) {
			if isOf(pod) {
				pod.Labels[names.LabelShard] = other
			}
		})
		inCache := staleList(func(pods *corev1.PodList) {
			pods.Items = keep(pods.Items, func(pod *corev1.Pod) bool { return pod.Labels[names.LabelShard] != other })
		})
		s.operator = s.newOperator(interceptor.Funcs{})
		s.operator.options.Shards = held
		s.operator.client = interceptor.NewClient(interceptor.NewClient(shared.operator, s.counting()), inCache)
	}

	It("deletes a worker that has the label of another shard, and that a shrink removed while no operator ran", func(ctx SpecContext) {
		s := newWorkers(ctx, 0)
		s.start(ctx)
		job := s.job(ctx)
		job.Spec.Tasks[1].Replicas = ptr.To(int32(1))
		Expect(shared.api.Update(ctx, job)).To(Succeed())
		moveToOtherShard(ctx, s, func(pod *corev1.Pod) bool { return pod.Name == "job-collector-1" })
		Expect(s.settle(ctx)).To(Succeed())
		Expect(s.podNames(ctx)).To(ConsistOf("job-learner-0", "job-collector-0"))
	})

	It("deletes replicas that have the label of another shard, and that a shrink removed while no operator ran", func(ctx SpecContext) {
		for _, role := range []names.ReplicaType{names.ReplicaTypeCollector, names.ReplicaTypeAggregator, names.ReplicaTypeDDPLearner} {
			s := newLed(ctx, "")
			s.start(ctx)
			s.askForReplicas(ctx)
			s.start(ctx)
			s.edit(ctx, func(list *v2alpha1.Membership) { list.Spec.Members = nil })
			moveToOtherShard(ctx, s, func(pod *corev1.Pod) bool { return names.RoleOf(pod) == role })
			Expect(s.settle(ctx)).To(Succeed())
			Expect(s.podNames(ctx)).To(ConsistOf("job-coordinator"), string(role))
		}
	})

	It("suspends a pod that has the label of another shard, and is in no cache", func(ctx SpecContext) {
		s := newWorkers(ctx, 0)
		s.start(ctx)
		moveToOtherShard(ctx, s, func(pod *corev1.Pod) bool { return pod.Name == "job-learner-0" })
		s.suspend(ctx, true)
		Expect(s.settle(ctx)).To(Succeed())
		Expect(s.podNames(ctx)).To(BeEmpty())
	})
})

var _ = Describe("A job whose pods admission changes", func() {
	const failing = v2alpha1.ConditionReplicaFailure

	It("refuses pods that would never end, until admission leaves them", func(ctx SpecContext) {
		s := newSpace(ctx)
		s.clock()
		end := s.mutate(ctx, `[JSONPatch{op: "replace", path: "/spec/restartPolicy", value: "Always"}]`)
		s.submitWorkers(ctx, 0)
		for range 3 {
			_ = s.reconcile(ctx)
			Expect(s.podNames(ctx)).To(BeEmpty())
			Expect(s.job(ctx)).To(condition(failing, corev1.ConditionTrue, v2alpha1.ReasonFailedCreate,
				ContainSubstring(`admission changes spec.restartPolicy from "Never" to "Always"`)))
		}
		end()
		s.reconcileFor(ctx, time.Minute)
		Expect(s.podNames(ctx)).To(HaveLen(3))
		Expect(s.job(ctx)).To(condition(failing, corev1.ConditionFalse, "", BeEmpty()))
	})

	It("names other DNS settings as long as pods run with them", func(ctx SpecContext) {
		s := newSpace(ctx)
		end := s.mutate(ctx, `[JSONPatch{op: "replace", path: "/spec/dnsPolicy", value: "Default"}]`)
		s.submitWorkers(ctx, 1)
		s.start(ctx)
		says := condition(v2alpha1.ConditionPodsChanged, corev1.ConditionTrue, v2alpha1.ReasonChangedByAdmission,
			ContainSubstring(`admission changed spec.dnsPolicy from "ClusterFirst" to "Default", of pod job-collector-0`))
		Expect(s.job(ctx)).To(says)
		s.operator = s.newOperator(interceptor.Funcs{})
		Expect(s.settle(ctx)).To(Succeed())
		Expect(s.job(ctx)).To(says, "another operator knows it, too")
		Expect(s.job(ctx).Status.Summary.Reason).To(Equal(v2alpha1.ReasonChangedByAdmission))
		end()
		s.end(ctx, "job-learner-0", 1)
		Expect(s.settle(ctx)).To(Succeed())
		s.run(ctx)
		Expect(s.settle(ctx)).To(Succeed())
		Expect(s.job(ctx)).To(condition(v2alpha1.ConditionPodsChanged, corev1.ConditionFalse, "", BeEmpty()))
	})

	It("says that a label is changed at each write as long as it is", func(ctx SpecContext) {
		s := newSpace(ctx)
		s.clock()
		end := s.mutate(ctx, `[JSONPatch{op: "replace", path: "/metadata/labels/diengine~1task-name", value: "other"}]`)
		s.submitWorkers(ctx, 0)
		for range 4 {
			_ = s.reconcile(ctx)
			Expect(s.job(ctx)).To(condition(failing, corev1.ConditionTrue, v2alpha1.ReasonFailedUpdate,
				ContainSubstring("admission changes label diengine/task-name")))
			s.advance(2 * time.Second)
		}
		end()
		s.reconcileFor(ctx, 10*time.Minute)
		Expect(s.job(ctx)).To(condition(failing, corev1.ConditionFalse, "", BeEmpty()))
		for _, pod := range s.pods(ctx) {
			Expect(strings.HasPrefix(pod.Name, "job-"+pod.Labels[names.LabelTaskName])).To(BeTrue())
		}
	})
})

var _ = Describe("The operator's watches", func() {
	It("see that others change the owner and the labels of pods and services", func(ctx SpecContext) {
		s := newSpace(ctx)
		s.startManager(ctx)
		s.submitWorkers(ctx, 0)
		Eventually(s.podNames).WithContext(ctx).WithTimeout(patience).Should(HaveLen(3))
		s.run(ctx)
		Eventually(s.phase).WithContext(ctx).WithTimeout(patience).Should(Equal(v2alpha1.JobRunning))
		before := s.podIdentities(ctx)
		s.vandalize(ctx, func(pod *corev1.Pod) {
			if pod.Name == "job-learner-0" {
				pod.OwnerReferences = nil
			} else {
				garble(pod)
			}
		})
		Eventually(s.podIdentities).WithContext(ctx).WithTimeout(patience).Should(Equal(before))
		list := specs.List[corev1.ServiceList](ctx, shared.api, client.InNamespace(s.name))
		changed := list.Items[0].DeepCopy()
		changed.Spec.Selector, changed.OwnerReferences = map[string]string{"a": "b"}, nil
		Expect(shared.api.Patch(ctx, changed, client.MergeFrom(&list.Items[0]))).To(Succeed())
		Eventually(func() map[string]string {
			Expect(shared.api.Get(ctx, client.ObjectKeyFromObject(changed), changed)).To(Succeed())
			return changed.Spec.Selector
		}).WithTimeout(patience).Should(Equal(list.Items[0].Spec.Selector))
		Expect(metav1.IsControlledBy(changed, s.job(ctx))).To(BeTrue())
	})
})
