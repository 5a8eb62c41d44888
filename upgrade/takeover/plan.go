// Copyright The DI Orchestrator Authors.
// SPDX-License-Identifier: Apache-2.0

// Package takeover replaces an earlier release that is installed beside this program, step by step.
// No two operators act on a job, and every call is answered. The earlier webhooks stop first, then
// the operator, and di-server once ours answers. The next step follows from what is observed, so
// that the takeover can be interrupted after any write and resumed. It changes no job.
package takeover

import (
	"fmt"
	"slices"
	"strings"

	"opendilab.org/di-orchestrator/internal/names"
)

// Step is one step of the takeover, in the order of the constants.
type Step string

const (
	// StepDeleteWebhooks deletes the earlier webhook configurations. They would also receive
	// objects that are written in the new version.
	StepDeleteWebhooks Step = "DeleteWebhooks"
	// StepStopOperator scales the earlier operator and its webhooks to zero.
	StepStopOperator Step = "StopOperator"
	// StepDeleteBridges deletes the bridges if the earlier di-server ends by itself, because its
	// Deployment is deleted, as Helm does, or scaled to zero. It happens once ours answers and nodes
	// have learned of the Services' ports.
	StepDeleteBridges Step = "DeleteBridges"
	// StepAwaitOperator waits until the pods of the earlier operator and webhooks are deleted.
	StepAwaitOperator Step = "AwaitOperator"
	// StepAwaitServer waits until our di-server answers beside the earlier one.
	StepAwaitServer Step = "AwaitServer"
	// StepDrainServer removes the earlier di-server from the endpoints, once nodes have learned of
	// the Services' ports.
	StepDrainServer Step = "DrainServer"
	// StepAwaitDrain waits until no Service leads to the earlier di-server.
	StepAwaitDrain Step = "AwaitDrain"
	// StepStopServer scales the earlier di-server to zero, once nodes have learned that no Service
	// leads to it. It exits as soon as it receives SIGTERM.
	StepStopServer Step = "StopServer"
	// StepAwaitServerEnd waits until the pods of the earlier di-server are deleted, because they
	// too write.
	StepAwaitServerEnd Step = "AwaitServerEnd"
	// StepRestoreServices restores the selectors that Services had before the drain.
	StepRestoreServices Step = "RestoreServices"
	// StepAct starts our controllers.
	StepAct Step = "Act"
	// StepProbe waits until jobs are admitted in both versions.
	StepProbe Step = "Probe"
	// StepDone means that nothing is left to do.
	StepDone Step = "Done"
)

// Observed is the state of the earlier release and of the takeover.
type Observed struct {
	// Configurations are the names of the existing webhook configurations.
	Configurations []string
	// Replicas are the desired replicas of each existing earlier Deployment.
	Replicas map[string]int32
	// Pods are the pods of each earlier Deployment, even if the Deployment is deleted.
	Pods map[string][]string
	// ServerReady reports whether a pod of our di-server is ready, and Services lead to it.
	ServerReady bool
	// Wide are the Services that select pods of both di-servers. Narrow are those that were changed
	// to select only ours.
	Wide, Narrow []string
	// Bridges are the EndpointSlices that lead to the earlier di-server by the old and the new
	// names of ports.
	Bridges []string
	// Listed are the pods of the earlier di-server that Services lead to.
	Listed []string
	// Acting reports whether our controllers run, and Probed whether an admission probe succeeded.
	Acting, Probed bool
}

// leadsToEarlier reports whether anything leads calls to the earlier di-server.
func (o *Observed) leadsToEarlier() bool { return len(o.Wide)+len(o.Bridges)+len(o.Listed) > 0 }

