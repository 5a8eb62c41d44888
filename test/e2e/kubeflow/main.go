// Copyright The DI Orchestrator Authors.
// SPDX-License-Identifier: Apache-2.0

// Command kubeflow replaces a training program that was written for kubeflow's training operator.
// It reads its peers where TensorFlow or Torch reads them and connects to all of them at these
// addresses. It exits with 0 if all have the same cluster spec.
package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net"
	"os"
	"os/signal"
	"strings"
	"syscall"
	"time"
)

// patience is the timeout for connections to the peers.
const patience = 5 * time.Minute

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	if err := run(ctx); err != nil {
		fmt.Fprintln(os.Stderr, "kubeflow:", err)
		os.Exit(1) //nolint:gocritic // nothing is left to be done
	}
}

func run(ctx context.Context) error {
	limited, cancel := context.WithTimeout(ctx, patience)
	defer cancel()
	if config := os.Getenv("TF_CONFIG"); config != "" {
		return tensorFlow(ctx, limited, config)
	}
	return torch(limited)
}

// greeting is the message that two peers exchange.
type greeting struct {
	// From is the sender, and Cluster its cluster spec.
	From, Cluster string
}

// serve answers calls until the expected number of peers has called. It prints the callers, and
// returns an error if the cluster spec of one differs.
func serve(ctx context.Context, port string, own greeting, expected int) error {
	var config net.ListenConfig
	listener, err := config.Listen(ctx, "tcp", ":"+port)
	if err != nil {
		return fmt.Errorf("listening: %w", err)
	}
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	// Pending connections may be dropped.
	context.AfterFunc(ctx, func() { _ = listener.Close() })
	met := map[string]bool{}
	for len(met) < expected {
		connection, err := listener.Accept()
		if err != nil {
			return fmt.Errorf("waiting for %d others, of whom %d came: %w", expected, len(met), err)
		}
		other, err := exchange(connection, own)
		if err != nil {
			// The peer calls again.
			fmt.Println("somebody has hung up:", err)
			continue
		}
		if other.Cluster != own.Cluster || other.From == own.From {
			return fmt.Errorf("%s was told %s, and %s %s", own.From, own.Cluster, other.From, other.Cluster)
		}
		met[other.From] = true
		fmt.Println(own.From, "was called by", other.From)
	}
	return nil
}

// call greets a peer and retries until it answers.
func call(ctx context.Context, address string, own greeting) error {
	for {
		var dialer net.Dialer
		connection, err := dialer.DialContext(ctx, "tcp", address)
		if err == nil {
			var other greeting
			if other, err = exchange(connection, own); err == nil {
				if other.Cluster != own.Cluster {
					return fmt.Errorf("%s was told %s, and %s %s", own.From, own.Cluster, other.From, other.Cluster)
				}
				fmt.Println(own.From, "has called", other.From, "at", address)
				return nil
			}
		}
		select {
		case <-ctx.Done():
			return fmt.Errorf("calling %s: %w", address, errors.Join(err, ctx.Err()))
		case <-time.After(time.Second):
		}
	}
}

// exchange sends a greeting and receives that of the peer.
func exchange(connection net.Conn, own greeting) (other greeting, err error) {
	// The greetings are complete before, so the error has no effect.
	defer func() { _ = connection.Close() }()
	if err := connection.SetDeadline(time.Now().Add(patience)); err != nil {
		return other, fmt.Errorf("bounding a call: %w", err)
	}
	if err := json.NewEncoder(connection).Encode(own); err != nil {
		return other, fmt.Errorf("greeting: %w", err)
	}
	if err := json.NewDecoder(connection).Decode(&other); err != nil {
		return other, fmt.Errorf("hearing a greeting: %w", err)
	}
	return other, nil
}

// isMe checks that an address belongs to this pod.
func isMe(address string) error {
	name, err := os.Hostname()
	if err != nil {
		return fmt.Errorf("asking for the host's name: %w", err)
	}
	if host, _, _ := strings.Cut(address, "."); host != name {
		return fmt.Errorf("%s is told to be %s", name, address)
	}
	return nil
}
