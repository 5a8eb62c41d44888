// Copyright The DI Orchestrator Authors.
// SPDX-License-Identifier: Apache-2.0

// Package recorder truncates the notes of Events to the length that the API server accepts.
package recorder

import "strings"

// maxNote is the maximum length of an Event's note in bytes.
const maxNote = 1024

// Note truncates a text to the length of an Event's note. A truncated text ends in
// three dots.
func Note(text string) string {
	if len(text) <= maxNote {
		return text
	}
	return strings.ToValidUTF8(text[:maxNote-len("...")], "") + "..."
}
