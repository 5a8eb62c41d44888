// Copyright The DI Orchestrator Authors.
// SPDX-License-Identifier: Apache-2.0

package check

import (
	"fmt"
	"maps"
	"slices"
	"strings"

	"opendilab.org/di-orchestrator/test/soak/history"
)

// rest is the promise that all jobs are as desired at the end of a quiet window, and that deleted ones leave nothing.
type rest struct{}

func (rest) name() string {
	return "All jobs come to rest in a quiet window, and deleted ones leave nothing"
}

func (rest) end(*world) []broken { return nil }

func (rest) see(w *world, entry *history.Entry) []broken {
	if entry.Quiet == nil || entry.Quiet.End.IsZero() {
		return nil
	}
	var found []broken
	for _, uid := range slices.Sorted(maps.Keys(w.jobs)) {
		if unrest := w.jobs[uid].unrest(); len(unrest) > 0 {
			found = append(found, broken{job: w.jobs[uid], story: fmt.Sprintf("%s after the quiet window began: %s",
				entry.Quiet.End.Sub(entry.Quiet.Begin).Round(1e9), strings.Join(unrest, "; "))})
		}
	}
	return found
}

func (w *world) unrest() []string {
	var all []string
	for _, uid := range slices.Sorted(maps.Keys(w.jobs)) {
		for _, each := range w.jobs[uid].unrest() {
			all = append(all, w.jobs[uid].String()+": "+each)
		}
	}
	return all
}

// unrest lists what is not as desired.
func (j *job) unrest() []string {
	if j.gone {
		return j.left()
	}
	var all []string
	if j.deleting {
		return []string{"it is still being deleted"}
	}
	for _, each := range j.pods {
		if each.ending {
			all = append(all, "pod "+each.name+" is still being deleted")
		}
	}
	living := j.living()
	switch {
	case j.state.Finished():
		return nil
	case j.state.Suspended:
		for _, each := range living {
			all = append(all, "it is suspended and has pod "+each.name)
		}
	case j.state.CoordinatorLed:
		all = append(all, j.unrestOfMembers(living)...)
	default:
		all = append(all, j.unrestOfTasks(living)...)
	}
	for _, each := range living {
		if !each.Ready {
			all = append(all, "pod "+each.name+" is not ready")
		}
	}
	return all
}

// left lists the objects of a removed job.
func (j *job) left() []string {
	var all []string
	for _, each := range j.pods {
		all = append(all, "it is gone, and pod "+each.name+" is left")
	}
	for name := range j.services {
		all = append(all, "it is gone, and Service "+name+" is left")
	}
	if j.membership {
		all = append(all, "it is gone, and its Membership is left")
	}
	return all
}

func (j *job) unrestOfTasks(living []*pod) []string {
	var all []string
	counts := map[string]int{}
	for _, each := range living {
		counts[each.Task]++
	}
	others := 0
	for _, task := range j.state.Tasks {
		if task.Name == j.state.Elastic {
			continue
		}
		others += counts[task.Name]
		if counts[task.Name] != task.Replicas {
			all = append(all, fmt.Sprintf("task %s has %d living pods, and the spec %d", task.Name, counts[task.Name], task.Replicas))
		}
	}
	if want := j.state.Total - others; j.state.Elastic != "" && counts[j.state.Elastic] != want {
		all = append(all, fmt.Sprintf("task %s has %d living pods, and the status asks for %d", j.state.Elastic, counts[j.state.Elastic], want))
	}
	return all
}

func (j *job) unrestOfMembers(living []*pod) []string {
	if j.members == nil {
		return []string{"it has no Membership"}
	}
	var all []string
	want := 1
	for _, member := range j.members.Members {
		want += member.Pods
		if !slices.ContainsFunc(living, func(each *pod) bool { return each.Member == member.Slot }) {
			all = append(all, "slot "+member.Slot+" has no living pod")
		}
	}
	if len(living) != want {
		all = append(all, fmt.Sprintf("it has %d living pods, and its Membership asks for %d with the coordinator", len(living), want))
	}
	return all
}

// versions is the promise that a job is the same at both versions, and that conversion does not fail without a fault.
type versions struct{}

// OldRead is the operation of a read at v1alpha1.
const OldRead = "read v1alpha1"

func (versions) name() string {
	return "Both versions of a job are equal under conversion, and are served"
}

func (versions) end(*world) []broken { return nil }

func (versions) see(w *world, entry *history.Entry) []broken {
	switch {
	case entry.Versions != nil && entry.Versions.Difference != "":
		return []broken{{job: w.jobs[entry.Versions.Job], story: "the versions differ: " + entry.Versions.Difference}}
	case entry.Call != nil && entry.Call.Operation == OldRead && !entry.Call.Done() && w.quiet:
		return []broken{{job: w.jobs[entry.Call.Job], story: "a read at v1alpha1 fails in a quiet window: " + entry.Call.Error}}
	}
	return nil
}
