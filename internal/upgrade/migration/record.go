// Copyright The DI Orchestrator Authors.
// SPDX-License-Identifier: Apache-2.0

package migration

import (
	"slices"
	"time"
)

// RecordName is the ConfigMap, in the operator's namespace, that has the record
// of each definition as JSON under the plural name of its kind.
const RecordName = "di-orchestrator-storage-migration"

// MaxFailures is how many objects a record names that could not be written. The
// rewriting goes no further until some of them could.
const MaxFailures = 500

// Phase is where a migration is.
type Phase string

// The phases of a migration, in order.
const (
	// PhaseSettling is that the API servers learn which version is stored.
	PhaseSettling Phase = "Settling"
	// PhaseRewriting is that objects are written that may be stored in another version.
	PhaseRewriting Phase = "Rewriting"
	// PhaseCleaning is that versions which are not served any more are taken from
	// the objects' managedFields.
	PhaseCleaning Phase = "Cleaning"
	// PhaseFinished is that nothing is left to do.
	PhaseFinished Phase = "Finished"
)

// Failure is an object that could not be written.
type Failure struct {
	Namespace string `json:"namespace"`
	Name      string `json:"name"`
	Message   string `json:"message"`
}

// Record is how far the migration of the objects of one definition is. It is
// what is known of it after the operator was killed, so it changes after each
// page of objects.
type Record struct {
	// Target is the desired storage version.
	Target string `json:"target"`
	// Generation is the last one of the definition under which it is known that
	// objects were stored in the target version since the rewriting began, and
	// Definition the UID of it.
	Generation int64  `json:"generation"`
	Definition string `json:"definition,omitempty"`
	// Phase is where it is.
	Phase Phase `json:"phase,omitempty"`
	// Since is when the phase Settling began, and Started and Finished when the
	// rewriting began and all was done.
	Since    time.Time `json:"since,omitzero"`
	Started  time.Time `json:"started,omitzero"`
	Finished time.Time `json:"finished,omitzero"`
	// Updated is when the record was last written.
	Updated time.Time `json:"updated,omitzero"`
	// Total is how many objects there were, and Done how many of them are stored
	// in the target version or are gone.
	Total int64 `json:"total"`
	Done  int64 `json:"done"`
	// Continue is the token of the next page; Listed is set after the last.
	Continue string `json:"continue,omitempty"`
	Listed   bool   `json:"listed,omitempty"`
	// Failed are the objects that could not be written, and Tried is when they were
	// tried last.
	Failed []Failure `json:"failed,omitempty"`
	Tried  time.Time `json:"tried,omitzero"`
	// Blocked says why the migration cannot continue until an administrator acts.
	Blocked string `json:"blocked,omitempty"`
	// Cleaned is the version that no object's managedFields name any more.
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

// AddPage returns the record after a page of so many objects, of which some could not
// be written.
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

// Retried returns the record after the objects were tried again that could not be
// written, of which some still cannot.
func (r Record) Retried(failed []Failure, now time.Time) Record {
	r.Done += int64(len(r.Failed) - len(failed))
	r.Failed, r.Tried = failed, now
	return r
}

// Restarted returns the record of a rewriting whose list has to begin again.
func (r Record) Restarted() Record {
	r.Total, r.Done, r.Continue, r.Listed, r.Failed = 0, 0, "", false, nil
	return r
}

// Rate returns how many objects have been done in a second, 0 while that is not known.
func (r *Record) Rate() float64 {
	seconds := r.Updated.Sub(r.Started).Seconds()
	if r.Started.IsZero() || seconds <= 0 {
		return 0
	}
	return float64(r.Done) / seconds
}
