// Copyright The DI Orchestrator Authors.
// SPDX-License-Identifier: Apache-2.0

package dijob

import (
	"errors"
	"reflect"
	"slices"
	"time"

	corev1 "k8s.io/api/core/v1"
	policyv1 "k8s.io/api/policy/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"opendilab.org/di-orchestrator/job/lifecycle"
	"opendilab.org/di-orchestrator/job/lifecycle/state"
)

// conflict is a name that a job needs but another object has.
type conflict struct {
	job types.UID
	// kind is the type of the object that needs the name.
	kind  reflect.Type
	name  string
	taken state.Taken
}

// recordConflicts remembers the names that other objects have. It keeps them until the next attempt.
func (s *jobStates) recordConflicts(observed *lifecycle.Observed, taken effects) {
	until := observed.Now.Add(lifecycle.ConflictDelay)
	s.update(client.ObjectKeyFromObject(observed.Job), func(state *jobState) {
		state.conflicts = slices.DeleteFunc(state.conflicts, func(old conflict) bool {
			return old.job != observed.Job.UID || !old.taken.Until.After(observed.Now)
		})
		for i := range taken {
			object := taken[i].object
			state.conflicts = append(state.conflicts, conflict{
				job: observed.Job.UID, kind: reflect.TypeOf(object), name: object.GetName(), taken: takenBy(taken[i].err, until),
			})
		}
	})
}

// takenBy describes the object that has the name of a failed creation.
func takenBy(err error, until time.Time) state.Taken {
	var leaving leavingError
	if errors.As(err, &leaving) {
		return state.Taken{Until: until, Leaving: leaving.leaving}
	}
	return state.Taken{Message: err.Error(), Until: until}
}

// observeConflicts adds the names that other objects have.
func (s *jobStates) observeConflicts(observed *lifecycle.Observed) {
	observed.TakenPods, observed.TakenServices = map[string]state.Taken{}, map[string]state.Taken{}
	observed.TakenConfigMaps, observed.TakenBudgets = map[string]state.Taken{}, map[string]state.Taken{}
	s.update(client.ObjectKeyFromObject(observed.Job), func(state *jobState) {
		for i := range state.conflicts {
			each := &state.conflicts[i]
			if names := each.among(observed); names != nil && each.job == observed.Job.UID {
				names[each.name] = each.taken
			}
		}
	})
}

// among returns the taken names of its kind; nil for a kind without such names.
func (c *conflict) among(observed *lifecycle.Observed) map[string]state.Taken {
	switch c.kind {
	case reflect.TypeFor[*corev1.Pod]():
		return observed.TakenPods
	case reflect.TypeFor[*corev1.Service]():
		return observed.TakenServices
	case reflect.TypeFor[*corev1.ConfigMap]():
		return observed.TakenConfigMaps
	case reflect.TypeFor[*policyv1.PodDisruptionBudget]():
		return observed.TakenBudgets
	}
	return nil
}

// conflicts describes the names that foreign objects have.
func (e effects) conflicts() []string {
	var found []string
	for i := range e {
		if errors.As(e[i].err, &nameConflictError{}) {
			found = append(found, e[i].err.Error())
		}
	}
	return found
}
