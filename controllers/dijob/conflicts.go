// Copyright The DI Orchestrator Authors.
// SPDX-License-Identifier: Apache-2.0

package dijob

import (
	"errors"
	"reflect"
	"slices"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"opendilab.org/di-orchestrator/apis/v2alpha1"
	"opendilab.org/di-orchestrator/internal/conditions"
	"opendilab.org/di-orchestrator/internal/lifecycle"
	"opendilab.org/di-orchestrator/internal/limits"
)

// conflict is a name that a job needs and somebody else has.
type conflict struct {
	job types.UID
	// kind is the type of the object that needs the name.
	kind  reflect.Type
	name  string
	taken lifecycle.Taken
}

// recordConflicts remembers the names that others have for as long as nobody tries
// them again. Names that a pass tried with success are forgotten.
func (s *jobStates) recordConflicts(observed *lifecycle.Observed, taken effects) {
	until := observed.Now.Add(conflictDelay)
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

// takenBy says who has a name that a create ended in.
func takenBy(err error, until time.Time) lifecycle.Taken {
	var leaving leavingError
	if errors.As(err, &leaving) {
		return lifecycle.Taken{Until: until, Leaving: leaving.leaving}
	}
	return lifecycle.Taken{Message: err.Error(), Until: until}
}

// observeConflicts adds the names that others have.
func (s *jobStates) observeConflicts(observed *lifecycle.Observed) {
	observed.TakenPods, observed.TakenServices, observed.TakenConfigMaps = map[string]lifecycle.Taken{}, map[string]lifecycle.Taken{}, map[string]lifecycle.Taken{}
	s.update(client.ObjectKeyFromObject(observed.Job), func(state *jobState) {
		for i := range state.conflicts {
			each := &state.conflicts[i]
			if names := each.among(observed); names != nil && each.job == observed.Job.UID {
				names[each.name] = each.taken
			}
		}
	})
}

// among returns the names of its kind, nil for a kind whose names are not waited for.
func (c *conflict) among(observed *lifecycle.Observed) map[string]lifecycle.Taken {
	switch c.kind {
	case reflect.TypeFor[*corev1.Pod]():
		return observed.TakenPods
	case reflect.TypeFor[*corev1.Service]():
		return observed.TakenServices
	case reflect.TypeFor[*corev1.ConfigMap]():
		return observed.TakenConfigMaps
	}
	return nil
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
	if recorded := conditions.Find(&observed.Job.Status, v2alpha1.ConditionNameConflict); recorded != nil && recorded.Status == corev1.ConditionTrue {
		isRecent := recorded.LastUpdateTime != nil && observed.Now.Sub(recorded.LastUpdateTime.Time) < conflictDelay-time.Second
		if isRecent {
			return recorded.Message
		}
	}
	slices.Sort(conflicts)
	if len(conflicts) > limits.Named {
		conflicts = append(conflicts[:limits.Named:limits.Named], "and so are others")
	}
	return strings.Join(conflicts, "; ")
}
