// Copyright The DI Orchestrator Authors.
// SPDX-License-Identifier: Apache-2.0

package quantity

import (
	"fmt"
	"strconv"
	"strings"
)

const (
	// MaxLength is the maximum length of a quantity's text, in bytes. A quantity that Kubernetes
	// writes itself has at most 19 digits and a suffix.
	MaxLength = 40
	// MaxExponent is the maximum absolute exponent of a quantity. The largest suffix, E, is 18, and
	// Kubernetes stores nothing finer than 1e-9.
	MaxExponent = 18
)

// Check returns an error for a quantity whose length or exponent is too large to compute with. The
// length of an accepted text bounds each computation. A text that is no quantity is accepted,
// because the parser rejects it at once.
func Check(text string) error {
	text = strings.TrimSpace(text)
	if len(text) > MaxLength {
		return fmt.Errorf("a quantity must have at most %d characters, and this has %d", MaxLength, len(text))
	}
	mark := strings.LastIndexAny(text, "eE")
	if mark < 0 || !isInteger(text[mark+1:]) {
		// 12E has the suffix for a power of 1000, and 12Ei that for a power of 1024.
		return nil
	}
	exponent, err := strconv.Atoi(text[mark+1:])
	if err != nil || exponent < -MaxExponent || exponent > MaxExponent {
		return fmt.Errorf("the exponent of a quantity must be from %d to %d", -MaxExponent, MaxExponent)
	}
	return nil
}

// isInteger reports whether the text consists of digits, with or without a sign.
func isInteger(text string) bool {
	if text != "" && (text[0] == '+' || text[0] == '-') {
		text = text[1:]
	}
	return text != "" && strings.Trim(text, "0123456789") == ""
}
