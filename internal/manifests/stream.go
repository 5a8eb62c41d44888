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
	"fmt"
	"strings"
)

// Part is a piece of a file: one document with what stands before it, or what
// holds no document, such as comments. The parts of a file, joined, are the file.
type Part struct {
	// Separator is the line that starts the document, with its line break, ""
	// for a first document without one.
	Separator string
	// Body is the document.
	Body string
	// Line is the line of the file that the body starts on, from 1.
	Line int
}

// Split cuts a file into its documents. JSON objects may follow each other
// without a separator.
func Split(file []byte) []Part {
	var parts []Part
	current, line, started := Part{Line: 1}, 0, false
	for text := range strings.Lines(string(file)) {
		line++
		switch marker, rest := cutMarker(text); {
		case marker != "":
			if started {
				parts = append(parts, current)
			}
			current = Part{Separator: marker, Body: rest, Line: line}
			if rest == "" {
				current.Line = line + 1
			}
		case strings.TrimRight(text, " \t\r\n") == "...":
			current.Body += text
			parts = append(parts, current)
			current, started = Part{Line: line + 1}, false
			continue
		default:
			current.Body += text
		}
		started = true
	}
	if started {
		parts = append(parts, current)
	}
	return splitJSON(parts)
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

// splitJSON cuts documents that are several JSON objects in a row.
func splitJSON(parts []Part) []Part {
	var split []Part
	for _, part := range parts {
		split = append(split, jsonObjects(part)...)
	}
	return split
}

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
	return objects
}

// IsEmpty says whether a part holds no document: only blank lines, comments and
// directives.
func (p *Part) IsEmpty() bool {
	for line := range strings.Lines(p.Body) {
		text := strings.TrimSpace(line)
		if text != "" && text != "..." && text[0] != '#' && line[0] != '%' {
			return false
		}
	}
	return true
}

// IsJSON says whether the document is written as JSON.
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
