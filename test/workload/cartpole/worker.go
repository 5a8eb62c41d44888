// Copyright The DI Orchestrator Authors.
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"cmp"
	"context"
	"errors"
	"flag"
	"fmt"
	"maps"
	"net"
	"net/http"
	"os"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"
)

const (
	// workerPort is the port of workers whose entry in DI_NODES has none.
	workerPort = 22270
	// announceEvery is the interval of announcements to the leader.
	announceEvery = 2 * time.Second
	// leaderTimeout is how long a worker runs without an answer of the leader.
	leaderTimeout = 5 * time.Minute
	// finishTimeout is how long the leader waits until all workers have learned of the end.
	finishTimeout = time.Minute
	// profileEvery is the minimum interval between two posts of profilings. profileTimeout is the
	// timeout of each.
	profileEvery   = time.Second
	profileTimeout = 2 * time.Second
)

// worker is one replica of a worker-led job. The first learner leads: it trains with the workers
// that announce themselves.
type worker struct {
	*process
	task string
	rank int
	// nodes are the addresses of all workers by rank.
	nodes []string
	leads bool

	mu       sync.Mutex        // protects all below
	waiting  map[string]bool   // workers that have not learned of the end
	players  map[string]string // the node of each collector that announced itself
	finished bool
}

func runWorker(ctx context.Context, p *process, args []string) error {
	flags := flag.NewFlagSet("worker", flag.ContinueOnError)
	w := &worker{process: p, waiting: map[string]bool{}, players: map[string]string{}}
	here := &local{}
	t := newTraining(p, flags)
	flags.StringVar(&w.task, "task", "", "learner, collector or evaluator; without it the task whose DI_<TASK>_NODES lists this pod")
	flags.DurationVar(&here.minUnit, "min-unit", 0, "least time that a unit takes, as of a slow environment")
	perSecond := flags.Float64("stream", 0, "train asynchronously and without end: how many units the learner takes in a second; 0 trains in rounds")
	if err := p.parse(flags, args); err != nil {
		return err
	}
	if err := w.readPlace(); err != nil {
		return err
	}
	_, port, _ := net.SplitHostPort(w.nodes[w.rank])
	number, err := strconv.Atoi(port)
	if err != nil {
		return fmt.Errorf("DI_NODES[%d]: port: %w", w.rank, err)
	}
	mux := newMux(identity{Name: p.hostname, Rank: w.rank})
	ports := map[int]http.Handler{number: mux}
	if *perSecond > 0 {
		return w.runStream(ctx, number, mux, here, *perSecond)
	}
	servePlayer(mux, here)
	serveLearner(mux, here)
	if !w.leads {
		return p.run(ctx, ports, w.announce)
	}
	t.serve(mux)
	t.learners.add(w.nodes[w.rank], taskLearner, here)
	w.receive(mux, t)
	t.report, t.nodes = w.reportsOf(&t.profile), w.countNodes
	return p.run(ctx, ports, func(ctx context.Context) error {
		err := t.run(ctx)
		if err == nil {
			w.finish(ctx)
		}
		return err
	})
}

// readPlace reads the worker's rank and nodes from the environment and checks them.
func (w *worker) readPlace() error {
	var err error
	if w.rank, err = w.number("DI_RANK", -1); err != nil {
		return err
	}
	if w.nodes, err = w.nodesOf("DI_NODES"); err != nil {
		return err
	}
	if w.rank < 0 || w.rank >= len(w.nodes) {
		return fmt.Errorf("DI_RANK %q: want a rank below the %d entries of DI_NODES", w.getenv("DI_RANK"), len(w.nodes))
	}
	mine := w.nodes[w.rank]
	if host, _, _ := strings.Cut(mine, "."); host != w.hostname {
		return fmt.Errorf("DI_NODES[%d]: got %q, want this pod, whose host name is %q", w.rank, mine, w.hostname)
	}
	for _, task := range []string{taskLearner, taskCollector, taskEvaluator} {
		if err := w.readMates(task, mine); err != nil {
			return err
		}
	}
	if !slices.Contains([]string{taskLearner, taskCollector, taskEvaluator}, w.task) {
		return fmt.Errorf("task: got %q, want learner, collector or evaluator, by --task or by this pod's entry in DI_<TASK>_NODES", w.task)
	}
	return nil
}

// readMates compares the worker with the nodes of a task.
func (w *worker) readMates(task, mine string) error {
	key := "DI_" + strings.ToUpper(task) + "_NODES"
	nodes, err := w.nodesOf(key)
	if err != nil {
		return err
	}
	isListed := slices.Contains(nodes, mine)
	if isListed {
		w.task = cmp.Or(w.task, task)
	}
	if w.task != task {
		return nil
	}
	if len(nodes) > 0 && !isListed {
		return fmt.Errorf("%s: got %q, want this pod's %q among them", key, nodes, mine)
	}
	w.leads = task == taskLearner && (len(nodes) == 0 || nodes[0] == mine)
	return nil
}

