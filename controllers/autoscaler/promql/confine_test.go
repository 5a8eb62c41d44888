// Copyright The DI Orchestrator Authors.
// SPDX-License-Identifier: Apache-2.0

package promql

import (
	"strings"
	"testing"
)

func TestEachSelectorOfAQuerySelectsTheNamespaceOnly(t *testing.T) {
	t.Parallel()
	for query, want := range map[string]string{
		`up`:                                              `up{namespace="rl"}`,
		`sum(rate(steps_total{job="a"}[5m]))`:             `sum(rate(steps_total{job="a",namespace="rl"}[5m]))`,
		`a / on (pod) b`:                                  `a{namespace="rl"} / on (pod) b{namespace="rl"}`,
		`{__name__=~".+"}`:                                `{__name__=~".+",namespace="rl"}`,
		`secret{namespace="finance"}`:                     `secret{namespace="finance",namespace="rl"}`,
		`secret{namespace=~".*"}`:                         `secret{namespace="rl",namespace=~".*"}`,
		`max_over_time(sum(a)[1h:5m])`:                    `max_over_time(sum(a{namespace="rl"})[1h:5m])`,
		`label_replace(a, "namespace", "x", "", "")`:      `label_replace(a{namespace="rl"}, "namespace", "x", "", "")`,
		`absent(a) or vector(1)`:                          `absent(a{namespace="rl"}) or vector(1)`,
		`a offset 5m @ start()`:                           `a{namespace="rl"} @ start() offset 5m`,
		`(a unless b{x!~"y"}) > bool 1`:                   `(a{namespace="rl"} unless b{namespace="rl",x!~"y"}) > bool 1`,
		`histogram_quantile(0.9, sum by (le) (b_bucket))`: `histogram_quantile(0.9, sum by (le) (b_bucket{namespace="rl"}))`,
		`3`: `3`,
	} {
		got, err := Confine(query, "rl")
		if err != nil {
			t.Errorf("%s: %v", query, err)
		}
		if got != want {
			t.Errorf("%s: got %s, want %s", query, got, want)
		}
		// Each name of a metric and each pair of braces is a selector.
		if selectors := strings.Count(got, "{"); selectors != strings.Count(got, `namespace="rl"`) {
			t.Errorf("%s: a selector of %s is not confined", query, got)
		}
	}
}

func TestAQueryThatIsNoPromQLIsRefused(t *testing.T) {
	t.Parallel()
	for _, query := range []string{``, `sum(`, `a b`, `a{`, `a}) or secret{`, `info(a, {b="c"})`} {
		if got, err := Confine(query, "rl"); err == nil {
			t.Errorf("%q becomes %q", query, got)
		}
	}
}

func FuzzAConfinedQueryParsesAndStaysConfined(f *testing.F) {
	for _, query := range []string{`up`, `sum(rate(a{b="c"}[5m]))`, `a / b`, `a @ end() offset 5m`, `quantile_over_time(0.5, a[1h:1m])`} {
		f.Add(query)
	}
	f.Fuzz(func(t *testing.T, query string) {
		once, err := Confine(query, "rl")
		if err != nil {
			return
		}
		if _, err := Confine(once, "rl"); err != nil {
			t.Errorf("%q becomes %q, which does not parse: %v", query, once, err)
		}
	})
}
