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
	// RepeatWindow is how long an identical request of the same coordinator
	// container is a repeat of the first: its client sends again what failed
	// on the way, and does not say that it does.
	RepeatWindow = 30 * time.Second
	// KeyWindow is how long a request is known by its Idempotency-Key.
	KeyWindow = time.Hour
	// idWindow is how long a request is known by its ID: longer than outages last,
	// in which clients send it again that cannot be told whether it was done.
	idWindow = 30 * time.Minute
	// MaxRequests bounds the recorded requests of one job.
	MaxRequests = limits.Requests
	// maxRecordedURLs bounds the URLs in all recorded requests of one job.
	maxRecordedURLs = 2000
)

// The beginnings of a record's key tell what it was made from.
const (
	chosenKey  = "key:"
	derivedKey = "request:"
	// pendingKey begins the key of a removal that nobody has answered yet.
	pendingKey = "removal:"
)

// ErrKeyReused says that an Idempotency-Key was used before for another request.
var ErrKeyReused = errors.New("the Idempotency-Key was used for another request: choose a new key for each request")

// Request identifies what was asked, and by whom.
type Request struct {
	// ID is what di-server calls the HTTP request; empty where a request is made once.
	ID string
	// Container is the container that asks: the coordinator's, or a worker's;
	// empty where it is not known.
	Container string
	// IdempotencyKey is the key that the client chose; empty where it chose none.
	IdempotencyKey string
	// Content is what is asked, in one canonical form.
	Content []byte
	// Removal says that replicas are to go. The next removal of as many is
	// another one, where no key says that it is a repeat; and what is asked for
	// after a removal is meant, though the same was asked for before.
	Removal bool
	// Confirmed says of a removal that MarkAnswered follows it. Until then the same
	// removal of the same container is a repeat, whichever server gets it.
	Confirmed bool
}

// isRecognizable reports whether a repeat of the request can be told from a new one.
func (r Request) isRecognizable() bool {
	return r.IdempotencyKey != "" || r.Container != "" && (!r.Removal || r.Confirmed)
}

// key returns the key that the request is recorded under.
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

// FindRecord returns, of the records of what was done, that of the request or of the
// one that it is a repeat of; nil where there is none.
func FindRecord(records []v2alpha1.RecordedRequest, request Request, now time.Time) (*v2alpha1.RecordedRequest, error) {
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
		case !repeatable(record, now):
		case record.Key == key:
			return record, nil
		case strings.HasPrefix(asker, chosenKey) && strings.HasPrefix(record.Key, asker):
			return nil, ErrKeyReused
		}
	}
	return nil, nil
}

// recordOf returns the record of the request of that ID; nil where there is none.
func recordOf(records []v2alpha1.RecordedRequest, id string) *v2alpha1.RecordedRequest {
	for i := range records {
		if id != "" && records[i].ID == id {
			return &records[i]
		}
	}
	return nil
}

// Record records the answer of a request that was done, and forgets what no
// request can be known by any more and what is too much to keep.
func Record(spec *v2alpha1.MembershipSpec, request Request, answer URLs, now time.Time) {
	spec.Requests = AppendRecord(spec.Requests, request, v2alpha1.RecordedRequest{Collectors: answer.Collectors, Learners: answer.Learners}, now)
}

// AppendRecord adds the record of a request that was done, which holds its answer, to
// others, which it changes. It drops what Record forgets.
func AppendRecord(records []v2alpha1.RecordedRequest, request Request, done v2alpha1.RecordedRequest, now time.Time) []v2alpha1.RecordedRequest {
	if request.Removal {
		endRepeats(records, isAskedBy(request.Container))
	} else {
		// Who asks for something else has given up the removal that nobody answered.
		endRepeats(records, isPendingOf(request.Container))
	}
	records = slices.DeleteFunc(records, func(record v2alpha1.RecordedRequest) bool {
		return expired(&record, now)
	})
	done.Key, done.ID, done.Time = "", request.ID, metav1.NewTime(now)
	if request.isRecognizable() {
		done.Key = request.key()
	}
	records = append(records, done)
	return slices.Delete(records, 0, surplus(records))
}

// MustRecord reports whether a request that changes nothing is recorded all the same: one
// that is known by its key, and a removal that ends repeats.
func MustRecord(spec *v2alpha1.MembershipSpec, request Request) bool {
	return request.IdempotencyKey != "" || request.Removal && slices.ContainsFunc(spec.Requests, isAskedBy(request.Container))
}

// surplus returns how many of the oldest records are too many; the newest is
// always kept.
func surplus(records []v2alpha1.RecordedRequest) int {
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

// endRepeats makes what is asked for from now on a new request, also where the same
// was asked for before.
func endRepeats(records []v2alpha1.RecordedRequest, ends func(v2alpha1.RecordedRequest) bool) {
	for i := range records {
		if ends(records[i]) {
			records[i].Key = ""
		}
	}
}

// isAskedBy returns what reports whether a request is known by the container that asked.
func isAskedBy(container string) func(v2alpha1.RecordedRequest) bool {
	return func(record v2alpha1.RecordedRequest) bool {
		return strings.HasPrefix(record.Key, derivedKey+digest(container)) || isPendingOf(container)(record)
	}
}

// isPendingOf returns what reports whether a request is a removal by the container that
// nobody has answered yet.
func isPendingOf(container string) func(v2alpha1.RecordedRequest) bool {
	return func(record v2alpha1.RecordedRequest) bool {
		return strings.HasPrefix(record.Key, pendingKey+digest(container))
	}
}

// IsUnanswered reports whether a record is that of a removal that nobody has
// answered yet.
func IsUnanswered(record *v2alpha1.RecordedRequest) bool {
	return strings.HasPrefix(record.Key, pendingKey)
}

// MarkAnswered marks the removal of that ID as answered, so that the same removal is
// another one from now on. It reports whether it changes the record.
func MarkAnswered(spec *v2alpha1.MembershipSpec, id string) bool {
	record := recordOf(spec.Requests, id)
	if record == nil || !IsUnanswered(record) {
		return false
	}
	record.Key = ""
	return true
}

// repeatable reports whether a request by the record's key is a repeat. The
// distance in time counts in both directions, as servers' clocks differ a little.
func repeatable(record *v2alpha1.RecordedRequest, now time.Time) bool {
	window := RepeatWindow
	if strings.HasPrefix(record.Key, chosenKey) {
		window = KeyWindow
	}
	return record.Key != "" && age(record, now) <= window
}

// expired reports whether a record is too old to be known by anything.
func expired(record *v2alpha1.RecordedRequest, now time.Time) bool {
	known := record.ID != "" && age(record, now) <= idWindow
	return !known && !repeatable(record, now)
}

func age(record *v2alpha1.RecordedRequest, now time.Time) time.Duration {
	return now.Sub(record.Time.Time).Abs()
}

// RecordedURLs returns the recorded answer of a request that was done.
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
