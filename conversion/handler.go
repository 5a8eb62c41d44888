// Copyright The DI Orchestrator Authors.
// SPDX-License-Identifier: Apache-2.0

package conversion

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"net/http"
	"os"
	"runtime"
	"runtime/debug"
	"strconv"
	"time"

	"golang.org/x/sync/semaphore"

	"opendilab.org/di-orchestrator/internal/netlimit"
)

// The memory that reviews take. A review in progress takes the size of its body once, the size of
// its converted objects once, and garbage that is not collected yet. 10,000 jobs of 10 kB are the
// largest list that the service level of conversion webhooks names (KEP-95). They are 96 MB in each
// direction and raise the process from 23 MiB to 317 MiB. Four such lists at once raise it to 405
// MiB. Afterwards it returns to 28 MiB, as `bench conversion` measures. The memory limit in
// config/operator is derived from these numbers.
const (
	// DefaultMaxReviewBytes is the maximum size of a review by default.
	DefaultMaxReviewBytes = 128 << 20

	// smallReviewBytes is the maximum size of a review that is admitted by a budget of its own,
	// smallBytesInFlight. A write waits for the conversion of one object, so it must never queue
	// behind lists. The size is four times the maximum that etcd accepts for one object. One sender
	// always leaves capacity for one review of another sender.
	smallReviewBytes   = 6 << 20
	smallBytesInFlight = 4 * smallReviewBytes

	// maxObjectBytes is the maximum size of an object that is converted, the same as for a review
	// of one object. Conversion takes up to 30 times an object's bytes if the object is a list of
	// empty objects only.
	maxObjectBytes = smallReviewBytes
	// maxObjectValues is more JSON values, as netlimit counts them, than fit into the 1.5 MiB that
	// etcd accepts for an object. maxObjectTasks is more tasks than any schema ever admitted.
	maxObjectValues = 1_050_000
	maxObjectTasks  = 100_000

	// A review arrives at the speed of a local network. It is rejected if it pauses for longer than
	// grace, or if its average rate is below bytesPerSecond. A review that is incomplete after
	// patience releases its share of the budget when other reviews need it.
	grace          = 2 * time.Second
	bytesPerSecond = 1 << 20
	patience       = time.Second

	// settleBytes is the size from which a review's memory is returned to the system immediately.
	// The runtime would keep it for minutes, in addition to the memory that the controllers need. A
	// collection costs little compared with such a review.
	settleBytes = 16 << 20

	// writeBytes is the buffer size for writing an answer. The whole answer is never copied.
	writeBytes = 64 << 10
)

// Options are the settings of the endpoint. The zero value is the default.
type Options struct {
	// Observer observes the endpoint. By default there is none.
	Observer Observer
	// MaxReviewBytes is the maximum size of a review's body, DefaultMaxReviewBytes by default.
	MaxReviewBytes int64
	// MaxBytesInFlight is the budget, in bytes, that the bodies of larger reviews in flight share.
	// Reviews that exceed it wait. It is at least MaxReviewBytes, which is also the default.
	MaxBytesInFlight int64
}

// Observer observes the endpoint. Reviews are answered concurrently, so its methods must be safe
// for concurrent use.
type Observer interface {
	// Holding reports by how many bytes the bodies of the reviews in flight have grown or shrunk.
	Holding(bytes int64)
	// Refused reports why a review was not converted, after the sender was answered.
	Refused(err error)
	// Reviewed reports the outcome of a review after its objects were converted, with the context
	// of its request.
	Reviewed(ctx context.Context, outcome Outcome)
}

// unobserved is an Observer that does nothing.
type unobserved struct{}

func (unobserved) Holding(int64)                     {}
func (unobserved) Refused(error)                     {}
func (unobserved) Reviewed(context.Context, Outcome) {}

// Handler serves ConversionReviews of apiextensions.k8s.io/v1.
type Handler struct {
	observer Observer
	maxBytes int64
	// large and small are the budgets of bodies, in bytes.
	large, small *netlimit.Room
	// slots limits how many batches are converted at a time, for all requests together. largeSlot
	// admits one more, for an object that is larger than a batch.
	slots, largeSlot *semaphore.Weighted
	// convert is convertValid, except in tests that make it panic.
	convert func(raw []byte, apiVersion string) ([]byte, error)
}

