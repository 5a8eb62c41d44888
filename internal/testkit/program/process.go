// Copyright The DI Orchestrator Authors.
// SPDX-License-Identifier: Apache-2.0

// Package program starts the programs that benchmarks measure, and reads their use of
// processors and memory.
package program

import (
	"bufio"
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"time"

	"k8s.io/apimachinery/pkg/util/wait"

	"opendilab.org/di-orchestrator/internal/testkit"
)

// ticksPerSecond is the unit of times in /proc.
const ticksPerSecond = 100

// readyTime bounds how long a program may take until it is ready.
const readyTime = 5 * time.Minute

// Process is a program that runs beside the benchmark.
type Process struct {
	// Address is where it serves, and Probe where it serves its probes, if it has any.
	Address, Probe string

	command *exec.Cmd
	// input ends the process when it is closed; nil if a signal does.
	input io.Closer
	log   *os.File

	// ended is closed when the process has ended, with result.
	ended  chan struct{}
	result error
}

// Usage is the processor time and memory that a process has used.
type Usage struct {
	Processor           time.Duration
	Resident, PeakBytes int64
}

// Log returns what the process has logged so far.
func (p *Process) Log() ([]byte, error) {
	content, err := os.ReadFile(p.log.Name())
	if err != nil {
		return nil, fmt.Errorf("reading a log: %w", err)
	}
	return content, nil
}

// InFolder runs a benchmark with a folder of its own for programs and logs. It keeps the
// folder if the benchmark fails.
func InFolder(prefix string, run func(folder string) error) error {
	folder, err := os.MkdirTemp("", prefix)
	if err != nil {
		return fmt.Errorf("making a folder: %w", err)
	}
	if err := run(folder); err != nil {
		return fmt.Errorf("%w (logs are in %s)", err, folder)
	}
	return os.RemoveAll(folder)
}

// Build builds di-orchestrator from this checkout into a folder.
func Build(ctx context.Context, folder string) (string, error) {
	return BuildCommand(ctx, folder, "di-orchestrator")
}

// BuildCommand builds a command of this checkout into a folder and returns its path.
// It builds without cgo, as images are built: a test with the race detector needs cgo,
// and would compile all libraries a third time.
func BuildCommand(ctx context.Context, folder, name string, flags ...string) (string, error) {
	binary := filepath.Join(folder, name)
	command := exec.CommandContext(ctx, "go", append([]string{"build", "-buildvcs=false", "-ldflags=-s -w", "-o", binary}, append(flags, "./cmd/"+name)...)...)
	command.Dir, command.Env = testkit.Root(), append(os.Environ(), "CGO_ENABLED=0")
	if output, err := command.CombinedOutput(); err != nil {
		return "", fmt.Errorf("building %s: %w\n%s", name, err, output)
	}
	return binary, nil
}

// Command starts one of di-orchestrator's programs.
type Command struct {
	// Binary is the di-orchestrator, and Name its command.
	Binary, Name string
	// Folder is where the log is written.
	Folder string
	// Environment is added to the benchmark's own.
	Environment []string
	// Address is where it serves; empty for a free one.
	Address string
	// Flags returns the flags for its address, without those for metrics and probes.
	Flags func(address string) []string
	// NoWait has Start return before the program is ready.
	NoWait bool
}

// Start starts one of the programs, and returns when it is ready, unless NoWait is set.
func Start(ctx context.Context, c *Command) (*Process, error) {
	address, probe, err := FreeAddresses(ctx)
	if err != nil {
		return nil, err
	}
	address = cmp.Or(c.Address, address)
	arguments := append(append([]string{c.Name}, c.Flags(address)...), "--metrics-address", "0", "--probe-address", probe)
	started := &Process{Address: address, Probe: probe, command: exec.CommandContext(ctx, c.Binary, arguments...)}
	started.command.Env = append(os.Environ(), c.Environment...)
	if started.log, err = os.CreateTemp(c.Folder, c.Name+"-*.log"); err != nil {
		return nil, fmt.Errorf("starting %s: %w", c.Name, err)
	}
	if err := started.startLogging(); err != nil {
		return nil, fmt.Errorf("starting %s: %w", c.Name, err)
	}
	if c.NoWait {
		return started, nil
	}
	if err := waitReady(ctx, started); err != nil {
		return nil, errors.Join(fmt.Errorf("starting %s, which logs to %s: %w", c.Name, started.log.Name(), err), started.Stop())
	}
	return started, nil
}

