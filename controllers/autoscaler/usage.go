// Copyright The DI Orchestrator Authors.
// SPDX-License-Identifier: Apache-2.0

package autoscaler

import (
	"context"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"opendilab.org/di-orchestrator/apis/v2alpha1"
	"opendilab.org/di-orchestrator/autoscale/optimizer"
	"opendilab.org/di-orchestrator/internal/conditions"
	"opendilab.org/di-orchestrator/internal/names"
	"opendilab.org/di-orchestrator/internal/podmetrics"
	"opendilab.org/di-orchestrator/job/lifecycle/sizing"
	"opendilab.org/di-orchestrator/job/podstate"
	"opendilab.org/di-orchestrator/job/scaling"
)

// usage returns what the containers of a job's pods use, by pod and container.
func (o *Optimizing) usage(ctx context.Context, job *v2alpha1.DIJob) (map[string]map[string]optimizer.Resources, error) {
	pods, err := podmetrics.List(ctx, o.live, client.InNamespace(job.Namespace), client.MatchingLabels{names.LabelJob: job.Name})
	if err != nil {
		return nil, err
	}
	used := make(map[string]map[string]optimizer.Resources, len(pods))
	for i := range pods {
		of := map[string]optimizer.Resources{}
		for name, each := range pods[i].Containers {
			of[name] = optimizer.Resources{CPU: each.CPU, Memory: each.Memory}
		}
		used[pods[i].Name] = of
	}
	return used, nil
}

// describe returns what an optimizer may know of a job.
func describe(job *v2alpha1.DIJob, pods []corev1.Pod, plans []v2alpha1.ScalePlan, now time.Time) *optimizer.Job {
	known := &optimizer.Job{Namespace: job.Namespace, Name: job.Name, UID: job.UID, Now: now}
	if job.Status.Autoscaling != nil && job.Status.Autoscaling.Optimizer != nil {
		known.Stage = optimizer.Stage(job.Status.Autoscaling.Optimizer.Stage)
	}
	known.Busy = activePlan(job) != "" || conditions.IsTrue(&job.Status, v2alpha1.ConditionResizing) || slices.ContainsFunc(plans, func(p v2alpha1.ScalePlan) bool { return !scaling.IsFinished(p.Status.Phase) })
	for i := range job.Spec.Tasks {
		task := taskOf(job, i, pods)
		known.Busy = known.Busy || int32(len(task.Pods)) != task.Replicas
		known.Tasks = append(known.Tasks, task)
	}
	for i := range plans {
		if at := plans[i].CreationTimestamp.Time; at.After(known.LastServerPlan) && changesServer(&plans[i], known) {
			known.LastServerPlan = at
		}
	}
	return known
}

// taskOf returns a task and its pods. The number of its replicas is bounded if the spec alone decides about it.
func taskOf(job *v2alpha1.DIJob, index int, pods []corev1.Pod) optimizer.Task {
	spec := &job.Spec.Tasks[index]
	task := optimizer.Task{
		Name: names.TaskName(spec), Type: spec.Type, Role: optimizer.RoleOf(&job.Spec, index), Replicas: sizing.Wanted(job).ByTask[index],
		Template: templateOf(spec),
	}
	task.Requests = task.Template
	task.Min, task.Max = task.Replicas, task.Replicas
	if recorded := job.Status.Autoscaling; recorded != nil && recorded.Optimizer != nil {
		for _, peak := range recorded.Optimizer.Peaks {
			if peak.Task == task.Name {
				task.Peak = optimizer.Resources{CPU: peak.CPU, Memory: peak.Memory}
				task.GrownAt = ptr.Deref(peak.GrownAt, metav1.Time{}).Time
			}
		}
	}
	if bounds := job.Spec.Elastic; bounds != nil && index == names.ElasticTask(&job.Spec) && ruleOf(job) == nil {
		task.Min, task.Max = ptr.Deref(bounds.MinReplicas, task.Min), ptr.Deref(bounds.MaxReplicas, task.Max)
	}
	for i := range pods {
		pod := &pods[i]
		if pod.Labels[names.LabelTaskName] != task.Name || !podstate.Ready(pod) || podstate.Terminating(pod) {
			continue
		}
		replica := optimizer.Replica{Task: task.Name, Index: indexOf(pod), Pod: pod.Name, Requests: requestsOf(pod)}
		task.Requests = replica.Requests
		task.Pods = append(task.Pods, replica)
	}
	slices.SortFunc(task.Pods, func(a, b optimizer.Replica) int { return int(a.Index - b.Index) })
	return task
}

// keepCounts bounds the replicas of a job whose size another master decides.
func keepCounts(job *optimizer.Job) {
	for i := range job.Tasks {
		job.Tasks[i].Min, job.Tasks[i].Max = job.Tasks[i].Replicas, job.Tasks[i].Replicas
	}
}

