// Copyright The DI Orchestrator Authors.
// SPDX-License-Identifier: Apache-2.0

package server

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"time"

	"github.com/gin-gonic/gin"
)

// serveBare serves a constant body of the given size with an empty handler, which measures the cost
// of HTTP and gin. It prints its address in one line and exits when its input is closed.
func serveBare(ctx context.Context, size int, in io.Reader, out io.Writer) error {
	body := make([]byte, size)
	for i := range body {
		body[i] = 'x'
	}
	gin.SetMode(gin.ReleaseMode)
	engine := gin.New()
	engine.GET("/v1alpha1/replicas", func(c *gin.Context) { c.Data(http.StatusOK, "application/json", body) })
	listener, err := (&net.ListenConfig{}).Listen(ctx, "tcp", "127.0.0.1:0")
	if err != nil {
		return fmt.Errorf("listening: %w", err)
	}
	server := &http.Server{Handler: engine, ReadHeaderTimeout: time.Minute}
	failed := make(chan error, 1)
	go func() { failed <- server.Serve(listener) }()
	go func() {
		_, _ = io.Copy(io.Discard, in)
		_ = server.Close()
	}()
	fmt.Fprintln(out, listener.Addr())
	if err := <-failed; !errors.Is(err, http.ErrServerClosed) {
		return fmt.Errorf("serving: %w", err)
	}
	return nil
}
