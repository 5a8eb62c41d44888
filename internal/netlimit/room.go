// Copyright The DI Orchestrator Authors.
// SPDX-License-Identifier: Apache-2.0

package netlimit

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"sync"
	"time"
)

// ErrShed means that a body arrived so slowly that it lost its memory to others.
var ErrShed = errors.New("other bodies have the room, and this one takes too long to come")

// firstBytes is the memory that a body reserves before its first bytes arrive.
const firstBytes = 16 << 10

// Room is the memory budget of all bodies. A body reserves memory as its bytes arrive, regardless of its
// announced length. It keeps the memory until it is released.
//
// A body waits while the budget is exhausted. An incomplete body that has had memory for Patience loses it
// to waiting bodies. Therefore slow senders do not block fast ones, and bodies that wait for each other do
// not deadlock.
type Room struct {
	options RoomOptions

	mutex sync.Mutex
	used  int64
	// bodies are the bodies with reserved memory, by the address of their sender.
	bodies map[string]map[*Body]struct{}
	// changed closes when memory is freed.
	changed chan struct{}
}

// RoomOptions are the settings of a Room.
type RoomOptions struct {
	// Size is the maximum number of bytes of all bodies. Share is the maximum of one source address.
	Size, Share int64
	// Patience is the minimum time for which an arriving body keeps its memory.
	Patience time.Duration
	// Pace is the minimum rate of an arriving body.
	Pace Pace
	// Holding is called with each change of the reserved bytes, negative if they shrink; nil for none.
	Holding func(bytes int64)
}

// NewRoom returns an unused budget.
func NewRoom(options RoomOptions) *Room {
	if options.Holding == nil {
		options.Holding = func(int64) {}
	}
	return &Room{options: options, bodies: map[string]map[*Body]struct{}{}, changed: make(chan struct{})}
}

// Body is a body with its reserved memory.
type Body struct {
	// Bytes are the received bytes.
	Bytes []byte

	room   *Room
	sender string
	since  time.Time
	// takes is the size of the reserved memory. The room's mutex guards it, because other bodies may shed
	// this one.
	takes int64
	// whole is set once the body is complete. shed is set once the body has lost its memory.
	whole, shed bool
	// stop aborts the read.
	stop func()
}

// Read reads the body of a request of at most most bytes. The caller must release the body, also after an
// error.
func (r *Room) Read(w http.ResponseWriter, request *http.Request, most int64) (*Body, error) {
	connection := http.NewResponseController(w)
	body := &Body{
		room: r, sender: Host(request.RemoteAddr), since: time.Now(),
		// A writer that is not a connection has no deadline, and ends its reads itself.
		stop: func() { _ = connection.SetReadDeadline(time.Unix(1, 0)) },
	}
	length := request.ContentLength
	if length > most {
		return body, &http.MaxBytesError{Limit: most}
	}
	if length < 0 {
		length = most
	}
	from := r.options.Pace.Body(w, http.MaxBytesReader(w, request.Body, most))
	if err := body.fill(request.Context(), from, length); err != nil {
		return body, body.ended(err)
	}
	return body, body.finish(request.ContentLength)
}

// fill reads the body to its end. The buffer grows in steps up to the length, which limits copying. It is
// never much larger than the received bytes.
func (b *Body) fill(ctx context.Context, from io.Reader, length int64) error {
	for size := min(length, firstBytes); ; size = min(length, 4*size) {
		if err := b.room.take(ctx, b, size); err != nil {
			return err
		}
		// The extra byte detects the end without another step.
		grown := make([]byte, len(b.Bytes), size+1)
		copy(grown, b.Bytes)
		b.Bytes = grown
		for int64(len(b.Bytes)) < size+1 {
			n, err := from.Read(b.Bytes[len(b.Bytes):cap(b.Bytes)])
			b.Bytes = b.Bytes[:len(b.Bytes)+n]
			if errors.Is(err, io.EOF) {
				return nil
			}
			if err != nil {
				return err
			}
		}
		if size == length {
			return fmt.Errorf("the body is longer than the %d bytes that it may have", length)
		}
	}
}

