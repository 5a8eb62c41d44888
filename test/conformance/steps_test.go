// Copyright The DI Orchestrator Authors.
// SPDX-License-Identifier: Apache-2.0

//go:build conformance

package conformance

import (
	"encoding/json"
	"errors"
	"fmt"
	"strings"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"opendilab.org/di-orchestrator/apis/v2alpha1"
	"opendilab.org/di-orchestrator/test/testkit/expect"
)

// steps returns the step of each row of the table.
func steps() map[string]step {
	return map[string]step{
		"create":                                  create,
		"read in the other version":               readOther,
		"edit through the other version":          editOther,
		"suspend":                                 suspend,
		"resume":                                  resume,
		"describe":                                describe,
		"show on the page":                        showOnPage,
		"suspend on the page":                     suspendOnPage,
		"delete":                                  deleteJob,
		"resize by the task's count":              resizeByPatches("--type=json", taskCount),
		"resize by the elastic count":             resizeByPatches("--type=merge", elasticCount),
		"resize by kubectl scale":                 scale,
		"resize by kubectl di scale":              scaleByPlugin,
		"resize by an autoscaler":                 autoscale,
		"resize by the status":                    resizeStatus,
		"resize by a ScalePlan":                   resizeByPlan,
		"resize by kubectl di plan":               planByPlugin,
		"resize by kubectl di add and delete":     addByPlugin,
		"resize by di-server":                     resizeByServer,
		"resize by the Python library":            resizeByLibrary,
		"restart a replica":                       restart,
		"replace a replica by kubectl di restart": restartByPlugin,
		"report a failed replica":                 reportFailed,
		"addresses by rank":                       addresses,
		"ranks in pods":                           ranks,
		"aggregators":                             aggregators,
		"fail by an exit code":                    failByExitCode,
		"fail by memory":                          failByMemory,
		"stall by an image":                       stallBy(shape{image: "registry.invalid/none:1"}, v2alpha1.ConditionReplicasStalled, "ImagePull"),
		"stall by a missing ConfigMap":            stallBy(missingConfigMap(), v2alpha1.ConditionReplicasStalled, "ContainerConfig"),
		"stall by a node that does not exist": stallBy(shape{pod: object{"nodeSelector": object{"conformance": "none"}}},
			v2alpha1.ConditionReplicasStalled, "Unschedulable"),
		"stall by quota": stallByQuota,
		"finish":         finish,
		"clean up":       cleanUp,
		"report":         report,
	}
}

// submit creates a job by kubectl as the caller.
func (c *trial) submit(version Version, s shape) error {
	content, err := json.Marshal(manifest(c.Lifecycle, version, s))
	expect.NoError(c.t, err)
	_, err = c.kubectl(string(content), "create", "-f", "-")
	return err
}

// patch changes the job through a version by kubectl as the caller.
func (c *trial) patch(version Version, kind, patch string) error {
	_, err := c.kubectl("", "patch", resource(version), job, kind, "--patch="+patch)
	return err
}

// extended returns a merge patch of fields of the spec that v1alpha1 shows in extended.
func extended(version Version, fields string) string {
	if version == V1 {
		return `{"spec":{"extended":` + fields + `}}`
	}
	return `{"spec":` + fields + `}`
}

func create(c *trial) error {
	if err := c.submit(c.Version, shape{}); err != nil {
		return err
	}
	c.running(c.first())
	return nil
}

func readOther(c *trial) error {
	c.create(manifest(c.Lifecycle, c.written(), shape{spec: object{"group": "read"}, extended: object{"suspend": true}}))
	text, err := c.kubectl("", "get", resource(other(c.Version)), job, "--output=json")
	if err != nil {
		return err
	}
	var found struct {
		Spec struct {
			Group, Lifecycle string
			Extended         struct{ Lifecycle *string }
		}
	}
	expect.NoError(c.t, json.Unmarshal([]byte(text), &found))
	if found.Spec.Group != "read" {
		c.t.Errorf("group %q, want read", found.Spec.Group)
	}
	isWorkerLed := found.Spec.Extended.Lifecycle != nil
	if other(c.Version) == V2 {
		isWorkerLed = found.Spec.Lifecycle != string(v2alpha1.LifecycleCoordinatorLed)
	}
	if isWorkerLed != (c.Lifecycle == WorkerLed) {
		c.t.Errorf("%s shows worker-led: %v", other(c.Version), isWorkerLed)
	}
	return nil
}

