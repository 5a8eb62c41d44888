// Copyright The DI Orchestrator Authors.
// SPDX-License-Identifier: Apache-2.0

package store

import (
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"time"

	"k8s.io/utils/clock"
	"k8s.io/utils/lru"

	"opendilab.org/di-orchestrator/apis/v2alpha1"
	"opendilab.org/di-orchestrator/internal/names"
	"opendilab.org/di-orchestrator/job/membership"
)

// maxKnownRecords bounds the records that a server remembers. One that it has forgotten counts as new.
const maxKnownRecords = 32768

// recordAges are since when this server knows the recorded requests. A record has a time of the server that
// wrote it, whose clock may differ. A server that has just started knows no ages: for it, all records are new,
// because a repeat that is done twice is worse than a request that is taken for a repeat.
type recordAges struct {
	clock clock.PassiveClock
	first *lru.Cache
}

func newRecordAges(clock clock.PassiveClock) recordAges {
	return recordAges{clock: clock, first: lru.New(maxKnownRecords)}
}

// see remembers records that are new. Records are appended, so those before a known one are known.
func (r recordAges) see(records []v2alpha1.RecordedRequest) {
	for i := len(records) - 1; i >= 0; i-- {
		if _, isKnown := r.first.Get(recordKey(&records[i])); isKnown {
			return
		}
		r.first.Add(recordKey(&records[i]), r.clock.Now())
	}
}

// at returns the ages of records at a time.
func (r recordAges) at(now time.Time) membership.Age {
	return func(record *v2alpha1.RecordedRequest) time.Duration {
		first, isKnown := r.first.Get(recordKey(record))
		since, isTime := first.(time.Time)
		if !isKnown || !isTime {
			since = r.clock.Now()
			r.first.Add(recordKey(record), since)
		}
		return now.Sub(since)
	}
}

// recordKey identifies a record.
func recordKey(record *v2alpha1.RecordedRequest) string {
	if record.ID != "" {
		return record.ID
	}
	return record.Key + record.Time.UTC().Format(time.RFC3339)
}

// SeeMembership remembers since when the server knows the recorded requests of a Membership.
func (s *Store) SeeMembership(list *v2alpha1.Membership) { s.ages.see(list.Spec.Requests) }

// SeeJob remembers since when the server knows the recorded requests of a worker-led job.
func (s *Store) SeeJob(job *v2alpha1.DIJob) {
	s.ages.see(job.Status.Requests)
	s.ages.see(AnnotatedRequests(job))
}

// Ages returns the ages of records now, for a write that drops the oldest.
func (s *Store) Ages() membership.Age { return s.ages.at(s.options.Clock.Now()) }

// AnnotatedRequests returns the records in a preemptible job's annotation. It returns none if the
// annotation does not decode.
func AnnotatedRequests(job *v2alpha1.DIJob) []v2alpha1.RecordedRequest {
	content := job.Annotations[names.AnnotationRequests]
	if content == "" {
		return nil
	}
	var records []v2alpha1.RecordedRequest
	if json.Unmarshal([]byte(content), &records) != nil {
		return nil
	}
	return records
}

// Record records the answer of a request in the job that it edits. The write that resizes a preemptible job is
// of its spec, which an annotation belongs to.
func (s *Store) Record(job *v2alpha1.DIJob, request membership.Request, answer string) error {
	done, now := v2alpha1.RecordedRequest{Message: answer}, s.options.Clock.Now()
	if !job.Spec.Preemptible {
		job.Status.Requests = membership.AppendRecord(slices.Clone(job.Status.Requests), request, done, now, s.Ages())
		return nil
	}
	content, err := json.Marshal(membership.AppendRecord(AnnotatedRequests(job), request, done, now, s.Ages()))
	if err != nil {
		return fmt.Errorf("encoding the requests of job %s/%s: %w", job.Namespace, job.Name, err)
	}
	annotations := map[string]string{}
	maps.Copy(annotations, job.Annotations)
	annotations[names.AnnotationRequests] = string(content)
	job.Annotations = annotations
	return nil
}
