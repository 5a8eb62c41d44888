// Copyright The DI Orchestrator Authors.
// SPDX-License-Identifier: Apache-2.0

package controlplane

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"time"

	"k8s.io/apimachinery/pkg/util/wait"

	"opendilab.org/di-orchestrator/test/testkit"
	"opendilab.org/di-orchestrator/test/testkit/program"
)

// The processes of a control plane.
const (
	APIServer = "kube-apiserver"
	Etcd      = "etcd"
)

// Crash kills one of the plane's processes and starts it again with the same arguments and data, after a pause.
// It returns when the API server is ready. What etcd has acknowledged is not lost, because the machine lives on.
func (p *Plane) Crash(ctx context.Context, name string, pause time.Duration) error {
	command, err := p.kill(ctx, name)
	if err != nil {
		return err
	}
	timer := time.NewTimer(pause)
	defer timer.Stop()
	select {
	case <-ctx.Done():
	case <-timer.C:
	}
	// The process lives longer than the fault that started it.
	started, err := program.StartForeign(context.WithoutCancel(ctx), p.folder, command[0], command[1:]...)
	if err != nil {
		return err
	}
	p.restarted[name] = started
	return p.waitReady(ctx)
}

// kill kills a process and returns its command line.
func (p *Plane) kill(ctx context.Context, name string) ([]string, error) {
	if restarted := p.restarted[name]; restarted != nil {
		command, err := commandOf(restarted.ID())
		return command, errors.Join(err, restarted.Kill())
	}
	id, command, err := p.find(name)
	if err != nil {
		return nil, err
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

// find returns the process of the environment with a name. Other planes may run in this program.
func (p *Plane) find(name string) (int, []string, error) {
	mark := "--etcd-servers=" + p.environment.ControlPlane.Etcd.URL.String()
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

// waitReady waits until the API server serves, and etcd with it.
func (p *Plane) waitReady(ctx context.Context) error {
	var last error
	err := wait.PollUntilContextTimeout(ctx, 100*time.Millisecond, testkit.Patience, true, func(ctx context.Context) (bool, error) {
		last = p.discovery.RESTClient().Get().AbsPath("/readyz").Do(ctx).Error()
		return last == nil, nil
	})
	if err != nil {
		return fmt.Errorf("the API server is not ready: %w", errors.Join(err, last))
	}
	return nil
}
