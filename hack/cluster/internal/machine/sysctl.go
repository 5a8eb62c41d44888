// Copyright The DI Orchestrator Authors.
// SPDX-License-Identifier: Apache-2.0

package machine

import (
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
)

// wantedSysctls returns the kernel settings that the cluster needs.
func wantedSysctls() map[string]string {
	return map[string]string{
		"net.ipv4.ip_forward": "1",
		// Packets between two pods must also pass the packet filter. Otherwise the answer of a pod
		// that was reached through a Service would be lost.
		"net.bridge.bridge-nf-call-iptables": "1",
	}
}

// changedSysctls returns further kernel settings that programs of the cluster change by themselves.
func changedSysctls() []string {
	return []string{
		"vm.overcommit_memory", "vm.panic_on_oom", "kernel.panic", "kernel.panic_on_oops",
		"kernel.keys.root_maxkeys", "kernel.keys.root_maxbytes",
	}
}

// ApplySysctls changes the kernel settings after it has recorded their previous values in a file.
func ApplySysctls(record string) error {
	if err := recordOnce(record, currentSysctls); err != nil {
		return err
	}
	return writeSysctls(wantedSysctls())
}

func currentSysctls() (map[string]string, error) {
	current := map[string]string{}
	for _, name := range slices.AppendSeq(changedSysctls(), maps.Keys(wantedSysctls())) {
		content, err := os.ReadFile(sysctlPath(name))
		if err != nil && !errors.Is(err, os.ErrNotExist) {
			return nil, fmt.Errorf("read kernel setting: %w", err)
		}
		if err == nil {
			current[name] = strings.TrimSpace(string(content))
		}
	}
	return current, nil
}

// RestoreSysctls restores the previous kernel settings. Without a record nothing was changed.
func RestoreSysctls(record string) error {
	before, err := ReadRecord[map[string]string](record)
	if err != nil {
		return err
	}
	return writeSysctls(before)
}

func writeSysctls(values map[string]string) error {
	var errs []error
	for name, value := range values {
		errs = append(errs, writeSysctl(name, value))
	}
	return errors.Join(errs...)
}

func sysctlPath(name string) string {
	return filepath.Join("/proc/sys", strings.ReplaceAll(name, ".", "/"))
}

// writeSysctl writes a value only if it differs because some machines reject even writing the same.
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

// recordOnce writes a value to a file as JSON. An existing file is from an earlier run and remains
// unchanged.
func recordOnce[T any](file string, value func() (T, error)) error {
	if _, err := os.Stat(file); !errors.Is(err, os.ErrNotExist) {
		return err
	}
	recorded, err := value()
	if err != nil {
		return err
	}
	return WriteRecord(file, recorded)
}

// WriteRecord writes a value to a file as JSON.
func WriteRecord(file string, value any) error {
	content, err := json.MarshalIndent(value, "", "  ")
	if err != nil {
		return fmt.Errorf("record %s: %w", file, err)
	}
	return WriteFile(file, content)
}

// ReadRecord reads a value from a file. It returns the zero value if there is no file.
func ReadRecord[T any](file string) (value T, err error) {
	content, err := os.ReadFile(file)
	if errors.Is(err, os.ErrNotExist) {
		return value, nil
	}
	if err == nil {
		err = json.Unmarshal(content, &value)
	}
	if err != nil {
		return value, fmt.Errorf("read record %s: %w", file, err)
	}
	return value, nil
}

// WriteFile writes a file atomically.
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
