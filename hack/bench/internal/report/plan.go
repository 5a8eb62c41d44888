// Copyright The DI Orchestrator Authors.
// SPDX-License-Identifier: Apache-2.0

package report

import (
	"fmt"
	"strconv"

	"opendilab.org/di-orchestrator/hack/bench/internal/results"
)

// target is a cluster that is calculated.
type target struct {
	Nodes, Pods int
	// Starts are the pods that start in a second.
	Starts int
}

var large = target{Nodes: 5000, Pods: 100_000, Starts: 1000} //nolint:gochecknoglobals // a constant

// need is what a program needs for a target.
type need struct {
	Name, Memory, MemoryBy, Processors, ProcessorsBy string
}

// plan is the calculation for a target from the last two rungs.
type plan struct {
	Needs []need
	// Requests are those of the operator and di-server in a second.
	Requests, RequestsBy string
	// Stored are the bytes that etcd stores.
	Stored, StoredBy string
	// Leases are the renewals of node Leases in a second: one for each node every 10 seconds, the default of the kubelet.
	Leases int
}

// planFor extends the line through the last two rungs.
func planFor(rungs []*results.Rung, of target) plan {
	before, last := rungs[len(rungs)-2], rungs[len(rungs)-1]
	memory := func(from, to int64) (string, string) {
		slope := float64(to-from) / float64(last.Pods-before.Pods)
		total := float64(to) + slope*float64(of.Pods-last.Pods)
		return gibibytes(total), fmt.Sprintf("%s + %s x %.1f KiB", gibibytes(float64(to)), thousands(of.Pods-last.Pods), slope/1024)
	}
	p := plan{
		Requests:   fmt.Sprintf("%.0f", last.PodRequests*float64(of.Starts)),
		RequestsBy: fmt.Sprintf("%s x %.2f", thousands(of.Starts), last.PodRequests),
		Leases:     of.Nodes / 10,
	}
	p.Stored, p.StoredBy = memory(before.Stored, last.Stored)
	for _, program := range []struct {
		name         string
		before, last *results.Need
	}{
		{"operator", &before.Operator, &last.Operator}, {"di-server", &before.Server, &last.Server}, {"webhooks", &before.Webhooks, &last.Webhooks},
		{"API server", &before.APIServer, &last.APIServer}, {"etcd", &before.Etcd, &last.Etcd},
	} {
		n := need{Name: program.name}
		n.Memory, n.MemoryBy = memory(program.before.Resident, program.last.Resident)
		n.Processors = fmt.Sprintf("%.1f", program.last.PodMillis*float64(of.Starts)/1000)
		n.ProcessorsBy = fmt.Sprintf("%s x %.2f ms", thousands(of.Starts), program.last.PodMillis)
		p.Needs = append(p.Needs, n)
	}
	return p
}

func gibibytes(bytes float64) string { return fmt.Sprintf("%.2f GiB", bytes/(1<<30)) }

func thousands(n int) string {
	if n < 1000 {
		return strconv.Itoa(n)
	}
	return fmt.Sprintf("%s,%03d", thousands(n/1000), n%1000)
}
