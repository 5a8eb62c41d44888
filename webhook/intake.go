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

// The memory limits of admission. Answering a review takes about 40 times its size, because its
// objects are decoded, converted and compared with their types. The memory limit in config/operator
// is based on these numbers.
const (
	// maxAdmissionBytes is the maximum size of a review. etcd limits an object, here the old one,
	// to 1.5 MiB. The API server limits the new one to 3 MiB.
	maxAdmissionBytes = 5 << 20

	// roomBytes limits the size of all reviews that are being received or wait for an answer;
	// shareBytes limits those of one sender.
	roomBytes  = 32 << 20
	shareBytes = 24 << 20

	// mostValues is the maximum number of JSON values of a review. A list of empty objects has a
	// value every three bytes, and takes 500 times its size in memory if the objects decode as
	// containers. An object that fits into etcd has 200,000 values if it consists only of
	// one-letter variables.
	mostValues = 400_000
	// valueBytes is the minimum weight of a value in bytes. Short values are more numerous, and
	// must weigh what they cost.
	valueBytes = 12

	// mostDepth is the maximum nesting of a review. Clients that read a job recurse into its fields, and a list
	// with one job that is too deep for them fails as a whole. The review itself has four levels.
	mostDepth = 132

	// smallAdmission is the maximum weight of a small review. Small reviews do not wait for large
	// ones.
	smallAdmission = 256 << 10
	// smallWork and largeWork are the maximum weights that are answered concurrently.
	smallWork = 1 << 20
	largeWork = 6 << 20

	// admissionTimeout is how long the API server waits for an answer.
	admissionTimeout = 10 * time.Second
)

// intake reads admission reviews, and limits how many are answered concurrently.
type intake struct {
	room         *netlimit.Room
	small, large *semaphore.Weighted
	// timeout bounds one review; it is not longer than the API server's timeout.
	timeout time.Duration
	// refused is called with the reason of each refusal.
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

// handler returns a handler that calls next when a review was received in full and its weight is
// available.
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

// errTooManyValues reports that decoding a review would take too much memory.
var errTooManyValues = fmt.Errorf("the AdmissionReview has more than %d JSON values, which no object that can be stored needs", mostValues)

// errTooDeep reports that clients could not read the object.
var errTooDeep = fmt.Errorf("the AdmissionReview nests objects and lists more than %d levels deep, which clients of the object cannot read", mostDepth)

// weigh returns the weight of a review.
func weigh(review []byte) (int64, error) {
	if netlimit.Depth(review) > mostDepth {
		return 0, errTooDeep
	}
	values := netlimit.Values(review)
	if values > mostValues {
		return 0, errTooManyValues
	}
	// A small review has a minimum cost.
	return max(int64(len(review)), int64(values)*valueBytes, smallWork/64), nil
}

// unanswered refuses a review that was not read in full, or that timed out in the queue.
func (i *intake) unanswered(w http.ResponseWriter, review []byte, err error) {
	i.refused(err)
	status := int32(http.StatusBadRequest)
	tooLarge := new(http.MaxBytesError)
	switch {
	case errors.As(err, &tooLarge), errors.Is(err, errTooManyValues), errors.Is(err, errTooDeep):
		status = http.StatusRequestEntityTooLarge
	// A shed request also has an exceeded deadline; its sender may retry.
	case errors.Is(err, netlimit.ErrShed), errors.Is(err, context.Canceled), errors.Is(err, context.DeadlineExceeded):
		status = http.StatusServiceUnavailable
	case errors.Is(err, os.ErrDeadlineExceeded):
		status = http.StatusRequestTimeout
	}
	// Close the connection instead of reading the rest of the body.
	w.Header().Set("Connection", "close")
	refusal := admission.Errored(status, err)
	refusal.UID = uidOf(review)
	answer := admissionv1.AdmissionReview{Response: &refusal.AdmissionResponse}
	// API servers accept no other version.
	answer.SetGroupVersionKind(admissionv1.SchemeGroupVersion.WithKind("AdmissionReview"))
	// An error means that the sender has disconnected.
	_ = json.NewEncoder(w).Encode(answer)
}

// uidOf returns the UID of a review whose remainder may be missing or invalid. API servers write
// the UID first in the request. The result is empty if the UID is not there.
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