func editOther(c *trial) error {
	c.create(manifest(c.Lifecycle, c.written(), shape{extended: object{"suspend": true}}))
	if err := c.patch(other(c.Version), "--type=merge", `{"spec":{"group":"edited"}}`); err != nil {
		return err
	}
	for _, version := range Versions() {
		if text, err := c.kubectl("", "get", resource(version), job, "--output=jsonpath={.spec.group}"); err != nil || text != "edited" {
			c.t.Errorf("%s: group %q, want edited; %v", version, text, err)
		}
	}
	return nil
}

func suspend(c *trial) error {
	c.create(manifest(c.Lifecycle, c.written(), shape{}))
	c.running(c.first())
	if err := c.patch(c.Version, "--type=merge", extended(c.Version, `{"suspend":true}`)); err != nil {
		return err
	}
	c.running(0)
	c.awaitCondition(v2alpha1.ConditionSuspended, "Suspended")
	return nil
}

func resume(c *trial) error {
	c.create(manifest(c.Lifecycle, c.written(), shape{extended: object{"suspend": true}}))
	if err := c.patch(c.Version, "--type=merge", extended(c.Version, `{"suspend":false}`)); err != nil {
		return err
	}
	c.running(c.first())
	return nil
}

func describe(c *trial) error {
	c.start(shape{})
	text, err := c.kubectl("", "di", "describe", job)
	if err != nil {
		return err
	}
	for _, want := range []string{"Phase:", c.pods()[0].Name} {
		if !strings.Contains(text, want) {
			c.t.Errorf("describe printed no %q:\n%s", want, text)
		}
	}
	return nil
}

func deleteJob(c *trial) error {
	c.start(shape{})
	if _, err := c.kubectl("", "delete", resource(c.Version), job, "--wait=false"); err != nil {
		return err
	}
	c.running(0)
	c.awaitGone()
	return nil
}

func (c *trial) awaitGone() {
	c.t.Helper()
	eventually(c.t, func() error {
		err := c.api.Get(c.ctx, client.ObjectKey{Namespace: c.namespace, Name: job}, &v2alpha1.DIJob{})
		if apierrors.IsNotFound(err) {
			return nil
		}
		return fmt.Errorf("the job exists: %w", err)
	})
}

// awaitCondition waits until a condition is True with a reason.
func (c *trial) awaitCondition(condition, reason string) {
	c.t.Helper()
	eventually(c.t, func() error {
		for _, found := range c.job().Status.Conditions {
			if found.Type == condition && found.Status == corev1.ConditionTrue && found.Reason == reason {
				return nil
			}
		}
		return fmt.Errorf("no condition %s with reason %s", condition, reason)
	})
}

// awaitPhase waits until the job has ended, in a phase.
func (c *trial) awaitPhase(phase v2alpha1.Phase) *v2alpha1.DIJob {
	c.t.Helper()
	var found *v2alpha1.DIJob
	eventually(c.t, func() error {
		if found = c.job(); found.Status.Phase != phase {
			return fmt.Errorf("phase %q, want %s", found.Status.Phase, phase)
		}
		return nil
	})
	return found
}

func failByExitCode(c *trial) error {
	if err := c.submit(c.Version, shape{args: []string{"exit", "3"}}); err != nil {
		return err
	}
	found := c.awaitPhase(v2alpha1.JobFailed)
	if failure := found.Status.LastFailure; failure == nil || failure.ExitCode == nil || *failure.ExitCode != 3 {
		c.t.Errorf("lastFailure %+v, want exit code 3", failure)
	}
	return nil
}

func failByMemory(c *trial) error {
	if err := c.submit(c.Version, shape{args: []string{"memory", "256"}}); err != nil {
		return err
	}
	failure := c.awaitPhase(v2alpha1.JobFailed).Status.LastFailure
	if failure == nil || failure.Reason != "OOMKilled" && (failure.ExitCode == nil || *failure.ExitCode != 137) {
		c.t.Errorf("lastFailure %+v, want exit code 137 or OOMKilled", failure)
	}
	return nil
}

