// Copyright The DI Orchestrator Authors.
// SPDX-License-Identifier: Apache-2.0

package workerled

import (
	"k8s.io/utils/ptr"

	"opendilab.org/di-orchestrator/internal/lifecycle/sizing"
	"opendilab.org/di-orchestrator/internal/lifecycle/state"

	"opendilab.org/di-orchestrator/apis/v2alpha1"
	"opendilab.org/di-orchestrator/internal/names"
)

// nameElastic writes the elastic task and its count into the spec of a job that was
// stored before the webhook did. The API server cannot serve the scale subresource
// without them.
func (p *Plan) nameElastic() state.Result {
	elastic := names.ElasticTask(&p.Job.Spec)
	written := ptr.Deref(p.Job.Spec.Elastic, v2alpha1.Elastic{})
	if elastic < 0 || written.Replicas != nil && written.Task != "" || state.IsFinished(&p.Job.Status) {
		return state.Continue
	}
	written.Task = names.TaskName(&p.Job.Spec.Tasks[elastic])
	written.Replicas = ptr.To(sizing.Count(p.Job, elastic))
	p.Decision.Elastic = &written
	return state.Continue
}
