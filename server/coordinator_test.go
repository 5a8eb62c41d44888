// Copyright The DI Orchestrator Authors.
// SPDX-License-Identifier: Apache-2.0

package server_test

import (
	"fmt"
	"net/http"
	"strconv"
	"strings"
	"sync"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"opendilab.org/di-orchestrator/apis/v2alpha1"
	"opendilab.org/di-orchestrator/internal/names"
	"opendilab.org/di-orchestrator/job/membership"
	"opendilab.org/di-orchestrator/test/testkit/jobs"
	"opendilab.org/di-orchestrator/test/testkit/specs"
)

var _ = Describe("the v1 protocol", func() {
	var namespace, base string

	BeforeEach(func(ctx SpecContext) {
		namespace = specs.Namespace(ctx, api.live)
		base = newServer(api.cached) + "/v1alpha1/replicas"
	})

	// body returns a request of the trainer's coordinator.
	body := func(rest string) string {
		return fmt.Sprintf(`{"namespace":%q,"coordinator":"cartpole-dqn-coordinator",%s}`, namespace, rest)
	}
	gold := func(status int, answer string) string { return golden(status, answer, namespace) }

	It("creates, lists and deletes replicas as a running v0.2.2 does", func(ctx SpecContext) {
		job := newTrainer(ctx, namespace)

		Expect(gold(call(ctx, http.MethodPost, base, body(`"collectors":{"replicas":2},"learners":{"gpus":"0","replicas":1}`)))).To(Equal(
			`200 {"success":true,"code":0,"message":"successfully create replicas","data":{"namespace":"NS","coordinator":"cartpole-dqn-coordinator",` +
				`"collectors":["cartpole-dqn-collector-*.NS:22270","cartpole-dqn-collector-*.NS:22270"],"learners":["cartpole-dqn-learner-*.NS:22270"]}}`))
		Expect(gold(call(ctx, http.MethodGet, base+"?namespace="+namespace+"&coordinator=cartpole-dqn-coordinator", "{}"))).To(Equal(
			`200 {"success":true,"code":0,"message":"successfully get replicas","data":{"namespace":"NS","coordinator":"cartpole-dqn-coordinator",` +
				`"collectors":["cartpole-dqn-collector-*.NS:22270","cartpole-dqn-collector-*.NS:22270"],"learners":["cartpole-dqn-learner-*.NS:22270"]}}`))
		Expect(gold(call(ctx, http.MethodGet, base+"?NameSpace="+namespace, ""))).To(Equal(
			`200 {"success":true,"code":0,"message":"successfully get replicas","data":[{"namespace":"NS","coordinator":"cartpole-dqn-coordinator",` +
				`"collectors":["cartpole-dqn-collector-*.NS:22270","cartpole-dqn-collector-*.NS:22270"],"learners":["cartpole-dqn-learner-*.NS:22270"]}]}`))
		_, all := call(ctx, http.MethodGet, base, "")
		Expect(all).To(ContainSubstring(`"namespace":"` + namespace + `"`))

		Expect(gold(call(ctx, http.MethodDelete, base, body(`"collectors":{"replicas":1},"learners":{"replicas":2}`)))).To(Equal(
			`200 {"success":true,"code":0,"message":"successfully delete replicas","data":{"namespace":"NS","coordinator":"cartpole-dqn-coordinator",` +
				`"collectors":["cartpole-dqn-collector-*.NS:22270"],"learners":["cartpole-dqn-learner-*.NS:22270"]}}`))
		Expect(membershipOf(ctx, job).Spec.Members).To(HaveLen(1))
	})

	It("stores what the coordinator reports, under both versions", func(ctx SpecContext) {
		job := newTrainer(ctx, namespace)
		for _, version := range []string{"v1alpha1", "v1alpha2"} {
			url := strings.Replace(base, "v1alpha1/replicas", version+"/profilings", 1)
			report := fmt.Sprintf(`{"version":1,"progress":{"done":3},"by":%q}`, version)
			Expect(gold(call(ctx, http.MethodPost, url, body(`"data":`+report)))).To(Equal(
				`200 {"success":true,"code":0,"message":"successfully report profilings","data":null}`))
			Expect(api.live.Get(ctx, client.ObjectKeyFromObject(job), job)).To(Succeed())
			Expect(job.Status.Profilings.Raw).To(MatchJSON(report))
		}
	})

	It("sums what replicas report by role, from every caller", func(ctx SpecContext) {
		job := newTrainer(ctx, namespace)
		url := strings.Replace(base, "/replicas", "/profilings", 1)
		report := func(role string, rank, seconds int) {
			GinkgoHelper()
			status, answer := call(ctx, http.MethodPost, url, body(fmt.Sprintf(
				`"data":{"version":1,"role":%q,"rank":%d,"time":%d,"samples":%d,"busy_seconds":%d}`, role, rank, 1_764_000_000+seconds, 20*seconds, 0)))
			Expect(strconv.Itoa(status) + answer).To(HavePrefix(`200{"success":true`))
		}
		for _, seconds := range []int{0, 10} {
			report("collector", 0, seconds)
			report("collector", 1, seconds)
			report("learner", 0, seconds)
		}
		Eventually(func(g Gomega) {
			g.Expect(api.live.Get(ctx, client.ObjectKeyFromObject(job), job)).To(Succeed())
			g.Expect(job.Status.Rates).To(HaveLen(2))
			g.Expect(job.Status.Rates[0]).To(And(HaveField("Role", "collector"), HaveField("Reporters", BeEquivalentTo(2)),
				HaveField("Samples", BeEquivalentTo(400))))
			g.Expect(job.Status.Rates[1]).To(And(HaveField("Role", "learner"), HaveField("Samples", BeEquivalentTo(200))))
			g.Expect(job.Status.Profilings).To(BeNil())
		}).Should(Succeed())
	})

	It("refuses requests for collectors whose number a ratio rule of the operator sets", func(ctx SpecContext) {
		job := newTrainer(ctx, namespace)
		Expect(status(call(ctx, http.MethodPost, base, body(`"collectors":{"replicas":1},"learners":{"replicas":1}`)))).To(Equal(200))
		setRatio := func(driver v2alpha1.RatioDriver) {
			GinkgoHelper()
			Expect(api.live.Get(ctx, client.ObjectKeyFromObject(job), job)).To(Succeed())
			nine := int32(9)
			job.Spec.Autoscale = &v2alpha1.Autoscale{Ratio: &v2alpha1.RatioRule{Driver: driver, Producers: []v2alpha1.ProducerPool{{Task: "collector", MaxReplicas: &nine}}}}
			Expect(api.live.Update(ctx, job)).To(Succeed())
			cacheKnows(ctx, job)
		}
		setRatio(v2alpha1.RatioByOperator)
		for _, method := range []string{http.MethodPost, http.MethodDelete} {
			code, answer := call(ctx, method, base, body(`"collectors":{"replicas":1},"learners":{"replicas":1}`), names.HeaderIdempotencyKey, method)
			Expect(code).To(Equal(http.StatusConflict))
			Expect(answer).To(ContainSubstring("the ratio rule in spec.autoscale.ratio sets their number"))
		}
		Expect(status(call(ctx, http.MethodPost, base, body(`"learners":{"replicas":1}`)))).To(Equal(200))
		Expect(membershipOf(ctx, job).Spec.Members).To(HaveLen(3))
		setRatio(v2alpha1.RatioByCoordinator)
		Expect(status(call(ctx, http.MethodPost, base, body(`"collectors":{"replicas":2}`)))).To(Equal(200))
		Expect(membershipOf(ctx, job).Spec.Members).To(HaveLen(5))
	})

	DescribeTable("refuses reports that are not of a coordinator", func(ctx SpecContext, coordinator, data string, status int, reason string) {
		newTrainer(ctx, namespace)
		newJob(ctx, namespace, "pong", v2alpha1.DIJobSpec{Tasks: []v2alpha1.Task{{Type: v2alpha1.TaskTypeCollector, Name: "collector", Template: jobs.Serving()}}})
		url := strings.Replace(base, "/replicas", "/profilings", 1)
		code, answer := call(ctx, http.MethodPost, url, fmt.Sprintf(`{"namespace":%q,"coordinator":%q%s}`, namespace, coordinator, data))
		Expect(code).To(Equal(status), answer)
		Expect(answer).To(ContainSubstring(reason))
	},
		Entry("without data", "cartpole-dqn-coordinator", "", 400, "data: is missing"),
		Entry("with data of another type", "cartpole-dqn-coordinator", `,"data":[1]`, 400, "data: [1] is not an object"),
		Entry("of no pod", "pong-coordinator", `,"data":{}`, 404, "not found"),
	)

	It("lists a lost replica beside its replacement, by the port that it had, until it is reported", func(ctx SpecContext) {
		job := newTrainer(ctx, namespace)
		_, created := call(ctx, http.MethodPost, base, body(`"collectors":{"replicas":1}`))
		first := urlsIn(created, names.ReplicaTypeCollector)
		list := membershipOf(ctx, job)
		list.Status.Slots = []v2alpha1.SlotStatus{{Slot: list.Spec.Members[0].Slot, Losses: 1, Ports: []v2alpha1.SlotPort{{Port: 22270}}}}
		Expect(api.live.Status().Update(ctx, list)).To(Succeed())
		cacheKnows(ctx, list)
		for i := range job.Spec.Tasks {
			job.Spec.Tasks[i].Template = jobs.Raw(strings.ReplaceAll(template, "22270", "1234"))
		}
		Expect(api.live.Update(ctx, job)).To(Succeed())
		cacheKnows(ctx, job)

		listed := func() []string {
			GinkgoHelper()
			_, answer := call(ctx, http.MethodGet, base+"?namespace="+namespace+"&coordinator=cartpole-dqn-coordinator", "")
			return urlsIn(answer, names.ReplicaTypeCollector)
		}
		both := listed()
		Expect(both).To(HaveLen(2))
		Expect(both[0]).To(Equal(first[0]))
		Expect(both[1]).To(HaveSuffix(":1234"))
		status, answer := call(ctx, http.MethodPost, base+"/failed", body(fmt.Sprintf(`"collectors":[%q]`, podOf(first[0]))))
		Expect(status).To(Equal(http.StatusOK), answer)
		Expect(urlsIn(answer, names.ReplicaTypeCollector)).To(Equal(both[1:]))
		Expect(listed()).To(Equal(both[1:]))
	})

	It("gives a learner of several GPUs an aggregator with a URL per GPU process", func(ctx SpecContext) {
		newAggregatorConfig(ctx)
		job := newTrainer(ctx, namespace)

		status, answer := call(ctx, http.MethodPost, base, body(`"learners":{"gpus":10,"cpus":2,"memory":"1Gi","replicas":1,"cpu":1}`))
		Expect(gold(status, answer)).To(Equal(
			`200 {"success":true,"code":0,"message":"successfully create replicas","data":{"namespace":"NS","coordinator":"cartpole-dqn-coordinator",` +
				`"collectors":[],"learners":["cartpole-dqn-aggregator-*.NS:22280"]}}`))
		list := membershipOf(ctx, job)
		Expect(list.Spec.Members[0].DDPGPUs).To(Equal([]int32{8, 2}))
		Expect(list.Spec.Members[0].Resources.Memory.String()).To(Equal("1Gi"))
		cacheKnows(ctx, list)

		aggregator := podOf(urlsIn(answer, names.ReplicaTypeAggregator)[0])
		own := base + "?namespace=" + namespace + "&aggregator=" + aggregator
		status, before := call(ctx, http.MethodGet, own, "{}")
		Expect(status).To(Equal(http.StatusOK))
		Expect(before).To(ContainSubstring(`"coordinator":"` + aggregator + `","collectors":null,"learners":[`))
		Expect(urlsIn(before, names.ReplicaTypeDDPLearner)).To(Equal(ddpURLs(namespace, aggregator)))

		By("replacing the unit when the aggregator reports a DDP learner, and telling the aggregator what it knew")
		createPod(ctx, job, &corev1.Pod{ObjectMeta: metav1.ObjectMeta{
			Name:        aggregator,
			Labels:      names.ReplicaLabels(trainer, names.ReplicaTypeAggregator, aggregator),
			Annotations: map[string]string{names.AnnotationSlot: list.Spec.Members[0].Slot},
		}})
		status, answer = call(ctx, http.MethodPost, base+"/failed", fmt.Sprintf(
			`{"namespace":%q,"coordinator":%q,"learners":[%q]}`, namespace, aggregator, membership.DDPPodName(trainer, aggregator, 1)))
		Expect(status).To(Equal(http.StatusOK))
		Expect(answer).To(ContainSubstring(`"coordinator":"` + aggregator + `"`))
		Expect(urlsIn(answer, names.ReplicaTypeDDPLearner)).To(HaveLen(10))
		list = membershipOf(ctx, job)
		Expect(list.Spec.Members[0].FailureReports).To(BeEquivalentTo(1))
		cacheKnows(ctx, list)
		_, after := call(ctx, http.MethodGet, own, "{}")
		Expect(urlsIn(after, names.ReplicaTypeDDPLearner)).To(Equal(ddpURLs(namespace, aggregator)))
	})

	It("replaces what a coordinator reports, once for each replica", func(ctx SpecContext) {
		newAggregatorConfig(ctx)
		job := newTrainer(ctx, namespace)
		_, created := call(ctx, http.MethodPost, base, body(`"collectors":{"replicas":1},"learners":{"replicas":1,"gpus":2}`))
		collector := urlsIn(created, names.ReplicaTypeCollector)[0]
		aggregator := urlsIn(created, names.ReplicaTypeAggregator)[0]

		report := body(fmt.Sprintf(`"collectors":[%q,%q],"learners":[%q]`, podOf(collector), podOf(collector), podOf(aggregator)))
		status, answer := call(ctx, http.MethodPost, base+"/failed", report)
		Expect(gold(status, answer)).To(Equal(
			`200 {"success":true,"code":0,"message":"successfully recreate replicas","data":{"namespace":"NS","coordinator":"cartpole-dqn-coordinator",` +
				`"collectors":["cartpole-dqn-collector-*.NS:22270"],"learners":["cartpole-dqn-aggregator-*.NS:22280"]}}`))
		Expect(answer).NotTo(ContainSubstring(collector))
		Expect(answer).NotTo(ContainSubstring(aggregator))

		By("answering the repeat with the first answer")
		_, again := call(ctx, http.MethodPost, base+"/failed", report)
		Expect(again).To(Equal(answer))

		By("leaving alone what was replaced already")
		status, answer = call(ctx, http.MethodPost, base+"/failed", body(fmt.Sprintf(`"collectors":[%q]`, podOf(collector))))
		Expect(gold(status, answer)).To(HavePrefix("200 "))
		Expect(answer).To(ContainSubstring(`"collectors":[],"learners":[]`))
		for _, member := range membershipOf(ctx, job).Spec.Members {
			Expect(member.FailureReports).To(BeEquivalentTo(1), member.Slot)
		}

		By("refusing a foreign name")
		Expect(gold(call(ctx, http.MethodPost, base+"/failed", body(`"collectors":["nope"]`)))).To(Equal(
			`404 {"success":false,"code":1,"message":"\"nope\" is no replica of job \"cartpole-dqn\"","data":null}`))
	})

	It("lists what it has answered, at once", func(ctx SpecContext) {
		newTrainer(ctx, namespace)
		for round := range 20 {
			_, created := call(ctx, http.MethodPost, base, body(fmt.Sprintf(`"collectors":{"replicas":1,"cpus":%d}`, round+1)))
			_, listed := call(ctx, http.MethodGet, base+"?namespace="+namespace+"&coordinator=cartpole-dqn-coordinator", "{}")
			Expect(urlsIn(listed, names.ReplicaTypeCollector)).To(ContainElements(urlsIn(created, names.ReplicaTypeCollector)))
			Expect(urlsIn(listed, names.ReplicaTypeCollector)).To(HaveLen(round + 1))
		}
	})

	It("describes one replica by its name, with and without a pod", func(ctx SpecContext) {
		job := newTrainer(ctx, namespace)
		_, created := call(ctx, http.MethodPost, base, body(`"collectors":{"replicas":1}`))
		collector := podOf(urlsIn(created, names.ReplicaTypeCollector)[0])
		want := `200 {"success":true,"code":0,"message":"successfully get replicas","data":{"namespace":"NS",` +
			`"coordinator":"cartpole-dqn-coordinator","replicaType":"collector","name":"cartpole-dqn-collector-*"}}`
		query := base + "?namespace=" + namespace + "&name=" + collector
		Expect(gold(call(ctx, http.MethodGet, query, "{}"))).To(Equal(want))
		newPod(ctx, job, collector, names.ReplicaTypeCollector)
		Expect(gold(call(ctx, http.MethodGet, query, "{}"))).To(Equal(want))
	})

	It("answers repeats of a request with the first answer and does them once", func(ctx SpecContext) {
		job := newTrainer(ctx, namespace)
		request := body(`"collectors":{"replicas":2}`)
		_, first := call(ctx, http.MethodPost, base, request)
		_, second := call(ctx, http.MethodPost, base, request)
		Expect(second).To(Equal(first))
		Expect(membershipOf(ctx, job).Spec.Members).To(HaveLen(2))

		By("doing another request")
		call(ctx, http.MethodPost, base, body(`"collectors":{"replicas":1}`))
		Expect(membershipOf(ctx, job).Spec.Members).To(HaveLen(3))

		By("knowing a request by the key that the client chose")
		_, keyed := call(ctx, http.MethodPost, base, request, "Idempotency-Key", "a")
		Expect(keyed).NotTo(Equal(first))
		_, repeated := call(ctx, http.MethodPost, base, request, "Idempotency-Key", "a")
		Expect(repeated).To(Equal(keyed))
		Expect(membershipOf(ctx, job).Spec.Members).To(HaveLen(5))
		Expect(gold(call(ctx, http.MethodPost, base, body(`"collectors":{"replicas":9}`), "Idempotency-Key", "a"))).To(HavePrefix("409 "))
	})

	It("does not take a user's request for the first of a restarted coordinator", func(ctx SpecContext) {
		job := newTrainer(ctx, namespace)
		first := body(`"collectors":{"replicas":2}`)
		call(ctx, http.MethodPost, base, first)
		asked := membershipOf(ctx, job).Spec.CoordinatorInstance
		setMainContainer(ctx, namespace, `{"restartCount":1,"state":{"running":{}}}`)

		_, added := call(ctx, http.MethodPost, base, body(`"collectors":{"replicas":1}`), names.HeaderCaller, names.CallerUser)
		Expect(urlsIn(added, names.ReplicaTypeCollector)).To(HaveLen(1))
		list := membershipOf(ctx, job)
		Expect(list.Spec.Members).To(HaveLen(3))
		Expect(list.Spec.CoordinatorInstance).To(Equal(asked))

		By("letting the coordinator's own request be its first")
		_, all := call(ctx, http.MethodPost, base, first)
		Expect(urlsIn(all, names.ReplicaTypeCollector)).To(HaveLen(3))
		list = membershipOf(ctx, job)
		Expect(list.Spec.Members).To(HaveLen(3))
		Expect(list.Spec.CoordinatorInstance).To(HaveSuffix("/1"))
	})

	It("loses and doubles nothing when two servers write at once", func(ctx SpecContext) {
		job := newTrainer(ctx, namespace)
		bases := []string{base, newServer(api.cached) + "/v1alpha2/replicas"}
		const requests = 12
		var group sync.WaitGroup
		for i := range requests {
			// Each request differs, so none is a repeat. Each is sent to both servers.
			request := body(fmt.Sprintf(`"collectors":{"replicas":2,"cpus":%d}`, i+1))
			for _, url := range bases {
				group.Go(func() {
					defer GinkgoRecover()
					status, answer := call(ctx, http.MethodPost, url, request)
					Expect(status).To(Equal(http.StatusOK), answer)
				})
			}
		}
		group.Wait()
		list := membershipOf(ctx, job)
		Expect(list.Spec.Members).To(HaveLen(2 * requests))
		seen := map[string]bool{}
		for _, member := range list.Spec.Members {
			seen[member.Slot] = true
		}
		Expect(seen).To(HaveLen(2 * requests))
	})

	It("knows a coordinator that was created a moment ago", func(ctx SpecContext) {
		for range 10 {
			fresh := specs.Namespace(ctx, api.live)
			newTrainer(ctx, fresh)
			status, answer := call(ctx, http.MethodGet, base+"?namespace="+fresh+"&coordinator=cartpole-dqn-coordinator", "{}")
			Expect(golden(status, answer, fresh)).To(Equal(
				`200 {"success":true,"code":0,"message":"successfully get replicas","data":{"namespace":"NS",` +
					`"coordinator":"cartpole-dqn-coordinator","collectors":[],"learners":[]}}`))
		}
	})

	It("holds a write until the operator has made the Membership, and lists pods until then", func(ctx SpecContext) {
		job := newJob(ctx, namespace, trainer, coordinatorLed())
		newPod(ctx, job, names.CoordinatorPod(trainer), names.ReplicaTypeCoordinator)
		collector := newPod(ctx, job, "cartpole-dqn-collector-bcdfg", names.ReplicaTypeCollector)
		cacheKnows(ctx, collector)
		cacheKnows(ctx, job)
		_, listed := call(ctx, http.MethodGet, base+"?namespace="+namespace+"&coordinator=cartpole-dqn-coordinator", "{}")
		Expect(urlsIn(listed, names.ReplicaTypeCollector)).To(HaveLen(1))

		answered := make(chan int, 1)
		go func() {
			defer GinkgoRecover()
			status, _ := call(ctx, http.MethodPost, base, body(`"collectors":{"replicas":1}`))
			answered <- status
		}()
		Consistently(answered, "300ms").ShouldNot(Receive())
		newMembership(ctx, job)
		Eventually(answered).Should(Receive(Equal(http.StatusOK)))
		Expect(membershipOf(ctx, job).Spec.Members).To(HaveLen(1))
	})

	It("lists no pods of another namespace, even if they claim the owner", func(ctx SpecContext) {
		job := newJob(ctx, namespace, trainer, coordinatorLed())
		newPod(ctx, job, names.CoordinatorPod(trainer), names.ReplicaTypeCoordinator)
		elsewhere := job.DeepCopy()
		elsewhere.Namespace = specs.Namespace(ctx, api.live)
		cacheKnows(ctx, newPod(ctx, elsewhere, "cartpole-dqn-collector-bcdfg", names.ReplicaTypeCollector))
		_, listed := call(ctx, http.MethodGet, base+"?namespace="+namespace+"&coordinator=cartpole-dqn-coordinator", "{}")
		Expect(urlsIn(listed, names.ReplicaTypeCollector)).To(BeEmpty())
	})

	DescribeTable("refuses writes for a job that has finished", func(ctx SpecContext, how string, finish func(*v2alpha1.DIJobStatus)) {
		job := newTrainer(ctx, namespace)
		finish(&job.Status)
		Expect(api.live.Status().Update(ctx, job)).To(Succeed())
		cacheKnows(ctx, job)
		Expect(gold(call(ctx, http.MethodPost, base, body(`"collectors":{"replicas":1}`)))).To(Equal(
			`409 {"success":false,"code":1,"message":"job NS/cartpole-dqn has finished: ` + how + `","data":null}`))
		Expect(membershipOf(ctx, job).Spec.Members).To(BeEmpty())
	},
		Entry("by its phase", "Succeeded", func(status *v2alpha1.DIJobStatus) { status.Phase = v2alpha1.JobSucceeded }),
		Entry("by its condition, regardless of its phase", "Failed", func(status *v2alpha1.DIJobStatus) {
			status.Phase = v2alpha1.JobRunning
			status.Conditions = []v2alpha1.DIJobCondition{{Type: string(v2alpha1.JobFailed), Status: corev1.ConditionTrue}}
		}),
	)

	It("needs an AggregatorConfig for a learner of several GPUs only", func(ctx SpecContext) {
		spec := coordinatorLed()
		spec.AggregatorConfig = &v2alpha1.AggregatorConfigReference{Name: "missing"}
		job := newJob(ctx, namespace, trainer, spec)
		newMembership(ctx, job)
		newPod(ctx, job, names.CoordinatorPod(trainer), names.ReplicaTypeCoordinator)
		Expect(gold(call(ctx, http.MethodPost, base, body(`"collectors":{"replicas":1},"learners":{"replicas":1,"gpus":1}`)))).To(HavePrefix("200 "))
		Expect(gold(call(ctx, http.MethodPost, base, body(`"learners":{"replicas":1,"gpus":2}`)))).To(Equal(
			`404 {"success":false,"code":1,"message":"AggregatorConfig \"NS/missing\" not found: a learner of 2 GPUs needs it","data":null}`))
	})

	It("uses an AggregatorConfig of another namespace only where that is shared with the job's", func(ctx SpecContext) {
		other := specs.Namespace(ctx, api.live)
		config := &v2alpha1.AggregatorConfig{ObjectMeta: metav1.ObjectMeta{Namespace: other, Name: "mine"}}
		config.Spec.Aggregator.Template = jobs.Serving()
		Expect(api.live.Create(ctx, config)).To(Succeed())
		cacheKnows(ctx, config)
		spec := coordinatorLed()
		spec.AggregatorConfig = &v2alpha1.AggregatorConfigReference{Namespace: other, Name: "mine"}
		job := newJob(ctx, namespace, trainer, spec)
		newMembership(ctx, job)
		newPod(ctx, job, names.CoordinatorPod(trainer), names.ReplicaTypeCoordinator)
		status, answer := call(ctx, http.MethodPost, base, body(`"learners":{"replicas":1,"gpus":2}`))
		Expect(status).To(Equal(http.StatusNotFound), answer)
		config.Annotations = map[string]string{names.AnnotationSharedWith: "some," + namespace}
		Expect(api.live.Update(ctx, config)).To(Succeed())
		Eventually(func() int {
			status, _ := call(ctx, http.MethodPost, base, body(`"learners":{"replicas":1,"gpus":2}`))
			return status
		}).WithContext(ctx).Should(Equal(http.StatusOK))
	})

	DescribeTable("answers what is wrong with the status that clients expect",
		func(ctx SpecContext, method, path, body, want string) {
			status, answer := call(ctx, method, strings.TrimSuffix(base, "/v1alpha1/replicas")+path, body)
			Expect(answer).To(MatchRegexp(`^\{"success":false,"code":1,"message":".+","data":null\}$`))
			Expect(strconv.Itoa(status)).To(Equal(want), answer)
		},
		Entry("an unknown parameter", "GET", "/v1alpha1/replicas?foo=bar", "", "400"),
		Entry("a coordinator without its namespace", "GET", "/v1alpha1/replicas?coordinator=c", "", "400"),
		Entry("a malformed query", "GET", "/v1alpha1/replicas?%zz=1", "", "400"),
		Entry("a query with a semicolon", "GET", "/v1alpha1/replicas?namespace=a;coordinator=b", "", "400"),
		Entry("a coordinator that is no name", "GET", "/v1alpha1/replicas?namespace=default&coordinator=a/b", "{}", "404"),
		Entry("a namespace that is no name", "GET", "/v1alpha1/replicas?namespace=..&coordinator=a", "{}", "404"),
		Entry("an aggregator that is no name", "GET", "/v1alpha1/replicas?namespace=default&aggregator=a%25b", "{}", "404"),
		Entry("a POST of a coordinator that is no name", "POST", "/v1alpha1/replicas", `{"namespace":"default","coordinator":"a/b"}`, "404"),
		Entry("an unknown coordinator", "GET", "/v1alpha1/replicas?namespace=default&coordinator=nope", "{}", "404"),
		Entry("an unknown aggregator", "GET", "/v1alpha1/replicas?namespace=default&aggregator=nope", "{}", "404"),
		Entry("an unknown replica", "GET", "/v1alpha1/replicas?namespace=default&name=nope", "{}", "404"),
		Entry("an unknown method", "PATCH", "/v1alpha1/replicas", "", "501"),
		Entry("an unknown method of /failed", "GET", "/v1alpha1/replicas/failed", "", "501"),
		Entry("an unknown path", "GET", "/v1alpha1/nope", "", "404"),
		Entry("an empty body", "POST", "/v1alpha1/replicas", "", "400"),
		Entry("a POST of an unknown coordinator", "POST", "/v1alpha1/replicas", `{"namespace":"default","coordinator":"nope"}`, "404"),
	)

	It("lists no jobs of a namespace that has none", func(ctx SpecContext) {
		Expect(gold(call(ctx, http.MethodGet, base+"?namespace=nope", "{}"))).To(Equal(
			`200 {"success":true,"code":0,"message":"successfully get replicas","data":[]}`))
	})

	It("says that it is healthy", func(ctx SpecContext) {
		for _, path := range []string{"", "/v1alpha1", "/v1alpha2"} {
			status, _ := call(ctx, http.MethodGet, strings.TrimSuffix(base, "/v1alpha1/replicas")+path+"/healthz", "")
			Expect(status).To(Equal(http.StatusOK), path)
		}
	})
})

// newAggregatorConfig creates the cluster's AggregatorConfig unless it exists.
func newAggregatorConfig(ctx SpecContext) {
	GinkgoHelper()
	config := &v2alpha1.AggregatorConfig{ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: "aggregator-config"}}
	config.Spec.Aggregator.Template = jobs.Raw(strings.Replace(template, "22270", "22280", 1))
	Expect(client.IgnoreAlreadyExists(api.live.Create(ctx, config))).To(Succeed())
	cacheKnows(ctx, config)
}

// ddpURLs returns the answer to an aggregator of 8 and 2 GPUs.
func ddpURLs(namespace, aggregator string) []string {
	var urls []string
	for pod, gpus := range []int32{8, 2} {
		for gpu := range gpus {
			urls = append(urls, names.ReplicaURL(membership.DDPPodName(trainer, aggregator, pod), namespace, 22270+gpu))
		}
	}
	return urls
}
