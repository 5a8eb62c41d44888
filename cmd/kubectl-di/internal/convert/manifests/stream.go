// Copyright The DI Orchestrator Authors.
// SPDX-License-Identifier: Apache-2.0

// Package manifests reads files of Kubernetes manifests and writes them back
// with some objects changed: what did not change stays as it was written,
// comments, order of keys, quoting, numbers and anchors among it.
//
// It reads YAML as kubectl does, that is with YAML 1.1's words for booleans.
// It knows nothing of any kind of object.
package manifests

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"unicode/utf8"
)

// Part is a piece of a file: one document with what stands before it, or what
// holds no document, such as comments. The parts of a file, joined, are the file.
type Part struct {
	// Separator is the line that starts the document, with its line break, ""
	// for a first document without one.
	Separator string
	// Body is the document.
	Body string
	// End is the line that ends the document, "..." with its line break, "" for
	// one that ends where the next starts.
	End string
	// Line is the line of the file that the body starts on, from 1.
	Line int
}

// ByteOrderMark may start a file, and is no part of any document.
const ByteOrderMark = "\ufeff"

// CheckEncoding returns an error that names the line where a file is not UTF-8,
// as YAML and JSON have to be.
func CheckEncoding(file []byte) error {
	if bytes.HasPrefix(file, []byte("\xff\xfe")) || bytes.HasPrefix(file, []byte("\xfe\xff")) {
		return errors.New("is written in UTF-16; save it as UTF-8")
	}
	if utf8.Valid(file) {
		return nil
	}
	at := 0
	for {
		letter, size := utf8.DecodeRune(file[at:])
		if letter == utf8.RuneError && size <= 1 {
			return fmt.Errorf("line %d: the byte 0x%02x is not UTF-8; save the file as UTF-8", 1+bytes.Count(file[:at], []byte("\n")), file[at])
		}
		at += size
	}
}

// Split cuts a file into its documents. JSON objects may follow each other
// without a separator.
func Split(file []byte) []Part {
	var parts []Part
	line := 1
	for rest := string(file); rest != ""; {
		part, length := nextPart(rest, line)
		parts = append(parts, jsonObjects(part)...)
		line += strings.Count(rest[:length], "\n")
		rest = rest[length:]
	}
	return parts
}

// nextPart cuts off the part that a text starts with, and returns its length.
func nextPart(text string, line int) (Part, int) {
	part := Part{Line: line}
	first := firstLine(text)
	end := 0
	if marker, rest := cutMarker(first); marker != "" {
		part.Separator, end = marker, len(first)
		if rest == "" {
			part.Line++
		}
	}
	for end < len(text) {
		next := firstLine(text[end:])
		if marker, _ := cutMarker(next); marker != "" {
			break
		}
		if strings.TrimRight(next, " \t\r\n") == "..." {
			part.End = next
			break
		}
		end += len(next)
	}
	part.Body = text[len(part.Separator):end]
	return part, end + len(part.End)
}

// firstLine is the first line of a text with its line break.
func firstLine(text string) string {
	if i := strings.IndexByte(text, '\n'); i >= 0 {
		return text[:i+1]
	}
	return text
}

// cutMarker cuts the marker that starts a document off a line, "" if the line
// has none. What follows it on the line is the document's.
func cutMarker(line string) (marker, rest string) {
	after, found := strings.CutPrefix(line, "---")
	if !found {
		return "", line
	}
	content := strings.TrimLeft(after, " \t\r\n")
	if content == "" || strings.HasPrefix(content, "#") {
		return line, ""
	}
	if len(content) == len(after) {
		return "", line
	}
	return line[:len(line)-len(content)], content
}

// jsonObjects cuts a document that is several JSON objects in a row.
func jsonObjects(part Part) []Part {
	if !strings.HasPrefix(strings.TrimSpace(part.Body), "{") {
		return []Part{part}
	}
	decoder := json.NewDecoder(strings.NewReader(part.Body))
	var objects []Part
	start := 0
	for decoder.More() {
		var object json.RawMessage
		if err := decoder.Decode(&object); err != nil {
			return []Part{part} // YAML's way to write an object.
		}
		end := int(decoder.InputOffset())
		if next := strings.IndexByte(part.Body[end:], '\n'); next >= 0 && strings.TrimSpace(part.Body[end:end+next]) == "" {
			end += next + 1
		}
		body := part.Body[start:end]
		blank := strings.Count(body[:len(body)-len(strings.TrimLeft(body, " \t\r\n"))], "\n")
		objects = append(objects, Part{Body: body, Line: part.Line + strings.Count(part.Body[:start], "\n") + blank})
		start = end
	}
	if len(objects) == 0 {
		return []Part{part}
	}
	objects[0].Separator, objects[0].Line = part.Separator, part.Line
	objects[len(objects)-1].Body += part.Body[start:]
	objects[len(objects)-1].End = part.End
	return objects
}

// IsEmpty reports whether a part holds no document: only blank lines, comments and
// directives.
func (p *Part) IsEmpty() bool {
	for line := range strings.Lines(p.Body) {
		text := strings.TrimSpace(line)
		if text != "" && text[0] != '#' && line[0] != '%' {
			return false
		}
	}
	return true
}

// IsJSON reports whether the document is written as JSON.
func (p *Part) IsJSON() bool {
	body := strings.TrimSpace(p.Body)
	return strings.HasPrefix(body, "{") && json.Valid([]byte(body))
}

// FormatJSON writes JSON as it is written elsewhere: on one line, or indented
// by as much.
func FormatJSON(raw []byte, like string) ([]byte, error) {
	var out bytes.Buffer
	_, second, multiline := strings.Cut(strings.TrimSpace(like), "\n")
	indent := second[:len(second)-len(strings.TrimLeft(second, " \t"))]
	var err error
	switch {
	case !multiline:
		err = json.Compact(&out, raw)
	case indent == "":
		err = json.Indent(&out, raw, "", "  ")
	default:
		err = json.Indent(&out, raw, "", indent)
	}
	if err != nil {
		return nil, fmt.Errorf("formatting JSON: %w", err)
	}
	return append(out.Bytes(), '\n'), nil
}
