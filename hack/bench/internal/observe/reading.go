// Copyright The DI Orchestrator Authors.
// SPDX-License-Identifier: Apache-2.0

package observe

import (
	"context"
	"errors"
	"fmt"
	"regexp"
	"runtime"
	"strconv"
	"strings"
	"time"

	"opendilab.org/di-orchestrator/test/testkit/controlplane"
	"opendilab.org/di-orchestrator/test/testkit/program"
)

// These are names of programs in a Reading.
const (
	Operator  = "operator"
	Webhooks  = "webhooks"
	Server    = "di-server"
	APIServer = "kube-apiserver"
	Etcd      = "etcd"
)

// Reading is what the programs have used until a time.
type Reading struct {
	At   time.Time
	Mark controlplane.Mark
	// Usage is that of each program, the sum of its processes. Operators are those of each operator.
	Usage     map[string]program.Usage
	Operators []program.Usage

	machine program.Processors
}

// Read reads the usage of programs that are given by name, and of all others that this process has started.
func Read(plane *controlplane.Plane, programs map[string][]*program.Process) (Reading, error) {
	all, err := program.Tree()
	if err != nil {
		return Reading{}, err
	}
	// The tree has one process of each command, so that it misses replicas.
	for _, command := range []string{"operator", "webhook", "server"} {
		delete(all, command)
	}
	r := Reading{At: time.Now(), Usage: all}
	for name, processes := range programs {
		var sum program.Usage
		for _, process := range processes {
			if process.HasEnded() {
				continue
			}
			usage, err := process.Usage()
			if err != nil {
				return r, err
			}
			sum.Processor += usage.Processor
			sum.Resident += usage.Resident
			sum.PeakBytes += usage.PeakBytes
			if name == Operator {
				r.Operators = append(r.Operators, usage)
			}
		}
		r.Usage[name] = sum
	}
	if r.machine, err = program.ReadProcessors(); err != nil {
		return r, err
	}
	r.Mark, err = plane.Mark()
	return r, err
}

// Used returns the processor time of each program since an earlier reading.
func (r *Reading) Used(before *Reading) map[string]time.Duration {
	used := map[string]time.Duration{}
	for name, usage := range r.Usage {
		used[name] = usage.Processor - before.Usage[name].Processor
	}
	return used
}

// Seconds returns the time since an earlier reading.
func (r *Reading) Seconds(before *Reading) float64 { return r.At.Sub(before.At).Seconds() }

// Machine returns the share of all processors that were busy since an earlier reading, and how many processors programs
// used that are not part of the benchmark.
func (r *Reading) Machine(before *Reading) (busy, others float64) {
	busy = r.machine.BusySince(before.machine)
	others = busy * float64(runtime.NumCPU())
	for _, used := range r.Used(before) {
		others -= used.Seconds() / r.Seconds(before)
	}
	return busy, others
}

var heapAllocated = regexp.MustCompile(`(?m)^# HeapAlloc = (\d+)$`)

// LiveHeap returns the size of a program's heap after a garbage collection.
func LiveHeap(ctx context.Context, pprof string) (int64, error) {
	raw, err := program.Read(ctx, "http://"+pprof+"/debug/pprof/heap?gc=1&debug=1")
	if err != nil {
		return 0, err
	}
	found := heapAllocated.FindSubmatch(raw)
	if found == nil {
		return 0, errors.New("a heap profile lacks HeapAlloc")
	}
	return strconv.ParseInt(string(found[1]), 10, 64)
}

// Stored returns the bytes that etcd uses.
func Stored(ctx context.Context, plane *controlplane.Plane) (int64, error) {
	bytes, err := Sample(ctx, plane.Etcd().URL.JoinPath("metrics").String(), "etcd_mvcc_db_total_size_in_use_in_bytes")
	return int64(bytes), err
}

// Sample returns the value of a metric without labels. A metric that has observed nothing may be missing: then it is 0.
func Sample(ctx context.Context, url, name string) (float64, error) {
	raw, err := program.Read(ctx, url)
	if err != nil {
		return 0, err
	}
	_, after, found := strings.Cut("\n"+string(raw), "\n"+name+" ")
	if !found {
		return 0, nil
	}
	line, _, _ := strings.Cut(after, "\n")
	value, err := strconv.ParseFloat(strings.TrimSpace(line), 64)
	if err != nil {
		return 0, fmt.Errorf("%s of %s: %w", name, url, err)
	}
	return value, nil
}
