// Copyright The DI Orchestrator Authors.
// SPDX-License-Identifier: Apache-2.0

package sharding

import (
	"context"
	"fmt"
	"io"
	"net/http"
	"slices"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/wait"
	"k8s.io/client-go/rest"
	toolscache "k8s.io/client-go/tools/cache"
	"k8s.io/utils/clock"
	clocktesting "k8s.io/utils/clock/testing"
	"sigs.k8s.io/controller-runtime/pkg/cache"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"opendilab.org/di-orchestrator/internal/names"
	"opendilab.org/di-orchestrator/internal/podwire"
	"opendilab.org/di-orchestrator/internal/testkit"
)

// isPods reports whether a path is that of all pods.
func isPods(path string) bool { return path == "/api/v1/pods" }

// selected is a cache of pods that watches select.
type selected struct {
	*Watches
	t     *testing.T
	api   client.Client
	cache cache.Cache
}

// selectPods starts an API server, and a cache of the pods of two shards.
func selectPods(t *testing.T, clk clock.Clock) *selected {
	t.Helper()
	environment, err := testkit.StartAPI(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := environment.Stop(); err != nil {
			t.Error(err)
		}
	})
	s := &selected{Watches: NewWatches(2, clk), t: t}
	if s.api, err = testkit.NewClient(environment.Config); err != nil {
		t.Fatal(err)
	}
	config, err := environment.As(testkit.Operator)
	if err != nil {
		t.Fatal(err)
	}
	config.Wrap(func(next http.RoundTripper) http.RoundTripper { return observed{next, s.Listed} })
	s.Wrap(config, isPods)
	if s.cache, err = cache.New(config, cache.Options{}); err != nil {
		t.Fatal(err)
	}
	informer, err := s.cache.GetInformer(t.Context(), &corev1.Pod{}, cache.BlockUntilSynced(false))
	if err != nil {
		t.Fatal(err)
	}
	shared, isShared := informer.(toolscache.SharedIndexInformer)
	if !isShared {
		t.Fatalf("the informer is %T", informer)
	}
	s.Bind(shared.GetStore().LastStoreSyncResourceVersion)
	ctx, stop := context.WithCancel(t.Context())
	ended := make(chan error, 1)
	go func() { ended <- s.cache.Start(ctx) }()
	t.Cleanup(func() {
		stop()
		if err := <-ended; err != nil {
			t.Error(err)
		}
	})
	if !s.cache.WaitForCacheSync(ctx) {
		t.Fatal("the cache did not start")
	}
	return s
}

// observed reports the ends of lists.
type observed struct {
	next   http.RoundTripper
	listed func(*http.Request, string)
}

// RoundTrip implements http.RoundTripper.
func (o observed) RoundTrip(request *http.Request) (*http.Response, error) {
	response, err := o.next.RoundTrip(request)
	if err == nil && request.URL.Query().Has("watch") {
		response.Body = struct {
			io.Reader
			io.Closer
		}{podwire.NewReader(response.Body, func(version string) { o.listed(request, version) }), response.Body}
	}
	return response, err
}

// add creates a pod with the label of a shard, unless that is empty.
func (s *selected) add(name, shard string) *corev1.Pod {
	s.t.Helper()
	pod := &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: name, Labels: map[string]string{}},
		Spec:       corev1.PodSpec{Containers: []corev1.Container{{Name: "di-container", Image: "di"}}},
	}
	if shard != "" {
		pod.Labels[names.LabelShard] = shard
	}
	if err := s.api.Create(s.t.Context(), pod); err != nil {
		s.t.Fatal(err)
	}
	return pod
}

// pods returns the names of the pods in the cache.
func (s *selected) pods() []string {
	s.t.Helper()
	var list corev1.PodList
	if err := s.cache.List(s.t.Context(), &list); err != nil {
		s.t.Fatal(err)
	}
	var found []string
	for i := range list.Items {
		found = append(found, list.Items[i].Name)
	}
	slices.Sort(found)
	return found
}

