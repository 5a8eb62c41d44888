// Copyright The DI Orchestrator Authors.
// SPDX-License-Identifier: Apache-2.0

package membership

import (
	"opendilab.org/di-orchestrator/apis/v2alpha1"
	"opendilab.org/di-orchestrator/internal/limits"
	"opendilab.org/di-orchestrator/internal/names"
)

// Ports returns the port that a pod of a role serves on.
type Ports func(pod string, role names.ReplicaType) int32

// Endpoints derive the URLs of a job's replicas from their names and ports.
type Endpoints struct {
	// Namespace is the namespace of the job.
	Namespace string
	// Job is the name of the job.
	Job string
	// Ports returns the ports of its pods.
	Ports Ports
}

// URLs are the URLs of replicas, which clients compare as strings.
type URLs struct {
	// Collectors are the URLs of collectors.
	Collectors []string
	// Learners are the URLs of learners, or of their aggregators.
	Learners []string
}

// URLs returns the URLs of members, in their order; neither list is nil.
func (e Endpoints) URLs(members []v2alpha1.Member, status *v2alpha1.MembershipStatus) URLs {
	urls := URLs{Collectors: []string{}, Learners: []string{}}
	lost := lostBySlot(status)
	for i := range members {
		member := &members[i]
		e.list(&urls, member.Task, PodName(e.Job, member, lost[member.Slot]), 0)
	}
	return urls
}

// DDPURLs returns the URLs of the DDP learners of a member's aggregator, one per GPU
// process: the pods in rank order, each with consecutive ports.
func (e Endpoints) DDPURLs(member *v2alpha1.Member, aggregator string) []string {
	urls := []string{}
	for index, pod := range DDPPodNames(e.Job, member, aggregator) {
		port := e.Ports(pod, names.ReplicaTypeDDPLearner)
		gpus := min(member.DDPGPUs[index], int32(limits.GPUs-len(urls)))
		urls = append(urls, GPUURLs(pod, e.Namespace, port, gpus)...)
	}
	return urls
}

// GPUURLs returns the URLs of the GPU processes of one DDP learner pod, which serve
// on consecutive ports.
func GPUURLs(pod, namespace string, first, gpus int32) []string {
	gpus = min(max(gpus, 0), limits.GPUs)
	urls := make([]string, 0, gpus)
	for gpu := range gpus {
		urls = append(urls, names.ReplicaURL(pod, namespace, first+gpu))
	}
	return urls
}
