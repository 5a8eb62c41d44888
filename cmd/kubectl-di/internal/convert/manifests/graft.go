// Copyright The DI Orchestrator Authors.
// SPDX-License-Identifier: Apache-2.0

package manifests

import (
	"bytes"
	"slices"
	"strconv"

	"go.yaml.in/yaml/v4"
)

// grafting builds a tree of the new content with nodes of the old tree.
type grafting struct {
	old     *Document
	origins Origins
	read    reader
}

// place is a node of the old tree, with its key or item.
type place struct {
	key, value *yaml.Node
}

// graft returns the node of a part of the new content. This is the old node if its content is equal
// at one of the origins. Otherwise it is a new node that keeps as much as possible of the nearest
// old one.
func (g *grafting) graft(wanted *yaml.Node, path []string) *yaml.Node {
	places := g.places(path)
	content := g.value(wanted)
	for _, p := range places {
		if sameContent(g.value(p.value), content) {
			return p.value
		}
	}
	old := sameKind(places, wanted.Kind)
	switch wanted.Kind {
	case yaml.MappingNode:
		return g.graftMapping(wanted, old, path)
	case yaml.SequenceNode:
		return g.graftSequence(wanted, old, path)
	default:
		return like(wanted, old)
	}
}

// places returns the origins of a path that exist in the old tree.
func (g *grafting) places(path []string) []place {
	var found []place
	for _, origin := range g.origins(path) {
		if p, ok := g.find(origin); ok {
			found = append(found, p)
		}
	}
	return found
}

func (g *grafting) find(path []string) (place, bool) {
	at := place{value: content(g.old.node)}
	for _, step := range path {
		node := target(at.value)
		switch node.Kind {
		case yaml.MappingNode:
			members, err := g.old.read.members(node, 0)
			i := slices.IndexFunc(members, func(m entry) bool { return m.name == step })
			if err != nil || i < 0 {
				return place{}, false
			}
			at = place{key: members[i].key, value: members[i].value}
		case yaml.SequenceNode:
			i, err := strconv.Atoi(step)
			if err != nil || i < 0 || i >= len(node.Content) {
				return place{}, false
			}
			at = place{value: node.Content[i]}
		default:
			return place{}, false
		}
	}
	return at, true
}

// value returns the content of a node, nil if it cannot be decoded.
func (g *grafting) value(node *yaml.Node) any {
	var out bytes.Buffer
	g.read.values = 0
	if err := g.read.write(&out, node, 0); err != nil {
		return nil
	}
	value, err := decode(out.Bytes())
	if err != nil {
		return nil
	}
	return value
}

func sameKind(places []place, kind yaml.Kind) *yaml.Node {
	for _, p := range places {
		if node := target(p.value); node.Kind == kind {
			return node
		}
	}
	return nil
}

// like returns a node with the comments and, if it fits, the style of an old one.
func like(node, old *yaml.Node) *yaml.Node {
	made := *node
	if old == nil {
		return &made
	}
	made.HeadComment, made.LineComment, made.FootComment = old.HeadComment, old.LineComment, old.FootComment
	quotes := old.Style & (yaml.SingleQuotedStyle | yaml.DoubleQuotedStyle)
	if node.Tag == "!!str" && node.Style != yaml.LiteralStyle && quotes != 0 {
		made.Style = quotes
	}
	if node.Kind != yaml.ScalarNode && len(old.Content) > 0 {
		made.Style = old.Style & yaml.FlowStyle
	}
	return &made
}

func (g *grafting) graftSequence(wanted, old *yaml.Node, path []string) *yaml.Node {
	made := like(wanted, old)
	made.Content = nil
	for i, item := range wanted.Content {
		at := append(slices.Clone(path), strconv.Itoa(i))
		made.Content = append(made.Content, g.item(item, at))
	}
	return made
}

// item returns a node for a sequence. It keeps the comments of the key that the node had as a
// value.
func (g *grafting) item(wanted *yaml.Node, path []string) *yaml.Node {
	made := g.graft(wanted, path)
	for _, p := range g.places(path) {
		if p.key == nil || p.value.Kind == yaml.AliasNode || p.key.HeadComment == "" {
			continue
		}
		return withHead(made, joinComments(p.key.HeadComment, made.HeadComment))
	}
	return made
}

func joinComments(first, second string) string {
	if first == "" || second == "" {
		return first + second
	}
	return first + "\n" + second
}

func (g *grafting) graftMapping(wanted, old *yaml.Node, path []string) *yaml.Node {
	made := like(wanted, old)
	made.Content = nil
	for _, i := range g.keyOrder(wanted, old) {
		name, value := wanted.Content[i], wanted.Content[i+1]
		at := append(slices.Clone(path), name.Value)
		key, member := g.key(name, at), g.graft(value, at)
		if member.Kind != yaml.ScalarNode && member.HeadComment != "" {
			// The node was an item, and is now the value of a key.
			key, member = withHead(key, joinComments(key.HeadComment, member.HeadComment)), withHead(member, "")
		}
		made.Content = append(made.Content, key, member)
	}
	return made
}

func withHead(node *yaml.Node, comment string) *yaml.Node {
	made := *node
	made.HeadComment = comment
	return &made
}

// key returns the old node of a key, or a new one with the comments of its previous name.
func (g *grafting) key(name *yaml.Node, path []string) *yaml.Node {
	for _, p := range g.places(path) {
		switch {
		case p.key == nil || p.key.Kind != yaml.ScalarNode:
		case p.key.Value == name.Value:
			return p.key
		default:
			return like(name, p.key)
		}
	}
	return name
}

// keyOrder returns the positions of the new keys. Keys of the old mapping keep their order. Each
// other key follows its predecessor.
func (g *grafting) keyOrder(wanted, old *yaml.Node) []int {
	positions := map[string]int{}
	for i := 0; i < len(wanted.Content); i += 2 {
		positions[wanted.Content[i].Value] = i
	}
	var order []int
	if old != nil {
		members, err := g.old.read.members(old, 0)
		if err == nil {
			for _, m := range members {
				if i, ok := positions[m.name]; ok {
					order = append(order, i)
				}
			}
		}
	}
	for i := 0; i < len(wanted.Content); i += 2 {
		if !slices.Contains(order, i) {
			after := slices.Index(order, i-2) + 1
			order = slices.Insert(order, after, i)
		}
	}
	return order
}

// anchors moves each anchor to the first use of its node.
type anchors struct {
	seen map[*yaml.Node]bool
}

// order returns the node with aliases only to preceding anchors. If nodes moved, an alias and its
// anchor may swap.
func (a *anchors) order(node *yaml.Node) *yaml.Node {
	if node.Kind == yaml.AliasNode {
		if a.seen[node.Alias] {
			return node
		}
		node = node.Alias
	}
	if node.Anchor != "" {
		if a.seen[node] {
			return &yaml.Node{Kind: yaml.AliasNode, Alias: node, Value: node.Anchor}
		}
		a.seen[node] = true
	}
	// A node may be used several times. It must therefore not be changed.
	made := *node
	made.Content = make([]*yaml.Node, len(node.Content))
	for i, child := range node.Content {
		made.Content[i] = a.order(child)
	}
	return &made
}

// withoutAnchors returns the node with all aliases expanded.
func withoutAnchors(node *yaml.Node, depth int) *yaml.Node {
	node = target(node)
	made := *node
	made.Anchor, made.Content = "", nil
	for _, child := range node.Content {
		if depth > maxDepth {
			break
		}
		made.Content = append(made.Content, withoutAnchors(child, depth+1))
	}
	return &made
}
