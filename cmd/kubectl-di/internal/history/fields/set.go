// Copyright The DI Orchestrator Authors.
// SPDX-License-Identifier: Apache-2.0

package fields

import (
	"fmt"
	"strconv"
	"strings"

	utiljson "k8s.io/apimachinery/pkg/util/json"
	"sigs.k8s.io/yaml"
)

// Change is one --set.
type Change struct {
	path  string
	steps []string
	text  string
	value any
}

// ParseChange parses PATH=VALUE. A path is fields between dots; brackets have the entry of a list, or
// the key of an object that has dots itself: spec.tasks[learner].replicas, metadata.labels[a.b/c].
func ParseChange(text string) (*Change, error) {
	path, value, found := cutOutside(text)
	if !found {
		return nil, fmt.Errorf("--set %q: want PATH=VALUE, such as spec.backoffLimit=5", text)
	}
	steps, ok := stepsOf(path)
	if !ok {
		return nil, fmt.Errorf("--set %q: want a path such as spec.tasks[learner].replicas before =", text)
	}
	encoded, err := yaml.YAMLToJSON([]byte(value))
	if err != nil {
		return nil, fmt.Errorf("--set %s: %w", path, err)
	}
	c := &Change{path: path, steps: steps, text: value}
	if err := utiljson.Unmarshal(encoded, &c.value); err != nil {
		return nil, fmt.Errorf("--set %s: %w", path, err)
	}
	if value == "" {
		c.value = value // Only null removes a field.
	}
	return c, nil
}

// cutOutside cuts a text at the first = that is not in brackets.
func cutOutside(text string) (before, after string, found bool) {
	inside := false
	for i := range len(text) {
		switch text[i] {
		case '[':
			inside = true
		case ']':
			inside = false
		case '=':
			if !inside {
				return text[:i], text[i+1:], true
			}
		}
	}
	return "", "", false
}

// stepsOf returns the fields of a path. Each is not empty.
func stepsOf(path string) (steps []string, ok bool) {
	for rest := path; ; {
		end := strings.IndexAny(rest, ".[")
		if end < 0 {
			end = len(rest)
		}
		if end == 0 {
			return nil, false
		}
		steps, rest = append(steps, rest[:end]), rest[end:]
		for strings.HasPrefix(rest, "[") {
			entry, after, isClosed := strings.Cut(rest[1:], "]")
			if !isClosed || entry == "" {
				return nil, false
			}
			steps, rest = append(steps, entry), after
		}
		if rest == "" {
			return steps, true
		}
		if rest[0] != '.' {
			return nil, false
		}
		rest = rest[1:]
	}
}

// Apply changes the field of an object.
func (c *Change) Apply(object map[string]any) error {
	changed, err := c.in(object, 0)
	if err != nil {
		return fmt.Errorf("--set %s: %w", c.path, err)
	}
	if _, isObject := changed.(map[string]any); !isObject {
		return fmt.Errorf("--set %s: want a field of the job", c.path)
	}
	return nil
}

// in returns a value of the manifest in which what the steps from one on name is changed.
func (c *Change) in(value any, step int) (any, error) {
	if step == len(c.steps) {
		if _, isText := value.(string); isText && c.value != nil {
			return c.text, nil
		}
		return c.value, nil
	}
	switch value := value.(type) {
	case nil:
		return c.inObject(map[string]any{}, step)
	case map[string]any:
		return c.inObject(value, step)
	case []any:
		return c.inList(value, step)
	}
	return nil, fmt.Errorf("%s is no object: it has no field %q", c.before(step), c.steps[step])
}

func (c *Change) inObject(object map[string]any, step int) (any, error) {
	key := c.steps[step]
	below, err := c.in(object[key], step+1)
	if err != nil {
		return nil, err
	}
	if below == nil {
		delete(object, key)
	} else {
		object[key] = below
	}
	return object, nil
}

// inList changes an entry, or adds one behind the last.
func (c *Change) inList(list []any, step int) (any, error) {
	at, err := c.entry(list, step)
	if err != nil {
		return nil, err
	}
	var entry any
	if at < len(list) {
		entry = list[at]
	}
	if entry, err = c.in(entry, step+1); err != nil {
		return nil, err
	}
	switch {
	case at == len(list) && entry == nil:
		return list, nil
	case at == len(list):
		return append(list, entry), nil
	case entry == nil:
		return append(list[:at:at], list[at+1:]...), nil
	}
	list[at] = entry
	return list, nil
}

// entry returns the place of an entry by number, name or type. The place behind the last is a new one.
func (c *Change) entry(list []any, step int) (int, error) {
	wanted := c.steps[step]
	if at, err := strconv.Atoi(wanted); err == nil {
		if at < 0 || at > len(list) {
			return 0, fmt.Errorf("%s has %d entries, and none is number %d", c.before(step), len(list), at)
		}
		return at, nil
	}
	keys := keysOf(list)
	for i, key := range keys {
		if key == wanted {
			return i, nil
		}
	}
	known := strings.Join(keys, ", ")
	if known == "" {
		known = fmt.Sprintf("%d entries, by number from 0", len(list))
	}
	return 0, fmt.Errorf("%s has no entry %q: it has %s", c.before(step), wanted, known)
}

// before returns the path before a step.
func (c *Change) before(step int) string { return strings.Join(c.steps[:step], ".") }
