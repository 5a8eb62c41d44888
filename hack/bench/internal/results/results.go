// Copyright The DI Orchestrator Authors.
// SPDX-License-Identifier: Apache-2.0

// Package results stores what benchmarks measure, with the command, the machine and the date.
package results

import (
	"context"
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strings"
	"time"
)

// Result is a run of a section.
type Result struct {
	// Name is the scenario and the section, such as server-polling. The file has this name.
	Name string `json:"name"`
	// Command is the command line from the root of the repository.
	Command string    `json:"command"`
	Date    time.Time `json:"date"`
	// Commit is what was measured. It ends with -dirty if the checkout had further changes.
	Commit  string  `json:"commit"`
	Machine Machine `json:"machine"`
	// Report has the lines that the section printed.
	Report []string `json:"report"`
	// Data are figures of the section for plots and calculations; most sections have none.
	Data json.RawMessage `json:"data,omitempty"`
}

// Machine is what a benchmark ran on.
type Machine struct {
	Processor  string `json:"processor"`
	Processors int    `json:"processors"`
	Memory     string `json:"memory"`
	Kernel     string `json:"kernel"`
	Go         string `json:"go"`
}

// New returns a result of now, on this machine and of this checkout.
func New(ctx context.Context, name, command, report string, data any) (*Result, error) {
	commit, err := git(ctx, "rev-parse", "--short=12", "HEAD")
	if err != nil {
		return nil, err
	}
	// A result that an earlier section wrote is no change of what is measured.
	changes, err := git(ctx, "status", "--porcelain", "--untracked-files=no", "--", ":/", ":(top,exclude)docs")
	if err != nil {
		return nil, err
	}
	if changes != "" {
		commit += "-dirty"
	}
	machine, err := thisMachine()
	if err != nil {
		return nil, err
	}
	r := &Result{
		Name: name, Command: command, Date: time.Now().UTC().Truncate(time.Second), Commit: commit, Machine: machine,
		Report: strings.Split(strings.Trim(report, "\n"), "\n"),
	}
	if data != nil {
		if r.Data, err = json.Marshal(data); err != nil {
			return nil, fmt.Errorf("result %s: %w", name, err)
		}
	}
	return r, nil
}

func git(ctx context.Context, arguments ...string) (string, error) {
	output, err := exec.CommandContext(ctx, "git", arguments...).Output()
	if err != nil {
		return "", fmt.Errorf("git %s: %w", strings.Join(arguments, " "), err)
	}
	return strings.TrimSpace(string(output)), nil
}

func thisMachine() (m Machine, err error) {
	for path, key := range map[string]string{"/proc/cpuinfo": "model name", "/proc/meminfo": "MemTotal", "/proc/sys/kernel/osrelease": ""} {
		content, err := os.ReadFile(path)
		if err != nil {
			return m, fmt.Errorf("machine: %w", err)
		}
		switch value := valueOf(string(content), key); key {
		case "model name":
			m.Processor = value
		case "MemTotal":
			m.Memory = value
		default:
			m.Kernel = strings.TrimSpace(string(content))
		}
	}
	m.Processors, m.Go = runtime.NumCPU(), runtime.Version()
	return m, nil
}

// valueOf returns the value of a line "key : value".
func valueOf(content, key string) string {
	for line := range strings.Lines(content) {
		if name, value, found := strings.Cut(line, ":"); found && strings.TrimSpace(name) == key {
			return strings.TrimSpace(value)
		}
	}
	return ""
}

// Write writes the result into a folder.
func (r *Result) Write(folder string) error {
	content, err := json.MarshalIndent(r, "", "  ")
	if err != nil {
		return fmt.Errorf("result %s: %w", r.Name, err)
	}
	if err := os.MkdirAll(folder, 0o750); err != nil {
		return fmt.Errorf("result %s: %w", r.Name, err)
	}
	if err := os.WriteFile(filepath.Join(folder, r.Name+".json"), append(content, '\n'), 0o600); err != nil {
		return fmt.Errorf("result %s: %w", r.Name, err)
	}
	return nil
}

// Read reads the results of a folder, by name.
func Read(folder string) ([]*Result, error) {
	files, err := filepath.Glob(filepath.Join(folder, "*.json"))
	if err != nil {
		return nil, fmt.Errorf("results: %w", err)
	}
	all := make([]*Result, 0, len(files))
	for _, file := range files {
		content, err := os.ReadFile(filepath.Clean(file))
		if err != nil {
			return nil, fmt.Errorf("results: %w", err)
		}
		r := &Result{}
		if err := json.Unmarshal(content, r); err != nil {
			return nil, fmt.Errorf("%s: %w", file, err)
		}
		all = append(all, r)
	}
	return all, nil
}
