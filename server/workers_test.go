// Copyright The DI Orchestrator Authors.
// SPDX-License-Identifier: Apache-2.0

package server_test

import (
	"cmp"
	"encoding/json"
	"fmt"
	"net/http"
	"strconv"
	"strings"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"opendilab.org/di-orchestrator/apis/v2alpha1"
	"opendilab.org/di-orchestrator/internal/names"
	"opendilab.org/di-orchestrator/server"
	"opendilab.org/di-orchestrator/test/testkit/jobs"
	"opendilab.org/di-orchestrator/test/testkit/specs"
)

// decodeNumbers decodes JSON and keeps its numbers as written.
func decodeNumbers(content string, into any) error {
	decoder := json.NewDecoder(strings.NewReader(content))
	decoder.UseNumber()
	return decoder.Decode(into)
}

var _ = Describe("the v2 protocol", func() {
	const name = "pong"
	var namespace, base string

	BeforeEach(func(ctx SpecContext) {
		namespace = specs.Namespace(ctx, api.live)
		base = newServer(api.cached) + "/v2alpha1/"
	})

	// newPong creates a worker-led job of four replicas at the given generation.
	newPong := func(ctx SpecContext, restarts, reschedules int32) *v2alpha1.DIJob {
		four := int32(4)
		job := newJob(ctx, namespace, name, v2alpha1.DIJobSpec{
			Tasks: []v2alpha1.Task{{Type: v2alpha1.TaskTypeNone, Name: "work", Replicas: &four, Template: jobs.Serving()}},
		})
		job.Status.Replicas, job.Status.Restarts, job.Status.Reschedules = 4, restarts, reschedules
		Expect(api.live.Status().Update(ctx, job)).To(Succeed())
		return job
	}
	gold := func(status int, answer string) string { return golden(status, answer, namespace) }
	status := func(ctx SpecContext) v2alpha1.DIJobStatus {
		job := specs.Get[v2alpha1.DIJob](ctx, api.live, namespace, name)
		return job.Status
	}

	It("lists the addresses of replicas by rank on both paths", func(ctx SpecContext) {
		job := newPong(ctx, 0, 0)
		cacheKnows(ctx, job)
		Expect(gold(call(ctx, http.MethodGet, base+namespace+".pong/replicas", ""))).To(Equal(
			`200 {"success":true,"code":0,"message":"successfully get replicas","data":null}`))

		for rank, address := range []string{"10.0.0.1", "", "10.0.0.3"} {
			pod := names.WorkerPod(name, "work", int32(rank))
			made := createPod(ctx, job, &corev1.Pod{ObjectMeta: metav1.ObjectMeta{
				Name:        pod,
				Labels:      names.WorkerLabels(name, v2alpha1.TaskTypeNone, "work", pod),
				Annotations: map[string]string{names.AnnotationRank: strconv.Itoa(rank)},
			}})
			made.Status.PodIP = address
			made.Status.PodIPs = []corev1.PodIP{{IP: address}}
			if address != "" {
				Expect(api.live.Status().Update(ctx, made)).To(Succeed())
			}
			cacheKnows(ctx, made)
		}
		for _, path := range []string{
			namespace + ".pong/replicas", namespace + ".pong.0/replicas", "job/" + namespace + ".pong/replicas", "job/" + namespace + ".pong.0/replicas",
		} {
			Expect(gold(call(ctx, http.MethodGet, base+path, "{}"))).To(Equal(
				`200 {"success":true,"code":0,"message":"successfully get replicas","data":["10.0.0.1:22270","","10.0.0.3:22270",""]}`))
		}
	})

	It("lists each replica at the index of its rank, regardless of the others", func(ctx SpecContext) {
		job := newPong(ctx, 1, 0)
		// addWorker creates a pod of a rank and attempt that serves at an address.
		addWorker := func(name string, rank, attempt int, address string, change func(*corev1.Pod)) {
			pod := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Name: name, Annotations: map[string]string{
				names.AnnotationRank: strconv.Itoa(rank), names.AnnotationAttempt: strconv.Itoa(attempt),
			}}}
			change(pod)
			phase := pod.Status.Phase
			made := createPod(ctx, job, pod)
			made.Status.Phase, made.Status.PodIP, made.Status.PodIPs = phase, address, []corev1.PodIP{{IP: address}}
			Expect(api.live.Status().Update(ctx, made)).To(Succeed())
			if len(made.Finalizers) > 0 {
				Expect(api.live.Delete(ctx, made)).To(Succeed())
				DeferCleanup(func(ctx SpecContext) {
					Expect(api.live.Patch(ctx, made, client.RawPatch(types.MergePatchType, []byte(`{"metadata":{"finalizers":null}}`)))).To(Succeed())
				})
			}
			cacheKnows(ctx, made)
		}
		runs := func(*corev1.Pod) {}
		goes := func(pod *corev1.Pod) { pod.Finalizers = []string{"example.org/hold"} }
		ended := func(pod *corev1.Pod) { pod.Status.Phase = corev1.PodSucceeded }
		addWorker("goes", 5, 1, "10.0.0.6", goes)
		data := func() string {
			_, answer := call(ctx, http.MethodGet, base+namespace+".pong.1/replicas", "")
			_, data, _ := strings.Cut(answer, `"data":`)
			return strings.TrimSuffix(data, "}")
		}
		Expect(data()).To(Equal("null"))
		addWorker("old", 0, 0, "10.0.0.9", runs)
		addWorker("new", 0, 1, "10.0.0.1", runs)
		addWorker("ended", 1, 1, "10.0.0.2", ended)
		addWorker("six", 3, 1, "fd00::4", func(pod *corev1.Pod) {
			pod.Spec.Containers = []corev1.Container{
				{Name: "sidecar", Image: "a", Ports: []corev1.ContainerPort{{Name: names.Port, ContainerPort: 1}}},
				{Name: names.Container, Image: "a", Ports: []corev1.ContainerPort{{ContainerPort: 2}, {Name: names.Port, ContainerPort: 7000}}},
			}
		})
		Expect(data()).To(Equal(`["10.0.0.1:22270","","","[fd00::4]:7000"]`))
		addWorker("high", 4, 1, "10.0.0.5", runs)
		Expect(data()).To(Equal(`["10.0.0.1:22270","","","[fd00::4]:7000","10.0.0.5:22270"]`))
	})

	It("changes the number of replicas that is wanted", func(ctx SpecContext) {
		newPong(ctx, 0, 0)
		Expect(gold(call(ctx, http.MethodPost, base+namespace+".pong.0/replicas", `{"replicas":3}`))).To(Equal(
			`200 {"success":true,"code":0,"message":"successfully create replicas","data":null}`))
		Expect(status(ctx).Replicas).To(BeEquivalentTo(7))
		Expect(gold(call(ctx, http.MethodDelete, base+"job/"+namespace+".pong/replicas", `{"replicas":2}`))).To(Equal(
			`200 {"success":true,"code":0,"message":"successfully delete replicas","data":null}`))
		Expect(status(ctx).Replicas).To(BeEquivalentTo(5))
	})

	It("stores what a job reports of itself in place of what it reported before", func(ctx SpecContext) {
		newPong(ctx, 0, 0)
		code, answer := call(ctx, http.MethodPost, base+namespace+".pong/profilings", `{"data":{"a":1,"b":{"c":[2]}}}`)
		Expect(code).To(Equal(http.StatusOK), answer)
		Eventually(func() []byte { return status(ctx).Profilings.Raw }).Should(MatchJSON(`{"a":1,"b":{"c":[2]}}`))
		code, answer = call(ctx, http.MethodPost, base+"job/"+namespace+".pong/profilings", `{"b":{"d":"bare"}}`)
		Expect(code).To(Equal(http.StatusOK), answer)
		Eventually(func() []byte { return status(ctx).Profilings.Raw }).Should(MatchJSON(`{"b":{"d":"bare"}}`))
		Expect(status(ctx).Replicas).To(BeEquivalentTo(4))
	})

	It("stores what a job reports exactly as it is given, in an empty status too", func(ctx SpecContext) {
		newJob(ctx, namespace, name, v2alpha1.DIJobSpec{})
		for _, content := range []string{`{"a":null,"b":{"c":null,"d":[null,"<"]}}`, `{"b":{"c":{"e":null}}}`, `{"data":null}`, `{}`} {
			code, answer := call(ctx, http.MethodPost, base+namespace+".pong.0/profilings", content)
			Expect(code).To(Equal(http.StatusOK), answer)
			Eventually(func() []byte { return status(ctx).Profilings.Raw }).Should(MatchJSON(content))
		}
	})

	It("keeps what numbers say, as far as the API server can", func(ctx SpecContext) {
		newPong(ctx, 0, 0)
		for given, kept := range map[string]string{
			`{"a":9223372036854775807,"b":-9223372036854775808}`: "",
			`{"a":0.1,"b":1e+308,"c":1.7976931348623157e+308}`:   "",
			`{"a":"Ω \u0000 <&>","b":[],"c":{},"":0}`:            "",
			// From here on, numbers are decoded as doubles.
			`{"a":12345678901234567890,"b":1.50,"c":3.0}`: `{"a":12345678901234567000,"b":1.5,"c":3}`,
		} {
			code, answer := call(ctx, http.MethodPost, base+namespace+".pong.0/profilings", given)
			Expect(code).To(Equal(http.StatusOK), answer)
			var wanted any
			Expect(decodeNumbers(cmp.Or(kept, given), &wanted)).To(Succeed())
			Eventually(func(g Gomega) {
				var stored any
				g.Expect(decodeNumbers(string(status(ctx).Profilings.Raw), &stored)).To(Succeed())
				g.Expect(fmt.Sprint(stored)).To(Equal(fmt.Sprint(wanted)))
			}).Should(Succeed())
		}
	})

	It("stores as much as a report may have, of however many keys, and refuses more", func(ctx SpecContext) {
		base := newServer(api.cached, func(options *server.Options) {
			options.Limits = server.Limits{ProfilingBytes: 1 << 20, WriteBytesPerMinute: 1 << 30}
		}) + "/v2alpha1/"
		newPong(ctx, 0, 0)
		keys := make(map[string]int, 50_000)
		for i := range 50_000 {
			keys[fmt.Sprintf("layer/%06d", i)] = i
		}
		many := specs.Must(json.Marshal(keys))
		Expect(len(many)).To(BeNumerically(">", 900_000))
		one := func(size int) string { return `{"a":"` + strings.Repeat("x", size-len(`{"a":""}`)) + `"}` }
		for _, content := range []string{string(many), one(1 << 20)} {
			code, answer := call(ctx, http.MethodPost, base+namespace+".pong/profilings", content)
			Expect(code).To(Equal(http.StatusOK), answer)
			Eventually(func() []byte { return status(ctx).Profilings.Raw }).Should(MatchJSON(content))
		}
		_, answer := call(ctx, http.MethodPost, base+namespace+".pong/profilings", one(1<<20+1))
		Expect(answer).To(ContainSubstring("the body has 1048577 bytes, more than the 1048576 that it may have"))

		By("refusing also what is more than is stored with all that the job has")
		large := newJob(ctx, namespace, "large", v2alpha1.DIJobSpec{Tasks: []v2alpha1.Task{{
			Type: v2alpha1.TaskTypeNone, Name: "work", Template: jobs.Raw(`{"a":"` + strings.Repeat("x", 1<<20) + `"}`),
		}}})
		code, answer := call(ctx, http.MethodPost, base+namespace+"."+large.Name+"/profilings", one(1<<20))
		Expect(code).To(Equal(http.StatusBadRequest))
		Expect(answer).To(ContainSubstring("are together larger than the API server stores: report less"))
	})

	It("refuses a worker that was replaced, and serves one that is ahead of the status", func(ctx SpecContext) {
		cacheKnows(ctx, newPong(ctx, 2, 1))
		for generation, want := range map[int]int{0: 400, 2: 400, 3: 200, 4: 200} {
			code, answer := call(ctx, http.MethodGet, fmt.Sprintf("%s%s.pong.%d/replicas", base, namespace, generation), "")
			Expect(code).To(Equal(want), answer)
		}
	})

	It("refuses what cannot be", func(ctx SpecContext) {
		newPong(ctx, 0, 0)
		newTrainer(ctx, namespace)
		newJob(ctx, namespace, "rigid", v2alpha1.DIJobSpec{Tasks: []v2alpha1.Task{
			{Type: v2alpha1.TaskTypeLearner, Template: jobs.Serving()},
			{Type: v2alpha1.TaskTypeEvaluator, Template: jobs.Serving()},
		}})
		for _, refused := range []struct {
			method, path, body string
			want               int
		}{
			{"GET", namespace + ".nope/replicas", "", 404},
			{"GET", "pong/replicas", "", 400},
			{"GET", namespace + ".pong.x/replicas", "", 400},
			{"GET", namespace + ".pong.1.2/replicas", "", 400},
			{"GET", namespace + "." + trainer + "/replicas", "", 400},
			{"PATCH", namespace + ".pong/replicas", "", 501},
			{"GET", namespace + ".pong/profilings", "", 501},
			{"POST", namespace + ".pong/replicas", "", 400},
			{"POST", namespace + ".rigid/replicas", `{"replicas":1}`, 400},
			{"POST", namespace + ".pong/replicas", `{}`, 400},
			{"POST", namespace + ".pong/profilings", `{"a":1e999}`, 400},
			{"GET", namespace + ".po%25ng/replicas", "", 404},
			{"POST", namespace + ".pong/profilings", "[]", 400},
			{"POST", namespace + ".pong/profilings", "", 400},
			{"POST", "job/" + namespace + ".nope/profilings", "{}", 404},
		} {
			code, answer := call(ctx, refused.method, base+refused.path, refused.body)
			Expect(code).To(Equal(refused.want), "%s %s: %s", refused.method, refused.path, answer)
			Expect(answer).To(HavePrefix(`{"success":false,"code":1,`))
		}
	})
})
