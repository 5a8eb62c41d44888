// Copyright The DI Orchestrator Authors.
// SPDX-License-Identifier: Apache-2.0

// Package recorder fits the notes of Events to what the API server accepts.
package recorder

import "strings"

// maxNote is how long the API server lets the note of an Event be, in bytes.
const maxNote = 1024

// Note truncates a text to the length of an Event's note. A truncated text ends in
// three dots.
func Note(text string) string {
	if len(text) <= maxNote {
		return text
	}
	return strings.ToValidUTF8(text[:maxNote-len("...")], "") + "..."
}
