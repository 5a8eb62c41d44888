// Copyright The DI Orchestrator Authors.
// SPDX-License-Identifier: Apache-2.0

package process

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"time"
)

// poll is the polling interval for conditions that the kernel does not announce.
const poll = 50 * time.Millisecond

// endLimit is the timeout, on a busy machine, for the kernel to end killed processes and to show
// started ones.
const endLimit = time.Minute

// quotedLog is the maximum size of a daemon's log in an error.
const quotedLog = 3000

// Control starts and ends the daemons of one cluster.
type Control struct {
	stateDir string
}

// NewControl returns the control for a state directory. Daemons run in that directory and log to
// its folder logs.
func NewControl(stateDir string) Control {
	return Control{stateDir: stateDir}
}

// Ensure makes a daemon run with exactly the arguments of its specification, and reports whether it
// restarted one with different arguments.
func (c Control) Ensure(ctx context.Context, spec Spec) (restarted bool, err error) {
	running, err := Find(c.stateDir)
	if err != nil {
		return false, err
	}
	keep, old := Decide(spec, running)
	if keep {
		return false, nil
	}
	if err := End(ctx, old, 15*time.Second); err != nil {
		return false, fmt.Errorf("end the old %s: %w", spec.Name, err)
	}
	if err := c.awaitPredecessor(ctx, spec); err != nil {
		return false, err
	}
	return len(old) > 0, c.start(ctx, spec)
}

// awaitPredecessor waits for a daemon that is being killed. It loses its marks before it releases
// its addresses and files.
func (c Control) awaitPredecessor(ctx context.Context, spec Spec) error {
	content, err := os.ReadFile(c.pidFile(spec.Name))
	if errors.Is(err, os.ErrNotExist) {
		return nil
	}
	if err != nil {
		return fmt.Errorf("read pid file of %s: %w", spec.Name, err)
	}
	pid, err := strconv.Atoi(strings.TrimSpace(string(content)))
	if err != nil || !dying(pid) {
		return nil //nolint:nilerr // A pid file that was cut off names no process to wait for.
	}
	if err := awaitEnd(ctx, []Process{{PID: pid, Program: spec.Name}}, endLimit); err != nil {
		return fmt.Errorf("the killed %s does not end: %w", spec.Name, err)
	}
	return nil
}

// dying reports whether a process has lost its memory, and thereby its environment, but still
// exists. Kernel threads look the same, but their numbers are in no pid file.
func dying(pid int) bool {
	environ, err := os.ReadFile(filepath.Join("/proc", strconv.Itoa(pid), "environ"))
	return err == nil && len(environ) == 0 && alive(pid)
}

// start runs a daemon in a new session, so that it survives the end of this process and of its
// terminal.
func (c Control) start(ctx context.Context, spec Spec) error {
	if err := keepDescriptors(); err != nil {
		return err
	}
	for _, file := range []string{c.LogFile(spec.Name), c.pidFile(spec.Name)} {
		if err := os.MkdirAll(filepath.Dir(file), 0o755); err != nil {
			return fmt.Errorf("folder of a daemon: %w", err)
		}
	}
	log, err := os.OpenFile(c.LogFile(spec.Name), os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o644)
	if err != nil {
		return fmt.Errorf("open log: %w", err)
	}
	defer log.Close()                               //nolint:errcheck // The daemon has its own descriptor by then.
	cmd := exec.Command(spec.Program, spec.Args...) //nolint:noctx // The daemon outlives this program.
	cmd.Dir = c.stateDir
	cmd.Stdout, cmd.Stderr = log, log
	cmd.SysProcAttr = &syscall.SysProcAttr{Setsid: true}
	cmd.Env = append([]string{
		"HOME=" + c.stateDir, "TMPDIR=" + filepath.Join(c.stateDir, "tmp"),
		markCluster + c.stateDir, markName + spec.Name, markFingerprint + spec.Fingerprint(),
	}, spec.Env...)
	if err := cmd.Start(); err != nil {
		return fmt.Errorf("start %s: %w", spec.Name, err)
	}
	// The number is for people and their tools. This program finds processes by their marks.
	if err := os.WriteFile(c.pidFile(spec.Name), fmt.Appendln(nil, cmd.Process.Pid), 0o644); err != nil {
		return fmt.Errorf("write pid file of %s: %w", spec.Name, err)
	}
	if err := c.awaitMarks(ctx, cmd.Process.Pid); err != nil {
		return fmt.Errorf("%s does not show up among the processes: %w", spec.Name, err)
	}
	if err := cmd.Process.Release(); err != nil {
		return fmt.Errorf("detach %s: %w", spec.Name, err)
	}
	return nil
}

