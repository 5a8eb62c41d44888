// Copyright The DI Orchestrator Authors.
// SPDX-License-Identifier: Apache-2.0

package store

import (
	"net/url"
	"testing"
)

func FuzzParseQuery(f *testing.F) {
	for _, seed := range []string{
		"namespace=n&phase=Running&search=a+b&sort=-gpus&offset=3&limit=20", "limit=0", "limit=999999999999999999999", "sort=--name", "phase=%00&search=%ff", "",
	} {
		f.Add(seed)
	}
	f.Fuzz(func(t *testing.T, raw string) {
		values, err := url.ParseQuery(raw)
		if err != nil {
			return
		}
		query, err := ParseQuery(values)
		switch {
		case err != nil && len(err.Error()) > 1<<10+4*longestText:
			t.Fatalf("the error has %d bytes", len(err.Error()))
		case err == nil && (query.Limit < 1 || query.Limit > MostRows || query.Offset < 0 || query.Offset > mostOffset || len(query.Phases) > mostPhases || query.column == nil):
			t.Fatalf("%q is accepted as %+v", raw, query)
		}
	})
}
