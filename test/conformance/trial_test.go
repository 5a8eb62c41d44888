// Copyright The DI Orchestrator Authors.
// SPDX-License-Identifier: Apache-2.0

//go:build conformance

package conformance

import (
	"bytes"
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"os"
	"os/exec"
	"slices"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"opendilab.org/di-orchestrator/apis/v2alpha1"
	"opendilab.org/di-orchestrator/internal/names"
	"opendilab.org/di-orchestrator/test/testkit/expect"
)

// answerTime bounds a call of di-server with the start of its caller, which takes seconds on a busy machine.
// A write that the cluster refuses again and again takes longer.
const answerTime = 45 * time.Second

// TestConformance runs every applicable cell of the table on the cluster.
func TestConformance(t *testing.T) {
	all := steps()
	for _, capability := range Capabilities() {
		if all[capability.Name] == nil {
			t.Fatalf("no step runs %q", capability.Name)
		}
	}
	w := newWorld(t)
	for _, cell := range Table() {
		if cell.Outcome().Kind == NotApplicable {
			continue
		}
		t.Run(cell.Sentence(), func(t *testing.T) {
			t.Parallel()
			c := &trial{world: w, Cell: cell, t: t, ctx: t.Context(), namespace: w.namespace(t, "cell")}
			if c.isUser() {
				w.grant(t, c.namespace, cell.Caller)
			}
			defer c.explain()
			c.expect(all[cell.Capability.Name](c))
		})
	}
}

// trial is one run of a cell.
type trial struct {
	*world
	Cell
	t         *testing.T
	ctx       context.Context //nolint:containedctx // it is that of the test
	namespace string
}

// step makes the request of a cell, and returns its refusal. If it succeeds, the step waits for its effect.
type step func(*trial) error

// expect compares the result of the step with the table.
func (c *trial) expect(err error) {
	c.t.Helper()
	outcome := c.Outcome()
	switch {
	case outcome.Kind == Runs && err != nil:
		c.t.Errorf("must run, and was refused: %v", err)
	case outcome.Kind == Refused && err == nil:
		c.t.Errorf("must be refused with %q, and was not", outcome.Text)
	case outcome.Kind == Refused && !strings.Contains(err.Error(), outcome.Text):
		c.t.Errorf("must be refused with %q, and was with: %v", outcome.Text, err)
	}
}

// explain logs the state of the job of a failed test.
func (c *trial) explain() {
	if c.t.Failed() {
		output, _ := exec.CommandContext(c.ctx, c.world.kubectl, "-n", c.namespace, "get", "dijobs,scaleplans,pods,events").CombinedOutput()
		status, _ := exec.CommandContext(c.ctx, c.world.kubectl, "-n", c.namespace, "get", "dijobs", "-o", "jsonpath={.items[*].status}").CombinedOutput()
		c.t.Logf("%s\n%s", output, status)
	}
}

func (c *trial) isUser() bool { return slices.Contains([]Caller{Admin, Edit, View}, c.Caller) }

// written is the version in which the job of the cell is written.
func (c *trial) written() Version {
	if c.Lifecycle == WorkerLed {
		return V2
	}
	return c.Version
}

// create creates an object of a manifest for the test, not for the caller.
func (c *trial) create(o object) {
	c.t.Helper()
	content, err := json.Marshal(o)
	expect.NoError(c.t, err)
	var made unstructured.Unstructured
	expect.NoError(c.t, json.Unmarshal(content, &made.Object))
	made.SetNamespace(c.namespace)
	expect.NoError(c.t, c.api.Create(c.ctx, &made))
}

// start creates a job and waits for its pods. A job about which a user is refused anything is suspended.
func (c *trial) start(s shape) []corev1.Pod {
	c.t.Helper()
	if c.Outcome().Kind == Refused && c.isUser() {
		s.extended = object{"suspend": true}
		c.create(manifest(c.Lifecycle, c.written(), s))
		return nil
	}
	c.create(manifest(c.Lifecycle, c.written(), s))
	return c.running(c.first())
}

// first is the number of pods that a job begins with.
func (c *trial) first() int {
	if c.Lifecycle == WorkerLed {
		return 2
	}
	return 1
}

// running waits until the namespace has so many running pods, and returns them.
func (c *trial) running(count int) []corev1.Pod {
	c.t.Helper()
	var pods []corev1.Pod
	eventually(c.t, func() error {
		pods = c.pods()
		for i := range pods {
			if pods[i].Status.Phase != corev1.PodRunning || pods[i].Status.PodIP == "" {
				return fmt.Errorf("pod %s: phase %s, want %s", pods[i].Name, pods[i].Status.Phase, corev1.PodRunning)
			}
		}
		if len(pods) != count {
			return fmt.Errorf("%d pods, want %d", len(pods), count)
		}
		return nil
	})
	return pods
}

