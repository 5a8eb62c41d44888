// Copyright The DI Orchestrator Authors.
// SPDX-License-Identifier: Apache-2.0

package server_test

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"strconv"
	"strings"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"opendilab.org/di-orchestrator/apis/v2alpha1"
	"opendilab.org/di-orchestrator/internal/names"
	"opendilab.org/di-orchestrator/job/membership"
	"opendilab.org/di-orchestrator/server"
	"opendilab.org/di-orchestrator/server/auth"
	"opendilab.org/di-orchestrator/test/testkit"
	"opendilab.org/di-orchestrator/test/testkit/jobs"
	"opendilab.org/di-orchestrator/test/testkit/pods"
	"opendilab.org/di-orchestrator/test/testkit/specs"
)

var _ = Describe("a request to resize a worker-led job", func() {
	var namespace string

	BeforeEach(func(ctx SpecContext) { namespace = specs.Namespace(ctx, api.live) })

	// newWorkers creates a job of one learner and the given number of collectors, with the status of an
	// operator that has reconciled it.
	newWorkers := func(ctx SpecContext, name string, collectors int32, change func(*v2alpha1.DIJobSpec)) *v2alpha1.DIJob {
		GinkgoHelper()
		spec := v2alpha1.DIJobSpec{Tasks: []v2alpha1.Task{
			{Type: v2alpha1.TaskTypeLearner, Template: jobs.Serving()},
			{Type: v2alpha1.TaskTypeCollector, Replicas: &collectors, Template: jobs.Serving()},
		}}
		if change != nil {
			change(&spec)
		}
		job := newJob(ctx, namespace, name, spec)
		job.Status.Replicas = 1 + collectors
		job.Status.Scaling = &v2alpha1.ScalingStatus{
			SpecReplicas: map[string]int32{"learner": 1, "collector": collectors}, LastReplicas: 1 + collectors,
		}
		Expect(api.live.Status().Update(ctx, job)).To(Succeed())
		return job
	}
	preemptible := func(spec *v2alpha1.DIJobSpec) { spec.Preemptible = true }
	path := func(id string) string { return "/v2alpha1/job/" + namespace + "." + id + "/replicas" }
	read := func(ctx SpecContext, name string) *v2alpha1.DIJob {
		GinkgoHelper()
		var job v2alpha1.DIJob
		Expect(api.live.Get(ctx, client.ObjectKey{Namespace: namespace, Name: name}, &job)).To(Succeed())
		return &job
	}
	// size returns the desired size of a job: its total, or the range of a preemptible job.
	size := func(ctx SpecContext, name string) string {
		GinkgoHelper()
		job := read(ctx, name)
		if !job.Spec.Preemptible {
			return strconv.Itoa(int(job.Status.Replicas))
		}
		elastic := ptr.Deref(job.Spec.Elastic, v2alpha1.Elastic{})
		return fmt.Sprintf("%d-%d", ptr.Deref(elastic.MinReplicas, -1), ptr.Deref(elastic.MaxReplicas, -1))
	}
	done := func(code int, answer string) string {
		GinkgoHelper()
		var envelope struct{ Message string }
		Expect(json.Unmarshal([]byte(answer), &envelope)).To(Succeed())
		return fmt.Sprint(code, " ", envelope.Message)
	}

	It("answers a write that a policy denies once, with the words of the policy", func(ctx SpecContext) {
		newWorkers(ctx, "w", 3, nil)
		deny(ctx, namespace, "resizes need a ticket")
		served := newServer(api.cached)
		response := send(ctx, http.MethodPost, served+path("w"), `{"replicas":1}`, "")
		Expect(response.StatusCode).To(Equal(http.StatusOK), "a deployed client ends its job at any other status")
		Expect(response.Header).NotTo(HaveKey("Retry-After"))
		Expect(response.answer).To(And(ContainSubstring(`"success":false`), ContainSubstring("resizes need a ticket")))

		By("refusing a sender with a token")
		enforced := newServer(api.cached, func(options *server.Options) { options.Identity = auth.ModeEnforce })
		Expect(api.live.Create(ctx, serviceAccount(namespace))).To(Succeed())
		pod := podAt(ctx, namespace, read(ctx, "w"), given.next())
		response = send(ctx, http.MethodPost, enforced+path("w"), `{"replicas":1}`, tokenOf(ctx, pod, names.ServerAudience))
		Expect(response.StatusCode).To(Equal(http.StatusForbidden))
		Expect(response.answer).To(ContainSubstring("resizes need a ticket"))
		Expect(size(ctx, "w")).To(Equal("4"))
	})

	It("is granted within the task's bounds, and the answer says how much of it was", func(ctx SpecContext) {
		base := newServer(api.cached)
		newWorkers(ctx, "w", 3, func(spec *v2alpha1.DIJobSpec) {
			spec.Elastic = &v2alpha1.Elastic{MinReplicas: ptr.To[int32](2), MaxReplicas: ptr.To[int32](5)}
		})
		newWorkers(ctx, "open", 3, nil)
		newWorkers(ctx, "beyond", 3, nil)
		lone := newWorkers(ctx, "lone", 3, func(spec *v2alpha1.DIJobSpec) { spec.Tasks = spec.Tasks[1:] })
		lone.Status.Replicas, lone.Status.Scaling = 3, nil
		Expect(api.live.Status().Update(ctx, lone)).To(Succeed())
		beyond := read(ctx, "beyond")
		beyond.Spec.Elastic = &v2alpha1.Elastic{MaxReplicas: ptr.To[int32](2)}
		Expect(api.live.Update(ctx, beyond)).To(Succeed())
		for _, step := range []struct{ method, job, body, want, size string }{
			{"POST", "w", `{"replicas":1,"gpus":"many"}`, `200 successfully create replicas`, "5"},
			{"POST", "w", `{"replicas":4}`, `200 successfully create replicas: 1 of 4, as task "collector" has at most 5 replicas (spec.elastic.maxReplicas)`, "6"},
			{"POST", "w", `{"replicas":1}`, `200 successfully create replicas: 0 of 1, as task "collector" has at most 5 replicas (spec.elastic.maxReplicas)`, "6"},
			{"DELETE", "w", `{"replicas":9}`, `200 successfully delete replicas: 3 of 9, as task "collector" has at least 2 replicas (spec.elastic.minReplicas)`, "3"},
			{"DELETE", "open", `{"replicas":9}`, `200 successfully delete replicas: 3 of 9, as task "collector" has no more`, "1"},
			{"DELETE", "open", `{"replicas":1}`, `200 successfully delete replicas: 0 of 1, as task "collector" has no more`, "1"},
			{"POST", "beyond", `{"replicas":1}`, `200 successfully create replicas: 0 of 1, as task "collector" has at most 2 replicas (spec.elastic.maxReplicas)`, "4"},
			{"DELETE", "beyond", `{"replicas":1}`, `200 successfully delete replicas`, "3"},
			{"DELETE", "lone", `{"replicas":9}`, `200 successfully delete replicas: 2 of 9, as task "collector" has the last replica of the job`, "1"},
			{"DELETE", "lone", `{"replicas":1}`, `200 successfully delete replicas: 0 of 1, as task "collector" has the last replica of the job`, "1"},
			{"POST", "w", `{"replicas":0}`, `200 successfully create replicas`, "3"},
			{"DELETE", "w", `{"replicas":0}`, `200 successfully delete replicas`, "3"},
			{"POST", "w", `{"replicas":-1}`, `400 replicas: -1 is negative`, "3"},
			{"POST", "w", `{"replicas":"1"}`, `400 replicas: "1" is not a whole number of at most 2147483647, such as 2`, "3"},
			{"POST", "w", `{"replicas":1.0}`, `400 replicas: 1.0 is not a whole number of at most 2147483647, such as 2`, "3"},
			{"POST", "w", `null`, `400 the body must be a JSON object, not: null`, "3"},
		} {
			code, answer := call(ctx, step.method, base+path(step.job), step.body)
			Expect(fmt.Sprint(golden(0, done(code, answer), namespace)[2:], " | ", size(ctx, step.job))).To(Equal(step.want + " | " + step.size))
		}
	})

	It("moves a preemptible job's range so that it counts", func(ctx SpecContext) {
		base := newServer(api.cached)
		newWorkers(ctx, "least", 3, func(spec *v2alpha1.DIJobSpec) {
			preemptible(spec)
			spec.Elastic = &v2alpha1.Elastic{MinReplicas: ptr.To[int32](2)}
		})
		for _, step := range []struct{ method, body, want, size string }{
			{"POST", `{"replicas":2}`, `200 successfully create replicas: the allocator may give task "collector" 4 to 5`, "4-5"},
			{"DELETE", `{"replicas":4}`, `200 successfully delete replicas: the allocator may give task "collector" 0 to 1`, "0-1"},
		} {
			Expect(done(call(ctx, step.method, base+path("least"), step.body))).To(Equal(step.want))
			Expect(size(ctx, "least")).To(Equal(step.size))
		}
	})

	It("is refused where a ratio rule of the operator sets the number, and granted for other tasks", func(ctx SpecContext) {
		base := newServer(api.cached)
		for name, rule := range map[string]v2alpha1.RatioRule{
			"ruled": {}, "free": {Producers: []v2alpha1.ProducerPool{{Task: "learner", MaxReplicas: ptr.To[int32](9)}}, Consumer: "collector"},
		} {
			newWorkers(ctx, name, 3, func(spec *v2alpha1.DIJobSpec) {
				spec.Elastic = &v2alpha1.Elastic{MaxReplicas: ptr.To[int32](9)}
				spec.Autoscale = &v2alpha1.Autoscale{Ratio: &rule}
			})
		}
		for _, method := range []string{http.MethodPost, http.MethodDelete} {
			code, answer := call(ctx, method, base+path("ruled"), `{"replicas":1}`)
			Expect(code).To(Equal(http.StatusConflict), answer)
			Expect(answer).To(ContainSubstring(`sets the number of task \"collector\"`))
		}
		Expect(size(ctx, "ruled")).To(Equal("4"))
		Expect(done(call(ctx, http.MethodPost, base+path("free"), `{"replicas":1}`))).To(Equal("200 successfully create replicas"))
		Expect(size(ctx, "free")).To(Equal("5"))
	})

	for kind, change := range map[string]func(*v2alpha1.DIJobSpec){"of fixed tasks": nil, "that is preemptible": preemptible} {
		Context(kind, func() {
			grown, shrunk := "7", "5"
			if change != nil {
				grown, shrunk = "6-6", "4-4"
			}

			It("is done once under one Idempotency-Key, at whichever server, and answered as it was first", func(ctx SpecContext) {
				newWorkers(ctx, "w", 3, change)
				servers := []string{newServer(api.cached), newServer(api.cached)}
				var answers []string
				for i := range 4 {
					_, answer := call(ctx, http.MethodPost, servers[i%2]+path("w"), `{"replicas":3}`, names.HeaderIdempotencyKey, "more")
					answers = append(answers, answer)
				}
				Expect(answers).To(HaveEach(And(Equal(answers[0]), HavePrefix(`{"success":true,"code":0,"message":"successfully create replicas`))))
				Expect(size(ctx, "w")).To(Equal(grown))
				for range 2 {
					Expect(status(call(ctx, http.MethodDelete, servers[0]+path("w"), `{"replicas":2}`, names.HeaderIdempotencyKey, "fewer"))).To(Equal(200))
				}
				Expect(size(ctx, "w")).To(Equal(shrunk))

				By("refusing the key for something else")
				for _, other := range []struct{ method, body string }{{"POST", `{"replicas":1}`}, {"DELETE", `{"replicas":3}`}} {
					Expect(done(call(ctx, other.method, servers[1]+path("w"), other.body, names.HeaderIdempotencyKey, "more"))).To(
						Equal("409 " + membership.ErrKeyReused.Error()))
				}
				Expect(size(ctx, "w")).To(Equal(shrunk))

				By("answering a worker that was replaced by what it asked for")
				job := read(ctx, "w")
				job.Status.Reschedules = 1
				Expect(api.live.Status().Update(ctx, job)).To(Succeed())
				_, answer := call(ctx, http.MethodPost, servers[1]+path("w.0"), `{"replicas":3}`, names.HeaderIdempotencyKey, "more")
				Expect(answer).To(Equal(answers[0]))
				Expect(status(call(ctx, http.MethodPost, servers[1]+path("w.0"), `{"replicas":3}`, names.HeaderIdempotencyKey, "new"))).To(Equal(400))
				Expect(size(ctx, "w")).To(Equal(shrunk))
			})

			for _, reached := range []bool{false, true} {
				It(fmt.Sprintf("is done once by the next server when one dies in the middle of it, its write done: %t", reached), func(ctx SpecContext) {
					newWorkers(ctx, "w", 3, change)
					dying := &flakyClient{Client: api.cached, err: errLost, done: reached, cut: true}
					dying.failures.Store(1 << 20)
					Expect(isLater(call(ctx, http.MethodPost, newServer(dying)+path("w"), `{"replicas":3}`, names.HeaderIdempotencyKey, "k"))).To(BeTrue())
					Expect(status(call(ctx, http.MethodPost, newServer(api.cached)+path("w"), `{"replicas":3}`, names.HeaderIdempotencyKey, "k"))).To(Equal(200))
					Expect(size(ctx, "w")).To(Equal(grown))
				})
			}

			It("is a repeat when a worker's pod sends the same again, and not when it removes or a person asks in its name", func(ctx SpecContext) {
				job := newWorkers(ctx, "w", 3, change)
				base := newServer(api.cached, func(options *server.Options) { options.Identity = auth.ModeEnforce })
				address := map[int]string{0: "127.10.0.1", 1: "127.10.0.2"}
				if change != nil {
					address = map[int]string{0: "127.10.0.3", 1: "127.10.0.4"}
				}
				for rank := range 2 {
					pod := createPod(ctx, job, &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Name: names.WorkerPod("w", "collector", int32(rank))}})
					pod.Status.Phase = corev1.PodRunning
					pod.Status.PodIP, pod.Status.PodIPs = address[rank], []corev1.PodIP{{IP: address[rank]}}
					Expect(api.live.Status().Update(ctx, pod)).To(Succeed())
					cacheKnows(ctx, pod)
				}
				by := func(rank int, method, body string, headers ...string) {
					GinkgoHelper()
					code, answer := callFrom(ctx, address[rank], method, base+path("w.0"), body, headers...)
					Expect(code).To(Equal(200), answer)
				}
				total := func() int {
					GinkgoHelper()
					job := read(ctx, "w")
					if job.Spec.Preemptible {
						return int(*job.Spec.Elastic.MaxReplicas)
					}
					return int(job.Status.Replicas - 1)
				}
				for range 3 {
					by(0, "POST", `{"replicas":2}`)
				}
				Expect(total()).To(Equal(5))
				by(0, "POST", `{"replicas":3}`)
				by(1, "POST", `{"replicas":2}`)
				Expect(total()).To(Equal(10))
				for range 2 {
					by(0, "DELETE", `{"replicas":1}`)
				}
				Expect(total()).To(Equal(8))
				by(0, "POST", `{"replicas":2}`)
				Expect(total()).To(Equal(10))
				for range 2 {
					by(1, "POST", `{"replicas":1}`, names.HeaderCaller, names.CallerUser)
				}
				Expect(total()).To(Equal(12))
			})
		})
	}

	It("of a worker is recognized where it was not answered, a removal too, and of an unknown sender it is not", func(ctx SpecContext) {
		job := newWorkers(ctx, "w", 9, nil)
		pod := createPod(ctx, job, &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Name: names.WorkerPod("w", "collector", 0)}})
		pods.Run(pod, "127.10.0.5")
		Expect(api.live.Status().Update(ctx, pod)).To(Succeed())
		cacheKnows(ctx, pod)
		for mode, left := range map[auth.Mode]int32{auth.ModeEnforce: 1, auth.ModeDisabled: 2} {
			was := read(ctx, "w").Status.Replicas
			lossy := &flakyClient{Client: api.cached, err: errLost, done: true, cut: true}
			lossy.failures.Store(1)
			base := newServer(lossy, func(options *server.Options) { options.Identity = mode })
			Expect(isLater(callFrom(ctx, "127.10.0.5", http.MethodDelete, base+path("w.0"), `{"replicas":1}`))).To(BeTrue())
			lossy.blind.Store(false)
			Expect(status(callFrom(ctx, "127.10.0.5", http.MethodDelete, base+path("w.0"), `{"replicas":1}`))).To(Equal(200))
			Expect(was-read(ctx, "w").Status.Replicas).To(Equal(left), string(mode))
		}
	})

	It("records only so many requests, and beside annotations that are there", func(ctx SpecContext) {
		base := newServer(api.cached, func(options *server.Options) { options.Limits.WriteBurst = 100 })
		newWorkers(ctx, "w", 3, nil)
		job := newWorkers(ctx, "p", 3, preemptible)
		job.Annotations = map[string]string{"mine": "kept", names.AnnotationRequests: "broken"}
		Expect(api.live.Update(ctx, job)).To(Succeed())
		for range membership.MaxRequests + 2 {
			for _, name := range []string{"w", "p"} {
				Expect(status(call(ctx, http.MethodPost, base+path(name), `{"replicas":1}`))).To(Equal(200))
			}
		}
		Expect(read(ctx, "w").Status.Requests).To(HaveLen(membership.MaxRequests))
		annotations := read(ctx, "p").Annotations
		var records []v2alpha1.RecordedRequest
		Expect(json.Unmarshal([]byte(annotations[names.AnnotationRequests]), &records)).To(Succeed())
		Expect(records).To(HaveLen(membership.MaxRequests))
		Expect(annotations).To(And(HaveKeyWithValue("mine", "kept"), HaveLen(2)))
	})

	It("waits for the operator where the spec's counts have changed, which would undo it", func(ctx SpecContext) {
		base := newServer(api.cached)
		job := newWorkers(ctx, "w", 3, nil)
		job.Spec.Tasks[1].Replicas = ptr.To[int32](5)
		Expect(api.live.Update(ctx, job)).To(Succeed())
		answered := make(chan int, 1)
		go func() {
			defer GinkgoRecover()
			code, _ := call(ctx, http.MethodPost, base+path("w"), `{"replicas":1}`)
			answered <- code
		}()
		Consistently(answered, "200ms").ShouldNot(Receive())
		Expect(size(ctx, "w")).To(Equal("4"))
		job = read(ctx, "w")
		job.Status.Replicas, job.Status.Scaling.LastReplicas = 6, 6
		job.Status.Scaling.SpecReplicas["collector"] = 5
		Expect(api.live.Status().Update(ctx, job)).To(Succeed())
		Eventually(answered).Should(Receive(Equal(200)))
		Expect(size(ctx, "w")).To(Equal("7"))
	})

	It("is refused where the job does not run here, and what a worker reports is taken", func(ctx SpecContext) {
		base := newServer(api.cached)
		newWorkers(ctx, "elsewhere", 3, func(spec *v2alpha1.DIJobSpec) { spec.ManagedBy = ptr.To("kueue.x-k8s.io/multikueue") })
		newWorkers(ctx, "ours", 3, func(spec *v2alpha1.DIJobSpec) { spec.ManagedBy = ptr.To(names.ManagedByName) })
		newWorkers(ctx, "suspended", 3, func(spec *v2alpha1.DIJobSpec) { spec.Suspend = ptr.To(true) })
		finished := newWorkers(ctx, "finished", 3, nil)
		finished.Status.Phase = v2alpha1.JobSucceeded
		Expect(api.live.Status().Update(ctx, finished)).To(Succeed())
		for job, want := range map[string]string{
			"elsewhere": "409 job NS/elsewhere is run by kueue.x-k8s.io/multikueue and not by DI Orchestrator (spec.managedBy)",
			"suspended": "200 job NS/suspended is suspended: ask again when it is resumed",
			"finished":  "409 job NS/finished has finished: Succeeded",
			"ours":      "200 successfully create replicas",
		} {
			code, answer := call(ctx, http.MethodPost, base+path(job), `{"replicas":1}`)
			Expect(golden(0, done(code, answer), namespace)[2:]).To(Equal(want))
			code, answer = call(ctx, http.MethodPost, base+"/v2alpha1/"+namespace+"."+job+".0/profilings", `{"loss":1}`)
			Expect(code).To(Equal(200), answer)
		}
	})
})

