// Copyright The DI Orchestrator Authors.
// SPDX-License-Identifier: Apache-2.0

package chart

import (
	"encoding/json"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"opendilab.org/di-orchestrator/test/testkit"
)

// Only one object of earlier releases has a name that the chart also uses: the Service that clients
// know. Helm adopts it by a flag, and it continues to select the pods of both.
func TestOnlyTheServiceOfDiServerIsTakenOverFromEarlierReleases(t *testing.T) {
	t.Parallel()
	rendered := map[string]*unstructured.Unstructured{}
	for _, object := range render(t, "di-system", everything()...) {
		rendered[identify(object)] = object
	}
	manifests := filepath.Join(testkit.Root(), "test", "upgrade", "legacy", "manifests")
	files, err := os.ReadDir(manifests)
	if err != nil || len(files) == 0 {
		t.Fatalf("got %v, %v", files, err)
	}
	for _, file := range files {
		content, err := os.ReadFile(filepath.Join(manifests, file.Name()))
		if err != nil {
			t.Fatal(err)
		}
		var shared []string
		for _, object := range decode(t, string(content)) {
			ours := rendered[identify(object)]
			if ours == nil {
				continue
			}
			shared = append(shared, object.GetKind()+" "+object.GetName())
			selects, _, _ := unstructured.NestedStringMap(object.Object, "spec", "selector")
			if diff := cmp.Diff(selects, selectorOf(t, ours)); diff != "" {
				t.Errorf("%s: the release selects (-), the chart (+):\n%s", file.Name(), diff)
			}
		}
		if !slices.Equal(shared, []string{"Service di-server"}) {
			t.Errorf("%s: objects of the same names: %v", file.Name(), shared)
		}
	}
	labels, _, err := unstructured.NestedStringMap(rendered["Deployment di-system/di-orchestrator-server"].Object, "spec", "template", "metadata", "labels")
	if err != nil || labels["control-plane"] != "di-server" {
		t.Errorf("pods of di-server are labelled %v, %v", labels, err)
	}
}

// The takeover programs the nodes with these names before the Service has them.
func TestTheServiceOfDiServerKeepsTheNamesOfItsPorts(t *testing.T) {
	t.Parallel()
	ports, _, err := unstructured.NestedSlice(find(t, render(t, "di-system"), "Service", "di-server").Object, "spec", "ports")
	if err != nil {
		t.Fatal(err)
	}
	want := []any{
		map[string]any{"name": "v1", "port": int64(8080), "targetPort": int64(8080)},
		map[string]any{"name": "v2", "port": int64(8081), "targetPort": int64(8081)},
		map[string]any{"name": "tls", "port": int64(8443), "targetPort": "tls"},
	}
	if diff := cmp.Diff(want, ports); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
}

func selectorOf(t *testing.T, service *unstructured.Unstructured) map[string]string {
	t.Helper()
	selects, _, err := unstructured.NestedStringMap(service.Object, "spec", "selector")
	if err != nil {
		t.Fatal(err)
	}
	return selects
}

func TestNothingIsInstalledBeforeTheClusterWasLookedAt(t *testing.T) {
	t.Parallel()
	hook := find(t, render(t, "di-system"), "Job", "di-orchestrator-install-crds")
	if names := containers(t, hook, "initContainers"); !slices.Equal(names, []string{"preflight"}) {
		t.Errorf("before install-crds runs %v, want preflight", names)
	}
	rules, _, err := unstructured.NestedSlice(hook.Object, "spec", "podFailurePolicy", "rules")
	if err != nil || len(rules) != 1 {
		t.Errorf("what preflight finds is tried again: %v, %v", rules, err)
	}
}

func TestWhoKnowsBetterNeedNotLook(t *testing.T) {
	t.Parallel()
	objects := render(t, "di-system", "preflight.enabled=false")
	hook := find(t, objects, "Job", "di-orchestrator-install-crds")
	if names := containers(t, hook, "initContainers"); len(names) > 0 {
		t.Errorf("before install-crds runs %v, want nothing", names)
	}
	rules, _, err := unstructured.NestedSlice(find(t, objects, "ClusterRole", "di-orchestrator-install-crds").Object, "rules")
	if err != nil {
		t.Fatal(err)
	}
	for _, rule := range rules {
		fields, _ := rule.(map[string]any)
		resources, _, _ := unstructured.NestedStringSlice(fields, "resources")
		if strings.Contains(strings.Join(resources, " "), "dijobs") {
			t.Errorf("what does not look may read %v", resources)
		}
	}
}

// containers returns the names of the containers in a field of a Job's pods.
func containers(t *testing.T, job *unstructured.Unstructured, field string) []string {
	t.Helper()
	all, _, err := unstructured.NestedSlice(job.Object, "spec", "template", "spec", field)
	if err != nil {
		t.Fatal(err)
	}
	var names []string
	for _, one := range all {
		fields, _ := one.(map[string]any)
		name, _ := fields["name"].(string)
		names = append(names, name)
	}
	return names
}

func TestTheRightsOfATakeoverEndByAValue(t *testing.T) {
	t.Parallel()
	const role = "di-orchestrator-takeover"
	objects := render(t, "di-system")
	for _, kind := range []string{"ClusterRole", "ClusterRoleBinding", "Role", "RoleBinding"} {
		find(t, objects, kind, role)
	}
	objects = render(t, "di-system", "takeover.enabled=false")
	for _, object := range objects {
		rules, err := json.Marshal(object.Object["rules"])
		if err != nil {
			t.Fatal(err)
		}
		// The uninstallation hook prepares the return to an earlier release.
		retires := strings.Contains(object.GetName(), "retire-crds")
		if object.GetName() == role || !retires && (strings.Contains(string(rules), "endpointslices") || strings.Contains(string(rules), "deployments/scale")) {
			t.Errorf("%s %s still has the rights of a takeover: %s", object.GetKind(), object.GetName(), rules)
		}
	}
	if configured(t, objects).Common.Takeover {
		t.Error("the programs are not told that they take nothing over")
	}
}