func missingConfigMap() shape {
	return shape{container: object{"envFrom": []any{object{"configMapRef": object{"name": "none"}}}}}
}

// stallBy submits a job that cannot start, and waits for the condition that says why.
func stallBy(s shape, condition, reason string) step {
	return func(c *trial) error {
		if err := c.submit(c.Version, s); err != nil {
			return err
		}
		c.awaitCondition(condition, reason)
		return nil
	}
}

func stallByQuota(c *trial) error {
	c.create(object{"apiVersion": "v1", "kind": "ResourceQuota", "metadata": object{"name": "none"}, "spec": object{"hard": object{"pods": "0"}}})
	// The API server enforces a quota once it is counted.
	eventually(c.t, func() error {
		var quota corev1.ResourceQuota
		if err := c.api.Get(c.ctx, client.ObjectKey{Namespace: c.namespace, Name: "none"}, &quota); err != nil {
			return err
		}
		if len(quota.Status.Hard) == 0 {
			return errors.New("the quota is not counted")
		}
		return nil
	})
	return stallBy(shape{}, v2alpha1.ConditionReplicaFailure, "QuotaExceeded")(c)
}

func finish(c *trial) error {
	if err := c.submit(c.Version, shape{args: []string{"exit", "0"}}); err != nil {
		return err
	}
	c.awaitPhase(v2alpha1.JobSucceeded)
	for _, version := range Versions() {
		text, err := c.kubectl("", "get", resource(version), job, "--output=jsonpath={.status.phase}")
		if err != nil || text != string(v2alpha1.JobSucceeded) {
			c.t.Errorf("%s: phase %q, want Succeeded; %v", version, text, err)
		}
	}
	return nil
}

func cleanUp(c *trial) error {
	s := shape{args: []string{"exit", "0"}, spec: object{"cleanPodPolicy": "All"}, extended: object{"ttlSecondsAfterFinished": 3}}
	if err := c.submit(c.Version, s); err != nil {
		return err
	}
	c.awaitPhase(v2alpha1.JobSucceeded)
	c.running(0)
	c.awaitGone()
	return nil
}

func restart(c *trial) error {
	pods := c.start(shape{})
	if c.Outcome().Kind == Refused {
		_, err := c.kubectl("", "delete", "pod", "job-learner-0", "--wait=false")
		return err
	}
	if c.Lifecycle == CoordinatorLed {
		pods = c.addFirst()
	}
	old := pods[len(pods)-1]
	if _, err := c.kubectl("", "delete", "pod", old.Name, "--wait=false"); err != nil {
		return err
	}
	var replaced []corev1.Pod
	eventually(c.t, func() error {
		replaced = c.running(len(pods))
		if replaced[len(pods)-1].UID == old.UID {
			return fmt.Errorf("pod %s is not replaced", old.Name)
		}
		return nil
	})
	if now := replaced[len(pods)-1]; c.Lifecycle == WorkerLed && (now.Name != old.Name || rankOf(&now) != rankOf(&old)) {
		c.t.Errorf("pod %s of rank %s took the place of %s of rank %s", now.Name, rankOf(&now), old.Name, rankOf(&old))
	}
	return nil
}

// ranks compares the environments of the pods. It reads them from the pods, where containers get them.
func ranks(c *trial) error {
	seen := map[string]bool{}
	for _, pod := range c.start(shape{}) {
		environment := environmentOf(&pod)
		rank, nodes := environment["DI_RANK"], strings.Split(environment["DI_NODES"], ",")
		if seen[rank] || rank != rankOf(&pod) {
			c.t.Errorf("pod %s: DI_RANK %q, want its own rank %q", pod.Name, rank, rankOf(&pod))
		}
		seen[rank] = true
		var index int
		if _, err := fmt.Sscan(rank, &index); err != nil || index >= len(nodes) || !strings.HasPrefix(nodes[index], pod.Name+".") {
			c.t.Errorf("pod %s: DI_NODES[%s] of %q is not its address", pod.Name, rank, nodes)
		}
	}
	return nil
}

func environmentOf(pod *corev1.Pod) map[string]string {
	values := map[string]string{}
	for _, variable := range pod.Spec.Containers[0].Env {
		values[variable.Name] = variable.Value
	}
	return values
}
