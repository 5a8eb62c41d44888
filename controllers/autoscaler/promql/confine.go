// Copyright The DI Orchestrator Authors.
// SPDX-License-Identifier: Apache-2.0

// Package promql confines queries of PromQL, which the authors of jobs choose.
package promql

import (
	"fmt"

	"github.com/prometheus/prometheus/model/labels"
	"github.com/prometheus/prometheus/promql/parser"
)

// namespaceLabel is the label that Prometheus gives the series of a pod, by the usual configuration of its
// targets.
const namespaceLabel = "namespace"

// Confine returns a query that selects only series of a namespace. The author of a job chooses the query, but may
// not read the metrics of others. A query that names another namespace selects nothing.
func Confine(query, namespace string) (string, error) {
	expression, err := parser.NewParser(parser.Options{}).ParseExpr(query)
	if err != nil {
		// The error is about the author's own text.
		return "", fmt.Errorf("is not a query of PromQL: %w", err)
	}
	matcher, err := labels.NewMatcher(labels.MatchEqual, namespaceLabel, namespace)
	if err != nil {
		return "", fmt.Errorf("confining the query to namespace %s: %w", namespace, err)
	}
	parser.Inspect(expression, func(node parser.Node, _ []parser.Node) error {
		if selector, selects := node.(*parser.VectorSelector); selects {
			selector.LabelMatchers = append(selector.LabelMatchers, matcher)
		}
		return nil
	})
	return expression.String(), nil
}
