// Copyright The DI Orchestrator Authors.
// SPDX-License-Identifier: Apache-2.0

// Package conformance has the table of what an installation does, for each lifecycle, API version and
// caller. docs/conformance.md shows the table. The tests with build tag conformance run it on a cluster.
package conformance

import "slices"

// Lifecycle is the lifecycle of the job of a cell.
type Lifecycle string

// The lifecycles.
const (
	WorkerLed      Lifecycle = "worker-led"
	CoordinatorLed Lifecycle = "coordinator-led"
)

// Version is the API version of a request, or the protocol version of a call to di-server.
type Version string

// The versions.
const (
	V1 Version = "v1alpha1"
	V2 Version = "v2alpha1"
)

// Caller is who makes the request.
type Caller string

// The callers.
const (
	// Admin, Edit and View have the role of that name in the namespace of the job, and no other.
	Admin Caller = "admin"
	Edit  Caller = "edit"
	View  Caller = "view"
	// Pod is a pod of the job that sends its token.
	Pod Caller = "pod of the job"
	// Deployed is a client of an earlier release in a pod of the job. It sends no token.
	Deployed Caller = "deployed client"
)

// Lifecycles returns all lifecycles.
func Lifecycles() []Lifecycle { return []Lifecycle{WorkerLed, CoordinatorLed} }

// Versions returns all versions.
func Versions() []Version { return []Version{V1, V2} }

// Callers returns all callers.
func Callers() []Caller { return []Caller{Admin, Edit, View, Pod, Deployed} }

// Kind is the kind of an outcome.
type Kind int

// The kinds of outcomes.
const (
	// Runs means that the request succeeds and has its effect.
	Runs Kind = iota
	// Refused means that the request is refused, with the text of the outcome as part of the answer.
	Refused
	// NotApplicable means that the request does not exist, because of the text of the outcome.
	NotApplicable
)

// Outcome is what is expected of a cell.
type Outcome struct {
	Kind Kind
	// Text is part of the answer if the cell is refused. It is the reason if the cell is not applicable.
	Text string
}

func runs() Outcome                        { return Outcome{Kind: Runs} }
func refused(answer string) Outcome        { return Outcome{Refused, answer} }
func notApplicable(because string) Outcome { return Outcome{NotApplicable, because} }

// Capability is a row of the table.
type Capability struct {
	// Name is the name of the row, such as "suspend".
	Name string
	// Does completes a sentence about a caller and a job, such as "suspends".
	Does string
	// Checks says what the test sees after the request.
	Checks string
	rules  []rule
}

// rule has the outcome of the cells that have one of the named values in each named dimension.
type rule struct {
	outcome    Outcome
	lifecycles []Lifecycle
	versions   []Version
	callers    []Caller
}

// where returns a rule. Its values are of the types Lifecycle, Version and Caller.
func where(outcome Outcome, values ...any) rule {
	r := rule{outcome: outcome}
	for _, value := range values {
		switch value := value.(type) {
		case Lifecycle:
			r.lifecycles = append(r.lifecycles, value)
		case Version:
			r.versions = append(r.versions, value)
		case Caller:
			r.callers = append(r.callers, value)
		}
	}
	return r
}

// Cell is one cell of the table.
type Cell struct {
	Capability *Capability
	Lifecycle  Lifecycle
	Version    Version
	Caller     Caller
}

// Outcome returns what is expected of the cell: the outcome of the first rule that applies. Without a
// rule it runs.
func (c Cell) Outcome() Outcome {
	for _, r := range c.Capability.rules {
		if has(r.lifecycles, c.Lifecycle) && has(r.versions, c.Version) && has(r.callers, c.Caller) {
			return r.outcome
		}
	}
	return runs()
}

// has reports whether a rule applies to a value. A rule without values of a dimension applies to all.
func has[T comparable](values []T, value T) bool {
	return len(values) == 0 || slices.Contains(values, value)
}

// Sentence returns the name of the test of the cell.
func (c Cell) Sentence() string {
	who, verb := "A "+string(c.Caller), " "
	if c.Caller == Admin || c.Caller == Edit || c.Caller == View {
		who = "A user with role " + string(c.Caller)
	}
	if c.Outcome().Kind == Refused {
		verb = " is refused when it "
	}
	return who + verb + c.Capability.Does + " a " + string(c.Lifecycle) + " job in " + string(c.Version)
}

// Table returns all cells.
func Table() []Cell {
	var cells []Cell
	all := Capabilities()
	for i := range all {
		for _, lifecycle := range Lifecycles() {
			for _, version := range Versions() {
				for _, caller := range Callers() {
					cells = append(cells, Cell{&all[i], lifecycle, version, caller})
				}
			}
		}
	}
	return cells
}
