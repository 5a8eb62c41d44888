// Copyright The DI Orchestrator Authors.
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"net"
	"net/http"
	"net/http/httputil"
	"net/url"
	"os"
	"path/filepath"
	"strings"
	"sync"

	"k8s.io/client-go/rest"
)

// deadly is a way to the API server on which the operator dies right after one
// of its writes, before it has the answer.
type deadly struct {
	server   *http.Server
	listener net.Listener

	// mutex guards what follows.
	mutex sync.Mutex
	// left is how many writes until then, 0 for none.
	left int
	// kill ends the operator; dead is told what the write was.
	kill func() error
	dead chan string
	err  error
}

// newDeadly starts a way to the API server by which who uses it is the operator's user.
func (w *world) newDeadly(ctx context.Context) (*deadly, error) {
	user, err := w.User(userOperator)
	if err != nil {
		return nil, err
	}
	transport, err := rest.TransportFor(user.Config())
	if err != nil {
		return nil, fmt.Errorf("a way to the API server: %w", err)
	}
	target, _, err := rest.DefaultServerUrlFor(user.Config())
	if err != nil {
		return nil, fmt.Errorf("a way to the API server: %w", err)
	}
	d := &deadly{dead: make(chan string, 1)}
	if d.listener, err = (&net.ListenConfig{}).Listen(ctx, "tcp", "127.0.0.1:0"); err != nil {
		return nil, fmt.Errorf("a way to the API server: %w", err)
	}
	d.server = &http.Server{Handler: d.proxy(target, transport), ReadHeaderTimeout: patience}
	go func() { _ = d.server.Serve(d.listener) }()
	return d, nil
}

func (d *deadly) proxy(target *url.URL, transport http.RoundTripper) *httputil.ReverseProxy {
	return &httputil.ReverseProxy{
		Transport: transport,
		// Watches are passed on as they come.
		FlushInterval: -1,
		Rewrite:       func(request *httputil.ProxyRequest) { request.SetURL(target) },
		ModifyResponse: func(response *http.Response) error {
			d.count(response)
			return nil
		},
		// The one who asked may be dead.
		ErrorHandler: func(answer http.ResponseWriter, _ *http.Request, _ error) { answer.WriteHeader(http.StatusBadGateway) },
	}
}

// count counts what the API server did of what was written, but for Events.
func (d *deadly) count(answered *http.Response) {
	request := answered.Request
	read := request.Method == http.MethodGet || request.Method == http.MethodHead
	if read || answered.StatusCode >= http.StatusMultipleChoices || strings.Contains(request.URL.Path, "/events") {
		return
	}
	d.mutex.Lock()
	defer d.mutex.Unlock()
	if d.left == 0 {
		return
	}
	if d.left--; d.left == 0 {
		d.err = d.kill()
		d.dead <- request.Method + " " + request.URL.Path
	}
}

// arm lets the operator die after so many writes more.
func (d *deadly) arm(writes int, kill func() error) {
	d.mutex.Lock()
	defer d.mutex.Unlock()
	d.left, d.kill = writes, kill
}

// wait returns after which write the operator died.
func (d *deadly) wait(ctx context.Context) (string, error) {
	ctx, cancel := context.WithTimeoutCause(ctx, patience, errors.New("the operator writes too little to die"))
	defer cancel()
	select {
	case <-ctx.Done():
		return "", context.Cause(ctx)
	case last := <-d.dead:
		d.mutex.Lock()
		defer d.mutex.Unlock()
		return last, d.err
	}
}

// kubeconfig returns the environment by which a process goes this way.
func (d *deadly) kubeconfig(folder string) (string, error) {
	const content = `{"apiVersion":"v1","kind":"Config","current-context":"it","contexts":[{"name":"it","context":{"cluster":"it","user":"it"}}],
"clusters":[{"name":"it","cluster":{"server":"http://%s"}}],"users":[{"name":"it"}]}`
	path := filepath.Join(folder, "deadly.kubeconfig")
	if err := os.WriteFile(path, fmt.Appendf(nil, content, d.listener.Addr()), 0o600); err != nil {
		return "", fmt.Errorf("writing a kubeconfig: %w", err)
	}
	return "KUBECONFIG=" + path, nil
}

// stop stops it.
func (d *deadly) stop() error { return d.server.Close() }

// pick returns one of several.
func pick[T any](random *rand.Rand, of []T) T { return of[random.IntN(len(of))] }
