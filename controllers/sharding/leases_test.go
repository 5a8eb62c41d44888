// Copyright The DI Orchestrator Authors.
// SPDX-License-Identifier: Apache-2.0

package sharding

import (
	"testing"

	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/rest"
)

func TestOtherRequestsHaveNeitherTheTimeoutNorTheUserAgentOfLeases(t *testing.T) {
	t.Parallel()
	config := &rest.Config{Host: "https://127.0.0.1:1"}
	if _, err := NewLeases(t.Context(), config, types.NamespacedName{Namespace: "di-system", Name: "leader"}); err != nil {
		t.Fatal(err)
	}
	if config.Timeout != 0 || config.UserAgent != "" {
		t.Errorf("the config of other requests has timeout %s and user agent %q, want none", config.Timeout, config.UserAgent)
	}
}
