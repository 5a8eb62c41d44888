// Copyright The DI Orchestrator Authors.
// SPDX-License-Identifier: Apache-2.0

package upgrade

import (
	"bytes"
	"context"
	"crypto/tls"
	"crypto/x509"
	"encoding/base64"
	"errors"
	"fmt"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/wait"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"opendilab.org/di-orchestrator/hack/bench/internal/harness"
	"opendilab.org/di-orchestrator/internal/certs/record"
	"opendilab.org/di-orchestrator/internal/names"
	"opendilab.org/di-orchestrator/internal/testkit/figures"
	"opendilab.org/di-orchestrator/internal/testkit/pace"
	"opendilab.org/di-orchestrator/webhook"
)

const rotationNotes = `
Another authority is asked for by the annotation that kubectl di rotate-ca sets. A rotation is over when another authority is in the Secret,
is trusted in the CRD and both webhook configurations, both replicas of the webhooks serve by it, and the old one is trusted nowhere; then %s more are measured. At each write of the CRD the API server makes its caches of
jobs again, for which all are converted. No call is tried again.
`

// afterRotation is how long the measurement continues after a rotation.
const afterRotation = 10 * time.Second

// runRotation measures the effects of rotations of the webhooks' certificate authority.
func (b *bench) runRotation(ctx context.Context) (missed figures.Limits, err error) {
	w, err := b.newRunning(ctx)
	if err != nil {
		return nil, err
	}
	defer harness.Close(&err, w.stop)
	if err := w.makeJobs(ctx, b.jobs); err != nil {
		return nil, err
	}
	calls := w.users(b.jobs)
	calls.start(ctx)
	defer calls.stop()
	rest, err := w.atRest(ctx, calls, "at rest")
	if err != nil {
		return nil, err
	}
	mark, err := w.Mark()
	if err != nil {
		return nil, err
	}
	var took []time.Duration
	rotated, err := calls.during(fmt.Sprintf("%d rotations", b.rounds), true, func() error {
		for round := range b.rounds {
			w.Say("rotating the authority, round %d", round+1)
			began := time.Now()
			if err := w.rotate(ctx); err != nil {
				return err
			}
			took = append(took, time.Since(began))
			if err := pace.Pause(ctx, afterRotation); err != nil {
				return err
			}
		}
		return nil
	})
	if err != nil {
		return nil, err
	}
	asked, err := w.askedSince(mark, harness.UserWebhooks)
	if err != nil {
		return nil, err
	}
	after, err := w.atRest(ctx, calls, "at rest again")
	if err != nil {
		return nil, err
	}
	missed, err = calls.print(b, []phase{rest, rotated, after})
	fmt.Fprintf(b.Out, "\nA rotation took %s, at most %s. The webhooks' requests in all of them: %s.\n",
		figures.Seconds(figures.Percentile(took, 50)), figures.Seconds(figures.Percentile(took, 100)), asked)
	fmt.Fprintf(b.Out, rotationNotes, afterRotation)
	return missed, err
}

// rotate replaces the authority. It returns when all webhooks serve certificates of the next
// authority, and all clients trust only that.
func (w *world) rotate(ctx context.Context) error {
	name := client.ObjectKey{Namespace: names.SystemNamespace, Name: webhook.AuthoritySecret}
	var secret corev1.Secret
	if err := w.API.Get(ctx, name, &secret); err != nil {
		return fmt.Errorf("reading the authority: %w", err)
	}
	before := secret.Data[corev1.TLSCertKey]
	patch := fmt.Appendf(nil, `{"metadata":{"annotations":{%q:%q}}}`, record.AnnotationRotate, time.Now().UTC().Format(time.RFC3339Nano))
	if err := w.API.Patch(ctx, &secret, client.RawPatch(types.MergePatchType, patch)); err != nil {
		return fmt.Errorf("asking for another authority: %w", err)
	}
	var last error
	err := wait.PollUntilContextTimeout(ctx, 200*time.Millisecond, harness.Patience, true, func(ctx context.Context) (bool, error) {
		var secret corev1.Secret
		if err := w.API.Get(ctx, name, &secret); err != nil {
			return false, client.IgnoreNotFound(err)
		}
		after := secret.Data[corev1.TLSCertKey]
		if bytes.Equal(before, after) {
			return false, nil
		}
		last = errors.Join(w.trusted(ctx, after), w.servedBy(ctx, after), w.givenUp(ctx, before))
		return last == nil, nil
	})
	if err != nil {
		return fmt.Errorf("waiting for the rotation to end: %w", errors.Join(err, last))
	}
	return nil
}

