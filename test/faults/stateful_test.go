// Copyright The DI Orchestrator Authors.
// SPDX-License-Identifier: Apache-2.0

package faults

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"time"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"opendilab.org/di-orchestrator/apis/v2alpha1"
	"opendilab.org/di-orchestrator/internal/names"
	"opendilab.org/di-orchestrator/server"
	"opendilab.org/di-orchestrator/test/testkit"
	"opendilab.org/di-orchestrator/test/testkit/jobs"
	"opendilab.org/di-orchestrator/test/testkit/pods"
	"opendilab.org/di-orchestrator/test/testkit/specs"
)

// kubelet runs the pods of a namespace as processes, each at its own address.
type kubelet struct {
	namespace, binary, server string

	mutex sync.Mutex
	pods  map[types.UID]*podProcess
}

// podProcess is the process of a pod.
type podProcess struct {
	name, address string
	stop          context.CancelFunc
	stdout, log   bytes.Buffer
	ended         chan struct{}
	code          int
	isReported    bool
}

// follow starts, ends and reports processes until the context ends.
func (k *kubelet) follow(ctx context.Context) {
	defer GinkgoRecover()
	for ctx.Err() == nil {
		if err := k.sync(ctx); err != nil && ctx.Err() == nil {
			GinkgoLogr.Info("The kubelet retries", "error", err.Error())
		}
		select {
		case <-ctx.Done():
		case <-time.After(20 * time.Millisecond):
		}
	}
}

func (k *kubelet) sync(ctx context.Context) error {
	var pods corev1.PodList
	if err := shared.live.List(ctx, &pods, client.InNamespace(k.namespace)); err != nil {
		return err
	}
	k.mutex.Lock()
	defer k.mutex.Unlock()
	exists := map[types.UID]bool{}
	var problems []error
	for i := range pods.Items {
		pod := &pods.Items[i]
		exists[pod.UID] = true
		if known := k.pods[pod.UID]; known != nil {
			problems = append(problems, k.report(ctx, pod, known))
		} else {
			problems = append(problems, k.start(ctx, pod))
		}
	}
	for uid, known := range k.pods {
		if !exists[uid] {
			known.stop()
		}
	}
	return errors.Join(problems...)
}

// start starts the process of a pod.
func (k *kubelet) start(ctx context.Context, pod *corev1.Pod) error {
	n := shared.addresses.Add(1)
	running, stop := context.WithCancel(ctx)
	process := &podProcess{name: pod.Name, address: fmt.Sprintf("127.9.%d.%d", n/200, n%200+1), stop: stop, ended: make(chan struct{})}
	args := append([]string{}, pod.Spec.Containers[0].Args...)
	command := exec.CommandContext(running, k.binary, append(args, "--name="+pod.Name, "--host="+process.address)...)
	command.Env = append(os.Environ(), names.EnvDIServerURL+"="+k.server, names.EnvDIJobID+"="+k.namespace+".job.0")
	command.Stdout, command.Stderr = &process.stdout, &process.log
	if err := command.Start(); err != nil {
		stop()
		return err
	}
	k.pods[pod.UID] = process
	go func() {
		_ = command.Wait()
		process.code = command.ProcessState.ExitCode()
		close(process.ended)
	}()
	pods.RunReady(pod, process.address)
	return shared.live.Status().Update(ctx, pod)
}

// report reports the end of a process.
func (k *kubelet) report(ctx context.Context, pod *corev1.Pod, known *podProcess) error {
	select {
	case <-known.ended:
	default:
		return nil
	}
	if known.isReported {
		return nil
	}
	pod.Status.Phase = corev1.PodSucceeded
	if known.code != 0 {
		pod.Status.Phase = corev1.PodFailed
	}
	pod.Status.Conditions = nil
	pod.Status.ContainerStatuses = []corev1.ContainerStatus{{Name: names.Container, State: corev1.ContainerState{
		Terminated: &corev1.ContainerStateTerminated{ExitCode: int32(known.code), FinishedAt: metav1.Now()},
	}}}
	err := shared.live.Status().Update(ctx, pod)
	known.isReported = err == nil
	return err
}

// outputs returns the output of all processes of a pod's name that have ended.
func (k *kubelet) outputs(name string) (found []string) {
	k.mutex.Lock()
	defer k.mutex.Unlock()
	for _, process := range k.pods {
		if process.name != name {
			continue
		}
		select {
		case <-process.ended:
			found = append(found, process.stdout.String())
		default:
		}
	}
	return found
}

// ask calls the process of a pod.
func (k *kubelet) ask(ctx context.Context, name, method, path string, into any) error {
	k.mutex.Lock()
	address := ""
	for _, process := range k.pods {
		if process.name == name {
			address = process.address
		}
	}
	k.mutex.Unlock()
	request, err := http.NewRequestWithContext(ctx, method, fmt.Sprintf("http://%s:%d%s", address, names.DefaultWorkerPort, path), strings.NewReader("{}"))
	if err != nil {
		return err
	}
	response, err := http.DefaultClient.Do(request)
	if err != nil {
		return err
	}
	defer response.Body.Close() //nolint:errcheck // nothing is lost with a body that was read
	if response.StatusCode != http.StatusOK {
		return fmt.Errorf("%s %s: status %d", method, path, response.StatusCode)
	}
	if into == nil {
		return nil
	}
	return json.NewDecoder(response.Body).Decode(into)
}

