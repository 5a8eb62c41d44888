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
	"sigs.k8s.io/controller-runtime/pkg/webhook/admission"

	"opendilab.org/di-orchestrator/internal/netlimit"
)

// What admission may cost in memory: to answer a review takes some 40 times its
// bytes, as its objects are decoded, converted and held against their types. The
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

	// smallAdmissionBytes is the size up to which a review is answered beside larger
	// ones, so that it does not wait for them.
	smallAdmissionBytes = 256 << 10
	// smallWork and largeWork are how many bytes are being answered at a time.
	smallWork = 1 << 20
	largeWork = 6 << 20

	// admissionTimeout is how long the API server waits for an answer.
	admissionTimeout = 10 * time.Second
)

// intake reads the reviews of admission, and bounds how much is answered at a time.
type intake struct {
	room         *netlimit.Room
	small, large *semaphore.Weighted
}

func newIntake() *intake {
	return &intake{
		room: netlimit.NewRoom(netlimit.RoomOptions{
			Size: roomBytes, Share: shareBytes, Patience: time.Second,
			Pace: netlimit.Pace{Grace: 2 * time.Second, BytesPerSecond: 1 << 20},
		}),
		small: semaphore.NewWeighted(smallWork), large: semaphore.NewWeighted(largeWork),
	}
}

// handler returns a handler that is asked once a review has come in full and it
// is its turn.
func (i *intake) handler(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		body, err := i.room.Read(w, r, maxAdmissionBytes)
		defer body.Release()
		if err != nil {
			unanswered(w, fmt.Errorf("reading the AdmissionReview: %w", err))
			return
		}
		ctx, cancel := context.WithTimeout(r.Context(), admissionTimeout)
		defer cancel()
		turn := i.large
		if len(body.Bytes) <= smallAdmissionBytes {
			turn = i.small
		}
		// Also what is small costs something.
		weight := max(int64(len(body.Bytes)), smallWork/64)
		if err := turn.Acquire(ctx, weight); err != nil {
			unanswered(w, fmt.Errorf("waiting for other AdmissionReviews: %w", err))
			return
		}
		defer turn.Release(weight)
		asked := r.WithContext(ctx)
		asked.Body = io.NopCloser(bytes.NewReader(body.Bytes))
		next.ServeHTTP(w, asked)
	})
}

// unanswered answers a review that was not read, or whose turn did not come.
func unanswered(w http.ResponseWriter, err error) {
	status := int32(http.StatusBadRequest)
	tooLarge := new(http.MaxBytesError)
	switch {
	case errors.As(err, &tooLarge):
		status = http.StatusRequestEntityTooLarge
	case errors.Is(err, os.ErrDeadlineExceeded):
		status = http.StatusRequestTimeout
	case errors.Is(err, netlimit.ErrShed), errors.Is(err, context.Canceled), errors.Is(err, context.DeadlineExceeded):
		status = http.StatusServiceUnavailable
	}
	// The rest of the body is not worth reading.
	w.Header().Set("Connection", "close")
	refusal := admission.Errored(status, err)
	// A sender that has gone does not need it.
	_ = json.NewEncoder(w).Encode(admissionv1.AdmissionReview{Response: &refusal.AdmissionResponse})
}
