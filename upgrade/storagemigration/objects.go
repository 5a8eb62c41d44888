// Copyright The DI Orchestrator Authors.
// SPDX-License-Identifier: Apache-2.0

package storagemigration

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net"

	"github.com/dustin/go-humanize/english"
	"golang.org/x/sync/errgroup"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"opendilab.org/di-orchestrator/apis/v2alpha1"
	"opendilab.org/di-orchestrator/controllers"
	"opendilab.org/di-orchestrator/upgrade/migration"
)

// migratedAtOnce is how many objects are written concurrently. Few are enough for the rate limit.
const migratedAtOnce = 8

// errNotServed means that an API server does not serve a version yet, or no longer.
var errNotServed = errors.New("the API server does not serve it")

// rewrite writes the next page of objects unchanged, so that they are stored in the
// desired version. The API server stores a write without changes if the stored form
// differs.
func (m *Reconciler) rewrite(ctx context.Context, s *state) error {
	page, err := m.list(ctx, s, s.Through())
	if page == nil || err != nil {
		return err
	}
	failed, err := m.each(ctx, page.Items, func(ctx context.Context, object *metav1.PartialObjectMetadata) error {
		return m.count(s.Resource, m.touch(ctx, s, object))
	})
	if err != nil {
		return err
	}
	return m.saveAttempt(ctx, s, m.withPage(s, page, failed), "Rewrote a page of stored objects", failed)
}

// touch writes an object unless another client has written it since the list. That write already stored it
// in the desired version.
func (m *Reconciler) touch(ctx context.Context, s *state, object *metav1.PartialObjectMetadata) error {
	return m.patchAsItIs(ctx, s, object, map[string]any{"uid": object.UID, "resourceVersion": object.ResourceVersion})
}

// patchAsItIs writes an object that may be invalid in this version. The API server ratchets existing
// errors, except missing required fields. The other version may not require these fields.
func (m *Reconciler) patchAsItIs(ctx context.Context, s *state, object *metav1.PartialObjectMetadata, metadata map[string]any) error {
	err := m.patch(ctx, object, metadata)
	if apierrors.IsInvalid(err) && s.Through() != s.Wanted {
		other := &metav1.PartialObjectMetadata{ObjectMeta: metav1.ObjectMeta{Namespace: object.Namespace, Name: object.Name}}
		other.SetGroupVersionKind(schema.GroupVersionKind{Group: v2alpha1.GroupName, Version: s.Wanted, Kind: s.definition.Spec.Names.Kind})
		return m.patch(ctx, other, metadata)
	}
	return err
}

// retry repeats the failed writes of objects.
func (m *Reconciler) retry(ctx context.Context, s *state) error {
	objects := make([]metav1.PartialObjectMetadata, len(s.Record.Failed))
	for i, failure := range s.Record.Failed {
		objects[i].SetGroupVersionKind(schema.GroupVersionKind{Group: v2alpha1.GroupName, Version: s.Through(), Kind: s.definition.Spec.Names.Kind})
		objects[i].Namespace, objects[i].Name = failure.Namespace, failure.Name
	}
	failed, err := m.each(ctx, objects, func(ctx context.Context, object *metav1.PartialObjectMetadata) error {
		return m.count(s.Resource, m.patchAsItIs(ctx, s, object, map[string]any{}))
	})
	if err != nil {
		return err
	}
	return m.saveAttempt(ctx, s, s.Record.Retried(failed, m.Clock.Now()), "Retried objects that could not be written", failed)
}

// clean removes the version that is no longer served from the managedFields of the next page of objects.
// While managedFields name it, the API server converts every write to it. An API server without that
// version would refuse the write.
func (m *Reconciler) clean(ctx context.Context, s *state) error {
	if s.Record.Phase != migration.PhaseCleaning || s.Record.Listed {
		s.Record = s.Record.Restarted()
		s.Record.Phase, s.Record.Started = migration.PhaseCleaning, m.Clock.Now()
	}
	page, err := m.list(ctx, s, s.Wanted)
	if page == nil || err != nil {
		return err
	}
	stopped := schema.GroupVersion{Group: v2alpha1.GroupName, Version: s.Stopped}.String()
	failed, err := m.each(ctx, page.Items, func(ctx context.Context, object *metav1.PartialObjectMetadata) error {
		return m.cleanOne(ctx, s, object, stopped)
	})
	if err != nil {
		return err
	}
	record := m.withPage(s, page, failed)
	record.Phase = migration.PhaseCleaning
	record.Failed = record.Failed[:min(len(record.Failed), migration.MaxFailures)]
	if record.Listed && len(record.Failed) == 0 {
		record.Cleaned = s.Stopped
	}
	return m.saveAttempt(ctx, s, record, "Cleaned the managed fields of a page of objects", failed)
}

// cleaningAttempts is how often cleaning is tried after conflicts.
const cleaningAttempts = 5

func (m *Reconciler) cleanOne(ctx context.Context, s *state, object *metav1.PartialObjectMetadata, stopped string) error {
	var err error
	for range cleaningAttempts {
		kept, dirty := migration.WithoutManagers(object.ManagedFields, stopped)
		if !dirty {
			return nil
		}
		err = m.patch(ctx, object, map[string]any{"uid": object.UID, "resourceVersion": object.ResourceVersion, "managedFields": kept})
		if !apierrors.IsConflict(err) {
			break
		}
		if err := m.API.Get(ctx, client.ObjectKeyFromObject(object), object); err != nil {
			return client.IgnoreNotFound(err)
		}
	}
	return m.count(s.Resource, err)
}