// pods returns the pods of the namespace that are not being deleted. The coordinator or first learner is
// first in the list.
func (c *trial) pods() []corev1.Pod {
	c.t.Helper()
	var list corev1.PodList
	expect.NoError(c.t, c.api.List(c.ctx, &list, client.InNamespace(c.namespace)))
	pods := slices.DeleteFunc(list.Items, func(pod corev1.Pod) bool { return pod.DeletionTimestamp != nil })
	// Collectors and learners of a coordinator-led job have no rank.
	slices.SortStableFunc(pods, func(a, b corev1.Pod) int {
		return cmp.Or(strings.Compare(role(&a), role(&b)), strings.Compare(rankOf(&a), rankOf(&b)))
	})
	return pods
}

// role returns "" for a coordinator, which is first in each order.
func role(pod *corev1.Pod) string {
	if pod.Name == names.CoordinatorPod(job) {
		return ""
	}
	return "replica"
}

func rankOf(pod *corev1.Pod) string { return pod.Annotations[names.AnnotationRank] }

// job reads the job.
func (c *trial) job() *v2alpha1.DIJob {
	c.t.Helper()
	var found v2alpha1.DIJob
	expect.NoError(c.t, c.api.Get(c.ctx, client.ObjectKey{Namespace: c.namespace, Name: job}, &found))
	return &found
}

// resource is the resource of jobs in a version, as kubectl takes it.
func resource(version Version) string { return "dijobs." + string(version) + "." + v2alpha1.GroupName }

// other returns the other version.
func other(version Version) Version {
	if version == V1 {
		return V2
	}
	return V1
}

// kubectl runs kubectl as the caller and returns its output.
func (c *trial) kubectl(stdin string, args ...string) (string, error) {
	return c.run(append(os.Environ(), "KUBECONFIG="+c.kubeconfig(c.Caller), "KUBECACHEDIR="+c.folder+"/cache"), stdin,
		c.world.kubectl, append(args, "--namespace="+c.namespace)...)
}

// run runs a program and returns its standard output. The error has both outputs.
func (c *trial) run(env []string, stdin, program string, args ...string) (string, error) {
	command := exec.CommandContext(c.ctx, program, args...)
	command.Env = env
	command.Stdin = strings.NewReader(stdin)
	return run(command)
}

func run(command *exec.Cmd) (string, error) {
	var output, complaints bytes.Buffer
	command.Stdout, command.Stderr = &output, &complaints
	if err := command.Run(); err != nil {
		return "", fmt.Errorf("%s: %w: %s%s", command, err, &output, &complaints)
	}
	return output.String(), nil
}

// answer is an answer of di-server.
type answer struct {
	Success bool            `json:"success"`
	Message string          `json:"message"`
	Data    json.RawMessage `json:"data"`
}

// call calls di-server as the caller. A refusal is an error. So is a missing answer.
func (c *trial) call(method, path string, body any) (*answer, error) {
	content, err := json.Marshal(body)
	if err != nil {
		return nil, err
	}
	ctx, cancel := context.WithTimeout(c.ctx, answerTime)
	defer cancel()
	status, text, err := c.send(ctx, method, path, string(content))
	if err != nil {
		return nil, fmt.Errorf("%s %s: no answer within %s: %w", method, path, answerTime, err)
	}
	var got answer
	if err := json.Unmarshal([]byte(text), &got); err != nil {
		return nil, fmt.Errorf("%s %s: status %d, %q: %w", method, path, status, text, err)
	}
	if status != http.StatusOK || !got.Success {
		return nil, fmt.Errorf("%s %s: status %d: %s", method, path, status, got.Message)
	}
	return &got, nil
}

// send sends a request, through the forwarded port with a token, or from the first pod of the job.
func (c *trial) send(ctx context.Context, method, path, body string) (status int, text string, err error) {
	if c.isUser() {
		return c.sendAsUser(ctx, method, path, body)
	}
	pods := c.pods()
	if len(pods) == 0 {
		return 0, "", errors.New("the job has no pod")
	}
	args := []string{"exec", "-n", c.namespace, pods[0].Name, "--", "/cartpole", "call"}
	if c.Caller == Pod {
		args = append(args, "--token")
	}
	output, err := run(exec.CommandContext(ctx, c.world.kubectl, append(args, method, path, body)...))
	if err != nil {
		return 0, "", err
	}
	var printed struct {
		Status int    `json:"status"`
		Body   string `json:"body"`
	}
	err = json.Unmarshal([]byte(output), &printed)
	return printed.Status, printed.Body, err
}

func (c *trial) sendAsUser(ctx context.Context, method, path, body string) (status int, text string, err error) {
	request, err := http.NewRequestWithContext(ctx, method, c.server+path, strings.NewReader(body))
	if err != nil {
		return 0, "", err
	}
	request.Header.Set("Authorization", "Bearer "+c.tokens[c.Caller])
	response, err := http.DefaultClient.Do(request)
	if err != nil {
		return 0, "", err
	}
	defer response.Body.Close() //nolint:errcheck // nothing is lost with a body that was read
	content, err := io.ReadAll(response.Body)
	return response.StatusCode, string(content), err
}
