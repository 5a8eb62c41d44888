// Copyright The DI Orchestrator Authors.
// SPDX-License-Identifier: Apache-2.0

package takeover_test

import (
	"maps"
	"strings"
	"testing"

	. "github.com/onsi/gomega"

	"opendilab.org/di-orchestrator/upgrade/takeover"
)

func TestNothingIsLeftToDoOnceJobsAreAdmittedAndNoOtherOperatorActs(t *testing.T) {
	g := NewWithT(t)
	observed := &takeover.Observed{Acting: true, Probed: true}
	g.Expect(takeover.Next(observed)).To(Equal(takeover.StepDone))
	g.Expect(takeover.IsDone(takeover.Describe(observed))).To(BeTrue())
}

func TestWhereNoEarlierReleaseIsTheControllersActAtOnce(t *testing.T) {
	g := NewWithT(t)
	g.Expect(takeover.Plan(&takeover.Observed{})).To(Equal([]takeover.Step{takeover.StepAct, takeover.StepProbe}))
}

func TestALineSaysTheStepAndWhatComesAfterIt(t *testing.T) {
	g := NewWithT(t)
	line := takeover.Describe(&takeover.Observed{Pods: map[string][]string{"di-operator": {"di-operator-1"}}, Replicas: map[string]int32{"di-server": 1}})
	g.Expect(line).To(Equal("AwaitOperator: waits for the end of pods di-operator-1; then AwaitServer, DrainServer, AwaitDrain, StopServer, AwaitServerEnd, RestoreServices, Act, Probe"))
	g.Expect(takeover.IsDone(line)).To(BeFalse())
}

// Each entry is a path that the upgrade guide documents, or what people do beside it.
func TestEachPathToAnInstallationHasItsSteps(t *testing.T) {
	const (
		operator, server = "di-operator", "di-server"
		bridge           = "di-server-8081-v4-1"
	)
	runs := func(names ...string) map[string]int32 {
		all := map[string]int32{}
		for _, name := range names {
			all[name] = 1
		}
		return all
	}
	live := func(names ...string) map[string][]string {
		all := map[string][]string{}
		for _, name := range names {
			all[name] = []string{name + "-1"}
		}
		return all
	}
	wide, bridges := []string{server}, []string{bridge}
	for path, one := range map[string]struct {
		found takeover.Observed
		steps string
	}{
		"v0.2.2 by its manifest": {
			takeover.Observed{Configurations: []string{"a"}, Replicas: runs(operator, "di-webhook", server), Pods: live(operator, "di-webhook", server), Wide: wide, Bridges: bridges, Listed: []string{"di-server-1"}},
			"DeleteWebhooks StopOperator AwaitOperator AwaitServer DrainServer AwaitDrain StopServer AwaitServerEnd RestoreServices Act Probe",
		},
		"v1.1.3 by its manifest, or its chart whose release Helm has forgotten": {
			takeover.Observed{Replicas: runs(operator, server), Pods: live(operator, server), Wide: wide, Bridges: bridges, Listed: []string{"di-server-1"}},
			"StopOperator AwaitOperator AwaitServer DrainServer AwaitDrain StopServer AwaitServerEnd RestoreServices Act Probe",
		},
		"v1.1.3 by its chart, upgraded, and our di-server is ready before the earlier one ends": {
			takeover.Observed{Pods: live(operator, server), ServerReady: true, Wide: wide, Bridges: bridges, Listed: []string{"di-server-1"}},
			"DeleteBridges AwaitOperator AwaitServerEnd Act Probe",
		},
		"v1.1.3 by its chart, upgraded, and its operator has ended": {
			takeover.Observed{Pods: live(server), ServerReady: true, Wide: wide, Bridges: bridges, Listed: []string{"di-server-1"}},
			"DeleteBridges AwaitServerEnd Act Probe",
		},
		"v1.1.3 by its chart, upgraded, and the earlier di-server ends first": {
			takeover.Observed{Pods: live(operator, server), Wide: wide, Bridges: bridges},
			"AwaitOperator AwaitServerEnd RestoreServices Act Probe",
		},
		"v1.1.3 whose di-server a user has scaled to zero": {
			takeover.Observed{Replicas: map[string]int32{operator: 1, server: 0}, Pods: live(operator, server), ServerReady: true, Wide: wide, Bridges: bridges},
			"StopOperator DeleteBridges AwaitOperator AwaitServerEnd Act Probe",
		},
		"v1.1.3 whose di-server a user has deleted while it was drained": {
			takeover.Observed{Pods: live(server), ServerReady: true, Narrow: wide, Bridges: bridges},
			"DeleteBridges AwaitServerEnd RestoreServices Act Probe",
		},
		"put back, and installed again": {
			takeover.Observed{Replicas: runs(operator, server), Pods: live(operator, server), ServerReady: true, Wide: wide, Bridges: bridges, Listed: []string{"di-server-1"}},
			"StopOperator AwaitOperator DrainServer AwaitDrain StopServer AwaitServerEnd RestoreServices Act Probe",
		},
	} {
		t.Run(path, func(t *testing.T) {
			g := NewWithT(t)
			var planned, done []string
			for _, step := range takeover.Plan(&one.found) {
				planned = append(planned, string(step))
			}
			g.Expect(strings.Join(planned, " ")).To(Equal(one.steps))
			for step := takeover.Next(&one.found); step != takeover.StepDone; step = takeover.Next(&one.found) {
				done = append(done, string(step))
				world(&one.found, step)
			}
			g.Expect(done).To(Equal(planned), "the steps that follow are those that were announced")
		})
	}
}

