// Copyright The DI Orchestrator Authors.
// SPDX-License-Identifier: Apache-2.0

package model

import (
	"fmt"
	"slices"
	"strings"
)

const (
	collector   = "collector"
	learner     = "learner"
	ddpLearner  = "ddp-learner"
	aggregator  = "aggregator"
	coordinator = "coordinator"

	// nodeGPUs is the number of GPUs of each node.
	nodeGPUs = 8
)

// ports are the ports that the roles serve in the templates of the jobs.
var ports = map[string]int{collector: 22270, learner: 22271, ddpLearner: 22271, aggregator: 22280}

// shape is the request for a replica.
type shape struct {
	task string
	// milliCPUs distinguishes the replicas of different requests.
	milliCPUs int64
	gpus      int32
}

func (s shape) isUnit() bool {
	return s.task == learner && s.gpus > 1
}

// role returns the role of the pod whose URL is listed.
func (s shape) role() string {
	if s.isUnit() {
		return aggregator
	}
	return s.task
}

// cut returns the number of GPUs of each DDP learner pod.
func (s shape) cut() []int32 {
	if !s.isUnit() {
		return nil
	}
	var cut []int32
	for left := s.gpus; left > 0; left -= nodeGPUs {
		cut = append(cut, min(left, nodeGPUs))
	}
	return cut
}

// replica is a desired replica of the job.
type replica struct {
	shape
	// born is the name of the replica's first pod, which identifies its slot. slot is its identity
	// in the cluster; "" while unknown.
	born, slot string
	// url is the URL of the running pod; "" while no client knows the name of the replacement pod.
	url string
	// learners are the known DDP learner pods of a unit, in rank order.
	learners []string
	// lost are URLs of lost pods that are still advertised.
	lost []string
}

// pods returns the names of the replica's running pods.
func (r *replica) pods() []string {
	if r.url == "" {
		return nil
	}
	return append([]string{podOf(r.url)}, r.learners...)
}

// stray is the URL of a lost pod whose replica was removed later.
type stray struct{ task, url string }

// model is the desired state of a job, and the expected answers to its coordinator.
type model struct {
	// replicas are the desired replicas, oldest first.
	replicas []*replica
	strays   []stray
	// container counts the containers of the coordinator. asker is the container that requested
	// replicas last; 0 if unknown.
	container, asker int
	// used are the names of all pods that replicas ever had.
	used map[string]bool
	// settled is how many of the oldest replicas are in a known order.
	settled int
}

func newModel() *model {
	return &model{container: 1, used: map[string]bool{}}
}

// clone returns a deep copy.
func (m *model) clone() *model {
	other := *m
	other.replicas = make([]*replica, len(m.replicas))
	for i, one := range m.replicas {
		twin := *one
		twin.lost, twin.learners = slices.Clone(one.lost), slices.Clone(one.learners)
		other.replicas[i] = &twin
	}
	other.strays = slices.Clone(m.strays)
	other.used = make(map[string]bool, len(m.used))
	for name := range m.used {
		other.used[name] = true
	}
	return &other
}

// of returns the replicas of a task, oldest first.
func (m *model) of(task string) []*replica {
	var found []*replica
	for _, one := range m.replicas {
		if one.task == task {
			found = append(found, one)
		}
	}
	return found
}

// use claims a name. No earlier pod may have had it.
func (m *model) use(name string) error {
	if m.used[name] {
		return fmt.Errorf("the name %s was used before", name)
	}
	m.used[name] = true
	return nil
}

// add adds replicas with the URLs of an answer.
func (m *model) add(what shape, urls []string) error {
	for _, url := range urls {
		if err := m.use(podOf(url)); err != nil {
			return err
		}
		m.replicas = append(m.replicas, &replica{shape: what, born: podOf(url), url: url})
	}
	m.settled = len(m.replicas)
	return nil
}

// isComplete reports whether the next request for replicas is the first of a restarted coordinator.
// It gets only the replicas that are missing.
func (m *model) isComplete() bool {
	return m.asker != 0 && m.asker != m.container
}

// forget stops advertising all lost URLs.
func (m *model) forget() {
	m.strays = nil
	for _, one := range m.replicas {
		one.lost = nil
	}
}

// remove removes replicas from the list and returns them. It removes the newest first, and learners
// without DDP before units.
func (m *model) remove(task string, count int) []*replica {
	var removed []*replica
	for _, units := range []bool{false, true} {
		for _, one := range slices.Backward(m.of(task)) {
			if len(removed) < count && one.isUnit() == units {
				removed = append(removed, one)
			}
		}
	}
	for _, one := range removed {
		for _, url := range one.lost {
			m.strays = append(m.strays, stray{one.task, url})
		}
	}
	m.replicas = slices.DeleteFunc(m.replicas, func(one *replica) bool { return slices.Contains(removed, one) })
	m.settled = len(m.replicas)
	return removed
}

// report replaces, once, each replica with a running pod of a given name, and stops advertising
// lost pods of a given name. It returns these replicas and reports which of them got a new name.
func (m *model) report(names []string) (concerned []*replica, replaced map[*replica]bool) {
	named := func(url string) bool { return slices.Contains(names, podOf(url)) }
	replaced = map[*replica]bool{}
	for _, one := range m.replicas {
		before := len(one.lost)
		one.lost = slices.DeleteFunc(one.lost, named)
		if slices.ContainsFunc(one.pods(), func(pod string) bool { return slices.Contains(names, pod) }) {
			one.url, one.learners = "", nil
			replaced[one] = true
		}
		if replaced[one] || len(one.lost) < before {
			concerned = append(concerned, one)
		}
	}
	m.strays = slices.DeleteFunc(m.strays, func(one stray) bool { return named(one.url) })
	return concerned, replaced
}

// lose replaces the replicas that have one of the pods and keeps their URLs.
func (m *model) lose(pods []string) {
	for _, one := range m.replicas {
		if slices.ContainsFunc(one.pods(), func(pod string) bool { return slices.Contains(pods, pod) }) {
			one.lost = append(one.lost, one.url)
			one.url, one.learners = "", nil
		}
	}
}

// rebuild models a list that was recreated from the pods: it no longer records which coordinator
// container requested replicas.
func (m *model) rebuild() {
	m.forget()
	m.asker, m.settled = 0, 0
	if len(m.replicas) > 0 {
		m.asker = m.container
	}
}

// urls are lists of URLs as di-server answers them to a coordinator.
type urls struct {
	Collectors []string
	Learners   []string
}

// listed returns the expected list for the coordinator, sorted.
func (m *model) listed() urls {
	lists := map[string][]string{collector: {}, learner: {}}
	for _, one := range m.replicas {
		lists[one.task] = append(lists[one.task], one.lost...)
		lists[one.task] = append(lists[one.task], one.url)
	}
	for _, one := range m.strays {
		lists[one.task] = append(lists[one.task], one.url)
	}
	return urls{lists[collector], lists[learner]}.sorted()
}

func (u urls) sorted() urls {
	slices.Sort(u.Collectors)
	slices.Sort(u.Learners)
	return u
}

func (u urls) of(task string) []string {
	if task == learner {
		return u.Learners
	}
	return u.Collectors
}

func (u urls) all() []string {
	return slices.Concat(u.Collectors, u.Learners)
}

// podOf returns the name of a URL's pod.
func podOf(url string) string {
	pod, _, _ := strings.Cut(url, ".")
	return pod
}

// namespaceOf returns the namespace of a URL's pod.
func namespaceOf(url string) string {
	_, rest, _ := strings.Cut(url, ".")
	namespace, _, _ := strings.Cut(rest, ":")
	return namespace
}
