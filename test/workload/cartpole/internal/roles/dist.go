// Copyright The DI Orchestrator Authors.
// SPDX-License-Identifier: Apache-2.0

package roles

import (
	"context"
	"encoding/json"
	"flag"
	"fmt"
	"strings"
	"time"

	"opendilab.org/di-orchestrator/test/workload/cartpole/diserver"
)

// runDist asks di-server from inside a coordinator's pod, as people do by hand
// with the deployed client's command of that name, and prints the answer.
func runDist(ctx context.Context, system System, args []string) error {
	flags := flag.NewFlagSet("dist", flag.ContinueOnError)
	following := newFollowing(flags, time.Second, time.Minute)
	add := flags.Bool("add", false, "ask for so many more replicas; without any of these replicas are listed")
	restart := flags.String("restart", "", "names of replicas, separated by commas, that others are to replace")
	remove := flags.Bool("delete", false, "give so many replicas up")
	var collectors, learners diserver.Resources
	resourceFlags(flags, "collector", 0, &collectors)
	resourceFlags(flags, "learner", 0, &learners)
	if err := system.Parse(flags, args); err != nil {
		return err
	}
	api, err := following.client(system)
	if err != nil {
		return err
	}
	var answer diserver.Replicas
	switch {
	case *add:
		answer, err = api.Create(ctx, collectors, learners)
	case *restart != "":
		if err := api.ReportFailed(ctx, failedOf(*restart)); err != nil {
			return err
		}
		answer, err = api.OfCoordinator(ctx)
	case *remove:
		answer, err = api.Delete(ctx, collectors.Replicas, learners.Replicas)
	default:
		answer, err = api.OfCoordinator(ctx)
	}
	if err != nil {
		return err
	}
	if err := json.NewEncoder(system.Stdout).Encode(answer); err != nil {
		return fmt.Errorf("print the answer: %w", err)
	}
	return nil
}

// failedOf sorts names of pods by their role, which is part of the name.
func failedOf(pods string) diserver.Failed {
	var failed diserver.Failed
	for pod := range strings.SplitSeq(pods, ",") {
		if strings.Contains(pod, "-collector-") {
			failed.Collectors = append(failed.Collectors, pod)
		} else {
			failed.Learners = append(failed.Learners, pod)
		}
	}
	return failed
}