// await waits until a condition holds.
func (s *selected) await(what string, holds func() bool) {
	s.t.Helper()
	err := wait.PollUntilContextTimeout(s.t.Context(), time.Millisecond, time.Minute, true, func(context.Context) (bool, error) { return holds(), nil })
	if err != nil {
		s.t.Fatalf("%s: %v; the cache has %v", what, err, s.pods())
	}
}

// want fails unless the cache has these pods now.
func (s *selected) want(pods ...string) {
	s.t.Helper()
	if got := s.pods(); !slices.Equal(got, pods) {
		s.t.Errorf("the cache has %v, want %v", got, pods)
	}
}

func TestACacheHasThePodsOfAShardAsSoonAsItIsFollowed(t *testing.T) {
	t.Parallel()
	s := selectPods(t, clock.RealClock{})
	s.add("earlier", "1-of-4")
	first := s.add("first", "1-of-2")
	s.add("second", "2-of-2")
	s.add("plain", "")
	s.await("pods of no shard", func() bool { return len(s.pods()) == 2 })

	s.await("the first shard is followed", func() bool { return s.follow(0) })
	s.want("earlier", "first", "plain")
	s.await("both shards are followed", func() bool { return s.follow(0) && s.follow(1) })
	s.want("earlier", "first", "plain", "second")

	s.leave(0)
	s.await("the first shard is left", func() bool { return len(s.pods()) == 3 })
	s.want("earlier", "plain", "second")
	// What happens meanwhile is known when the shard is followed again.
	if err := s.api.Delete(t.Context(), first, client.GracePeriodSeconds(0)); err != nil {
		t.Fatal(err)
	}
	s.add("third", "1-of-2")
	s.await("the first shard is followed again", func() bool { return s.follow(0) })
	s.want("earlier", "plain", "second", "third")
	s.add("fourth", "1-of-2")
	s.await("its watch continues", func() bool { return len(s.pods()) == 5 })
}

// minutes is a clock that runs, and can be set forward.
type minutes struct {
	clock.RealClock
	ahead *clocktesting.FakePassiveClock
}

// Now implements clock.PassiveClock.
func (m minutes) Now() time.Time { return m.ahead.Now() }

func TestTheAllocatorsCacheHasThePodsOfAllShardsWhileItReadsThem(t *testing.T) {
	t.Parallel()
	ahead := clocktesting.NewFakePassiveClock(time.Now())
	s := selectPods(t, minutes{ahead: ahead})
	s.add("first", "1-of-2")
	s.add("second", "2-of-2")
	s.await("the first shard is followed", func() bool { return s.follow(0) })
	s.want("first")
	if err := s.Everything(t.Context()); err != nil {
		t.Fatal(err)
	}
	s.want("first", "second")
	s.narrow()
	s.add("third", "2-of-2")
	s.await("all pods are watched", func() bool { return len(s.pods()) == 3 })

	ahead.SetTime(ahead.Now().Add(keepEverything + time.Second))
	s.narrow()
	s.await("they are no longer read", func() bool { return len(s.pods()) == 1 })
	s.want("first")
}

// server answers watches with a status, and remembers the selectors.
type server struct {
	status    int
	selectors []string
}

// RoundTrip implements http.RoundTripper.
func (s *server) RoundTrip(request *http.Request) (*http.Response, error) {
	s.selectors = append(s.selectors, request.URL.Query().Get("labelSelector"))
	return &http.Response{StatusCode: s.status, Body: io.NopCloser(strings.NewReader(""))}, nil
}

// send sends a request for pods, and returns the status and the selector; "none" if no request was sent.
func send(t *testing.T, through http.RoundTripper, to *server, query string) string {
	t.Helper()
	to.selectors = nil
	request, err := http.NewRequestWithContext(t.Context(), http.MethodGet, "https://cluster/api/v1/pods?"+query, http.NoBody)
	if err != nil {
		t.Fatal(err)
	}
	response, err := through.RoundTrip(request)
	if err != nil {
		t.Fatal(err)
	}
	if err := response.Body.Close(); err != nil {
		t.Fatal(err)
	}
	return fmt.Sprintf("%d %s", response.StatusCode, strings.Join(append(to.selectors, "none")[:1], ""))
}

