// Copyright The DI Orchestrator Authors.
// SPDX-License-Identifier: Apache-2.0

package brain_test

import (
	"encoding/json"
	"fmt"
	"math"
	"math/rand/v2"
	"strings"
	"testing"
	"time"

	"opendilab.org/di-orchestrator/autoscale/optimizer"
	"opendilab.org/di-orchestrator/autoscale/optimizer/local"
	"opendilab.org/di-orchestrator/history/brain"
	"opendilab.org/di-orchestrator/history/record"
	"opendilab.org/di-orchestrator/test/testkit/expect"
)

const gi = 1 << 30

var epoch = time.Unix(1_764_000_000, 0).UTC()

// manifest returns a job of a worker with an image and arguments.
func manifest(image string, args ...string) json.RawMessage {
	return json.RawMessage(fmt.Sprintf(`{"apiVersion": "diengine.opendilab.org/v2alpha1", "kind": "DIJob", "spec": {"tasks": [
		{"name": "worker", "replicas": 1, "template": {"spec": {"containers": [{"name": "di-container", "image": %q, "args": ["%s"]}]}}}
	]}}`, image, strings.Join(args, `", "`)))
}

// recorded returns a job that succeeded some days ago, and used that at most.
func recorded(name string, days int, peak optimizer.Resources) record.Job {
	ended := epoch.Add(-time.Duration(days) * 24 * time.Hour)
	return record.Job{
		UID: name, Namespace: "default", Name: name, Phase: "Succeeded", Version: "v2alpha1", Created: ended, Ended: ended,
		Manifest: manifest("registry:5000/train:v1", "python", "train.py", "--env=pong", "--lr", "0.1"),
		Peaks:    []record.Peak{{Task: "worker", CPU: peak.CPU, Memory: peak.Memory}},
	}
}

var usual = optimizer.Resources{CPU: 2000, Memory: 4 * gi}

// five returns five runs that used the same.
func five() []record.Job {
	var all []record.Job
	for i := range 5 {
		all = append(all, recorded(fmt.Sprintf("run-%d", 5-i), i+1, usual))
	}
	return all
}

// generate returns the first plan of a job with a template and a past, after a sample of little usage.
func generate(t *testing.T, template optimizer.Resources, past []record.Job) (optimizer.Plan, *run) {
	t.Helper()
	r := start(template, nil, past)
	r.observe(scaled(usual, 0.01))
	return r.decide(t), r
}

func TestAPlanSaysFromWhichJobsItLearned(t *testing.T) {
	t.Parallel()
	plan, _ := generate(t, scaled(usual, 3), append(five(), recorded("run-0", 6, usual)))
	want := "CREATE: by 6 similar jobs at distance 0.00: run-5, run-4, run-3, run-2, run-1 and 1 more"
	if plan.Reason != want {
		t.Errorf("got %q, want %q", plan.Reason, want)
	}
	if got := changes(plan); len(got) != 1 || got[0].CPU != 2140 || got[0].Memory != 4383<<20 {
		t.Errorf("got %+v, want 7 %% more than the peaks", got)
	}
}

func TestAPastThatIsNotLikeTheJobIsIgnored(t *testing.T) {
	t.Parallel()
	for name, change := range map[string]func(*record.Job){
		"another image":       func(j *record.Job) { j.Manifest = manifest("registry:5000/other:v1", "python", "train.py") },
		"other arguments":     func(j *record.Job) { j.Manifest = manifest("registry:5000/train:v1", "sleep", "10") },
		"another namespace":   func(j *record.Job) { j.Namespace = "other" },
		"a task of old times": func(j *record.Job) { j.Ended = epoch.Add(-91 * 24 * time.Hour) },
		"a job that failed":   func(j *record.Job) { j.Phase = "Failed" },
		"no manifest":         func(j *record.Job) { j.Manifest = nil },
		"no peaks":            func(j *record.Job) { j.Peaks = nil },
	} {
		past := five()
		for i := range past {
			change(&past[i])
		}
		plan, _ := generate(t, scaled(usual, 3), past)
		if !plan.Empty() {
			t.Errorf("%s: got %+v, want no plan", name, plan)
		}
	}
}

func TestAnotherTagAndSeedAreSimilar(t *testing.T) {
	t.Parallel()
	past := five()
	for i := range past {
		past[i].Manifest = manifest("registry:5000/train:v2", "python", "train.py", "--env=pong", "--lr", "0.2")
	}
	plan, _ := generate(t, scaled(usual, 3), past)
	if plan.Empty() || !strings.Contains(plan.Reason, "at distance 0.25") {
		t.Errorf("got %+v, want a plan by jobs at distance 1 - 0.9 * 5/6", plan)
	}
}

