// Copyright The DI Orchestrator Authors.
// SPDX-License-Identifier: Apache-2.0

package membership

import (
	"opendilab.org/di-orchestrator/apis/v2alpha1"
	"opendilab.org/di-orchestrator/internal/limits"
	"opendilab.org/di-orchestrator/internal/names"
)

// Ports returns the port that a pod of the role serves on.
type Ports func(pod string, role names.ReplicaType) int32

// Endpoints derive the URLs of a job's replicas from their names and ports.
type Endpoints struct {
	// Namespace is the namespace of the job.
	Namespace string
	// Job is the name of the job.
	Job string
	// Ports tells the ports of its pods.
	Ports Ports
}

// URLs are the addresses of replicas as clients compare them.
type URLs struct {
	// Collectors are the addresses of collectors.
	Collectors []string
	// Learners are the addresses of learners; of one of several GPUs that of
	// its aggregator.
	Learners []string
}

// URLs returns the addresses of members, in their order; neither list is nil.
func (e Endpoints) URLs(members []v2alpha1.Member, status *v2alpha1.MembershipStatus) URLs {
	urls := URLs{Collectors: []string{}, Learners: []string{}}
	lost := lostBySlot(status)
	for i := range members {
		member := &members[i]
		e.list(&urls, member.Task, PodName(e.Job, member, lost[member.Slot]), 0)
	}
	return urls
}

// DDPURLs returns the addresses of the DDP learners that go with an aggregator
// of a member, one per GPU process: those of a pod are on consecutive ports, the
// pods in rank order.
func (e Endpoints) DDPURLs(member *v2alpha1.Member, aggregator string) []string {
	urls := []string{}
	for index, pod := range DDPPodNames(e.Job, member, aggregator) {
		port := e.Ports(pod, names.ReplicaTypeDDPLearner)
		gpus := min(member.DDPGPUs[index], int32(limits.GPUs-len(urls)))
		urls = append(urls, GPUURLs(pod, e.Namespace, port, gpus)...)
	}
	return urls
}

// GPUURLs returns the addresses of the GPU processes of one DDP learner pod,
// which serve on consecutive ports from the first one on.
func GPUURLs(pod, namespace string, first, gpus int32) []string {
	gpus = min(max(gpus, 0), limits.GPUs)
	urls := make([]string, 0, gpus)
	for gpu := range gpus {
		urls = append(urls, names.ReplicaURL(pod, namespace, first+gpu))
	}
	return urls
}
