// Copyright The DI Orchestrator Authors.
// SPDX-License-Identifier: Apache-2.0

package controllers

import (
	"errors"
	"slices"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"opendilab.org/di-orchestrator/apis/v2alpha1"
	"opendilab.org/di-orchestrator/internal/lifecycle"
	"opendilab.org/di-orchestrator/internal/limits"
)

// conflict is a name that a job needs and somebody else has.
type conflict struct {
	job     types.UID
	service bool
	name    string
	taken   lifecycle.Taken
}

// noteConflicts remembers the names that others have for as long as nobody tries
// them again. Names that a pass tried with success are forgotten.
func (j *journal) noteConflicts(observed *lifecycle.Observed, taken effects) {
	until := observed.Now.Add(conflictDelay)
	j.on(client.ObjectKeyFromObject(observed.Job), func(entry *journalEntry) {
		entry.conflicts = slices.DeleteFunc(entry.conflicts, func(old conflict) bool {
			return old.job != observed.Job.UID || !old.taken.Until.After(observed.Now)
		})
		for i := range taken {
			object := taken[i].object
			_, isPod := object.(*corev1.Pod)
			_, isService := object.(*corev1.Service)
			if isPod || isService {
				entry.conflicts = append(entry.conflicts, conflict{
					job: observed.Job.UID, service: isService, name: object.GetName(),
					taken: takenBy(taken[i].err, until),
				})
			}
		}
	})
}

// takenBy says who has a name that a create ended in.
func takenBy(err error, until time.Time) lifecycle.Taken {
	var leaving leavingError
	if errors.As(err, &leaving) {
		return lifecycle.Taken{Until: until, Leaving: leaving.leaving}
	}
	return lifecycle.Taken{Message: err.Error(), Until: until}
}

// conflicts returns the names of pods and services that others have.
func (j *journal) conflicts(job *v2alpha1.DIJob) (pods, services map[string]lifecycle.Taken) {
	pods, services = map[string]lifecycle.Taken{}, map[string]lifecycle.Taken{}
	j.on(client.ObjectKeyFromObject(job), func(entry *journalEntry) {
		for _, each := range entry.conflicts {
			switch {
			case each.job != job.UID:
			case each.service:
				services[each.name] = each.taken
			default:
				pods[each.name] = each.taken
			}
		}
	})
	return pods, services
}

// conflictMessage says which names are taken, of many only some. One that was
// written a short while ago stays, as long as there is any conflict.
func conflictMessage(observed *lifecycle.Observed, decision *lifecycle.Decision, taken effects) string {
	conflicts := slices.Clone(decision.Conflicts)
	for i := range taken {
		if !errors.Is(taken[i].err, errNameConflict) {
			continue
		}
		conflicts = append(conflicts, taken[i].err.Error())
	}
	if len(conflicts) == 0 {
		return ""
	}
	for _, condition := range observed.Job.Status.Conditions {
		isRecent := condition.LastUpdateTime != nil && observed.Now.Sub(condition.LastUpdateTime.Time) < conflictDelay-time.Second
		if condition.Type == v2alpha1.ConditionNameConflict && condition.Status == corev1.ConditionTrue && isRecent {
			return condition.Message
		}
	}
	slices.Sort(conflicts)
	if len(conflicts) > limits.Named {
		conflicts = append(conflicts[:limits.Named:limits.Named], "and so are others")
	}
	return strings.Join(conflicts, "; ")
}