// changesServer reports whether a plan changes a parameter server.
func changesServer(plan *v2alpha1.ScalePlan, job *optimizer.Job) bool {
	for i := range job.Tasks {
		task := &job.Tasks[i]
		if task.Role != optimizer.RoleParameterServer {
			continue
		}
		isTask := slices.ContainsFunc(plan.Spec.Tasks, func(t v2alpha1.TaskScale) bool { return t.Name == task.Name })
		isPod := slices.ContainsFunc(plan.Spec.Migrate, func(m v2alpha1.PodMigration) bool {
			return strings.HasPrefix(m.Pod, job.Name+"-"+task.Name+"-")
		})
		if isTask || isPod {
			return true
		}
	}
	return false
}

// indexOf returns the index in a pod's name.
func indexOf(pod *corev1.Pod) int32 {
	index, err := strconv.ParseInt(pod.Name[strings.LastIndex(pod.Name, "-")+1:], 10, 32)
	if err != nil || index < 0 {
		return 0
	}
	return int32(index)
}

// mainOf returns the main container of a pod; nil if it is not known.
func mainOf(pod *corev1.Pod) *corev1.Container {
	status := podstate.MainContainer(pod)
	for i := range pod.Spec.Containers {
		if status != nil && pod.Spec.Containers[i].Name == status.Name || status == nil && i == 0 {
			return &pod.Spec.Containers[i]
		}
	}
	return nil
}

func requestsOf(pod *corev1.Pod) optimizer.Resources {
	main := mainOf(pod)
	if main == nil {
		return optimizer.Resources{}
	}
	return optimizer.Resources{CPU: main.Resources.Requests.Cpu().MilliValue(), Memory: main.Resources.Requests.Memory().Value()}
}

// sampleOf returns a sample of the replicas whose usage is known.
func sampleOf(job *optimizer.Job, used map[string]map[string]optimizer.Resources, now time.Time) optimizer.Sample {
	sample := optimizer.Sample{Time: now}
	for i := range job.Tasks {
		for _, replica := range job.Tasks[i].Pods {
			containers, isKnown := used[replica.Pod]
			if !isKnown {
				continue
			}
			sample.Usage = append(sample.Usage, optimizer.Usage{
				Task: replica.Task, Index: replica.Index, Used: largest(containers), Requests: replica.Requests,
			})
		}
	}
	return sample
}

// largest returns the usage of the main container, which uses the most memory.
func largest(containers map[string]optimizer.Resources) optimizer.Resources {
	var most optimizer.Resources
	for _, used := range containers {
		if used.Memory >= most.Memory {
			most = used
		}
	}
	return most
}

// samples are the last samples of jobs. They are in memory: a new leader waits for new ones.
type samples struct {
	mutex sync.Mutex
	jobs  map[key]*sampled
}

type sampled struct {
	uid     types.UID
	samples []optimizer.Sample
	// consumed is how many samples the consumers of the job had consumed at the last sample.
	consumed int64
	// recovered is the time of the kill out of memory that was last planned for.
	recovered time.Time
}

// left returns the time until the next sample of a job is due.
func (s *samples) left(of key, now time.Time) time.Duration {
	s.mutex.Lock()
	defer s.mutex.Unlock()
	known := s.jobs[of]
	if known == nil || len(known.samples) == 0 {
		return 0
	}
	return known.samples[len(known.samples)-1].Time.Add(interval).Sub(now)
}

// add adds a sample of a job, with the speed since the last one, and returns all of them.
func (s *samples) add(job *v2alpha1.DIJob, sample optimizer.Sample) []optimizer.Sample {
	s.mutex.Lock()
	defer s.mutex.Unlock()
	known := s.of(job)
	consumed := int64(0)
	for i := range job.Status.Rates {
		if job.Status.Rates[i].Role == string(v2alpha1.TaskTypeLearner) {
			consumed += job.Status.Rates[i].Samples
		}
	}
	if last := len(known.samples) - 1; last >= 0 && consumed > known.consumed {
		sample.Speed = float64(consumed-known.consumed) / sample.Time.Sub(known.samples[last].Time).Seconds()
	}
	known.consumed = consumed
	known.samples = append(known.samples, sample)
	known.samples = slices.Clone(known.samples[max(len(known.samples)-optimizer.MaxSamples, 0):])
	return slices.Clone(known.samples)
}

// of returns what is known of a job. The caller has the lock.
func (s *samples) of(job *v2alpha1.DIJob) *sampled {
	if s.jobs == nil {
		s.jobs = map[key]*sampled{}
	}
	of := client.ObjectKeyFromObject(job)
	known := s.jobs[of]
	if known == nil || known.uid != job.UID {
		known = &sampled{uid: job.UID}
		s.jobs[of] = known
	}
	return known
}

// drop drops the samples of a job.
func (s *samples) drop(of key) {
	s.mutex.Lock()
	defer s.mutex.Unlock()
	if known := s.jobs[of]; known != nil {
		known.samples, known.consumed = nil, 0
	}
}

func (s *samples) forget(of key) {
	s.mutex.Lock()
	defer s.mutex.Unlock()
	delete(s.jobs, of)
}
