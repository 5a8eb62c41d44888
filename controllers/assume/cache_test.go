// Copyright The DI Orchestrator Authors.
// SPDX-License-Identifier: Apache-2.0

package assume

import (
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

func pod(name, uid, version string) *corev1.Pod {
	return &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: "space", Name: name, UID: types.UID(uid), ResourceVersion: version}}
}

func anyOwner(client.Object) bool { return true }

func TestAnObjectIsAssumedUntilTheCachesHaveIt(t *testing.T) {
	t.Parallel()
	start := time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC)
	owner := types.NamespacedName{Namespace: "space", Name: "job"}
	tests := map[string]struct {
		// event runs between the write and the next reconcile.
		event   func(*Cache)
		cached  []client.Object
		after   time.Duration
		disown  bool
		missing bool
	}{
		"at once":                                {missing: true},
		"a watch event delivers it":              {event: func(c *Cache) { c.Confirm(owner, pod("pod", "uid", "5")) }},
		"a watch event delivers a later version": {event: func(c *Cache) { c.Confirm(owner, pod("pod", "uid", "10")) }},
		"a watch event delivers an earlier version": {
			event: func(c *Cache) { c.Confirm(owner, pod("pod", "uid", "4")) }, missing: true,
		},
		"a watch event delivers another object": {event: func(c *Cache) { c.Confirm(owner, pod("other", "uid", "5")) }, missing: true},
		"a watch event delivers another type of the name": {
			event: func(c *Cache) { c.Confirm(owner, &corev1.Service{ObjectMeta: pod("pod", "uid", "5").ObjectMeta}) }, missing: true,
		},
		"a watch event of another owner": {
			event: func(c *Cache) {
				c.Confirm(types.NamespacedName{Namespace: "space", Name: "other"}, pod("pod", "uid", "5"))
			}, missing: true,
		},
		"a watch event reports its deletion in an earlier version": {event: func(c *Cache) { c.ConfirmDeleted(owner, pod("pod", "uid", "4")) }},
		"a watch event reports the deletion of its predecessor": {
			event: func(c *Cache) { c.ConfirmDeleted(owner, pod("pod", "old", "4")) }, missing: true,
		},
		"a watch event reports the deletion of its successor": {event: func(c *Cache) { c.ConfirmDeleted(owner, pod("pod", "new", "9")) }},
		"the caches have it":                      {cached: []client.Object{pod("pod", "uid", "5")}},
		"the caches have an earlier version":      {cached: []client.Object{pod("pod", "uid", "4")}, missing: true},
		"the caches have a version without order": {cached: []client.Object{pod("pod", "uid", "x")}},
		"no event comes until the TTL":            {after: TTL, missing: true},
		"no event comes after the TTL":            {after: TTL + 1},
		"another owner has the name":              {disown: true},
		"the owner is forgotten":                  {event: func(c *Cache) { c.Forget(owner) }},
	}
	for name, tc := range tests {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			var cache Cache
			cache.Assume(owner, pod("pod", "uid", "5"), start)
			if tc.event != nil {
				tc.event(&cache)
			}
			isOwned := func(client.Object) bool { return !tc.disown }
			missing := cache.Missing(owner, cache.List(owner), tc.cached, start.Add(tc.after), isOwned)
			if (len(missing) == 1) != tc.missing {
				t.Errorf("%d objects are missing, want any: %v", len(missing), tc.missing)
			}
			if cache.Has(owner) != tc.missing {
				t.Errorf("the owner has assumed objects: %v, want %v", cache.Has(owner), tc.missing)
			}
			if !tc.missing && len(cache.owners) > 0 {
				t.Errorf("%d owners are left, want none", len(cache.owners))
			}
		})
	}
}

func TestAnObjectThatIsConfirmedWhileTheCachesAreReadIsMissingFromNeither(t *testing.T) {
	t.Parallel()
	owner := types.NamespacedName{Namespace: "space", Name: "job"}
	now := time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC)
	var cache Cache
	cache.Assume(owner, pod("pod", "uid", "5"), now)
	listed := cache.List(owner)
	// The caches are read at this point, before they have the pod. Then an event delivers the pod.
	cache.Confirm(owner, pod("pod", "uid", "5"))
	if missing := cache.Missing(owner, listed, nil, now, anyOwner); len(missing) != 1 {
		t.Errorf("%d objects are missing, want the pod", len(missing))
	}
}

func TestTheLatestVersionIsTheCachedOneOrTheWrittenOne(t *testing.T) {
	t.Parallel()
	tests := map[string]struct{ cached, want *corev1.Pod }{
		"the cache is stale":        {pod("pod", "a", "9"), pod("pod", "a", "10")},
		"the cache is up to date":   {pod("pod", "a", "10"), pod("pod", "a", "10")},
		"the cache is newer":        {pod("pod", "a", "11"), pod("pod", "a", "11")},
		"the cache has a successor": {pod("pod", "b", "9"), pod("pod", "b", "9")},
		"versions have no order":    {pod("pod", "a", "x"), pod("pod", "a", "x")},
	}
	for name, tc := range tests {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			var cache Cache
			written := pod("pod", "a", "10")
			cache.Assume(client.ObjectKeyFromObject(written), written, time.Time{})
			for range 2 {
				got := Latest(&cache, tc.cached)
				if got.UID != tc.want.UID || got.ResourceVersion != tc.want.ResourceVersion {
					t.Errorf("latest is %s of version %s, want %s of %s", got.UID, got.ResourceVersion, tc.want.UID, tc.want.ResourceVersion)
				}
			}
		})
	}
}