func TestTwoJobsAreNoEvidence(t *testing.T) {
	t.Parallel()
	r := start(scaled(usual, 3), nil, five()[:2])
	r.observe(scaled(usual, 0.01))
	plan, err := r.optimizer.Generate(t.Context(), optimizer.StageCreate, r.job)
	expect.NoError(t, err)
	if !plan.Empty() || !strings.HasSuffix(plan.Reason, "the history has 2 similar jobs, of the 3 that it needs") {
		t.Errorf("got %+v", plan)
	}
}

func TestFewJobsThatUsedFarMoreMoveARequestLittle(t *testing.T) {
	t.Parallel()
	past := five()
	past[0].Peaks[0].Memory, past[1].Peaks[0].CPU = 400*gi, 900_000
	plan, _ := generate(t, scaled(usual, 3), past)
	if got := changes(plan); len(got) != 1 || got[0].Memory > 9*gi || got[0].CPU > 4400 {
		t.Errorf("got %+v, want at most twice the median and the margin", got)
	}
}

func TestTheTemplateBoundsWhatThePastMoves(t *testing.T) {
	t.Parallel()
	low, _ := generate(t, scaled(usual, 100), five())
	high, _ := generate(t, scaled(usual, 0.1), five())
	if got := changes(low); len(got) != 1 || got[0].Memory < 400*gi/16 || got[0].CPU < 12_000 {
		t.Errorf("got %+v, want at least a 16th of the template", got)
	}
	if got := changes(high); len(got) != 1 || got[0].Memory > 2*gi || got[0].CPU > 800 {
		t.Errorf("got %+v, want at most four times the template", got)
	}
}

func TestAJobThatUsesMoreThanThePastIgnoresIt(t *testing.T) {
	t.Parallel()
	r := start(scaled(usual, 3), nil, five())
	r.observe(optimizer.Resources{CPU: 100, Memory: 5 * gi})
	plan := r.decide(t)
	if got := changes(plan); len(got) != 1 || got[0].Memory != 0 || got[0].CPU == 0 || !strings.HasSuffix(plan.Reason, "uses more than they did: memory of worker") {
		t.Errorf("got %+v, want less CPU and the same memory", plan)
	}
}

func TestAKilledReplicaGetsWhatSimilarOnesReached(t *testing.T) {
	t.Parallel()
	for name, one := range map[string]struct {
		had, template, want int64
		reason              string
	}{
		"what they reached":                 {had: gi, template: 2 * gi, want: 4383 << 20, reason: "at least what such replicas reached, by 5 similar jobs"},
		"at least twice":                    {had: 3 * gi, template: 3 * gi, want: 6 * gi, reason: "OutOfMemory"},
		"twice, as the past did not do":     {had: 6 * gi, template: 6 * gi, want: 12 * gi, reason: "the past did not suffice"},
		"the template, as the past did not": {had: 4383 << 20, template: 20 * gi, want: 20 * gi, reason: "the past did not suffice"},
	} {
		r := start(optimizer.Resources{CPU: 1000, Memory: one.template}, nil, five())
		r.execute(optimizer.Plan{Tasks: []optimizer.TaskPlan{{Name: "worker", Requests: optimizer.Resources{Memory: one.had}}}})
		plan, err := r.optimizer.RecoverOOM(t.Context(), r.job.Tasks[0].Pods, r.job)
		expect.NoError(t, err)
		if got := changes(plan); len(got) != 1 || got[0].Memory != one.want || !strings.Contains(plan.Reason, one.reason) {
			t.Errorf("%s: got %+v, want %d bytes", name, plan, one.want)
		}
	}
}

func TestAKillBelowTheTemplateRestoresTheWholeTask(t *testing.T) {
	t.Parallel()
	template := optimizer.Resources{CPU: 1000, Memory: 8 * gi}
	for name, own := range map[string]int64{"equal replicas": 0, "one with memory of its own": 12 * gi} {
		r := start(template, nil, five()[:1])
		task := &r.job.Tasks[0]
		task.Requests.Memory, task.Replicas, task.Pods = gi, 4, nil
		for index := range int32(4) {
			task.Pods = append(task.Pods, optimizer.Replica{Task: "worker", Index: index, Pod: fmt.Sprintf("run-worker-%d", index), Requests: task.Requests})
		}
		if own > 0 {
			task.Pods[3].Requests.Memory = own
		}
		plan, err := r.optimizer.RecoverOOM(t.Context(), task.Pods[:1], r.job)
		expect.NoError(t, err)
		memory := map[string]int64{}
		for _, pod := range task.Pods {
			memory[pod.Pod] = pod.Requests.Memory
			for _, change := range plan.Tasks {
				memory[pod.Pod] = change.Requests.Memory
			}
		}
		for _, migration := range plan.Migrate {
			memory[migration.Pod] = migration.Requests.Memory
		}
		for pod, got := range memory {
			if want := max(8*gi, own); got != 8*gi && (pod != "run-worker-3" || got != want) {
				t.Errorf("%s: %s gets %d bytes by %+v", name, pod, got, plan)
			}
		}
	}
}