// patch merges into an object's metadata and changes nothing else, so no validation of other fields
// applies.
func (m *Reconciler) patch(ctx context.Context, object *metav1.PartialObjectMetadata, metadata map[string]any) error {
	content, err := json.Marshal(map[string]any{"metadata": metadata})
	if err != nil {
		return fmt.Errorf("encoding a patch: %w", err)
	}
	return m.API.Patch(ctx, object, client.RawPatch(types.MergePatchType, content), controllers.FieldOwner)
}

// list returns the next page of objects. If the list must restart, it records that and returns nil.
func (m *Reconciler) list(ctx context.Context, s *state, version string) (*metav1.PartialObjectMetadataList, error) {
	page := &metav1.PartialObjectMetadataList{}
	page.SetGroupVersionKind(schema.GroupVersionKind{Group: v2alpha1.GroupName, Version: version, Kind: s.definition.Spec.Names.ListKind})
	token := s.Record.Continue
	err := m.API.List(ctx, page, client.Limit(m.Page), client.Continue(token))
	if token != "" && apierrors.IsResourceExpired(err) {
		// The list continues by name. Objects that are missing from it existed all the time, or were
		// written after the switch.
		if token = continueOf(err); token == "" {
			return nil, m.save(ctx, s, s.Record.Restarted())
		}
		err = m.API.List(ctx, page, client.Limit(m.Page), client.Continue(token))
	}
	if err != nil {
		return nil, fmt.Errorf("listing %s at %s: %w", s.Resource, version, err)
	}
	for i := range page.Items {
		page.Items[i].SetGroupVersionKind(schema.GroupVersionKind{Group: v2alpha1.GroupName, Version: version, Kind: s.definition.Spec.Names.Kind})
	}
	return page, nil
}

// continueOf returns the token that continues an expired list.
func continueOf(err error) string {
	var status apierrors.APIStatus
	if errors.As(err, &status) {
		return status.Status().Continue
	}
	return ""
}

// withPage returns the record after a page.
func (m *Reconciler) withPage(s *state, page *metav1.PartialObjectMetadataList, failed []migration.Failure) migration.Record {
	record := s.Record
	left := int64(0)
	if page.RemainingItemCount != nil {
		left = *page.RemainingItemCount
	}
	record = record.AddPage(len(page.Items), failed, page.Continue, m.Clock.Now())
	record.Total = record.Done + int64(len(record.Failed)) + left
	return record
}

// each calls a function for objects in parallel and returns the failures. An error means that the API
// server is unreachable. It does not describe an object.
func (m *Reconciler) each(ctx context.Context, objects []metav1.PartialObjectMetadata, do func(context.Context, *metav1.PartialObjectMetadata) error,
) ([]migration.Failure, error) {
	failures := make([]error, len(objects))
	group, running := errgroup.WithContext(ctx)
	group.SetLimit(migratedAtOnce)
	for i := range objects {
		group.Go(func() error {
			if running.Err() != nil {
				return running.Err()
			}
			err := do(running, &objects[i])
			if isTemporary(err) {
				return fmt.Errorf("writing %s/%s: %w", objects[i].Namespace, objects[i].Name, err)
			}
			failures[i] = err
			return nil
		})
	}
	if err := group.Wait(); err != nil {
		return nil, err
	}
	var failed []migration.Failure
	for i, err := range failures {
		if err != nil {
			failed = append(failed, migration.Failure{
				Namespace: objects[i].Namespace, Name: objects[i].Name, Message: truncate(err.Error(), failureLength),
			})
		}
	}
	return failed, nil
}

// count counts a write and returns its error. It returns no error for an object that was deleted, or that
// another client wrote first.
func (m *Reconciler) count(resource string, err error) error {
	switch {
	case err == nil:
		m.Metrics.wrote(resource, writeDone)
	case apierrors.IsNotFound(err) && apierrors.HasStatusCause(err, metav1.CauseTypeUnexpectedServerResponse):
		return errNotServed
	case apierrors.IsNotFound(err):
		m.Metrics.wrote(resource, writeGone)
	case apierrors.IsConflict(err):
		m.Metrics.wrote(resource, writeByOthers)
	case isTemporary(err):
		return err
	default:
		m.Metrics.wrote(resource, writeFailed)
		return err
	}
	return nil
}

// isTemporary reports whether an error is not about the object: the API server is unreachable or busy.
func isTemporary(err error) bool {
	var network net.Error
	return err != nil && (errors.Is(err, context.Canceled) || errors.Is(err, context.DeadlineExceeded) || errors.As(err, &network) ||
		errors.Is(err, errNotServed) || meta.IsNoMatchError(err) ||
		apierrors.IsTooManyRequests(err) || apierrors.IsServerTimeout(err) || apierrors.IsTimeout(err) || apierrors.IsServiceUnavailable(err) ||
		apierrors.IsUnauthorized(err))
}

// saveAttempt records the results of writes. It records an Event about the first failures.
func (m *Reconciler) saveAttempt(ctx context.Context, s *state, record migration.Record, message string, failed []migration.Failure) error {
	reported := len(s.Record.Failed) > 0
	if err := m.save(ctx, s, record); err != nil {
		return err
	}
	logStep(ctx, s, message, &record)
	if len(failed) > 0 && !reported {
		m.recordEvent(s, corev1.EventTypeWarning, v2alpha1.ReasonStorageMigrationFailed,
			fmt.Sprintf("%s not be written and is tried again; the first is %s/%s: %s",
				english.Plural(len(failed), "object could", "objects could"), failed[0].Namespace, failed[0].Name, failed[0].Message))
	}
	return nil
}
