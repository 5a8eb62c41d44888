// Copyright The DI Orchestrator Authors.
// SPDX-License-Identifier: Apache-2.0

package scope

import (
	"fmt"
	"maps"
	"slices"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/cache"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"opendilab.org/di-orchestrator/apis/v2alpha1"
	"opendilab.org/di-orchestrator/test/testkit/expect"
)

func config() types.NamespacedName {
	return types.NamespacedName{Namespace: "di-system", Name: "aggregator-config"}
}

func must(t *testing.T, watched ...string) Namespaces {
	t.Helper()
	namespaces, err := New(watched, config())
	expect.NoError(t, err)
	return namespaces
}

func TestWhatIsNoNamespaceIsRefusedByItsName(t *testing.T) {
	t.Parallel()
	many := make([]string, MaxNamespaces+1)
	for i := range many {
		many[i] = fmt.Sprintf("team-%d", i)
	}
	for want, watched := range map[string][]string{`"Team A" is no name of a namespace`: {"Team A"}, `"" is no name`: {""}, "at most 256": many} {
		if _, err := New(watched, config()); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("got %v, want an error with %s", err, want)
		}
	}
}

func TestACacheWatchesTheNamespacesAndTheClustersAggregatorConfig(t *testing.T) {
	t.Parallel()
	all := must(t)
	if restricted := all.Cache(cache.Options{}); restricted.DefaultNamespaces != nil || all.Watches("pods") != 1 {
		t.Errorf("got %v and %d watches, want no restriction", restricted.DefaultNamespaces, all.Watches("pods"))
	}
	some := must(t, "a", "b", "a")
	restricted := some.Cache(cache.Options{})
	if got := slices.Sorted(maps.Keys(restricted.DefaultNamespaces)); !slices.Equal(got, []string{"a", "b"}) {
		t.Errorf("got %v, want a and b", got)
	}
	for object, by := range restricted.ByObject {
		if got := slices.Sorted(maps.Keys(by.Namespaces)); !slices.Equal(got, []string{"a", "b", "di-system"}) {
			t.Errorf("of %T it watches %v", object, got)
		}
	}
	if pods, configs := some.Watches("pods"), some.Watches("aggregatorconfigs"); pods != 2 || configs != 3 {
		t.Errorf("got %d watches of pods and %d of AggregatorConfigs, want 2 and 3", pods, configs)
	}
}

func TestObjectsOfOtherNamespacesDoNotExist(t *testing.T) {
	t.Parallel()
	// A read that is passed on panics.
	read := must(t, "a").Reader(nil)
	passes := func(do func() error) (err error, passed bool) {
		defer func() { passed = recover() != nil }()
		return do(), false
	}
	for _, tc := range []struct {
		namespace string
		object    client.Object
		list      client.ObjectList
		passes    bool
	}{
		{"a", &corev1.Pod{}, &corev1.PodList{}, true},
		{"b", &corev1.Pod{}, &corev1.PodList{}, false},
		{"", &corev1.Node{}, &corev1.NodeList{}, true},
		{"di-system", &corev1.Pod{}, &corev1.PodList{}, false},
		{"di-system", &v2alpha1.AggregatorConfig{}, &v2alpha1.AggregatorConfigList{}, true},
		{"b", &v2alpha1.AggregatorConfig{}, &v2alpha1.AggregatorConfigList{}, false},
	} {
		err, passed := passes(func() error {
			return read.Get(t.Context(), client.ObjectKey{Namespace: tc.namespace, Name: "x"}, tc.object)
		})
		if passed != tc.passes || !passed && !apierrors.IsNotFound(err) {
			t.Errorf("getting %T in %q: got %v, passed on: %v", tc.object, tc.namespace, err, passed)
		}
		err, passed = passes(func() error { return read.List(t.Context(), tc.list, client.InNamespace(tc.namespace)) })
		if passed != tc.passes || err != nil {
			t.Errorf("listing %T in %q: got %v, passed on: %v", tc.list, tc.namespace, err, passed)
		}
	}
}
