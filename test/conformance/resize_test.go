// Copyright The DI Orchestrator Authors.
// SPDX-License-Identifier: Apache-2.0

//go:build conformance

package conformance

import (
	"encoding/json"
	"fmt"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strings"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"opendilab.org/di-orchestrator/apis/v2alpha1"
	"opendilab.org/di-orchestrator/internal/names"
	"opendilab.org/di-orchestrator/test/testkit"
	"opendilab.org/di-orchestrator/test/testkit/expect"
)

// grow makes a request for one more replica and for one fewer, and waits for the effect of each.
func (c *trial) grow(more, fewer func() error) error {
	pods := len(c.pods())
	if err := more(); err != nil {
		return err
	}
	c.running(pods + 1)
	if err := fewer(); err != nil {
		return fmt.Errorf("shrinking: %w", err)
	}
	c.running(pods)
	return nil
}

func taskCount(version Version, replicas int) string {
	path := "/spec/tasks/1/replicas"
	if version == V1 {
		path = "/spec/extended/tasks/1/replicas"
	}
	return fmt.Sprintf(`[{"op":"add","path":%q,"value":%d}]`, path, replicas)
}

func elasticCount(version Version, replicas int) string {
	return extended(version, fmt.Sprintf(`{"elastic":{"replicas":%d}}`, replicas))
}

func resizeByPatches(kind string, patch func(version Version, replicas int) string) step {
	return func(c *trial) error {
		c.start(shape{})
		to := func(replicas int) func() error {
			return func() error { return c.patch(c.Version, kind, patch(c.Version, replicas)) }
		}
		return c.grow(to(2), to(1))
	}
}

// commands resizes by two commands of kubectl.
func (c *trial) commands(more, fewer string) error {
	call := func(command string) func() error {
		return func() error {
			_, err := c.kubectl("", strings.Fields(command)...)
			return err
		}
	}
	return c.grow(call(more), call(fewer))
}

func scale(c *trial) error {
	c.start(shape{})
	return c.commands("scale "+resource(c.Version)+"/job --replicas=2", "scale "+resource(c.Version)+"/job --replicas=1")
}

func scaleByPlugin(c *trial) error {
	c.start(shape{})
	return c.commands("di scale job --replicas=2", "di scale job --replicas=1")
}

func resizeStatus(c *trial) error {
	c.start(shape{})
	_, err := c.kubectl("", "patch", resource(c.Version), job, "--subresource=status", "--type=merge", `--patch={"status":{"replicas":3}}`)
	return err
}

func autoscale(c *trial) error {
	c.start(shape{})
	content, err := json.Marshal(object{
		"apiVersion": "autoscaling/v2", "kind": "HorizontalPodAutoscaler", "metadata": object{"name": job},
		"spec": object{
			"scaleTargetRef": object{"apiVersion": v2alpha1.GroupVersion.String(), "kind": "DIJob", "name": job},
			"minReplicas":    2, "maxReplicas": 3,
		},
	})
	expect.NoError(c.t, err)
	if _, err := c.kubectl(string(content), "create", "-f", "-"); err != nil {
		return err
	}
	c.running(3)
	return nil
}

// addFirst adds the first collector of a coordinator-led job, as its coordinator does, and returns the pods.
func (c *trial) addFirst() []corev1.Pod {
	c.t.Helper()
	asPod := *c
	asPod.Caller = Pod
	_, err := asPod.call(http.MethodPost, "/v1alpha1/replicas", c.demand(`"collectors":{"replicas":1}`))
	expect.NoError(c.t, err)
	return c.running(2)
}

// startWithCollector starts a job that has a collector.
func (c *trial) startWithCollector() {
	c.t.Helper()
	if c.start(shape{}); c.Lifecycle == CoordinatorLed && c.Outcome().Kind == Runs {
		c.addFirst()
	}
}

func resizeByPlan(c *trial) error {
	c.startWithCollector()
	plan := func(name string, replicas int) func() error {
		return func() error {
			content, err := json.Marshal(object{
				"apiVersion": v2alpha1.GroupVersion.String(), "kind": "ScalePlan", "metadata": object{"name": name},
				"spec": object{"job": job, "tasks": []any{object{"name": "collector", "replicas": replicas}}},
			})
			expect.NoError(c.t, err)
			if _, err = c.kubectl(string(content), "create", "-f", "-"); err != nil {
				return err
			}
			c.awaitPlan(name)
			return nil
		}
	}
	return c.grow(plan("more", 2), plan("fewer", 1))
}

