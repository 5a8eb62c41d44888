// Copyright The DI Orchestrator Authors.
// SPDX-License-Identifier: Apache-2.0

package incluster

import (
	"encoding/json"
	"fmt"
	"slices"

	corev1 "k8s.io/api/core/v1"
	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"

	"opendilab.org/di-orchestrator/apis/v2alpha1"
	"opendilab.org/di-orchestrator/internal/conditions"
	"opendilab.org/di-orchestrator/job/podstate"
	"opendilab.org/di-orchestrator/sim/simulator"
)

// template is the pod template of every job.
const template = `{"spec":{"terminationGracePeriodSeconds":1,"containers":[{"name":"di-container","image":"simulated",` +
	`"resources":{"limits":{"` + string(gpu) + `":"1"}}}]}}`

// manifest returns the job as it is submitted.
func (s *simulated) manifest(cluster *simulator.Cluster) *v2alpha1.DIJob {
	most, group := ptr.To(int32(s.row.MaxReplicas(s.Submission, cluster))), s.Name
	if s.row.History {
		group = s.Application.Name
	}
	return &v2alpha1.DIJob{
		ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: s.Name},
		Spec: v2alpha1.DIJobSpec{
			Preemptible: true, Group: group, CleanPodPolicy: v2alpha1.CleanPodPolicyAll,
			Elastic: &v2alpha1.Elastic{MinReplicas: ptr.To[int32](1), MaxReplicas: most},
			Tasks: []v2alpha1.Task{{
				Type: v2alpha1.TaskTypeNone, Name: "worker", Replicas: most,
				Template: v2alpha1.RawObject{JSON: apiextensionsv1.JSON{Raw: []byte(template)}},
			}},
		},
	}
}

// simulated is a job of the workload.
type simulated struct {
	*simulator.Submission
	row     simulator.Row
	trainer *simulator.Trainer
	// isSubmitted reports whether the job was created, and isOver whether the operator has finished it.
	isSubmitted, isOver bool
	// placed are the nodes by rank that it trains on; nil while it does not train.
	placed []string
	// reported is the second of the last report, and observed its number of observations.
	reported, observed int
	// gpus is what was last recorded, and starved for how many seconds it had none while others had several.
	gpus, starved int
}

// observe compares a job with its pods, and moves it to its placement once all replicas run. It reports
// whether the operator has decided about it and carried that out.
func (s *simulated) observe(job *v2alpha1.DIJob, pods []*corev1.Pod, restart int) (settled bool) {
	if s.trainer.Done() {
		return s.isOver
	}
	wanted := job.Status.Allocation
	runs := len(wanted) > 0 && runOn(pods, wanted)
	switch {
	case runs && slices.Equal(wanted, s.placed):
	case runs:
		s.placed = slices.Clone(wanted)
		s.trainer.Place(indexes(wanted), restart)
	case len(s.placed) > 0:
		s.placed = nil
		s.trainer.Place(nil, restart)
	}
	isDecided := conditions.Find(&job.Status, v2alpha1.ConditionAllocated) != nil
	return runs || isDecided && len(wanted) == 0 && len(pods) == 0
}

// runOn reports whether the pods are the replicas of a placement, and all of them run.
func runOn(pods []*corev1.Pod, nodes []string) bool {
	if len(pods) != len(nodes) {
		return false
	}
	for _, pod := range pods {
		rank := int(podstate.Rank(pod))
		if rank < 0 || rank >= len(nodes) || pod.Spec.NodeName != nodes[rank] || pod.Status.Phase != corev1.PodRunning || podstate.Terminating(pod) {
			return false
		}
	}
	return true
}

// indexes returns the indexes of nodes.
func indexes(nodes []string) []int {
	all := make([]int, len(nodes))
	for rank, name := range nodes {
		// A name that is none of createNodes' stays at index 0.
		_, _ = fmt.Sscanf(name, "node-%d", &all[rank])
	}
	return all
}

// isDue reports whether the job has something new to report.
func (s *simulated) isDue(now, interval int) bool {
	job := s.trainer.Job()
	return !s.row.Fixed && (len(job.Observations) > s.observed || s.trains() && now-s.reported >= interval)
}

// trains reports whether the job trains: it is placed, and has restarted.
func (s *simulated) trains() bool { return len(s.placed) > 0 && s.trainer.Job().Restarting == 0 }

// report returns the patch by which di-server stores what the job reports.
func (s *simulated) report() ([]byte, error) {
	raw, err := json.Marshal(map[string]any{"status": map[string]any{"profilings": s.row.Report(s.trainer.Job(), &simulator.Cluster{})}})
	if err != nil {
		return nil, fmt.Errorf("encoding the report of job %s: %w", s.Name, err)
	}
	return raw, nil
}
