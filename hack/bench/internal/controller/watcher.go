// Copyright The DI Orchestrator Authors.
// SPDX-License-Identifier: Apache-2.0

package controller

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/pprof"

	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/informers"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/tools/cache"
	"k8s.io/client-go/tools/clientcmd"
	ctrlcache "sigs.k8s.io/controller-runtime/pkg/cache"

	"opendilab.org/di-orchestrator/hack/bench/internal/harness"
)

// roleWatcher is the process that only watches pods.
const roleWatcher = "watcher"

// watchPods keeps all pods in an informer, prints the address of its profiles as
// its first line, and ends with its input.
func watchPods(ctx context.Context, kubeconfig string, in io.Reader, out io.Writer) error {
	config, err := clientcmd.BuildConfigFromFlags("", kubeconfig)
	if err != nil {
		return fmt.Errorf("watching pods: %w", err)
	}
	// As the operator's client does.
	config.ContentType = runtime.ContentTypeProtobuf
	api, err := kubernetes.NewForConfig(config)
	if err != nil {
		return fmt.Errorf("watching pods: %w", err)
	}
	factory := informers.NewSharedInformerFactoryWithOptions(api, 0,
		informers.WithTransform(ctrlcache.TransformStripManagedFields()))
	informer := factory.Core().V1().Pods().Informer()
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	go informer.RunWithContext(ctx)
	if !cache.WaitForCacheSync(ctx.Done(), informer.HasSynced) {
		return fmt.Errorf("watching pods: %w", context.Cause(ctx))
	}
	listener, err := (&net.ListenConfig{}).Listen(ctx, "tcp", "127.0.0.1:0")
	if err != nil {
		return fmt.Errorf("listening: %w", err)
	}
	routes := http.NewServeMux()
	routes.HandleFunc("/debug/pprof/", pprof.Index)
	server := &http.Server{Handler: routes, ReadHeaderTimeout: harness.Patience}
	go func() {
		_, _ = io.Copy(io.Discard, in)
		_ = server.Close()
	}()
	fmt.Fprintln(out, listener.Addr())
	if err := server.Serve(listener); !errors.Is(err, http.ErrServerClosed) {
		return fmt.Errorf("serving: %w", err)
	}
	return nil
}