// NewHandler returns the conversion endpoint. It converts as many objects at a time as the process
// has processors, for all reviews in flight together.
func NewHandler(options Options) *Handler {
	if options.Observer == nil {
		options.Observer = unobserved{}
	}
	if options.MaxReviewBytes <= 0 {
		options.MaxReviewBytes = DefaultMaxReviewBytes
	}
	maxLarge := max(options.MaxBytesInFlight, options.MaxReviewBytes)
	return &Handler{
		observer: options.Observer,
		maxBytes: options.MaxReviewBytes,
		large:    newRoom(maxLarge, maxLarge, options.Observer),
		small:    newRoom(smallBytesInFlight, smallBytesInFlight-smallReviewBytes, options.Observer),
		slots:    semaphore.NewWeighted(int64(runtime.GOMAXPROCS(0))),
		convert:  convertValid,

		largeSlot: semaphore.NewWeighted(1),
	}
}

// newRoom returns the budget for bodies of one size, and the share of it that one sender may take.
func newRoom(size, share int64, observer Observer) *netlimit.Room {
	return netlimit.NewRoom(netlimit.RoomOptions{
		Size: size, Share: share, Patience: patience,
		Pace: netlimit.Pace{Grace: grace, BytesPerSecond: bytesPerSecond}, Holding: observer.Holding,
	})
}

// ServeHTTP answers a review. The answer has all objects in the desired version, in their order, or
// a failure that names the objects that could not be converted. The status is 400 if the body is
// not a review, 413 if the review is too large, and 503 if the sender disconnected before its
// objects were converted.
func (h *Handler) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	if r.Method != http.MethodPost {
		w.Header().Set("Allow", http.MethodPost)
		http.Error(w, "a ConversionReview is sent by POST", http.StatusMethodNotAllowed)
		return
	}
	if err := h.serveInRoom(w, r); err != nil {
		refuse(w, err)
		h.observer.Refused(err)
	}
}

// serveInRoom reads a review once the budget admits it, answers it, and releases the budget. If it
// returns an error, nothing has been answered yet.
func (h *Handler) serveInRoom(w http.ResponseWriter, r *http.Request) error {
	room := h.large
	if r.ContentLength >= 0 && r.ContentLength <= smallReviewBytes {
		room = h.small
	}
	body, err := room.Read(w, r, h.maxBytes)
	defer func() {
		took := len(body.Bytes)
		body.Release()
		h.settle(w, took)
	}()
	if err != nil {
		return err
	}
	asked, err := parseReview(body.Bytes)
	if err != nil {
		return err
	}
	answered, err := h.answer(r.Context(), asked)
	if err != nil {
		return err
	}
	answered.write(w)
	return nil
}

// settle returns a large review's memory to the system. It does nothing while another large review
// is in flight, because the collection would slow that review down.
func (h *Handler) settle(w http.ResponseWriter, took int) {
	if took < settleBytes || !h.large.Idle() {
		return
	}
	// The sender must not wait for the end of its answer during the collection. A flush that fails
	// means that the sender has disconnected.
	_ = http.NewResponseController(w).Flush()
	debug.FreeOSMemory()
}

// refuse answers a request that gets no ConversionReview as its answer.
func refuse(w http.ResponseWriter, err error) {
	status := http.StatusBadRequest
	tooLarge := new(http.MaxBytesError)
	switch {
	case errors.As(err, &tooLarge), errors.Is(err, ErrTooManyObjects):
		status = http.StatusRequestEntityTooLarge
		// The rest of the body is not read.
		w.Header().Set("Connection", "close")
	// A review that was shed also reports an exceeded deadline. Its sender may retry.
	case errors.Is(err, netlimit.ErrShed), errors.Is(err, context.Canceled), errors.Is(err, context.DeadlineExceeded):
		status = http.StatusServiceUnavailable
	case errors.Is(err, os.ErrDeadlineExceeded):
		status = http.StatusRequestTimeout
		w.Header().Set("Connection", "close")
	}
	http.Error(w, fmt.Sprintf("reading the ConversionReview: %v", err), status)
}

// answer is a ConversionReview. Its objects are too large to be copied.
type answer struct {
	head    []byte
	objects [][]byte
	tail    []byte
}

func (a *answer) size() int {
	size := len(a.head) + len(a.tail) + max(len(a.objects)-1, 0)
	for _, object := range a.objects {
		size += len(object)
	}
	return size
}

// write sends the answer. Write errors are ignored because they mean that the sender has
// disconnected.
func (a *answer) write(w http.ResponseWriter) {
	size := a.size()
	w.Header().Set("Content-Type", "application/json")
	w.Header().Set("Content-Length", strconv.Itoa(size))
	buffered := bufio.NewWriterSize(w, min(size, writeBytes))
	// After an error the buffered writer discards everything else.
	_, _ = buffered.Write(a.head)
	for i, object := range a.objects {
		if i > 0 {
			_ = buffered.WriteByte(',')
		}
		_, _ = buffered.Write(object)
	}
	_, _ = buffered.Write(a.tail)
	_ = buffered.Flush()
}
