// Copyright The DI Orchestrator Authors.
// SPDX-License-Identifier: Apache-2.0

package netlimit

import (
	"bytes"
	"errors"
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"opendilab.org/di-orchestrator/test/testkit/expect"
)

const mega = 1 << 20

// sender is a request whose body arrives under the control of the test.
type sender struct {
	*httptest.ResponseRecorder
	request *http.Request
	writer  *io.PipeWriter

	mutex  sync.Mutex
	expiry *time.Timer
}

func newSender(t *testing.T, address string, announced int64) *sender {
	t.Helper()
	body, writer := io.Pipe()
	request := httptest.NewRequestWithContext(t.Context(), http.MethodPost, "/", body)
	request.RemoteAddr, request.ContentLength = address+":1", announced
	return &sender{ResponseRecorder: httptest.NewRecorder(), request: request, writer: writer}
}

// SetReadDeadline ends reads as a connection does.
func (s *sender) SetReadDeadline(deadline time.Time) error {
	s.mutex.Lock()
	defer s.mutex.Unlock()
	if s.expiry != nil {
		s.expiry.Stop()
	}
	if !deadline.IsZero() {
		s.expiry = time.AfterFunc(time.Until(deadline), func() { _ = s.writer.CloseWithError(os.ErrDeadlineExceeded) })
	}
	return nil
}

// read reads the body into the room and returns the result.
func (s *sender) read(room *Room, most int64) <-chan error {
	ended := make(chan error, 1)
	go func() {
		body, err := room.Read(s, s.request, most)
		body.Release()
		ended <- err
	}()
	return ended
}

func (s *sender) send(count int) {
	_, _ = s.writer.Write(bytes.Repeat([]byte("x"), count))
}

func newTestRoom(held *atomic.Int64) *Room {
	return NewRoom(RoomOptions{
		Size: 4 * mega, Share: 3 * mega, Patience: time.Second, Pace: Pace{Grace: 2 * time.Second, BytesPerSecond: mega},
		Holding: func(bytes int64) { held.Add(bytes) },
	})
}

func TestABodyTakesRoomAsItComes(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var held atomic.Int64
		room := newTestRoom(&held)
		slow := newSender(t, "a", 2*mega)
		ended := slow.read(room, 2*mega)
		slow.send(10)
		synctest.Wait()
		if held.Load() != firstBytes {
			t.Errorf("10 bytes hold %d", held.Load())
		}
		if err := <-ended; !errors.Is(err, os.ErrDeadlineExceeded) {
			t.Errorf("a sender that pauses: %v", err)
		}
		if held.Load() != 0 || !room.Idle() {
			t.Errorf("%d bytes are still held", held.Load())
		}
	})
}

func TestASenderThatIsSlowOnTheWholeIsGivenUp(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var held atomic.Int64
		begin := time.Now()
		slow := newSender(t, "a", 2*mega)
		ended := slow.read(newTestRoom(&held), 2*mega)
		go func() {
			for range 10 {
				slow.send(100 << 10)
				<-time.After(time.Second)
			}
		}()
		if err := <-ended; !errors.Is(err, os.ErrDeadlineExceeded) || time.Since(begin) > 3*time.Second {
			t.Errorf("%v after %v", err, time.Since(begin))
		}
		<-time.After(10 * time.Second)
	})
}

func TestBodiesThatHaveTheRoomAndDoNotComeLoseItToOthers(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var held atomic.Int64
		room := newTestRoom(&held)
		var lost []<-chan error
		for _, address := range []string{"a", "b"} {
			greedy := newSender(t, address, 2*mega)
			lost = append(lost, greedy.read(room, 2*mega))
			greedy.send(2*mega - 1)
		}
		begin := time.Now()
		quick := newSender(t, "c", mega)
		ended := quick.read(room, 2*mega)
		go func() {
			quick.send(mega)
			_ = quick.writer.Close()
		}()
		if err := <-ended; err != nil || time.Since(begin) > 2*time.Second {
			t.Errorf("a quick sender waited %v: %v", time.Since(begin), err)
		}
		for _, ended := range lost {
			if err := <-ended; err == nil {
				t.Error("a body that does not come keeps its room")
			}
		}
		if held.Load() != 0 {
			t.Errorf("%d bytes are still held", held.Load())
		}
	})
}

func TestOneSenderLeavesRoomForOthers(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var held atomic.Int64
		room := newTestRoom(&held)
		kept := make([]*Body, 0, 3)
		for range 3 {
			request := httptest.NewRequestWithContext(t.Context(), http.MethodPost, "/", bytes.NewReader(make([]byte, mega)))
			request.RemoteAddr = "a:1"
			body, err := room.Read(httptest.NewRecorder(), request, mega)
			expect.NoError(t, err)
			kept = append(kept, body)
		}
		fourth := newSender(t, "a", mega)
		waiting := fourth.read(room, mega)
		synctest.Wait()
		request := httptest.NewRequestWithContext(t.Context(), http.MethodPost, "/", bytes.NewReader(make([]byte, mega)))
		request.RemoteAddr = "b:1"
		body, err := room.Read(httptest.NewRecorder(), request, mega)
		if err != nil {
			t.Errorf("another's body: %v", err)
		}
		body.Release()
		kept[0].Release()
		fourth.send(mega)
		_ = fourth.writer.Close()
		if err := <-waiting; err != nil {
			t.Errorf("the body that waited: %v", err)
		}
		kept[1].Release()
		kept[2].Release()
		if held.Load() != 0 {
			t.Errorf("%d bytes are still held", held.Load())
		}
	})
}

func TestABodyIsReadAsItIs(t *testing.T) {
	t.Parallel()
	for _, size := range []int{0, 1, firstBytes - 1, firstBytes, firstBytes + 1, 4 * firstBytes, 100_000} {
		for _, announced := range []bool{true, false} {
			var held atomic.Int64
			content := strings.Repeat("x", size)
			var from io.Reader = strings.NewReader(content)
			if !announced {
				from = io.MultiReader(from)
			}
			request := httptest.NewRequestWithContext(t.Context(), http.MethodPost, "/", from)
			body, err := newTestRoom(&held).Read(httptest.NewRecorder(), request, 100_000)
			if err != nil || string(body.Bytes) != content || held.Load() != int64(size) {
				t.Errorf("%d bytes, announced %v: %d came, %d are held: %v", size, announced, len(body.Bytes), held.Load(), err)
			}
			body.Release()
			if held.Load() != 0 {
				t.Errorf("%d bytes are still held", held.Load())
			}
		}
	}
}
