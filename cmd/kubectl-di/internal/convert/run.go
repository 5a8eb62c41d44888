// Copyright The DI Orchestrator Authors.
// SPDX-License-Identifier: Apache-2.0

package convert

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"strings"

	"opendilab.org/di-orchestrator/apis/v2alpha1"
	"opendilab.org/di-orchestrator/cmd/kubectl-di/internal/convert/manifests"
	"opendilab.org/di-orchestrator/cmd/kubectl-di/internal/exit"
)

const (
	formatYAML = "yaml"
	formatJSON = "json"
)

var errInterrupted = errors.New("interrupted: nothing was written")

// run converts all inputs before it writes anything.
func (o *convertOptions) run(ctx context.Context, in io.Reader, out, report io.Writer) error {
	if err := o.check(); err != nil {
		return err
	}
	inputs, err := readInputs(ctx, o.files, o.recursive, in)
	if err != nil {
		return err
	}
	if err := o.checkInputs(inputs); err != nil {
		return err
	}
	outputs, lost, err := o.convertFiles(inputs, report)
	if err != nil {
		return fmt.Errorf("%w\nnothing was written", err)
	}
	if lost > 0 && o.strict {
		return exit.With(exit.Lost, fmt.Errorf("not carried over: %d, see above; nothing was written, as --strict asks", lost))
	}
	if ctx.Err() != nil {
		return errInterrupted
	}
	return o.write(outputs, out)
}

// convertFiles converts all inputs, reports on them, and counts what could not
// be carried over. Its error is of all that failed.
func (o *convertOptions) convertFiles(inputs []input, report io.Writer) (outputs []output, lost int, err error) {
	var failures []error
	for i := range inputs {
		converted, reports, err := o.convertFile(&inputs[i])
		failures = append(failures, err)
		outputs = append(outputs, output{input: &inputs[i], content: converted})
		for j := range reports {
			lost += len(reports[j].lost)
			reports[j].write(report)
		}
	}
	return outputs, lost, errors.Join(failures...)
}

func (o *convertOptions) checkInputs(inputs []input) error {
	for i := range inputs {
		if inputs[i].path == "" && o.inPlace {
			return exit.Usagef("--in-place: stdin has no place to be written back to")
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
	if err := manifests.CheckEncoding(file.content); err != nil {
		return nil, nil, fmt.Errorf("%s: %w", file.name, err)
	}
	var (
		out      strings.Builder
		reports  []documentReport
		failures []error
	)
	content, marked := bytes.CutPrefix(file.content, []byte(manifests.ByteOrderMark))
	number := 0
	for _, part := range manifests.Split(content) {
		if part.IsEmpty() {
			out.WriteString(part.Separator + part.Body + part.End)
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
	if number == 0 {
		reports = []documentReport{{at: file.name, became: "holds no document"}}
	}
	if marked {
		return []byte(manifests.ByteOrderMark + out.String()), reports, errors.Join(failures...)
	}
	return []byte(out.String()), reports, errors.Join(failures...)
}

// writePart appends a document. One that changed starts on a line of its own,
// and one of YAML that follows others after a separator.
func writePart(out *strings.Builder, part *manifests.Part, body string, follows bool) {
	separator, end := part.Separator, part.End
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
	if strings.HasPrefix(body, "{") && body != part.Body {
		end = "" // JSON ends by itself.
	}
	out.WriteString(separator + body + end)
}
