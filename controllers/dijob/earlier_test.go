// Copyright The DI Orchestrator Authors.
// SPDX-License-Identifier: Apache-2.0

package dijob

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"

	"opendilab.org/di-orchestrator/apis/v2alpha1"
	"opendilab.org/di-orchestrator/test/testkit/specs"
)

// release describes the differences between the releases v1.1.0 to v1.1.3: the service of job "job", the
// subdomain of its pods, and whether labels name their tasks.
type release struct {
	service, subdomain string
	taskLabels         bool
}

func v111() release { return release{"dijob-job", "job", false} }

func v113() release { return release{"di-job", "di-job", true} }

// earlier is a worker-led job with its objects as v1.1.0 to v1.1.3 wrote them. The objects are literal, so
// they do not depend on the code under test.
type earlier struct {
	*space
	release
	owner metav1.OwnerReference
	// ranked are the names of all pods in the order of rank assignment.
	ranked []string
}

// submitEarlier submits a job of a learner, two collectors and an evaluator.
func (s *space) submitEarlier(ctx context.Context, r release, changes ...func(*v2alpha1.DIJobSpec)) *earlier {
	spec := v2alpha1.DIJobSpec{
		BackoffLimit: ptr.To(int32(3)),
		Tasks: []v2alpha1.Task{
			{Type: v2alpha1.TaskTypeLearner, Name: "learner", Template: podTemplate()},
			{Type: v2alpha1.TaskTypeCollector, Name: "collector", Replicas: ptr.To(int32(2)), Template: podTemplate()},
			{Type: v2alpha1.TaskTypeEvaluator, Name: "evaluator", Template: podTemplate()},
		},
	}
	for _, change := range changes {
		change(&spec)
	}
	s.submit(ctx, spec)
	return &earlier{
		space: s, release: r,
		owner: metav1.OwnerReference{
			APIVersion: "diengine.opendilab.org/v2alpha1", Kind: "DIJob", Name: "job", UID: s.job(ctx).UID,
			Controller: ptr.To(true), BlockOwnerDeletion: ptr.To(true),
		},
		ranked: []string{"job-learner-0", "job-collector-0", "job-collector-1", "job-evaluator-0"},
	}
}

// status records a phase, and further changes, as these releases did.
func (e *earlier) status(ctx context.Context, phase v2alpha1.Phase, changes ...func(*v2alpha1.DIJobStatus)) {
	job, at := e.job(ctx), metav1.Now().Rfc3339Copy()
	job.Status.Phase, job.Status.Replicas = phase, 4
	for _, condition := range []v2alpha1.Phase{v2alpha1.JobPending, phase} {
		job.Status.Conditions = slices.DeleteFunc(job.Status.Conditions, func(one v2alpha1.DIJobCondition) bool { return one.Type == string(condition) })
		for i := range job.Status.Conditions {
			job.Status.Conditions[i].Status = corev1.ConditionFalse
		}
		job.Status.Conditions = append(job.Status.Conditions, v2alpha1.DIJobCondition{
			Type: string(condition), Status: corev1.ConditionTrue, Reason: "Job" + string(condition), Message: "as v1.1 said it",
			LastUpdateTime: &at, LastTransitionTime: &at,
		})
	}
	for _, change := range changes {
		change(&job.Status)
	}
	Expect(shared.api.Status().Update(ctx, job)).To(Succeed())
}

// fqdns are the addresses of all pods as the environment of each pod lists them.
func (e *earlier) fqdns() string {
	var all []string
	for _, pod := range e.ranked {
		all = append(all, e.fqdn(pod))
	}
	return strings.Join(all, ",")
}

func (e *earlier) fqdn(pod string) string {
	return fmt.Sprintf("%s.%s.%s.svc.cluster.local", pod, e.subdomain, e.name)
}

