// Copyright The DI Orchestrator Authors.
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"fmt"
	"os"
	"strconv"
)

// torch connects the peers through the master, which all others call.
func torch(ctx context.Context) error {
	rank, err := strconv.Atoi(os.Getenv("RANK"))
	if err != nil {
		return fmt.Errorf("reading RANK: %w", err)
	}
	size, err := strconv.Atoi(os.Getenv("WORLD_SIZE"))
	if err != nil {
		return fmt.Errorf("reading WORLD_SIZE: %w", err)
	}
	if rank < 0 || rank >= size {
		return fmt.Errorf("rank %d is none of a world of %d", rank, size)
	}
	for variable, same := range map[string]string{
		"PET_NNODES": "WORLD_SIZE", "PET_NODE_RANK": "RANK", "PET_MASTER_ADDR": "MASTER_ADDR", "PET_MASTER_PORT": "MASTER_PORT",
	} {
		if os.Getenv(variable) != os.Getenv(same) {
			return fmt.Errorf("%s is %q, and %s is %q", variable, os.Getenv(variable), same, os.Getenv(same))
		}
	}
	if os.Getenv("PYTHONUNBUFFERED") == "" || os.Getenv("PET_NPROC_PER_NODE") == "" {
		return fmt.Errorf("PYTHONUNBUFFERED is %q, PET_NPROC_PER_NODE is %q", os.Getenv("PYTHONUNBUFFERED"), os.Getenv("PET_NPROC_PER_NODE"))
	}
	master, port := os.Getenv("MASTER_ADDR"), os.Getenv("MASTER_PORT")
	own := greeting{From: "rank " + strconv.Itoa(rank), Cluster: fmt.Sprintf("%d at %s:%s", size, master, port)}
	if rank > 0 {
		return call(ctx, master+":"+port, own)
	}
	if err := isMe(master); err != nil {
		return err
	}
	return serve(ctx, port, own, size-1)
}