// logs returns the logs of all processes, once they have ended.
func (k *kubelet) logs() string {
	k.mutex.Lock()
	defer k.mutex.Unlock()
	var all strings.Builder
	for _, process := range k.pods {
		process.stop()
		<-process.ended
		all.WriteString("--- " + process.name + "\n" + process.log.String())
	}
	return all.String()
}

// statefulTemplate is the template of a role of the workload.
func statefulTemplate(args string) v2alpha1.RawObject {
	found := jobs.Template()
	found.Raw = []byte(`{"spec":{"containers":[{"name":"di-container","image":"di","args":[` + args + `]}]}}`)
	return found
}

var _ = Describe("A job of parameter servers", func() {
	It("loses no update while servers come and go", func(ctx SpecContext) {
		binary := filepath.Join(GinkgoT().TempDir(), "cartpole")
		build := exec.CommandContext(ctx, "go", "build", "-buildvcs=false", "-o", binary, "./test/workload/cartpole")
		build.Dir = testkit.Root()
		output, err := build.CombinedOutput()
		Expect(err).NotTo(HaveOccurred(), string(output))

		served := newServer(ctx, shared.account.Host, server.Times{}).waitReady()
		namespace := specs.Namespace(ctx, shared.live)
		nodes := &kubelet{namespace: namespace, binary: binary, server: served.url, pods: map[types.UID]*podProcess{}}
		running, stop := context.WithCancel(context.WithoutCancel(ctx))
		followed := make(chan struct{})
		go func() {
			defer close(followed)
			nodes.follow(running)
		}()
		DeferCleanup(func() {
			stop()
			<-followed
			if logs := nodes.logs(); CurrentSpecReport().Failed() {
				GinkgoWriter.Println(logs)
			}
		})
		job := &v2alpha1.DIJob{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: "job"}, Spec: v2alpha1.DIJobSpec{
			BackoffLimit:  ptr.To(int32(0)),
			SuccessPolicy: &v2alpha1.SuccessPolicy{TargetTasks: []string{"worker"}},
			Tasks: []v2alpha1.Task{
				{Name: "worker", Type: v2alpha1.TaskTypeNone, Replicas: ptr.To(int32(2)), Template: statefulTemplate(`"pusher","--updates=500","--wait"`)},
				{Name: "ps", Type: v2alpha1.TaskTypeNone, Replicas: ptr.To(int32(4)), Template: statefulTemplate(`"paramserver"`), Drain: &v2alpha1.Drain{}},
			},
		}}
		Expect(shared.live.Create(ctx, job)).To(Succeed())
		key := client.ObjectKeyFromObject(job)
		membership := func(g Gomega) *v2alpha1.PublishedMembership {
			var current v2alpha1.DIJob
			g.Expect(shared.live.Get(ctx, key, &current)).To(Succeed())
			g.Expect(current.Status.Scaling).NotTo(BeNil())
			g.Expect(current.Status.Scaling.Membership).NotTo(BeNil())
			return current.Status.Scaling.Membership
		}
		uid := func(g Gomega, name string) types.UID {
			var pod corev1.Pod
			g.Expect(shared.live.Get(ctx, client.ObjectKey{Namespace: key.Namespace, Name: name}, &pod)).To(Succeed())
			return pod.UID
		}
		Eventually(func(g Gomega) { g.Expect(membership(g).Active).To(Equal("0-5")) }).Should(Succeed())
		workers := []types.UID{uid(Default, "job-worker-0"), uid(Default, "job-worker-1")}
		pushed := func() int64 {
			var total int64
			for _, name := range []string{"job-worker-0", "job-worker-1"} {
				var count int64
				if err := nodes.ask(ctx, name, "GET", "/pushed", &count); err != nil {
					return 0
				}
				total += count
			}
			return total
		}
		Eventually(pushed).Should(BeNumerically(">", 100))

		resize := func(servers int, active string) {
			GinkgoHelper()
			Expect(shared.live.Patch(ctx, job, client.RawPatch(types.JSONPatchType,
				fmt.Appendf(nil, `[{"op":"replace","path":"/spec/tasks/1/replicas","value":%d}]`, servers)))).To(Succeed())
			Eventually(func(g Gomega) { g.Expect(membership(g).Active).To(Equal(active)) }).Should(Succeed())
			reached := pushed()
			Eventually(pushed).Should(BeNumerically(">", reached))
		}

		By("removing a server and adding it again, without its state")
		before := uid(Default, "job-ps-3")
		resize(3, "0-4")
		resize(4, "0-5")
		Expect(uid(Default, "job-ps-3")).NotTo(Equal(before))

		By("removing half of the servers")
		resize(2, "0-3")

		By("comparing what was pushed with what the servers counted")
		for _, name := range []string{"job-worker-0", "job-worker-1"} {
			Expect(nodes.ask(ctx, name, "POST", "/finish", nil)).To(Succeed())
			Eventually(func() []string { return nodes.outputs(name) }).Should(HaveExactElements(MatchRegexp(`^result=complete pushed=(\d+) counted=`)))
		}
		Eventually(func(g Gomega) {
			var current v2alpha1.DIJob
			g.Expect(shared.live.Get(ctx, key, &current)).To(Succeed())
			g.Expect(current.Status.Phase).To(Equal(v2alpha1.JobSucceeded))
			g.Expect(current.Status.Restarts).To(BeZero())
		}).Should(Succeed())
		Expect([]types.UID{uid(Default, "job-worker-0"), uid(Default, "job-worker-1")}).To(Equal(workers), "no worker restarted")
	})
})
