// Copyright The DI Orchestrator Authors.
// SPDX-License-Identifier: Apache-2.0

package webhook

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"os"
	"time"

	"golang.org/x/sync/semaphore"
	admissionv1 "k8s.io/api/admission/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/webhook/admission"

	"opendilab.org/di-orchestrator/internal/netlimit"
)

// What admission may cost in memory: to answer a review takes some 40 times its
// weight, as its objects are decoded, converted and held against their types. The
// memory limit in config/operator rests on these numbers.
const (
	// maxAdmissionBytes is the size up to which a review is read. etcd takes 1.5 MiB
	// of an object, so that is the old one, and the API server reads 3 MiB of the
	// new one.
	maxAdmissionBytes = 5 << 20

	// roomBytes is what the reviews may take that come, or that wait to be answered,
	// and shareBytes those of one sender.
	roomBytes  = 32 << 20
	shareBytes = 24 << 20

	// mostValues is how many JSON values a review may have. A list of empty objects has
	// one each three bytes, and takes 500 times its bytes where they decode as containers.
	// An object that etcd takes has 200,000 if it is nothing but variables of one letter.
	mostValues = 400_000
	// valueBytes is how many bytes a value weighs at least, so that values that are
	// shorter, of which there are the more, weigh what they cost.
	valueBytes = 12

	// smallAdmission is the weight up to which a review is answered beside larger
	// ones, so that it does not wait for them.
	smallAdmission = 256 << 10
	// smallWork and largeWork are how much weight is being answered at a time.
	smallWork = 1 << 20
	largeWork = 6 << 20

	// admissionTimeout is how long the API server waits for an answer.
	admissionTimeout = 10 * time.Second
)

// intake reads the reviews of admission, and bounds how much is answered at a time.
type intake struct {
	room         *netlimit.Room
	small, large *semaphore.Weighted
	// timeout is how long a review may take; the API server waits no longer.
	timeout time.Duration
	// refused is told why a review is not answered.
	refused func(error)
}

func newIntake(refused func(error)) *intake {
	return &intake{
		room: netlimit.NewRoom(netlimit.RoomOptions{
			Size: roomBytes, Share: shareBytes, Patience: time.Second,
			Pace: netlimit.Pace{Grace: 2 * time.Second, BytesPerSecond: 1 << 20},
		}),
		small: semaphore.NewWeighted(smallWork), large: semaphore.NewWeighted(largeWork),
		timeout: admissionTimeout, refused: refused,
	}
}

// handler returns a handler that is asked once a review has come in full and it
// is its turn.
func (i *intake) handler(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		body, err := i.room.Read(w, r, maxAdmissionBytes)
		defer body.Release()
		if err != nil {
			i.unanswered(w, body.Bytes, fmt.Errorf("reading the AdmissionReview: %w", err))
			return
		}
		weight, err := weigh(body.Bytes)
		if err != nil {
			i.unanswered(w, body.Bytes, err)
			return
		}
		ctx, cancel := context.WithTimeout(r.Context(), i.timeout)
		defer cancel()
		turn := i.large
		if weight <= smallAdmission {
			turn = i.small
		}
		if err := turn.Acquire(ctx, weight); err != nil {
			i.unanswered(w, body.Bytes, fmt.Errorf("waiting for other AdmissionReviews: %w", err))
			return
		}
		defer turn.Release(weight)
		asked := r.WithContext(ctx)
		asked.Body = io.NopCloser(bytes.NewReader(body.Bytes))
		next.ServeHTTP(w, asked)
	})
}

// errTooManyValues means that decoding a review would take too much memory.
var errTooManyValues = fmt.Errorf("the AdmissionReview has more than %d JSON values, which no object that can be stored needs", mostValues)

// weigh returns what of the work at a time a review takes.
func weigh(review []byte) (int64, error) {
	values := netlimit.Values(review)
	if values > mostValues {
		return 0, errTooManyValues
	}
	// Also what is small costs something.
	return max(int64(len(review)), int64(values)*valueBytes, smallWork/64), nil
}

// unanswered answers a review that was not read in full, or whose turn did not come.
func (i *intake) unanswered(w http.ResponseWriter, review []byte, err error) {
	i.refused(err)
	status := int32(http.StatusBadRequest)
	tooLarge := new(http.MaxBytesError)
	switch {
	case errors.As(err, &tooLarge), errors.Is(err, errTooManyValues):
		status = http.StatusRequestEntityTooLarge
	// What is shed sees a deadline too, and may come again.
	case errors.Is(err, netlimit.ErrShed), errors.Is(err, context.Canceled), errors.Is(err, context.DeadlineExceeded):
		status = http.StatusServiceUnavailable
	case errors.Is(err, os.ErrDeadlineExceeded):
		status = http.StatusRequestTimeout
	}
	// The rest of the body is not worth reading.
	w.Header().Set("Connection", "close")
	refusal := admission.Errored(status, err)
	refusal.UID = uidOf(review)
	answer := admissionv1.AdmissionReview{Response: &refusal.AdmissionResponse}
	// An API server believes no other.
	answer.SetGroupVersionKind(admissionv1.SchemeGroupVersion.WithKind("AdmissionReview"))
	// A sender that has gone does not need it.
	_ = json.NewEncoder(w).Encode(answer)
}

// uidOf returns the UID of a review, of which the rest may be missing or anything: API
// servers write it first in the request. It is empty where it is elsewhere.
func uidOf(review []byte) types.UID {
	const headBytes, headTokens = 1024, 16
	decoder := json.NewDecoder(bytes.NewReader(review[:min(len(review), headBytes)]))
	var last [3]json.Token
	for range headTokens {
		token, err := decoder.Token()
		if err != nil {
			return ""
		}
		if uid, ok := token.(string); ok && last == [3]json.Token{"request", json.Delim('{'), "uid"} {
			return types.UID(uid)
		}
		last = [3]json.Token{last[1], last[2], token}
	}
	return ""
}
