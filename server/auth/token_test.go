// Copyright The DI Orchestrator Authors.
// SPDX-License-Identifier: Apache-2.0

package auth

import (
	"testing"
	"time"
)

func FuzzToken(f *testing.F) {
	for _, seed := range []string{"a", "a.b.c", "e30.e30.e30", "e30.eyJhdWQiOiJkaS1zZXJ2ZXIifQ.e30"} {
		f.Add(seed)
	}
	f.Fuzz(func(_ *testing.T, token string) { mayBeValid(token, time.Unix(1e9, 0)) })
}