// nodesOf reads a list of hosts with or without ports. It reads a file if the variable begins with
// @.
func (w *worker) nodesOf(key string) ([]string, error) {
	list := w.getenv(key)
	if path, isFile := strings.CutPrefix(list, "@"); isFile {
		content, err := os.ReadFile(path)
		if err != nil {
			return nil, fmt.Errorf("%s: %w", key, err)
		}
		list = string(content)
	}
	var nodes []string
	for node := range strings.SplitSeq(list, ",") {
		if node = strings.TrimSpace(node); node == "" {
			continue
		}
		if _, _, err := net.SplitHostPort(node); err != nil {
			node = net.JoinHostPort(node, strconv.Itoa(workerPort))
		}
		nodes = append(nodes, node)
	}
	return nodes, nil
}

// others returns the addresses of all other workers.
func (w *worker) others() []string {
	return slices.Concat(w.nodes[:w.rank], w.nodes[w.rank+1:])
}

// announcement introduces a worker to the leader.
type announcement struct {
	Task    string `json:"task"`
	Address string `json:"address"`
	// Node is the name of the worker's node, if its template has it in NODE_NAME.
	Node string `json:"node,omitempty"`
}

// reception is the answer to an announcement. Finished is set when training has ended.
type reception struct {
	Finished bool `json:"finished"`
}

// announce introduces the worker to the leader repeatedly, so that a leader that restarted or lost
// the worker adds it again. Only the leader serves that route.
func (w *worker) announce(ctx context.Context) error {
	leader, answered := "", time.Now()
	for {
		for _, address := range w.others() {
			if leader != "" && address != leader {
				continue
			}
			r, err := call[reception](ctx, w.client, http.MethodPost, "http://"+address+"/announce", announcement{w.task, w.nodes[w.rank], w.getenv("NODE_NAME")})
			switch {
			case err == nil && r.Finished:
				w.log.Info("training has ended")
				return nil
			case err == nil:
				if leader == "" {
					w.log.Info("found the leader", "leader", address)
				}
				leader, answered = address, time.Now()
			case leader != "":
				w.log.Warn("the leader does not answer", "leader", leader, "error", err)
				leader = ""
			}
		}
		if silent := time.Since(answered); silent > leaderTimeout {
			return fmt.Errorf("leader: no answer for %s", silent.Round(time.Second))
		}
		if err := pause(ctx, announceEvery); err != nil {
			return err
		}
	}
}

// receive serves the announcements of workers. A worker that does not answer is excluded until it
// announces itself again.
func (w *worker) receive(mux *http.ServeMux, t *training) {
	for _, address := range w.others() {
		w.waiting[address] = true
	}
	members := map[string]bool{}
	lost := func(address string, err error) {
		w.log.Warn("a worker is lost", "address", address, "error", err)
		t.players.remove(address)
		t.learners.remove(address)
		w.mu.Lock()
		defer w.mu.Unlock()
		delete(members, address)
		delete(w.players, address)
	}
	t.players.lost, t.learners.lost = lost, lost
	handle(mux, "POST /announce", func(_ context.Context, a announcement) (reception, error) {
		w.mu.Lock()
		defer w.mu.Unlock()
		switch {
		case w.finished:
			delete(w.waiting, a.Address)
		case members[a.Address]:
		case a.Task == taskLearner:
			t.learners.add(a.Address, a.Task, remote{w.client, a.Address})
		case a.Task == taskCollector, a.Task == taskEvaluator:
			t.players.add(a.Address, a.Task, remote{w.client, a.Address})
		default:
			return reception{}, errors.New("task: want learner, collector or evaluator")
		}
		if !w.finished && !members[a.Address] {
			members[a.Address], w.waiting[a.Address] = true, true
			if a.Task == taskCollector {
				w.players[a.Address] = a.Node
			}
			w.log.Info("a worker joined", "task", a.Task, "address", a.Address)
		}
		return reception{Finished: w.finished}, nil
	})
}

// finish waits until all workers, including late ones, have learned that training has ended. The
// job succeeds when all of its workers do.
func (w *worker) finish(ctx context.Context) {
	ctx, cancel := context.WithTimeout(ctx, finishTimeout)
	defer cancel()
	for {
		w.mu.Lock()
		w.finished = true
		waiting := slices.Sorted(maps.Keys(w.waiting))
		w.mu.Unlock()
		if len(waiting) == 0 {
			return
		}
		if pause(ctx, retryEvery) != nil {
			w.log.Warn("workers do not know of the end", "addresses", waiting)
			return
		}
	}
}

// countNodes counts the nodes that collectors are on.
func (w *worker) countNodes() int {
	w.mu.Lock()
	defer w.mu.Unlock()
	return nodesIn(slices.Collect(maps.Values(w.players)))
}

// reportsOf returns a function that posts the job's profilings. Training continues without di-server.
func (w *worker) reportsOf(known *profile) func(context.Context, progress) {
	address := w.profilingsURL()
	if address == "" {
		return nil
	}
	var posted time.Time
	return func(ctx context.Context, p progress) {
		if p.Eval < p.Target && time.Since(posted) < profileEvery {
			return
		}
		posted = time.Now()
		ctx, cancel := context.WithTimeout(ctx, profileTimeout)
		defer cancel()
		if _, err := call[empty](ctx, w.client, http.MethodPost, address, known.report(p)); err != nil {
			w.log.Warn("profilings were not posted", "error", err)
		}
	}
}
