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

// ErrShed means that a body came so slowly that it lost its room to others.
var ErrShed = errors.New("other bodies have the room, and this one takes too long to come")

// firstBytes is how much room a body has before anything of it has come.
const firstBytes = 16 << 10

// Room is the memory that bodies may take together. A body takes it as its bytes
// come, whatever length it announces, and keeps it until it is released.
//
// Where there is no room, a body waits. Once one that has not come in full has had
// room for Patience, it gives that up: so slow senders do not hold up quick ones,
// and bodies that wait for each other do not wait forever.
type Room struct {
	options RoomOptions

	mutex sync.Mutex
	used  int64
	// bodies are those that have room, by the address of their sender.
	bodies map[string]map[*Body]struct{}
	// changed is closed when there is room again.
	changed chan struct{}
}

// RoomOptions are the settings of a Room.
type RoomOptions struct {
	// Size is how many bytes all bodies may take, and Share those of one source
	// address.
	Size, Share int64
	// Patience is how long a body surely keeps its room while it comes.
	Patience time.Duration
	// Pace is how fast a body must come.
	Pace Pace
	// Holding is told by how many bytes what the bodies take has grown, or shrunk;
	// nobody by default.
	Holding func(bytes int64)
}

// NewRoom returns a room that nobody has taken of.
func NewRoom(options RoomOptions) *Room {
	if options.Holding == nil {
		options.Holding = func(int64) {}
	}
	return &Room{options: options, bodies: map[string]map[*Body]struct{}{}, changed: make(chan struct{})}
}

// Body is a body and the room that it takes.
type Body struct {
	// Bytes is what has come.
	Bytes []byte

	room   *Room
	sender string
	since  time.Time
	// takes is the size of its room; the room's mutex guards it, as others shed bodies.
	takes int64
	// whole is set once all has come, and shed once the room is lost.
	whole, shed bool
	// stop ends the reading.
	stop func()
}

// Read reads the body of a request that has at most so many bytes. The caller
// releases it, also after an error.
func (r *Room) Read(w http.ResponseWriter, request *http.Request, most int64) (*Body, error) {
	connection := http.NewResponseController(w)
	body := &Body{
		room: r, sender: Host(request.RemoteAddr), since: time.Now(),
		// A writer that is no connection has no deadline, and ends its reads itself.
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

// fill reads to the end. The buffer grows by steps up to the length, so that it
// is copied little, and never is much larger than what has come.
func (b *Body) fill(ctx context.Context, from io.Reader, length int64) error {
	for size := min(length, firstBytes); ; size = min(length, 4*size) {
		if err := b.room.take(ctx, b, size); err != nil {
			return err
		}
		// One byte more, so that the end is seen without another step.
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

// ended returns why the reading ended: a body that is shed sees a deadline.
func (b *Body) ended(err error) error {
	b.room.mutex.Lock()
	defer b.room.mutex.Unlock()
	if b.shed && !errors.Is(err, ErrShed) {
		return fmt.Errorf("%w: %w", ErrShed, err)
	}
	return err
}

// finish keeps the room of what has come, and no more.
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

// Release gives back the room.
func (b *Body) Release() {
	b.room.mutex.Lock()
	defer b.room.mutex.Unlock()
	b.room.forget(b)
}

// Idle reports whether no body has room.
func (r *Room) Idle() bool {
	r.mutex.Lock()
	defer r.mutex.Unlock()
	return len(r.bodies) == 0
}

// take waits until a body has room of a size.
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

// try takes room, or says when to try again: after a time, or when the channel
// is closed.
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
			// Bodies that have come in full are being worked on.
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

// of returns how much an address has.
func (r *Room) of(address string) int64 {
	var sum int64
	for body := range r.bodies[address] {
		sum += body.takes
	}
	return sum
}

// oldest returns the body that has had room for the longest time and has not
// come in full, of some addresses.
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

// give gives back some of a body's room.
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

// forget gives back all of it.
func (r *Room) forget(body *Body) {
	r.give(body, body.takes)
	delete(r.bodies[body.sender], body)
	if len(r.bodies[body.sender]) == 0 {
		delete(r.bodies, body.sender)
	}
}
