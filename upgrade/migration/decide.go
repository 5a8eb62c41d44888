// Copyright The DI Orchestrator Authors.
// SPDX-License-Identifier: Apache-2.0

// Package migration decides the steps of a storage migration: how stored objects are rewritten
// in the desired version, and how a version stops being served. It is pure: the next step follows
// from one observation. It must not talk to a cluster, read a clock, or log.
//
// Each step depends on the steps before it:
//
//	owner references (rollback only) → the storage version changes → every API server has
//	observed it → every object is written once → status.storedVersions is pruned →
//	owner references → a version stops being served → it is removed from managedFields
package migration

import (
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/dustin/go-humanize/english"

	"opendilab.org/di-orchestrator/apis/v1alpha1"
	"opendilab.org/di-orchestrator/apis/v2alpha1"
)

// Version is a version of a definition.
type Version struct {
	Name   string
	Served bool
}

// Observed is the observed state of one CustomResourceDefinition and its objects.
type Observed struct {
	// Resource is the plural name of the kind.
	Resource string
	// Versions are its versions. Storage is the storage version, and Stored are the versions in
	// which some objects may be stored.
	Versions []Version
	Storage  string
	Stored   []string
	// Generation is the generation of the definition, and Definition its UID.
	Generation int64
	Definition string
	// Retired means that the definition has no operator.
	Retired bool
	// Wanted is the desired storage version. Stopped is the version that must not be served, and ""
	// for none.
	Wanted, Stopped string
	// TakenOver means that the takeover is done: no program of an earlier release acts anymore, and
	// its objects are adopted.
	TakenOver bool
	// Misrun names the jobs, with the reasons, that the earlier release would run differently. That
	// release needs the desired storage version.
	Misrun []string
	// Misversioned is how many objects have an owner reference to their job in another version than
	// the desired one.
	Misversioned int
	// Record is the progress. It is the zero value before the migration begins.
	Record Record
	// Now is the time of the observation.
	Now time.Time
	// Settle is how long API servers take to learn the storage version. Retry is how long to wait
	// before writing an object again that could not be written.
	Settle, Retry time.Duration
}

// Step is a step of a migration.
type Step string

// The steps.
const (
	// StepRest does nothing.
	StepRest Step = "Rest"
	// StepWait reconciles again later.
	StepWait Step = "Wait"
	// StepBlock reports why the migration cannot continue, and reconciles again later.
	StepBlock Step = "Block"
	// StepServe serves all versions that are not stopped.
	StepServe Step = "Serve"
	// StepMoveOwners changes owner references to the desired version.
	StepMoveOwners Step = "MoveOwners"
	// StepSwitch changes the storage version to the desired one, if the API server admits objects
	// in both versions.
	StepSwitch Step = "Switch"
	// StepBegin records that rewriting begins.
	StepBegin Step = "Begin"
	// StepContinue records that the definition has changed but not its storage version, so that
	// rewriting continues.
	StepContinue Step = "Continue"
	// StepRewrite writes the next page of objects.
	StepRewrite Step = "Rewrite"
	// StepRetry writes the failed objects again.
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
	// Message is the reason for the step Block.
	Message string
}

// blockedFor is when to reconcile again while an administrator must change something.
const blockedFor = time.Minute

// ownersFor is when to reconcile again while waiting for the jobs' definition.
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

// decideServed returns the next step if all objects are stored in the desired version.
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

// fault describes what is invalid in the administrator's request, and returns "" if it is valid.
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

// IsAtRest reports whether everything is as desired and recorded.
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
		// An earlier release knows no other version and must find its own.
		return Decision{Step: StepMoveOwners}
	}
	return Decision{Step: StepSwitch}
}

// namedMisruns is the maximum number of jobs that a message names.
const namedMisruns = 5

func misrunMessage(version string, jobs []string) string {
	named, more := jobs, ""
	if len(jobs) > namedMisruns {
		named, more = jobs[:namedMisruns], fmt.Sprintf(" and %d more", len(jobs)-namedMisruns)
	}
	count, pronoun, verb := english.Plural(len(jobs), "job", ""), english.PluralWord(len(jobs), "it", "them"), english.PluralWord(len(jobs), "it is", "they are")
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

// isStoredAsBefore reports whether objects have been stored in the desired version only since the
// record was written. The definition had that storage version then and has it now. Each change
// increments the generation: one change alone cannot have changed the storage version, while two
// may have changed it and changed it back.
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

// Through returns the version in which objects are read and written during rewriting. It is an old
// storage version if that is served, because reading in the stored version needs no webhook.
func (o *Observed) Through() string {
	for _, version := range o.Stored {
		if version != o.Wanted && o.isServed(version) {
			return version
		}
	}
	return o.Wanted
}
