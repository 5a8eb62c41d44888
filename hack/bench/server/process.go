// Copyright The DI Orchestrator Authors.
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"bufio"
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
)

// installedMemoryLimit is the GOMEMLIMIT of config/server.
const installedMemoryLimit = "GOMEMLIMIT=230MiB"

// ticksPerSecond is the unit of times in /proc.
const ticksPerSecond = 100

// process is a program that runs beside the benchmark.
type process struct {
	command *exec.Cmd
	// address is where it serves.
	address string
	// input ends the process when it is closed; nil where a signal does.
	input io.Closer
	log   *os.File
}

// usage is what a process has used.
type usage struct {
	processor           time.Duration
	resident, peakBytes int64
}

// startServer starts di-server as it is deployed, and returns when it is ready.
func (b *bench) startServer(ctx context.Context, p *plane, flags ...string) (*process, error) {
	return b.startProgram(ctx, p, userServer, "server", func(address string) []string {
		return append([]string{"--address", address, "--tls-address="}, flags...)
	})
}

// startOperator starts the operator, and returns when it is ready.
func (b *bench) startOperator(ctx context.Context, p *plane) (*process, error) {
	return b.startProgram(ctx, p, userOperator, "operator", func(address string) []string {
		return []string{"--webhook-address", address, "--webhook-url", "https://" + address}
	})
}

// startProgram starts one of the programs under a user of its own.
func (b *bench) startProgram(ctx context.Context, p *plane, user, name string, flags func(address string) []string) (*process, error) {
	kubeconfig, err := p.kubeconfig(user)
	if err != nil {
		return nil, err
	}
	address, probe, err := freeAddresses(ctx)
	if err != nil {
		return nil, err
	}
	arguments := append([]string{name, "--metrics-address", "0", "--probe-address", probe}, flags(address)...)
	started := &process{address: address, command: exec.CommandContext(ctx, b.binary, arguments...)}
	started.command.Env = append(os.Environ(), kubeconfig, installedMemoryLimit)
	if started.log, err = os.CreateTemp(b.folder, name+"-*.log"); err != nil {
		return nil, fmt.Errorf("starting %s: %w", name, err)
	}
	started.command.Stdout, started.command.Stderr = started.log, started.log
	if err := started.command.Start(); err != nil {
		return nil, fmt.Errorf("starting %s: %w", name, err)
	}
	if err := waitReady(ctx, "http://"+probe+"/readyz"); err != nil {
		return nil, errors.Join(fmt.Errorf("starting %s: %w", name, err), started.stop())
	}
	return started, nil
}

// freeAddresses returns two addresses of the loopback interface that nobody
// listens on.
func freeAddresses(ctx context.Context) (first, second string, err error) {
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
func waitReady(ctx context.Context, url string) error {
	var last error
	err := wait.PollUntilContextTimeout(ctx, 50*time.Millisecond, 2*time.Minute, true, func(ctx context.Context) (bool, error) {
		last = probe(ctx, url)
		return last == nil, nil
	})
	return errors.Join(err, last)
}

func probe(ctx context.Context, url string) error {
	request, err := http.NewRequestWithContext(ctx, http.MethodGet, url, http.NoBody)
	if err != nil {
		return fmt.Errorf("probing: %w", err)
	}
	response, err := http.DefaultClient.Do(request)
	if err != nil {
		return fmt.Errorf("probing: %w", err)
	}
	if response.StatusCode != http.StatusOK {
		err = fmt.Errorf("probing %s: %s", url, response.Status)
	}
	return errors.Join(err, response.Body.Close())
}

// startOwn starts this program in another role; what it says first is its address.
func startOwn(ctx context.Context, flags ...string) (*process, error) {
	own, err := os.Executable()
	if err != nil {
		return nil, fmt.Errorf("starting a process: %w", err)
	}
	started := &process{command: exec.CommandContext(ctx, own, flags...)}
	started.command.Stderr = os.Stderr
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
	if err != nil {
		return nil, errors.Join(fmt.Errorf("starting a process: %w", err), started.stop())
	}
	started.address = strings.TrimSpace(line)
	return started, nil
}

// stop ends the process.
func (p *process) stop() error {
	var err error
	if p.input != nil {
		err = p.input.Close()
	} else {
		err = p.command.Process.Signal(syscall.SIGTERM)
	}
	if err != nil {
		return fmt.Errorf("stopping %s: %w", p.command, err)
	}
	err = p.command.Wait()
	if p.log != nil {
		err = errors.Join(err, p.log.Close())
	}
	return err
}

// usage returns what the process has used so far.
func (p *process) usage() (usage, error) {
	folder := filepath.Join("/proc", strconv.Itoa(p.command.Process.Pid))
	stat, err := os.ReadFile(filepath.Join(folder, "stat"))
	if err != nil {
		return usage{}, fmt.Errorf("usage: %w", err)
	}
	status, err := os.ReadFile(filepath.Join(folder, "status"))
	if err != nil {
		return usage{}, fmt.Errorf("usage: %w", err)
	}
	// The name, which stands in parentheses, may hold anything.
	fields := strings.Fields(string(stat[strings.LastIndexByte(string(stat), ')')+1:]))
	ticks := int64(0)
	for _, field := range fields[11:13] {
		count, err := strconv.ParseInt(field, 10, 64)
		if err != nil {
			return usage{}, fmt.Errorf("usage: %w", err)
		}
		ticks += count
	}
	return usage{
		processor: time.Duration(ticks) * time.Second / ticksPerSecond,
		resident:  statusBytes(string(status), "VmRSS:"),
		peakBytes: statusBytes(string(status), "VmHWM:"),
	}, nil
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

// busyProcessors says how many processors are busy, over a second.
func busyProcessors(ctx context.Context) (string, error) {
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
