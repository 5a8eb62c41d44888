// Copyright The DI Orchestrator Authors.
// SPDX-License-Identifier: Apache-2.0

package netlimit

import "bytes"

// Values returns an upper estimate of the number of values in a JSON text. Decoding needs memory per
// value, more than per byte. Values allocates no memory. It counts invalid JSON up to the point that a
// decoder reaches.
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

// Depth returns the maximum nesting of objects and lists in a JSON text. Decoders and encoders of several
// languages recurse per level. Depth allocates no memory and does not recurse. It does not check the JSON.
func Depth(text []byte) int {
	depth, most := 0, 0
	for at := 0; at < len(text); at++ {
		switch text[at] {
		case '"':
			at = closing(text, at)
		case '{', '[':
			depth++
			most = max(most, depth)
		case '}', ']':
			depth--
		}
	}
	return most
}

// closing returns the index of the end of the string that begins at an index, or the end of the text.
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