// worker creates a running and ready pod of a rank.
func (e *earlier) worker(ctx context.Context, name string, rank int, changes ...func(*corev1.Pod)) {
	task := strings.Split(name, "-")[1]
	pod := &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{
			Namespace: e.name, Name: name, OwnerReferences: []metav1.OwnerReference{e.owner},
			Labels: map[string]string{"diengine/operator": "di-operator", "diengine/job": "job", "diengine/pod": name},
			Annotations: map[string]string{
				"diengine/replicas": strconv.Itoa(len(e.ranked)), "diengine/rank": strconv.Itoa(rank),
				"diengine/task-rank": strings.Split(name, "-")[2], "diengine/node": "",
			},
		},
		Spec: corev1.PodSpec{
			Hostname: name, Subdomain: e.subdomain, RestartPolicy: corev1.RestartPolicyNever,
			Containers: []corev1.Container{{Name: "di-container", Image: "image:old", Env: []corev1.EnvVar{
				{Name: "DI_JOB_ID", Value: e.name + "/job"}, {Name: "DI_SERVER_URL", Value: "http://di-server.di-system.svc.cluster.local:8081"},
				{Name: "DI_RANK", Value: strconv.Itoa(rank)}, {Name: "DI_NODES", Value: e.fqdns()},
			}}},
		},
		Status: corev1.PodStatus{
			Phase:             corev1.PodRunning,
			Conditions:        []corev1.PodCondition{{Type: corev1.PodReady, Status: corev1.ConditionTrue}},
			ContainerStatuses: []corev1.ContainerStatus{{Name: "di-container", Ready: true}},
		},
	}
	if e.taskLabels {
		pod.Labels["diengine/task-type"], pod.Labels["diengine/task-name"] = task, task
	} else {
		pod.Labels["diengine/group"], pod.Annotations["diengine/task-type"] = "", task
	}
	for _, change := range changes {
		change(pod)
	}
	status := pod.Status
	Expect(shared.api.Create(ctx, pod)).To(Succeed())
	pod.Status = status
	Expect(shared.api.Status().Update(ctx, pod)).To(Succeed())
}

// headless creates the service of the job.
func (e *earlier) headless(ctx context.Context) {
	labels := map[string]string{"diengine/operator": "di-operator", "diengine/job": "job"}
	if !e.taskLabels {
		labels["diengine/group"] = ""
	}
	Expect(shared.api.Create(ctx, &corev1.Service{
		ObjectMeta: metav1.ObjectMeta{Namespace: e.name, Name: e.service, Labels: labels, OwnerReferences: []metav1.OwnerReference{e.owner}},
		Spec: corev1.ServiceSpec{
			ClusterIP: "None", Selector: labels, Ports: []corev1.ServicePort{{Name: "di-port", Port: 22270}},
		},
	})).To(Succeed())
}

// team creates the service and all pods. otherwise changes the named pods.
func (e *earlier) team(ctx context.Context, otherwise map[string]func(*corev1.Pod)) {
	e.headless(ctx)
	for rank, name := range e.ranked {
		change, told := otherwise[name]
		switch {
		case told && change == nil:
		case told:
			e.worker(ctx, name, rank, change)
		default:
			e.worker(ctx, name, rank)
		}
	}
}

func ended(exitCode int32) func(*corev1.Pod) {
	return func(pod *corev1.Pod) {
		pod.Status = corev1.PodStatus{Phase: corev1.PodSucceeded, ContainerStatuses: []corev1.ContainerStatus{{
			Name: "di-container", State: corev1.ContainerState{Terminated: &corev1.ContainerStateTerminated{ExitCode: exitCode}},
		}}}
		if exitCode != 0 {
			pod.Status.Phase = corev1.PodFailed
		}
	}
}

// expectPeers expects that new pods have the same form of address as the existing ones, know the ranks of
// those, and are reached through the same service.
func (e *earlier) expectPeers(ctx context.Context, made string, rank int) {
	pod := specs.Get[corev1.Pod](ctx, shared.api, e.name, made)
	Expect(pod.Spec.Hostname + "." + pod.Spec.Subdomain).To(Equal(made + "." + e.subdomain))
	env := variablesOf(ctx, pod)
	Expect(env).To(HaveKeyWithValue("DI_RANK", strconv.Itoa(rank)))
	nodes := strings.Split(env["DI_NODES"], ",")
	Expect(nodes[rank]).To(Equal(e.fqdn(made)))
	for at, name := range e.ranked {
		if name != made {
			Expect(nodes[at]).To(Equal(e.fqdn(name)))
		}
	}
	service := specs.Get[corev1.Service](ctx, shared.api, e.name, e.service)
	for key, value := range service.Spec.Selector {
		Expect(pod.Labels).To(HaveKeyWithValue(key, value))
	}
}

