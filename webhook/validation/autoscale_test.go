// Copyright The DI Orchestrator Authors.
// SPDX-License-Identifier: Apache-2.0

package validation

import (
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/util/validation/field"

	"opendilab.org/di-orchestrator/apis/v2alpha1"
	"opendilab.org/di-orchestrator/test/testkit/expect"
)

const (
	actorTask = `{type: collector, name: actor, replicas: 2, template: {spec: {containers: [{name: a}]}}}`
	spotTask  = `{type: none, name: spot, replicas: 3, template: {spec: {containers: [{name: a}]}}}`
	leadTask  = `{type: coordinator, name: coordinator, replicas: 1, template: {spec: {containers: [{name: a}]}}}`
)

// autoscaled returns a worker-led job of a learner, an elastic collector and spot, with more fields.
func autoscaled(fields string) string {
	return "spec: {tasks: [" + goodTask + "," + actorTask + "," + spotTask + "], " + fields + "}"
}

func TestARatioRuleFitsTheRestOfTheJob(t *testing.T) {
	t.Parallel()
	const elastic = "elastic: {task: actor, minReplicas: 1, maxReplicas: 8}"
	ratio := func(rule string) string { return autoscaled(elastic + ", autoscale: {ratio: " + rule + "}") }
	for name, tc := range map[string]struct{ spec, want string }{
		"the elastic task by default": {ratio("{}"), ""},
		"two pools":                   {ratio("{producers: [{task: spot, minReplicas: 0, maxReplicas: 9}, {task: actor}]}"), ""},
		"prometheus measures a consumer that is no task": {
			"spec: {tasks: [" + actorTask + "], " + elastic + ", autoscale: {ratio: {prometheus: {queue: a}}}}", ""},
		"no learner": {"spec: {tasks: [" + actorTask + "], " + elastic + ", autoscale: {ratio: {}}}",
			"spec.autoscale.ratio.consumer: Required value: the job has no learner: name the task that consumes the samples"},
		"an unknown consumer": {ratio("{consumer: x}"), `spec.autoscale.ratio.consumer: Unsupported value: "x": supported values: "learner", "actor", "spot"`},
		"an unknown producer": {ratio("{producers: [{task: x}]}"), `spec.autoscale.ratio.producers[0].task: Unsupported value: "x": supported values: "learner", "actor", "spot"`},
		"the consumer produces": {ratio("{producers: [{task: learner}]}"),
			`spec.autoscale.ratio.producers[0].task: Invalid value: "learner": must not be the consumer, whose capacity its producers follow`},
		"the elastic task consumes": {ratio("{consumer: actor}"),
			"spec.autoscale.ratio.producers: Required value: the elastic task actor is the consumer: name the tasks that produce samples"},
		"below the bound of elastic": {ratio("{producers: [{task: actor, minReplicas: 0}]}"),
			"spec.autoscale.ratio.producers[0].minReplicas: Invalid value: 0: must be at least 1, which is spec.elastic.minReplicas"},
		"above the bound of elastic": {ratio("{producers: [{task: actor, maxReplicas: 9}]}"),
			"spec.autoscale.ratio.producers[0].maxReplicas: Invalid value: 9: must be at most 8, which is spec.elastic.maxReplicas"},
		"a pool without a bound": {ratio("{producers: [{task: spot}]}"),
			"spec.autoscale.ratio.producers[0].maxReplicas: Required value: nothing else bounds the number of task spot"},
		"no bound at all": {autoscaled("elastic: {task: actor}, autoscale: {ratio: {}}"),
			"spec.elastic.maxReplicas: Required value: a ratio rule needs the maximum number of producers"},
		"no elastic task": {"spec: {tasks: [" + goodTask + "," + spotTask + "], autoscale: {ratio: {}}}",
			"spec.autoscale.ratio.producers: Required value: the job has no elastic task: name the tasks that produce samples, with their maxReplicas"},
		"more pods than a job may have": {ratio("{producers: [{task: spot, maxReplicas: 5000}]}"),
			"spec.autoscale.ratio.producers: Invalid value: 5003: the maxReplicas of all producers with the replicas of the other tasks must be at most 5000, the maximum number of pods of a job here"},
		"a resize restarts": {autoscaled("elastic: {task: actor, maxReplicas: 8, onResize: Restart}, autoscale: {ratio: {}}"),
			"spec.autoscale.ratio: Forbidden: each resize would restart the job: spec.elastic.onResize must be Continue, not Restart"},
		"a cluster spec": {autoscaled(elastic + ", clusterSpec: [Torch], autoscale: {ratio: {}}"),
			"spec.autoscale.ratio: Forbidden: each resize would restart the job because of spec.clusterSpec; " +
				"only workers of TensorFlow or MPI with spec.elastic.onResize: Continue may come and go"},
		"a queue": {autoscaled(elastic + ", scheduling: {queue: team}, autoscale: {ratio: {}}"), ""},
		"a preemptible job": {autoscaled("preemptible: true, elastic: {task: actor, maxReplicas: 8, onResize: Continue}, " +
			"autoscale: {ratio: {producers: [{task: spot, maxReplicas: 5}]}}"),
			`spec.autoscale.ratio.producers[0].task: Invalid value: "spot": must be the elastic task: the allocator sizes no other task of a preemptible job`},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			if got := strings.Join(ask(t, validateV2, "v2alpha1", tc.spec, "").errors, "; "); got != tc.want {
				t.Errorf("got  %s\nwant %s", got, tc.want)
			}
		})
	}
}

