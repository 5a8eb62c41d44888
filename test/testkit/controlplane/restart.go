// Copyright The DI Orchestrator Authors.
// SPDX-License-Identifier: Apache-2.0

package controlplane

import (
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"time"

	"k8s.io/apimachinery/pkg/util/wait"
	"k8s.io/client-go/discovery"

	"opendilab.org/di-orchestrator/test/testkit"
	"opendilab.org/di-orchestrator/test/testkit/pace"
	"opendilab.org/di-orchestrator/test/testkit/program"
)

// The processes of a control plane. OtherAPIServer is that of AddAPIServer.
const (
	APIServer      = "kube-apiserver"
	OtherAPIServer = "other kube-apiserver"
	Etcd           = "etcd"
)

// AddAPIServer starts another API server with the etcd and the flags of the first one, and an audit log of its own,
// which is not counted. It returns when the API server is ready.
func (p *Plane) AddAPIServer(ctx context.Context) error {
	_, command, err := p.find(APIServer)
	if err != nil {
		return err
	}
	address, _, err := program.FreeAddresses(ctx)
	if err != nil {
		return err
	}
	_, port, err := net.SplitHostPort(address)
	if err != nil {
		return fmt.Errorf("the address of another API server: %w", err)
	}
	for i, argument := range command {
		switch name, _, _ := strings.Cut(argument, "="); name {
		case "--secure-port":
			command[i] = name + "=" + port
		case "--audit-log-path":
			command[i] = argument + ".other"
		}
	}
	config := p.Config()
	config.Host = "https://" + address
	other, err := discovery.NewDiscoveryClientForConfig(config)
	if err != nil {
		return fmt.Errorf("client: %w", err)
	}
	p.other, p.discovery = address, append(p.discovery, other)
	return errors.Join(p.start(ctx, OtherAPIServer, command), p.waitReady(ctx))
}

// Hang stops a process for a while without ending it: what it serves hangs, and what it has cached becomes old.
func (p *Plane) Hang(ctx context.Context, name string, duration time.Duration) error {
	if err := p.suspend(ctx, name, duration); err != nil {
		return err
	}
	return p.waitReady(ctx)
}

// The rhythm of a slow process: a request takes up to slowStop longer, and some pass in slowRun.
const slowStop, slowRun = 200 * time.Millisecond, 100 * time.Millisecond

// Slow makes a process slow for a while, as a slow disk does: it stops again and again for slowStop.
func (p *Plane) Slow(ctx context.Context, name string, duration time.Duration) error {
	for range duration / (slowStop + slowRun) {
		if err := p.suspend(ctx, name, slowStop); err != nil {
			return err
		}
		_ = pace.Pause(ctx, slowRun)
	}
	return p.waitReady(ctx)
}

// suspend stops a process for a while without ending it.
func (p *Plane) suspend(ctx context.Context, name string, duration time.Duration) error {
	id, _, err := p.find(name)
	if err != nil {
		return err
	}
	if err := syscall.Kill(id, syscall.SIGSTOP); err != nil {
		return fmt.Errorf("stopping %s: %w", name, err)
	}
	_ = pace.Pause(ctx, duration)
	if err := syscall.Kill(id, syscall.SIGCONT); err != nil {
		return fmt.Errorf("continuing %s: %w", name, err)
	}
	return nil
}

// Crash kills one of the plane's processes and starts it again with the same arguments and data, after a pause.
// It returns when all API servers are ready. What etcd has acknowledged is not lost, because the machine lives on.
func (p *Plane) Crash(ctx context.Context, name string, pause time.Duration) error {
	command, err := p.kill(ctx, name)
	if err != nil {
		return err
	}
	_ = pace.Pause(ctx, pause)
	return errors.Join(p.start(ctx, name, command), p.waitReady(ctx))
}

// start starts a process, which lives longer than the context.
func (p *Plane) start(ctx context.Context, name string, command []string) error {
	started, err := program.StartForeign(context.WithoutCancel(ctx), p.folder, command[0], command[1:]...)
	if err != nil {
		return err
	}
	p.started[name] = started
	return nil
}

// kill kills a process and returns its command line.
func (p *Plane) kill(ctx context.Context, name string) ([]string, error) {
	id, command, err := p.find(name)
	if err != nil {
		return nil, err
	}
	if started := p.started[name]; started != nil {
		return command, started.Kill()
	}
	if err := syscall.Kill(id, syscall.SIGKILL); err != nil {
		return nil, fmt.Errorf("killing %s: %w", name, err)
	}
	// Its parent, the environment, collects it.
	err = wait.PollUntilContextTimeout(ctx, 10*time.Millisecond, testkit.Patience, true, func(context.Context) (bool, error) {
		return errors.Is(syscall.Kill(id, 0), syscall.ESRCH), nil
	})
	return command, err
}

// find returns a process and its command line.
func (p *Plane) find(name string) (int, []string, error) {
	if started := p.started[name]; started != nil {
		command, err := commandOf(started.ID())
		return started.ID(), command, err
	}
	// It is one of the environment. Other planes may run in this program.
	mark := "--secure-port=" + p.environment.ControlPlane.GetAPIServer().SecureServing.Port
	if name == Etcd {
		mark = "--listen-client-urls=" + p.environment.ControlPlane.Etcd.URL.String()
	}
	lists, err := filepath.Glob("/proc/self/task/*/children")
	if err != nil {
		return 0, nil, fmt.Errorf("listing processes: %w", err)
	}
	for _, list := range lists {
		children, err := os.ReadFile(filepath.Clean(list))
		if err != nil {
			continue // the thread has ended, and its children are listed at another
		}
		for _, child := range strings.Fields(string(children)) {
			id, err := strconv.Atoi(child)
			if err != nil {
				return 0, nil, fmt.Errorf("listing processes: %w", err)
			}
			command, err := commandOf(id)
			if err == nil && filepath.Base(command[0]) == name && strings.Contains(strings.Join(command, "\n")+"\n", mark+"\n") {
				return id, command, nil
			}
		}
	}
	return 0, nil, fmt.Errorf("no process %s with %s", name, mark)
}

func commandOf(id int) ([]string, error) {
	line, err := os.ReadFile(filepath.Join("/proc", strconv.Itoa(id), "cmdline"))
	if err != nil {
		return nil, fmt.Errorf("reading a command line: %w", err)
	}
	return strings.Split(strings.TrimSuffix(string(line), "\x00"), "\x00"), nil
}

// waitReady waits until all API servers serve, and etcd with them.
func (p *Plane) waitReady(ctx context.Context) error {
	var last error
	err := wait.PollUntilContextTimeout(ctx, 100*time.Millisecond, testkit.Patience, true, func(ctx context.Context) (bool, error) {
		last = nil
		for _, api := range p.discovery {
			last = errors.Join(last, api.RESTClient().Get().AbsPath("/readyz").Do(ctx).Error())
		}
		return last == nil, nil
	})
	if err != nil {
		return fmt.Errorf("an API server is not ready: %w", errors.Join(err, last))
	}
	return nil
}
