// Copyright The DI Orchestrator Authors.
// SPDX-License-Identifier: Apache-2.0

// Package chart tests the rendered Helm chart with Helm 3 and 4.
package chart

import (
	"bytes"
	"errors"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/util/yaml"

	"opendilab.org/di-orchestrator/test/testkit"
)

// helms returns the environment variables that name both programs; `make test` sets them.
func helms() []string { return []string{"HELM", "HELM3"} }

func chart() string { return filepath.Join(testkit.Root(), "charts", "di-orchestrator") }

// program returns the path in an environment variable.
func program(t *testing.T, key string) string {
	t.Helper()
	path := os.Getenv(key)
	if path == "" {
		t.Fatalf("%s is not set: run the tests by make test, or set it to the program", key)
	}
	return path
}

// run runs a program and returns its output.
func run(t *testing.T, path string, args ...string) (string, error) {
	t.Helper()
	command := exec.CommandContext(t.Context(), path, args...)
	var output, complaints bytes.Buffer
	command.Stdout, command.Stderr = &output, &complaints
	if err := command.Run(); err != nil {
		return "", errors.Join(err, errors.New(complaints.String()))
	}
	return output.String(), nil
}

// render renders the chart with Helm 4, as release di in a namespace.
func render(t *testing.T, namespace string, values ...string) []*unstructured.Unstructured {
	t.Helper()
	output, err := run(t, program(t, "HELM"), renderArgs(namespace, values)...)
	if err != nil {
		t.Fatal(err)
	}
	return decode(t, output)
}

func renderArgs(namespace string, values []string) []string {
	args := []string{"template", "di", chart(), "--namespace", namespace, "--kube-version", "1.30.0"}
	for _, value := range values {
		args = append(args, "--set", value)
	}
	return args
}

func decode(t *testing.T, documents string) []*unstructured.Unstructured {
	t.Helper()
	decoder := yaml.NewYAMLOrJSONDecoder(strings.NewReader(documents), 4096)
	var objects []*unstructured.Unstructured
	for {
		object := &unstructured.Unstructured{}
		err := decoder.Decode(object)
		if errors.Is(err, io.EOF) {
			return objects
		}
		if err != nil {
			t.Fatal(err)
		}
		if len(object.Object) > 0 {
			objects = append(objects, object)
		}
	}
}

// isHook reports whether Helm creates the object only temporarily, outside the release.
func isHook(object *unstructured.Unstructured) bool {
	return object.GetAnnotations()["helm.sh/hook"] != ""
}

// identify returns an object's kind, namespace and name.
func identify(object *unstructured.Unstructured) string {
	return object.GetKind() + " " + object.GetNamespace() + "/" + object.GetName()
}

// find returns the object of a kind and name.
func find(t *testing.T, objects []*unstructured.Unstructured, kind, name string) *unstructured.Unstructured {
	t.Helper()
	for _, object := range objects {
		if object.GetKind() == kind && object.GetName() == name {
			return object
		}
	}
	t.Fatalf("there is no %s %s", kind, name)
	return nil
}
