// Copyright The DI Orchestrator Authors.
// SPDX-License-Identifier: Apache-2.0

package roles

import (
	"flag"
	"time"

	"opendilab.org/di-orchestrator/test/workload/cartpole/diserver"
	"opendilab.org/di-orchestrator/test/workload/cartpole/internal/peer"
)

// following is what the roles that follow a list of di-server have in common.
type following struct {
	strict         bool
	interval       time.Duration
	connectTimeout time.Duration
	connectRetry   time.Duration
	serverRetry    time.Duration
	serverTimeout  time.Duration
}

func newFollowing(flags *flag.FlagSet, interval, connectTimeout time.Duration) *following {
	f := &following{}
	flags.BoolVar(&f.strict, "strict", false, "copy the faults of the client that is deployed in the field")
	flags.DurationVar(&f.interval, "interval", interval, "pause between looks at di-server's list")
	flags.DurationVar(&f.connectTimeout, "connect-timeout", connectTimeout, "time for a replica to answer for the first time")
	flags.DurationVar(&f.connectRetry, "connect-retry", 2*time.Second, "pause before a new replica is called again")
	flags.DurationVar(&f.serverRetry, "server-retry", time.Second, "pause before di-server is called again after a connection error")
	flags.DurationVar(&f.serverTimeout, "server-timeout", 60*time.Second, "longest wait for an answer of di-server")
	return f
}

// client makes the client of di-server from the environment.
func (f *following) client(system System) (*diserver.Client, error) {
	config := diserver.Config{
		APIVersion: system.Getenv("KUBERNETES_SERVER_API_VERSION"),
		RetryWait:  f.serverRetry,
		HTTP:       system.httpClient(f.serverTimeout),
	}
	if !f.strict {
		config.TokenFile = diserver.TokenFile
	}
	if config.APIVersion == "" {
		config.APIVersion = "/v1alpha1"
	}
	for key, into := range map[string]*string{
		"KUBERNETES_SERVER_URL":    &config.URL,
		"KUBERNETES_POD_NAMESPACE": &config.Namespace,
		"KUBERNETES_POD_NAME":      &config.Name,
	} {
		value, err := system.required(key)
		if err != nil {
			return nil, err
		}
		*into = value
	}
	return diserver.New(config)
}

// roster makes the connections to the listed processes.
func (f *following) roster(
	system System, dialer *peer.Dialer, joined func(string, peer.Identity), left func(string),
) *roster {
	return &roster{
		strict: f.strict, timeout: f.connectTimeout, retry: f.connectRetry,
		dialer: dialer, log: system.Log, joined: joined, left: left, links: map[string]*link{},
	}
}
