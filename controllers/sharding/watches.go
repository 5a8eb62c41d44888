// Copyright The DI Orchestrator Authors.
// SPDX-License-Identifier: Apache-2.0

package sharding

import (
	"context"
	"fmt"
	"io"
	"net/http"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"k8s.io/apimachinery/pkg/util/resourceversion"
	"k8s.io/client-go/rest"
	"k8s.io/utils/clock"

	"opendilab.org/di-orchestrator/internal/names"
	"opendilab.org/di-orchestrator/internal/shards"
)

const (
	// keepEverything is how long the pods of all shards are watched after the last read of them.
	keepEverything = 10 * time.Minute
	// settleTime is how long the cache may take to have a list, where its version does not say so.
	settleTime = 2 * time.Second
	// settleInterval is how often the cache is asked for its version.
	settleInterval = 50 * time.Millisecond
	// everythingTimeout is how long the pods of all shards may take to be listed.
	everythingTimeout = time.Minute
)

// Watches select the pods that the cache of an operator watches: not those with the label of a shard that another operator
// reconciles. All others, such as pods of other owners or of an earlier number of shards, have no such label. A nil pointer
// selects all pods.
//
// A watch cannot change its selector. So each change of the shards ends the watch, and refuses to continue it, as if its
// version had expired. client-go then lists the pods again.
type Watches struct {
	clock clock.Clock
	count int

	mutex sync.Mutex
	// cached returns the version of the cache; nil if it does not say.
	cached func() string
	// followed are the shards whose pods are watched.
	followed map[int]bool
	// everything is set while the pods of all shards are watched, which is needed until a time.
	everything bool
	until      time.Time
	// generation counts the changes of the selector.
	generation int
	// streams are the watches by path. There are several if only some namespaces are watched.
	streams map[string]*stream
}

// stream is the watch of a path.
type stream struct {
	// generation is that of the selector of the last list. An API server that cannot send a list by a watch sends all pods, and whole
	// is set.
	generation int
	whole      bool
	// before is the version of the cache when the list began.
	before string
	// version is that of the list; empty until it has ended. ended is when it did.
	version string
	ended   time.Time
	// body is the open watch; nil if there is none.
	body *watchBody
}

// NewWatches returns watches that leave out the labelled pods of all shards.
func NewWatches(count int, clock clock.Clock) *Watches {
	return &Watches{clock: clock, count: count, followed: map[int]bool{}, generation: 1, streams: map[string]*stream{}}
}

// Bind sets the function that returns the version of the cache.
func (w *Watches) Bind(cached func() string) {
	w.mutex.Lock()
	defer w.mutex.Unlock()
	w.cached = cached
}

// follow watches the pods of a shard, and reports whether the cache has them.
func (w *Watches) follow(shard int) bool {
	if w == nil {
		return true
	}
	w.mutex.Lock()
	defer w.mutex.Unlock()
	if !w.followed[shard] {
		w.change(func() { w.followed[shard] = true })
	}
	return w.settled()
}

// leave stops watching the pods of a shard.
func (w *Watches) leave(shard int) {
	if w == nil {
		return
	}
	w.mutex.Lock()
	defer w.mutex.Unlock()
	w.change(func() { delete(w.followed, shard) })
}

// Everything returns when the cache has the pods of all shards. They are watched for some minutes after the last call.
func (w *Watches) Everything(ctx context.Context) error {
	if w == nil {
		return nil
	}
	timeout := w.clock.After(everythingTimeout)
	for {
		if w.hasEverything() {
			return nil
		}
		select {
		case <-w.clock.After(settleInterval):
		case <-timeout:
			return fmt.Errorf("the cache does not have the pods of all shards after %s", everythingTimeout)
		case <-ctx.Done():
			return context.Cause(ctx)
		}
	}
}

func (w *Watches) hasEverything() bool {
	w.mutex.Lock()
	defer w.mutex.Unlock()
	w.until = w.clock.Now().Add(keepEverything)
	if !w.everything {
		w.change(func() { w.everything = true })
	}
	return w.settled()
}

// narrow stops watching the pods of all shards some minutes after the last read of them.
func (w *Watches) narrow() {
	if w == nil {
		return
	}
	w.mutex.Lock()
	defer w.mutex.Unlock()
	if w.everything && w.clock.Now().After(w.until) {
		w.change(func() { w.everything = false })
	}
}

// change ends the watches if a change gives them another selector. The caller holds the mutex.
func (w *Watches) change(change func()) {
	before := w.selector()
	if change(); w.selector() == before {
		return
	}
	w.generation++
	for _, each := range w.streams {
		each.body.end()
	}
}

// selector returns the label selector of pods; empty for all. The caller holds the mutex.
func (w *Watches) selector() string {
	var foreign []string
	for shard := range w.count {
		if !w.followed[shard] {
			foreign = append(foreign, shards.Label(shard, w.count))
		}
	}
	if w.everything || len(foreign) == 0 {
		return ""
	}
	return names.LabelShard + " notin (" + strings.Join(foreign, ",") + ")"
}

