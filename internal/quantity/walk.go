// Copyright The DI Orchestrator Authors.
// SPDX-License-Identifier: Apache-2.0

package quantity

import (
	"bytes"
	"encoding/json"
	"fmt"
	"strconv"
	"strings"
)

// CheckTemplate returns an error that names the first quantity of a pod template that Check
// rejects, by its path in the template. It reads the JSON once and decodes nothing else. It accepts
// invalid JSON, which does not decode later.
func CheckTemplate(raw []byte) error {
	return check(raw, podTemplate)
}

// CheckVolume is CheckTemplate for a volume of a pod.
func CheckVolume(raw []byte) error {
	return check(raw, volume)
}

func check(raw []byte, at *position) error {
	if !json.Valid(raw) {
		return nil
	}
	w := walker{data: raw}
	return w.value(at)
}

// walker reads valid JSON once from start to end. It descends only where there are positions, and
// skips values below them in one step.
type walker struct {
	data []byte
	next int
	path []string
}

func (w *walker) value(at *position) error {
	switch c := w.peek(); {
	case at == nil || at.quantity && (c == '{' || c == '['):
		w.skip()
	case c == '{':
		return w.object(at)
	case c == '[':
		return w.list(at)
	default:
		scalar := w.scalar()
		if at.quantity {
			return w.check(scalar)
		}
	}
	return nil
}

func (w *walker) check(scalar []byte) error {
	text := string(scalar)
	if scalar[0] == '"' {
		text = unquote(scalar)
	}
	if err := Check(text); err != nil {
		return fmt.Errorf("%s: %s: %w", strings.TrimPrefix(strings.Join(w.path, ""), "."), shorten(text), err)
	}
	return nil
}

func (w *walker) object(at *position) error {
	w.next++
	for w.peek() != '}' {
		name := unquote(w.scalar())
		step := "." + shorten(name)
		if at.every != nil {
			step = "[" + shorten(name) + "]"
		}
		w.peek()
		w.next++ // the colon
		if err := w.below(step, at.member(name)); err != nil {
			return err
		}
	}
	w.next++
	return nil
}

func (w *walker) list(at *position) error {
	w.next++
	for i := 0; w.peek() != ']'; i++ {
		if err := w.below("["+strconv.Itoa(i)+"]", at.every); err != nil {
			return err
		}
	}
	w.next++
	return nil
}

// below reads a value and the comma after it.
func (w *walker) below(step string, at *position) error {
	w.path = append(w.path, step)
	if err := w.value(at); err != nil {
		return err
	}
	w.path = w.path[:len(w.path)-1]
	if w.peek() == ',' {
		w.next++
	}
	return nil
}

// peek returns the next byte that is not white space, 0 at the end.
func (w *walker) peek() byte {
	for ; w.next < len(w.data); w.next++ {
		switch c := w.data[w.next]; c {
		case ' ', '\t', '\r', '\n':
		default:
			return c
		}
	}
	return 0
}

// scalar reads a value that is neither an object nor a list.
func (w *walker) scalar() []byte {
	begin := w.next
	if w.peek() == '"' {
		w.string()
		return w.data[begin:w.next]
	}
	for w.next < len(w.data) && !strings.ContainsRune(",:]} \t\r\n", rune(w.data[w.next])) {
		w.next++
	}
	return w.data[begin:w.next]
}

func (w *walker) string() {
	for w.next++; w.data[w.next] != '"'; w.next++ {
		if w.data[w.next] == '\\' {
			w.next++
		}
	}
	w.next++
}

// skip reads a value of any depth.
func (w *walker) skip() {
	depth := 0
	for {
		switch w.peek() {
		case '{', '[':
			depth++
			w.next++
		case '}', ']':
			depth--
			w.next++
		case ',', ':':
			w.next++
		default:
			w.scalar()
		}
		if depth == 0 {
			return
		}
	}
}

// unquote returns the text of a JSON string.
func unquote(quoted []byte) string {
	if bytes.IndexByte(quoted, '\\') < 0 {
		return string(quoted[1 : len(quoted)-1])
	}
	var text string
	// The string is valid, because the whole document is.
	_ = json.Unmarshal(quoted, &text)
	return text
}

// shownLength is the maximum length of a quantity that an error repeats.
const shownLength = 64

func shorten(text string) string {
	if len(text) <= shownLength {
		return text
	}
	return strings.ToValidUTF8(text[:shownLength], "") + "..."
}
