// Copyright The DI Orchestrator Authors.
// SPDX-License-Identifier: Apache-2.0

package optimizer_test

import (
	"encoding/json"
	"math"
	"math/rand/v2"
	"reflect"
	"strings"
	"testing"
	"time"

	"opendilab.org/di-orchestrator/autoscale/optimizer"
	"opendilab.org/di-orchestrator/test/testkit/expect"
)

const gi = 1 << 30

// job returns a job of two workers and a parameter server that use half of what they request.
func job() *optimizer.Job {
	now := time.Unix(1_764_000_000, 0)
	requests := optimizer.Resources{CPU: 4000, Memory: 8 * gi}
	job := &optimizer.Job{
		Namespace: "default", Name: "job", UID: "uid", Now: now,
		Tasks: []optimizer.Task{
			{Name: "ps", Role: optimizer.RoleParameterServer, Replicas: 1, Min: 1, Max: 1, Requests: requests},
			{Name: "worker", Role: optimizer.RoleWorker, Replicas: 2, Min: 1, Max: 4, Requests: requests},
		},
		Limits: optimizer.Limits{
			Job: optimizer.Resources{CPU: 24000, Memory: 64 * gi}, Replica: optimizer.Resources{CPU: 32000, Memory: 64 * gi},
			Floor: optimizer.Resources{CPU: 100, Memory: gi / 4}, Node: optimizer.Resources{CPU: 16000, Memory: 32 * gi},
		},
	}
	for i := range job.Tasks {
		task := &job.Tasks[i]
		for index := range task.Replicas {
			task.Pods = append(task.Pods, optimizer.Replica{Task: task.Name, Index: index, Pod: task.Name + "-" + string('0'+index), Requests: requests})
		}
	}
	for age := range 5 {
		sample := optimizer.Sample{Time: now.Add(time.Duration(age-5) * 30 * time.Second), Speed: 10}
		for i := range job.Tasks {
			for _, pod := range job.Tasks[i].Pods {
				used := optimizer.Resources{CPU: 2000, Memory: 4 * gi}
				sample.Usage = append(sample.Usage, optimizer.Usage{Task: pod.Task, Index: pod.Index, Used: used, Requests: requests})
			}
		}
		job.Samples = append(job.Samples, sample)
	}
	return job
}

func ptr(i int32) *int32 { return &i }

func TestWhatAPlanMustNotNameIsRefused(t *testing.T) {
	t.Parallel()
	for name, plan := range map[string]optimizer.Plan{
		"tasks[0].name is \"other\"":      {Tasks: []optimizer.TaskPlan{{Name: "other", Replicas: ptr(1)}}},
		"which another item has":          {Tasks: []optimizer.TaskPlan{{Name: "ps"}, {Name: "ps"}}},
		"tasks[0].replicas is -1":         {Tasks: []optimizer.TaskPlan{{Name: "worker", Replicas: ptr(-1)}}},
		"tasks[0].requests.cpu is -1":     {Tasks: []optimizer.TaskPlan{{Name: "worker", Requests: optimizer.Resources{CPU: -1}}}},
		"tasks[0].requests.memory is 92":  {Tasks: []optimizer.TaskPlan{{Name: "worker", Requests: optimizer.Resources{Memory: math.MaxInt64}}}},
		"migrate[0].pod is \"elsewhere\"": {Migrate: []optimizer.Migration{{Pod: "elsewhere", Requests: optimizer.Resources{CPU: 1}}}},
		"migrate[1].pod is \"ps-0\"":      {Migrate: []optimizer.Migration{{Pod: "ps-0"}, {Pod: "ps-0"}}},
		"the plan requests 40000 mill":    {Tasks: []optimizer.TaskPlan{{Name: "worker", Replicas: ptr(4), Requests: optimizer.Resources{CPU: 9000}}}},
		"bytes of memory in total":        {Migrate: []optimizer.Migration{{Pod: "ps-0", Requests: optimizer.Resources{Memory: 32 * gi}}}, Tasks: []optimizer.TaskPlan{{Name: "worker", Replicas: ptr(1000), Requests: optimizer.Resources{Memory: 9 * gi}}}},
	} {
		checked, err := optimizer.Check(plan, job())
		if err == nil || !strings.Contains(err.Error(), name) {
			t.Errorf("%+v: got %+v and %v, want an error with %q", plan, checked, err, name)
		}
	}
}

