// Copyright The DI Orchestrator Authors.
// SPDX-License-Identifier: Apache-2.0

package membership

import (
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"slices"
	"strings"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"opendilab.org/di-orchestrator/apis/v2alpha1"
	"opendilab.org/di-orchestrator/internal/limits"
)

const (
	// RepeatWindow is how long an identical request of the same container counts as a
	// repeat: deployed clients retry a failed request without marking it as a retry.
	RepeatWindow = 30 * time.Second
	// KeyWindow is how long a request is recognized by its Idempotency-Key.
	KeyWindow = time.Hour
	// idWindow is how long a request is recognized by its ID. It is longer than an outage, during
	// which clients retry a request of unknown outcome.
	idWindow = 30 * time.Minute
	// MaxRequests bounds the recorded requests of one job.
	MaxRequests = limits.Requests
	// maxRecordedURLs bounds the URLs in all recorded requests of one job.
	maxRecordedURLs = 2000
)

// These are the prefixes of a record's key.
const (
	chosenKey  = "key:"
	derivedKey = "request:"
	// pendingKey is the prefix of removals that have not been answered yet.
	pendingKey = "removal:"
)

// Age returns how long the caller knows a record, by the caller's clock alone: that of the server that wrote
// the record may differ by an hour. A negative age is that of a record that is newer than the request.
type Age func(record *v2alpha1.RecordedRequest) time.Duration

// Unaged is the Age of a caller that does not know for how long it knows the records.
func Unaged(*v2alpha1.RecordedRequest) time.Duration { return 0 }

// ErrKeyReused is the error of a request whose Idempotency-Key another request has used.
var ErrKeyReused = errors.New("the Idempotency-Key was used for another request: choose a new key for each request")

// Request identifies a request by its content and its sender.
type Request struct {
	// ID is the ID that di-server gives the HTTP request; empty if it is not retried.
	ID string
	// Container is the coordinator instance, or the worker's container, that sends the request;
	// empty if it is unknown.
	Container string
	// IdempotencyKey is the key of the client; empty if it sent none.
	IdempotencyKey string
	// Content is the content of the request in a canonical form.
	Content []byte
	// Removal is set if the request removes replicas. The same removal again is a new one unless it
	// has the same key, and so is any request after a removal.
	Removal bool
	// Confirmed is set if MarkAnswered follows a removal. Until then the same removal of the same
	// container is a repeat, on any server.
	Confirmed bool
}

// isRecognizable reports whether a repeat can be distinguished from a new request.
func (r Request) isRecognizable() bool {
	return r.IdempotencyKey != "" || r.Container != "" && (!r.Removal || r.Confirmed)
}

// key returns the key of the request's record.
func (r Request) key() string {
	content := digest(string(r.Content))
	switch {
	case r.IdempotencyKey != "":
		return chosenKey + digest(r.IdempotencyKey) + ":" + content
	case r.Removal:
		return pendingKey + digest(r.Container) + ":" + content
	}
	return derivedKey + digest(r.Container) + ":" + content
}

// FindRecord returns the record of a request, or of the request that it repeats; nil if there is
// none.
func FindRecord(records []v2alpha1.RecordedRequest, request Request, age Age) (*v2alpha1.RecordedRequest, error) {
	if record := recordOf(records, request.ID); record != nil {
		return record, nil
	}
	if !request.isRecognizable() {
		return nil, nil
	}
	key := request.key()
	asker := key[:strings.LastIndex(key, ":")+1]
	for i := range slices.Backward(records) {
		record := &records[i]
		switch {
		case !repeatable(record, age):
		case record.Key == key:
			return record, nil
		case strings.HasPrefix(asker, chosenKey) && strings.HasPrefix(record.Key, asker):
			return nil, ErrKeyReused
		}
	}
	return nil, nil
}

// recordOf returns the record of a request's ID; nil if there is none.
func recordOf(records []v2alpha1.RecordedRequest, id string) *v2alpha1.RecordedRequest {
	for i := range records {
		if id != "" && records[i].ID == id {
			return &records[i]
		}
	}
	return nil
}

