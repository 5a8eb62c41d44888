// Copyright The DI Orchestrator Authors.
// SPDX-License-Identifier: Apache-2.0

package cluster

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"time"

	"opendilab.org/di-orchestrator/test/testkit/program"
)

// period is the interval for which a quota is given: that of containers.
const period = 100 * time.Millisecond

// quota is a control group that limits the processor time of one process, as a limit of a container does.
type quota struct {
	folder string
	// unified tells version 2 of control groups from version 1.
	unified bool
}

var errNoQuota = errors.New("a processor quota needs root, and control groups with the controller cpu at the top")

// newQuota makes a control group without a limit. The caller removes it.
func newQuota(name string) (*quota, error) {
	mounts, err := os.ReadFile("/proc/mounts")
	if err != nil {
		return nil, fmt.Errorf("quota: %w", err)
	}
	parent, unified := cgroups(string(mounts))
	if parent == "" {
		return nil, errNoQuota
	}
	q := &quota{folder: filepath.Join(parent, fmt.Sprintf("di-bench-%d-%s", os.Getpid(), name)), unified: unified}
	if err := os.Mkdir(q.folder, 0o750); err != nil {
		return nil, errors.Join(errNoQuota, err)
	}
	if err := q.lift(); err != nil {
		return nil, errors.Join(errNoQuota, err, q.remove())
	}
	return q, nil
}

// cgroups returns the folder of control groups with the controller cpu, given all mounts; empty if there is none.
func cgroups(mounts string) (folder string, unified bool) {
	for line := range strings.Lines(mounts) {
		fields := strings.Fields(line)
		switch {
		case len(fields) < 4:
		case fields[2] == "cgroup" && slices.Contains(strings.Split(fields[3], ","), "cpu"):
			return fields[1], false
		case fields[2] == "cgroup2":
			folder, unified = fields[1], true
		}
	}
	return folder, unified
}

// add puts a process under the quota.
func (q *quota) add(process *program.Process) error {
	return q.write("cgroup.procs", strconv.Itoa(process.ID()))
}

// limit limits the processor time to a share of one processor.
func (q *quota) limit(share float64) error {
	most := strconv.FormatInt(int64(share*float64(period.Microseconds())), 10)
	if q.unified {
		return q.write("cpu.max", fmt.Sprintf("%s %d", most, period.Microseconds()))
	}
	return errors.Join(q.write("cpu.cfs_period_us", strconv.FormatInt(period.Microseconds(), 10)), q.write("cpu.cfs_quota_us", most))
}

// lift removes the limit.
func (q *quota) lift() error {
	if q.unified {
		return q.write("cpu.max", "max")
	}
	return q.write("cpu.cfs_quota_us", "-1")
}

func (q *quota) write(file, value string) error {
	if err := os.WriteFile(filepath.Join(q.folder, file), []byte(value), 0o600); err != nil {
		return fmt.Errorf("quota: %w", err)
	}
	return nil
}

// remove removes the control group of a process that has ended.
func (q *quota) remove() error {
	if err := os.Remove(q.folder); err != nil {
		return fmt.Errorf("quota: %w", err)
	}
	return nil
}
