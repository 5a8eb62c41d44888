// Copyright The DI Orchestrator Authors.
// SPDX-License-Identifier: Apache-2.0

package storagemigration

import (
	"context"
	"encoding/json"
	"fmt"
	"strings"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"opendilab.org/di-orchestrator/controllers"
	"opendilab.org/di-orchestrator/upgrade/migration"
)

// failureLength bounds the bytes of the recorded error of an object that could not be written.
const failureLength = 300

// read returns the record of a resource. It returns the zero value if there is no record or it does not
// decode. The objects are then rewritten again.
func (m *Reconciler) read(ctx context.Context, resource string) (migration.Record, error) {
	stored, err := controllers.Find(ctx, m.API, client.ObjectKey{Namespace: m.Namespace, Name: migration.RecordName}, &corev1.ConfigMap{})
	var record migration.Record
	if stored == nil || err != nil {
		return record, err
	}
	content, recorded := stored.Data[resource]
	if !recorded {
		return record, nil
	}
	if err := json.Unmarshal([]byte(content), &record); err != nil {
		return migration.Record{}, nil //nolint:nilerr // A user edited it, and starting again is safe.
	}
	return record, nil
}

// save records the progress of a resource, and that the migration is not blocked.
func (m *Reconciler) save(ctx context.Context, s *state, record migration.Record) error {
	record.Blocked = ""
	return m.write(ctx, s, record)
}

func (m *Reconciler) write(ctx context.Context, s *state, record migration.Record) error {
	record.Updated = m.Clock.Now()
	content, err := json.Marshal(record)
	if err != nil {
		return fmt.Errorf("encoding the record of the migration: %w", err)
	}
	stored := &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Namespace: m.Namespace, Name: migration.RecordName}}
	err = m.API.Get(ctx, client.ObjectKeyFromObject(stored), stored)
	if client.IgnoreNotFound(err) != nil {
		return fmt.Errorf("getting the record of the migration: %w", err)
	}
	if stored.Data == nil {
		stored.Data = map[string]string{}
	}
	stored.Data[s.Resource] = string(content)
	if apierrors.IsNotFound(err) {
		err = m.API.Create(ctx, stored, controllers.FieldOwner)
	} else {
		err = m.API.Update(ctx, stored, controllers.FieldOwner)
	}
	if err != nil {
		return fmt.Errorf("recording the migration of %s: %w", s.Resource, err)
	}
	s.Record = record
	m.Metrics.observeRecord(s.Resource, &record)
	return nil
}

// truncate cuts a text to a length in bytes.
func truncate(text string, length int) string {
	if len(text) <= length {
		return text
	}
	return strings.ToValidUTF8(text[:length], "")
}
