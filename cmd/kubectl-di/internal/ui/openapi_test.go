// Copyright The DI Orchestrator Authors.
// SPDX-License-Identifier: Apache-2.0

package ui

import (
	"testing"

	"github.com/getkin/kin-openapi/openapi3"

	"opendilab.org/di-orchestrator/test/testkit/expect"
)

func TestDocumentOfTheAPIIsValid(t *testing.T) {
	document, err := openapi3.NewLoader().LoadFromFile("openapi.yaml")
	expect.NoError(t, err)
	expect.NoError(t, document.Validate(t.Context()))
}
