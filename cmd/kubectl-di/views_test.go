// Copyright The DI Orchestrator Authors.
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"cmp"
	"encoding/json"
	"fmt"
	"maps"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"opendilab.org/di-orchestrator/apis/v2alpha1"
	"opendilab.org/di-orchestrator/cmd/kubectl-di/internal/top"
	"opendilab.org/di-orchestrator/cmd/kubectl-di/internal/ui/api"
	"opendilab.org/di-orchestrator/test/testkit/expect"
)

// shown is what each view shows of a job first.
type shown struct{ phase, reason, ready string }

// viewed is a job as the operator leaves it, and what all views show of it.
type viewed struct {
	// name is that of the job. All jobs are a collector with 3 replicas, or coordinator-led.
	name   string
	change func(*v2alpha1.DIJob)
	// members are those of a coordinator-led job.
	members []v2alpha1.Member
	status  v2alpha1.DIJobStatus
	isLed   bool
	// isDeleted is set if the job is being deleted, and a finalizer keeps it.
	isDeleted bool
	want      shown
	// tasks are the desired pods of each task, and of aggregators. kubectl di list does not show them.
	tasks []int
	// remedies are what would let the job run. Only kubectl di describe and the page of a job show them.
	remedies []string
}

// workerLedViews are worker-led jobs by the sentence that describes them.
func workerLedViews() map[string]viewed {
	preemptible := func(job *v2alpha1.DIJob) { job.Spec.Preemptible = true }
	recorded := func(count int32) *v2alpha1.ScalingStatus {
		return &v2alpha1.ScalingStatus{SpecReplicas: map[string]int32{"collector": count}, LastReplicas: count}
	}
	planned := recorded(4)
	planned.Plan = &v2alpha1.PlanRecord{Name: "grow", UID: "1", Phase: v2alpha1.PlanExecuting, Replicas: map[string]int32{"collector": 4}}
	return map[string]viewed{
		"a job that the operator has not observed is Pending": {
			want: shown{"Pending", "", "0/3"}, tasks: []int{3}, remedies: []string{"Check that the operator runs: kubectl di version."},
		},
		"a job that waits for its pods shows why": {
			status: because(counts(v2alpha1.JobStarting, "ImagePull", 1, 3), v2alpha1.ConditionReplicasStalled, corev1.ConditionTrue, "pull access denied"),
			want:   shown{"Starting", "ImagePull", "1/3"}, tasks: []int{3}, remedies: []string{"Correct the image's name and tag. A private image needs imagePullSecrets."},
		},
		"a job behind a scheduling gate is not ready": {
			status: counts(v2alpha1.JobStarting, "SchedulingGated", 0, 3), want: shown{"Starting", "SchedulingGated", "0/3"}, tasks: []int{3},
		},
		"a job with a pod that never gets ready lacks it": {
			status: counts(v2alpha1.JobStarting, "NotReady", 2, 3), want: shown{"Starting", "NotReady", "2/3"}, tasks: []int{3},
		},
		"a job without replicas desires none": {
			change: func(job *v2alpha1.DIJob) { job.Spec.Tasks[0].Replicas = ptr.To[int32](0) },
			status: counts(v2alpha1.JobRunning, "NoReplicas", 0, 0), want: shown{"Running", "NoReplicas", "0/0"}, tasks: []int{0},
		},
		"a preemptible job is as large as its placement": {
			change: preemptible, status: placed(counts(v2alpha1.JobRunning, "", 2, 2), "node-a", "node-b"), want: shown{"Running", "", "2/2"}, tasks: []int{2},
		},
		"a preemptible job without a placement is as large as its spec": {
			change: preemptible, status: because(counts(v2alpha1.JobPending, "InsufficientCapacity", 0, 3), v2alpha1.ConditionAllocated, corev1.ConditionFalse, "too little"),
			want: shown{"Pending", "InsufficientCapacity", "0/3"}, tasks: []int{3}, remedies: []string{"Other jobs end or shrink, or an administrator adds nodes."},
		},
		"a job that di-server has resized is as large as requested": {
			status: scaled(counts(v2alpha1.JobRunning, "", 3, 5), recorded(3)), want: shown{"Running", "", "3/5"}, tasks: []int{5},
		},
		"a job whose excess pods still run counts the desired ones": {
			status: scaled(counts(v2alpha1.JobRunning, "Resizing", 3, 2), recorded(3)), want: shown{"Running", "Resizing", "2/2"}, tasks: []int{2},
		},
		"a job with a plan is as large as planned": {
			change: func(job *v2alpha1.DIJob) { job.Spec.Tasks[0].Replicas = ptr.To[int32](4) },
			status: scaled(counts(v2alpha1.JobRunning, "Resizing", 3, 4), planned), want: shown{"Running", "Resizing", "3/4"}, tasks: []int{4},
		},
		"a suspended job keeps its size": {
			change: func(job *v2alpha1.DIJob) { job.Spec.Suspend = ptr.To(true) },
			status: counts(v2alpha1.JobPending, "Suspended", 0, 3), want: shown{"Pending", "Suspended", "0/3"}, tasks: []int{3}, remedies: []string{"Resume the job."},
		},
		"a job that a finalizer keeps shows it": {
			isDeleted: true, status: counts(v2alpha1.JobRunning, "HeldByFinalizer", 2, 3), want: shown{"Running", "HeldByFinalizer", "2/3"}, tasks: []int{3},
		},
		"a job that has succeeded desires no replicas": {
			status: ended(counts(v2alpha1.JobSucceeded, "", 3, 3)), want: shown{"Succeeded", "", ""}, tasks: []int{0},
		},
		"a job that has failed shows why": {
			status: ended(counts(v2alpha1.JobFailed, "OOMKilled", 0, 3)), want: shown{"Failed", "OOMKilled", ""}, tasks: []int{0},
		},
		"a job that an earlier release has finished desires no replicas": {
			status: v2alpha1.DIJobStatus{Phase: v2alpha1.JobFailed, Replicas: 3}, want: shown{"Failed", "", ""}, tasks: []int{0},
		},
	}
}

