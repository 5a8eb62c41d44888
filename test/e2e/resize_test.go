// Copyright The DI Orchestrator Authors.
// SPDX-License-Identifier: Apache-2.0

//go:build e2e

package e2e

import (
	"bytes"
	"context"
	"flag"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"time"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	authenticationv1 "k8s.io/api/authentication/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"opendilab.org/di-orchestrator/internal/names"
	"opendilab.org/di-orchestrator/test/testkit"
)

// resizeCalls is the number of resizes of each client.
var resizeCalls = flag.Int("resize.calls", 10, "how often each client resizes a job while di-server is restarted")

// resizedJob is a worker-led job whose replicas wait.
const resizedJob = `
apiVersion: diengine.opendilab.org/v2alpha1
kind: DIJob
metadata: {name: resized}
spec:
  elastic: {task: collector, minReplicas: 1, maxReplicas: 3}
  tasks:
  - {type: learner, name: learner, replicas: 1, template: &waiting {spec: {terminationGracePeriodSeconds: 1, containers: [
      {name: di-container, image: cartpole:dev, imagePullPolicy: IfNotPresent, command: [/cartpole], args: [wait], resources: {limits: {memory: 64Mi}}}]}}}
  - {type: collector, name: collector, replicas: 1, template: *waiting}
`

var _ = Describe("A worker-led job while di-server is restarted pod by pod", Serial, func() {
	const namespace = "resized"

	It("is resized by each call of kubectl di and of the Python library", func(ctx SpecContext) {
		makeNamespace(ctx, namespace)
		applyContent(ctx, namespace, resizedJob)
		pod := readyPod(ctx, namespace, "resized-learner-0")
		DeferCleanup(restartRepeatedly(ctx))
		for name, resize := range map[string]func() []time.Duration{
			"kubectl di":                    func() []time.Duration { return byPlugin(ctx, namespace) },
			"the Python library":            func() []time.Duration { return byLibrary(ctx, pod) },
			"as the reference, kubectl get": func() []time.Duration { return byKubectl(ctx, namespace) },
		} {
			times := resize()
			Expect(times).To(HaveLen(*resizeCalls))
			slices.Sort(times)
			AddReportEntry(name, fmt.Sprintf("%d calls, median %s, longest %s", len(times), times[len(times)/2].Round(time.Millisecond),
				times[len(times)-1].Round(time.Millisecond)), ReportEntryVisibilityAlways)
		}
	})
})

// restartRepeatedly restarts di-server one time after the other until the returned function is called, which waits for the last one.
func restartRepeatedly(ctx context.Context) (stop func()) {
	ctx, cancel := context.WithCancel(ctx)
	ended := make(chan struct{})
	go func() {
		defer GinkgoRecover()
		defer close(ended)
		for ctx.Err() == nil {
			for _, verb := range []string{"restart", "status"} {
				// A restart that has begun is awaited, so that nothing disturbs the next spec.
				output, err := exec.CommandContext(context.WithoutCancel(ctx), kubectl, "rollout", verb,
					"deployment/di-orchestrator-server", "-n", names.SystemNamespace).CombinedOutput()
				Expect(err).NotTo(HaveOccurred(), "%s", output)
			}
		}
	}()
	return func() { cancel(); <-ended }
}

// timed runs a command, which must succeed, and returns its output and the time it took.
func timed(command *exec.Cmd) (string, time.Duration) {
	GinkgoHelper()
	var output bytes.Buffer
	command.Stdout, command.Stderr = &output, &output
	began := time.Now()
	Expect(command.Run()).To(Succeed(), "%s: %s", command, &output)
	return output.String(), time.Since(began)
}

// byPlugin adds a collector and deletes it by turns, each by a command, and returns the time of each command.
func byPlugin(ctx context.Context, namespace string) (times []time.Duration) {
	GinkgoHelper()
	folder := buildPlugin(ctx)
	for i := range *resizeCalls {
		command := exec.CommandContext(ctx, kubectl, "di", "-n", namespace, []string{"add", "delete"}[i%2], "collector", "resized")
		command.Env = append(os.Environ(), "PATH="+folder+string(os.PathListSeparator)+os.Getenv("PATH"))
		_, took := timed(command)
		times = append(times, took)
	}
	return times
}

func byKubectl(ctx context.Context, namespace string) (times []time.Duration) {
	GinkgoHelper()
	for range *resizeCalls {
		_, took := timed(exec.CommandContext(ctx, kubectl, "get", dijobs, "-n", namespace))
		times = append(times, took)
	}
	return times
}

// resizeByLibrary prints the seconds that each call took.
const resizeByLibrary = `
import sys, time, di_orchestrator as di
url, token_file, calls = sys.argv[1:]
worker = di.Worker(client=di.Client(url, token_file=token_file))
for i in range(int(calls)):
    began = time.monotonic()
    worker.delete_replicas(1) if i % 2 else worker.post_replicas(1)
    print(f"{time.monotonic() - began:.3f}s")
`

// byLibrary does the same by calls of the Python library, as a program of a pod makes them: with the pod's environment and a token that is
// bound to it. They reach di-server at the address of its Service.
func byLibrary(ctx context.Context, pod *corev1.Pod) (times []time.Duration) {
	GinkgoHelper()
	service, err := core.CoreV1().Services(names.SystemNamespace).Get(ctx, names.ServerService, metav1.GetOptions{})
	Expect(err).NotTo(HaveOccurred())
	token, err := core.CoreV1().ServiceAccounts(pod.Namespace).CreateToken(ctx, pod.Spec.ServiceAccountName, &authenticationv1.TokenRequest{
		Spec: authenticationv1.TokenRequestSpec{
			Audiences:      []string{names.ServerAudience},
			BoundObjectRef: &authenticationv1.BoundObjectReference{APIVersion: "v1", Kind: "Pod", Name: pod.Name, UID: pod.UID},
		},
	}, metav1.CreateOptions{})
	Expect(err).NotTo(HaveOccurred())
	file := filepath.Join(GinkgoT().TempDir(), "token")
	Expect(os.WriteFile(file, []byte(token.Status.Token), 0o600)).To(Succeed())
	command := exec.CommandContext(ctx, "python3", "-c", resizeByLibrary,
		fmt.Sprintf("http://%s:%d", service.Spec.ClusterIP, names.ServerPortV2), file, strconv.Itoa(*resizeCalls))
	command.Env = append(os.Environ(), "PYTHONPATH="+filepath.Join(testkit.Root(), "python", "src"), "PYTHONDONTWRITEBYTECODE=1")
	for _, variable := range pod.Spec.Containers[0].Env {
		command.Env = append(command.Env, variable.Name+"="+variable.Value)
	}
	output, _ := timed(command)
	for _, line := range strings.Fields(output) {
		took, err := time.ParseDuration(line)
		Expect(err).NotTo(HaveOccurred())
		times = append(times, took)
	}
	return times
}
