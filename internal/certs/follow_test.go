// Copyright The DI Orchestrator Authors.
// SPDX-License-Identifier: Apache-2.0

package certs

import (
	"bytes"
	"context"
	"testing"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/watch"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"

	"opendilab.org/di-orchestrator/test/testkit/expect"
)

// watched is an API server that sends each watch of Secrets to a channel.
type watched struct {
	client.WithWatch
	// opened receives the watches that were opened.
	opened chan *watch.FakeWatcher
}

// newWatched returns an API server whose old resource versions have expired.
func newWatched(objects ...client.Object) *watched {
	w := &watched{opened: make(chan *watch.FakeWatcher)}
	w.WithWatch = fake.NewClientBuilder().WithObjects(objects...).WithInterceptorFuncs(interceptor.Funcs{
		Watch: func(ctx context.Context, _ client.WithWatch, _ client.ObjectList, options ...client.ListOption) (watch.Interface, error) {
			asked := (&client.ListOptions{}).ApplyOptions(options)
			if asked.Raw != nil && asked.Raw.ResourceVersion != "" {
				return nil, apierrors.NewResourceExpired("too old resource version: " + asked.Raw.ResourceVersion)
			}
			watching := watch.NewFake()
			select {
			case w.opened <- watching:
				return watching, nil
			case <-ctx.Done():
				return nil, ctx.Err()
			}
		},
	}).Build()
	return w
}

// following is the result of a call of Next.
type following struct {
	serving *Serving
	err     error
}

func follow(t *testing.T, next func(context.Context, *Serving) (*Serving, error), current *Serving) <-chan following {
	t.Helper()
	ended := make(chan following, 1)
	go func() {
		serving, err := next(t.Context(), current)
		ended <- following{serving, err}
	}()
	return ended
}

func first(t *testing.T, next func(context.Context, *Serving) (*Serving, error)) *Serving {
	t.Helper()
	serving, err := next(t.Context(), nil)
	expect.NoError(t, err)
	return serving
}

func (w *watched) secret(t *testing.T) *corev1.Secret {
	t.Helper()
	var secret corev1.Secret
	expect.NoError(t, w.Get(t.Context(), secretName(), &secret))
	return &secret
}

func TestACertificateIsFollowedThoughItsVersionIsForgotten(t *testing.T) {
	t.Parallel()
	clk := newClock()
	api := newWatched(&corev1.Secret{ObjectMeta: metav1.ObjectMeta{Namespace: "di-system", Name: "ca"}, Data: keptData(t, clk, "a.b.svc")})
	kept := &Kept{API: api, Secret: secretName(), Hosts: []string{"a.b.svc"}, Clock: clk}
	current := first(t, kept.Next)
	ended := follow(t, kept.Next, current)

	watching := <-api.opened
	secret := api.secret(t)
	watching.Add(secret.DeepCopy())
	secret.Labels = map[string]string{"touched": "by somebody"}
	watching.Modify(secret.DeepCopy())
	secret.Data = keptData(t, clk, "a.b.svc")
	expect.NoError(t, api.Update(t.Context(), secret))
	watching.Modify(secret.DeepCopy())
	got := <-ended
	if got.err != nil {
		t.Fatal(got.err)
	}
	if !bytes.Equal(got.serving.Bundle, secret.Data[BundleKey]) {
		t.Error("it is not what was written last that is served with")
	}
}

func TestWatchesThatEndAtOnceDoNotFollowEachOtherAtOnce(t *testing.T) {
	t.Parallel()
	clk := newClock()
	api := newWatched(&corev1.Secret{ObjectMeta: metav1.ObjectMeta{Namespace: "di-system", Name: "ca"}, Data: keptData(t, clk, "a.b.svc")})
	kept := &Kept{API: api, Secret: secretName(), Hosts: []string{"a.b.svc"}, Clock: clk}
	ended := follow(t, kept.Next, first(t, kept.Next))

	(<-api.opened).Stop()
	paused := clk.Waiters
	for paused() == 0 {
		select {
		case <-api.opened:
			t.Fatal("watched again at once")
		case got := <-ended:
			t.Fatalf("ended with %v", got.err)
		default:
		}
	}
	clk.Step(watchPause)
	again := <-api.opened
	status := apierrors.NewInternalError(context.DeadlineExceeded).Status()
	again.Error(&status)
	if got := <-ended; !apierrors.IsInternalError(got.err) {
		t.Errorf("got error %v, want the one that the watch ended with", got.err)
	}
}

func TestAllReplicasFollowToAnAuthorityThatIsMadeAnew(t *testing.T) {
	t.Parallel()
	clk := newClock()
	api := newWatched()
	own := &Own{API: api, Secret: secretName(), Hosts: []string{"a.b.svc"}, Clock: clk}
	one, other := first(t, own.Next), first(t, own.Next)
	if !bytes.Equal(one.Bundle, other.Bundle) {
		t.Fatal("two replicas serve by two authorities")
	}
	oneEnded := follow(t, own.Next, one)
	oneWatches := <-api.opened
	otherEnded := follow(t, own.Next, other)
	otherWatches := <-api.opened

	secret := api.secret(t)
	oneWatches.Add(secret)
	otherWatches.Add(secret)
	expect.NoError(t, api.Delete(t.Context(), secret))
	oneWatches.Delete(secret)
	otherWatches.Delete(secret)
	followed, followedToo := <-oneEnded, <-otherEnded
	if followed.err != nil || followedToo.err != nil {
		t.Fatal(followed.err, followedToo.err)
	}
	if bytes.Equal(followed.serving.Bundle, one.Bundle) || !bytes.Equal(followed.serving.Bundle, followedToo.serving.Bundle) {
		t.Error("the replicas do not serve by the one authority that was recreated")
	}
	if err := followed.serving.Verify(); err != nil {
		t.Error(err)
	}
}