// deny makes the cluster deny each write of di-server to the jobs of a namespace, with a message.
func deny(ctx context.Context, namespace, message string) {
	GinkgoHelper()
	policy := &admissionregistrationv1.ValidatingAdmissionPolicy{
		ObjectMeta: metav1.ObjectMeta{Name: namespace},
		Spec: admissionregistrationv1.ValidatingAdmissionPolicySpec{
			FailurePolicy: ptr.To(admissionregistrationv1.Fail),
			MatchConstraints: &admissionregistrationv1.MatchResources{
				NamespaceSelector: &metav1.LabelSelector{MatchLabels: map[string]string{corev1.LabelMetadataName: namespace}},
				ResourceRules: []admissionregistrationv1.NamedRuleWithOperations{{RuleWithOperations: admissionregistrationv1.RuleWithOperations{
					Operations: []admissionregistrationv1.OperationType{admissionregistrationv1.Update},
					Rule: admissionregistrationv1.Rule{
						APIGroups: []string{v2alpha1.GroupName}, APIVersions: []string{"v2alpha1"}, Resources: []string{"dijobs", "dijobs/status"},
					},
				}}},
			},
			MatchConditions: []admissionregistrationv1.MatchCondition{{
				Name: "di-server-writes", Expression: fmt.Sprintf("request.userInfo.username == %q", testkit.AccountName(testkit.Server)),
			}},
			Validations: []admissionregistrationv1.Validation{{Expression: "false", Message: message, Reason: ptr.To(metav1.StatusReasonForbidden)}},
		},
	}
	binding := &admissionregistrationv1.ValidatingAdmissionPolicyBinding{
		ObjectMeta: metav1.ObjectMeta{Name: namespace},
		Spec: admissionregistrationv1.ValidatingAdmissionPolicyBindingSpec{
			PolicyName: namespace, ValidationActions: []admissionregistrationv1.ValidationAction{admissionregistrationv1.Deny},
		},
	}
	for _, object := range []client.Object{policy, binding} {
		Expect(api.live.Create(ctx, object)).To(Succeed())
		DeferCleanup(func(ctx SpecContext) { Expect(api.live.Delete(ctx, object)).To(Succeed()) })
	}
	job := &v2alpha1.DIJob{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: "w"}}
	Eventually(func() error {
		patch := client.RawPatch(types.MergePatchType, []byte(`{"status":{"profilings":{"a":1}}}`))
		return api.own.Status().Patch(ctx, job, patch, client.DryRunAll)
	}).Should(MatchError(ContainSubstring(message)))
}

// sent is a response with its body.
type sent struct {
	*http.Response
	answer string
}

// send sends a request, with a token if there is one.
func send(ctx context.Context, method, url, body, token string) sent {
	GinkgoHelper()
	request := specs.Must(http.NewRequestWithContext(ctx, method, url, strings.NewReader(body)))
	if token != "" {
		request.Header.Set("Authorization", "Bearer "+token)
	}
	response, err := http.DefaultClient.Do(request)
	Expect(err).NotTo(HaveOccurred())
	defer func() { Expect(response.Body.Close()).To(Succeed()) }()
	content := specs.Must(io.ReadAll(response.Body))
	return sent{response, string(content)}
}