// coordinatorLedViews are coordinator-led jobs by the sentence that describes them.
func coordinatorLedViews() map[string]viewed {
	members := []v2alpha1.Member{{Slot: "a", Task: v2alpha1.TaskTypeCollector}, {Slot: "b", Task: v2alpha1.TaskTypeLearner, DDPGPUs: []int32{2, 2}}}
	all := map[string]viewed{
		"a coordinator-led job that the operator has not observed desires its coordinator": {
			want: shown{"Pending", "", "0/1"}, tasks: []int{1, 0, 0}, remedies: []string{"Check that the operator runs: kubectl di version."},
		},
		"a coordinator-led job whose coordinator is refused shows why": {
			status: because(counts(v2alpha1.JobPending, "QuotaExceeded", 0, 1), v2alpha1.ConditionReplicaFailure, corev1.ConditionTrue, "exceeded quota: team"),
			want:   shown{"Pending", "QuotaExceeded", "0/1"}, tasks: []int{1, 0, 0},
			remedies: []string{"Other pods of the namespace end, an administrator raises the ResourceQuota, or the job requests less."},
		},
		"a coordinator-led job has the default replicas of its tasks only once they are requested": {
			change: func(job *v2alpha1.DIJob) {
				for i := range job.Spec.Tasks {
					job.Spec.Tasks[i].Replicas = ptr.To[int32](1)
				}
			},
			status: counts(v2alpha1.JobRunning, "", 1, 1), want: shown{"Running", "", "1/1"}, tasks: []int{1, 0, 0},
		},
		"a coordinator behind a scheduling gate is not ready": {
			status: counts(v2alpha1.JobStarting, "SchedulingGated", 0, 1), want: shown{"Starting", "SchedulingGated", "0/1"}, tasks: []int{1, 0, 0},
		},
		"a coordinator-led job counts the aggregator and the DDP learners": {
			members: members, status: counts(v2alpha1.JobRunning, "NotReady", 3, 5), want: shown{"Running", "NotReady", "3/5"}, tasks: []int{1, 1, 2, 1},
		},
		"a suspended coordinator-led job keeps its members": {
			members: members, change: func(job *v2alpha1.DIJob) { job.Spec.Suspend = ptr.To(true) },
			status: counts(v2alpha1.JobPending, "Suspended", 0, 5), want: shown{"Pending", "Suspended", "0/5"}, tasks: []int{1, 1, 2, 1}, remedies: []string{"Resume the job."},
		},
		"a coordinator-led job that a finalizer keeps shows it": {
			members: members, isDeleted: true,
			status: counts(v2alpha1.JobRunning, "HeldByFinalizer", 4, 5), want: shown{"Running", "HeldByFinalizer", "4/5"}, tasks: []int{1, 1, 2, 1},
		},
		"a coordinator-led job that has succeeded desires no replicas": {
			members: members, status: ended(counts(v2alpha1.JobSucceeded, "", 0, 5)), want: shown{"Succeeded", "", ""}, tasks: []int{0, 0, 0},
		},
		"a coordinator-led job that has failed shows why": {
			members: members, status: ended(counts(v2alpha1.JobFailed, "Error", 0, 5)), want: shown{"Failed", "Error", ""}, tasks: []int{0, 0, 0},
		},
	}
	for sentence, job := range all {
		job.isLed = true
		all[sentence] = job
	}
	return all
}

