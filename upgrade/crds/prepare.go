// Copyright The DI Orchestrator Authors.
// SPDX-License-Identifier: Apache-2.0

package crds

import (
	"context"
	"fmt"

	"github.com/go-logr/logr"
	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	"k8s.io/client-go/util/retry"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"opendilab.org/di-orchestrator/config/crd"
)

// preparer owns the fields that are written into definitions of an earlier release.
const preparer = client.FieldOwner("di-orchestrator-takeover")

// Preparer adds the missing version to definitions of an earlier release once a webhook serves the
// conversion to it.
type Preparer struct {
	// API reads and writes definitions; its scheme knows them.
	API client.Client
	// Namespace is the namespace of the operator.
	Namespace string
	// OwnCertificates means that no other tool may write bundles.
	OwnCertificates bool
	// NoTakeover rejects definitions of an earlier release whose takeover is not done.
	NoTakeover bool
	// Log receives a line for each write.
	Log logr.Logger
}

// Prepare completes each definition by one write, so that a trusted webhook converts between the
// versions from the moment there are two. The storage version stays. A version that webhooks convert to
// is not served until Serve. Several processes may call it
// concurrently. If nothing changes it costs one read of each definition.
func (p *Preparer) Prepare(ctx context.Context, conversion *apiextensionsv1.CustomResourceConversion) error {
	for _, content := range [][]byte{crd.AggregatorConfigs(), crd.DIJobs()} {
		built, err := read(content, p.Namespace)
		if err != nil {
			return err
		}
		if err := retry.OnError(retry.DefaultBackoff, otherWasFirst, func() error { return p.prepare(ctx, built, conversion) }); err != nil {
			return err
		}
	}
	return nil
}

func (p *Preparer) prepare(ctx context.Context, built *apiextensionsv1.CustomResourceDefinition, conversion *apiextensionsv1.CustomResourceConversion) error {
	stored, err := get(ctx, p.API, built.Name)
	if err != nil || stored == nil {
		return err
	}
	wanted, err := p.prepared(built, stored, conversion)
	if err != nil || wanted == nil {
		return err
	}
	if err := p.API.Update(ctx, wanted, preparer); err != nil {
		return fmt.Errorf("adding a version to customresourcedefinition %s: %w", stored.Name, err)
	}
	p.Log.Info("Prepared CustomResourceDefinition", "customResourceDefinition", stored.Name,
		"origin", OriginOf(stored), "versions", versionNames(wanted), "storage", StorageOf(wanted))
	return nil
}

// prepared returns the desired definition, and nil if the stored one is equal to it.
func (p *Preparer) prepared(built, stored *apiextensionsv1.CustomResourceDefinition, conversion *apiextensionsv1.CustomResourceConversion,
) (*apiextensionsv1.CustomResourceDefinition, error) {
	if err := checkOrigin(stored); err != nil {
		return nil, err
	}
	if p.NoTakeover {
		if err := checkTakenOver(stored); err != nil {
			return nil, err
		}
	}
	wanted := stored.DeepCopy()
	if OriginOf(stored).IsEarlier() {
		if err := checkNamespace(stored, p.Namespace); err != nil {
			return nil, err
		}
		var err error
		if wanted, err = takeOver(built, stored, conversion); err != nil {
			return nil, err
		}
	}
	removeInjection(wanted, p.OwnCertificates)
	if isSame(wanted, stored) {
		return nil, nil
	}
	return wanted, nil
}
