// Copyright The DI Orchestrator Authors.
// SPDX-License-Identifier: Apache-2.0

package cli

import (
	"slices"
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

func TestContainersAreThoseOfTheNamedPods(t *testing.T) {
	t.Parallel()
	pod := func(name string, before string, containers ...string) *corev1.Pod {
		made := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Name: name}}
		made.Spec.InitContainers = []corev1.Container{{Name: before}}
		for _, container := range containers {
			made.Spec.Containers = append(made.Spec.Containers, corev1.Container{Name: container})
		}
		return made
	}
	pods := []*corev1.Pod{pod("pong-learner-0", "get", "main", "tensorboard"), pod("pong-collector-0", "get", "main", "env")}
	for name, c := range map[string]struct{ named, want []string }{
		"all pods":          {nil, []string{"main", "tensorboard", "env", "get"}},
		"a pod by its name": {[]string{"pod/pong-collector-0"}, []string{"main", "env", "get"}},
		"a replica":         {[]string{"learner-0"}, []string{"main", "tensorboard", "get"}},
		"a pod of none":     {[]string{"nope"}, nil},
		"two of the pods":   {[]string{"learner-0", "collector-0"}, []string{"main", "tensorboard", "env", "get"}},
	} {
		if got := containersOf("pong", pods, c.named); !slices.Equal(got, c.want) {
			t.Errorf("%s: got %v, want %v", name, got, c.want)
		}
	}
}