// counts returns a status with these numbers.
func counts(phase v2alpha1.Phase, reason string, ready, desired int32) v2alpha1.DIJobStatus {
	return v2alpha1.DIJobStatus{Phase: phase, ReadyReplicas: ready, Replicas: desired, Summary: &v2alpha1.StatusSummary{Reason: reason}}
}

// because returns a status with a condition of the reason in its summary.
func because(status v2alpha1.DIJobStatus, kind string, is corev1.ConditionStatus, message string) v2alpha1.DIJobStatus {
	status.Conditions = []v2alpha1.DIJobCondition{{Type: kind, Status: is, Reason: status.Summary.Reason, Message: message}}
	return status
}

func placed(status v2alpha1.DIJobStatus, nodes ...string) v2alpha1.DIJobStatus {
	status.Allocation = nodes
	return status
}

func scaled(status v2alpha1.DIJobStatus, record *v2alpha1.ScalingStatus) v2alpha1.DIJobStatus {
	status.Scaling = record
	return status
}

func ended(status v2alpha1.DIJobStatus) v2alpha1.DIJobStatus {
	status.CompletionTimestamp = ptr.To(metav1.Now())
	return status
}

func TestAllViewsOfAJobShowTheSame(t *testing.T) {
	t.Parallel()
	w, ns := inNamespace(t)
	all := workerLedViews()
	maps.Copy(all, coordinatorLedViews())
	sentences := slices.Sorted(maps.Keys(all))
	for i, sentence := range sentences {
		job := all[sentence]
		job.name = fmt.Sprintf("job-%02d", i)
		all[sentence] = job
		w.exists(t, ns, &job)
	}
	b := w.browse(t, ns)
	page := until(t, b, b.listen(t, "/api/v1/jobs/stream"), "page", "JobPage", func(page api.JobPage) bool { return page.Synced && page.Total == len(all) })
	list := w.ranWell(t, ns, "list")
	for _, sentence := range sentences {
		t.Run(sentence, func(t *testing.T) {
			job := all[sentence]
			says := func(view string, got shown) { t.Helper(); expect.Equal(t, view, fmt.Sprint(job.want), fmt.Sprint(got)) }
			desires := func(view string, got []int) {
				t.Helper()
				expect.Equal(t, view+": desired", fmt.Sprint(job.tasks), fmt.Sprint(got))
			}
			says("list", listed(list, job.name))
			at := slices.IndexFunc(page.Items, func(row api.JobRow) bool { return row.Name == job.name })
			says("the table of the page", rowed(&page.Items[at]))

			var detail api.JobDetail
			b.get(t, "/api/v1/namespaces/"+ns+"/jobs/"+job.name, "JobDetail", &detail)
			says("the page", rowed(&detail.Job))
			desires("the page", numbers(detail.Job.Roles, func(role api.RoleCount) int { return ptr.Deref(role.Wanted, -1) }))

			says("top", factsOf(w.ranWell(t, ns, "top", job.name)))
			var snapshot top.Snapshot
			expect.NoError(t, json.Unmarshal([]byte(w.ranWell(t, ns, "top", job.name, "-o", "json")), &snapshot))
			says("top -o json", shown{string(snapshot.Phase), snapshot.Reason, counted(string(snapshot.Phase), snapshot.Ready, snapshot.Wanted)})
			desires("top", numbers(snapshot.Tasks, func(task top.Count) int { return ptr.Deref(task.Wanted, -1) }))

			described := w.ranWell(t, ns, "describe", job.name)
			says("describe", factsOf(described))
			desires("describe", desiredOf(t, described))

			if detail.Waiting == nil {
				detail.Waiting = &api.Waiting{}
			}
			expect.Equal(t, "the page: remedies", job.remedies, append([]string(nil), detail.Waiting.Remedies...))
			expect.Equal(t, "describe: remedies", job.remedies, remediesOf(described))
		})
	}
}

