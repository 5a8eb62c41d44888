// Copyright The DI Orchestrator Authors.
// SPDX-License-Identifier: Apache-2.0

package machine

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"time"

	"opendilab.org/di-orchestrator/hack/cluster/internal/process"
)

// Mount is one line of /proc/self/mountinfo.
type Mount struct {
	Path string
	Type string
}

// Mounts returns the mounts of this process.
func Mounts() ([]Mount, error) {
	content, err := os.ReadFile("/proc/self/mountinfo")
	if err != nil {
		return nil, fmt.Errorf("list mounts: %w", err)
	}
	return parseMounts(string(content)), nil
}

func parseMounts(mountinfo string) []Mount {
	var mounts []Mount
	for line := range strings.Lines(mountinfo) {
		before, after, found := strings.Cut(line, " - ")
		fields, rest := strings.Fields(before), strings.Fields(after)
		if !found || len(fields) < 5 || len(rest) < 1 {
			continue
		}
		mounts = append(mounts, Mount{Path: unescape(fields[4]), Type: rest[0]})
	}
	return mounts
}

// unescape decodes the octal escapes that the kernel writes for characters such as spaces.
func unescape(path string) string {
	var b strings.Builder
	for i := 0; i < len(path); i++ {
		if path[i] == '\\' && i+3 < len(path) {
			if code, err := strconv.ParseUint(path[i+1:i+4], 8, 8); err == nil {
				b.WriteByte(byte(code))
				i += 3
				continue
			}
		}
		b.WriteByte(path[i])
	}
	return b.String()
}

// cgroupMounts splits the mounted cgroup hierarchies by version.
func cgroupMounts(mounts []Mount) (v1, v2 []string) {
	for _, m := range mounts {
		switch m.Type {
		case "cgroup":
			v1 = append(v1, m.Path)
		case "cgroup2":
			v2 = append(v2, m.Path)
		}
	}
	return v1, v2
}

// EnsureCgroup creates a cgroup for the pods in every hierarchy that the kubelet uses: all of
// version 1 if there are any, otherwise that of version 2.
func EnsureCgroup(name string) error {
	mounts, err := Mounts()
	if err != nil {
		return err
	}
	v1, v2 := cgroupMounts(mounts)
	hierarchies := v1
	if len(v1) == 0 {
		hierarchies = v2
	}
	for _, hierarchy := range hierarchies {
		if err := os.Mkdir(filepath.Join(hierarchy, name), 0o755); err != nil && !errors.Is(err, os.ErrExist) {
			return fmt.Errorf("create cgroup: %w", err)
		}
		if err := inheritCPUSet(hierarchy, name); err != nil {
			return err
		}
		if err := weighCPU(hierarchy, name); err != nil {
			return err
		}
	}
	return nil
}

// weighCPU gives the pods of a node as much processor time as four busy threads outside have. Those are in no
// cgroup, so each of them would have as much as all pods of the node, and webhooks would not answer in time.
func weighCPU(hierarchy, name string) error {
	// The defaults, which one thread outside has, are 1024 in version 1, and 100 in version 2.
	for file, weight := range map[string]string{"cpu.shares": "4096", "cpu.weight": "400"} {
		target := filepath.Join(hierarchy, name, file)
		if _, err := os.Stat(target); errors.Is(err, os.ErrNotExist) {
			continue
		}
		if err := os.WriteFile(target, []byte(weight), 0o644); err != nil {
			return fmt.Errorf("set up cgroup: %w", err)
		}
	}
	return nil
}

// inheritCPUSet copies the processors and memory of the parent to a new cgroup of version 1.
// Without them it cannot contain processes.
func inheritCPUSet(hierarchy, name string) error {
	for _, file := range []string{"cpuset.cpus", "cpuset.mems"} {
		target := filepath.Join(hierarchy, name, file)
		current, err := os.ReadFile(target)
		if errors.Is(err, os.ErrNotExist) || len(strings.TrimSpace(string(current))) > 0 {
			continue
		}
		parent, err := os.ReadFile(filepath.Join(hierarchy, file))
		if errors.Is(err, os.ErrNotExist) {
			continue // The root of version 2 has no such file and needs none.
		}
		if err != nil {
			return fmt.Errorf("read cgroup: %w", err)
		}
		if err := os.WriteFile(target, parent, 0o644); err != nil {
			return fmt.Errorf("set up cgroup: %w", err)
		}
	}
	return nil
}

// RemoveCgroup kills all processes in the cgroup of the pods and removes it.
func RemoveCgroup(ctx context.Context, name string) error {
	mounts, err := Mounts()
	if err != nil {
		return err
	}
	v1, v2 := cgroupMounts(mounts)
	var dirs []string
	for _, hierarchy := range slices.Concat(v1, v2) {
		dirs = append(dirs, filepath.Join(hierarchy, name))
	}
	ctx, cancel := context.WithTimeout(ctx, time.Minute)
	defer cancel()
	return process.Until(ctx, func(context.Context) (bool, error) {
		var errs []error
		for _, dir := range dirs {
			errs = append(errs, killAndRemove(dir))
		}
		if err := errors.Join(errs...); err != nil {
			return false, process.Retryable(err)
		}
		return true, nil
	})
}

// killAndRemove removes a tree of cgroups, deepest first. Cgroups contain only folders and the
// kernel's files, which disappear by themselves.
func killAndRemove(root string) error {
	var dirs []string
	err := filepath.WalkDir(root, func(path string, entry fs.DirEntry, err error) error {
		if errors.Is(err, os.ErrNotExist) {
			return nil
		}
		if err == nil && entry.IsDir() {
			dirs = append(dirs, path)
		}
		return err
	})
	if err != nil {
		return fmt.Errorf("walk cgroup: %w", err)
	}
	slices.Reverse(dirs)
	for _, dir := range dirs {
		killAll(filepath.Join(dir, "cgroup.procs"))
		if err := os.Remove(dir); err != nil && !errors.Is(err, os.ErrNotExist) {
			return fmt.Errorf("remove cgroup: %w", err)
		}
	}
	return nil
}

func killAll(procs string) {
	content, err := os.ReadFile(procs)
	if err != nil {
		return // The cgroup vanished; otherwise removing it fails.
	}
	for _, line := range strings.Fields(string(content)) {
		if pid, err := strconv.Atoi(line); err == nil && pid > 1 {
			_ = syscall.Kill(pid, syscall.SIGKILL)
		}
	}
}
