// Copyright The DI Orchestrator Authors.
// SPDX-License-Identifier: Apache-2.0

//go:build soak

package soak

import (
	"context"
	"errors"
	"fmt"
	"os"
	"strconv"
	"strings"
	"sync"
	"time"

	"k8s.io/apimachinery/pkg/util/wait"

	"opendilab.org/di-orchestrator/test/soak/history"
	"opendilab.org/di-orchestrator/test/testkit"
	"opendilab.org/di-orchestrator/test/testkit/program"
	"opendilab.org/di-orchestrator/test/testkit/proxy"
	"opendilab.org/di-orchestrator/test/testkit/wallclock"
)

// The kinds of programs.
const (
	operator = "operator"
	server   = "server"
	webhooks = "webhook"
)

// instance is a program that is started again whenever it has ended, as a Deployment does.
type instance struct {
	name, kind string
	// address is what it serves, if it serves something, and metrics where it serves its metrics.
	address, metrics string
	// way is its way to the API servers. The two of a kind prefer different ones at any time.
	way   *proxy.Proxy
	world *world

	// faulty is locked while a fault disturbs it.
	faulty sync.Mutex
	// mutex guards what follows.
	mutex   sync.Mutex
	process *program.Process
	shards  int
	// version is the index of its binary.
	version int
	// offset is how far the program's wall clock is ahead.
	offset time.Duration
	starts int
	// own counts how often it ended by itself.
	own int
}

// newInstance makes an instance that is not started.
func (w *world) newInstance(ctx context.Context, kind string, number int) (*instance, error) {
	i := &instance{name: fmt.Sprintf("%s-%d", kind, number), kind: kind, world: w, shards: w.options.shards, offset: wallclock.Offset(w.options.clocks, clocksApart)}
	var err error
	if i.address, i.metrics, err = program.FreeAddresses(ctx); err != nil {
		return nil, err
	}
	i.way, err = w.turningWay(ctx, number)
	return i, err
}

// clocksApart is how far the clock of a program may be ahead or behind.
const clocksApart = time.Hour

// run keeps the program running until the context ends.
func (i *instance) run(ctx context.Context) error {
	for {
		started, err := i.start(ctx)
		if err != nil {
			return err
		}
		i.mutex.Lock()
		i.process, i.starts = started, i.starts+1
		i.mutex.Unlock()
		select {
		case <-ctx.Done():
			return nil
		case <-started.Ended():
		}
		if ctx.Err() == nil && i.faulty.TryLock() {
			// It ended by itself, as an operator that lost its Lease does. It is started again.
			i.own++
			i.world.log.Add(history.Entry{Fault: &history.Fault{Kind: "exit", Target: i.name, Begin: time.Now(), End: time.Now().Add(5 * time.Second)}})
			i.faulty.Unlock()
		}
	}
}

func (i *instance) start(ctx context.Context) (*program.Process, error) {
	w := i.world
	kubeconfig, err := w.AccountKubeconfigAt(i.account(), i.name, i.way.Address())
	if err != nil {
		return nil, err
	}
	i.mutex.Lock()
	shards, binary, offset := i.shards, w.binaries[i.version], i.offset
	i.mutex.Unlock()
	command := &program.Command{
		Binary: binary, Name: i.kind, Folder: w.folder, NoWait: true, Address: i.address,
		Environment: []string{
			kubeconfig, wallclock.Environment(offset), "GOMEMLIMIT=460MiB", "GOGC=100", "POD_NAMESPACE=di-system", "POD_NAME=" + i.name,
		},
	}
	switch i.kind {
	case operator:
		command.Configuration = fmt.Sprintf("operator: {shards: %d, probeInterval: 10s}", shards)
		command.Flags = func(string) []string { return []string{"--leader-elect", "--metrics-address", i.metrics} }
	case server:
		command.Flags = func(address string) []string {
			return []string{"--address", address, "--tls-address=", "--metrics-address", i.metrics}
		}
	case webhooks:
		command.Flags = func(address string) []string {
			return []string{"--webhook-address", address, "--webhook-url", "https://" + w.webhooks.Address(), "--metrics-address", i.metrics}
		}
	}
	return program.Start(ctx, command)
}

// account returns the program whose service account it has.
func (i *instance) account() string {
	return map[string]string{operator: testkit.Operator, server: testkit.Server, webhooks: testkit.Webhook}[i.kind]
}

// running returns the current process; nil before the first one.
func (i *instance) running() *program.Process {
	i.mutex.Lock()
	defer i.mutex.Unlock()
	return i.process
}

// ready reports whether the program is ready. One that is paused is not.
func (i *instance) ready(ctx context.Context) bool {
	process := i.running()
	if process == nil || process.HasEnded() {
		return false
	}
	ctx, cancel := context.WithTimeout(ctx, time.Second)
	defer cancel()
	return process.Ready(ctx) == nil
}

func (i *instance) waitReady(ctx context.Context) error {
	err := wait.PollUntilContextTimeout(ctx, 200*time.Millisecond, testkit.Patience, true, func(ctx context.Context) (bool, error) { return i.ready(ctx), nil })
	if err != nil {
		return fmt.Errorf("%s is not ready: %w", i.name, err)
	}
	return nil
}

// restart kills the program, if it runs, and waits until it runs again.
func (i *instance) restart(ctx context.Context) error {
	if process := i.running(); process != nil && !process.HasEnded() {
		if err := process.Kill(); err != nil {
			return err
		}
	}
	return i.waitReady(ctx)
}

// usage reads what the program uses.
func (i *instance) usage(ctx context.Context) (*history.Usage, error) {
	content, err := program.Read(ctx, "http://"+i.metrics+"/metrics")
	if err != nil {
		return nil, err
	}
	values := map[string]float64{}
	for line := range strings.Lines(string(content)) {
		name, value, _ := strings.Cut(strings.TrimSpace(line), " ")
		if number, err := strconv.ParseFloat(value, 64); err == nil {
			values[name] = number
		}
	}
	files, err := os.ReadDir(fmt.Sprintf("/proc/%d/fd", i.running().ID()))
	if err != nil {
		return nil, fmt.Errorf("open files of %s: %w", i.name, err)
	}
	used := &history.Usage{
		Program: i.name, HeapBytes: int64(values["go_memstats_heap_inuse_bytes"]), Goroutines: int(values["go_goroutines"]), Files: len(files),
	}
	if used.HeapBytes == 0 || used.Goroutines == 0 {
		return nil, errors.New(i.name + " has no metrics of its heap and goroutines")
	}
	return used, nil
}

// lead makes a Service of the ready instances: new connections reach one of these, in turn.
func (*world) lead(ctx context.Context, service *proxy.Proxy, members []*instance) {
	turn := 0
	_ = wait.PollUntilContextCancel(ctx, 500*time.Millisecond, true, func(ctx context.Context) (bool, error) {
		var targets []string
		for _, member := range members {
			if member.ready(ctx) {
				targets = append(targets, member.address)
			}
		}
		if turn++; len(targets) > 1 && turn%2 == 0 {
			targets[0], targets[1] = targets[1], targets[0]
		}
		service.Lead(targets...)
		return false, nil
	})
}
