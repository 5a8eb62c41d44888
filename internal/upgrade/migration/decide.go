// Copyright The DI Orchestrator Authors.
// SPDX-License-Identifier: Apache-2.0

// Package migration decides how stored objects come to be stored in the version
// that an administrator wants, and how a version ceases to be served. It is pure:
// what happens next follows from one observation. It must not talk to a cluster,
// read a clock, or log.
//
// The order is that of what each step rests on:
//
//	owner references (the way back) → storage switches → every API server has
//	seen it → every object is written once → status.storedVersions is pruned →
//	owner references → a version ceases to be served → it is taken from managedFields
package migration

import (
	"fmt"
	"slices"
	"strings"
	"time"

	"opendilab.org/di-orchestrator/apis/v1alpha1"
	"opendilab.org/di-orchestrator/apis/v2alpha1"
)

// Version is a version of a definition.
type Version struct {
	Name   string
	Served bool
}

// Observed is what is known of one CustomResourceDefinition and its objects.
type Observed struct {
	// Resource is the plural name of the kind.
	Resource string
	// Versions are its versions, Storage is the one that objects are stored in when
	// they are written, and Stored are those that any may be stored in.
	Versions []Version
	Storage  string
	Stored   []string
	// Generation is that of the definition, and Definition its UID.
	Generation int64
	Definition string
	// Retired says that the definition is left without an operator.
	Retired bool
	// Wanted is the desired storage version, and Stopped the one
	// that must not be served any more, empty for none.
	Wanted, Stopped string
	// TakenOver says that nothing of an earlier release acts any more, and that
	// what it made is ours.
	TakenOver bool
	// Misrun names the jobs, with the reasons, that the release would misrun for
	// which the desired storage version is set.
	Misrun []string
	// Misversioned is how many objects name their job as an owner in another version
	// than the wanted one.
	Misversioned int
	// Record is how far it is: the zero value before anything was done.
	Record Record
	// Now is the time of the observation.
	Now time.Time
	// Settle is how long API servers take to learn which version is stored, and
	// Retry how long an object is left alone that could not be written.
	Settle, Retry time.Duration
}

// Step is a step of a migration.
type Step string

// The steps.
const (
	// StepRest does nothing.
	StepRest Step = "Rest"
	// StepWait reconciles again after a while.
	StepWait Step = "Wait"
	// StepBlock reports why nothing can be done, and reconciles again after a while.
	StepBlock Step = "Block"
	// StepServe serves all versions that are not stopped.
	StepServe Step = "Serve"
	// StepMoveOwners changes owner references to the desired version.
	StepMoveOwners Step = "MoveOwners"
	// StepSwitch stores objects in the desired version from now on, if the API server
	// admits them in both.
	StepSwitch Step = "Switch"
	// StepBegin records that a rewriting begins.
	StepBegin Step = "Begin"
	// StepContinue records that the definition has changed, but not its storage version,
	// so that the rewriting continues.
	StepContinue Step = "Continue"
	// StepRewrite writes the next page of objects.
	StepRewrite Step = "Rewrite"
	// StepRetry writes the objects again that could not be written.
	StepRetry Step = "Retry"
	// StepPrune records in the definition that objects are stored in the desired
	// version only.
	StepPrune Step = "Prune"
	// StepStopServing stops serving a version.
	StepStopServing Step = "StopServing"
	// StepClean removes a version that is not served from the managedFields of
	// all objects.
	StepClean Step = "Clean"
	// StepFinish records that the migration is finished.
	StepFinish Step = "Finish"
)

// Decision is the next step.
type Decision struct {
	Step Step
	// After is when to reconcile again, for the steps Wait and Block.
	After time.Duration
	// Message says why, of the step Block.
	Message string
}

// blockedFor is when to reconcile again while an administrator must change something.
const blockedFor = time.Minute

// ownersFor is when to reconcile again what waits for the jobs' definition.
const ownersFor = 10 * time.Second

// Decide returns the next step.
func Decide(o *Observed) Decision {
	if o.Retired || len(o.Versions) < 2 {
		return Decision{Step: StepRest}
	}
	if fault := o.fault(); fault != "" {
		return Decision{Step: StepBlock, After: blockedFor, Message: fault}
	}
	switch {
	case !o.has(o.Wanted) || o.IsAtRest():
		return Decision{Step: StepRest}
	case !o.TakenOver:
		return Decision{Step: StepWait, After: ownersFor}
	case slices.ContainsFunc(o.Versions, func(version Version) bool { return !version.Served && version.Name != o.Stopped }):
		return Decision{Step: StepServe}
	case o.Storage != o.Wanted:
		return o.decideSwitch()
	case !o.isPruned():
		return o.decideRewrite()
	}
	return o.decideServed()
}

// decideServed returns the next step where all objects are stored as wanted.
func (o *Observed) decideServed() Decision {
	switch {
	case o.Misversioned > 0:
		return Decision{Step: StepMoveOwners}
	case o.Record.Phase == PhaseSettling || o.Record.Phase == PhaseRewriting:
		return Decision{Step: StepFinish}
	case o.Stopped != "" && o.isServed(o.Stopped):
		return Decision{Step: StepStopServing}
	case o.Stopped != "" && o.Record.Cleaned != o.Stopped:
		return o.decideClean()
	}
	return Decision{Step: StepFinish}
}