func TestRequestsAreClampedToTheLimits(t *testing.T) {
	t.Parallel()
	plan := optimizer.Plan{
		Tasks:   []optimizer.TaskPlan{{Name: "worker", Replicas: ptr(100), Requests: optimizer.Resources{CPU: 1, Memory: 1}}},
		Migrate: []optimizer.Migration{{Pod: "ps-0", Requests: optimizer.Resources{CPU: 1 << 40}}},
	}
	checked, err := optimizer.Check(plan, job())
	expect.NoError(t, err)
	if got := checked.Tasks[0]; *got.Replicas != 4 || got.Requests != (optimizer.Resources{CPU: 2000, Memory: 4 * gi}) {
		t.Errorf("got %d replicas of %+v, want 4 of the peak usage", *got.Replicas, got.Requests)
	}
	if got := checked.Migrate[0].Requests; got != (optimizer.Resources{CPU: 16000}) {
		t.Errorf("got %+v, want the 16 cores of the largest node", got)
	}
}

func TestAJobWithoutKnownUsageDoesNotShrink(t *testing.T) {
	t.Parallel()
	unknown := job()
	unknown.Samples = nil
	plan := optimizer.Plan{Tasks: []optimizer.TaskPlan{{Name: "worker", Requests: optimizer.Resources{CPU: 200, Memory: 1}}}}
	if checked, err := optimizer.Check(plan, unknown); err != nil || !checked.Empty() {
		t.Errorf("got %+v and %v, want an empty plan", checked, err)
	}
	unknown.History = &optimizer.History{Jobs: 1, Peaks: map[string]optimizer.Resources{"worker": {CPU: 3000}}}
	checked, err := optimizer.Check(plan, unknown)
	if err != nil || len(checked.Tasks) != 1 || checked.Tasks[0].Requests != (optimizer.Resources{CPU: 3000}) {
		t.Errorf("got %+v and %v, want the 3 cores that the group used", checked, err)
	}
}

func TestAPlanThatChangesNothingIsEmpty(t *testing.T) {
	t.Parallel()
	plan := optimizer.Plan{
		Tasks:   []optimizer.TaskPlan{{Name: "worker", Replicas: ptr(2), Requests: optimizer.Resources{CPU: 4000}}},
		Migrate: []optimizer.Migration{{Pod: "ps-0", Requests: optimizer.Resources{Memory: 8 * gi}}},
	}
	if checked, err := optimizer.Check(plan, job()); err != nil || !checked.Empty() {
		t.Errorf("got %+v and %v, want an empty plan", checked, err)
	}
}

// TestNoPlanIsOutsideTheLimits checks plans at random, most of them absurd.
func TestNoPlanIsOutsideTheLimits(t *testing.T) {
	t.Parallel()
	source := rand.New(rand.NewPCG(18, 57))
	amount := func() int64 { return source.Int64() >> source.IntN(64) }
	requests := func() optimizer.Resources { return optimizer.Resources{CPU: amount(), Memory: amount()} }
	passed := 0
	for range 20_000 {
		of := job()
		var plan optimizer.Plan
		for _, name := range []string{"ps", "worker"}[source.IntN(3)*2/3:] {
			plan.Tasks = append(plan.Tasks, optimizer.TaskPlan{Name: name, Replicas: ptr(int32(amount())), Requests: requests()})
		}
		for _, pod := range []string{"ps-0", "worker-0", "worker-1"}[source.IntN(4):] {
			plan.Migrate = append(plan.Migrate, optimizer.Migration{Pod: pod, Requests: requests()})
		}
		checked, err := optimizer.Check(plan, of)
		if err != nil {
			continue
		}
		passed++
		total, limit := optimizer.Total(of, checked), of.Limits.Job
		if total.CPU > limit.CPU || total.Memory > limit.Memory {
			t.Fatalf("%+v: total of %+v, want at most %+v", checked, total, limit)
		}
		for _, change := range checked.Tasks {
			if task := of.Task(change.Name); change.Replicas != nil && (*change.Replicas < task.Min || *change.Replicas > task.Max) {
				t.Fatalf("%d replicas of %s", *change.Replicas, change.Name)
			}
			inRange(t, change.Requests)
		}
		for _, migration := range checked.Migrate {
			inRange(t, migration.Requests)
		}
	}
	if passed < 100 {
		t.Errorf("%d plans passed, too few to show anything", passed)
	}
}