func TestAWatchContinuesOnlyWithTheSelectorOfItsList(t *testing.T) {
	t.Parallel()
	const none, second = "200 diengine/shard notin (1-of-2,2-of-2)", "200 app=a,diengine/shard notin (2-of-2)"
	watches, to := NewWatches(2, clock.RealClock{}), &server{status: http.StatusOK}
	config := &rest.Config{}
	watches.Wrap(config, isPods)
	through := config.WrapTransport(to)
	for _, step := range []struct {
		do          func()
		query, want string
	}{
		{nil, "watch=true&sendInitialEvents=true", none},
		{nil, "watch=true", none},
		{nil, "limit=500", "200 "},
		{func() { watches.follow(0) }, "watch=true", "410 none"},
		{nil, "watch=true", "410 none"},
		{nil, "watch=true&sendInitialEvents=true&labelSelector=app%3Da", second},
		{nil, "watch=true&labelSelector=app%3Da", second},
		{func() { watches.follow(0) }, "watch=true&labelSelector=app%3Da", second},
		{func() { watches.follow(1) }, "watch=true&sendInitialEvents=true", "200 "},
		{nil, "watch=true", "200 "},
	} {
		if step.do != nil {
			step.do()
		}
		if got := send(t, through, to, step.query); got != step.want {
			t.Errorf("%s is answered %q, want %q", step.query, got, step.want)
		}
	}
}

func TestAnAPIServerThatCannotListByAWatchSendsThePodsOfAllShards(t *testing.T) {
	t.Parallel()
	watches, to := NewWatches(2, clock.RealClock{}), &server{status: http.StatusUnprocessableEntity}
	config := &rest.Config{}
	watches.Wrap(config, isPods)
	through := config.WrapTransport(to)
	if watches.follow(0) {
		t.Error("the cache has pods before a watch began")
	}
	send(t, through, to, "watch=true&sendInitialEvents=true")
	to.status = http.StatusOK
	for shard := range 2 {
		if got := send(t, through, to, "watch=true"); got != "200 " {
			t.Errorf("the watch is answered %q, want all pods", got)
		}
		if !watches.follow(shard) {
			t.Errorf("the cache does not have the pods of shard %d", shard+1)
		}
	}
}

func TestAListThatIsAsOldAsTheCacheIsInItAfterSomeTime(t *testing.T) {
	t.Parallel()
	fake := clocktesting.NewFakeClock(time.Now())
	watches, to := NewWatches(2, fake), &server{status: http.StatusOK}
	version := "7"
	watches.Bind(func() string { return version })
	config := &rest.Config{}
	watches.Wrap(config, isPods)
	request, err := http.NewRequestWithContext(t.Context(), http.MethodGet, "https://cluster/api/v1/pods", http.NoBody)
	if err != nil {
		t.Fatal(err)
	}
	watches.follow(0)
	for listed, want := range map[string][2]bool{"7": {false, true}, "9": {false, false}} {
		send(t, config.WrapTransport(to), to, "watch=true&sendInitialEvents=true")
		if watches.Listed(request, listed); watches.follow(0) != want[0] {
			t.Errorf("at once, a list with version %s is in the cache: %v", listed, !want[0])
		}
		if fake.Step(settleTime); watches.follow(0) != want[1] {
			t.Errorf("after a while, a list with version %s is in the cache: %v", listed, !want[1])
		}
	}
	send(t, config.WrapTransport(to), to, "watch=true&sendInitialEvents=true")
	watches.Listed(request, "9")
	if version = "10"; !watches.follow(0) {
		t.Error("the cache has a later version than the list, but not the list")
	}
}

func TestAPodIsMarkedWithTheShardOfItsJob(t *testing.T) {
	t.Parallel()
	job, shared := types.NamespacedName{Namespace: "default", Name: "cartpole"}, map[string]string{"app": "a"}
	pod := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Labels: shared}}
	(*Held)(nil).Mark(pod, job)
	if len(pod.Labels) != 1 {
		t.Errorf("with one shard, the labels are %v", pod.Labels)
	}
	NewHeld(4).Mark(pod, job)
	if pod.Labels[names.LabelShard] != "3-of-4" || len(shared) != 1 {
		t.Errorf("the labels are %v, and those of the template %v", pod.Labels, shared)
	}
}
