// Copyright The DI Orchestrator Authors.
// SPDX-License-Identifier: Apache-2.0

package convert

import (
	"bytes"
	"encoding/json"
	"fmt"
	"io"
	"maps"
	"reflect"
	"slices"
	"strconv"
	"strings"

	"opendilab.org/di-orchestrator/apis/v1alpha1"
	"opendilab.org/di-orchestrator/cmd/kubectl-di/internal/convert/manifests"
	"opendilab.org/di-orchestrator/conversion"
	"opendilab.org/di-orchestrator/conversion/importers"
)

// documentReport is the report on one object.
type documentReport struct {
	at     string
	item   string
	kind   string
	name   string
	became string
	// isNotImported reports whether the object is a job of another operator that stays one.
	isNotImported bool
	lost          []importers.Finding
	notes         []importers.Finding
}

// longestValue is the maximum length of a printed value.
const longestValue = 60

// write prints the report.
func (r *documentReport) write(out io.Writer) {
	subject := strings.TrimSpace(r.kind + " " + r.name)
	if subject != "" {
		subject += ": "
	}
	fmt.Fprintf(out, "%s: %s%s%s\n", r.at, r.item, subject, r.became)
	writeFindings(out, "not carried over", r.lost)
	writeFindings(out, "note", r.notes)
}

func writeFindings(out io.Writer, heading string, findings []importers.Finding) {
	for i := range findings {
		finding := &findings[i]
		fmt.Fprintf(out, "  %s: ", heading)
		if len(finding.Path) > 0 {
			fmt.Fprint(out, finding.Path)
			if finding.Value != nil {
				fmt.Fprintf(out, " = %s", shown(finding.Value))
			}
			fmt.Fprint(out, ": ")
		}
		fmt.Fprint(out, finding.Why)
		if finding.Do != "" {
			fmt.Fprintf(out, "; %s", finding.Do)
		}
		fmt.Fprintln(out)
	}
}

// shown returns a value on one line, truncated.
func shown(value any) string {
	var out bytes.Buffer
	encoder := json.NewEncoder(&out)
	encoder.SetEscapeHTML(false)
	if err := encoder.Encode(value); err != nil {
		return fmt.Sprint(value)
	}
	text := strings.TrimSpace(out.String())
	if letters := []rune(text); len(letters) > longestValue {
		return string(letters[:longestValue]) + "..."
	}
	return text
}

// noteReadView notes that v1alpha1 shows a worker-led job without changing it.
func noteReadView(out []byte, report *documentReport) {
	extended := read(out).Spec.Extended
	if extended == nil || extended.Lifecycle == nil || *extended.Lifecycle == "CoordinatorLed" {
		return
	}
	report.notes = append(report.notes, importers.Finding{
		Path: importers.Path{"spec", "extended"},
		Why:  "holds the whole truth about this job, which is led by its workers: v1alpha1's own fields only show it",
		Do:   "change it in v2alpha1; the API server refuses such changes through v1alpha1",
	})
}

// noteComments notes the comments that could not be kept.
func noteComments(report *documentReport, document *manifests.Document, body string) {
	there := commentsIn(body)
	for _, comment := range document.Comments() {
		if !there[comment] {
			report.notes = append(report.notes, importers.Finding{
				Why: fmt.Sprintf("the comment %s was on something that is gone, and is gone with it", shown(comment)),
			})
		}
	}
}

// commentsIn returns the possible comments in a text.
func commentsIn(text string) map[string]bool {
	found := map[string]bool{}
	for line := range strings.Lines(text) {
		for i := range len(line) {
			if line[i] == '#' && (i == 0 || line[i-1] == ' ' || line[i-1] == '\t') {
				found[strings.TrimSpace(line[i:])] = true
			}
		}
	}
	return found
}

// noteDropped reports what the conversion of a job of v1alpha1 dropped: fields that are missing
// after converting the result back. These are content of extended that v2alpha1 cannot represent,
// and fields that extended contradicts.
func noteDropped(in, out []byte, report *documentReport) error {
	back, err := conversion.Convert(out, v1alpha1.GroupVersion.String())
	if err != nil {
		return err
	}
	before, after := decoded(in), decoded(back)
	leaves(nil, before, func(path importers.Path, value any) {
		now, there := lookUp(after, path)
		switch {
		case there && reflect.DeepEqual(now, value):
		case there && strings.EqualFold(fmt.Sprint(now), fmt.Sprint(value)):
			report.notes = append(report.notes, importers.Finding{Path: path, Value: value, Why: "is now written " + shown(now)})
		default:
			report.lost = append(report.lost, importers.Finding{Path: path, Value: value,
				Why: "v2alpha1 cannot hold it, or spec.extended says otherwise and counts",
				Do:  "write it in v2alpha1's own fields"})
		}
	})
	return nil
}

func decoded(raw []byte) map[string]any {
	decoder := json.NewDecoder(bytes.NewReader(raw))
	decoder.UseNumber()
	value := map[string]any{}
	if err := decoder.Decode(&value); err != nil {
		return nil
	}
	return value
}

func leaves(at importers.Path, value any, do func(importers.Path, any)) {
	switch value := value.(type) {
	case map[string]any:
		for _, key := range slices.Sorted(maps.Keys(value)) {
			leaves(at.Child(key), value[key], do)
		}
	case []any:
		for i, item := range value {
			leaves(at.Child(strconv.Itoa(i)), item, do)
		}
	default:
		do(at, value)
	}
}

func lookUp(value any, path []string) (any, bool) {
	for _, step := range path {
		switch of := value.(type) {
		case map[string]any:
			next, ok := of[step]
			if !ok {
				return nil, false
			}
			value = next
		case []any:
			i, err := strconv.Atoi(step)
			if err != nil || i < 0 || i >= len(of) {
				return nil, false
			}
			value = of[i]
		default:
			return nil, false
		}
	}
	return value, true
}
