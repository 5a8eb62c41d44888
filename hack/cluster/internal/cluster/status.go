// Copyright The DI Orchestrator Authors.
// SPDX-License-Identifier: Apache-2.0

package cluster

import (
	"context"
	"errors"
	"fmt"
	"path/filepath"
	"strconv"
	"strings"
	"text/tabwriter"

	"opendilab.org/di-orchestrator/hack/cluster/internal/build"
	"opendilab.org/di-orchestrator/hack/cluster/internal/process"
)

// ErrIncomplete means that the cluster is not running, or only partially.
var ErrIncomplete = errors.New("the cluster is not running: bring it up")

// daemon is a program of a running cluster. Each node may have its own.
type daemon struct{ name, program string }

// daemons returns the programs of a running cluster.
func (c *Cluster) daemons() []daemon {
	var all []daemon
	for _, program := range []string{
		build.Etcd, build.APIServer, build.ControllerManager, build.Scheduler, build.Proxy, build.CoreDNS,
	} {
		all = append(all, daemon{name: program, program: program})
	}
	for _, node := range c.settings.Nodes() {
		for _, program := range []string{build.Containerd, build.Kubelet} {
			all = append(all, daemon{name: node.Daemon(program), program: program})
		}
	}
	return all
}

// Status prints the running daemons and how to use the cluster. It returns an error unless the
// cluster is complete.
func (c *Cluster) Status(ctx context.Context) error {
	running, err := process.Find(c.settings.StateDir)
	if err != nil {
		return err
	}
	complete := c.printDaemons(running)
	c.printf("\nstate  %s\ncache  %s\nlogs   %s\n", c.settings.StateDir, c.settings.CacheDir, c.settings.State("logs"))
	if !complete {
		return ErrIncomplete
	}
	nodes, err := c.kubectl(ctx, "", "get", "nodes", "-o",
		`custom-columns=NODE:.metadata.name,READY:.status.conditions[?(@.type=="Ready")].status,VERSION:.status.nodeInfo.kubeletVersion,GPUS:.status.allocatable.nvidia\.com/gpu`)
	if err != nil {
		return err
	}
	c.printf("\n%s\n%s", nodes, c.Environment())
	return nil
}

func (c *Cluster) printDaemons(running []process.Process) bool {
	complete := true
	table := tabwriter.NewWriter(c.out, 0, 0, 2, ' ', 0)
	_, _ = fmt.Fprintln(table, "PROGRAM\tVERSION\tSTATE")
	for _, d := range c.daemons() {
		mine := process.Of(process.Spec{Name: d.name, Program: d.program}, running)
		_, _ = fmt.Fprintf(table, "%s\t%s\t%s\n", d.name, c.cache.Version(d.program), c.describe(d.program, mine))
		complete = complete && len(mine) > 0
	}
	_ = table.Flush() // Reporting is done on a best-effort basis.
	return complete
}

func (c *Cluster) describe(name string, mine []process.Process) string {
	switch {
	case len(mine) > 0:
		pids := make([]string, 0, len(mine))
		for _, p := range mine {
			pids = append(pids, strconv.Itoa(p.PID))
		}
		return "running as " + strings.Join(pids, ", ")
	case c.cache.Has(name):
		return "not running"
	default:
		return "not built: " + filepath.Base(filepath.Dir(c.cache.Path(name)))
	}
}
