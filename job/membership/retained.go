// Copyright The DI Orchestrator Authors.
// SPDX-License-Identifier: Apache-2.0

package membership

import (
	"slices"
	"sort"
	"strings"

	"opendilab.org/di-orchestrator/apis/v2alpha1"
	"opendilab.org/di-orchestrator/internal/limits"
	"opendilab.org/di-orchestrator/internal/names"
)

// A deployed coordinator disconnects from every URL that disappears from its list. It fails its job
// if it cannot reach the pod. So the URL of a lost pod stays advertised, next to that of its
// replacement and after the removal of the member. It stays until the coordinator reports the pod
// as failed or restarts.

// lostPod is a lost pod of a member that is still advertised.
type lostPod struct {
	// incarnation counts the member's pods from 0.
	incarnation int32
	name        string
	// port is the port that it served on; 0 if it is unknown.
	port int32
}

// lostPods returns the youngest lost pods of a member that are still advertised, at most kept of
// them, oldest first.
func lostPods(job string, member *v2alpha1.Member, status *v2alpha1.MembershipStatus, lost, kept int32) []lostPod {
	var pods []lostPod
	end := limits.Sum(member.FailureReports, lost)
	for incarnation := end - min(lostOf(member, lost), kept); incarnation < end; incarnation++ {
		if !slices.Contains(member.Withdrawn, incarnation) {
			pods = append(pods, lostPod{
				incarnation, podNameAt(job, member, incarnation), portAt(status, member.Slot, incarnation),
			})
		}
	}
	return pods
}

// lostOf returns how many of a member's pods were lost since the first advertised one.
func lostOf(member *v2alpha1.Member, lost int32) int32 {
	return max(limits.Sum(member.FailureReports, lost)-max(member.AdvertisedFrom, 0), 0)
}

// keptOfEach returns how many lost pods of each member stay advertised, so that
// their total is at most LostListed. Members with the most losses drop their oldest.
func keptOfEach(members []v2alpha1.Member, lost map[string]int32) int32 {
	listed := func(kept int32) int64 {
		var total int64
		for i := range members {
			total += int64(min(lostOf(&members[i], lost[members[i].Slot]), kept))
		}
		return total
	}
	least := sort.Search(limits.LostListed, func(kept int) bool { return listed(int32(kept+1)) > limits.LostListed })
	return int32(max(least, 1))
}

// portAt returns the port that a pod of a slot, counted from 0, served on; 0 if
// it was not recorded.
func portAt(status *v2alpha1.MembershipStatus, slot string, incarnation int32) int32 {
	i := slices.IndexFunc(status.Slots, func(recorded v2alpha1.SlotStatus) bool { return recorded.Slot == slot })
	if i < 0 {
		return 0
	}
	var port int32
	for _, recorded := range status.Slots[i].Ports {
		if recorded.From <= incarnation {
			port = recorded.Port
		}
	}
	return port
}

// RecordPort adds the port of a slot's nth pod, counted from 0, to the ports of the slot. Usually
// all pods of a slot have the same port.
func RecordPort(ports []v2alpha1.SlotPort, incarnation, port int32) []v2alpha1.SlotPort {
	if last := len(ports) - 1; last >= 0 && (ports[last].Port == port || ports[last].From >= incarnation) {
		return ports
	}
	ports = append(slices.Clone(ports), v2alpha1.SlotPort{From: incarnation, Port: port})
	return ports[max(len(ports)-limits.Ports, 0):]
}

