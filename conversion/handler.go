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

// What reviews may cost in memory. While it is answered, a review takes its
// body once, its converted objects once, and what the collector has not got
// round to. 10,000 jobs of 10 kB, the largest list that the service level of
// conversion webhooks names (KEP-95), are 96 MB each way: they take the process
// from 23 MiB to 317 MiB, four such lists at once to 405 MiB, and afterwards it
// is back at 28 MiB, as `bench conversion` measures. The memory limit in
// config/operator rests on these numbers.
const (
	// DefaultMaxReviewBytes is the size up to which a review is read.
	DefaultMaxReviewBytes = 128 << 20

	// smallReviewBytes is the size up to which a review is admitted by a count
	// of its own, smallBytesInFlight, so that one object, on whose conversion a
	// write waits, never queues behind the lists. It is four times the most that
	// etcd takes of one object. One sender leaves room for one more of another.
	smallReviewBytes   = 6 << 20
	smallBytesInFlight = 4 * smallReviewBytes

	// maxObjectBytes is the size up to which an object is converted, the same as for
	// a review of one: to convert takes up to 30 times an object's bytes, if it is a
	// list of nothing but empty objects.
	maxObjectBytes = smallReviewBytes
	// maxObjectValues is more JSON values, as netlimit counts them, than fit into the
	// 1.5 MiB that etcd takes of an object. maxObjectTasks is more tasks than any schema
	// let anybody store there.
	maxObjectValues = 1_050_000
	maxObjectTasks  = 100_000

	// A review comes at the speed of a local network: one that pauses for longer
	// than grace, or is slower on the whole, is given up. One that has not come in
	// full after patience gives its room up where others need it.
	grace          = 2 * time.Second
	bytesPerSecond = 1 << 20
	patience       = time.Second

	// settleBytes is the size from which a review's memory is given back to the
	// system at once. The runtime would keep it for minutes, beside what the
	// controllers need; and collecting costs little against such a review.
	settleBytes = 16 << 20

	// writeBytes is how much of an answer is put together for one write. The
	// answer as a whole is never copied.
	writeBytes = 64 << 10
)

// Options are the settings of the endpoint. The zero value is the default.
type Options struct {
	// Observer is told what the endpoint does; nobody is by default.
	Observer Observer
	// MaxReviewBytes is the size of body up to which a review is read;
	// DefaultMaxReviewBytes by default.
	MaxReviewBytes int64
	// MaxBytesInFlight is how many bytes the bodies of the larger reviews in hand
	// may have together; those that find no room wait. At least, and by
	// default, MaxReviewBytes.
	MaxBytesInFlight int64
}

// Observer is told what the endpoint does. Reviews are answered side by side,
// so its methods must be safe to be called by several goroutines at once.
type Observer interface {
	// Holding is told by how many bytes the bodies of the reviews in hand have
	// grown, or shrunk.
	Holding(bytes int64)
	// Refused is told why a review is not answered, once that is said to its sender.
	Refused(err error)
	// Reviewed is told what came of a review, once its objects were converted, with
	// the context of its request.
	Reviewed(ctx context.Context, outcome Outcome)
}

// unobserved is told and forgets.
type unobserved struct{}

func (unobserved) Holding(int64)                     {}
func (unobserved) Refused(error)                     {}
func (unobserved) Reviewed(context.Context, Outcome) {}

// Handler serves ConversionReviews of apiextensions.k8s.io/v1.
type Handler struct {
	observer Observer
	maxBytes int64
	// large and small are what bodies may take.
	large, small *netlimit.Room
	// slots are how many batches may be converted at a time, by all requests together,
	// and largeSlot is for one more, of an object that is larger than a batch.
	slots, largeSlot *semaphore.Weighted
	// convert is convertValid, but in tests of what happens when that panics.
	convert func(raw []byte, apiVersion string) ([]byte, error)
}

// NewHandler returns the conversion endpoint. It converts as many objects at a
// time as the process has processors, however many reviews are in hand.
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

// newRoom returns the room for bodies of one size, and how much of it one sender
// may take.
func newRoom(size, share int64, observer Observer) *netlimit.Room {
	return netlimit.NewRoom(netlimit.RoomOptions{
		Size: size, Share: share, Patience: patience,
		Pace: netlimit.Pace{Grace: grace, BytesPerSecond: bytesPerSecond}, Holding: observer.Holding,
	})
}

// ServeHTTP answers a review: all its objects in the wanted version, in their
// order, or a failure that names those which did not convert. What is no
// review is answered 400, a review that is too big 413, and one whose sender
// left before it was converted 503.
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

// serveInRoom reads a review as room is found for it, answers it, and tidies up.
// An error means that nothing has been answered yet.
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

// settle gives a large review's memory back to the system, unless another large
// one is in hand, which would pay for it.
func (h *Handler) settle(w http.ResponseWriter, took int) {
	if took < settleBytes || !h.large.Idle() {
		return
	}
	// The sender must not wait for the end of its answer meanwhile. If it does
	// not take it, it has gone.
	_ = http.NewResponseController(w).Flush()
	debug.FreeOSMemory()
}

// refuse answers a request that has no ConversionReview for an answer.
func refuse(w http.ResponseWriter, err error) {
	status := http.StatusBadRequest
	tooLarge := new(http.MaxBytesError)
	switch {
	case errors.As(err, &tooLarge), errors.Is(err, ErrTooManyObjects):
		status = http.StatusRequestEntityTooLarge
		// The rest of the body is not worth reading.
		w.Header().Set("Connection", "close")
	// What is shed sees a deadline too, and may come again.
	case errors.Is(err, netlimit.ErrShed), errors.Is(err, context.Canceled), errors.Is(err, context.DeadlineExceeded):
		status = http.StatusServiceUnavailable
	case errors.Is(err, os.ErrDeadlineExceeded):
		status = http.StatusRequestTimeout
		w.Header().Set("Connection", "close")
	}
	http.Error(w, fmt.Sprintf("reading the ConversionReview: %v", err), status)
}

// answer is a ConversionReview, of which the objects are too big to be copied.
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

// write sends the answer. A sender that has gone away is no longer interested
// in it, so it does not matter whether it gets there.
func (a *answer) write(w http.ResponseWriter) {
	size := a.size()
	w.Header().Set("Content-Type", "application/json")
	w.Header().Set("Content-Length", strconv.Itoa(size))
	buffered := bufio.NewWriterSize(w, min(size, writeBytes))
	// The writer remembers an error, and does nothing more.
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
