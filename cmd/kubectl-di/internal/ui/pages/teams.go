// Copyright The DI Orchestrator Authors.
// SPDX-License-Identifier: Apache-2.0

package pages

import (
	"cmp"
	"slices"

	"k8s.io/apimachinery/pkg/types"

	"opendilab.org/di-orchestrator/cmd/kubectl-di/internal/replicas"
	"opendilab.org/di-orchestrator/cmd/kubectl-di/internal/ui/api"
)

// teams counts the jobs of each namespace, group and queue that have not finished, and what their pods hold.
func teams(jobs []Job, waiting []api.Waiting, pods []*PodUse) []api.Team {
	waits := map[types.NamespacedName]bool{}
	for i := range waiting {
		waits[types.NamespacedName{Namespace: waiting[i].Namespace, Name: waiting[i].Name}] = true
	}
	held := map[types.NamespacedName]request{}
	for _, pod := range pods {
		if key := (types.NamespacedName{Namespace: pod.Namespace, Name: pod.Job}); pod.Active && pod.Node != "" {
			before := held[key]
			held[key] = request{before.gpus + pod.GPUs, before.cpu + pod.CPU, before.memory + pod.Memory}
		}
	}
	counted := []api.Team{}
	for _, job := range jobs {
		if replicas.IsFinished(job.DIJob) {
			continue
		}
		key := types.NamespacedName{Namespace: job.Namespace, Name: job.Name}
		for _, team := range teamsOf(job.Row) {
			at := slices.IndexFunc(counted, func(one api.Team) bool {
				return one.Kind == team.Kind && one.Namespace == team.Namespace && one.Name == team.Name
			})
			if at < 0 {
				at, counted = len(counted), append(counted, team)
			}
			tally(&counted[at], waits[key], held[key])
		}
	}
	slices.SortFunc(counted, func(a, b api.Team) int {
		return cmp.Or(cmp.Compare(a.Kind, b.Kind), cmp.Compare(b.GPUs, a.GPUs), cmp.Compare(b.CPU, a.CPU), cmp.Compare(a.Namespace, b.Namespace), cmp.Compare(a.Name, b.Name))
	})
	return counted[:min(len(counted), mostListed)]
}

// teamsOf returns the teams that a job is of.
func teamsOf(row *api.JobRow) []api.Team {
	all := []api.Team{{Kind: "namespace", Namespace: row.Namespace, Name: row.Namespace}}
	for kind, name := range map[string]string{"group": row.Group, "queue": row.Queue} {
		if name != "" {
			all = append(all, api.Team{Kind: kind, Namespace: row.Namespace, Name: name})
		}
	}
	return all
}

func tally(team *api.Team, waits bool, held request) {
	team.Jobs++
	if waits {
		team.Waiting++
	}
	team.GPUs, team.CPU, team.Memory = team.GPUs+held.gpus, team.CPU+held.cpu, team.Memory+held.memory
}
