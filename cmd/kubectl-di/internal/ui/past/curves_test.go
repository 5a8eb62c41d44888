// Copyright The DI Orchestrator Authors.
// SPDX-License-Identifier: Apache-2.0

package past

import (
	"strings"
	"testing"
	"time"

	"opendilab.org/di-orchestrator/cmd/kubectl-di/internal/ui/pages"
	"opendilab.org/di-orchestrator/history/record"
)

func TestTheCurveThatReportsNameIsFirst(t *testing.T) {
	t.Parallel()
	at := time.Date(2026, 3, 1, 12, 0, 0, 0, time.UTC)
	series := func(names ...string) (all []record.Series) {
		for _, name := range names {
			all = append(all, record.Series{Name: name, Points: []record.Point{{At: at, Value: 1}}})
		}
		return all
	}
	all := series("accuracy", "cpu/learner", "mean_return", "progress.done", "success")
	for named, want := range map[string]string{
		"":         "mean_return accuracy cpu/learner progress.done success",
		"nothing":  "mean_return accuracy cpu/learner progress.done success",
		"success":  "success mean_return accuracy cpu/learner progress.done",
		"progress": "progress.done mean_return accuracy cpu/learner success",
	} {
		var got []string
		for i, curve := range Curves(&record.Job{Curve: named}, &record.CurvePage{Series: all}).Curves {
			got = append(got, curve.Name)
			if i == 0 && curve.Kind != pages.KindReward {
				t.Errorf("%q: the first curve is of kind %s", named, curve.Kind)
			}
		}
		if strings.Join(got, " ") != want {
			t.Errorf("%q: got %s, want %s", named, got, want)
		}
		compared := Comparison([]Compared{{Job: &record.Job{}, Curves: all}, {Job: &record.Job{Curve: named}, Curves: all}}, at)
		if first := compared.Series[0].Name; first != got[0] {
			t.Errorf("%q: a comparison begins with %s", named, first)
		}
	}
}
