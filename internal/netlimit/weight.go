// Copyright The DI Orchestrator Authors.
// SPDX-License-Identifier: Apache-2.0

package netlimit

import "bytes"

// Values returns about how many values a text of JSON has, which is what decoding it
// takes memory for, more than for its bytes. It is no less than they are, takes no memory
// itself, and counts text that is no JSON as far as a decoder gets.
func Values(text []byte) int {
	count := 1
	for at := 0; at < len(text); at++ {
		switch text[at] {
		case '"':
			at = closing(text, at)
		case ',', '{', '[':
			count++
		}
	}
	return count
}

// closing returns where the string ends that begins at a place, or the end of the text.
func closing(text []byte, at int) int {
	begin := at + 1
	for at = begin; ; at++ {
		quote := bytes.IndexByte(text[at:], '"')
		if quote < 0 {
			return len(text)
		}
		at += quote
		backslashes := 0
		for before := at - 1; before >= begin && text[before] == '\\'; before-- {
			backslashes++
		}
		if backslashes%2 == 0 {
			return at
		}
	}
}
