// Copyright The DI Orchestrator Authors.
// SPDX-License-Identifier: Apache-2.0

// Package jobviewtest reads jobs with their pods, as tests of views show them.
package jobviewtest

import (
	"bufio"
	"bytes"
	"errors"
	"io"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/yaml"
	kyaml "sigs.k8s.io/yaml"

	"opendilab.org/di-orchestrator/apis/v1alpha1"
	"opendilab.org/di-orchestrator/apis/v2alpha1"
	"opendilab.org/di-orchestrator/cmd/kubectl-di/internal/jobview"
	"opendilab.org/di-orchestrator/conversion"
)

// Now is when the fixtures are observed.
var Now = time.Date(2026, 3, 1, 12, 0, 0, 0, time.UTC)

// Read returns the fixtures of a folder by their names. A file has the objects of a job as documents. A file whose name ends with
// unread has a Membership that the user may not read.
func Read(t *testing.T, folder string) map[string]*jobview.Observed {
	t.Helper()
	files, err := filepath.Glob(filepath.Join(folder, "*.yaml"))
	if err != nil || len(files) == 0 {
		t.Fatalf("folder %s has no fixtures: %v", folder, err)
	}
	all := map[string]*jobview.Observed{}
	for _, file := range files {
		name := strings.TrimSuffix(filepath.Base(file), ".yaml")
		all[name] = read(t, file)
		all[name].Members.IsRead = !strings.HasSuffix(name, "unread")
	}
	return all
}

func read(t *testing.T, file string) *jobview.Observed {
	t.Helper()
	content, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	o := &jobview.Observed{Now: Now}
	documents := yaml.NewYAMLReader(bufio.NewReader(bytes.NewReader(content)))
	for {
		document, err := documents.Read()
		if errors.Is(err, io.EOF) {
			return o
		}
		if err == nil {
			err = add(o, document)
		}
		if err != nil {
			t.Fatalf("%s: %v", file, err)
		}
	}
}

// add adds an object.
func add(o *jobview.Observed, document []byte) error {
	var kind struct{ APIVersion, Kind string }
	if err := kyaml.Unmarshal(document, &kind); err != nil {
		return err
	}
	switch kind.Kind {
	case "DIJob":
		return addJob(o, document, kind.APIVersion)
	case "Membership":
		o.Members.List = &v2alpha1.Membership{}
		return kyaml.UnmarshalStrict(document, o.Members.List)
	case "Event":
		event := &corev1.Event{}
		o.Events = append(o.Events, event)
		err := kyaml.UnmarshalStrict(document, event)
		event.UID = types.UID(event.Name)
		return err
	case "Pod":
		pod := &corev1.Pod{}
		o.Pods = append(o.Pods, pod)
		return kyaml.UnmarshalStrict(document, pod)
	}
	return errors.New("a document is of kind " + kind.Kind)
}

func addJob(o *jobview.Observed, document []byte, version string) (err error) {
	if version != v1alpha1.GroupVersion.String() {
		o.Job = &v2alpha1.DIJob{}
		return kyaml.UnmarshalStrict(document, o.Job)
	}
	job := &v1alpha1.DIJob{}
	if err := kyaml.UnmarshalStrict(document, job); err != nil {
		return err
	}
	o.Job, err = conversion.ToHub(job)
	return err
}
