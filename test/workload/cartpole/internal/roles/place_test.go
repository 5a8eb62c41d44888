// Copyright The DI Orchestrator Authors.
// SPDX-License-Identifier: Apache-2.0

package roles

import (
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

func TestPlaceIsReadFromTheEnvironment(t *testing.T) {
	t.Parallel()
	const nodes = "j-learner-0.di-j.ns.svc.cluster.local,j-collector-0.di-j.ns.svc.cluster.local,j-collector-1.di-j.ns.svc.cluster.local:99"
	tests := map[string]struct {
		hostname, task string
		env            map[string]string
		want           place
		refused        bool
	}{
		"the learner leads": {
			hostname: "j-learner-0", env: map[string]string{
				"DI_RANK": "0", "DI_NODES": nodes, "DI_LEARNER_NODES": "j-learner-0.di-j.ns.svc.cluster.local",
			},
			want: place{rank: 0, task: "learner", mine: "j-learner-0.di-j.ns.svc.cluster.local:22270", leads: true},
		},
		"a task that is given needs no list": {
			hostname: "j-collector-0", task: "collector", env: map[string]string{"DI_RANK": "1", "DI_NODES": nodes},
			want: place{rank: 1, task: "collector", mine: "j-collector-0.di-j.ns.svc.cluster.local:22270"},
		},
		"an entry may name its port": {
			hostname: "j-collector-1", task: "evaluator", env: map[string]string{"DI_RANK": "2", "DI_NODES": nodes},
			want: place{rank: 2, task: "evaluator", mine: "j-collector-1.di-j.ns.svc.cluster.local:99"},
		},
		"a second learner does not lead": {
			hostname: "j-collector-0", task: "learner", env: map[string]string{
				"DI_RANK": "1", "DI_NODES": nodes,
				"DI_LEARNER_NODES": "j-learner-0.di-j.ns.svc.cluster.local,j-collector-0.di-j.ns.svc.cluster.local",
			},
			want: place{rank: 1, task: "learner", mine: "j-collector-0.di-j.ns.svc.cluster.local:22270"},
		},
		"the entry is another pod": {
			hostname: "j-collector-1", task: "collector", env: map[string]string{"DI_RANK": "1", "DI_NODES": nodes}, refused: true,
		},
		"the rank is too high": {
			hostname: "j-learner-0", task: "learner", env: map[string]string{"DI_RANK": "3", "DI_NODES": nodes}, refused: true,
		},
		"no rank":      {hostname: "j-learner-0", task: "learner", env: map[string]string{"DI_NODES": nodes}, refused: true},
		"no number":    {hostname: "j-learner-0", env: map[string]string{"DI_RANK": "x", "DI_NODES": nodes}, refused: true},
		"no task":      {hostname: "j-learner-0", env: map[string]string{"DI_RANK": "0", "DI_NODES": nodes}, refused: true},
		"unknown task": {hostname: "j-learner-0", task: "chef", env: map[string]string{"DI_RANK": "0", "DI_NODES": nodes}, refused: true},
		"not among its task": {
			hostname: "j-learner-0", task: "learner", env: map[string]string{
				"DI_RANK": "0", "DI_NODES": nodes, "DI_LEARNER_NODES": "elsewhere",
			}, refused: true,
		},
	}
	for name, tc := range tests {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			system := System{Hostname: tc.hostname, Getenv: func(key string) string { return tc.env[key] }}
			got, err := readPlace(system, tc.task, workerPort)
			if (err != nil) != tc.refused || (tc.refused && !errors.Is(err, ErrUsage)) {
				t.Fatalf("got error %v, want refused to be %v", err, tc.refused)
			}
			if got.rank != tc.want.rank || got.task != tc.want.task || got.mine != tc.want.mine || got.leads != tc.want.leads {
				t.Errorf("got %+v, want %+v", got, tc.want)
			}
		})
	}
}

func TestListsAreReadFromTheFilesThatVariablesName(t *testing.T) {
	t.Parallel()
	folder := t.TempDir()
	env := map[string]string{"DI_RANK": "1"}
	for key, list := range map[string]string{"DI_NODES": "j-learner-0.di-j,j-collector-0.di-j", "DI_COLLECTOR_NODES": "j-collector-0.di-j"} {
		path := filepath.Join(folder, key)
		if err := os.WriteFile(path, []byte(list), 0o600); err != nil {
			t.Fatal(err)
		}
		env[key] = "@" + path
	}
	system := System{Hostname: "j-collector-0", Getenv: func(key string) string { return env[key] }}
	got, err := readPlace(system, "", workerPort)
	if err != nil || got.task != taskCollector || got.mine != "j-collector-0.di-j:22270" || len(got.nodes) != 2 {
		t.Errorf("got %+v, %v", got, err)
	}
	env["DI_COLLECTOR_NODES"] = "@" + filepath.Join(folder, "none")
	if _, err := readPlace(system, "", workerPort); !errors.Is(err, ErrUsage) || !strings.Contains(err.Error(), "DI_COLLECTOR_NODES") {
		t.Errorf("a file that is not there: got %v", err)
	}
}

// spanning is the environment of a pod of 2 of 10 GPUs.
func spanning(startRank string) map[string]string {
	return map[string]string{
		"WORLD_SIZE": "10", "LOCAL_WORLD_SIZE": "2", "START_RANK": startRank, "MASTER_ADDR": "m", "MASTER_PORT": "1",
	}
}

func TestWorldIsChecked(t *testing.T) {
	t.Parallel()
	tests := map[string]struct {
		env     map[string]string
		refused bool
	}{
		"one pod":            {map[string]string{"WORLD_SIZE": "2", "LOCAL_WORLD_SIZE": "2", "START_RANK": "0"}, false},
		"second of two pods": {spanning("8"), false},
		"pods, no master":    {map[string]string{"WORLD_SIZE": "10", "LOCAL_WORLD_SIZE": "2", "START_RANK": "8"}, true},
		"rank too high":      {spanning("9"), true},
		"no world":           {map[string]string{}, true},
		"not a number":       {map[string]string{"WORLD_SIZE": "two"}, true},
	}
	for name, tc := range tests {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			_, err := readWorld(System{Getenv: func(key string) string { return tc.env[key] }})
			if (err != nil) != tc.refused {
				t.Errorf("got error %v, want refused to be %v", err, tc.refused)
			}
		})
	}
}

func TestPodNamesAreTakenFromURLs(t *testing.T) {
	t.Parallel()
	got := podNames([]string{"job-ddp-learner-a.ns:1", "job-ddp-learner-a.ns:2", "my.job-collector-b.ns:1"})
	if len(got) != 2 || got[0] != "job-ddp-learner-a" || got[1] != "my.job-collector-b" {
		t.Errorf("got %q", got)
	}
}
