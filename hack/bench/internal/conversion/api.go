// Copyright The DI Orchestrator Authors.
// SPDX-License-Identifier: Apache-2.0

package conversion

import (
	"context"
	"encoding/base64"
	"encoding/pem"
	"errors"
	"fmt"
	"net/http"
	"net/http/httptest"
	"path/filepath"
	"regexp"
	"sync/atomic"
	"time"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/util/wait"
	"k8s.io/client-go/discovery"
	"k8s.io/client-go/rest"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/envtest"

	"opendilab.org/di-orchestrator/apis/v1alpha1"
	"opendilab.org/di-orchestrator/apis/v2alpha1"
	"opendilab.org/di-orchestrator/internal/testkit"
	"opendilab.org/di-orchestrator/internal/testkit/controlplane"
)

// crdName is the name of the CRD with a conversion.
const crdName = "dijobs." + v2alpha1.GroupName

// plane is an API server that can be restarted while its etcd keeps running.
type plane struct {
	environment *envtest.Environment
	api         client.WithWatch
}

// startPlane starts an API server with the CRDs and without webhooks. The
// caller stops it.
func startPlane() (*plane, error) {
	// The policies of the installation forbid that nothing is converted, which is measured, too.
	environment := &envtest.Environment{
		CRDDirectoryPaths: []string{filepath.Join(testkit.Root(), "config", "crd", "bases")}, ErrorIfCRDPathMissing: true,
	}
	if err := testkit.Start(environment); err != nil {
		return nil, err
	}
	p := &plane{environment: environment}
	if err := p.connect(environment.Config); err != nil {
		return nil, errors.Join(err, p.stop())
	}
	return p, nil
}

func (p *plane) stop() error {
	return p.environment.Stop()
}

// connect creates the client, without a rate limit.
func (p *plane) connect(config *rest.Config) (err error) {
	config = rest.CopyConfig(config)
	config.QPS, config.WarningHandler = -1, rest.NoWarnings{}
	if p.api, err = client.NewWithWatch(config, client.Options{}); err != nil {
		return fmt.Errorf("client: %w", err)
	}
	return nil
}

// restart restarts the API server, which loses its users, and returns when it is ready.
func (p *plane) restart(ctx context.Context) error {
	server := p.environment.ControlPlane.GetAPIServer()
	if err := server.Stop(); err != nil {
		return fmt.Errorf("stopping the API server: %w", err)
	}
	if err := server.Start(); err != nil {
		return fmt.Errorf("starting the API server: %w", err)
	}
	admin, err := p.environment.AddUser(envtest.User{Name: "admin", Groups: []string{"system:masters"}}, nil)
	if err != nil {
		return fmt.Errorf("adding a user: %w", err)
	}
	p.environment.Config = admin.Config()
	if err := p.connect(admin.Config()); err != nil {
		return err
	}
	api, err := discovery.NewDiscoveryClientForConfig(admin.Config())
	if err != nil {
		return fmt.Errorf("client: %w", err)
	}
	var last error
	err = wait.PollUntilContextTimeout(ctx, 20*time.Millisecond, time.Minute, true, func(ctx context.Context) (bool, error) {
		last = api.RESTClient().Get().AbsPath("/readyz").Do(ctx).Error()
		return last == nil, nil
	})
	return errors.Join(err, last)
}

// convertBy configures the converter in the CRD.
func (p *plane) convertBy(ctx context.Context, by *converter) error {
	stanza := map[string]any{"strategy": "Webhook", "webhook": map[string]any{
		"conversionReviewVersions": []any{"v1"},
		"clientConfig":             map[string]any{"url": by.server.URL, "caBundle": by.bundle()},
	}}
	return p.editCRD(ctx, func(crd map[string]any) error {
		return unstructured.SetNestedMap(crd, stanza, "spec", "conversion")
	})
}

// serve sets whether v1alpha1 is served.
func (p *plane) serve(ctx context.Context, served bool) error {
	return p.editCRD(ctx, func(crd map[string]any) error {
		versions, _, err := unstructured.NestedSlice(crd, "spec", "versions")
		if err != nil {
			return err
		}
		for _, version := range versions {
			if version, ok := version.(map[string]any); ok && version["name"] == v1alpha1.Version {
				version["served"] = served
			}
		}
		return unstructured.SetNestedSlice(crd, versions, "spec", "versions")
	})
}

func (p *plane) editCRD(ctx context.Context, edit func(map[string]any) error) error {
	return controlplane.EditCRD(ctx, p.api, crdName, edit)
}

// converter is a conversion webhook that counts its reviews and objects.
type converter struct {
	server           *httptest.Server
	reviews, objects atomic.Int64
}

// startConverter serves a conversion webhook. It counts the objects of a review in the answer. The
// caller closes the server.
func startConverter(handler http.Handler) *converter {
	c := &converter{}
	c.server = httptest.NewUnstartedServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		c.reviews.Add(1)
		handler.ServeHTTP(&objectCounter{ResponseWriter: w, objects: &c.objects}, r)
	}))
	c.server.StartTLS()
	return c
}

func (c *converter) bundle() string {
	return base64.StdEncoding.EncodeToString(pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: c.server.Certificate().Raw}))
}

// taken returns the counts since its last call.
func (c *converter) taken() (reviews, objects int64) {
	return c.reviews.Swap(0), c.objects.Swap(0)
}

// objectCounter counts the objects in an answer.
type objectCounter struct {
	http.ResponseWriter
	objects *atomic.Int64
}

// aJob matches once for each job in an answer.
var aJob = regexp.MustCompile(`"kind":"DIJob"`)

// Write implements io.Writer.
func (c *objectCounter) Write(answer []byte) (int, error) {
	c.objects.Add(int64(len(aJob.FindAllIndex(answer, -1))))
	return c.ResponseWriter.Write(answer)
}
