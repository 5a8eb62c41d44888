// Copyright The DI Orchestrator Authors.
// SPDX-License-Identifier: Apache-2.0

package allocation

import (
	"cmp"
	"slices"
	"strings"

	"opendilab.org/di-orchestrator/allocation/model"
)

// Observations returns what the job has reported, each with the span that it was measured at if that is known, and what it had
// measured at other spans before.
func (j *Job) Observations() []model.Observation {
	reported := j.Report.Observations()
	if len(j.Measured) == 0 {
		return reported
	}
	all := slices.Clone(reported)
	for i := range all {
		if at := slices.IndexFunc(j.Measured, func(o model.Observation) bool { return IsSameStep(&o, &all[i]) && o.Step == all[i].Step }); at >= 0 {
			all[i].Span = j.Measured[at].Span
		}
	}
	for _, o := range slices.Backward(j.Measured) {
		isThere := func(other model.Observation) bool { return IsSameStep(&o, &other) && o.Span == other.Span }
		if len(all) < MaxObservations && !slices.ContainsFunc(all, isThere) {
			all = append(all, o)
		}
	}
	slices.SortFunc(all, func(a, b model.Observation) int {
		return cmp.Or(cmp.Compare(a.Nodes, b.Nodes), cmp.Compare(a.Replicas, b.Replicas), cmp.Compare(a.Atomic, b.Atomic),
			strings.Compare(a.Device, b.Device), cmp.Compare(a.Span, b.Span))
	})
	return all
}

// IsSameStep reports whether observations are of the same configuration and devices. Their spans may differ.
func IsSameStep(a, b *model.Observation) bool {
	return a.Nodes == b.Nodes && a.Replicas == b.Replicas && a.Atomic == b.Atomic && a.Device == b.Device
}