// Plan returns the remaining steps, the next one first. An empty plan means StepDone.
func Plan(observed *Observed) []Step {
	runs := func(deployments ...string) bool {
		return slices.ContainsFunc(deployments, func(name string) bool { return observed.Replicas[name] > 0 })
	}
	lives := func(deployments ...string) bool {
		return slices.ContainsFunc(deployments, func(name string) bool { return len(observed.Pods[name]) > 0 })
	}
	operator, server := runs(names.EarlierOperator, names.EarlierWebhook), runs(names.EarlierServer)
	narrow, bridged := len(observed.Narrow) > 0, len(observed.Bridges) > 0
	return needed([]possibleStep{
		{StepDeleteWebhooks, len(observed.Configurations) > 0},
		{StepStopOperator, operator},
		// Before the first step that waits, because pods of the earlier di-server end meanwhile.
		{StepDeleteBridges, bridged && !server && observed.ServerReady},
		{StepAwaitOperator, operator || lives(names.EarlierOperator, names.EarlierWebhook)},
		// If ours is not ready anymore, the earlier one answers again.
		{StepRestoreServices, server && !observed.ServerReady && narrow},
		{StepAwaitServer, server && !observed.ServerReady},
		{StepDrainServer, server && (!observed.ServerReady || len(observed.Wide) > 0 || bridged)},
		{StepAwaitDrain, server && (!observed.ServerReady || observed.leadsToEarlier())},
		{StepStopServer, server},
		{StepAwaitServerEnd, server || lives(names.EarlierServer)},
		{StepRestoreServices, server || narrow || bridged && !observed.ServerReady},
		{StepAct, !observed.Acting},
		{StepProbe, !observed.Probed},
	})
}

// possibleStep is a step, and whether it remains.
type possibleStep struct {
	step   Step
	needed bool
}

func needed(steps []possibleStep) []Step {
	var plan []Step
	for _, one := range steps {
		if one.needed {
			plan = append(plan, one.step)
		}
	}
	return plan
}

// Next returns the next step.
func Next(observed *Observed) Step {
	if plan := Plan(observed); len(plan) > 0 {
		return plan[0]
	}
	return StepDone
}

// findsEarlier reports whether any step for the earlier release remains.
func findsEarlier(plan []Step) bool {
	return len(plan) > 0 && plan[0] != StepProbe
}

// Describe describes in one line the current step and the steps after it.
func Describe(observed *Observed) string {
	plan := Plan(observed)
	if len(plan) == 0 {
		return string(StepDone) + ": the earlier release is stopped, and jobs are admitted in both versions"
	}
	line := string(plan[0]) + ": " + explain(plan[0], observed)
	if len(plan) == 1 {
		return line
	}
	after := make([]string, 0, len(plan)-1)
	for _, step := range plan[1:] {
		after = append(after, string(step))
	}
	return line + "; then " + strings.Join(after, ", ")
}

func explain(step Step, observed *Observed) string {
	pods := func(deployments ...string) string {
		var all []string
		for _, name := range deployments {
			all = append(all, observed.Pods[name]...)
		}
		if len(all) == 0 {
			return "none that is seen"
		}
		return strings.Join(all, ", ")
	}
	switch step {
	case StepDeleteWebhooks:
		return "deletes the webhook configurations " + strings.Join(observed.Configurations, ", ")
	case StepStopOperator:
		return fmt.Sprintf("scales Deployments %s and %s to zero", names.EarlierOperator, names.EarlierWebhook)
	case StepDeleteBridges:
		return "deletes the EndpointSlices that bridged the port names of Services, because the earlier di-server ends"
	case StepAwaitOperator:
		return "waits for the end of pods " + pods(names.EarlierOperator, names.EarlierWebhook)
	case StepAwaitServer:
		return fmt.Sprintf("waits until Services have a ready endpoint of the new di-server, while Deployment %s keeps running", names.EarlierServer)
	case StepStopServer:
		return fmt.Sprintf("scales Deployment %s to zero", names.EarlierServer)
	case StepAwaitServerEnd:
		return "waits for the end of pods " + pods(names.EarlierServer)
	case StepDrainServer:
		return "removes pods of the earlier di-server from the endpoints of Services " + strings.Join(observed.Wide, ", ")
	case StepAwaitDrain:
		return "waits until no Service has endpoints of pods " + strings.Join(observed.Listed, ", ")
	case StepRestoreServices:
		return "restores the selectors of Services, and deletes the EndpointSlices that bridged their port names"
	case StepAct:
		return "starts the controllers, which adopt jobs and pods"
	case StepProbe:
		return "the controllers adopt jobs and pods; waits until jobs are admitted in both versions"
	default:
		return ""
	}
}

// IsDone reports whether a line of Describe means that nothing is left to do.
func IsDone(said string) bool {
	return strings.HasPrefix(said, string(StepDone)+":")
}
