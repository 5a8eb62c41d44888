// Copyright The DI Orchestrator Authors.
// SPDX-License-Identifier: Apache-2.0

package takeover_test

import (
	"maps"
	"testing"

	. "github.com/onsi/gomega"

	"opendilab.org/di-orchestrator/internal/upgrade/takeover"
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
			if step == takeover.StepDrainServer {
				g.Expect(observed.ServerReady).To(BeTrue(), "%v", done)
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
