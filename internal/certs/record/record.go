// Copyright The DI Orchestrator Authors.
// SPDX-License-Identifier: Apache-2.0

// Package record defines the annotations that the webhooks and administrators write to the certificate
// authority's Secret. Programs that only read them do not link internal/certs.
package record

import (
	"bytes"
	"cmp"
	"crypto/sha256"
	"encoding/hex"
	"slices"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
)

const (
	// AnnotationRotate requests a rotation. Its value identifies the request. The replica of the
	// webhooks that fulfils the request removes the annotation.
	AnnotationRotate = "diengine.opendilab.org/rotate"
	// AnnotationRotated has the value of the last fulfilled request.
	AnnotationRotated = "diengine.opendilab.org/rotated"
	// ServingPrefix is the prefix of the annotations that declare the replicas' authorities. The
	// replica's name follows.
	ServingPrefix = "serving.diengine.opendilab.org/"
	// ReplicaLife is how long a replica is alive after its last heartbeat.
	ReplicaLife = time.Hour
)

// Replica is the heartbeat of one replica.
type Replica struct {
	// Name is the name of its pod.
	Name string
	// Authority is the fingerprint of the bundle that its clients must trust.
	Authority string
	// At is the time of the heartbeat.
	At time.Time
}

// Fingerprint identifies a bundle.
func Fingerprint(bundle []byte) string {
	sum := sha256.Sum256(bytes.TrimSpace(bundle))
	return hex.EncodeToString(sum[:16])
}

// Replicas returns the replicas with a current heartbeat, sorted by name.
func Replicas(secret *corev1.Secret, now time.Time) []Replica {
	var found []Replica
	for key, value := range secret.Annotations {
		if name, declares := strings.CutPrefix(key, ServingPrefix); declares {
			if replica, ok := Parse(name, value); ok && now.Sub(replica.At) <= ReplicaLife {
				found = append(found, replica)
			}
		}
	}
	slices.SortFunc(found, func(a, b Replica) int { return cmp.Compare(a.Name, b.Name) })
	return found
}

// Parse reads the annotation of a replica.
func Parse(name, value string) (Replica, bool) {
	authority, at, _ := strings.Cut(value, " ")
	heard, err := time.Parse(time.RFC3339, at)
	return Replica{Name: name, Authority: authority, At: heard}, err == nil
}

// String returns the value of the replica's annotation.
func (r *Replica) String() string {
	return r.Authority + " " + r.At.UTC().Format(time.RFC3339)
}
