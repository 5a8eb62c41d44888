// Copyright The DI Orchestrator Authors.
// SPDX-License-Identifier: Apache-2.0

package conversion

import (
	"bytes"
	"encoding/json"
	"slices"
)

// object is a JSON object as a list of its members, in their order. The values are the bytes that
// were read. What is not interpreted is therefore written unchanged: numbers of any size, nulls,
// unknown fields.
type object []member

type member struct {
	key   string
	value []byte
}

// indexFrom is the number of members from which an index for finding duplicates is worth its
// memory.
const indexFrom = 32

// parseObject splits an object into its members. The input must be valid JSON. The result is false
// if the value is not an object. As in encoding/json, the last of several members with one name
// counts.
func parseObject(raw []byte) (object, bool) {
	s := scanner{data: raw}
	if !s.open('{') {
		return nil, false
	}
	parsed := object{}
	var index map[string]int
	for s.more('}') {
		key := s.key()
		value := s.value()
		if len(parsed) == indexFrom {
			index = parsed.index()
		}
		if i := parsed.find(key, index); i >= 0 {
			parsed[i].value = value
			continue
		}
		if index != nil {
			index[key] = len(parsed)
		}
		parsed = append(parsed, member{key, value})
	}
	return parsed, true
}

// parseArray splits an array into its items, under the same conditions as parseObject.
func parseArray(raw []byte) ([][]byte, bool) {
	s := scanner{data: raw}
	if !s.open('[') {
		return nil, false
	}
	items := [][]byte{}
	for s.more(']') {
		items = append(items, s.value())
	}
	return items, true
}

// countItems returns the number of items of an array, and 0 if the value is not an array.
func countItems(raw []byte) int {
	s, count := scanner{data: raw}, 0
	if !s.open('[') {
		return 0
	}
	for s.more(']') {
		s.value()
		count++
	}
	return count
}

func (o object) index() map[string]int {
	index := make(map[string]int, 2*len(o))
	for i := range o {
		index[o[i].key] = i
	}
	return index
}

func (o object) find(key string, index map[string]int) int {
	if index != nil {
		if i, ok := index[key]; ok {
			return i
		}
		return -1
	}
	for i := range o {
		if o[i].key == key {
			return i
		}
	}
	return -1
}

// get returns the value of a member, and whether the member exists.
func (o object) get(key string) ([]byte, bool) {
	if i := o.find(key, nil); i >= 0 {
		return o[i].value, true
	}
	return nil, false
}

// text returns the value of a member that is a string, and "" otherwise.
func (o object) text(key string) string {
	value, _ := o.get(key)
	return text(value)
}

// set replaces the value of a member at its position, or appends the member.
func (o *object) set(key string, value []byte) {
	if i := o.find(key, nil); i >= 0 {
		(*o)[i].value = value
		return
	}
	*o = append(*o, member{key, value})
}

// without returns the object's other members.
func (o object) without(keys ...string) object {
	rest := make(object, 0, len(o))
	for _, m := range o {
		if !slices.Contains(keys, m.key) {
			rest = append(rest, m)
		}
	}
	return rest
}

// completedBy returns the object with those members of the other object whose names it does not
// have.
func (o object) completedBy(other object) object {
	own := o[:len(o):len(o)]
	var index map[string]int
	if len(own) >= indexFrom {
		index = own.index()
	}
	for _, m := range other {
		if own.find(m.key, index) < 0 {
			o = append(o, m)
		}
	}
	return o
}

// bytes returns the object as JSON.
func (o object) bytes() []byte {
	size := 2
	for i := range o {
		size += len(o[i].key) + len(o[i].value) + 4
	}
	out := make([]byte, 0, size)
	out = append(out, '{')
	for i := range o {
		if i > 0 {
			out = append(out, ',')
		}
		out = appendQuoted(out, o[i].key)
		out = append(out, ':')
		out = append(out, o[i].value...)
	}
	return append(out, '}')
}

