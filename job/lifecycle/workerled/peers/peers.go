// Copyright The DI Orchestrator Authors.
// SPDX-License-Identifier: Apache-2.0

// Package peers keeps the ConfigMaps that tell the pods of a worker-led job their peers.
package peers

import (
	"slices"

	corev1 "k8s.io/api/core/v1"

	"opendilab.org/di-orchestrator/job/lifecycle/state"
	"opendilab.org/di-orchestrator/job/lifecycle/workerled/observed"
	"opendilab.org/di-orchestrator/job/lifecycle/workerled/ranked"
	"opendilab.org/di-orchestrator/job/podstate"
	"opendilab.org/di-orchestrator/job/workload"
)

// The pods of a worker-led job contain the addresses of their peers, or read long ones from a
// ConfigMap, which all pods of one rank assignment share. The kubelet reads it whenever it starts a
// container, so the ConfigMap stays while such a pod exists. Its name contains a digest of its
// content: the same assignment has the same name in every reconcile, and content that another program
// wrote under that name is detected.

// Lists are the rules of the ConfigMaps that tell pods their peers.
type Lists struct {
	out    *state.Plan
	in     *state.Input
	facts  *observed.Facts
	ranked *ranked.Replicas
}

// New returns the rules of the ConfigMaps of replicas with ranks.
func New(out *state.Plan, job *observed.Facts, replicas *ranked.Replicas) *Lists {
	return &Lists{out: out, in: job.In, facts: job, ranked: replicas}
}

// FindMissingNodes returns the names of ConfigMaps that pods wait for and that were not observed.
// They may be missing only from the cache, so the caller must read them live.
func FindMissingNodes(observed state.Observed) []string {
	known := map[string]bool{"": true}
	for _, configMap := range observed.ConfigMaps {
		known[configMap.Name] = true
	}
	var missing []string
	for _, pod := range observed.Pods {
		if name := workload.NodesOf(pod); !known[name] && isStarting(pod) {
			known[name], missing = true, append(missing, name)
		}
	}
	return missing
}

// isStarting reports whether a pod may have containers that were never started.
func isStarting(pod *corev1.Pod) bool {
	return podstate.Phase(pod) == corev1.PodPending && !podstate.Terminating(pod)
}

// KeepNodes recreates the ConfigMap that active pods refer to, and deletes those to which no pod
// refers. While pods are created, earlier ConfigMaps stay, because the next pods mostly refer to
// the same one.
func (l *Lists) KeepNodes() state.Result {
	for _, pod := range l.in.Pods {
		if !podstate.Finished(pod) && !l.out.Deleting[pod] && l.lacksNodes(pod) && l.currentNodes() == workload.NodesOf(pod) {
			l.ensureNodes()
			break
		}
	}
	if l.isFilled() || state.IsUnplaced(l.in.Job) {
		l.out.DeleteUnusedNodes()
	}
	return state.Continue
}

// HasLostNodes reports whether a pod waits for a ConfigMap that cannot be recreated because the
// rank assignment has changed. Such a pod is replaced.
func (l *Lists) HasLostNodes(pod *corev1.Pod) bool {
	return isStarting(pod) && l.lacksNodes(pod) && l.currentNodes() != workload.NodesOf(pod)
}

// lacksNodes reports whether a pod refers to a ConfigMap that does not exist.
func (l *Lists) lacksNodes(pod *corev1.Pod) bool {
	name := workload.NodesOf(pod)
	return name != "" && l.in.ConfigMapNamed[name] == nil
}

// currentNodes returns the name of the ConfigMap for pods that are created now, "" if it
// cannot be built.
func (l *Lists) currentNodes() string {
	configMap, err := l.in.Builder.NodesConfigMap(&l.ranked.Assignment)
	if err != nil {
		return ""
	}
	return configMap.Name
}

// ProvideNodes makes sure that pods that are created now find their peers. It reports whether they
// contain the addresses, or their ConfigMap exists or is created before them.
func (l *Lists) ProvideNodes() bool {
	needed, err := l.in.Builder.NeedsNodesConfigMap(&l.ranked.Assignment)
	// An error is reported for the pods.
	return err == nil && (!needed || l.ensureNodes())
}

// ensureNodes creates the ConfigMap of the rank assignment. It reports whether the ConfigMap exists
// or is created before the pods.
func (l *Lists) ensureNodes() bool {
	configMap, err := l.in.Builder.NodesConfigMap(&l.ranked.Assignment)
	switch {
	case err != nil:
		// The problem is reported for the pods.
		return false
	case l.in.ConfigMapNamed[configMap.Name] != nil, l.creates(configMap.Name):
		return true
	case l.out.IsConfigMapTaken(configMap.Name), !l.out.MayCreate(state.KindConfigMaps):
		return false
	}
	l.out.Decision.CreateConfigMaps = append(l.out.Decision.CreateConfigMaps, configMap)
	l.out.DeleteNodes(map[string]bool{configMap.Name: true})
	return true
}

// creates reports whether the plan creates a ConfigMap with the name.
func (l *Lists) creates(configMap string) bool {
	return slices.ContainsFunc(l.out.Decision.CreateConfigMaps, func(planned *corev1.ConfigMap) bool { return planned.Name == configMap })
}

// isFilled reports whether every replica has a pod that stays, or needs none.
func (l *Lists) isFilled() bool {
	return !slices.ContainsFunc(l.ranked.Assignment.Replicas, func(replica workload.Replica) bool {
		pod := l.in.PodNamed[replica.Pod]
		return !l.ranked.Completed.Has(replica.Rank) && (pod == nil || podstate.Terminating(pod) || podstate.Finished(pod) || l.out.Deleting[pod])
	})
}
