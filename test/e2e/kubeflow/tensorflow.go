// Copyright The DI Orchestrator Authors.
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net"
)

// tensorFlow connects to all peers in the cluster. A parameter server serves until it is
// terminated, as TensorFlow's do.
func tensorFlow(ctx, limited context.Context, text string) error {
	var config struct {
		Cluster map[string][]string
		Task    struct {
			Type  string
			Index int
		}
		Environment string
	}
	if err := json.Unmarshal([]byte(text), &config); err != nil {
		return fmt.Errorf("reading TF_CONFIG %s: %w", text, err)
	}
	tasks := config.Cluster[config.Task.Type]
	if config.Task.Index >= len(tasks) || config.Environment != "cloud" {
		return fmt.Errorf("TF_CONFIG %s: has no such task, or is not of a cloud", text)
	}
	address := tasks[config.Task.Index]
	if err := isMe(address); err != nil {
		return err
	}
	_, port, err := net.SplitHostPort(address)
	if err != nil {
		return fmt.Errorf("reading the own address: %w", err)
	}
	own := greeting{From: address, Cluster: fmt.Sprint(config.Cluster)}
	if err := meetAll(limited, port, own, config.Cluster); err != nil {
		return err
	}
	fmt.Println(own.From, "has met all")
	if config.Task.Type == "ps" {
		<-ctx.Done()
	}
	return nil
}

// meetAll calls all peers and is called by them. Each peer then calls the chief once more because
// the chief's exit finishes the job.
func meetAll(ctx context.Context, port string, own greeting, cluster map[string][]string) error {
	var others []string
	for _, addresses := range cluster {
		for _, address := range addresses {
			if address != own.From {
				others = append(others, address)
			}
		}
	}
	if len(cluster["chief"]) != 1 {
		return fmt.Errorf("%v has no chief", cluster)
	}
	chief, calls := cluster["chief"][0], len(others)
	if own.From == chief {
		calls *= 2
	}
	results := make(chan error)
	go func() { results <- serve(ctx, port, own, calls) }()
	for _, other := range others {
		go func() { results <- call(ctx, other, own) }()
	}
	var failed error
	for range len(others) + 1 {
		failed = errors.Join(failed, <-results)
	}
	if failed != nil || own.From == chief {
		return failed
	}
	return call(ctx, chief, greeting{From: own.From + ", who has met all,", Cluster: own.Cluster})
}