// keepDescriptors prevents daemons from inheriting the descriptors that this program has inherited.
// A daemon outlives the caller, and would keep the lock of a flock around the call.
func keepDescriptors() error {
	entries, err := os.ReadDir("/proc/self/fd")
	if err != nil {
		return fmt.Errorf("list own descriptors: %w", err)
	}
	for _, entry := range entries {
		descriptor, err := strconv.Atoi(entry.Name())
		if err != nil {
			return fmt.Errorf("list own descriptors: %w", err)
		}
		if descriptor > syscall.Stderr {
			syscall.CloseOnExec(descriptor)
		}
	}
	return nil
}

// awaitMarks waits until the marks of a new process can be read. For a moment after its start the
// kernel shows an empty environment.
func (c Control) awaitMarks(ctx context.Context, pid int) error {
	ctx, cancel := context.WithTimeout(ctx, endLimit)
	defer cancel()
	return Until(ctx, func(context.Context) (bool, error) {
		_, marked := inspect(pid, c.stateDir)
		return marked || !alive(pid), nil
	})
}

func (c Control) pidFile(name string) string {
	return filepath.Join(c.stateDir, "pids", name+".pid")
}

// LogFile returns the path of a daemon's log.
func (c Control) LogFile(name string) string {
	return filepath.Join(c.stateDir, "logs", name+".log")
}

// Await waits until ready returns no error. It fails when the daemon dies, and then quotes the end
// of its log.
func (c Control) Await(ctx context.Context, spec Spec, limit time.Duration, ready func(context.Context) error) error {
	ctx, cancel := context.WithTimeout(ctx, limit)
	defer cancel()
	err := Until(ctx, func(ctx context.Context) (bool, error) {
		last := ready(ctx)
		if last == nil {
			return true, nil
		}
		running, err := Find(c.stateDir)
		if err != nil {
			return false, err
		}
		if len(Of(spec, running)) == 0 {
			return false, fmt.Errorf("%s died", spec.Name)
		}
		return false, retryable{last}
	})
	if err != nil {
		return fmt.Errorf("%s is not ready: %w\nthe end of %s:\n%s", spec.Name, err, c.LogFile(spec.Name), c.logTail(spec.Name))
	}
	return nil
}

func (c Control) logTail(name string) string {
	content, err := os.ReadFile(c.LogFile(name))
	if err != nil {
		return err.Error()
	}
	return string(content[max(len(content)-quotedLog, 0):])
}

// retryable is an error that means "not yet".
type retryable struct{ error }

// Retryable marks an error as one that means "not yet".
func Retryable(err error) error { return retryable{err} }

// Until polls a condition until it is true, fails permanently or the context ends. In the last case
// the error includes the last reason.
func Until(ctx context.Context, condition func(context.Context) (bool, error)) error {
	ticker := time.NewTicker(poll)
	defer ticker.Stop()
	var last error
	for {
		done, err := condition(ctx)
		if done {
			return nil
		}
		if again := (retryable{}); err != nil && !errors.As(err, &again) {
			return err
		}
		if err != nil && ctx.Err() == nil {
			last = err
		}
		select {
		case <-ctx.Done():
			return errors.Join(last, ctx.Err())
		case <-ticker.C:
		}
	}
}

// End terminates processes and kills those that do not exit within the grace period. A grace period
// of 0 kills immediately.
func End(ctx context.Context, processes []Process, grace time.Duration) error {
	if grace > 0 {
		signal(processes, syscall.SIGTERM)
		if awaitEnd(ctx, processes, grace) == nil {
			return nil
		}
	}
	signal(processes, syscall.SIGKILL)
	if err := awaitEnd(ctx, processes, endLimit); err != nil {
		return fmt.Errorf("processes do not end after being killed: %w", err)
	}
	return nil
}

func signal(processes []Process, sig syscall.Signal) {
	for _, p := range processes {
		// A process may already have exited. awaitEnd detects any other failure.
		_ = syscall.Kill(p.PID, sig)
	}
}

func awaitEnd(ctx context.Context, processes []Process, limit time.Duration) error {
	ctx, cancel := context.WithTimeout(ctx, limit)
	defer cancel()
	return Until(ctx, func(context.Context) (bool, error) {
		for _, p := range processes {
			if alive(p.PID) {
				return false, Retryable(fmt.Errorf("%s (%d) is running", p.Program, p.PID))
			}
		}
		return true, nil
	})
}