// trusted returns an error that lists the objects whose CA bundle does not contain an authority.
func (w *world) trusted(ctx context.Context, authority []byte) error {
	return w.eachBundle(ctx, func(kind string, bundle []byte) error {
		if !bytes.Contains(bundle, bytes.TrimSpace(authority)) {
			return fmt.Errorf("%s does not trust the new authority", kind)
		}
		return nil
	})
}

// givenUp returns an error that lists the objects whose CA bundle still contains an authority.
func (w *world) givenUp(ctx context.Context, authority []byte) error {
	return w.eachBundle(ctx, func(kind string, bundle []byte) error {
		if bytes.Contains(bundle, bytes.TrimSpace(authority)) {
			return fmt.Errorf("%s trusts the old authority still", kind)
		}
		return nil
	})
}

// eachBundle checks all CA bundles for API servers and returns the errors.
func (w *world) eachBundle(ctx context.Context, check func(kind string, bundle []byte) error) error {
	var failed error
	for _, place := range []struct{ group, kind, name string }{
		{"apiextensions.k8s.io", "CustomResourceDefinition", webhook.CRD},
		{"admissionregistration.k8s.io", "MutatingWebhookConfiguration", webhook.MutatingConfiguration},
		{"admissionregistration.k8s.io", "ValidatingWebhookConfiguration", webhook.ValidatingConfiguration},
	} {
		object := &unstructured.Unstructured{}
		object.SetGroupVersionKind(schema.GroupVersionKind{Group: place.group, Version: "v1", Kind: place.kind})
		if err := w.API.Get(ctx, client.ObjectKey{Name: place.name}, object); err != nil {
			return fmt.Errorf("reading %s: %w", place.kind, err)
		}
		bundles := bundlesIn(object.Object)
		if len(bundles) == 0 {
			failed = errors.Join(failed, fmt.Errorf("%s has no bundle", place.kind))
		}
		for _, bundle := range bundles {
			failed = errors.Join(failed, check(place.kind, bundle))
		}
	}
	return failed
}

// bundlesIn returns each caBundle of an object.
func bundlesIn(value any) [][]byte {
	var found [][]byte
	switch value := value.(type) {
	case map[string]any:
		if encoded, ok := value["caBundle"].(string); ok {
			// A value that cannot be decoded is no authority.
			bundle, _ := base64.StdEncoding.DecodeString(encoded)
			found = append(found, bundle)
		}
		for key, field := range value {
			if key != "managedFields" {
				found = append(found, bundlesIn(field)...)
			}
		}
	case []any:
		for _, item := range value {
			found = append(found, bundlesIn(item)...)
		}
	}
	return found
}

// servedBy returns an error unless all webhooks serve certificates that an authority has signed.
func (w *world) servedBy(ctx context.Context, authority []byte) error {
	roots := x509.NewCertPool()
	roots.AppendCertsFromPEM(authority)
	dialer := &tls.Dialer{Config: &tls.Config{MinVersion: tls.VersionTLS12, RootCAs: roots}}
	var failed error
	for _, one := range w.webhooks.replicas {
		connection, err := dialer.DialContext(ctx, "tcp", one.Address)
		if err == nil {
			err = connection.Close()
		}
		failed = errors.Join(failed, err)
	}
	return failed
}