// withdraw stops advertising one of a member's pods.
func withdraw(member *v2alpha1.Member, incarnation int32) {
	if incarnation < member.AdvertisedFrom || slices.Contains(member.Withdrawn, incarnation) {
		return
	}
	member.Withdrawn = append(member.Withdrawn, incarnation)
	if len(member.Withdrawn) > limits.LostListed {
		// Pods before it are too old to be advertised.
		member.AdvertisedFrom = slices.Min(member.Withdrawn)
		member.Withdrawn = slices.DeleteFunc(member.Withdrawn, func(each int32) bool { return each < member.AdvertisedFrom })
	}
	for {
		i := slices.Index(member.Withdrawn, member.AdvertisedFrom)
		if i < 0 {
			break
		}
		member.Withdrawn = slices.Delete(member.Withdrawn, i, i+1)
		member.AdvertisedFrom++
	}
	if len(member.Withdrawn) == 0 {
		member.Withdrawn = nil
	}
}

// withdrawLost stops advertising all lost pods, because the coordinator that knew them is gone.
func withdrawLost(spec *v2alpha1.MembershipSpec, status *v2alpha1.MembershipStatus) {
	lost := lostBySlot(status)
	for i := range spec.Members {
		member := &spec.Members[i]
		member.AdvertisedFrom, member.Withdrawn = limits.Sum(member.FailureReports, lost[member.Slot]), nil
	}
	spec.RetainedPods = nil
}

// retain keeps the youngest lost pods of removed members. Their number is bounded. A list that
// outgrows an etcd object could no longer be changed, and a failed request ends the coordinator.
func retain(job string, spec *v2alpha1.MembershipSpec, status *v2alpha1.MembershipStatus, removed []v2alpha1.Member) {
	lost := lostBySlot(status)
	kept := keptOfEach(removed, lost)
	for i := range removed {
		for _, pod := range lostPods(job, &removed[i], status, lost[removed[i].Slot], kept) {
			spec.RetainedPods = append(spec.RetainedPods, v2alpha1.RetainedPod{Task: removed[i].Task, PodName: pod.name, Port: pod.port})
		}
	}
	spec.RetainedPods = slices.Delete(spec.RetainedPods, 0, max(len(spec.RetainedPods)-limits.LostListed, 0))
}

// Listed returns the advertised URLs: those of all members, of their lost pods and
// of the retained pods. Neither list is nil.
func (e Endpoints) Listed(spec *v2alpha1.MembershipSpec, status *v2alpha1.MembershipStatus) URLs {
	urls := URLs{Collectors: []string{}, Learners: []string{}}
	lost := lostBySlot(status)
	kept := keptOfEach(spec.Members, lost)
	for i := range spec.Members {
		member := &spec.Members[i]
		for _, pod := range lostPods(e.Job, member, status, lost[member.Slot], kept) {
			e.list(&urls, member.Task, pod.name, pod.port)
		}
		e.list(&urls, member.Task, PodName(e.Job, member, lost[member.Slot]), 0)
	}
	for i := range spec.RetainedPods {
		e.list(&urls, spec.RetainedPods[i].Task, spec.RetainedPods[i].PodName, spec.RetainedPods[i].Port)
	}
	urls.Collectors, urls.Learners = eachOnce(urls.Collectors), eachOnce(urls.Learners)
	return urls
}

// eachOnce removes duplicates: two members may briefly have the same name.
func eachOnce(urls []string) []string {
	seen := make(map[string]bool, len(urls))
	return slices.DeleteFunc(urls, func(url string) bool {
		isSeen := seen[url]
		seen[url] = true
		return isSeen
	})
}

// list adds the URL of a pod of a task. A recorded port belongs to a lost pod, because the template
// may have another port now.
func (e Endpoints) list(urls *URLs, task v2alpha1.TaskType, pod string, recorded int32) {
	role := names.ReplicaType(task)
	if strings.HasPrefix(pod, names.ReplicaPod(e.Job, names.ReplicaTypeAggregator, "")) {
		role = names.ReplicaTypeAggregator
	}
	port := recorded
	if port == 0 {
		port = e.Ports(pod, role)
	}
	url := names.ReplicaURL(pod, e.Namespace, port)
	if task == v2alpha1.TaskTypeLearner {
		urls.Learners = append(urls.Learners, url)
	} else {
		urls.Collectors = append(urls.Collectors, url)
	}
}
