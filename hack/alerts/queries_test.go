// Copyright The DI Orchestrator Authors.
// SPDX-License-Identifier: Apache-2.0

// Package alerts tests the alerts and the dashboard of the chart with Prometheus' own code. Their
// queries must use existing metrics, labels and values, and each alert must fire when it should. It
// is a separate module, so that no program depends on Prometheus.
package alerts

import (
	"encoding/json"
	"log/slog"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/prometheus/common/model"
	"github.com/prometheus/prometheus/model/labels"
	"github.com/prometheus/prometheus/model/rulefmt"
	"github.com/prometheus/prometheus/promql/parser"
)

func newParser() parser.Parser { return parser.NewParser(parser.Options{}) }

func read(t *testing.T, path ...string) []byte {
	t.Helper()
	content, err := os.ReadFile(filepath.Join(append([]string{"..", ".."}, path...)...))
	if err != nil {
		t.Fatal(err)
	}
	return content
}

// alerts returns the alerts of the chart, by name.
func alerts(t *testing.T) map[string]rulefmt.Rule {
	t.Helper()
	groups, errs := rulefmt.Parse(read(t, "charts", "di-orchestrator", "files", "alerts.yaml"), false, model.UTF8Validation, newParser(), slog.New(slog.DiscardHandler))
	for _, err := range errs {
		t.Error(err)
	}
	if t.Failed() {
		t.FailNow()
	}
	all := map[string]rulefmt.Rule{}
	for _, group := range groups.Groups {
		for i := range group.Rules {
			all[group.Rules[i].Alert] = group.Rules[i]
		}
	}
	return all
}

// known is the documentation of a metric in docs/metrics.md. A test compares it with the metrics
// that the programs register.
type known struct {
	kind string
	// labels are the values of each label; nil if any value is possible.
	labels map[string][]string
}

// metrics returns the metrics of docs/metrics.md.
func metrics(t *testing.T) map[string]known {
	t.Helper()
	row := regexp.MustCompile("(?m)^\\| `([a-z_]+)` \\| ([a-z]+) \\| [a-z]+ \\| (.*) \\| [^|]*\\|$")
	value := regexp.MustCompile("`([^`]+)`")
	all := map[string]known{}
	for _, found := range row.FindAllStringSubmatch(string(read(t, "docs", "metrics.md")), -1) {
		metric := known{kind: found[2], labels: map[string][]string{}}
		for label := range strings.SplitSeq(found[3], "<br>") {
			name, values, _ := strings.Cut(label, ": ")
			if name = strings.Trim(name, "` "); name == "" {
				continue
			}
			metric.labels[name] = nil
			for _, each := range value.FindAllStringSubmatch(values, -1) {
				metric.labels[name] = append(metric.labels[name], each[1])
			}
		}
		all[found[1]] = metric
	}
	if len(all) == 0 {
		t.Fatal("docs/metrics.md has no metrics")
	}
	return all
}

// scraped returns the labels that Prometheus adds on scrapes.
func scraped() []string { return []string{"namespace", "pod", "job", "instance"} }

// check checks that a query uses existing metrics, labels and values.
func check(t *testing.T, where, query string, metrics map[string]known) {
	t.Helper()
	expression, err := newParser().ParseExpr(query)
	if err != nil {
		t.Errorf("%s: %q: %v", where, query, err)
		return
	}
	parser.Inspect(expression, func(node parser.Node, path []parser.Node) error {
		if selector, isSelector := node.(*parser.VectorSelector); isSelector {
			checkSelector(t, where, selector, path, metrics)
		}
		return nil
	})
}

func checkSelector(t *testing.T, where string, selector *parser.VectorSelector, path []parser.Node, metrics map[string]known) {
	t.Helper()
	name := selector.Name
	base := strings.TrimSuffix(strings.TrimSuffix(strings.TrimSuffix(name, "_bucket"), "_sum"), "_count")
	metric, exists := metrics[name]
	if !exists {
		if metric, exists = metrics[base]; exists && metric.kind != "histogram" {
			exists = false
		}
	} else if metric.kind == "histogram" {
		t.Errorf("%s: %s is a histogram: ask for its _bucket, _sum or _count", where, name)
	}
	if !exists {
		t.Errorf("%s asks for %s, which docs/metrics.md does not know", where, name)
		return
	}
	for _, matcher := range selector.LabelMatchers {
		checkMatcher(t, where, name, matcher, metric)
	}
	for _, node := range path {
		grouping, isAggregation := node.(*parser.AggregateExpr)
		if !isAggregation {
			continue
		}
		for _, label := range grouping.Grouping {
			if _, has := metric.labels[label]; !has && label != "le" && !slices.Contains(scraped(), label) {
				t.Errorf("%s groups %s by %s, which is no label of it", where, name, label)
			}
		}
	}
}

