// Copyright The DI Orchestrator Authors.
// SPDX-License-Identifier: Apache-2.0

package roles

import (
	"fmt"
	"net"
	"os"
	"slices"
	"strconv"
	"strings"
)

// workerPort is the port of all workers.
const workerPort = 22270

// Tasks of the workers.
const (
	taskLearner   = "learner"
	taskCollector = "collector"
	taskEvaluator = "evaluator"
)

// place is where a worker stands among the job's workers.
type place struct {
	rank int
	// nodes are the addresses of all workers by rank, and mine is this worker's.
	nodes []string
	mine  string
	task  string
	port  int
	// leads is set on the first learner.
	leads bool
}

// readPlace reads the place from the environment. The task may be given, else it
// is the one whose nodes this worker is among.
func readPlace(system System, task string, port int) (place, error) {
	rank, err := system.integer("DI_RANK", -1)
	if err != nil {
		return place{}, err
	}
	nodes, err := nodeList(system, "DI_NODES", port)
	if err != nil {
		return place{}, err
	}
	p := place{rank: rank, nodes: nodes, task: task, port: port}
	if rank < 0 || rank >= len(p.nodes) {
		return place{}, fmt.Errorf("%w: DI_RANK %q: want a rank below the %d entries of DI_NODES",
			ErrUsage, system.Getenv("DI_RANK"), len(p.nodes))
	}
	p.mine = p.nodes[rank]
	if own, _, _ := strings.Cut(hostOf(p.mine), "."); own != system.Hostname {
		return place{}, fmt.Errorf("%w: DI_NODES[%d]: got %q, want this pod, whose host name is %q",
			ErrUsage, rank, p.mine, system.Hostname)
	}
	if p.task == "" {
		if p.task, err = p.findTask(system); err != nil {
			return place{}, err
		}
	}
	if !slices.Contains([]string{taskLearner, taskCollector, taskEvaluator}, p.task) {
		return place{}, fmt.Errorf("%w: task: got %q, want learner, collector or evaluator, by --task or by this pod's entry in DI_<TASK>_NODES",
			ErrUsage, p.task)
	}
	return p.amongItsTask(system)
}

// amongItsTask compares the place with the list of the worker's own task.
func (p place) amongItsTask(system System) (place, error) {
	key := taskKey(p.task)
	mates, err := nodeList(system, key, p.port)
	if err != nil {
		return place{}, err
	}
	if len(mates) > 0 && !slices.Contains(mates, p.mine) {
		return place{}, fmt.Errorf("%w: %s: got %q, want this pod's %q among them", ErrUsage, key, mates, p.mine)
	}
	p.leads = p.task == taskLearner && (len(mates) == 0 || mates[0] == p.mine)
	return p, nil
}

// findTask returns the task that lists the worker, "" where none does.
func (p place) findTask(system System) (string, error) {
	for _, task := range []string{taskLearner, taskCollector, taskEvaluator} {
		nodes, err := nodeList(system, taskKey(task), p.port)
		if err != nil {
			return "", err
		}
		if slices.Contains(nodes, p.mine) {
			return task, nil
		}
	}
	return "", nil
}

// others are the addresses of all other workers.
func (p place) others() []string {
	return slices.Concat(p.nodes[:p.rank], p.nodes[p.rank+1:])
}

func taskKey(task string) string {
	return "DI_" + strings.ToUpper(strings.ReplaceAll(task, "-", "_")) + "_NODES"
}

// nodeList reads a comma separated list of hosts, from a file where the variable
// begins with @: no process starts with a long list in a variable. An entry may
// name a port of its own.
func nodeList(system System, key string, port int) ([]string, error) {
	list := system.Getenv(key)
	if path, isFile := strings.CutPrefix(list, "@"); isFile {
		content, err := os.ReadFile(path)
		if err != nil {
			return nil, fmt.Errorf("%w: %s: %w", ErrUsage, key, err)
		}
		list = string(content)
	}
	var nodes []string
	for node := range strings.SplitSeq(list, ",") {
		if node = strings.TrimSpace(node); node == "" {
			continue
		}
		if _, _, err := net.SplitHostPort(node); err != nil {
			node = net.JoinHostPort(node, strconv.Itoa(port))
		}
		nodes = append(nodes, node)
	}
	return nodes, nil
}

func hostOf(address string) string {
	host, _, _ := net.SplitHostPort(address)
	return host
}
