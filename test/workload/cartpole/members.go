// Copyright The DI Orchestrator Authors.
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"cmp"
	"context"
	"errors"
	"flag"
	"net"
	"net/http"
	"slices"
	"strconv"
	"sync"
	"time"

	"opendilab.org/di-orchestrator/test/workload/cartpole/diserver"
)

const (
	taskServer = "ps"
	// shards is the number of shards of the parameters.
	shards = 16
	// memberRetry is the pause between attempts of members to reach each other.
	memberRetry = 50 * time.Millisecond
	// watchTimeout is longer than di-server lets a watch wait.
	watchTimeout = 30 * time.Second

	stateActive, stateLeaving = "active", "leaving"
)

// stateful is a replica of a job that holds state. It follows the job's membership.
type stateful struct {
	*process
	name, host string
	api        *diserver.Client

	mu      sync.Mutex // protects all below
	list    diserver.Membership
	changed chan struct{}
}

func newStateful(p *process, flags *flag.FlagSet) *stateful {
	m := &stateful{process: p, changed: make(chan struct{})}
	flags.StringVar(&m.name, "name", p.hostname, "name of the pod")
	flags.StringVar(&m.host, "host", "", "address to listen on; all by default")
	return m
}

// join creates the client of di-server from the environment.
func (m *stateful) join() error {
	if m.getenv("DI_SERVER_URL") == "" || m.getenv("DI_JOB_ID") == "" {
		return errors.New("environment: want DI_SERVER_URL and DI_JOB_ID")
	}
	if m.host != "" {
		dialer := &net.Dialer{Timeout: dialTimeout, LocalAddr: &net.TCPAddr{IP: net.ParseIP(m.host)}}
		m.client = &http.Client{Transport: &http.Transport{DialContext: dialer.DialContext, DisableKeepAlives: true}}
		m.listen = func(ctx context.Context, port int) (net.Listener, error) {
			return (&net.ListenConfig{}).Listen(ctx, "tcp", net.JoinHostPort(m.host, strconv.Itoa(port)))
		}
	}
	var err error
	m.api, err = diserver.New(diserver.Config{
		URL: m.getenv("DI_SERVER_URL"), APIVersion: "v2alpha1/job/" + m.getenv("DI_JOB_ID"), Name: m.name,
		TokenFile: cmp.Or(m.getenv("DI_TOKEN_FILE"), diserver.TokenFile), RetryWait: serverRetry,
		HTTP: &http.Client{Transport: m.client.Transport, Timeout: watchTimeout},
	})
	return err
}

// follow watches the membership until ctx ends.
func (m *stateful) follow(ctx context.Context) error {
	for ctx.Err() == nil {
		list, err := m.api.WatchMembership(ctx, m.current().Version)
		if err != nil {
			m.log.Warn("the membership cannot be watched", "error", err)
			if err := pause(ctx, retryEvery); err != nil {
				return err
			}
			continue
		}
		if list.Members == nil {
			continue
		}
		m.mu.Lock()
		m.list = list
		close(m.changed)
		m.changed = make(chan struct{})
		m.mu.Unlock()
	}
	return ctx.Err()
}

// current returns the last list.
func (m *stateful) current() diserver.Membership {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.list
}

// apply calls do with each version, and acknowledges it if do succeeds. do is repeated until then,
// with a later version if there is one.
func (m *stateful) apply(ctx context.Context, do func(context.Context, diserver.Membership) error) error {
	var done int64
	for {
		m.mu.Lock()
		list, changed := m.list, m.changed
		m.mu.Unlock()
		if list.Version == done {
			select {
			case <-ctx.Done():
				return ctx.Err()
			case <-changed:
			}
			continue
		}
		err := do(ctx, list)
		ack := diserver.Ack{Version: list.Version}
		if errors.Is(err, errNoSuccessor) {
			ack.Refuse, ack.Reason, err = true, err.Error(), nil
		}
		if err == nil {
			err = m.api.Acknowledge(ctx, ack)
		}
		if err != nil {
			m.log.Warn("a version is not acknowledged", "version", list.Version, "error", err)
			if err := pause(ctx, memberRetry); err != nil {
				return err
			}
			continue
		}
		done = list.Version
		m.log.Info("acknowledged", "version", done, "refused", ack.Refuse)
	}
}

// serversOf returns the servers of a membership by index: the active ones, which share the shards,
// and the leaving ones.
func serversOf(list diserver.Membership) (active, leaving []diserver.Member) {
	for _, each := range list.Members {
		switch {
		case each.Task != taskServer:
		case each.State == stateActive:
			active = append(active, each)
		case each.State == stateLeaving:
			leaving = append(leaving, each)
		}
	}
	byIndex := func(a, b diserver.Member) int { return cmp.Compare(a.Index, b.Index) }
	slices.SortFunc(active, byIndex)
	slices.SortFunc(leaving, byIndex)
	return active, leaving
}

// ownerOf returns the server of a shard; false if there is none.
func ownerOf(list diserver.Membership, shard int) (diserver.Member, bool) {
	active, _ := serversOf(list)
	if len(active) == 0 {
		return diserver.Member{}, false
	}
	return active[shard%len(active)], true
}

// stateOf returns the state of a member; "" if it is not listed.
func stateOf(list diserver.Membership, name string) string {
	for _, each := range list.Members {
		if each.Name == name {
			return each.State
		}
	}
	return ""
}
