// Copyright The DI Orchestrator Authors.
// SPDX-License-Identifier: Apache-2.0

package lifecycle

import (
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"opendilab.org/di-orchestrator/test/testkit/expect"
)

// mutant is a planted fault: the file, from the root of the module, and what is changed in it.
type mutant struct {
	file, original, mutated string
}

// mutants returns the faults that the random worlds must find, by what they do.
func mutants() map[string]mutant {
	return map[string]mutant{
		// Clocks.
		"the clocks of API server and operator are compared": {
			"job/lifecycle/handshake/handshake.go", "h.isRunningMember(pod) && h.listed.Has(pod)",
			"h.isRunningMember(pod) && h.listed.active.Has(podstate.Rank(pod)) && !pod.CreationTimestamp.After(h.published.PublishedAt.Time)",
		},
		// Fences.
		"di-server writes over what others wrote since it read": {
			"server/store/jobedit.go", "client.MergeFromWithOptions(original, client.MergeFromWithOptimisticLock{})", "client.MergeFrom(original)",
		},
		// Work that is done twice.
		"a repeated request is executed again": {
			"job/membership/requests.go", "case !repeatable(record, age):", "case !repeatable(record, age), record.Key == key:",
		},
		// Writers.
		"di-server writes a field of the operator": {
			"server/store/acks.go", "job.Status.MembershipAcks = next", "job.Status.MembershipAcks, job.Status.Scaling.Membership.LeavingSince = next, nil",
		},
		// Handshakes.
		"a replica goes before the others have acknowledged": {
			"job/lifecycle/handshake/removals.go", "r.of.leaving.Has(rank) && r.of.result(drain) == released", "r.of.leaving.Has(rank) && r.of.result(drain) != failed",
		},
		"only the replica that leaves acknowledges": {
			"job/lifecycle/handshake/handshake.go", "h.IsListed(pod) && !h.acknowledged.Has(podstate.Rank(pod))", "h.IsListed(pod) && h.leaving.Has(podstate.Rank(pod)) && !h.acknowledged.Has(podstate.Rank(pod))",
		},
		// Finalizers.
		"a finalizer stays on a replica": {
			"job/lifecycle/workerled/counts/counts.go", "if queueing.HasOnlyFinalizer(pod) && (", "if queueing.HasOnlyFinalizer(pod) && !c.in.Kueue && (",
		},
		// Caches.
		"a stale list of members is believed": {
			"job/lifecycle/coordinatorled/unconfirmed.go", "len(unconfirmed.Pods) > 0 || len(facts.Excess()) > 0", "len(unconfirmed.Pods) > 0",
		},
		// Ranks.
		"replicas close up to the rank of one that is lost": {
			"job/lifecycle/ranks/ranks.go", "		take(&replicas[i], recorded[i])\n", "		_ = recorded[i]\n",
		},
		// Restarts and ends.
		"a disruption restarts the job": {
			"job/lifecycle/workerled/failures/failures.go", "pod == nil || !state.HasFailed(f.in.Job, pod) || f.facts.IsCounted(pod)", "pod == nil || !podstate.FailedOrLost(pod) || f.facts.IsCounted(pod)",
		},
		"a suspended job gets pods": {
			"job/lifecycle/endings/endings.go", "	return e.Stop()\n", "	e.Stop()\n	return state.Continue\n",
		},
		"the first cause is lost": {
			"job/lifecycle/problems/problems.go", "	if stall == nil {\n		return message", "	if stall == nil || r.in.Job != nil {\n		return message",
		},
		// Shards.
		"a shard is taken while its holder may act": {
			"controllers/shards/shards.go", "now.Sub(s[lease.Name].at) <= lease.Duration", "now.Sub(s[lease.Name].at) <= lease.Duration/3",
		},
		"an operator acts before those of another number of shards have stopped": {
			"controllers/shards/shards.go", "d.MayAct = d.Alone && declared == o.Count", "d.MayAct = declared == o.Count",
		},
		// Names that are given again.
		"what a deleted job left behind stays": {
			"job/lifecycle/upkeep/leftbehind.go", "if left <= 0 {", "if left <= -time.Hour {",
		},
		"the Membership of a deleted job is kept": {
			"job/lifecycle/coordinatorled/requested/requested.go", "		s.out.Decision.DeleteMembership = true\n		return state.Settled", "		return state.Continue",
		},
		// Allocator.
		"the allocator believes a cache that is behind its writes": {
			"controllers/allocator/reconcile.go", "ours != nil && assume.IsOlder(job, ours)", "ours != nil && assume.IsOlder(ours, job)",
		},
		"the allocator forgets a write without an answer": {
			"controllers/allocator/reconcile.go", "		a.written = nil\n", "",
		},
		// Autoscaler.
		"the autoscaler exceeds the range of a job": {
			"controllers/autoscaler/roles.go", "ptr.Deref(bounds.MinReplicas, least), min(ptr.Deref(bounds.MaxReplicas, most), most)",
			"ptr.Deref(bounds.MinReplicas, least), max(ptr.Deref(bounds.MaxReplicas, most), most)",
		},
		// Members.
		"a replica that was asked away stays": {
			"job/lifecycle/coordinatorled/excess/excess.go", "		going[pod.Name] = true\n		s.out.DeletePod(pod)\n", "		going[pod.Name] = true\n",
		},
	}
}

// TestTheWorldsFindKnownFaults_Slow compiles the package with each fault, and plays as many worlds as must find it.
func TestTheWorldsFindKnownFaults_Slow(t *testing.T) {
	for name, fault := range mutants() {
		t.Run(name, func(t *testing.T) {
			printed := playWith(t, plant(t, fault))
			found := regexp.MustCompile(`_test\.go:\d+: (.*)`).FindStringSubmatch(printed)
			if found == nil {
				t.Fatalf("no world of %d finds it:\n%s", mutantRounds, printed)
			}
			t.Log(found[1])
		})
	}
}

// plant returns the overlay with which a fault is compiled.
func plant(t *testing.T, fault mutant) string {
	t.Helper()
	original, err := filepath.Abs(filepath.Join("..", "..", fault.file))
	expect.NoError(t, err)
	content, err := os.ReadFile(original)
	expect.NoError(t, err)
	if count := strings.Count(string(content), fault.original); count != 1 {
		t.Fatalf("%s has %q %d times", fault.file, fault.original, count)
	}
	folder := t.TempDir()
	mutated, overlay := filepath.Join(folder, "mutated.go"), filepath.Join(folder, "overlay.json")
	replaced, err := json.Marshal(map[string]any{"Replace": map[string]string{original: mutated}})
	expect.NoError(t, err)
	for path, text := range map[string]string{mutated: strings.Replace(string(content), fault.original, fault.mutated, 1), overlay: string(replaced)} {
		expect.NoError(t, os.WriteFile(path, []byte(text), 0o600))
	}
	return overlay
}

// playWith plays all kinds of random worlds with an overlay, and returns what the tests print.
func playWith(t *testing.T, overlay string) string {
	t.Helper()
	command := exec.CommandContext(t.Context(), "go", "test", "-vet=off", "-count=1", "-overlay", overlay,
		"-run", "InAWorldThat|IsNeverLostByIntent|WhateverHappens", fmt.Sprintf("-world.rounds=%d", mutantRounds), ".")
	printed, err := command.CombinedOutput()
	if err == nil || strings.Contains(string(printed), "[build failed]") {
		t.Fatalf("the worlds end with %v\n%s", err, printed)
	}
	return string(printed)
}
