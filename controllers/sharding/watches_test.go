// Copyright The DI Orchestrator Authors.
// SPDX-License-Identifier: Apache-2.0

package sharding

import (
	"context"
	"slices"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/wait"
	"k8s.io/apimachinery/pkg/watch"
	toolscache "k8s.io/client-go/tools/cache"
	"k8s.io/utils/clock"
	clocktesting "k8s.io/utils/clock/testing"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/cache"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"opendilab.org/di-orchestrator/internal/names"
	"opendilab.org/di-orchestrator/test/testkit"
	"opendilab.org/di-orchestrator/test/testkit/expect"
)

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
	expect.NoError(t, err)
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
	expect.NoError(t, err)
	if s.cache, err = cache.New(config, cache.Options{NewInformer: s.NewInformer}); err != nil {
		t.Fatal(err)
	}
	if _, err := s.cache.GetInformer(t.Context(), &corev1.Pod{}, cache.BlockUntilSynced(false)); err != nil {
		t.Fatal(err)
	}
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
	expect.NoError(s.t, s.api.Create(s.t.Context(), pod))
	return pod
}

// pods returns the names of the pods in the cache.
func (s *selected) pods() []string {
	s.t.Helper()
	var list corev1.PodList
	expect.NoError(s.t, s.cache.List(s.t.Context(), &list))
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
	expect.NoError(t, s.api.Delete(t.Context(), first, client.GracePeriodSeconds(0)))
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
	expect.NoError(t, s.Everything(t.Context()))
	s.want("first", "second")
	s.narrow()
	s.add("third", "2-of-2")
	s.await("all pods are watched", func() bool { return len(s.pods()) == 3 })

	ahead.SetTime(ahead.Now().Add(keepEverything + time.Second))
	s.narrow()
	s.await("they are no longer read", func() bool { return len(s.pods()) == 1 })
	s.want("first")
}

// asked is an API that remembers the selectors of requests, and answers with empty lists and watches.
type asked struct {
	version   string
	selectors []string
	watch     *watch.FakeWatcher
}

// informed is a stream of pods whose informer has not started, and the version of the informer's store.
type informed struct {
	*stream
	api    *asked
	stored string
}

func inform(t *testing.T, watches *Watches) *informed {
	t.Helper()
	i := &informed{api: &asked{version: "7"}}
	watches.NewInformer(&toolscache.ListWatch{
		ListWithContextFunc: func(_ context.Context, options metav1.ListOptions) (runtime.Object, error) {
			i.api.selectors = append(i.api.selectors, options.LabelSelector)
			return &corev1.PodList{ListMeta: metav1.ListMeta{ResourceVersion: i.api.version}}, nil
		},
		WatchFuncWithContext: func(_ context.Context, options metav1.ListOptions) (watch.Interface, error) {
			i.api.selectors = append(i.api.selectors, options.LabelSelector)
			i.api.watch = watch.NewFake()
			return i.api.watch, nil
		},
	}, &corev1.Pod{}, 0, toolscache.Indexers{})
	i.stream = watches.streams[len(watches.streams)-1]
	i.store = &toolscache.FakeCustomStore{LastStoreSyncResourceVersionFunc: func() string { return i.stored }}
	return i
}

// ask sends a request, and returns the selector that the API got, or why it got none.
func (i *informed) ask(t *testing.T, isWatch bool, options metav1.ListOptions) string {
	t.Helper()
	i.api.selectors = nil
	var err error
	if isWatch {
		_, err = i.watch(t.Context(), options)
	} else {
		_, err = i.list(t.Context(), options)
	}
	if err != nil {
		return string(apierrors.ReasonForError(err))
	}
	return strings.Join(i.api.selectors, ";")
}

func TestAWatchContinuesOnlyWithTheSelectorOfItsList(t *testing.T) {
	t.Parallel()
	const none, second = "diengine/shard notin (1-of-2,2-of-2)", "app=a,diengine/shard notin (2-of-2)"
	watches := NewWatches(2, clock.RealClock{})
	i := inform(t, watches)
	list, own := metav1.ListOptions{SendInitialEvents: ptr.To(true)}, metav1.ListOptions{LabelSelector: "app=a"}
	ownList := own
	ownList.SendInitialEvents = list.SendInitialEvents
	for at, step := range []struct {
		do      func()
		isWatch bool
		options metav1.ListOptions
		want    string
	}{
		{nil, true, list, none},
		{nil, true, metav1.ListOptions{}, none},
		{nil, false, metav1.ListOptions{}, none},
		{func() { watches.follow(0) }, true, metav1.ListOptions{}, "Expired"},
		{nil, false, metav1.ListOptions{Continue: "2"}, "Expired"},
		{nil, true, ownList, second},
		{nil, true, own, second},
		{nil, false, own, second},
		{func() { watches.follow(0) }, true, own, second},
		{func() { watches.follow(1) }, true, list, ""},
		{nil, true, metav1.ListOptions{}, ""},
	} {
		if step.do != nil {
			step.do()
		}
		if got := i.ask(t, step.isWatch, step.options); got != step.want {
			t.Errorf("step %d is answered %q, want %q", at, got, step.want)
		}
	}
}

func TestAChangeOfTheShardsStopsTheWatch(t *testing.T) {
	t.Parallel()
	watches := NewWatches(2, clock.RealClock{})
	i := inform(t, watches)
	i.ask(t, true, metav1.ListOptions{SendInitialEvents: ptr.To(true)})
	if watches.follow(0); !i.api.watch.IsStopped() {
		t.Error("the watch continues")
	}
}

func TestAListThatIsAsOldAsTheCacheIsInItAfterSomeTime(t *testing.T) {
	t.Parallel()
	fake := clocktesting.NewFakeClock(time.Now())
	watches := NewWatches(2, fake)
	i := inform(t, watches)
	i.stored = "7"
	watches.follow(0)
	for listed, want := range map[string][2]bool{"7": {false, true}, "9": {false, false}} {
		i.api.version = listed
		i.ask(t, false, metav1.ListOptions{})
		if watches.follow(0) != want[0] {
			t.Errorf("at once, a list with version %s is in the cache: %v", listed, !want[0])
		}
		if fake.Step(settleTime); watches.follow(0) != want[1] {
			t.Errorf("after a while, a list with version %s is in the cache: %v", listed, !want[1])
		}
	}
	i.api.version = "9"
	i.ask(t, false, metav1.ListOptions{})
	if i.stored = "10"; !watches.follow(0) {
		t.Error("the cache has a later version than the list, but not the list")
	}
}

func TestAListByAWatchEndsWithItsBookmark(t *testing.T) {
	t.Parallel()
	watches := NewWatches(2, clock.RealClock{})
	i := inform(t, watches)
	i.stored = "5"
	opened, err := i.watch(t.Context(), metav1.ListOptions{SendInitialEvents: ptr.To(true)})
	expect.NoError(t, err)
	end := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{ResourceVersion: "7"}}
	for _, isEnd := range []bool{false, true} {
		if isEnd {
			end.Annotations = map[string]string{metav1.InitialEventsAnnotationKey: "true"}
		}
		i.api.watch.Action(watch.Bookmark, end)
		<-opened.ResultChan()
		watches.mutex.Lock()
		got := i.version
		watches.mutex.Unlock()
		if want := map[bool]string{false: "", true: "7"}[isEnd]; got != want {
			t.Errorf("after a bookmark the version of the list is %q, want %q", got, want)
		}
	}
	opened.Stop()
	if _, isOpen := <-opened.ResultChan(); isOpen {
		t.Error("a stopped watch sends more")
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
