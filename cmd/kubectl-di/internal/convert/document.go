// Copyright The DI Orchestrator Authors.
// SPDX-License-Identifier: Apache-2.0

package convert

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"strconv"
	"strings"

	kjson "sigs.k8s.io/json"

	"opendilab.org/di-orchestrator/apis/v1alpha1"
	"opendilab.org/di-orchestrator/apis/v2alpha1"
	"opendilab.org/di-orchestrator/cmd/kubectl-di/internal/convert/manifests"
	"opendilab.org/di-orchestrator/conversion"
	"opendilab.org/di-orchestrator/conversion/importers"
)

// object is what is read of any object.
type object struct {
	apiVersion string
	kind       string
	name       string
	items      []json.RawMessage
}

// readObject reads what it can of what may be no object of Kubernetes at all.
func readObject(content []byte) object {
	members := decoded(content)
	text := func(path ...string) string {
		value, _ := lookUp(members, path)
		text, _ := value.(string)
		return text
	}
	head := object{apiVersion: text("apiVersion"), kind: text("kind"), name: text("metadata", "name")}
	if generated := text("metadata", "generateName"); head.name == "" && generated != "" {
		head.name = generated + "*"
	}
	var list struct {
		Items []json.RawMessage `json:"items"`
	}
	if strings.HasSuffix(head.kind, "List") && json.Unmarshal(content, &list) == nil {
		head.items = list.Items
	}
	return head
}

// convertPart returns the document as it is to be written, and what is to be
// said of it, which for a list is said of each item.
func (o *convertOptions) convertPart(part *manifests.Part) (string, []documentReport, error) {
	var (
		document *manifests.Document
		content  = []byte(strings.TrimSpace(part.Body))
		err      error
	)
	if part.IsJSON() {
		err = checkMembers(content)
	} else if document, err = manifests.Parse(part); err == nil {
		content = document.JSON()
	}
	if err != nil {
		return "", nil, err
	}
	result, reports, err := o.convertObject(content)
	if err != nil {
		return "", nil, err
	}
	body, err := o.format(part, document, result)
	if err != nil {
		return "", nil, err
	}
	if document != nil && result.changed && o.output != formatJSON {
		noteComments(&reports[0], document, body)
	}
	return body, reports, nil
}

// checkMembers returns an error where JSON has a member twice: one would be lost.
func checkMembers(content []byte) error {
	twice, err := kjson.UnmarshalStrict(content, new(any))
	if err != nil {
		return fmt.Errorf("reading JSON: %w", err)
	}
	return errors.Join(twice...)
}

// converted is an object after conversion.
type converted struct {
	content []byte
	changed bool
	origins manifests.Origins
}

// format writes one document in the wanted format: one that neither changed
// nor has another format stays as it was written.
func (o *convertOptions) format(part *manifests.Part, document *manifests.Document, result *converted) (string, error) {
	wanted := o.output
	if wanted == "" && part.IsJSON() {
		wanted = formatJSON
	}
	var (
		out []byte
		err error
	)
	switch {
	case !result.changed && (wanted == formatJSON) == part.IsJSON():
		return part.Body, nil
	case wanted == formatJSON:
		like := "{\n  "
		if part.IsJSON() {
			like = part.Body
		}
		out, err = manifests.FormatJSON(result.content, like)
	case document == nil:
		out, err = manifests.YAML(result.content)
	default:
		out, err = document.Rewrite(result.content, result.origins)
	}
	return string(out), err
}

// convertObject converts an object or the items of a list.
func (o *convertOptions) convertObject(content []byte) (*converted, []documentReport, error) {
	head := readObject(content)
	if head.items != nil {
		return o.convertList(content, &head)
	}
	result, report, err := o.convertOne(content, &head)
	if err != nil {
		return nil, nil, fmt.Errorf("%s: %w", strings.TrimSpace(head.kind+" "+head.name), err)
	}
	return result, []documentReport{*report}, nil
}

