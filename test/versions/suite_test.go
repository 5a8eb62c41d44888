// Copyright The DI Orchestrator Authors.
// SPDX-License-Identifier: Apache-2.0

// Package versions tests through a real API server that a job is the same job in both versions, for
// writes, reads, watches, applies and deletions.
package versions

import (
	"context"
	"sync/atomic"
	"testing"

	"github.com/google/go-cmp/cmp"
	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"opendilab.org/di-orchestrator/test/testkit"
	"opendilab.org/di-orchestrator/test/testkit/specs"
	"opendilab.org/di-orchestrator/test/webhooks"
)

const (
	group = "diengine.opendilab.org"
	v1    = "v1alpha1"
	v2    = "v2alpha1"

	// timeout is how long a spec waits for the API server.
	timeout = testkit.Patience
)

var (
	api *webhooks.API
	c   client.WithWatch
	// operator has the permissions of the operator.
	operator client.WithWatch
	// reports counts the statuses that it has written.
	reports atomic.Int32
)

func TestVersions(t *testing.T) {
	t.Parallel()
	specs.Run(t, "One job in two versions, through a real API server")
}

var _ = BeforeSuite(func(ctx context.Context) {
	api = specs.Must(webhooks.StartAPIWithWebhooks(ctx))
	c = specs.Must(testkit.NewClient(api.Config))
	operator = specs.Must(testkit.NewClient(specs.Must(api.As(testkit.Operator))))
})

var _ = AfterSuite(func() {
	if api != nil {
		Expect(api.Stop()).To(Succeed())
	}
})

// other returns the other version.
func other(version string) string {
	if version == v1 {
		return v2
	}
	return v1
}

func kind(version, name string) schema.GroupVersionKind {
	return schema.GroupVersionKind{Group: group, Version: version, Kind: name}
}

// create creates a job of the version and returns it as stored.
func create(ctx context.Context, version, namespace, name, manifest string) *unstructured.Unstructured {
	GinkgoHelper()
	Expect(c.Create(ctx, specs.Job(version, namespace, name, manifest))).To(Succeed())
	return specs.GetJob(ctx, c, version, namespace, name)
}

// part returns a member of an object that YAML describes.
func part(manifest, name string) any {
	GinkgoHelper()
	return specs.Object(manifest).Object[name]
}

// withoutEmpty returns a value without members that are null or empty. Typed clients write those
// for all absent fields that they know.
func withoutEmpty(value any) any {
	switch value := value.(type) {
	case map[string]any:
		kept := map[string]any{}
		for key, member := range value {
			if member = withoutEmpty(member); member != nil {
				kept[key] = member
			}
		}
		if len(kept) == 0 {
			return nil
		}
		return kept
	case []any:
		kept := make([]any, len(value))
		for i, item := range value {
			kept[i] = withoutEmpty(item)
		}
		return kept
	}
	return value
}

// expectSame expects equality and reports the fields in which two values differ.
func expectSame(want, got any) {
	GinkgoHelper()
	Expect(cmp.Diff(want, got)).To(BeEmpty(), "-want +got")
}