// ended returns the reason why the read ended. A shed body fails with a deadline, so ended adds ErrShed.
func (b *Body) ended(err error) error {
	b.room.mutex.Lock()
	defer b.room.mutex.Unlock()
	if b.shed && !errors.Is(err, ErrShed) {
		return fmt.Errorf("%w: %w", ErrShed, err)
	}
	return err
}

// finish reduces the reserved memory to the received bytes.
func (b *Body) finish(announced int64) error {
	if announced >= 0 && int64(len(b.Bytes)) < announced {
		return io.ErrUnexpectedEOF
	}
	b.room.mutex.Lock()
	defer b.room.mutex.Unlock()
	if b.shed {
		return ErrShed
	}
	b.whole = true
	b.room.give(b, b.takes-int64(len(b.Bytes)))
	return nil
}

// Release frees the memory of the body.
func (b *Body) Release() {
	b.room.mutex.Lock()
	defer b.room.mutex.Unlock()
	b.room.forget(b)
}

// Idle reports whether no body has reserved memory.
func (r *Room) Idle() bool {
	r.mutex.Lock()
	defer r.mutex.Unlock()
	return len(r.bodies) == 0
}

// take waits until a body has reserved size bytes in total.
func (r *Room) take(ctx context.Context, body *Body, size int64) error {
	for {
		again, changed, err := r.try(body, size)
		if err != nil || changed == nil {
			return err
		}
		timer := time.NewTimer(again)
		select {
		case <-changed:
		case <-timer.C:
		case <-ctx.Done():
			timer.Stop()
			return fmt.Errorf("waiting for room: %w", ctx.Err())
		}
		timer.Stop()
	}
}

// try reserves memory. If it cannot, it returns when to retry: after a time, or when the channel closes.
func (r *Room) try(body *Body, size int64) (time.Duration, <-chan struct{}, error) {
	r.mutex.Lock()
	defer r.mutex.Unlock()
	more := size - body.takes
	for !body.shed {
		sender, all := r.of(body.sender)+more > r.options.Share, r.used+more > r.options.Size
		if !sender && !all {
			r.grant(body, more)
			return 0, nil, nil
		}
		oldest := r.oldest(func(address string) bool { return !sender || address == body.sender })
		if oldest == nil {
			// All bodies are complete and in use.
			return r.options.Patience, r.changed, nil
		}
		if left := r.options.Patience - time.Since(oldest.since); left > 0 {
			return left, r.changed, nil
		}
		r.forget(oldest)
		oldest.shed = true
		oldest.stop()
	}
	return 0, nil, ErrShed
}

func (r *Room) grant(body *Body, more int64) {
	if r.bodies[body.sender] == nil {
		r.bodies[body.sender] = map[*Body]struct{}{}
	}
	r.bodies[body.sender][body] = struct{}{}
	body.takes += more
	r.used += more
	r.options.Holding(more)
}

// of returns the reserved bytes of an address.
func (r *Room) of(address string) int64 {
	var sum int64
	for body := range r.bodies[address] {
		sum += body.takes
	}
	return sum
}

// oldest returns the incomplete body that has had memory for the longest time, among the selected
// addresses.
func (r *Room) oldest(among func(address string) bool) *Body {
	var oldest *Body
	for address, bodies := range r.bodies {
		if !among(address) {
			continue
		}
		for body := range bodies {
			if !body.whole && (oldest == nil || body.since.Before(oldest.since)) {
				oldest = body
			}
		}
	}
	return oldest
}

// give frees a part of a body's memory.
func (r *Room) give(body *Body, less int64) {
	if less == 0 {
		return
	}
	body.takes -= less
	r.used -= less
	r.options.Holding(-less)
	close(r.changed)
	r.changed = make(chan struct{})
}

// forget frees all memory of a body.
func (r *Room) forget(body *Body) {
	r.give(body, body.takes)
	delete(r.bodies[body.sender], body)
	if len(r.bodies[body.sender]) == 0 {
		delete(r.bodies, body.sender)
	}
}