// earlierState is the state of a job, and the expected state after its takeover.
type earlierState struct {
	phase  v2alpha1.Phase
	status func(*v2alpha1.DIJobStatus)
	spec   func(*v2alpha1.DIJobSpec)
	// pods are the pods that are not simply running; nil means that the pod does not exist.
	pods map[string]func(*corev1.Pod)

	want v2alpha1.Phase
	// made are the pods that the operator creates. gone are those that it deletes.
	made, gone   []string
	restarts     int32
	ready, total int32
	// noServices means that the operator deletes the services of the job.
	noServices bool
}

func counts(restarts, reschedules int32) func(*v2alpha1.DIJobStatus) {
	return func(status *v2alpha1.DIJobStatus) { status.Restarts, status.Reschedules = restarts, reschedules }
}

func earlierStates() map[string]earlierState {
	pending := func(pod *corev1.Pod) { pod.Status = corev1.PodStatus{Phase: corev1.PodPending} }
	return map[string]earlierState{
		"is starting, with some of its pods": {
			phase: v2alpha1.JobPending, pods: map[string]func(*corev1.Pod){"job-collector-1": pending, "job-evaluator-0": nil},
			want: v2alpha1.JobStarting, made: []string{"job-evaluator-0"}, ready: 2, total: 4,
		},
		"is half-way in a restart, its failed pod still there": {
			phase: v2alpha1.JobRestarting, status: counts(2, 0), pods: map[string]func(*corev1.Pod){"job-collector-1": ended(1)},
			want: v2alpha1.JobStarting, gone: []string{"job-collector-1"}, made: []string{"job-collector-1"}, restarts: 2, ready: 3, total: 4,
		},
		"was resized by its status just before": {
			phase: v2alpha1.JobRunning, status: func(status *v2alpha1.DIJobStatus) { status.Replicas = 5 },
			want: v2alpha1.JobRunning, made: []string{"job-collector-2"}, ready: 4, total: 5,
		},
		"has failed, and its pods are about to go": {
			phase: v2alpha1.JobFailed, status: counts(3, 0), pods: map[string]func(*corev1.Pod){"job-learner-0": ended(1)},
			want: v2alpha1.JobFailed, gone: []string{"job-collector-0", "job-collector-1", "job-evaluator-0"}, restarts: 3, total: 4, noServices: true,
		},
	}
}

// set brings a job into a state.
func (e *earlier) set(ctx context.Context, state *earlierState) {
	e.team(ctx, state.pods)
	changes := []func(*v2alpha1.DIJobStatus){}
	if state.status != nil {
		changes = append(changes, state.status)
	}
	e.status(ctx, state.phase, changes...)
	if state.spec != nil {
		job := e.job(ctx)
		state.spec(&job.Spec)
		Expect(shared.api.Update(ctx, job)).To(Succeed())
	}
}

// expect checks the result of a state.
func (e *earlier) expect(ctx context.Context, state *earlierState, before map[string]string) {
	after := map[string]string{}
	for _, pod := range e.pods(ctx) {
		after[pod.Name] = string(pod.UID)
	}
	made := map[string]int{}
	for name, uid := range before {
		if slices.Contains(state.gone, name) {
			Expect(after[name]).NotTo(Equal(uid), name)
		} else {
			Expect(after).To(HaveKeyWithValue(name, uid))
		}
	}
	for _, name := range state.made {
		made["*v1.Pod "+name] = 1
		Expect(after).To(HaveKey(name))
	}
	for object := range e.created {
		if strings.HasPrefix(object, "*v1.Pod ") {
			Expect(made).To(HaveKey(object))
		}
	}
	status := e.job(ctx).Status
	Expect(status.Phase).To(Equal(state.want))
	Expect([]int32{status.Restarts, status.ReadyReplicas, status.Replicas}).To(Equal([]int32{state.restarts, state.ready, state.total}))
	for task := range status.TaskStatus {
		Expect(task).To(BeElementOf("learner", "collector", "evaluator"))
	}
	switch {
	case state.noServices:
		Expect(e.services(ctx)).To(BeEmpty())
	case len(state.gone) == len(e.ranked):
		Expect(e.services(ctx)).To(ConsistOf("di-job"))
	default:
		Expect(e.services(ctx)).To(ConsistOf(e.service))
	}
	versions := e.versions(ctx)
	Expect(e.reconcile(ctx)).To(Succeed())
	Expect(e.versions(ctx)).To(Equal(versions))
}