func (c *trial) awaitPlan(name string) {
	c.t.Helper()
	eventually(c.t, func() error {
		var plan v2alpha1.ScalePlan
		if err := c.api.Get(c.ctx, client.ObjectKey{Namespace: c.namespace, Name: name}, &plan); err != nil {
			return err
		}
		if plan.Status.Phase != v2alpha1.PlanSucceeded {
			return fmt.Errorf("plan %s: phase %q: %v", name, plan.Status.Phase, plan.Status.Conditions)
		}
		return nil
	})
}

func planByPlugin(c *trial) error {
	c.startWithCollector()
	return c.commands("di plan job --task collector=2 --wait --timeout 120s", "di plan job --task collector=1 --wait --timeout 120s")
}

// startForToken starts a job with a collector, for requests that need its pods even if they are refused.
func (c *trial) startForToken() {
	c.t.Helper()
	c.create(manifest(c.Lifecycle, c.written(), shape{}))
	if c.running(c.first()); c.Lifecycle == CoordinatorLed {
		c.addFirst()
	}
}

func addByPlugin(c *trial) error {
	c.startForToken()
	return c.commands("di add collector job", "di delete collector job")
}

// demand returns the body of a call about the replicas of a coordinator-led job.
func (c *trial) demand(fields string) any {
	return json.RawMessage(fmt.Sprintf(`{"namespace":%q,"coordinator":%q,%s}`, c.namespace, names.CoordinatorPod(job), fields))
}

func (c *trial) workersPath(call string) string {
	return "/v2alpha1/" + c.namespace + "." + job + "/" + call
}

func resizeByServer(c *trial) error {
	c.start(shape{})
	path, body := c.workersPath("replicas"), any(object{"replicas": 1})
	if c.Version == V1 {
		path, body = "/v1alpha1/replicas", c.demand(`"collectors":{"replicas":1}`)
	}
	send := func(method string) func() error {
		return func() error {
			_, err := c.call(method, path, body)
			return err
		}
	}
	return c.grow(send(http.MethodPost), send(http.MethodDelete))
}

func report(c *trial) error {
	c.start(shape{})
	path, body := c.workersPath("profilings"), any(object{"data": object{"reported": 7}})
	if c.Version == V1 {
		path, body = "/v1alpha1/profilings", c.demand(`"data":{"reported":7}`)
	}
	if _, err := c.call(http.MethodPost, path, body); err != nil {
		return err
	}
	eventually(c.t, func() error {
		if stored := c.job().Status.Profilings; stored == nil || !strings.Contains(string(stored.Raw), `"reported":7`) {
			return fmt.Errorf("status.profilings %v, want the report", stored)
		}
		return nil
	})
	return nil
}

func reportFailed(c *trial) error {
	c.startWithCollector()
	return c.replaceCollector(func(old string) error {
		_, err := c.call(http.MethodPost, "/v1alpha1/replicas/failed", c.demand(`"collectors":["`+old+`"]`))
		return err
	})
}

func restartByPlugin(c *trial) error {
	c.startForToken()
	return c.replaceCollector(func(old string) error {
		_, err := c.kubectl("", "di", "restart", job, old)
		return err
	})
}

// replaceCollector makes a request to replace the collector, and waits for another one.
func (c *trial) replaceCollector(request func(old string) error) error {
	c.t.Helper()
	old := "job-collector-aaaaa"
	if c.Outcome().Kind == Runs {
		old = c.pods()[1].Name
	}
	if err := request(old); err != nil {
		return err
	}
	eventually(c.t, func() error {
		if now := c.running(2)[1].Name; now == old {
			return fmt.Errorf("pod %s is not replaced", old)
		}
		return nil
	})
	return nil
}

// addresses reads the list until it has the addresses of all pods.
func addresses(c *trial) error {
	c.startWithCollector()
	if _, err := c.list(); err != nil {
		return err
	}
	eventually(c.t, func() error {
		found, err := c.list()
		if err != nil {
			return err
		}
		pods := c.pods()
		if c.Lifecycle == CoordinatorLed {
			pods = pods[1:]
		}
		if len(found) != len(pods) {
			return fmt.Errorf("%d addresses, want %d", len(found), len(pods))
		}
		for i := range pods {
			host := pods[i].Status.PodIP
			if c.Lifecycle == CoordinatorLed {
				host = pods[i].Name
			}
			if !strings.HasPrefix(found[i], host) {
				return fmt.Errorf("address %d is %q, want that of %s", i, found[i], host)
			}
		}
		return nil
	})
	return nil
}

