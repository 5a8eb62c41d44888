// Copyright The DI Orchestrator Authors.
// SPDX-License-Identifier: Apache-2.0

package record

import (
	"fmt"
	"regexp"
	"slices"
	"strings"
)

// redacted replaces each match.
const redacted = "[redacted]"

// Redaction is what is removed from logs and messages.
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

// Text replaces all matches. What is replaced once stays as it is.
func (r Redaction) Text(text string) string {
	if text == "" {
		return ""
	}
	for _, expression := range r {
		parts := strings.Split(text, redacted)
		for i, part := range parts {
			parts[i] = expression.ReplaceAllStringFunc(part, func(match string) string {
				if match == "" {
					return ""
				}
				return redacted
			})
		}
		text = strings.Join(parts, redacted)
	}
	return text
}

// Job returns a job whose messages are redacted: programs write these, too, by the termination messages of containers.
func (r Redaction) Job(job Job) Job {
	if len(r) == 0 {
		return job
	}
	job.Message = r.Text(job.Message)
	job.Attempts, job.Replicas, job.Restarts = slices.Clone(job.Attempts), slices.Clone(job.Replicas), slices.Clone(job.Restarts)
	job.Plans, job.Conditions, job.Events = slices.Clone(job.Plans), slices.Clone(job.Conditions), slices.Clone(job.Events)
	for i := range job.Attempts {
		job.Attempts[i].Message = r.Text(job.Attempts[i].Message)
	}
	for i := range job.Replicas {
		job.Replicas[i].Message = r.Text(job.Replicas[i].Message)
	}
	for i := range job.Restarts {
		job.Restarts[i].Message = r.Text(job.Restarts[i].Message)
	}
	for i := range job.Plans {
		job.Plans[i].Message = r.Text(job.Plans[i].Message)
	}
	for i := range job.Conditions {
		job.Conditions[i].Message = r.Text(job.Conditions[i].Message)
	}
	for i := range job.Events {
		job.Events[i].Message = r.Text(job.Events[i].Message)
	}
	return job
}
