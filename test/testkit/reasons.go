// Copyright The DI Orchestrator Authors.
// SPDX-License-Identifier: Apache-2.0

package testkit

import (
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"strings"
)

// DocumentedEvent is the row of docs/events.md for a reason.
type DocumentedEvent struct {
	// Types are Normal, Warning or both.
	Types []string
	// Conditions are the conditions that may have the same reason; none for an Event without a
	// condition.
	Conditions []string
}

// DocumentedEvents reads docs/events.md, by reason.
func DocumentedEvents() (map[string]DocumentedEvent, error) {
	content, err := os.ReadFile(filepath.Join(Root(), "docs", "events.md"))
	if err != nil {
		return nil, fmt.Errorf("reading the documented events: %w", err)
	}
	row := regexp.MustCompile("(?m)^\\| (`[^|]*`) \\| ([A-Z][a-z, A-Z]*) \\| ([^|]*) \\|")
	name := regexp.MustCompile("`([^`]+)`")
	events := map[string]DocumentedEvent{}
	for _, found := range row.FindAllStringSubmatch(string(content), -1) {
		event := DocumentedEvent{Types: strings.Split(found[2], ", ")}
		for _, condition := range name.FindAllStringSubmatch(found[3], -1) {
			event.Conditions = append(event.Conditions, condition[1])
		}
		for _, reason := range name.FindAllStringSubmatch(found[1], -1) {
			events[reason[1]] = event
		}
	}
	return events, nil
}