// uids returns the UIDs of the pods by name.
func (e *earlier) uids(ctx context.Context) map[string]string {
	found := map[string]string{}
	for _, pod := range e.pods(ctx) {
		found[pod.Name] = string(pod.UID)
	}
	return found
}

var _ = Describe("A worker-led job of an earlier release is taken over", func() {
	for _, name := range []string{"v1.1.1", "v1.1.3"} {
		made := map[string]func() release{"v1.1.1": v111, "v1.1.3": v113}[name]
		states := earlierStates()
		for _, words := range slices.Sorted(maps.Keys(states)) {
			state := states[words]
			It(fmt.Sprintf("that %s ran and that %s", name, words), func(ctx SpecContext) {
				s := newSpace(ctx)
				e := s.submitEarlier(ctx, made())
				e.set(ctx, &state)
				before := e.uids(ctx)
				Expect(s.settle(ctx)).To(Succeed())
				e.expect(ctx, &state, before)
			})
		}

		It("that "+name+" ran, grows beside its pods, and restarts as any when one fails", func(ctx SpecContext) {
			s := newSpace(ctx)
			e := s.submitEarlier(ctx, made())
			e.team(ctx, nil)
			e.status(ctx, v2alpha1.JobRunning)
			s.takeOver(ctx)
			job := s.job(ctx)
			job.Spec.Tasks[1].Replicas = ptr.To(int32(3))
			Expect(shared.api.Update(ctx, job)).To(Succeed())
			s.takeOver(ctx)
			e.expectPeers(ctx, "job-collector-2", 4)

			s.end(ctx, "job-learner-0", 1)
			Expect(s.settle(ctx)).To(Succeed())
			Expect(s.job(ctx).Status.Restarts).To(BeEquivalentTo(1))
			Expect(s.podNames(ctx)).To(HaveLen(5))
			Expect(s.services(ctx)).To(ConsistOf("di-job"))
			s.expectOwnService(ctx)
		})
	}

	It("whichever of its writes the operator crashes after", func(ctx SpecContext) {
		afterEachWrite(func(writes int) bool {
			By(fmt.Sprintf("crashing after %d writes", writes))
			s := newSpace(ctx)
			e := s.submitEarlier(ctx, v111())
			state := earlierStates()["is half-way in a restart, its failed pod still there"]
			e.set(ctx, &state)
			before := e.uids(ctx)
			s.operator = s.newOperator(crashAfter(writes))
			err := s.settle(ctx)
			if err != nil {
				Expect(err).To(MatchError(errCrashed))
				s.operator = s.newOperator(interceptor.Funcs{})
				Expect(s.settle(ctx)).To(Succeed())
			}
			e.expect(ctx, &state, before)
			e.expectPeers(ctx, "job-collector-1", 2)
			return err != nil
		})
	})
})

// expectOwnService expects that the job's service and pods are those of this version.
func (s *space) expectOwnService(ctx context.Context) {
	service := specs.Get[corev1.Service](ctx, shared.api, s.name, "di-job")
	Expect(service.Spec.PublishNotReadyAddresses).To(BeTrue())
	Expect(service.Spec.Selector).To(Equal(map[string]string{"diengine/operator": "di-operator", "diengine/job": "job"}))
	for _, pod := range s.pods(ctx) {
		Expect(pod.Spec.Subdomain).To(Equal("di-job"))
		Expect(pod.Labels).NotTo(HaveKey("diengine/group"))
		nodes := variablesOf(ctx, &pod)["DI_NODES"]
		Expect(strings.Count(nodes, ".di-job."+s.name+".")).To(Equal(strings.Count(nodes, ",") + 1))
	}
}