// exists creates a job with a pod and its members, as the operator does.
func (w *world) exists(t *testing.T, ns string, as *viewed) {
	t.Helper()
	var job *v2alpha1.DIJob
	if as.isLed {
		job = w.trainer(t, ns, as.name)
		var list v2alpha1.Membership
		expect.NoError(t, w.live.Get(t.Context(), client.ObjectKeyFromObject(job), &list))
		list.Spec.Members = slices.Clone(as.members)
		for i := range list.Spec.Members {
			list.Spec.Members[i].PodName = as.name + "-member-" + list.Spec.Members[i].Slot
		}
		expect.NoError(t, w.live.Update(t.Context(), &list))
	} else {
		job = w.workers(t, ns, as.name, v2alpha1.Task{Type: v2alpha1.TaskTypeCollector})
	}
	if as.isDeleted {
		job.Finalizers = []string{"test.local/held"}
	}
	if as.change != nil {
		as.change(job)
	}
	expect.NoError(t, w.live.Update(t.Context(), job))
	w.setStatus(t, job, func(status *v2alpha1.DIJobStatus) { *status = as.status })
	if as.isDeleted {
		expect.NoError(t, w.live.Delete(t.Context(), job))
	}
}

// counted returns numbers of ready and desired replicas as a view draws them.
func counted(phase string, ready, desired int) string {
	if (phase == string(v2alpha1.JobSucceeded) || phase == string(v2alpha1.JobFailed)) && desired == 0 {
		return ""
	}
	return fmt.Sprintf("%d/%d", ready, desired)
}

func rowed(row *api.JobRow) shown {
	return shown{row.Phase, row.Reason, counted(row.Phase, row.Ready, row.Wanted)}
}

// listed reads the columns of kubectl di list.
func listed(list, name string) shown {
	header, _, _ := strings.Cut(list, "\n")
	for line := range strings.Lines(list) {
		if !strings.HasPrefix(line, name+" ") {
			continue
		}
		cell := func(from, to string) string {
			return strings.TrimSpace(line[strings.Index(header, from):strings.Index(header, to)])
		}
		return shown{cell("PHASE", "READY"), cell("REASON", "RESTARTS"), cell("READY", "REASON")}
	}
	return shown{}
}

// factsOf reads what kubectl di describe and top print first.
func factsOf(text string) shown {
	fact := func(title, pattern string) string {
		found := regexp.MustCompile("(?m)^" + title + ": +" + pattern).FindStringSubmatch(text)
		return strings.Join(found[min(1, len(found)):], "/")
	}
	return shown{fact("Phase", `(\w+)`), fact("Reason", `(\w+)`), cmp.Or(fact("Ready", `(\d+)/(\d+)`), fact("Replicas", `(\d+) of (\d+) ready`))}
}

// remediesOf reads what would let a job run from kubectl di describe.
func remediesOf(described string) (found []string) {
	_, remedies, _ := strings.Cut(described, "\nWhat would let it run:\n")
	for line := range strings.Lines(remedies) {
		if line == "\n" {
			break
		}
		found = append(found, strings.TrimSpace(line))
	}
	return found
}

// desiredOf reads the column DESIRED of kubectl di describe.
func desiredOf(t *testing.T, described string) []int {
	t.Helper()
	_, tasks, _ := strings.Cut(described, "\nTasks:\n")
	tasks, _, _ = strings.Cut(tasks, "\n\n")
	return numbers(regexp.MustCompile(`(?m)^  [a-z]+ +(?:[a-z]+ +)?(\d+) `).FindAllStringSubmatch(tasks, -1), func(found []string) int {
		count, err := strconv.Atoi(found[1])
		expect.NoError(t, err)
		return count
	})
}

func numbers[T any](all []T, of func(T) int) []int {
	found := make([]int, 0, len(all))
	for _, one := range all {
		found = append(found, of(one))
	}
	return found
}
