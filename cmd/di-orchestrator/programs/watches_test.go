// Copyright The DI Orchestrator Authors.
// SPDX-License-Identifier: Apache-2.0

package programs

import (
	"io"
	"net/http"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"

	"opendilab.org/di-orchestrator/internal/names"
)

// counted counts the reads of a body, and whether it was closed.
type counted struct {
	io.Reader
	reads  int
	closed bool
}

func (c *counted) Read(into []byte) (int, error) {
	c.reads++
	return c.Reader.Read(into)
}

func (c *counted) Close() error {
	c.closed = true
	return nil
}

// transport answers each request with a body.
type transport struct{ body *counted }

func (t transport) RoundTrip(*http.Request) (*http.Response, error) {
	return &http.Response{StatusCode: http.StatusOK, Body: t.body}, nil
}

func TestOnlyWatchesAreReadThroughABuffer(t *testing.T) {
	t.Parallel()
	for query, want := range map[string]int{"?watch=true": 1, "?limit=500": 3} {
		t.Run(query, func(t *testing.T) {
			t.Parallel()
			body, config := &counted{Reader: strings.NewReader("threeparts...")}, &rest.Config{}
			thinWatches(config)
			request, err := http.NewRequestWithContext(t.Context(), http.MethodGet, "https://cluster/api/v1/pods"+query, http.NoBody)
			if err != nil {
				t.Fatal(err)
			}
			response, err := config.WrapTransport(transport{body}).RoundTrip(request)
			if err != nil {
				t.Fatal(err)
			}
			for _, part := range []string{"three", "parts", "..."} {
				got := make([]byte, len(part))
				if _, err := io.ReadFull(response.Body, got); err != nil || string(got) != part {
					t.Errorf("the body has %q (%v), want %q", got, err, part)
				}
			}
			if body.reads != want {
				t.Errorf("three parts were read by %d reads, want %d", body.reads, want)
			}
			if err := response.Body.Close(); err != nil || !body.closed {
				t.Errorf("the body is not closed: %v", err)
			}
		})
	}
}

func TestAWatchReturnsAnEventBeforeTheNextOneArrives(t *testing.T) {
	t.Parallel()
	reader, writer := io.Pipe()
	config := &rest.Config{}
	thinWatches(config)
	request, err := http.NewRequestWithContext(t.Context(), http.MethodGet, "https://cluster/api/v1/pods?watch=true", http.NoBody)
	if err != nil {
		t.Fatal(err)
	}
	response, err := config.WrapTransport(transport{&counted{Reader: reader}}).RoundTrip(request)
	if err != nil {
		t.Fatal(err)
	}
	for _, event := range []string{"first", "second"} {
		go func() { _, _ = io.WriteString(writer, event) }()
		got := make([]byte, len(event))
		if _, err := io.ReadFull(response.Body, got); err != nil || string(got) != event {
			t.Errorf("the watch has %q (%v), want %q", got, err, event)
		}
	}
	if err := response.Body.Close(); err != nil {
		t.Error(err)
	}
}

func TestAWatchOfPodsLeavesOutWhatNoDecisionReads(t *testing.T) {
	t.Parallel()
	environment := startAPI(t)
	variables := []corev1.EnvVar{{Name: names.EnvDIJobID, Value: "team.job"}, {Name: "USER", Value: "someone"}}
	pod := &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{Name: "learner", Labels: map[string]string{names.LabelOperator: names.ControllerName}},
		Spec:       corev1.PodSpec{Containers: []corev1.Container{{Name: "di-container", Image: "di", Command: []string{"train"}, Env: variables}}},
	}
	plain := kubernetes.NewForConfigOrDie(environment.Config)
	if _, err := plain.CoreV1().Pods("default").Create(t.Context(), pod, metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	for kind, whole := range map[string]bool{"application/vnd.kubernetes.protobuf": false, "application/json": true} {
		config := rest.CopyConfig(environment.Config)
		config.AcceptContentTypes = kind
		thinWatches(config)
		for _, namespace := range []string{"default", metav1.NamespaceAll} {
			got := firstOf(t, kubernetes.NewForConfigOrDie(config), namespace)
			if got.Name != "learner" || got.UID == "" || got.Labels[names.LabelOperator] != names.ControllerName || got.Spec.Containers[0].Env[0] != variables[0] {
				t.Errorf("with %s the watch lost what decisions read: %v", kind, got)
			}
			container := got.Spec.Containers[0]
			if has := len(got.ManagedFields) > 0 || len(got.Spec.Tolerations) > 0 || len(container.Command) > 0 || len(container.Env) > 1; has != whole {
				t.Errorf("with %s in namespace %q the watch is whole: %v, want %v", kind, namespace, has, whole)
			}
		}
	}
}

// firstOf returns the first pod that a watch returns.
func firstOf(t *testing.T, clients kubernetes.Interface, namespace string) *corev1.Pod {
	t.Helper()
	watching, err := clients.CoreV1().Pods(namespace).Watch(t.Context(), metav1.ListOptions{})
	if err != nil {
		t.Fatal(err)
	}
	defer watching.Stop()
	event := <-watching.ResultChan()
	pod, is := event.Object.(*corev1.Pod)
	if !is {
		t.Fatalf("the watch has %v", event.Object)
	}
	return pod
}
