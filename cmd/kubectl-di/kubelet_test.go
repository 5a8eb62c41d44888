// Copyright The DI Orchestrator Authors.
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"errors"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"testing"

	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	"k8s.io/streaming/pkg/httpstream"
	"k8s.io/streaming/pkg/httpstream/spdy"

	"opendilab.org/di-orchestrator/apis/v2alpha1"
	"opendilab.org/di-orchestrator/test/testkit"
	"opendilab.org/di-orchestrator/test/testkit/expect"
)

// kubelet implements the port forwarding of a kubelet. Each connection leads to di-server, for any
// pod.
type kubelet struct {
	*httptest.Server
	node string
	to   string

	mutex    sync.Mutex
	cuts     int
	forwards int
}

// newKubelet starts a kubelet that cuts the first connections, and creates its node.
func (w *world) newKubelet(t *testing.T, cuts int) *kubelet {
	t.Helper()
	k := &kubelet{to: strings.TrimPrefix(w.url, "http://"), cuts: cuts}
	k.Server = httptest.NewTLSServer(http.HandlerFunc(k.portForward))
	t.Cleanup(k.Close)
	k.node = w.kubelet(t, k.Server)
	return k
}

// kubelet creates a node whose kubelet is the server, and returns its name.
func (w *world) kubelet(t *testing.T, server *httptest.Server) string {
	t.Helper()
	node, err := testkit.CreateNode(t.Context(), w.live, server)
	expect.NoError(t, err)
	return node
}

func (k *kubelet) portForward(w http.ResponseWriter, r *http.Request) {
	if _, err := httpstream.Handshake(r, w, []string{"portforward.k8s.io"}); err != nil {
		return
	}
	streams := make(chan httpstream.Stream, 8)
	connection := spdy.NewResponseUpgrader().UpgradeResponse(w, r, func(stream httpstream.Stream, _ <-chan struct{}) error {
		streams <- stream
		return nil
	})
	if connection == nil {
		return
	}
	defer connection.Close() //nolint:errcheck // the test is over
	for {
		select {
		case <-connection.CloseChan():
			return
		case stream := <-streams:
			if stream.Headers().Get(corev1.StreamType) != corev1.StreamTypeData {
				// The error stream reports nothing: a closed one means success.
				_ = stream.Close()
				continue
			}
			if k.cut() {
				return
			}
			go k.join(r, stream)
		}
	}
}

// cut counts a connection and reports whether it must be cut.
func (k *kubelet) cut() bool {
	k.mutex.Lock()
	defer k.mutex.Unlock()
	k.forwards++
	return k.forwards <= k.cuts
}

// count returns the number of connections.
func (k *kubelet) count() int {
	k.mutex.Lock()
	defer k.mutex.Unlock()
	return k.forwards
}

func (k *kubelet) join(r *http.Request, stream httpstream.Stream) {
	connection, err := (&net.Dialer{}).DialContext(r.Context(), "tcp", k.to)
	if err != nil {
		_ = stream.Reset()
		return
	}
	go func() {
		_, err := io.Copy(connection, stream)
		_ = errors.Join(err, connection.Close())
	}()
	_, err = io.Copy(stream, connection)
	_ = errors.Join(err, stream.Close())
}

// TestDIServerIsReachedThroughTheAPIServer connects to di-server like a user by default: through
// the API server and a kubelet.
func TestDIServerIsReachedThroughTheAPIServer(t *testing.T) {
	t.Parallel()
	w, ns := inNamespace(t)
	job := w.trainer(t, ns, "cartpole")
	w.workers(t, ns, "pong", v2alpha1.Task{Type: v2alpha1.TaskTypeCollector})
	kubelet := w.newKubelet(t, 0)
	w.readyServer(t, ns, kubelet.node)
	for _, args := range [][]string{
		{"add", "collectors", "cartpole", "--replicas", "2"}, {"delete", "collector", "cartpole"}, {"add", "collector", "pong"},
	} {
		got := w.run(t, ns, append(args, "--server-namespace", ns)...)
		if got.code != 0 || got.stderr != "" {
			t.Errorf("%v: got %+v", args, got)
		}
	}
	if members := w.members(t, job, v2alpha1.TaskTypeCollector); len(members) != 1 || kubelet.count() != 3 {
		t.Errorf("%d connections led to %+v", kubelet.count(), members)
	}
}

// TestDIServerIsReachedWhereARoleAllowsNoWebsocket connects to di-server by SPDY, through a kubelet
// that cuts the first two connections.
func TestDIServerIsReachedWhereARoleAllowsNoWebsocket(t *testing.T) {
	t.Parallel()
	w, ns := inNamespace(t)
	job := w.trainer(t, ns, "cartpole")
	kubelet := w.newKubelet(t, 2)
	w.readyServer(t, ns, kubelet.node)
	for resource, verb := range map[string]string{
		"pods": "get", "services": "get", "serviceaccounts/token": "create", "pods/portforward": "create",
	} {
		rule := rule("", resource, verb)
		rule.Verbs = append(rule.Verbs, map[string][]string{"pods": {"list"}}[resource]...)
		w.grant(t, ns, user("bob"), rule)
	}
	w.grant(t, ns, user("bob"), rbacv1.PolicyRule{APIGroups: []string{v2alpha1.GroupName}, Resources: []string{"dijobs"}, Verbs: []string{"get"}})
	got := w.run(t, ns, "add", "collector", "cartpole", "--as", "bob", "--server-namespace", ns)
	if got.code != 0 || strings.Count(got.stderr, "calling again") != 2 || kubelet.count() != 3 {
		t.Errorf("%d connections, got %+v", kubelet.count(), got)
	}
	if members := w.members(t, job, v2alpha1.TaskTypeCollector); len(members) != 1 {
		t.Errorf("the collectors became %+v", members)
	}
}