// joinArray returns the items as a JSON array.
func joinArray(items [][]byte) []byte {
	size := 2 + len(items)
	for _, item := range items {
		size += len(item)
	}
	out := append(make([]byte, 0, size), '[')
	for i, item := range items {
		if i > 0 {
			out = append(out, ',')
		}
		out = append(out, item...)
	}
	return append(out, ']')
}

// quote returns a string as JSON.
func quote(s string) []byte {
	return appendQuoted(make([]byte, 0, len(s)+2), s)
}

// appendQuoted appends a string as JSON. Most strings need no escaping.
func appendQuoted(out []byte, s string) []byte {
	if !plain(s) {
		// A string always marshals.
		quoted, _ := json.Marshal(s)
		return append(out, quoted...)
	}
	out = append(out, '"')
	out = append(out, s...)
	return append(out, '"')
}

// text returns a JSON string's content, and "" for any other value.
func text(raw []byte) string {
	if !bytes.HasPrefix(raw, []byte{'"'}) {
		return ""
	}
	if inside := raw[1:max(1, len(raw)-1)]; plain(inside) {
		return string(inside)
	}
	var s string
	// A value that is not a string leaves it empty.
	_ = json.Unmarshal(raw, &s)
	return s
}

// scanner steps through JSON that is known to be valid, so it interprets only strings, brackets and
// commas. On other input its results are meaningless, but it terminates and stays within bounds.
type scanner struct {
	data []byte
	at   int
}

func (s *scanner) peek() byte {
	for s.at < len(s.data) {
		switch c := s.data[s.at]; c {
		case ' ', '\t', '\n', '\r':
			s.at++
		default:
			return c
		}
	}
	return 0
}

// open steps over an opening bracket if the value starts with it.
func (s *scanner) open(bracket byte) bool {
	if s.peek() != bracket {
		return false
	}
	s.at++
	return true
}

// more steps over a comma and reports whether another element follows.
func (s *scanner) more(closing byte) bool {
	c := s.peek()
	if c == ',' {
		s.at++
		c = s.peek()
	}
	return c != closing && c != 0
}

// key reads a member's name and steps over the colon.
func (s *scanner) key() string {
	raw := s.value()
	if s.peek() == ':' {
		s.at++
	}
	return text(raw)
}

// plain reports whether the content of a JSON string needs no unescaping.
func plain[T string | []byte](inside T) bool {
	for i := range len(inside) {
		if c := inside[i]; c < ' ' || c == '"' || c == '\\' || c >= 0x80 {
			return false
		}
	}
	return true
}

// value reads one value of any kind, without the whitespace around it.
func (s *scanner) value() []byte {
	s.peek()
	start := s.at
	raw := s.skipValue()
	if s.at == start {
		// The input is invalid. Advance, so that the caller reaches the end.
		s.at++
	}
	return raw
}

// skipValue steps over a value and returns it.
func (s *scanner) skipValue() []byte {
	data, start, at, depth := s.data, s.at, s.at, 0
scan:
	for at < len(data) {
		switch data[at] {
		case '"':
			at = afterString(data, at)
			if depth == 0 {
				break scan
			}
			continue
		case '{', '[':
			depth++
		case '}', ']':
			if depth == 0 {
				break scan
			}
			depth--
			if depth == 0 {
				at++
				break scan
			}
		case ',', ' ', '\t', '\n', '\r':
			if depth == 0 {
				break scan
			}
		}
		at++
	}
	s.at = at
	return data[start:at]
}

// afterString returns the index after the string that begins at an index, or the end of the data if
// the string is not terminated.
func afterString(data []byte, at int) int {
	at++
	for {
		at = special(data, at)
		switch {
		case at == len(data):
			return at
		case data[at] == '"':
			return at + 1
		case data[at] == '\\':
			at += 2
		default:
			// Invalid, but a scanner does not validate.
			at++
		}
	}
}
