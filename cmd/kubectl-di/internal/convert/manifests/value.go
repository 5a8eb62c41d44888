// Copyright The DI Orchestrator Authors.
// SPDX-License-Identifier: Apache-2.0

package manifests

import (
	"bytes"
	"encoding/json"
	"fmt"
	"strconv"
	"strings"

	"go.yaml.in/yaml/v4"
	kyaml "sigs.k8s.io/yaml"
)

const (
	mergeKey = "<<"
	// maxDepth is the maximum depth of values, like in encoding/json: an alias may refer to a node
	// that contains it.
	maxDepth = 10_000
	// maxValues limits the expansion of a document by aliases.
	maxValues = 1_000_000
)

// reader decodes nodes to the values that kubectl decodes.
type reader struct {
	// firstLine is the document's first line in the file.
	firstLine int
	values    int
	// scalars caches decoded scalars, because nodes are read repeatedly.
	scalars map[*yaml.Node][]byte
}

// fault returns an error about a node, with its line in the file.
func (r *reader) fault(node *yaml.Node, format string, args ...any) error {
	return fmt.Errorf("line %d: "+format, append([]any{r.line(node)}, args...)...)
}

func (r *reader) line(node *yaml.Node) int { return r.firstLine + node.Line - 1 }

// write appends the JSON of a node. It keeps the order of keys and the text of numbers.
func (r *reader) write(out *bytes.Buffer, node *yaml.Node, depth int) error {
	r.values++
	if depth > maxDepth || r.values > maxValues {
		return r.fault(node, "the document is too deep or too big once its aliases are followed")
	}
	switch node.Kind {
	case yaml.AliasNode:
		return r.write(out, node.Alias, depth+1)
	case yaml.MappingNode:
		return r.writeMapping(out, node, depth)
	case yaml.SequenceNode:
		out.WriteByte('[')
		for i, item := range node.Content {
			if i > 0 {
				out.WriteByte(',')
			}
			if err := r.write(out, item, depth+1); err != nil {
				return err
			}
		}
		out.WriteByte(']')
		return nil
	default:
		raw, err := r.remembered(node)
		out.Write(raw)
		return err
	}
}

func (r *reader) remembered(node *yaml.Node) ([]byte, error) {
	if raw, ok := r.scalars[node]; ok {
		return raw, nil
	}
	raw, err := r.scalar(node)
	if err == nil {
		if r.scalars == nil {
			r.scalars = map[*yaml.Node][]byte{}
		}
		r.scalars[node] = raw
	}
	return raw, err
}

func (r *reader) writeMapping(out *bytes.Buffer, node *yaml.Node, depth int) error {
	members, err := r.members(node, depth)
	if err != nil {
		return err
	}
	out.WriteByte('{')
	for i, m := range members {
		if i > 0 {
			out.WriteByte(',')
		}
		name, err := json.Marshal(m.name)
		if err != nil {
			return fmt.Errorf("encoding a key: %w", err)
		}
		out.Write(name)
		out.WriteByte(':')
		if err := r.write(out, m.value, depth+1); err != nil {
			return err
		}
	}
	out.WriteByte('}')
	return nil
}

// entry is a member of a mapping.
type entry struct {
	name       string
	key, value *yaml.Node
	// merged reports whether the member comes from a merge key.
	merged bool
}

// members returns the members of a mapping, merged ones last.
func (r *reader) members(node *yaml.Node, depth int) ([]entry, error) {
	if depth > maxDepth {
		return nil, r.fault(node, "the document merges itself")
	}
	var own, merged []entry
	seen := map[string]*yaml.Node{}
	for i := 0; i+1 < len(node.Content); i += 2 {
		key, value := node.Content[i], node.Content[i+1]
		if isMerge(key) {
			inherited, err := r.merged(value, depth+1)
			if err != nil {
				return nil, err
			}
			merged = append(merged, inherited...)
			continue
		}
		name, err := r.name(key)
		if err != nil {
			return nil, err
		}
		if other := seen[name]; other != nil {
			return nil, r.fault(key, "%q is there already, on line %d", name, r.line(other))
		}
		seen[name] = key
		own = append(own, entry{name: name, key: key, value: value})
	}
	for _, m := range merged {
		if seen[m.name] == nil {
			seen[m.name] = m.key
			own = append(own, entry{name: m.name, key: m.key, value: m.value, merged: true})
		}
	}
	return own, nil
}

func isMerge(key *yaml.Node) bool {
	return key.Kind == yaml.ScalarNode && key.Value == mergeKey && key.Style&(yaml.SingleQuotedStyle|yaml.DoubleQuotedStyle) == 0
}

// merged returns the members of a merge key. If several mappings have a member, the first one
// counts.
func (r *reader) merged(value *yaml.Node, depth int) ([]entry, error) {
	value = target(value)
	switch value.Kind {
	case yaml.MappingNode:
		return r.members(value, depth+1)
	case yaml.SequenceNode:
		var all []entry
		for _, item := range value.Content {
			of, err := r.merged(item, depth+1)
			if err != nil {
				return nil, err
			}
			all = append(all, of...)
		}
		return all, nil
	default:
		return nil, r.fault(value, "%s: only mappings can be merged", mergeKey)
	}
}

// target returns the node that an alias refers to, or the node itself.
func target(node *yaml.Node) *yaml.Node {
	if node.Kind == yaml.AliasNode {
		return node.Alias
	}
	return node
}

// name returns a key as text, like JSON.
func (r *reader) name(key *yaml.Node) (string, error) {
	key = target(key)
	if key.Kind != yaml.ScalarNode {
		return "", r.fault(key, "a key must be a word, not a list or an object")
	}
	raw, err := r.remembered(key)
	if err != nil {
		return "", err
	}
	var name string
	if json.Unmarshal(raw, &name) == nil {
		return name, nil
	}
	return string(raw), nil
}

// scalar returns the JSON of a scalar. Unless it is quoted, or clearly a number or a word,
// kubectl's library decodes it. That library's YAML 1.1 reads "yes" as true and 010 as 8.
func (r *reader) scalar(node *yaml.Node) ([]byte, error) {
	quoted := node.Style&(yaml.SingleQuotedStyle|yaml.DoubleQuotedStyle|yaml.LiteralStyle|yaml.FoldedStyle) != 0
	text := node.Value
	switch {
	case node.Style&yaml.TaggedStyle != 0:
		text = node.Tag + " " + strconv.Quote(node.Value)
	case quoted || strings.ContainsRune(text, '\n'):
		return json.Marshal(text)
	case isJSONNumber(text):
		return []byte(text), nil
	}
	raw, err := kyaml.YAMLToJSON([]byte(text))
	if err != nil {
		return nil, r.fault(node, "%s cannot be read: %w", text, err)
	}
	return bytes.TrimSpace(raw), nil
}

func isJSONNumber(text string) bool {
	if text == "" || (text[0] != '-' && (text[0] < '0' || text[0] > '9')) {
		return false
	}
	return json.Valid([]byte(text))
}

// decode returns JSON as plain values, with the text of numbers.
func decode(raw []byte) (any, error) {
	decoder := json.NewDecoder(bytes.NewReader(raw))
	decoder.UseNumber()
	var value any
	if err := decoder.Decode(&value); err != nil {
		return nil, fmt.Errorf("decoding JSON: %w", err)
	}
	return value, nil
}