// Record records the answer to a request, and drops expired and excess records.
func Record(spec *v2alpha1.MembershipSpec, request Request, answer URLs, now time.Time, age Age) {
	spec.Requests = AppendRecord(spec.Requests, request, v2alpha1.RecordedRequest{Collectors: answer.Collectors, Learners: answer.Learners}, now, age)
}

// AppendRecord appends the record of a request, with its answer, to records that it
// modifies. It drops expired and excess records.
func AppendRecord(records []v2alpha1.RecordedRequest, request Request, done v2alpha1.RecordedRequest, now time.Time, age Age) []v2alpha1.RecordedRequest {
	if request.Removal {
		endRepeats(records, isAskedBy(request.Container))
	} else {
		// A sender that requests something else has abandoned its unanswered removal.
		endRepeats(records, isPendingOf(request.Container))
	}
	records = slices.DeleteFunc(records, func(record v2alpha1.RecordedRequest) bool {
		return expired(&record, age)
	})
	done.Key, done.ID, done.Time = "", request.ID, metav1.NewTime(now)
	if request.isRecognizable() {
		done.Key = request.key()
	}
	records = append(records, done)
	return slices.Delete(records, 0, excess(records))
}

// MustRecord reports whether a request is recorded although it changes nothing: one
// with a key, or a removal that ends repeats.
func MustRecord(spec *v2alpha1.MembershipSpec, request Request) bool {
	return request.IdempotencyKey != "" || request.Removal && slices.ContainsFunc(spec.Requests, isAskedBy(request.Container))
}

// excess returns how many of the oldest records exceed the limits; the newest record
// is always kept.
func excess(records []v2alpha1.RecordedRequest) int {
	urls := 0
	for i := range slices.Backward(records) {
		urls += len(records[i].Collectors) + len(records[i].Learners)
		kept := len(records) - i
		if kept > 1 && (kept > MaxRequests || urls > maxRecordedURLs) {
			return i + 1
		}
	}
	return 0
}

// endRepeats treats later requests as new ones, even if they equal recorded requests.
func endRepeats(records []v2alpha1.RecordedRequest, ends func(v2alpha1.RecordedRequest) bool) {
	for i := range records {
		if ends(records[i]) {
			records[i].Key = ""
		}
	}
}

// isAskedBy returns a predicate of records that are recognized by a container.
func isAskedBy(container string) func(v2alpha1.RecordedRequest) bool {
	return func(record v2alpha1.RecordedRequest) bool {
		return strings.HasPrefix(record.Key, derivedKey+digest(container)) || isPendingOf(container)(record)
	}
}

// isPendingOf returns a predicate of a container's unanswered removals.
func isPendingOf(container string) func(v2alpha1.RecordedRequest) bool {
	return func(record v2alpha1.RecordedRequest) bool {
		return strings.HasPrefix(record.Key, pendingKey+digest(container))
	}
}

// IsUnanswered reports whether a record is of a removal that has not been answered yet.
func IsUnanswered(record *v2alpha1.RecordedRequest) bool {
	return strings.HasPrefix(record.Key, pendingKey)
}

// MarkAnswered marks the removal with an ID as answered, so that the same removal is a new one from
// now on. It reports whether that changes the record.
func MarkAnswered(spec *v2alpha1.MembershipSpec, id string) bool {
	record := recordOf(spec.Requests, id)
	if record == nil || !IsUnanswered(record) {
		return false
	}
	record.Key = ""
	return true
}

// repeatable reports whether a request with the record's key is a repeat.
func repeatable(record *v2alpha1.RecordedRequest, age Age) bool {
	window := RepeatWindow
	if strings.HasPrefix(record.Key, chosenKey) {
		window = KeyWindow
	}
	return record.Key != "" && age(record) <= window
}

// expired reports whether a record is too old to recognize any request.
func expired(record *v2alpha1.RecordedRequest, age Age) bool {
	known := record.ID != "" && age(record) <= idWindow
	return !known && !repeatable(record, age)
}

// RecordedURLs returns the recorded answer to a request.
func RecordedURLs(record *v2alpha1.RecordedRequest) URLs {
	return URLs{
		Collectors: append([]string{}, record.Collectors...),
		Learners:   append([]string{}, record.Learners...),
	}
}

func digest(text string) string {
	sum := sha256.Sum256([]byte(text))
	return hex.EncodeToString(sum[:16])
}
