// Copyright The DI Orchestrator Authors.
// SPDX-License-Identifier: Apache-2.0

package record

import "strings"

// maxSuffix is the length of what a name ends with that the API server made unique.
const maxSuffix = 5

// Family returns what a job shares with those that it is compared with: its group, or its name without the number or
// random text that makes it unique.
func (j *Job) Family() string {
	if j.Group != "" {
		return Text("group/"+j.Group, MaxText)
	}
	stem := j.Name
	if dash := strings.LastIndexByte(stem, '-'); dash > 0 && isUnique(stem[dash+1:]) {
		stem = stem[:dash]
	}
	return Text("name/"+stem, MaxText)
}

// isUnique reports whether the end of a name is a number, or as long as a random text.
func isUnique(end string) bool {
	if end == "" {
		return false
	}
	return strings.Trim(end, "0123456789") == "" || len(end) == maxSuffix
}
