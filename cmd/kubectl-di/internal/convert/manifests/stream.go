// Copyright The DI Orchestrator Authors.
// SPDX-License-Identifier: Apache-2.0

// Package manifests reads files of Kubernetes manifests and writes them with some objects changed.
// Everything that does not change keeps its text: comments, order of keys, quoting, numbers and
// anchors.
//
// It reads YAML like kubectl, with the booleans of YAML 1.1. It has no knowledge of any kind of
// object.
package manifests

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"unicode/utf8"
)

// Part is a piece of a file: one document with its separator, or a text without a document, such as
// comments. The joined parts are the file.
type Part struct {
	// Separator is the line that starts the document, with its line break; "" for a first document
	// without a separator.
	Separator string
	// Body is the document.
	Body string
	// End is the line that ends the document, "..." with its line break; "" if the document ends at
	// the next separator.
	End string
	// Line is the first line of the body in the file, from 1.
	Line int
}

// ByteOrderMark may start a file, and is not part of a document.
const ByteOrderMark = "\ufeff"

// CheckEncoding returns an error with the first line that is not UTF-8, which YAML and JSON
// require.
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

// Split splits a file into its documents. JSON objects may follow each other without a separator.
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

// nextPart returns the first part of a text, and its length.
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

// firstLine returns the first line of a text with its line break.
func firstLine(text string) string {
	if i := strings.IndexByte(text, '\n'); i >= 0 {
		return text[:i+1]
	}
	return text
}

// cutMarker splits the document marker off a line, "" if the line has none. The rest of the line
// belongs to the document.
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

// jsonObjects splits a document of several consecutive JSON objects.
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
			return []Part{part} // A flow mapping of YAML.
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

// IsEmpty reports whether a part has no document: only blank lines, comments and directives.
func (p *Part) IsEmpty() bool {
	for line := range strings.Lines(p.Body) {
		text := strings.TrimSpace(line)
		if text != "" && text[0] != '#' && line[0] != '%' {
			return false
		}
	}
	return true
}

// IsJSON reports whether the document is JSON.
func (p *Part) IsJSON() bool {
	body := strings.TrimSpace(p.Body)
	return strings.HasPrefix(body, "{") && json.Valid([]byte(body))
}

// FormatJSON formats JSON like another text: on one line, or with the same indent.
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