// StartForeign starts another project's program, and does not wait until it is ready. It
// logs to a file of its own in a folder.
func StartForeign(ctx context.Context, folder, binary string, flags ...string) (_ *Process, err error) {
	name := filepath.Base(binary)
	started := &Process{command: exec.CommandContext(ctx, binary, flags...)}
	if started.log, err = os.CreateTemp(folder, name+"-*.log"); err != nil {
		return nil, fmt.Errorf("starting %s: %w", name, err)
	}
	if err := started.startLogging(); err != nil {
		return nil, fmt.Errorf("starting %s: %w", name, err)
	}
	return started, nil
}

// startLogging starts the process, which writes to its log.
func (p *Process) startLogging() error {
	p.command.Stdout, p.command.Stderr = p.log, p.log
	if err := p.command.Start(); err != nil {
		return errors.Join(err, p.log.Close())
	}
	p.await()
	return nil
}

// await waits for the end of the process in the background.
func (p *Process) await() {
	p.ended = make(chan struct{})
	go func() {
		p.result = p.command.Wait()
		close(p.ended)
	}()
}

// Ended returns a channel that is closed when the process has ended.
func (p *Process) Ended() <-chan struct{} {
	return p.ended
}

// BuildCluster builds a program of the local cluster, such as kube-scheduler,
// unless its cache has it, and returns its path.
func BuildCluster(ctx context.Context, name string) (string, error) {
	command := exec.CommandContext(ctx, "go", "run", ".", "program", name)
	command.Dir, command.Stderr = filepath.Join(testkit.Root(), "hack", "cluster"), os.Stderr
	path, err := command.Output()
	if err != nil {
		return "", fmt.Errorf("building %s: %w", name, err)
	}
	return strings.TrimSpace(string(path)), nil
}

// Run runs one of the programs to its end, and returns its output. Address and Flags of
// the command are not used.
func Run(ctx context.Context, c *Command, arguments ...string) (string, error) {
	command := exec.CommandContext(ctx, c.Binary, append([]string{c.Name}, arguments...)...)
	command.Env = append(os.Environ(), c.Environment...)
	wrote, err := command.CombinedOutput()
	if err != nil {
		return "", fmt.Errorf("running %s: %w: %s", c.Name, err, wrote)
	}
	return string(wrote), nil
}

// FreeAddresses returns two free addresses of the loopback interface.
func FreeAddresses(ctx context.Context) (first, second string, err error) {
	var addresses [2]string
	var listeners [2]net.Listener
	for i := range listeners {
		if listeners[i], err = (&net.ListenConfig{}).Listen(ctx, "tcp", "127.0.0.1:0"); err != nil {
			return "", "", fmt.Errorf("finding a free port: %w", err)
		}
		addresses[i] = listeners[i].Addr().String()
	}
	return addresses[0], addresses[1], errors.Join(listeners[0].Close(), listeners[1].Close())
}

// waitReady waits until a probe succeeds.
func waitReady(ctx context.Context, started *Process) error {
	var last error
	err := wait.PollUntilContextTimeout(ctx, 50*time.Millisecond, readyTime, true, func(ctx context.Context) (bool, error) {
		last = started.Ready(ctx)
		return last == nil, nil
	})
	return errors.Join(err, last)
}

// Ready returns why a program that serves probes is not ready, or nil.
func (p *Process) Ready(ctx context.Context) error {
	_, err := Read(ctx, "http://"+p.Probe+"/readyz")
	return err
}

// Read returns the body that a program serves at a URL.
func Read(ctx context.Context, url string) (_ []byte, err error) {
	request, err := http.NewRequestWithContext(ctx, http.MethodGet, url, http.NoBody)
	if err != nil {
		return nil, fmt.Errorf("reading %s: %w", url, err)
	}
	response, err := http.DefaultClient.Do(request)
	if err != nil {
		return nil, fmt.Errorf("reading: %w", err)
	}
	defer func() { err = errors.Join(err, response.Body.Close()) }()
	if response.StatusCode != http.StatusOK {
		return nil, fmt.Errorf("reading %s: %s", url, response.Status)
	}
	body, err := io.ReadAll(response.Body)
	if err != nil {
		return nil, fmt.Errorf("reading %s: %w", url, err)
	}
	return body, nil
}

// StartOwn starts another process of this program, with additional environment. The first
// line that it prints is its address, and it ends when its input is closed.
func StartOwn(ctx context.Context, environment []string, flags ...string) (*Process, error) {
	own, err := os.Executable()
	if err != nil {
		return nil, fmt.Errorf("starting a process: %w", err)
	}
	started := &Process{command: exec.CommandContext(ctx, own, flags...)}
	started.command.Env, started.command.Stderr = append(os.Environ(), environment...), os.Stderr
	if started.input, err = started.command.StdinPipe(); err != nil {
		return nil, fmt.Errorf("starting a process: %w", err)
	}
	output, err := started.command.StdoutPipe()
	if err != nil {
		return nil, fmt.Errorf("starting a process: %w", err)
	}
	if err := started.command.Start(); err != nil {
		return nil, fmt.Errorf("starting a process: %w", err)
	}
	line, err := bufio.NewReader(output).ReadString('\n')
	started.await()
	if err != nil {
		return nil, errors.Join(fmt.Errorf("starting a process: %w", err), started.Stop())
	}
	started.Address = strings.TrimSpace(line)
	return started, nil
}

