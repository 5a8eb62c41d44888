// Copyright The DI Orchestrator Authors.
// SPDX-License-Identifier: Apache-2.0

// Package machine checks the Linux machine, and changes and restores its settings.
package machine

import (
	"errors"
	"fmt"
	"os"
	"os/exec"
	"strconv"
	"strings"

	"golang.org/x/sys/unix"

	"opendilab.org/di-orchestrator/hack/cluster/internal/network"
)

// UnsuitableError means that the cluster cannot run on this machine, as opposed to a
// failure.
type UnsuitableError struct{ Reason error }

// Error implements error.
func (e UnsuitableError) Error() string {
	return "the local cluster cannot run here: " + e.Reason.Error() +
		"\nUse any other Kubernetes (kind, k3s, a real one) and name it by KUBECONFIG."
}

// Unwrap returns the reason.
func (e UnsuitableError) Unwrap() error { return e.Reason }

// neededCapabilities returns the needed capabilities by their number in the kernel.
func neededCapabilities() map[string]uint {
	return map[string]uint{
		"CAP_NET_ADMIN": unix.CAP_NET_ADMIN, "CAP_SYS_ADMIN": unix.CAP_SYS_ADMIN, "CAP_SYS_CHROOT": unix.CAP_SYS_CHROOT,
		"CAP_MKNOD": unix.CAP_MKNOD, "CAP_SETUID": unix.CAP_SETUID, "CAP_NET_BIND_SERVICE": unix.CAP_NET_BIND_SERVICE,
	}
}

// CheckRoot returns an error unless the user is root.
func CheckRoot() error {
	if uid := os.Geteuid(); uid != 0 {
		return UnsuitableError{fmt.Errorf("it needs root, and this is user %d: become root (sudo -E keeps the cache)", uid)}
	}
	return nil
}

// Check returns the reason why the cluster cannot run on this machine, or nil.
func Check() error {
	if err := CheckRoot(); err != nil {
		return err
	}
	if err := errors.Join(checkCapabilities(), checkCgroups(), checkKernel(), checkTools()); err != nil {
		return UnsuitableError{err}
	}
	return nil
}

func checkCapabilities() error {
	status, err := os.ReadFile("/proc/self/status")
	if err != nil {
		return fmt.Errorf("read capabilities: %w", err)
	}
	missing, err := missingCapabilities(string(status), neededCapabilities())
	if err != nil {
		return err
	}
	if len(missing) > 0 {
		return fmt.Errorf("root has no %s, as in an unprivileged container", strings.Join(missing, ", "))
	}
	return nil
}

func missingCapabilities(status string, needed map[string]uint) ([]string, error) {
	for line := range strings.Lines(status) {
		hex, found := strings.CutPrefix(line, "CapEff:")
		if !found {
			continue
		}
		effective, err := strconv.ParseUint(strings.TrimSpace(hex), 16, 64)
		if err != nil {
			return nil, fmt.Errorf("read capabilities: %w", err)
		}
		var missing []string
		for name, number := range needed {
			if effective&(1<<number) == 0 {
				missing = append(missing, name)
			}
		}
		return missing, nil
	}
	return nil, errors.New("the kernel does not report the capabilities of this process")
}

func checkCgroups() error {
	mounts, err := Mounts()
	if err != nil {
		return err
	}
	v1, v2 := cgroupMounts(mounts)
	if len(v1) == 0 && len(v2) == 0 {
		return errors.New("no cgroups are mounted")
	}
	for _, dir := range append(v1, v2...) {
		if err := unix.Access(dir, unix.W_OK); err != nil {
			return fmt.Errorf("cgroup hierarchy %s is read-only", dir)
		}
	}
	return nil
}

func checkKernel() error {
	if _, err := network.HasProxyTable(); err != nil {
		return fmt.Errorf("the packet filter nftables does not answer: %w", err)
	}
	for name := range wantedSysctls() {
		if err := unix.Access(sysctlPath(name), unix.W_OK); err != nil {
			return fmt.Errorf("kernel setting %s cannot be written (%w): the bridge filter may have to be loaded by modprobe br_netfilter", name, err)
		}
	}
	return nil
}

func checkTools() error {
	var missing []string
	for _, tool := range []string{"go", "gcc", "mount", "umount"} {
		if _, err := exec.LookPath(tool); err != nil {
			missing = append(missing, tool)
		}
	}
	if len(missing) > 0 {
		return fmt.Errorf("the search path lacks %s", strings.Join(missing, ", "))
	}
	return nil
}
