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

// A deployed coordinator takes leave of every URL that disappears from its
// list, and gives its job up when it cannot reach it. So the URL of a lost pod
// lingers: it stays listed, beside its replacement's and after the member is
// removed, until the coordinator reports it failed, or is restarted and knows
// it no more.

// lostPod is a pod of a member that was lost and is still listed.
type lostPod struct {
	// incarnation counts the member's pods from 0.
	incarnation int32
	name        string
	// port is the port that it served on; 0 where that is not known.
	port int32
}

// lostPods returns the pods of a member that were lost and are still listed,
// oldest first, and of those the youngest that are kept.
func lostPods(job string, member *v2alpha1.Member, status *v2alpha1.MembershipStatus, lost, kept int32) []lostPod {
	var pods []lostPod
	end := limits.Sum(member.Reported, lost)
	for incarnation := end - min(lostOf(member, lost), kept); incarnation < end; incarnation++ {
		if !slices.Contains(member.Delisted, incarnation) {
			pods = append(pods, lostPod{
				incarnation, podNameAt(job, member, incarnation), portAt(status, member.Slot, incarnation),
			})
		}
	}
	return pods
}

// lostOf returns how many of a member's pods were lost since the first that is listed.
func lostOf(member *v2alpha1.Member, lost int32) int32 {
	return max(limits.Sum(member.Reported, lost)-max(member.ListedFrom, 0), 0)
}

// keptOfEach returns how many lost pods of each member stay listed, so that those of all
// are at most LostListed: of the members that lost most the oldest go first.
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

// portAt returns the port that a pod of a slot, counted from 0, served on; 0
// where that was not recorded.
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

// RecordPort returns the ports of a slot's pods with that of the pod of that
// number, counted from 0. Mostly all pods of a slot have the same.
func RecordPort(ports []v2alpha1.SlotPort, incarnation, port int32) []v2alpha1.SlotPort {
	if last := len(ports) - 1; last >= 0 && (ports[last].Port == port || ports[last].From >= incarnation) {
		return ports
	}
	ports = append(slices.Clone(ports), v2alpha1.SlotPort{From: incarnation, Port: port})
	return ports[max(len(ports)-limits.Ports, 0):]
}

// delist lets one of a member's pods be listed no more.
func delist(member *v2alpha1.Member, incarnation int32) {
	if incarnation < member.ListedFrom || slices.Contains(member.Delisted, incarnation) {
		return
	}
	member.Delisted = append(member.Delisted, incarnation)
	if len(member.Delisted) > limits.LostListed {
		// Pods before it are too old to be listed.
		member.ListedFrom = slices.Min(member.Delisted)
		member.Delisted = slices.DeleteFunc(member.Delisted, func(each int32) bool { return each < member.ListedFrom })
	}
	for {
		i := slices.Index(member.Delisted, member.ListedFrom)
		if i < 0 {
			break
		}
		member.Delisted = slices.Delete(member.Delisted, i, i+1)
		member.ListedFrom++
	}
	if len(member.Delisted) == 0 {
		member.Delisted = nil
	}
}

// Forget lets no lost pod be listed any more: the coordinator that knew them
// is gone.
func Forget(spec *v2alpha1.MembershipSpec, status *v2alpha1.MembershipStatus) {
	lost := lostBySlot(status)
	for i := range spec.Members {
		member := &spec.Members[i]
		member.ListedFrom, member.Delisted = limits.Sum(member.Reported, lost[member.Slot]), nil
	}
	spec.Lingering = nil
}

// linger keeps the lost pods of members that are removed, and of all the youngest: a
// list that outgrows what is stored could not be changed any more, and a request that
// fails ends the coordinator for sure.
func linger(job string, spec *v2alpha1.MembershipSpec, status *v2alpha1.MembershipStatus, removed []v2alpha1.Member) {
	lost := lostBySlot(status)
	kept := keptOfEach(removed, lost)
	for i := range removed {
		for _, pod := range lostPods(job, &removed[i], status, lost[removed[i].Slot], kept) {
			spec.Lingering = append(spec.Lingering, v2alpha1.LingeringPod{Task: removed[i].Task, PodName: pod.name, Port: pod.port})
		}
	}
	spec.Lingering = slices.Delete(spec.Lingering, 0, max(len(spec.Lingering)-limits.LostListed, 0))
}

// Listed returns the addresses that a coordinator is told: those of all members
// and of the lost pods that linger; neither list is nil.
func (p Place) Listed(spec *v2alpha1.MembershipSpec, status *v2alpha1.MembershipStatus) URLs {
	urls := URLs{Collectors: []string{}, Learners: []string{}}
	lost := lostBySlot(status)
	kept := keptOfEach(spec.Members, lost)
	for i := range spec.Members {
		member := &spec.Members[i]
		for _, pod := range lostPods(p.Job, member, status, lost[member.Slot], kept) {
			p.list(&urls, member.Task, pod.name, pod.port)
		}
		p.list(&urls, member.Task, PodName(p.Job, member, lost[member.Slot]), 0)
	}
	for i := range spec.Lingering {
		p.list(&urls, spec.Lingering[i].Task, spec.Lingering[i].PodName, spec.Lingering[i].Port)
	}
	urls.Collectors, urls.Learners = eachOnce(urls.Collectors), eachOnce(urls.Learners)
	return urls
}

// eachOnce leaves out what is listed before: for a moment two members may have one name.
func eachOnce(urls []string) []string {
	seen := make(map[string]bool, len(urls))
	return slices.DeleteFunc(urls, func(url string) bool {
		isSeen := seen[url]
		seen[url] = true
		return isSeen
	})
}

// list adds the address of a pod of a task. A port that was recorded is that of
// a pod that is lost: its template may have another by now.
func (p Place) list(urls *URLs, task v2alpha1.TaskType, pod string, recorded int32) {
	role := names.ReplicaType(task)
	if strings.HasPrefix(pod, names.ReplicaPod(p.Job, names.ReplicaTypeAggregator, "")) {
		role = names.ReplicaTypeAggregator
	}
	port := recorded
	if port == 0 {
		port = p.Ports(pod, role)
	}
	url := names.ReplicaURL(pod, p.Namespace, port)
	if task == v2alpha1.TaskTypeLearner {
		urls.Learners = append(urls.Learners, url)
	} else {
		urls.Collectors = append(urls.Collectors, url)
	}
}