// reports returns reports of speeds by the number of workers.
func reports(speeds map[int]float64) []record.Sample {
	var all []record.Sample
	for workers, speed := range speeds {
		for range 3 {
			all = append(all, record.Sample{Values: map[string]record.Mean{
				"throughput.replicas": {Sum: float64(workers), Count: 1}, "throughput.per_second": {Sum: speed, Count: 1},
			}})
		}
	}
	return all
}

func TestTheNumberOfWorkersIsByMeasuredSpeeds(t *testing.T) {
	t.Parallel()
	for name, one := range map[string]struct {
		speeds map[int]float64
		want   int32
	}{
		"where more add nothing":         {map[int]float64{1: 100, 2: 190, 4: 350, 8: 380}, 4},
		"at most what was measured":      {map[int]float64{1: 100, 3: 300}, 3},
		"at most eight more":             {map[int]float64{1: 100, 20: 2000}, 9},
		"as before with one measurement": {map[int]float64{4: 100}, 1},
	} {
		past := five()
		samples := map[string][]record.Sample{}
		for i := range past {
			samples[past[i].UID] = reports(one.speeds)
		}
		r := start(scaled(usual, 1.07), nil, nil)
		r.job.Tasks[0].Max = 40
		by := brain.New(local.Defaults(), brain.Past{Job: recorded("now", 0, usual), Finished: past, Samples: samples})
		plan, err := by.Generate(t.Context(), optimizer.StageCreate, r.job)
		expect.NoError(t, err)
		got := int32(1)
		if len(plan.Tasks) == 1 && plan.Tasks[0].Replicas != nil {
			got = *plan.Tasks[0].Replicas
		}
		if got != one.want {
			t.Errorf("%s: got %+v, want %d", name, plan, one.want)
		}
	}
}

// random returns a job of several workers and its past, both absurd.
func random(seed int) (brain.Past, *optimizer.Job) {
	source := rand.New(rand.NewPCG(uint64(seed), 18))
	amount := func() optimizer.Resources {
		return optimizer.Resources{CPU: source.Int64N(1 << (1 + source.IntN(50))), Memory: source.Int64N(1 << (1 + source.IntN(50)))}
	}
	past := brain.Past{Job: recorded("now", 0, usual), Samples: map[string][]record.Sample{}}
	for i := range source.IntN(100) {
		job := recorded(fmt.Sprintf("run-%d", i), source.IntN(120), amount())
		if source.IntN(4) == 0 {
			job.Peaks[0].Killed = amount().Memory
		}
		past.Finished = append(past.Finished, job)
		past.Samples[job.UID] = reports(map[int]float64{1 + source.IntN(50): source.ExpFloat64() * 100, 1 + source.IntN(9): source.ExpFloat64()})
	}
	requests := optimizer.Resources{CPU: 100 + source.Int64N(20_000), Memory: gi/4 + source.Int64N(40*gi)}
	task := optimizer.Task{Name: "worker", Role: optimizer.RoleWorker, Replicas: 1 + source.Int32N(6), Min: 1, Max: 12, Requests: requests, Template: amount()}
	job := &optimizer.Job{Namespace: "default", Name: "job", Now: epoch}
	sample := optimizer.Sample{Time: epoch}
	for index := range task.Replicas {
		pod := optimizer.Replica{Task: "worker", Index: index, Pod: fmt.Sprintf("job-worker-%d", index), Requests: requests}
		if source.IntN(5) == 0 {
			pod.Requests.Memory *= 2
		}
		task.Pods = append(task.Pods, pod)
		sample.Usage = append(sample.Usage, optimizer.Usage{Task: "worker", Index: index, Used: optimizer.Resources{CPU: source.Int64N(pod.Requests.CPU), Memory: source.Int64N(pod.Requests.Memory)}, Requests: pod.Requests})
	}
	job.Tasks, job.Samples = []optimizer.Task{task}, []optimizer.Sample{sample}
	total := optimizer.Total(job, optimizer.Plan{})
	job.Limits.Job = optimizer.Resources{CPU: total.CPU * (100 + source.Int64N(200)) / 100, Memory: total.Memory * (100 + source.Int64N(200)) / 100}
	job.Limits.Node = optimizer.Resources{CPU: 32_000, Memory: 100 * gi}
	return past, job
}

