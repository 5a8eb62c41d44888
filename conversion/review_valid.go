// Copyright The DI Orchestrator Authors.
// SPDX-License-Identifier: Apache-2.0

package conversion

import (
	"encoding/binary"
	"math/bits"
)

// maxDepth is the maximum nesting depth of values, as in encoding/json.
const maxDepth = 10_000

// valid reports whether the bytes are one JSON value, as json.Valid does. It takes about a quarter
// of the time of json.Valid, and half the time of converting.
func valid(raw []byte) bool {
	c := checker{scanner{data: raw}}
	if !c.value(0) {
		return false
	}
	c.peek()
	return c.at == len(raw)
}

// checker steps through bytes and validates them as JSON.
type checker struct {
	scanner
}

// value steps over a value and reports whether it is valid.
func (c *checker) value(depth int) bool {
	switch c.peek() {
	case '{':
		return c.container('}', depth, c.member)
	case '[':
		return c.container(']', depth, c.value)
	case '"':
		return c.text()
	case 't':
		return c.literal("true")
	case 'f':
		return c.literal("false")
	case 'n':
		return c.literal("null")
	default:
		return c.number()
	}
}

// container steps over an object or an array. The function steps over one element.
func (c *checker) container(closing byte, depth int, element func(depth int) bool) bool {
	if depth >= maxDepth {
		return false
	}
	c.at++
	if c.open(closing) {
		return true
	}
	for element(depth + 1) {
		if c.open(closing) {
			return true
		}
		if !c.open(',') {
			return false
		}
	}
	return false
}

// member steps over a name, a colon and a value.
func (c *checker) member(depth int) bool {
	return c.peek() == '"' && c.text() && c.open(':') && c.value(depth)
}

// text steps over a string.
func (c *checker) text() bool {
	c.at++
	for {
		c.at = special(c.data, c.at)
		if c.at == len(c.data) {
			return false
		}
		switch c.data[c.at] {
		case '"':
			c.at++
			return true
		case '\\':
			if !c.escape() {
				return false
			}
		default: // a control character
			return false
		}
	}
}

// escape steps over an escape sequence.
func (c *checker) escape() bool {
	rest := c.data[c.at+1:]
	if len(rest) == 0 {
		return false
	}
	switch rest[0] {
	case '"', '\\', '/', 'b', 'f', 'n', 'r', 't':
		c.at += 2
		return true
	case 'u':
		if len(rest) < 5 || !isHex(rest[1]) || !isHex(rest[2]) || !isHex(rest[3]) || !isHex(rest[4]) {
			return false
		}
		c.at += 6
		return true
	}
	return false
}

func isHex(b byte) bool {
	return b >= '0' && b <= '9' || b >= 'a' && b <= 'f' || b >= 'A' && b <= 'F'
}

func (c *checker) literal(word string) bool {
	if len(c.data)-c.at < len(word) || string(c.data[c.at:c.at+len(word)]) != word {
		return false
	}
	c.at += len(word)
	return true
}

// number steps over a number. A leading zero and a point without digits are invalid.
func (c *checker) number() bool {
	c.skip("-")
	if !c.skip("0") && !c.digits() {
		return false
	}
	if c.skip(".") && !c.digits() {
		return false
	}
	if c.skip("eE") {
		c.skip("+-")
		return c.digits()
	}
	return true
}

// skip steps over the next byte if it is one of these.
func (c *checker) skip(any string) bool {
	if c.at == len(c.data) {
		return false
	}
	for i := range len(any) {
		if c.data[c.at] == any[i] {
			c.at++
			return true
		}
	}
	return false
}

func (c *checker) digits() bool {
	start := c.at
	for c.at < len(c.data) && c.data[c.at] >= '0' && c.data[c.at] <= '9' {
		c.at++
	}
	return c.at > start
}

// special returns the index of the next byte inside a string that is a quote, a backslash or a
// control character, and the length of the data if there is none. It reads eight bytes at a time.
func special(data []byte, from int) int {
	const ones, highs = 0x0101010101010101, 0x8080808080808080
	at := min(from, len(data))
	for ; len(data)-at >= 8; at += 8 {
		word := binary.LittleEndian.Uint64(data[at:])
		quote, backslash := word^(ones*'"'), word^(ones*'\\')
		// The high bit of a byte is set if the byte is zero or below a space. It can be set wrongly
		// only above a byte for which it is set correctly.
		found := ((quote-ones)&^quote | (backslash-ones)&^backslash | (word-ones*' ')&^word) & highs
		if found != 0 {
			return at + bits.TrailingZeros64(found)/8
		}
	}
	for ; at < len(data); at++ {
		if b := data[at]; b == '"' || b == '\\' || b < ' ' {
			return at
		}
	}
	return at
}
