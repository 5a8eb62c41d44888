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

// peersOf returns the list of peers that a pod was created with, "" if it is unknown.
func (f *facts) peersOf(pod *corev1.Pod) string {
	return workload.ToldNodes(pod, f.in.ConfigMapNamed)
}

// keepNodes recreates the ConfigMap that active pods refer to, and deletes those to which no pod
// refers. While pods are created, earlier ConfigMaps stay, because the next pods mostly refer to
// the same one.
func (a *assigned) keepNodes() state.Result {
	for _, pod := range a.in.Pods {
		if !podstate.Finished(pod) && !a.out.Deleting[pod] && a.facts.lacksNodes(pod) && a.currentNodes() == workload.NodesOf(pod) {
			a.ensureNodes()
			break
		}
	}
	if a.isFilled() || state.IsUnplaced(a.in.Job) {
		a.out.DeleteUnusedNodes()
	}
	return state.Continue
}

// lacksNodes reports whether a pod refers to a ConfigMap that does not exist.
func (f *facts) lacksNodes(pod *corev1.Pod) bool {
	name := workload.NodesOf(pod)
	return name != "" && f.in.ConfigMapNamed[name] == nil
}

// hasLostNodes reports whether a pod waits for a ConfigMap that cannot be recreated because the
// rank assignment has changed. Such a pod is replaced.
func (a *assigned) hasLostNodes(pod *corev1.Pod) bool {
	return isStarting(pod) && a.facts.lacksNodes(pod) && a.currentNodes() != workload.NodesOf(pod)
}

// currentNodes returns the name of the ConfigMap for pods that are created now, "" if it
// cannot be built.
func (a *assigned) currentNodes() string {
	configMap, err := a.in.Builder.NodesConfigMap(&a.assignment)
	if err != nil {
		return ""
	}
	return configMap.Name
}

// provideNodes makes sure that pods that are created now find their peers. It reports whether they
// contain the addresses, or their ConfigMap exists or is created before them.
func (a *assigned) provideNodes() bool {
	needed, err := a.in.Builder.NeedsNodesConfigMap(&a.assignment)
	// An error is reported for the pods.
	return err == nil && (!needed || a.ensureNodes())
}

// ensureNodes creates the ConfigMap of the rank assignment. It reports whether the ConfigMap exists
// or is created before the pods.
func (a *assigned) ensureNodes() bool {
	configMap, err := a.in.Builder.NodesConfigMap(&a.assignment)
	switch {
	case err != nil:
		// The problem is reported for the pods.
		return false
	case a.in.ConfigMapNamed[configMap.Name] != nil, a.creates(configMap.Name):
		return true
	case a.out.IsConfigMapTaken(configMap.Name), !a.out.MayCreate(state.KindConfigMaps):
		return false
	}
	a.out.Decision.CreateConfigMaps = append(a.out.Decision.CreateConfigMaps, configMap)
	a.out.DeleteNodes(func(other *corev1.ConfigMap) bool { return other.Name == configMap.Name })
	return true
}

// creates reports whether the plan creates a ConfigMap with the name.
func (a *assigned) creates(configMap string) bool {
	return slices.ContainsFunc(a.out.Decision.CreateConfigMaps, func(planned *corev1.ConfigMap) bool { return planned.Name == configMap })
}

// isFilled reports whether every replica has a pod that stays, or needs none.
func (a *assigned) isFilled() bool {
	return !slices.ContainsFunc(a.assignment.Replicas, func(replica workload.Replica) bool {
		pod := a.in.PodNamed[replica.Pod]
		return !a.completed().Has(replica.Rank) && (pod == nil || podstate.Terminating(pod) || podstate.Finished(pod) || a.out.Deleting[pod])
	})
}