func TestARatioRuleOfACoordinatorLedJobIsAboutItsCollectors(t *testing.T) {
	t.Parallel()
	led := func(tasks, rule string) string {
		return "spec: {lifecycle: CoordinatorLed, scheduling: {queue: team}, tasks: [" + tasks + "], autoscale: {ratio: " + rule + "}}"
	}
	all := leadTask + "," + strings.Replace(goodTask, "replicas: 1", "replicas: 0", 1) + "," + strings.Replace(actorTask, "replicas: 2", "replicas: 0", 1)
	for name, tc := range map[string]struct{ spec, want string }{
		"advice": {led(all, "{driver: Coordinator}"), ""},
		"without a collector": {led(leadTask+","+strings.Replace(goodTask, "replicas: 1", "replicas: 0", 1), "{driver: Coordinator}"),
			"spec.tasks: Required value: a ratio rule needs a task of type collector"},
		"another producer": {led(all, "{driver: Coordinator, producers: [{task: coordinator}]}"),
			`spec.autoscale.ratio.producers[0].task: Invalid value: "coordinator": must be of type collector: the coordinator requests no other producers`},
		"the operator, in a queue": {led(all, "{driver: Operator, producers: [{task: actor, maxReplicas: 4}]}"),
			""},
		"the operator, without a bound": {strings.Replace(led(all, "{driver: Operator}"), "scheduling: {queue: team}, ", "", 1),
			"spec.autoscale.ratio.producers: Required value: name task actor with its maxReplicas: nothing else bounds its number"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			if got := strings.Join(ask(t, validateV2, "v2alpha1", tc.spec, "").errors, "; "); got != tc.want {
				t.Errorf("got  %s\nwant %s", got, tc.want)
			}
		})
	}
}

func TestAmountsAndDrainsAreThoseThatCanWork(t *testing.T) {
	t.Parallel()
	drained := strings.Replace(spotTask, "name: spot", "name: spot, drain: {}", 1)
	for name, tc := range map[string]struct{ spec, want string }{
		"positive":          {autoscaled("autoscale: {memory: {max: 1Gi}, pending: {min: {cpu: 0}}, optimizer: {limit: {cpu: 1m}}}"), ""},
		"no memory":         {autoscaled("autoscale: {memory: {max: 0}}"), `spec.autoscale.memory.max: Invalid value: "0": must be above 0`},
		"no CPU":            {autoscaled("autoscale: {optimizer: {limit: {cpu: 0}}}"), `spec.autoscale.optimizer.limit.cpu: Invalid value: "0": must be above 0`},
		"a task that holds": {"spec: {tasks: [" + goodTask + "," + drained + "]}", ""},
		"a preemptible one": {"spec: {preemptible: true, tasks: [" + goodTask + "," + drained + "]}",
			"spec.tasks[1].drain: Forbidden: the allocator moves all pods of a preemptible job at once: save the state in a checkpoint instead"},
		"a coordinator": {"spec: {lifecycle: CoordinatorLed, tasks: [" + strings.Replace(leadTask, "name: coordinator", "name: coordinator, drain: {}", 1) + "]}",
			"spec.tasks[0].drain: Forbidden: a coordinator is never removed while its job runs"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			if got := strings.Join(ask(t, validateV2, "v2alpha1", tc.spec, "").errors, "; "); got != tc.want {
				t.Errorf("got  %s\nwant %s", got, tc.want)
			}
		})
	}
}

