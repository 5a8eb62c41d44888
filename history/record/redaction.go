// Copyright The DI Orchestrator Authors.
// SPDX-License-Identifier: Apache-2.0

package tails

import (
	"fmt"
	"regexp"
)

// redacted replaces each match.
const redacted = "[redacted]"

// Redaction is what is removed from logs.
type Redaction []*regexp.Regexp

// NewRedaction returns the redaction of some expressions.
func NewRedaction(expressions []string) (Redaction, error) {
	var all Redaction
	for _, expression := range expressions {
		compiled, err := regexp.Compile(expression)
		if err != nil {
			return nil, fmt.Errorf("history.logs.redact: %w", err)
		}
		all = append(all, compiled)
	}
	return all, nil
}

// apply replaces all matches. It returns at most the last maxBytes: each replacement may be longer than its match.
func (r Redaction) apply(text string) string {
	for _, expression := range r {
		text = expression.ReplaceAllStringFunc(text, func(match string) string {
			if match == "" {
				return ""
			}
			return redacted
		})
		text = text[max(len(text)-maxBytes, 0):]
	}
	return text
}