// list reads the addresses of the job's replicas: of all workers, or of the collectors.
func (c *trial) list() ([]string, error) {
	if c.Lifecycle == CoordinatorLed {
		found, err := c.listBy("coordinator", names.CoordinatorPod(job))
		return found.Collectors, err
	}
	got, err := c.call(http.MethodGet, c.workersPath("replicas"), object{})
	if err != nil {
		return nil, err
	}
	var found []string
	return found, json.Unmarshal(got.Data, &found)
}

// replicas are what di-server lists of a coordinator-led job.
type replicas struct {
	Collectors, Learners []string
}

func (c *trial) listBy(role, pod string) (found replicas, err error) {
	got, err := c.call(http.MethodGet, "/v1alpha1/replicas?namespace="+c.namespace+"&"+role+"="+pod, object{})
	if err != nil {
		return found, err
	}
	return found, json.Unmarshal(got.Data, &found)
}

func aggregators(c *trial) error {
	template := (&shape{}).template()
	c.create(object{
		"apiVersion": v2alpha1.GroupName + "/v1alpha1", "kind": "AggregatorConfig", "metadata": object{"name": "own"},
		"spec": object{"aggregator": template},
	})
	c.create(manifest(c.Lifecycle, c.Version, shape{extended: object{"aggregatorConfig": object{"name": "own"}}}))
	c.running(1)
	if _, err := c.call(http.MethodPost, "/v1alpha1/replicas", c.demand(`"learners":{"replicas":1,"gpus":2}`)); err != nil {
		return err
	}
	eventually(c.t, func() error {
		var aggregators, learners int
		for _, pod := range c.pods() {
			switch pod.Labels[names.LabelReplicaType] {
			case string(names.ReplicaTypeAggregator):
				aggregators++
			case string(names.ReplicaTypeDDPLearner):
				learners++
			}
		}
		if aggregators != 1 || learners < 1 {
			return fmt.Errorf("%d aggregators and %d DDP learners", aggregators, learners)
		}
		list, err := c.listBy("coordinator", names.CoordinatorPod(job))
		if err == nil && (len(list.Learners) != 1 || !strings.Contains(list.Learners[0], "-aggregator-")) {
			err = fmt.Errorf("learners %q, want the aggregator", list.Learners)
		}
		return err
	})
	return nil
}

// The programs of resizeByLibrary. The environment is that of the pod.
const (
	workersProgram = `import sys, di_orchestrator as di
worker = di.Worker(client=di.Client(sys.argv[1], token_file=sys.argv[2], deadline=float(sys.argv[4])))
worker.post_replicas(1) if sys.argv[3] == "POST" else worker.delete_replicas(1)`
	coordinatorsProgram = `import sys, di_orchestrator as di
coordinator = di.Coordinator(client=di.Client(sys.argv[1], token_file=sys.argv[2], deadline=float(sys.argv[4])))
coordinator.post_replicas(1) if sys.argv[3] == "POST" else coordinator.delete_replicas(1)`
)

// resizeByLibrary runs the library outside of the pod, with the pod's environment and a token that is
// bound to it.
func resizeByLibrary(c *trial) error {
	pod := c.start(shape{})[0]
	account := &corev1.ServiceAccount{ObjectMeta: metav1.ObjectMeta{Namespace: c.namespace, Name: pod.Spec.ServiceAccountName}}
	token := filepath.Join(c.t.TempDir(), "token")
	expect.NoError(c.t, os.WriteFile(token, []byte(c.token(c.t, account, &pod, names.ServerAudience)), 0o600))
	program := workersProgram
	if c.Lifecycle == CoordinatorLed {
		program = coordinatorsProgram
	}
	environment := append(os.Environ(), "PYTHONPATH="+filepath.Join(testkit.Root(), "python", "src"), "PYTHONDONTWRITEBYTECODE=1")
	for name, value := range environmentOf(&pod) {
		environment = append(environment, name+"="+value)
	}
	python, err := exec.LookPath("python3")
	expect.NoError(c.t, err)
	send := func(method string) func() error {
		return func() error {
			_, err := c.run(environment, "", python, "-c", program, c.server, token, method, fmt.Sprint(answerTime.Seconds()))
			return err
		}
	}
	return c.grow(send(http.MethodPost), send(http.MethodDelete))
}
