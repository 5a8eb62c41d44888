// Copyright The DI Orchestrator Authors.
// SPDX-License-Identifier: Apache-2.0

//go:build conformance

package conformance

import (
	"context"
	"encoding/json"
	"fmt"
	"maps"
	"os/exec"
	"regexp"
	"slices"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"

	"opendilab.org/di-orchestrator/apis/v2alpha1"
	"opendilab.org/di-orchestrator/internal/names"
	"opendilab.org/di-orchestrator/test/testkit/expect"
)

// TestDIEngine plays what DI-engine's programs do on a job of each version.
func TestDIEngine(t *testing.T) {
	engine, err := DIEngine()
	expect.NoError(t, err)
	w := newWorld(t)
	for _, version := range Versions() {
		t.Run("DI-engine's programs run a job written in "+string(version), func(t *testing.T) {
			t.Parallel()
			cell := Cell{Capability: &Capability{Name: "DI-engine"}, Lifecycle: CoordinatorLed, Version: version, Caller: Deployed}
			c := &trial{world: w, Cell: cell, t: t, ctx: t.Context(), namespace: w.namespace(t, "engine")}
			defer c.explain()
			c.create(object{
				"apiVersion": v2alpha1.GroupName + "/v1alpha1", "kind": "AggregatorConfig", "metadata": object{"name": "own"},
				"spec": object{"aggregator": (&shape{}).template()},
			})
			c.start(shape{extended: object{"aggregatorConfig": object{"name": "own"}}})
			for i := range engine.Calls {
				c.play(engine, &engine.Calls[i])
			}
			for i := range engine.Variables {
				c.checkVariable(&engine.Variables[i])
			}
		})
	}
}

// play makes a call from the pod of its program, and waits for its effect.
func (c *trial) play(engine *Engine, call *EngineCall) {
	c.t.Helper()
	values := map[string]string{"$NAMESPACE": c.namespace, "$COORDINATOR": names.CoordinatorPod(job), "$POD": c.caller(call.Program)}
	for variable, role := range map[string]names.ReplicaType{"$COLLECTOR": names.ReplicaTypeCollector, "$DDP": names.ReplicaTypeDDPLearner} {
		if strings.Contains(call.Path+call.Body, variable) {
			values[variable] = c.running1(role).Name
		}
	}
	fill := func(text string) string {
		for variable, value := range values {
			text = strings.ReplaceAll(text, variable, value)
		}
		return text
	}
	args := []string{"exec", "-n", c.namespace, values["$POD"], "--", "/cartpole", "call"}
	headers := engine.Headers[call.Headers]
	for _, name := range slices.Sorted(maps.Keys(headers)) {
		args = append(args, "--header="+name+": "+headers[name])
	}
	ctx, cancel := context.WithTimeout(c.ctx, answerTime)
	defer cancel()
	output, err := run(exec.CommandContext(ctx, c.world.kubectl, append(args, call.Method, fill(call.Path), fill(call.Body))...))
	expect.NoError(c.t, err)
	if err := accept(call, output); err != nil {
		c.t.Fatalf("%s: %s: %v", call.Program, call.Does, err)
	}
	eventually(c.t, func() error { return c.checkLists(call, fill(call.Replaced)) })
}

// accept reads an answer as the program does, and returns an error where the program would fail.
func accept(call *EngineCall, output string) error {
	var printed struct {
		Status int    `json:"status"`
		Body   string `json:"body"`
	}
	if err := json.Unmarshal([]byte(output), &printed); err != nil {
		return err
	}
	text := printed.Body
	if call.Headers == "command line" {
		// pod_exec_command gets the answer as Python prints it, and makes JSON of that again.
		text = strings.NewReplacer("'", `"`, "None", "null", ": False", ": 0", ": True", ": 1").Replace(text)
	}
	var got struct {
		Success bool             `json:"success"`
		Code    *int             `json:"code"`
		Message *string          `json:"message"`
		Data    *json.RawMessage `json:"data"`
	}
	if err := json.Unmarshal([]byte(text), &got); err != nil {
		return fmt.Errorf("%q: %w", text, err)
	}
	// Any other status raises an exception, which ends the program.
	if printed.Status != 200 || !got.Success || got.Code == nil || *got.Code != 0 || got.Message == nil || got.Data == nil {
		return fmt.Errorf("status %d: %s", printed.Status, printed.Body)
	}
	return nil
}

// caller returns the name of the pod in which a program runs.
func (c *trial) caller(program string) string {
	c.t.Helper()
	if program == "aggregator" {
		return c.running1(names.ReplicaTypeAggregator).Name
	}
	return names.CoordinatorPod(job)
}

// running1 waits for a running pod of a role, and returns it.
func (c *trial) running1(role names.ReplicaType) *corev1.Pod {
	c.t.Helper()
	var found corev1.Pod
	eventually(c.t, func() error {
		pods := c.pods()
		i := slices.IndexFunc(pods, func(pod corev1.Pod) bool {
			return pod.Labels[names.LabelReplicaType] == string(role) && pod.Status.Phase == corev1.PodRunning && pod.Status.PodIP != ""
		})
		if i < 0 {
			return fmt.Errorf("no running pod of role %s", role)
		}
		found = pods[i]
		return nil
	})
	return &found
}

// checkLists checks what the coordinator sees. It splits each URL into host, port and the name of a pod.
func (c *trial) checkLists(call *EngineCall, replaced string) error {
	list, err := c.listBy("coordinator", names.CoordinatorPod(job))
	if err != nil {
		return err
	}
	if len(list.Collectors) != call.Collectors || len(list.Learners) != call.Learners {
		return fmt.Errorf("%s: collectors %q and learners %q, want %d and %d", call.Does, list.Collectors, list.Learners, call.Collectors, call.Learners)
	}
	for _, url := range slices.Concat(list.Collectors, list.Learners) {
		host, port, _ := strings.Cut(url, ":")
		pod, namespace, _ := strings.Cut(host, ".")
		if namespace != c.namespace || port == "" || strings.Contains(port, ":") || pod == replaced {
			return fmt.Errorf("%s: URL %q, want pod.%s:port, and not of %q", call.Does, url, c.namespace, replaced)
		}
	}
	if slices.ContainsFunc(c.pods(), func(pod corev1.Pod) bool { return pod.Name == replaced }) {
		return fmt.Errorf("%s: pod %s still exists", call.Does, replaced)
	}
	return nil
}

// checkVariable checks a variable of the first pod of its program.
func (c *trial) checkVariable(variable *EngineVariable) {
	c.t.Helper()
	pod := c.running1(names.ReplicaType(variable.Program))
	value, found := environmentOf(pod)[variable.Name]
	if !found || !regexp.MustCompile("^(?:"+variable.Value+")$").MatchString(value) {
		c.t.Errorf("%s: %s is %q, want %s", pod.Name, variable.Name, value, variable.Value)
	}
}
