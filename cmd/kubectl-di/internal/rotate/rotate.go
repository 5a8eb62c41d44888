// Copyright The DI Orchestrator Authors.
// SPDX-License-Identifier: Apache-2.0

// Package rotate is kubectl di rotate-ca.
package rotate

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/spf13/cobra"
	"k8s.io/apimachinery/pkg/util/wait"
	"k8s.io/cli-runtime/pkg/genericiooptions"

	"opendilab.org/di-orchestrator/cmd/kubectl-di/internal/arguments"
	"opendilab.org/di-orchestrator/cmd/kubectl-di/internal/cluster"
	"opendilab.org/di-orchestrator/cmd/kubectl-di/internal/exit"
	"opendilab.org/di-orchestrator/cmd/kubectl-di/internal/terminal"
	"opendilab.org/di-orchestrator/internal/certs/record"
	"opendilab.org/di-orchestrator/internal/names"
)

const long = `Replace the certificate authority of the operator's webhooks, without a call that
fails, and follow that until all operators serve by the new one.

The new authority is published beside the old one; operators serve by it ten seconds
later; and the old one is dropped when all of them do, for which --wait waits, too. An
operator that is slow is waited for. What is begun goes on where this command is
stopped.

Where somebody else, such as cert-manager, keeps the certificates
(--webhook-certificates=secret) nothing is done: have them renewed there.`

const examples = `  # Replace the authority, and wait until the old one is trusted no more
  kubectl di rotate-ca --wait

  # The same where the operator runs in another namespace
  kubectl di rotate-ca --wait --server-namespace rl-system`

// interval is how often it is looked at how far it is.
const interval = time.Second

// options are the flags of rotate-ca.
type options struct {
	flags     *cluster.Flags
	streams   genericiooptions.IOStreams
	namespace string
	wait      bool
	timeout   time.Duration
}

// NewCommand returns kubectl di rotate-ca.
func NewCommand(flags *cluster.Flags, streams genericiooptions.IOStreams) *cobra.Command {
	options := &options{flags: flags, streams: streams}
	help := arguments.Help{Use: "rotate-ca", Short: "Replace the certificate authority of the webhooks", Long: long, Example: examples}
	command := arguments.NewCommand(help, options.run)
	own := command.Flags()
	own.BoolVar(&options.wait, "wait", false, "wait until the old authority is trusted no more")
	own.DurationVar(&options.timeout, "timeout", 0, "wait for no longer than this; 0 for as long as it takes")
	own.StringVar(&options.namespace, "server-namespace", names.SystemNamespace, "namespace that DI Orchestrator runs in")
	return command
}

func (o *options) run(ctx context.Context) error {
	if o.timeout < 0 {
		return exit.Usagef("--timeout %s: want 0 or more", o.timeout)
	}
	found, err := o.flags.Connect()
	if err != nil {
		return err
	}
	old, err := o.begin(ctx, found)
	if err != nil {
		return err
	}
	cancel := func() {}
	if o.timeout > 0 {
		ctx, cancel = context.WithTimeout(ctx, o.timeout)
	}
	defer cancel()
	return o.follow(ctx, found, old)
}

// begin asks for another authority and returns the old one. Where no operator
// serves by its own none is asked, because none would answer.
func (o *options) begin(ctx context.Context, found *cluster.Cluster) ([]byte, error) {
	now := time.Now()
	old, err := found.Authority(ctx, o.namespace, now)
	if err != nil {
		return nil, err
	}
	if len(old.Replicas) == 0 {
		return nil, fmt.Errorf("no operator of namespace %s serves by an authority of its own.\n"+
			"Where it runs in another namespace, name it by --server-namespace. Where somebody else, such as cert-manager, keeps its certificate\n"+
			"(--webhook-certificates=secret), have it renewed there, as by cmctl renew -n %s di-orchestrator-webhook: operators follow without a call that fails",
			o.namespace, o.namespace)
	}
	return old.Certificate, found.AskAuthority(ctx, o.namespace, now)
}

// state is how far a rotation is.
type state struct {
	// made says that there is another authority.
	made bool
	// places are the client configurations; new and old trust one or the other.
	places, new, old int
	// replicas are the operators, and followed those that serve by the new one; slow
	// are the names of the others.
	replicas, followed int
	slow               []string
}

// say says how far it is, and whether that is as far as it is waited for.
func (s *state) say(wait bool) (string, bool) {
	switch {
	case !s.made:
		return "waiting for an operator to make another", false
	case s.new < s.places:
		return fmt.Sprintf("made; published beside the old one for %d of %d webhooks", s.new, s.places), false
	case s.followed < s.replicas || s.replicas == 0:
		said := fmt.Sprintf("published beside the old one; %d of %d operators serve by it", s.followed, s.replicas)
		if len(s.slow) > 0 {
			said += "; waiting for " + strings.Join(s.slow, ", ")
		}
		return said, false
	case s.old > 0:
		return fmt.Sprintf("all %d operators serve by it; the old one is to be dropped", s.replicas), !wait
	}
	return fmt.Sprintf("all %d operators serve by it; the old one is dropped", s.replicas), true
}

// follow reports the progress of the rotation until it is done.
func (o *options) follow(ctx context.Context, found *cluster.Cluster, old []byte) error {
	told := terminal.NewProgress(o.streams.ErrOut)
	defer told.End()
	last := "nothing was seen of it yet"
	err := wait.PollUntilContextCancel(ctx, interval, true, func(ctx context.Context) (bool, error) {
		now, err := o.look(ctx, found, old)
		if err != nil {
			return false, err
		}
		said, done := now.say(o.wait)
		last = said
		told.State("certificate authority", said)
		return done, nil
	})
	if err != nil && ctx.Err() != nil && errors.Is(err, ctx.Err()) {
		return fmt.Errorf("stopped to wait for the certificate authority: %s; it goes on by itself", last)
	}
	return err
}

func (o *options) look(ctx context.Context, found *cluster.Cluster, old []byte) (*state, error) {
	authority, err := found.Authority(ctx, o.namespace, time.Now())
	if err != nil {
		return nil, err
	}
	now := &state{made: len(authority.Certificate) > 0 && !bytes.Equal(authority.Certificate, old), replicas: len(authority.Replicas)}
	for _, replica := range authority.Replicas {
		if replica.Authority == record.Fingerprint(authority.Certificate) {
			now.followed++
		} else {
			now.slow = append(now.slow, replica.Name)
		}
	}
	if now.new, now.places, err = found.Trusting(ctx, authority.Certificate); err != nil {
		return nil, err
	}
	now.old, _, err = found.Trusting(ctx, old)
	return now, err
}
