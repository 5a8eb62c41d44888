// Copyright The DI Orchestrator Authors.
// SPDX-License-Identifier: Apache-2.0

package manifests

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"regexp"
	"strconv"
	"strings"

	"go.yaml.in/yaml/v4"
	kyaml "sigs.k8s.io/yaml"
)

// Origins returns the paths in the old content that a part of the new content may come from, the
// likeliest first. Paths consist of member names and decimal array indexes.
type Origins func(path []string) [][]string

// Rewrite returns the document as YAML with a new content, which is JSON. Parts that equal the old
// content at one of their origins keep their text.
func (d *Document) Rewrite(newContent []byte, origins Origins) ([]byte, error) {
	wanted, err := fromJSON(newContent)
	if err != nil {
		return nil, err
	}
	g := &grafting{old: d, origins: origins}
	root := g.graft(wanted, nil)
	document := *d.node
	for _, attempt := range []func(*yaml.Node) *yaml.Node{
		func(n *yaml.Node) *yaml.Node { return (&anchors{seen: map[*yaml.Node]bool{}}).order(n) },
		func(n *yaml.Node) *yaml.Node { return withoutAnchors(n, 0) },
		func(*yaml.Node) *yaml.Node { return wanted },
	} {
		document.Content = []*yaml.Node{attempt(root)}
		out, err := dump(&document, d.layout())
		// Decode the result and compare it: formatting must never change the content.
		if err == nil && says(out, newContent) {
			return d.withLineEnds(out), nil
		}
	}
	return nil, errors.New("the converted object cannot be written as YAML")
}

// withLineEnds converts line breaks to the document's.
func (d *Document) withLineEnds(text []byte) []byte {
	if !d.windows {
		return text
	}
	return bytes.ReplaceAll(text, []byte("\n"), []byte("\r\n"))
}

// YAML converts JSON to YAML.
func YAML(content []byte) ([]byte, error) {
	node, err := fromJSON(content)
	if err != nil {
		return nil, err
	}
	out, err := dump(&yaml.Node{Kind: yaml.DocumentNode, Content: []*yaml.Node{node}}, layout{indent: 2, compact: true})
	if err == nil && !says(out, content) {
		err = errors.New("the object cannot be written as YAML")
	}
	return out, err
}

// says reports whether YAML decodes to the content.
func says(text, content []byte) bool {
	read, err := parse(string(text), 1)
	if err != nil {
		return false
	}
	got, err := decode(read.json)
	if err != nil {
		return false
	}
	want, err := decode(content)
	return err == nil && sameContent(got, want)
}

// layout is the indentation of block collections.
type layout struct {
	indent  int
	compact bool
}

// layout returns the indentation of the document's first nested collections.
func (d *Document) layout() layout {
	found, known := layout{indent: 2, compact: true}, false
	sequences := false
	eachNode(d.node, func(node *yaml.Node) {
		if node.Kind != yaml.MappingNode || node.Style&yaml.FlowStyle != 0 {
			return
		}
		for i := 0; i+1 < len(node.Content); i += 2 {
			key, value := node.Content[i], node.Content[i+1]
			if value.Style&yaml.FlowStyle != 0 || value.Line == key.Line {
				continue
			}
			step := value.Column - key.Column
			switch {
			case value.Kind == yaml.MappingNode && !known && step >= 2 && step <= 9:
				found.indent, known = step, true
			case value.Kind == yaml.SequenceNode && !sequences:
				found.compact, sequences = step == 0, true
			}
		}
	})
	return found
}

func dump(document *yaml.Node, as layout) ([]byte, error) {
	var out bytes.Buffer
	dumper, err := yaml.NewDumper(&out, yaml.WithV4Defaults(), yaml.WithIndent(as.indent), yaml.WithCompactSeqIndent(as.compact),
		yaml.WithLineWidth(-1))
	if err != nil {
		return nil, fmt.Errorf("writing YAML: %w", err)
	}
	if err := dumper.Dump(document); err != nil {
		return nil, fmt.Errorf("writing YAML: %w", err)
	}
	if err := dumper.Close(); err != nil {
		return nil, fmt.Errorf("writing YAML: %w", err)
	}
	return regexp.MustCompile(`(?m)^[ ]*`+blankMark+`\d+~$`).ReplaceAll(out.Bytes(), nil), nil
}

// fromJSON returns JSON as YAML nodes in block style.
func fromJSON(raw []byte) (*yaml.Node, error) {
	decoder := json.NewDecoder(bytes.NewReader(raw))
	decoder.UseNumber()
	return nextNode(decoder)
}

func nextNode(decoder *json.Decoder) (*yaml.Node, error) {
	token, err := decoder.Token()
	if err != nil {
		return nil, fmt.Errorf("decoding JSON: %w", err)
	}
	switch token := token.(type) {
	case json.Delim:
		node := &yaml.Node{Kind: yaml.MappingNode, Tag: "!!map"}
		if token == '[' {
			node = &yaml.Node{Kind: yaml.SequenceNode, Tag: "!!seq"}
		}
		for decoder.More() {
			child, err := nextNode(decoder)
			if err != nil {
				return nil, err
			}
			node.Content = append(node.Content, child)
		}
		node.Style = collectionStyle(node)
		_, err := decoder.Token()
		return node, err
	case string:
		return textNode(token), nil
	case json.Number:
		return &yaml.Node{Kind: yaml.ScalarNode, Value: token.String()}, nil
	case bool:
		return &yaml.Node{Kind: yaml.ScalarNode, Tag: "!!bool", Value: strconv.FormatBool(token)}, nil
	default:
		return &yaml.Node{Kind: yaml.ScalarNode, Tag: "!!null", Value: "null"}, nil
	}
}

// collectionStyle returns flow style for empty collections and lists of numbers.
func collectionStyle(node *yaml.Node) yaml.Style {
	if len(node.Content) == 0 {
		return yaml.FlowStyle
	}
	if node.Kind == yaml.MappingNode {
		return 0
	}
	for _, item := range node.Content {
		if item.Kind != yaml.ScalarNode || !isJSONNumber(item.Value) || item.Tag == "!!str" {
			return 0
		}
	}
	return yaml.FlowStyle
}

// textNode returns a string node, quoted if kubectl would decode another type.
func textNode(text string) *yaml.Node {
	node := &yaml.Node{Kind: yaml.ScalarNode, Tag: "!!str", Value: text}
	var plain any
	switch {
	case strings.Contains(text, "\n"):
		node.Style = yaml.LiteralStyle
	case kyaml.Unmarshal([]byte(text), &plain) != nil || plain != any(text):
		node.Style = yaml.DoubleQuotedStyle
	}
	return node
}