func TestOnlyTheAutoscalerChangesCountsThatARatioRuleSets(t *testing.T) {
	t.Parallel()
	job := func(actors, spots, rule string) string {
		return "spec: {tasks: [" + goodTask + "," + actorTask + "," + strings.Replace(spotTask, "replicas: 3", "replicas: "+spots, 1) +
			"], elastic: {task: actor, maxReplicas: 8, replicas: " + actors + "}" + rule + "}"
	}
	const (
		both    = ", autoscale: {ratio: {producers: [{task: actor}, {task: spot, maxReplicas: 9}]}}"
		refused = "Forbidden: the ratio rule in spec.autoscale.ratio sets the number of task "
	)
	for name, tc := range map[string]struct {
		before, after string
		byAutoscaler  bool
		want          string
	}{
		"the elastic task":      {job("2", "3", both), job("4", "3", both), false, "spec.elastic.replicas: " + refused + "actor"},
		"another producer":      {job("2", "3", both), job("2", "4", both), false, "spec.tasks[2].replicas: " + refused + "spot"},
		"by the autoscaler":     {job("2", "3", both), job("4", "4", both), true, ""},
		"nothing changes":       {job("2", "3", both), job("2", "3", both), false, ""},
		"the rule is added":     {job("2", "3", ""), job("4", "4", both), false, ""},
		"the rule is removed":   {job("2", "3", both), job("4", "4", ""), false, ""},
		"a task without a rule": {job("2", "3", ", autoscale: {ratio: {}}"), job("2", "4", ", autoscale: {ratio: {}}"), false, ""},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			got := ask(t, func(request *Request) field.ErrorList {
				request.ByAutoscaler = tc.byAutoscaler
				return validateV2(request)
			}, "v2alpha1", tc.after, tc.before).errors
			if text := strings.Join(got, "; "); !strings.HasPrefix(text, tc.want) || (tc.want == "") != (text == "") {
				t.Errorf("got  %s\nwant %s", text, tc.want)
			}
		})
	}
}

func TestTheScaleSubresourceIsRefusedWhereARatioRuleSetsTheNumber(t *testing.T) {
	t.Parallel()
	for spec, replicas := range map[string]int32{
		autoscaled("elastic: {task: actor, replicas: 2}"):                                     5,
		autoscaled("elastic: {task: actor, replicas: 2}, autoscale: {ratio: {}}"):             2,
		autoscaled("elastic: {task: actor}, autoscale: {ratio: {producers: [{task: spot}]}}"): 5,
	} {
		request := requestOf(t, "v2alpha1", spec, "")
		expect.NoError(t, request.Decode())
		if errs := Rescale(request.Job, replicas); len(errs) > 0 {
			t.Errorf("%s: %v", spec, errs)
		}
	}
	request := requestOf(t, "v2alpha1", autoscaled("elastic: {task: actor, replicas: 2}, autoscale: {ratio: {}}"), "")
	expect.NoError(t, request.Decode())
	errs := Rescale(request.Job, 3)
	if len(errs) != 1 || !strings.HasPrefix(errs[0].Error(), "spec.replicas: Forbidden: the ratio rule in spec.autoscale.ratio sets the number of task actor") {
		t.Errorf("got %v", errs)
	}
}

func TestTheScaleSubresourceIsFreeWhileTheRatioRuleLeavesTheNumberToAnotherMaster(t *testing.T) {
	t.Parallel()
	for reason, wants := range map[string]int{v2alpha1.ReasonOtherMaster: 0, v2alpha1.ReasonWaitingForReports: 1} {
		request := requestOf(t, "v2alpha1", autoscaled("elastic: {task: actor, replicas: 2}, autoscale: {ratio: {}}"), "")
		expect.NoError(t, request.Decode())
		request.Job.Status.Conditions = []v2alpha1.DIJobCondition{{Type: v2alpha1.ConditionAutoscaling, Status: corev1.ConditionFalse, Reason: reason}}
		if errs := Rescale(request.Job, 3); len(errs) != wants {
			t.Errorf("%s: got %v, want %d errors", reason, errs, wants)
		}
	}
}