// convertOne converts an object that is no list.
func (o *convertOptions) convertOne(content []byte, head *object) (*converted, *documentReport, error) {
	report := &documentReport{kind: head.kind, name: head.name}
	switch {
	case importers.Recognizes(content):
		imported, err := importers.Import(content)
		if err != nil {
			return nil, nil, err
		}
		report.lost, report.notes = imported.Lost, imported.Notes
		result, err := o.convertVersion(imported.Object, report)
		if err != nil {
			return nil, nil, err
		}
		toImported := result.origins
		result.changed = true
		report.became = "becomes " + readObject(result.content).kind + " of " + o.apiVersion()
		result.origins = func(path []string) [][]string { return through(toImported(path), imported.Moves) }
		return result, report, nil
	case isOurs(head):
		result, err := o.convertVersion(content, report)
		return result, report, err
	default:
		report.became = "left as it is"
		if head.kind == "" {
			report.became = "is no object of Kubernetes, left as it is"
		}
		return &converted{content: content, origins: same}, report, nil
	}
}

func isOurs(head *object) bool {
	group, _, _ := strings.Cut(head.apiVersion, "/")
	return group == v2alpha1.GroupName && (head.kind == "DIJob" || head.kind == "AggregatorConfig")
}

// convertVersion converts an object of this project's group to the wanted version.
func (o *convertOptions) convertVersion(content []byte, report *documentReport) (*converted, error) {
	out, err := conversion.Convert(content, o.apiVersion())
	if err != nil {
		return nil, err
	}
	head := readObject(content)
	if bytes.Equal(out, content) {
		report.became = "is " + o.to + " already"
		return &converted{content: content, origins: same}, nil
	}
	report.became = "becomes " + head.kind + " of " + o.apiVersion()
	result := &converted{content: out, changed: true, origins: versionOrigins(out, content)}
	if o.to == v1alpha1.Version {
		noteReadView(out, report)
		return result, nil
	}
	return result, noteDropped(content, out, report)
}

// convertList converts the items of a list; the list stays one.
func (o *convertOptions) convertList(content []byte, head *object) (*converted, []documentReport, error) {
	var reports []documentReport
	items := make([]converted, len(head.items))
	changed := false
	for i, raw := range head.items {
		result, found, err := o.convertObject(raw)
		if err != nil {
			return nil, nil, fmt.Errorf("items[%d]: %w", i, err)
		}
		for j := range found {
			found[j].item = fmt.Sprintf("items[%d]: %s", i, found[j].item)
		}
		items[i], reports = *result, append(reports, found...)
		changed = changed || result.changed
	}
	if !changed {
		return &converted{content: content, origins: same}, append(reports, emptyList(head)...), nil
	}
	out, err := replaceItems(content, items)
	return &converted{content: out, changed: true, origins: listOrigins(items)}, reports, err
}

func emptyList(head *object) []documentReport {
	if len(head.items) > 0 {
		return nil
	}
	return []documentReport{{kind: head.kind, became: "left as it is: has no items"}}
}

// replaceItems writes a list with other items. A list of one kind is of a
// version itself, which its items need not share any more.
func replaceItems(content []byte, items []converted) ([]byte, error) {
	var list struct {
		APIVersion string            `json:"apiVersion"`
		Kind       string            `json:"kind"`
		Metadata   json.RawMessage   `json:"metadata,omitempty"`
		Items      []json.RawMessage `json:"items"`
	}
	if err := json.Unmarshal(content, &list); err != nil {
		return nil, fmt.Errorf("reading the list: %w", err)
	}
	list.APIVersion, list.Kind, list.Items = "v1", "List", nil
	for i := range items {
		list.Items = append(list.Items, items[i].content)
	}
	var out bytes.Buffer
	encoder := json.NewEncoder(&out)
	encoder.SetEscapeHTML(false)
	if err := encoder.Encode(list); err != nil {
		return nil, fmt.Errorf("writing the list: %w", err)
	}
	return bytes.TrimSpace(out.Bytes()), nil
}

// listOrigins are the origins of a list whose items have theirs.
func listOrigins(items []converted) manifests.Origins {
	return func(path []string) [][]string {
		if len(path) < 2 || path[0] != "items" {
			return same(path)
		}
		i, err := strconv.Atoi(path[1])
		if err != nil || i >= len(items) {
			return same(path)
		}
		var found [][]string
		for _, origin := range items[i].origins(path[2:]) {
			found = append(found, append([]string{"items", path[1]}, origin...))
		}
		return found
	}
}