// From any observed state the plan ends, and our controllers never act beside an earlier operator.
func TestFromAnyStateTheStepsEndAndTwoOperatorsNeverAct(t *testing.T) {
	for state := range states() {
		g := NewWithT(t)
		observed := state
		var done []takeover.Step
		for step := takeover.Next(&observed); step != takeover.StepDone; step = takeover.Next(&observed) {
			if step == takeover.StepAct {
				g.Expect(observed.Pods).To(BeEmpty(), "%v", done)
				g.Expect(observed.Configurations).To(BeEmpty())
			}
			if step == takeover.StepStopServer {
				g.Expect(observed.ServerReady).To(BeTrue(), "%v", done)
				g.Expect(observed.Listed).To(BeEmpty(), "%v", done)
				g.Expect(observed.Bridges).To(BeEmpty(), "%v", done)
			}
			if step == takeover.StepDrainServer || step == takeover.StepDeleteBridges {
				g.Expect(observed.ServerReady).To(BeTrue(), "%v", done)
			}
			if waits := step == takeover.StepAwaitOperator || step == takeover.StepAwaitServerEnd; waits && observed.ServerReady && observed.Replicas["di-server"] == 0 {
				g.Expect(observed.Bridges).To(BeEmpty(), "%v", done)
			}
			done = append(done, step)
			g.Expect(len(done)).To(BeNumerically("<", 20), "%v", done)
			world(&observed, step)
		}
		g.Expect(observed.Narrow).To(BeEmpty(), "%v", done)
		g.Expect(observed.Bridges).To(BeEmpty(), "%v", done)
	}
}

// states returns all states of an installation.
func states() func(func(takeover.Observed) bool) {
	return func(yield func(takeover.Observed) bool) {
		const bits = 11
		for state := range 1 << bits {
			has := func(bit int) bool { return state&(1<<bit) != 0 }
			observed := takeover.Observed{Replicas: map[string]int32{}, Pods: map[string][]string{}, ServerReady: has(0), Probed: has(1)}
			if has(2) {
				observed.Configurations = []string{"a", "b"}
			}
			for i, name := range []string{"di-operator", "di-server"} {
				if has(3 + 2*i) {
					observed.Replicas[name] = 1
				}
				if has(4 + 2*i) {
					observed.Pods[name] = []string{name + "-1"}
				}
			}
			if has(7) {
				observed.Replicas["di-webhook"], observed.Pods["di-webhook"] = 2, []string{"di-webhook-1", "di-webhook-2"}
			}
			if services := []string{"di-server", "di-server-nodeport"}; has(8) {
				observed.Narrow, observed.Wide = services[:1], services[1:]
			} else {
				observed.Wide = services
			}
			if has(9) {
				observed.Bridges = []string{"di-server-8080"}
			}
			if has(10) {
				observed.Listed = []string{"di-server-1"}
			}
			if !yield(observed) {
				return
			}
		}
	}
}

// world performs a step, or what the step waits for.
func world(observed *takeover.Observed, step takeover.Step) {
	observed.Replicas, observed.Pods = maps.Clone(observed.Replicas), maps.Clone(observed.Pods)
	switch step {
	case takeover.StepDeleteWebhooks:
		observed.Configurations = nil
	case takeover.StepStopOperator:
		observed.Replicas["di-operator"], observed.Replicas["di-webhook"] = 0, 0
	case takeover.StepDeleteBridges:
		observed.Bridges = nil
	case takeover.StepAwaitOperator:
		delete(observed.Pods, "di-operator")
		delete(observed.Pods, "di-webhook")
	case takeover.StepAwaitServer:
		observed.ServerReady = true
	case takeover.StepDrainServer:
		observed.Narrow, observed.Wide, observed.Bridges = append(observed.Wide, observed.Narrow...), nil, nil
	case takeover.StepAwaitDrain:
		observed.Listed = nil
	case takeover.StepRestoreServices:
		observed.Narrow, observed.Wide, observed.Bridges = nil, append(observed.Wide, observed.Narrow...), nil
		if observed.Replicas["di-server"] > 0 {
			observed.Listed = []string{"di-server-1"}
		}
	case takeover.StepStopServer:
		observed.Replicas["di-server"] = 0
	case takeover.StepAwaitServerEnd:
		delete(observed.Pods, "di-server")
	case takeover.StepAct:
		observed.Acting = true
	case takeover.StepProbe:
		observed.Probed = true
	default:
	}
}
