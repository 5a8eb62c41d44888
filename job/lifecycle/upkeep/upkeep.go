// Copyright The DI Orchestrator Authors.
// SPDX-License-Identifier: Apache-2.0

// Package upkeep has the rules that apply to every job after those of its lifecycle: pods of lost nodes, the disruption
// budget, the queue, and what others changed.
package upkeep

import (
	"fmt"
	"maps"
	"slices"

	"opendilab.org/di-orchestrator/apis/v2alpha1"
	"opendilab.org/di-orchestrator/internal/names"
	"opendilab.org/di-orchestrator/job/lifecycle/state"
	"opendilab.org/di-orchestrator/job/podstate"
)

// Rules are the rules that apply to every job, after those of its lifecycle.
type Rules struct {
	out *state.Plan
	in  *state.Input
}

// New returns the rules of the upkeep of a job.
func New(out *state.Plan, in *state.Input) Rules { return Rules{out: out, in: in} }

// ReportAltered sets the condition that names what admission changed of the pods that run. Each change names one
// pod, so that the message does not change with every pod.
func (u Rules) ReportAltered() {
	pods := map[string]string{}
	for _, pod := range u.in.Pods {
		altered := pod.Annotations[names.AnnotationAltered]
		if altered == "" || podstate.Finished(pod) || podstate.Terminating(pod) {
			continue
		}
		if first, has := pods[altered]; !has || pod.Name < first {
			pods[altered] = pod.Name
		}
	}
	var problems []string
	for _, altered := range slices.Sorted(maps.Keys(pods)) {
		problems = append(problems, fmt.Sprintf("admission changed %s, of pod %s for example: exempt pods that a DIJob owns", altered, pods[altered]))
	}
	u.out.ReportCondition(v2alpha1.ConditionPodsChanged, v2alpha1.ReasonChangedByAdmission, problems)
}
