// Copyright The DI Orchestrator Authors.
// SPDX-License-Identifier: Apache-2.0

package convert

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"

	kjson "sigs.k8s.io/json"

	"opendilab.org/di-orchestrator/apis/v1alpha1"
	"opendilab.org/di-orchestrator/apis/v2alpha1"
	"opendilab.org/di-orchestrator/cmd/kubectl-di/internal/convert/manifests"
	"opendilab.org/di-orchestrator/conversion"
	"opendilab.org/di-orchestrator/conversion/importers"
)

// object is the part of an object that the command reads.
type object struct {
	apiVersion string
	kind       string
	name       string
	items      []json.RawMessage
}

// readObject decodes an object as far as possible; it may not be an object of Kubernetes.
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

// convertPart returns the converted document, and one report for it or for each item of a list.
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

// checkMembers returns an error if JSON has a duplicate member, because one of them would be lost.
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

// format writes a document in the desired format. An unchanged document in that format keeps its
// text.
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

// convertOne converts an object that is not a list.
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
		switch {
		case head.kind == "":
			report.became = "is no object of Kubernetes, left as it is"
		case isForeignJob(head):
			report.isNotImported = true
			report.became = "not imported: it is of " + head.apiVersion + ", and " + importable
		}
		return &converted{content: content, origins: same}, report, nil
	}
}

// importable says which jobs of others there is an importer for.
const importable = "imported are TFJob, PyTorchJob and MPIJob of kubeflow.org/v1, MPIJob of v2beta1, TrainJob of trainer.kubeflow.org/v1alpha1, NerveXJob, and DIJob of earlier generations; write it as a DIJob"

// isForeignJob reports whether an object is a training job of another operator, or of a version of it, that is not imported. The
// Jobs of Kubernetes itself are no training jobs.
func isForeignJob(head *object) bool {
	group, _, hasGroup := strings.Cut(head.apiVersion, "/")
	isJob := strings.HasSuffix(head.kind, "Job") || head.kind == "JobSet" || head.kind == "RayCluster"
	return isJob && hasGroup && group != "batch"
}

func isOurs(head *object) bool {
	group, _, _ := strings.Cut(head.apiVersion, "/")
	return group == v2alpha1.GroupName && (head.kind == "DIJob" || head.kind == "AggregatorConfig")
}

// convertVersion converts an object of this project's group to the desired version.
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

// convertList converts the items of a list, and keeps the list.
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

// replaceItems replaces the items of a list. A list of one kind has a version, which its items may
// no longer share.
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

// listOrigins returns the origins of a list from those of its items.
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

// same returns the origins of a part that did not move.
func same(path []string) [][]string { return [][]string{path} }

// through maps paths back over moves, the smallest moves first.
func through(paths [][]string, moves []importers.Move) [][]string {
	var found [][]string
	for _, path := range paths {
		for _, move := range moves {
			if below, ok := importers.Path(path).Below(move.To); ok {
				found = append(found, move.From.Child(below...))
			}
		}
		found = append(found, path)
	}
	return found
}

// task is the part of a task that determines its role.
type task struct {
	Type string `json:"type"`
	Name string `json:"name"`
}

// view is the part of a job that determines its roles, in either version.
type view struct {
	APIVersion string `json:"apiVersion"`
	Spec       struct {
		Tasks    []task `json:"tasks"`
		Extended *struct {
			Tasks     []task  `json:"tasks"`
			Lifecycle *string `json:"lifecycle"`
		} `json:"extended"`
	} `json:"spec"`
}

// read decodes a job as far as possible; it may have any content that its schema allows.
func read(raw []byte) view {
	var v view
	if err := json.Unmarshal(raw, &v); err != nil {
		return view{}
	}
	return v
}

// versionOrigins returns the origins of an object after conversion between versions.
func versionOrigins(out, in []byte) manifests.Origins {
	if after := read(out); after.APIVersion == v1alpha1.GroupVersion.String() {
		return origins(movesToV1(read(in)))
	}
	return origins(movesToV2(read(in), read(out)))
}

func origins(moves []importers.Move) manifests.Origins {
	return func(path []string) [][]string { return through([][]string{path}, moves) }
}

// movesToV1 returns the origins of v1alpha1's spec: extended contains what v1alpha1 cannot express,
// and each role shows a task.
func movesToV1(before view) []importers.Move {
	extended := importers.Path{"spec", "extended"}
	var moves []importers.Move
	for _, role := range []string{"coordinator", "collector", "learner"} {
		if i := taskOf(before.Spec.Tasks, role); i >= 0 {
			moves = append(moves, importers.Move{From: taskPath("spec", i), To: importers.Path{"spec", role}})
		}
	}
	return append(moves,
		importers.Move{From: importers.Path{"spec"}, To: extended},
		importers.Move{From: importers.Path{"status"}, To: importers.Path{"status", "extended"}},
	)
}

// taskOf returns the index of the role's task, -1 if there is none.
func taskOf(tasks []task, role string) int {
	if i := slices.IndexFunc(tasks, func(t task) bool { return t.Type == role }); i >= 0 {
		return i
	}
	if role == "coordinator" && len(tasks) == 1 && tasks[0].Type == "none" {
		return 0
	}
	return -1
}

func taskPath(parent string, i int) importers.Path {
	return importers.Path{parent, "tasks", strconv.Itoa(i)}
}

// movesToV2 returns the origins of v2alpha1's spec.
func movesToV2(before, after view) []importers.Move {
	var moves []importers.Move
	for i, t := range after.Spec.Tasks {
		to := taskPath("spec", i)
		role := importers.Move{From: importers.Path{"spec", roleOf(t, len(after.Spec.Tasks))}, To: to}
		listed := importers.Move{From: importers.Path{"spec", "extended", "tasks", strconv.Itoa(i)}, To: to}
		if x := before.Spec.Extended; x != nil && len(x.Tasks) > 0 {
			moves = append(moves, listed)
		}
		moves = append(moves, role)
	}
	return append(moves,
		importers.Move{From: importers.Path{"spec", "extended"}, To: importers.Path{"spec"}},
		importers.Move{From: importers.Path{"status", "extended"}, To: importers.Path{"status"}},
	)
}

// roleOf returns the role of a task in a job with a number of tasks.
func roleOf(t task, tasks int) string {
	if t.Type == "none" && tasks == 1 {
		return "coordinator"
	}
	return t.Type
}
