// Copyright The DI Orchestrator Authors.
// SPDX-License-Identifier: Apache-2.0

package machine

import (
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
)

// wantedSysctls are the kernel settings the cluster needs.
func wantedSysctls() map[string]string {
	return map[string]string{
		"net.ipv4.ip_forward": "1",
		// Packets between two pods pass the packet filter too, else the answer of
		// a pod reached through a Service would not find its way back.
		"net.bridge.bridge-nf-call-iptables": "1",
	}
}

// changedSysctls are further kernel settings which programs of the cluster
// change by themselves.
func changedSysctls() []string {
	return []string{
		"vm.overcommit_memory", "vm.panic_on_oom", "kernel.panic", "kernel.panic_on_oops",
		"kernel.keys.root_maxkeys", "kernel.keys.root_maxbytes",
	}
}

// ApplySysctls changes the kernel settings, after writing to a file what they
// were. A file that exists is from an earlier run and stays as it is.
func ApplySysctls(record string) error {
	wanted := wantedSysctls()
	if _, err := os.Stat(record); errors.Is(err, os.ErrNotExist) {
		if err := recordSysctls(record, wanted); err != nil {
			return err
		}
	}
	for name, value := range wanted {
		if err := writeSysctl(name, value); err != nil {
			return err
		}
	}
	return nil
}

func recordSysctls(record string, wanted map[string]string) error {
	before := map[string]string{}
	names := changedSysctls()
	for name := range wanted {
		names = append(names, name)
	}
	for _, name := range names {
		content, err := os.ReadFile(sysctlPath(name))
		if errors.Is(err, os.ErrNotExist) {
			continue
		}
		if err != nil {
			return fmt.Errorf("read kernel setting: %w", err)
		}
		before[name] = strings.TrimSpace(string(content))
	}
	content, err := json.MarshalIndent(before, "", "  ")
	if err != nil {
		return fmt.Errorf("record kernel settings: %w", err)
	}
	return WriteFile(record, content)
}

// RestoreSysctls sets the kernel settings to what they were. Without a record
// nothing was changed.
func RestoreSysctls(record string) error {
	content, err := os.ReadFile(record)
	if errors.Is(err, os.ErrNotExist) {
		return nil
	}
	if err != nil {
		return fmt.Errorf("read recorded kernel settings: %w", err)
	}
	var before map[string]string
	if err := json.Unmarshal(content, &before); err != nil {
		return fmt.Errorf("read recorded kernel settings from %s: %w", record, err)
	}
	var errs []error
	for name, value := range before {
		errs = append(errs, writeSysctl(name, value))
	}
	return errors.Join(errs...)
}

func sysctlPath(name string) string {
	return filepath.Join("/proc/sys", strings.ReplaceAll(name, ".", "/"))
}

// writeSysctl writes only a value that differs, for some machines refuse
// writing even the same.
func writeSysctl(name, value string) error {
	current, err := os.ReadFile(sysctlPath(name))
	if err != nil {
		return fmt.Errorf("read kernel setting: %w", err)
	}
	if strings.TrimSpace(string(current)) == value {
		return nil
	}
	if err := os.WriteFile(sysctlPath(name), []byte(value), 0o644); err != nil {
		return fmt.Errorf("set kernel setting %s to %s: %w", name, value, err)
	}
	return nil
}

// WriteFile writes a file that is complete or not there.
func WriteFile(path string, content []byte) error {
	if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
		return fmt.Errorf("folder of %s: %w", path, err)
	}
	partial := path + ".partial"
	if err := os.WriteFile(partial, content, 0o600); err != nil {
		return fmt.Errorf("write %s: %w", path, err)
	}
	if err := os.Rename(partial, path); err != nil {
		return fmt.Errorf("put %s in place: %w", path, err)
	}
	return nil
}
