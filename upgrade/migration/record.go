// Copyright The DI Orchestrator Authors.
// SPDX-License-Identifier: Apache-2.0

package migration

import (
	"slices"
	"time"
)

// RecordName is the ConfigMap in the operator's namespace that contains the record of each
// definition. Each record is JSON under the plural name of the kind.
const RecordName = "di-orchestrator-storage-migration"

// MaxFailures is the maximum number of failed objects in a record. Rewriting pauses at that number
// until some of them are written.
const MaxFailures = 500

// Phase is the phase of a migration.
type Phase string

// The phases of a migration, in order.
const (
	// PhaseSettling means that the API servers learn the storage version.
	PhaseSettling Phase = "Settling"
	// PhaseRewriting means that objects are written that may be stored in another version.
	PhaseRewriting Phase = "Rewriting"
	// PhaseCleaning means that versions which are no longer served are removed from the objects'
	// managedFields.
	PhaseCleaning Phase = "Cleaning"
	// PhaseFinished means that nothing is left to do.
	PhaseFinished Phase = "Finished"
)

// Failure is an object that could not be written.
type Failure struct {
	Namespace string `json:"namespace"`
	Name      string `json:"name"`
	Message   string `json:"message"`
}

// Record is the progress of the migration of one definition's objects. It changes after each page
// of objects, so that the migration can resume after the operator was killed.
type Record struct {
	// Target is the desired storage version.
	Target string `json:"target"`
	// Generation is the last generation of the definition for which the target is known to have
	// been the storage version since rewriting began. Definition is the UID of the definition.
	Generation int64  `json:"generation"`
	Definition string `json:"definition,omitempty"`
	// Phase is the phase of the migration.
	Phase Phase `json:"phase,omitempty"`
	// Since is when the phase Settling began. Started and Finished are when rewriting began and
	// when the migration finished.
	Since    time.Time `json:"since,omitzero"`
	Started  time.Time `json:"started,omitzero"`
	Finished time.Time `json:"finished,omitzero"`
	// Updated is when the record was last written.
	Updated time.Time `json:"updated,omitzero"`
	// Total is how many objects there were. Done is how many of them are stored in the target
	// version or were deleted.
	Total int64 `json:"total"`
	Done  int64 `json:"done"`
	// Continue is the token of the next page. Listed is set after the last page.
	Continue string `json:"continue,omitempty"`
	Listed   bool   `json:"listed,omitempty"`
	// Failed are the objects that could not be written. Tried is when they were last retried.
	Failed []Failure `json:"failed,omitempty"`
	Tried  time.Time `json:"tried,omitzero"`
	// Blocked is why the migration cannot continue until an administrator acts.
	Blocked string `json:"blocked,omitempty"`
	// Cleaned is the version that no object's managedFields contain anymore.
	Cleaned string `json:"cleaned,omitempty"`
}

// Begin returns the record of a rewriting that begins.
func Begin(o *Observed) Record {
	return Record{
		Target: o.Wanted, Generation: o.Generation, Definition: o.Definition, Phase: PhaseSettling, Since: o.Now, Cleaned: o.Record.Cleaned,
	}
}

// Continued returns the record of a rewriting that continues under another generation.
func Continued(o *Observed) Record {
	record := o.Record
	record.Generation = o.Generation
	return record
}

// AddPage returns the record after a page with this number of objects, some of which may have
// failed.
func (r Record) AddPage(objects int, failed []Failure, next string, now time.Time) Record {
	if r.Started.IsZero() {
		r.Started = now
	}
	r.Phase = PhaseRewriting
	r.Done += int64(objects - len(failed))
	r.Failed = slices.Concat(r.Failed, failed)
	r.Continue, r.Listed = next, next == ""
	if len(failed) > 0 {
		r.Tried = now
	}
	return r
}

// Retried returns the record after the failed objects were retried. Some may still fail.
func (r Record) Retried(failed []Failure, now time.Time) Record {
	r.Done += int64(len(r.Failed) - len(failed))
	r.Failed, r.Tried = failed, now
	return r
}

// Restarted returns the record of a rewriting whose list must start again.
func (r Record) Restarted() Record {
	r.Total, r.Done, r.Continue, r.Listed, r.Failed = 0, 0, "", false, nil
	return r
}

// Rate returns how many objects were done per second, and 0 while that is unknown.
func (r *Record) Rate() float64 {
	seconds := r.Updated.Sub(r.Started).Seconds()
	if r.Started.IsZero() || seconds <= 0 {
		return 0
	}
	return float64(r.Done) / seconds
}
