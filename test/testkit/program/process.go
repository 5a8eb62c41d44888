// Copyright The DI Orchestrator Authors.
// SPDX-License-Identifier: Apache-2.0

// Package program starts the programs that benchmarks measure and reads their processor and memory
// usage.
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

	"opendilab.org/di-orchestrator/test/testkit"
)

// ticksPerSecond is the unit of times in /proc.
const ticksPerSecond = 100

// readyTime is the timeout for a program to become ready.
const readyTime = 5 * time.Minute

// Process is a program that runs in parallel to the benchmark.
type Process struct {
	// Address is the address that the program serves. Probe is the address of its probes, if it has
	// any.
	Address, Probe string

	command *exec.Cmd
	// input ends the process when it is closed. It is nil if a signal ends the process.
	input io.Closer
	log   *os.File

	// ended is closed when the process has exited with result.
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

// InFolder runs a benchmark with its own folder for programs and logs. It keeps the folder if the
// benchmark fails.
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
func BuildCommand(ctx context.Context, folder, name string, flags ...string) (string, error) {
	return BuildCommandOf(ctx, testkit.Root(), folder, name, flags...)
}

// BuildCommandOf is BuildCommand for another checkout. It builds without cgo, as images are built. A
// test with the race detector needs cgo, and would compile all libraries a third time.
func BuildCommandOf(ctx context.Context, checkout, folder, name string, flags ...string) (string, error) {
	binary := filepath.Join(folder, name)
	command := exec.CommandContext(ctx, "go", append([]string{"build", "-buildvcs=false", "-ldflags=-s -w", "-o", binary}, append(flags, "./cmd/"+name)...)...)
	command.Dir, command.Env = checkout, append(os.Environ(), "CGO_ENABLED=0")
	if output, err := command.CombinedOutput(); err != nil {
		return "", fmt.Errorf("building %s: %w\n%s", name, err, output)
	}
	return binary, nil
}

// Command starts one of di-orchestrator's programs.
type Command struct {
	// Binary is the path of di-orchestrator. Name is the command.
	Binary, Name string
	// Folder is the folder for the log.
	Folder string
	// Environment extends the benchmark's own environment.
	Environment []string
	// Address is the address that the program serves. If empty, a free one is used.
	Address string
	// Flags returns the flags for the address, without those for probes. Metrics are not served by default.
	Flags func(address string) []string
	// Configuration has sections of the program's configuration, as YAML; empty for the defaults.
	Configuration string
	// NoWait makes Start return before the program is ready.
	NoWait bool
}

// Start starts one of the programs. It returns when the program is ready, unless NoWait is set.
func Start(ctx context.Context, c *Command) (*Process, error) {
	address, probe, err := FreeAddresses(ctx)
	if err != nil {
		return nil, err
	}
	address = cmp.Or(c.Address, address)
	arguments := append([]string{c.Name, "--metrics-address", "0", "--probe-address", probe}, c.Flags(address)...)
	if c.Configuration != "" {
		flag, err := testkit.Configuration(c.Folder, c.Configuration)
		if err != nil {
			return nil, err
		}
		arguments = append(arguments, flag)
	}
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

// StartForeign starts another project's program and does not wait until it is ready. The program
// logs to its own file in a folder.
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

// startLogging starts the process with output to its log.
func (p *Process) startLogging() error {
	p.command.Stdout, p.command.Stderr = p.log, p.log
	if err := p.command.Start(); err != nil {
		return errors.Join(err, p.log.Close())
	}
	p.await()
	return nil
}

// await waits for the exit of the process in the background.
func (p *Process) await() {
	p.ended = make(chan struct{})
	go func() {
		p.result = p.command.Wait()
		close(p.ended)
	}()
}

// Ended returns a channel that is closed when the process has exited.
func (p *Process) Ended() <-chan struct{} {
	return p.ended
}

// BuildCluster builds a program of the local cluster, such as kube-scheduler, unless it is cached,
// and returns its path.
func BuildCluster(ctx context.Context, name string) (string, error) {
	command := exec.CommandContext(ctx, "go", "run", ".", "program", name)
	command.Dir, command.Stderr = filepath.Join(testkit.Root(), "hack", "cluster"), os.Stderr
	path, err := command.Output()
	if err != nil {
		return "", fmt.Errorf("building %s: %w", name, err)
	}
	return strings.TrimSpace(string(path)), nil
}

// Run runs one of the programs until it exits and returns its output. It ignores Address and Flags
// of the command.
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

// Ready returns nil if the program is ready, or the error of its probe.
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

// StartOwn starts another process of this program with additional environment variables. The first
// line that it prints is its address. It exits when its input is closed.
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

// Stop terminates the process.
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

// HasEnded reports whether the process has exited.
func (p *Process) HasEnded() bool {
	select {
	case <-p.ended:
		return true
	default:
		return false
	}
}

// ID returns the number of the process.
func (p *Process) ID() int { return p.command.Process.Pid }

// Usage returns the processor time and memory that the process has used.
func (p *Process) Usage() (Usage, error) {
	return usageOf(p.command.Process.Pid)
}

func usageOf(process int) (Usage, error) {
	folder := filepath.Join("/proc", strconv.Itoa(process))
	stat, err := os.ReadFile(filepath.Join(folder, "stat"))
	if err != nil {
		return Usage{}, fmt.Errorf("usage: %w", err)
	}
	status, err := os.ReadFile(filepath.Join(folder, "status"))
	if err != nil {
		return Usage{}, fmt.Errorf("usage: %w", err)
	}
	// The name is in parentheses and may contain any character.
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

// Self is the name of this program in the result of Tree.
const Self = "this program"

// Tree returns the usage of this program and of the processes that it started, by name: the command of
// di-orchestrator, or the file name of other programs.
func Tree() (map[string]Usage, error) {
	own, err := usageOf(os.Getpid())
	if err != nil {
		return nil, err
	}
	tree := map[string]Usage{Self: own}
	lists, err := filepath.Glob("/proc/self/task/*/children")
	if err != nil {
		return nil, fmt.Errorf("listing processes: %w", err)
	}
	for _, list := range lists {
		children, err := os.ReadFile(filepath.Clean(list))
		if errors.Is(err, os.ErrNotExist) {
			// The thread has ended, and its children are listed at another.
			continue
		}
		if err != nil {
			return nil, fmt.Errorf("listing processes: %w", err)
		}
		for _, child := range strings.Fields(string(children)) {
			if err := addUsage(tree, child); err != nil {
				return nil, err
			}
		}
	}
	return tree, nil
}

// addUsage adds the usage of a process under its name.
func addUsage(tree map[string]Usage, child string) error {
	process, err := strconv.Atoi(child)
	if err != nil {
		return fmt.Errorf("listing processes: %w", err)
	}
	line, err := os.ReadFile(filepath.Join("/proc", child, "cmdline"))
	if err != nil {
		return fmt.Errorf("listing processes: %w", err)
	}
	name, rest, _ := strings.Cut(string(line), "\x00")
	name = filepath.Base(name)
	if command, _, _ := strings.Cut(rest, "\x00"); command != "" && !strings.HasPrefix(command, "-") {
		name = command
	}
	tree[name], err = usageOf(process)
	return err
}

// ResetPeak resets the peak of the process's memory to its current use.
func (p *Process) ResetPeak() error {
	path := filepath.Join("/proc", strconv.Itoa(p.command.Process.Pid), "clear_refs")
	if err := os.WriteFile(path, []byte("5"), 0o600); err != nil {
		return fmt.Errorf("resetting the peak of memory: %w", err)
	}
	return nil
}

// statusBytes returns a value of /proc/PID/status, which is in kB; 0 if it is missing.
func statusBytes(status, name string) int64 {
	_, line, _ := strings.Cut(status, name)
	fields := strings.Fields(line)
	if len(fields) == 0 {
		return 0
	}
	kilobytes, _ := strconv.ParseInt(fields[0], 10, 64)
	return kilobytes << 10
}

// BusyProcessors measures for a second which share of the processors is busy.
func BusyProcessors(ctx context.Context) (string, error) {
	before, err := ReadProcessors()
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
	after, err := ReadProcessors()
	if err != nil || after.total == before.total {
		return "?", err
	}
	return fmt.Sprintf("%.0f%% of the processors", after.BusySince(before)*100), nil
}

// Processors is the time of all processors of the machine.
type Processors struct {
	// These are in ticks.
	idle, total int64
}

// BusySince returns the share of the time since an earlier reading in which the processors were busy.
func (p Processors) BusySince(before Processors) float64 {
	return 1 - float64(p.idle-before.idle)/float64(p.total-before.total)
}

// ReadProcessors returns the time of all processors until now.
func ReadProcessors() (p Processors, err error) {
	stat, err := os.ReadFile("/proc/stat")
	if err != nil {
		return p, fmt.Errorf("processors: %w", err)
	}
	line, _, _ := strings.Cut(string(stat), "\n")
	for i, field := range strings.Fields(line)[1:] {
		ticks, err := strconv.ParseInt(field, 10, 64)
		if err != nil {
			return p, fmt.Errorf("processors: %w", err)
		}
		p.total += ticks
		// Idle, and waiting for disks.
		if i == 3 || i == 4 {
			p.idle += ticks
		}
	}
	return p, nil
}
