// Copyright The DI Orchestrator Authors.
// SPDX-License-Identifier: Apache-2.0

package submit

import (
	"context"
	"errors"
	"fmt"
	"io"
	"slices"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/cli-runtime/pkg/resource"

	"opendilab.org/di-orchestrator/apis/v1alpha1"
	"opendilab.org/di-orchestrator/apis/v2alpha1"
)

// stdin is the name of a file that says to read from there.
const stdin = "-"

// written is a job as it is written somewhere.
type written struct {
	*unstructured.Unstructured
	// source is the file, URL or stdin.
	source string
}

// read reads the jobs of the files, and ends with the context, though stdin
// may never do.
func (o *options) read(ctx context.Context) ([]written, error) {
	type result struct {
		jobs []written
		err  error
	}
	done := make(chan result, 1)
	go func() {
		jobs, err := o.parse()
		done <- result{jobs, err}
	}()
	select {
	case <-ctx.Done():
		return nil, errors.New("interrupted: nothing was submitted")
	case read := <-done:
		return read.jobs, read.err
	}
}

// parse reads the jobs of the files.
func (o *options) parse() ([]written, error) {
	builder := resource.NewLocalBuilder().Unstructured().Flatten().ContinueOnError()
	files := o.files
	files.Filenames = slices.DeleteFunc(slices.Clone(o.files.Filenames), func(name string) bool { return name == stdin })
	if len(files.Filenames) < len(o.files.Filenames) {
		builder = builder.Stream(noClose{o.streams.In}, "stdin")
	}
	if len(files.Filenames) > 0 || files.Kustomize != "" {
		builder = builder.FilenameParam(false, &files)
	}
	var jobs []written
	var failures []error
	err := builder.Do().Visit(func(info *resource.Info, err error) error {
		if err != nil {
			return err
		}
		job, err := jobOf(info)
		if err != nil {
			failures = append(failures, err)
			return nil // The others are looked at too.
		}
		jobs = append(jobs, job)
		return nil
	})
	if err = errors.Join(append(failures, err)...); err != nil {
		return nil, fmt.Errorf("%w\nnothing was submitted", err)
	}
	if len(jobs) == 0 {
		return nil, errors.New("there is no DIJob in what was read: nothing was submitted")
	}
	return jobs, nil
}

// noClose keeps what is read from being closed.
type noClose struct{ io.Reader }

// jobOf returns the job that was read, or why it is none.
func jobOf(info *resource.Info) (written, error) {
	object, isUnstructured := info.Object.(*unstructured.Unstructured)
	if !isUnstructured {
		return written{}, fmt.Errorf("%s: holds a %T, and no DIJob", info.Source, info.Object)
	}
	kind := object.GroupVersionKind()
	known := kind.GroupVersion() == v2alpha1.GroupVersion || kind.GroupVersion() == v1alpha1.GroupVersion
	switch {
	case kind.Kind == "DIJob" && known:
		return written{object, info.Source}, nil
	case kind.Kind == "DIJob" || kind.Kind == "NerveXJob" || kind.Kind == "TFJob" || kind.Kind == "PyTorchJob":
		return written{}, fmt.Errorf("%s: %s %q is of %s: import it by kubectl di convert -f FILE | kubectl di submit -f -",
			info.Source, kind.Kind, object.GetName(), kind.GroupVersion())
	}
	return written{}, fmt.Errorf("%s: %s %q is no DIJob: create it by kubectl apply", info.Source, kind.Kind, object.GetName())
}
