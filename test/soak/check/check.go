// Copyright The DI Orchestrator Authors.
// SPDX-License-Identifier: Apache-2.0

// Package check decides whether a recorded history keeps the promises of DI Orchestrator. It speaks of objects by their
// UIDs and of what others were told, and never repeats a formula of the programs. It needs no cluster.
package check

import (
	"fmt"
	"slices"
	"strings"
	"time"

	"opendilab.org/di-orchestrator/test/soak/history"
)

// Violation is a promise that a history breaks.
type Violation struct {
	// Property is the name of the promise.
	Property string
	// Object is the job or program that it is about.
	Object string
	Time   time.Time
	// Story tells in words what happened.
	Story string
	// Events are the last events of the job, oldest first.
	Events []string
}

// String tells the violation in words.
func (v *Violation) String() string {
	text := fmt.Sprintf("%s: %s\n  %s, at %s", v.Property, v.Story, v.Object, v.Time.Format(time.StampMilli))
	if len(v.Events) > 0 {
		text += "\n  its last events:\n    " + strings.Join(v.Events, "\n    ")
	}
	return text
}

// broken is what a property found.
type broken struct {
	job   *job
	name  string
	story string
}

// property is one promise.
type property interface {
	// name is the promise as a sentence.
	name() string
	// see looks at an entry, after the world has changed by it.
	see(w *world, entry *history.Entry) []broken
	// end is called after the last entry.
	end(w *world) []broken
}

// Checker reads a history once.
type Checker struct {
	world      *world
	properties []property
	sizes      *counted
	violations []Violation
	counted    map[string]int
	ended      bool
}

// maxKept is the number of violations that are kept. One defect may break a promise again and again.
const maxKept = 20

// New returns a checker of all properties.
func New() *Checker {
	sizes := newCounted()
	return &Checker{world: newWorld(), sizes: sizes, counted: map[string]int{}, properties: []property{
		unique{}, bounded{}, &drained{}, caused{}, newServed(), newListed(), sizes, rest{}, versions{}, newFlat(),
	}}
}

// See takes the next entry of the history.
func (c *Checker) See(entry *history.Entry) {
	c.world.see(entry)
	for _, each := range c.properties {
		c.add(each, each.see(c.world, entry))
	}
}

// Finish returns all violations. No entry may follow.
func (c *Checker) Finish() []Violation {
	if !c.ended {
		c.ended = true
		for _, each := range c.properties {
			c.add(each, each.end(c.world))
		}
	}
	return c.violations
}

// Violations returns what was found so far.
func (c *Checker) Violations() []Violation { return slices.Clone(c.violations) }

// Counted returns the number of violations of each property, by name. Properties that hold have 0.
func (c *Checker) Counted() map[string]int {
	counted := map[string]int{}
	for _, each := range c.properties {
		counted[each.name()] = c.counted[each.name()]
	}
	return counted
}

// Searched returns what the search for an order of the requests to resize has covered, after Finish.
func (c *Checker) Searched() (jobs, calls, undecided int) {
	return c.sizes.ordered, c.sizes.searched, c.sizes.undecided
}

// Unrest lists what is not as desired; nothing if all jobs are at rest.
func (c *Checker) Unrest() []string { return c.world.unrest() }

func (c *Checker) add(by property, found []broken) {
	for _, each := range found {
		c.counted[by.name()]++
		if len(c.violations) >= maxKept {
			continue
		}
		violation := Violation{Property: by.name(), Object: each.name, Time: c.world.now, Story: each.story}
		if each.job != nil {
			violation.Object = each.job.String()
			violation.Events = slices.Clone(each.job.events)
		}
		c.violations = append(c.violations, violation)
	}
}
