// Copyright The DI Orchestrator Authors.
// SPDX-License-Identifier: Apache-2.0

package workerled

import (
	"slices"

	corev1 "k8s.io/api/core/v1"

	"opendilab.org/di-orchestrator/internal/lifecycle/state"
	"opendilab.org/di-orchestrator/internal/podstate"
	"opendilab.org/di-orchestrator/internal/workload"
)

// The pods of a worker-led job contain the addresses of their peers, or read long ones from a
// ConfigMap, which all pods of one rank assignment share. The kubelet reads it whenever it starts a
// container, so the ConfigMap stays while such a pod exists. Its name contains a digest of its
// content: the same assignment has the same name in every reconcile, and content that another program
// wrote under that name is detected.

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

// keepNodes recreates the ConfigMap that active pods refer to, and deletes those to which no pod
// refers. While pods are created, earlier ConfigMaps stay, because the next pods mostly refer to
// the same one.
func (s *staffing) keepNodes() state.Result {
	for _, pod := range s.in.Pods {
		if !podstate.Finished(pod) && !s.out.Deleting[pod] && s.facts.lacksNodes(pod) && s.currentNodes() == workload.NodesOf(pod) {
			s.ensureNodes()
			break
		}
	}
	if s.isFilled() || state.IsUnplaced(s.in.Job) {
		s.out.DeleteUnusedNodes()
	}
	return state.Continue
}

// hasLostNodes reports whether a pod waits for a ConfigMap that cannot be recreated because the
// rank assignment has changed. Such a pod is replaced.
func (s *staffing) hasLostNodes(pod *corev1.Pod) bool {
	return isStarting(pod) && s.facts.lacksNodes(pod) && s.currentNodes() != workload.NodesOf(pod)
}

// currentNodes returns the name of the ConfigMap for pods that are created now, "" if it
// cannot be built.
func (s *staffing) currentNodes() string {
	configMap, err := s.in.Builder.NodesConfigMap(&s.ranked.assignment)
	if err != nil {
		return ""
	}
	return configMap.Name
}

// provideNodes makes sure that pods that are created now find their peers. It reports whether they
// contain the addresses, or their ConfigMap exists or is created before them.
func (s *staffing) provideNodes() bool {
	needed, err := s.in.Builder.NeedsNodesConfigMap(&s.ranked.assignment)
	// An error is reported for the pods.
	return err == nil && (!needed || s.ensureNodes())
}

// ensureNodes creates the ConfigMap of the rank assignment. It reports whether the ConfigMap exists
// or is created before the pods.
func (s *staffing) ensureNodes() bool {
	configMap, err := s.in.Builder.NodesConfigMap(&s.ranked.assignment)
	switch {
	case err != nil:
		// The problem is reported for the pods.
		return false
	case s.in.ConfigMapNamed[configMap.Name] != nil, s.creates(configMap.Name):
		return true
	case s.out.IsConfigMapTaken(configMap.Name), !s.out.MayCreate(state.KindConfigMaps):
		return false
	}
	s.out.Decision.CreateConfigMaps = append(s.out.Decision.CreateConfigMaps, configMap)
	s.out.DeleteNodes(func(other *corev1.ConfigMap) bool { return other.Name == configMap.Name })
	return true
}

// creates reports whether the plan creates a ConfigMap with the name.
func (s *staffing) creates(configMap string) bool {
	return slices.ContainsFunc(s.out.Decision.CreateConfigMaps, func(planned *corev1.ConfigMap) bool { return planned.Name == configMap })
}

// isFilled reports whether every replica has a pod that stays, or needs none.
func (s *staffing) isFilled() bool {
	return !slices.ContainsFunc(s.ranked.assignment.Replicas, func(replica workload.Replica) bool {
		pod := s.in.PodNamed[replica.Pod]
		return !s.ranked.completed.Has(replica.Rank) && (pod == nil || podstate.Terminating(pod) || podstate.Finished(pod) || s.out.Deleting[pod])
	})
}