// inRange checks requests against the peak usage and the largest node.
func inRange(t *testing.T, got optimizer.Resources) {
	t.Helper()
	if got.CPU != 0 && (got.CPU < 2000 || got.CPU > 16000) || got.Memory != 0 && (got.Memory < 4*gi || got.Memory > 32*gi) {
		t.Fatalf("got %+v, want 2 to 16 cores and 4 to 32 GiB", got)
	}
}

func TestStagesFollowWhatIsKnown(t *testing.T) {
	t.Parallel()
	known := job()
	for _, want := range []optimizer.Stage{optimizer.StageWorkerInitial, optimizer.StagePSInitial, optimizer.StageRunning, optimizer.StageRunning} {
		if known.Stage = optimizer.StageOf(known); known.Stage != want {
			t.Errorf("got %s, want %s", known.Stage, want)
		}
	}
	resized := job()
	resized.Stage = optimizer.StageWorkerInitial
	resized.Tasks[1].Pods = append(resized.Tasks[1].Pods, optimizer.Replica{Task: "worker", Index: 2, Pod: "worker-2"})
	resized.Tasks[1].Replicas = 3
	if stage := optimizer.StageOf(resized); stage != optimizer.StageWorkerInitial {
		t.Errorf("a job without samples of its size: got %s, want its last stage", stage)
	}
	if stage := optimizer.StageOf(&optimizer.Job{}); stage != optimizer.StageCreate {
		t.Errorf("a job without samples: got %s", stage)
	}
}

func TestAPlanBecomesAnObject(t *testing.T) {
	t.Parallel()
	of := job()
	of.Name = strings.Repeat("a", 253)
	object := optimizer.ScalePlan(of, optimizer.Plan{
		Tasks:   []optimizer.TaskPlan{{Name: "worker", Replicas: ptr(3)}},
		Migrate: []optimizer.Migration{{Pod: "ps-0", Requests: optimizer.Resources{CPU: 7500, Memory: 2 * gi}}},
		Reason:  strings.Repeat("x\x00", 2000),
	})
	if len(object.Name) > 253 || object.Spec.Job != of.Name || object.OwnerReferences[0].UID != "uid" {
		t.Errorf("got name %s of job %s", object.Name, object.Spec.Job)
	}
	if got := object.Spec.Migrate[0].Resources; got.CPU.String() != "7500m" || got.Memory.String() != "2Gi" {
		t.Errorf("got %v and %v", got.CPU, got.Memory)
	}
	if got := object.Spec.Tasks[0]; *got.Replicas != 3 || got.Resources.CPU != nil || got.Resources.Memory != nil {
		t.Errorf("got %+v", got)
	}
	if got := []rune(object.Spec.Reason); len(got) != 1024 || strings.ContainsRune(object.Spec.Reason, 0) {
		t.Errorf("got a reason of %d characters", len(got))
	}
}

func FuzzCheck(f *testing.F) {
	for _, seed := range []string{
		`{"tasks":[{"name":"worker","replicas":100,"requests":{"cpu":1,"memory":1}}],"reason":"more"}`, `{"tasks":[{"name":"ps"},{"name":"ps"}]}`,
		`{"migrate":[{"pod":"ps-0","requests":{"cpu":1099511627776}}]}`, `{"tasks":[{"name":"worker","replicas":-1}]}`, `{}`, `null`,
	} {
		f.Add(seed)
	}
	f.Fuzz(func(t *testing.T, content string) {
		var plan optimizer.Plan
		if json.Unmarshal([]byte(content), &plan) != nil {
			return
		}
		known := job()
		checked, err := optimizer.Check(plan, known)
		if err != nil {
			if !checked.Empty() {
				t.Fatalf("%+v is refused (%v) and checked as %+v", plan, err, checked)
			}
			return
		}
		for _, change := range checked.Tasks {
			task := known.Task(change.Name)
			if task == nil || change.Replicas != nil && (*change.Replicas < task.Min || *change.Replicas > task.Max) {
				t.Fatalf("%+v is checked as %+v", plan, checked)
			}
		}
		// No replica gets more than the largest node, and nothing of a checked plan changes in a second check.
		again, err := optimizer.Check(checked, known)
		if err != nil || !reflect.DeepEqual(again, checked) {
			t.Fatalf("%+v is checked as %+v, and that as %+v (%v)", plan, checked, again, err)
		}
	})
}