func checkMatcher(t *testing.T, where, name string, matcher *labels.Matcher, metric known) {
	t.Helper()
	if matcher.Name == model.MetricNameLabel || slices.Contains(scraped(), matcher.Name) {
		return
	}
	values, has := metric.labels[matcher.Name]
	if !has {
		t.Errorf("%s asks %s for label %s, which it has not", where, name, matcher.Name)
		return
	}
	// The value of a matcher must exist, whether the matcher selects or excludes it.
	wanted := []string{matcher.Value}
	if matcher.Type == labels.MatchRegexp || matcher.Type == labels.MatchNotRegexp {
		wanted = strings.Split(matcher.Value, "|")
	}
	for _, value := range wanted {
		if values != nil && !slices.Contains(values, value) {
			t.Errorf("%s asks %s for %s=%q, which it never is: %v", where, name, matcher.Name, value, values)
		}
	}
}

func TestAlertsAskForWhatThereIs(t *testing.T) {
	t.Parallel()
	known := metrics(t)
	for name, rule := range alerts(t) {
		check(t, name, rule.Expr, known)
		for _, text := range []string{rule.Labels["severity"], rule.Annotations["summary"], rule.Annotations["description"]} {
			if text == "" {
				t.Errorf("%s lacks a severity, a summary or a description", name)
			}
		}
	}
}

// panel is a panel of the dashboard, or a row of panels.
type panel struct {
	ID      int
	Type    string
	Title   string
	GridPos struct{ H, W, X, Y int }
	Targets []struct{ RefID, Expr, LegendFormat string }
}

// check checks the queries of a panel and records them.
func (p *panel) check(t *testing.T, metrics map[string]known, asked map[string]bool) {
	t.Helper()
	for _, target := range p.Targets {
		query := strings.NewReplacer("$__rate_interval", "5m", "$namespace", "di-system", "$team", "team-a").Replace(target.Expr)
		check(t, "panel "+p.Title, query, metrics)
		for name := range metrics {
			if strings.Contains(query, name) {
				asked[name] = true
			}
		}
	}
}

func TestTheDashboardsAskForWhatThereIs(t *testing.T) {
	t.Parallel()
	known, asked := metrics(t), map[string]bool{}
	for _, file := range []string{"dashboard.json", "team-dashboard.json"} {
		checkDashboard(t, file, known, asked)
	}
	for name := range known {
		if strings.HasPrefix(name, "di_orchestrator_") && !asked[name] {
			t.Errorf("no panel shows %s", name)
		}
	}
}

// checkDashboard checks the panels of a dashboard, and records the metrics that they ask for.
func checkDashboard(t *testing.T, file string, known map[string]known, asked map[string]bool) {
	t.Helper()
	var dashboard struct {
		SchemaVersion int
		Panels        []panel
	}
	if err := json.Unmarshal(read(t, "charts", "di-orchestrator", "files", file), &dashboard); err != nil {
		t.Fatal(err)
	}
	ids := map[int]bool{}
	for i, panel := range dashboard.Panels {
		if ids[panel.ID] {
			t.Errorf("%s has the number %d of another panel", panel.Title, panel.ID)
		}
		ids[panel.ID] = true
		if panel.Title == "" || panel.Type != "row" && len(panel.Targets) == 0 {
			t.Errorf("panel %d has no title, or asks for nothing", panel.ID)
		}
		panel.check(t, known, asked)
		for _, other := range dashboard.Panels[:i] {
			a, b := panel.GridPos, other.GridPos
			if a.X < b.X+b.W && b.X < a.X+a.W && a.Y < b.Y+b.H && b.Y < a.Y+a.H {
				t.Errorf("panels %s and %s lie over each other", panel.Title, other.Title)
			}
		}
	}
}