func (o *Observed) decideClean() Decision {
	record := &o.Record
	again := record.Tried.Add(o.Retry)
	if record.Phase == PhaseCleaning && record.Listed && len(record.Failed) > 0 && o.Now.Before(again) {
		return Decision{Step: StepWait, After: again.Sub(o.Now)}
	}
	return Decision{Step: StepClean}
}

// fault says what is wrong with what an administrator wants.
func (o *Observed) fault() string {
	switch {
	case o.Wanted != v1alpha1.Version && o.Wanted != v2alpha1.Version:
		return fmt.Sprintf("storage version %q: must be %s or %s", o.Wanted, v1alpha1.Version, v2alpha1.Version)
	case o.Stopped == "":
		return ""
	case o.Stopped != v1alpha1.Version:
		return fmt.Sprintf("version %q must be served: only %s may be disabled", o.Stopped, v1alpha1.Version)
	case o.Stopped == o.Wanted:
		return fmt.Sprintf("version %s must be served while it is the desired storage version", o.Stopped)
	}
	return ""
}

// IsAtRest reports whether everything is as desired, and recorded so.
func (o *Observed) IsAtRest() bool {
	if o.Storage != o.Wanted || !o.isPruned() || o.Record.Blocked != "" {
		return false
	}
	for _, version := range o.Versions {
		if version.Served == (version.Name == o.Stopped) {
			return false
		}
	}
	recorded := o.Record.Phase == "" || o.Record.Phase == PhaseFinished && o.Record.Target == o.Wanted
	return recorded && o.Record.Cleaned == o.Stopped
}

func (o *Observed) decideSwitch() Decision {
	switch {
	case len(o.Misrun) > 0:
		return Decision{Step: StepBlock, After: blockedFor, Message: misrunMessage(o.Wanted, o.Misrun)}
	case o.Wanted != v2alpha1.Version && o.Misversioned > 0:
		// An earlier release, which knows no other version, is to find its own.
		return Decision{Step: StepMoveOwners}
	}
	return Decision{Step: StepSwitch}
}

// namedMisruns is how many jobs a message names.
const namedMisruns = 5

func misrunMessage(version string, jobs []string) string {
	named, more := jobs, ""
	if len(jobs) > namedMisruns {
		named, more = jobs[:namedMisruns], fmt.Sprintf(" and %d more", len(jobs)-namedMisruns)
	}
	count, pronoun, verb := fmt.Sprintf("%d jobs", len(jobs)), "them", "they are"
	if len(jobs) == 1 {
		count, pronoun, verb = "1 job", "it", "it is"
	}
	return fmt.Sprintf("objects are not stored in %s, as the release that this is for would not run %s as %s to be run: %s%s: delete %s, or let %s finish",
		version, count, verb, strings.Join(named, "; "), more, pronoun, pronoun)
}

func (o *Observed) decideRewrite() Decision {
	record := &o.Record
	switch {
	case record.Target != o.Wanted || !o.isStoredAsBefore() || record.Phase != PhaseSettling && record.Phase != PhaseRewriting:
		return Decision{Step: StepBegin}
	case record.Generation != o.Generation:
		return Decision{Step: StepContinue}
	case record.Phase == PhaseSettling && o.Now.Before(record.Since.Add(o.Settle)):
		return Decision{Step: StepWait, After: record.Since.Add(o.Settle).Sub(o.Now)}
	case !record.Listed && len(record.Failed) < MaxFailures:
		return Decision{Step: StepRewrite}
	case len(record.Failed) == 0:
		return Decision{Step: StepPrune}
	case o.Now.Before(record.Tried.Add(o.Retry)):
		return Decision{Step: StepWait, After: record.Tried.Add(o.Retry).Sub(o.Now)}
	}
	return Decision{Step: StepRetry}
}

// isStoredAsBefore reports whether objects have been stored in the desired version, and in
// no other, since the record was written. The definition said so then and says so now,
// and each change of it counts its generation: one alone led to nothing else, while
// two may have led away and back.
func (o *Observed) isStoredAsBefore() bool {
	changes := o.Generation - o.Record.Generation
	return o.Record.Definition == o.Definition && (changes == 0 || changes == 1)
}

// isPruned reports whether objects are known to be stored in the desired version only.
func (o *Observed) isPruned() bool {
	return len(o.Stored) == 1 && o.Stored[0] == o.Wanted
}

func (o *Observed) has(name string) bool {
	return slices.ContainsFunc(o.Versions, func(version Version) bool { return version.Name == name })
}

func (o *Observed) isServed(name string) bool {
	return slices.Contains(o.Versions, Version{Name: name, Served: true})
}

// Through returns the version in which objects are read and written to be
// rewritten: where it is served the one that most are stored in, as no webhook
// converts what is read as it is stored.
func (o *Observed) Through() string {
	for _, version := range o.Stored {
		if version != o.Wanted && o.isServed(version) {
			return version
		}
	}
	return o.Wanted
}
