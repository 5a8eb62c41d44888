// Copyright The DI Orchestrator Authors.
// SPDX-License-Identifier: Apache-2.0

// Package process starts, finds and ends the background processes of the local cluster. Processes
// have marks in their environment. The marks identify them after a crash at any point. Unlike pid
// files, they never match another process.
package process

import (
	"bytes"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"
)

// These are the marks. Children inherit them. The program distinguishes a daemon from its helpers.
const (
	markCluster     = "DI_CLUSTER_DAEMON_OF="
	markName        = "DI_CLUSTER_DAEMON_NAME="
	markFingerprint = "DI_CLUSTER_DAEMON_FINGERPRINT="
)

// Process is a running process of a cluster.
type Process struct {
	PID int
	// Name is the name of the daemon, or of the daemon that started the process.
	Name string
	// Fingerprint is the fingerprint of the daemon's specification at its start.
	Fingerprint string
	// Program is the base name of its executable.
	Program string
}

// Find lists the running processes of the cluster with the given state
// directory.
func Find(stateDir string) ([]Process, error) {
	entries, err := os.ReadDir("/proc")
	if err != nil {
		return nil, fmt.Errorf("list processes: %w", err)
	}
	var found []Process
	for _, e := range entries {
		pid, err := strconv.Atoi(e.Name())
		if err != nil {
			continue
		}
		if p, ours := inspect(pid, stateDir); ours {
			found = append(found, p)
		}
	}
	return found, nil
}

// inspect reads the marks of a process. A process that exits meanwhile, or cannot be read, does not
// belong to the cluster.
func inspect(pid int, stateDir string) (Process, bool) {
	proc := filepath.Join("/proc", strconv.Itoa(pid))
	environ, err := os.ReadFile(filepath.Join(proc, "environ"))
	if err != nil || !bytes.Contains(environ, []byte(markCluster)) {
		return Process{}, false
	}
	program, err := os.Readlink(filepath.Join(proc, "exe"))
	if err != nil {
		return Process{}, false
	}
	p, ours := parseMarks(environ, stateDir)
	p.PID, p.Program = pid, filepath.Base(strings.TrimSuffix(program, " (deleted)"))
	return p, ours && alive(pid)
}

func parseMarks(environ []byte, stateDir string) (p Process, ours bool) {
	for _, variable := range strings.Split(string(environ), "\x00") {
		if value, found := strings.CutPrefix(variable, markCluster); found && value == stateDir {
			ours = true
		}
		if value, found := strings.CutPrefix(variable, markName); found {
			p.Name = value
		}
		if value, found := strings.CutPrefix(variable, markFingerprint); found {
			p.Fingerprint = value
		}
	}
	return p, ours
}

// alive reports whether a process exists and has not exited. A process that its parent has not
// collected still has a number.
func alive(pid int) bool {
	stat, err := os.ReadFile(filepath.Join("/proc", strconv.Itoa(pid), "stat"))
	if err != nil {
		return false
	}
	state := stateOf(stat)
	return state != 'Z' && state != 'X' && state != 0
}

// stateOf returns the state letter, which follows the program's name in parentheses. The name
// itself may contain parentheses.
func stateOf(stat []byte) byte {
	end := bytes.LastIndexByte(stat, ')')
	if end < 0 || end+2 >= len(stat) {
		return 0
	}
	return stat[end+2]
}