func TestNoPlanExceedsTheLimitsOfTheJob(t *testing.T) {
	t.Parallel()
	learned := 0
	for seed := range 3000 {
		past, job := random(seed)
		by := brain.New(local.Defaults(), past)
		made, err := by.Generate(t.Context(), optimizer.StageCreate, job)
		expect.NoError(t, err)
		recovered, err := by.RecoverOOM(t.Context(), job.Tasks[0].Pods[:1], job)
		expect.NoError(t, err)
		for _, plan := range []optimizer.Plan{made, recovered} {
			if strings.Contains(plan.Reason, "similar jobs at distance") && !plan.Empty() {
				learned++
			}
			if total := optimizer.Total(job, plan); total.CPU > job.Limits.Job.CPU || total.Memory > job.Limits.Job.Memory {
				t.Fatalf("seed %d: %+v: a total of %+v, more than %+v", seed, plan, total, job.Limits.Job)
			}
			for _, requests := range changes(plan) {
				had := job.Tasks[0].Requests
				if requests.CPU < 0 || requests.Memory < 0 || requests.CPU > max(32_000, had.CPU) || requests.Memory > max(64*gi, 2*had.Memory) {
					t.Fatalf("seed %d: %+v", seed, plan)
				}
			}
		}
		atLeastLocal(t, seed, job, recovered)
	}
	if learned < 500 {
		t.Errorf("%d plans by the past, too few to show anything", learned)
	}
}

// atLeastLocal compares what the killed replica gets with what the local rule would give.
func atLeastLocal(t *testing.T, seed int, job *optimizer.Job, got optimizer.Plan) {
	t.Helper()
	want, err := local.New(local.Defaults()).RecoverOOM(t.Context(), job.Tasks[0].Pods[:1], job)
	expect.NoError(t, err)
	memory := func(plan optimizer.Plan) int64 {
		most := int64(0)
		for _, change := range plan.Tasks {
			most = change.Requests.Memory
		}
		for _, migration := range plan.Migrate {
			if migration.Pod == job.Tasks[0].Pods[0].Pod {
				most = migration.Requests.Memory
			}
		}
		return most
	}
	if memory(got) < memory(want) {
		t.Fatalf("seed %d: got %+v, the local rule %+v", seed, got, want)
	}
}

func TestMoreUsageInThePastNeverLowersARequest(t *testing.T) {
	t.Parallel()
	for seed := range 300 {
		d := roll(seed)
		past := d.runs(usual, 0.5)
		before, r := generate(t, scaled(usual, 8), past)
		at := d.IntN(len(past))
		peak := &past[at].Peaks[0]
		peak.CPU, peak.Memory = peak.CPU*2, peak.Memory*2
		after, _ := generate(t, r.job.Tasks[0].Template, past)
		if a, b := changes(before)[0], changes(after)[0]; b.CPU < a.CPU || b.Memory < a.Memory {
			t.Fatalf("seed %d: got %+v after %+v", seed, b, a)
		}
	}
}

func FuzzNoRecordedManifestDoesHarm(f *testing.F) {
	f.Add([]byte(manifest("a:b", "c")), "v2alpha1", int64(gi))
	f.Add([]byte(`{"spec": {"tasks": [{"template": {"spec": {"containers": []}}}]}}`), "v1alpha1", int64(-1))
	f.Fuzz(func(t *testing.T, raw []byte, version string, amount int64) {
		past := five()
		for i := range past {
			past[i].Manifest, past[i].Version = raw, version
			past[i].Peaks[0].CPU, past[i].Peaks[0].Memory, past[i].Peaks[0].Killed = amount, amount, amount/2
		}
		r := start(usual, nil, nil)
		job := past[0]
		job.UID = "now"
		by := brain.New(local.Defaults(), brain.Past{Job: job, Finished: past})
		plan, err := by.Generate(t.Context(), optimizer.StageCreate, r.job)
		expect.NoError(t, err)
		for _, requests := range changes(plan) {
			if requests.CPU < 0 || requests.CPU > 64_000 || requests.Memory < 0 || requests.Memory > math.MaxInt64/4 {
				t.Errorf("got %+v", plan)
			}
		}
	})
}
