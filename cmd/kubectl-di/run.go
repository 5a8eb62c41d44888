// Copyright The DI Orchestrator Authors.
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"errors"
	"fmt"
	"io"
	"strings"

	"opendilab.org/di-orchestrator/apis/v2alpha1"
	"opendilab.org/di-orchestrator/internal/manifests"
)

const (
	formatYAML = "yaml"
	formatJSON = "json"
)

// run converts all inputs before it writes anything.
func (o *convertOptions) run(in io.Reader, out, report io.Writer) error {
	if err := o.check(); err != nil {
		return err
	}
	inputs, err := readInputs(o.files, o.recursive, in)
	if err != nil {
		return err
	}
	if err := o.checkInputs(inputs); err != nil {
		return err
	}
	var failures []error
	outputs := make([]output, len(inputs))
	lost := 0
	for i := range inputs {
		converted, reports, err := o.convertFile(&inputs[i])
		failures = append(failures, err)
		outputs[i] = output{input: &inputs[i], content: converted}
		for j := range reports {
			lost += len(reports[j].lost)
			reports[j].write(report)
		}
	}
	if err := errors.Join(failures...); err != nil {
		return fmt.Errorf("%w\nnothing was written", err)
	}
	if lost > 0 && o.strict {
		return coded{fmt.Errorf("not carried over: %d, see above; nothing was written, as --strict asks", lost), exitLost}
	}
	return o.write(outputs, out)
}

func (o *convertOptions) checkInputs(inputs []input) error {
	for i := range inputs {
		if inputs[i].path == "" && o.inPlace {
			return usageError("--in-place: stdin has no place to be written back to")
		}
	}
	return nil
}

// apiVersion is the version that is converted to.
func (o *convertOptions) apiVersion() string {
	return v2alpha1.GroupName + "/" + o.to
}

// convertFile converts the documents of a file.
func (o *convertOptions) convertFile(file *input) ([]byte, []documentReport, error) {
	var (
		out      strings.Builder
		reports  []documentReport
		failures []error
	)
	number := 0
	for _, part := range manifests.Split(file.content) {
		if part.IsEmpty() {
			out.WriteString(part.Separator + part.Body)
			continue
		}
		number++
		at := fmt.Sprintf("%s: document %d (line %d)", file.name, number, part.Line)
		body, found, err := o.convertPart(&part)
		if err != nil {
			failures = append(failures, fmt.Errorf("%s: %w", at, err))
			continue
		}
		for i := range found {
			found[i].at = at
		}
		reports = append(reports, found...)
		writePart(&out, &part, body, number > 1)
	}
	return []byte(out.String()), reports, errors.Join(failures...)
}

// writePart appends a document. One that changed starts on a line of its own,
// and one of YAML that follows others after a separator.
func writePart(out *strings.Builder, part *manifests.Part, body string, follows bool) {
	separator := part.Separator
	if body != part.Body {
		if text := out.String(); text != "" && !strings.HasSuffix(text, "\n") {
			out.WriteByte('\n')
		}
		if separator != "" && !strings.HasSuffix(separator, "\n") {
			separator = strings.TrimRight(separator, " \t") + "\n"
		}
		if separator == "" && follows && !strings.HasPrefix(body, "{") {
			separator = "---\n"
		}
	}
	out.WriteString(separator + body)
}