// Stop ends the process.
func (p *Process) Stop() error {
	var err error
	if p.input != nil {
		err = p.input.Close()
	} else {
		err = p.command.Process.Signal(syscall.SIGTERM)
	}
	if err != nil && !errors.Is(err, os.ErrProcessDone) {
		return fmt.Errorf("stopping %s: %w", p.command, err)
	}
	<-p.ended
	if p.log != nil {
		return errors.Join(p.result, p.log.Close())
	}
	return p.result
}

// Kill kills the process.
func (p *Process) Kill() error {
	if err := p.command.Process.Kill(); err != nil && !errors.Is(err, os.ErrProcessDone) {
		return fmt.Errorf("killing %s: %w", p.command, err)
	}
	<-p.ended
	return p.log.Close()
}

// HasEnded reports whether the process has ended.
func (p *Process) HasEnded() bool {
	select {
	case <-p.ended:
		return true
	default:
		return false
	}
}

// Usage returns what the process has used so far.
func (p *Process) Usage() (Usage, error) {
	folder := filepath.Join("/proc", strconv.Itoa(p.command.Process.Pid))
	stat, err := os.ReadFile(filepath.Join(folder, "stat"))
	if err != nil {
		return Usage{}, fmt.Errorf("usage: %w", err)
	}
	status, err := os.ReadFile(filepath.Join(folder, "status"))
	if err != nil {
		return Usage{}, fmt.Errorf("usage: %w", err)
	}
	// The name, which stands in parentheses, may hold anything.
	fields := strings.Fields(string(stat[strings.LastIndexByte(string(stat), ')')+1:]))
	ticks := int64(0)
	for _, field := range fields[11:13] {
		count, err := strconv.ParseInt(field, 10, 64)
		if err != nil {
			return Usage{}, fmt.Errorf("usage: %w", err)
		}
		ticks += count
	}
	return Usage{
		Processor: time.Duration(ticks) * time.Second / ticksPerSecond,
		Resident:  statusBytes(string(status), "VmRSS:"),
		PeakBytes: statusBytes(string(status), "VmHWM:"),
	}, nil
}

// ResetPeak resets the peak of the process's memory to its present use.
func (p *Process) ResetPeak() error {
	path := filepath.Join("/proc", strconv.Itoa(p.command.Process.Pid), "clear_refs")
	if err := os.WriteFile(path, []byte("5"), 0o600); err != nil {
		return fmt.Errorf("resetting the peak of memory: %w", err)
	}
	return nil
}

// statusBytes returns a figure of /proc/PID/status, which is in kB; 0 where
// there is none.
func statusBytes(status, name string) int64 {
	_, line, _ := strings.Cut(status, name)
	fields := strings.Fields(line)
	if len(fields) == 0 {
		return 0
	}
	kilobytes, _ := strconv.ParseInt(fields[0], 10, 64)
	return kilobytes << 10
}

// BusyProcessors returns the share of processors that is busy, over a second.
func BusyProcessors(ctx context.Context) (string, error) {
	idle, total, err := processorTicks()
	if err != nil {
		return "", err
	}
	timer := time.NewTimer(time.Second)
	defer timer.Stop()
	select {
	case <-ctx.Done():
		return "", context.Cause(ctx)
	case <-timer.C:
	}
	idleThen, totalThen, err := processorTicks()
	if err != nil || totalThen == total {
		return "?", err
	}
	share := 1 - float64(idleThen-idle)/float64(totalThen-total)
	return fmt.Sprintf("%.0f%% of the processors", share*100), nil
}

func processorTicks() (idle, total int64, err error) {
	stat, err := os.ReadFile("/proc/stat")
	if err != nil {
		return 0, 0, fmt.Errorf("processors: %w", err)
	}
	line, _, _ := strings.Cut(string(stat), "\n")
	for i, field := range strings.Fields(line)[1:] {
		ticks, err := strconv.ParseInt(field, 10, 64)
		if err != nil {
			return 0, 0, fmt.Errorf("processors: %w", err)
		}
		total += ticks
		// Idle, and waiting for disks.
		if i == 3 || i == 4 {
			idle += ticks
		}
	}
	return idle, total, nil
}