// settled reports whether the cache has the pods that the current selector selects. The caller holds the mutex.
func (w *Watches) settled() bool {
	for _, each := range w.streams {
		if !each.whole && (each.generation != w.generation || each.version == "" || !w.has(each)) {
			return false
		}
	}
	return len(w.streams) > 0
}

// has reports whether the cache has the list of a stream. A list that is as old as what the cache had before does not show in
// the cache's version.
func (w *Watches) has(of *stream) bool {
	if w.cached == nil || of.before == "" || of.before == of.version {
		return w.clock.Since(of.ended) >= settleTime
	}
	order, err := resourceversion.CompareResourceVersion(w.cached(), of.version)
	return err == nil && order >= 0
}

// Listed records that a list by a watch has ended with a version.
func (w *Watches) Listed(request *http.Request, version string) {
	if w == nil {
		return
	}
	w.mutex.Lock()
	defer w.mutex.Unlock()
	if of := w.streams[request.URL.Path]; of != nil {
		of.version, of.ended = version, w.clock.Now()
	}
}

// Wrap makes the watches of pods of a configuration use the selector. Only caches may watch pods by it.
func (w *Watches) Wrap(config *rest.Config, isPods func(path string) bool) {
	if w == nil {
		return
	}
	config.Wrap(func(next http.RoundTripper) http.RoundTripper {
		return &selecting{next: next, watches: w, isPods: isPods}
	})
}

type selecting struct {
	next    http.RoundTripper
	watches *Watches
	isPods  func(path string) bool
}

// WrappedRoundTripper implements net.RoundTripperWrapper.
func (s *selecting) WrappedRoundTripper() http.RoundTripper { return s.next }

// RoundTrip implements http.RoundTripper.
func (s *selecting) RoundTrip(request *http.Request) (*http.Response, error) {
	if !request.URL.Query().Has("watch") || !s.isPods(request.URL.Path) {
		return s.next.RoundTrip(request)
	}
	selected, generation := s.watches.begin(request)
	if selected == nil {
		return expired(request), nil
	}
	response, err := s.next.RoundTrip(selected)
	if err != nil {
		return nil, err
	}
	body := &watchBody{ReadCloser: response.Body}
	response.Body = body
	s.watches.open(request.URL.Path, generation, body, response.StatusCode)
	return response, nil
}

// begin returns a request with the selector; nil if the watch cannot continue, because its list had another one.
func (w *Watches) begin(request *http.Request) (*http.Request, int) {
	w.mutex.Lock()
	defer w.mutex.Unlock()
	of := w.streams[request.URL.Path]
	if of == nil {
		of = &stream{}
		w.streams[request.URL.Path] = of
	}
	query := request.URL.Query()
	switch {
	case query.Get("sendInitialEvents") == "true":
		*of = stream{generation: w.generation}
		if w.cached != nil {
			of.before = w.cached()
		}
	case of.generation == 0 || of.whole:
		of.whole = true
		return request, w.generation
	case of.generation != w.generation:
		return nil, 0
	}
	selector := w.selector()
	if selector == "" {
		return request, w.generation
	}
	if own := query.Get("labelSelector"); own != "" {
		selector = own + "," + selector
	}
	query.Set("labelSelector", selector)
	selected := request.Clone(request.Context())
	selected.URL.RawQuery = query.Encode()
	return selected, w.generation
}

// open keeps an open watch. It ends it if the selector has changed meanwhile.
func (w *Watches) open(path string, generation int, body *watchBody, status int) {
	w.mutex.Lock()
	defer w.mutex.Unlock()
	of := w.streams[path]
	if status != http.StatusOK {
		// client-go lists without a watch if the API server cannot send a list by one.
		of.generation = 0
		return
	}
	of.body = body
	if !of.whole && generation != w.generation {
		body.end()
	}
}

// watchBody is the body of a watch that this process may end.
type watchBody struct {
	io.ReadCloser
	ended atomic.Bool
}

// end makes a reader see the end of the watch.
func (b *watchBody) end() {
	if b != nil && !b.ended.Swap(true) {
		// The reader sees the end in any case.
		_ = b.Close()
	}
}

// Read implements io.Reader.
func (b *watchBody) Read(into []byte) (int, error) {
	read, err := b.ReadCloser.Read(into)
	if err != nil && b.ended.Load() {
		err = io.EOF
	}
	return read, err
}

// expired answers a watch whose version has expired, as the API server does.
func expired(request *http.Request) *http.Response {
	const status = `{"kind":"Status","apiVersion":"v1","status":"Failure","reason":"Expired","code":410,"message":"other shards are watched now"}`
	return &http.Response{
		Status: "410 Gone", StatusCode: http.StatusGone, Proto: "HTTP/2.0", ProtoMajor: 2, Request: request,
		Header: http.Header{"Content-Type": {"application/json"}}, ContentLength: int64(len(status)), Body: io.NopCloser(strings.NewReader(status)),
	}
}
