// Copyright The DI Orchestrator Authors.
// SPDX-License-Identifier: Apache-2.0

package docs

import (
	"bytes"
	"errors"
	"go/ast"
	"go/parser"
	"go/token"
	"io"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"

	rbacv1 "k8s.io/api/rbac/v1"
	"k8s.io/apimachinery/pkg/util/yaml"

	"opendilab.org/di-orchestrator/apis/v2alpha1"
	"opendilab.org/di-orchestrator/internal/names"
	"opendilab.org/di-orchestrator/test/testkit"
	"opendilab.org/di-orchestrator/test/testkit/expect"
)

func TestTheMapOfTheCodeHasEveryFolder(t *testing.T) {
	_, after, _ := strings.Cut(read(t, "docs/development.md"), "## The map")
	documented, _, _ := strings.Cut(after, "\n## ")
	for _, parent := range []string{"cmd", "internal", "job", "upgrade", "sim", "apis", "hack", "test"} {
		folders, err := os.ReadDir(filepath.Join(testkit.Root(), parent))
		expect.NoError(t, err)
		for _, folder := range folders {
			if path := parent + "/" + folder.Name(); folder.IsDir() && !strings.Contains(documented, "`"+path+"`") {
				t.Errorf("docs/development.md: the map lacks %s", path)
			}
		}
	}
}

func TestTheTableOfConditionsHasAllConditionsAndReasons(t *testing.T) {
	const declared = "apis/v2alpha1/constants.go"
	table := conditionTable(t)
	known := constants(t, declared, "Condition", "Job")
	for _, condition := range known {
		// No job has condition Unknown.
		if _, isDocumented := table[condition]; isDocumented == (condition == string(v2alpha1.JobUnknown)) {
			t.Errorf("condition %s: in the table: %v", condition, isDocumented)
		}
	}
	reasons := append(constants(t, declared, "Reason"), known...)
	for condition, ofIt := range table {
		if !slices.Contains(known, condition) {
			t.Errorf("the API has no condition %s", condition)
		}
		for _, reason := range ofIt {
			if !slices.Contains(reasons, reason) {
				t.Errorf("condition %s: the API has no reason %s", condition, reason)
			}
		}
	}
	events, err := testkit.DocumentedEvents()
	expect.NoError(t, err)
	for reason, event := range events {
		for _, condition := range event.Conditions {
			if !slices.Contains(table[condition], reason) {
				t.Errorf("docs/events.md: condition %s has no reason %s in the table", condition, reason)
			}
		}
	}
}

// conditionTable returns the reasons of each condition in docs/concepts.md.
func conditionTable(t *testing.T) map[string][]string {
	t.Helper()
	_, after, _ := strings.Cut(read(t, "docs/concepts.md"), "| condition | reasons | says |\n")
	table, _, _ := strings.Cut(after, "\n\n")
	row := regexp.MustCompile("(?m)^\\| `([A-Za-z]+)` \\| (`[^|]*`) \\|")
	found := map[string][]string{}
	for _, cells := range row.FindAllStringSubmatch(table, -1) {
		found[cells[1]] = append(found[cells[1]], inCode(cells[2])...)
	}
	return found
}

func TestTheGuideToProgramsHasEveryVariableAndPort(t *testing.T) {
	page := read(t, "docs/programs.md")
	variables := constants(t, "internal/names/environment.go", "Env")
	if len(variables) < 10 {
		t.Errorf("%d variables were found: are the constants read at all?", len(variables))
	}
	// Templates set this one, for programs of other versions of the API.
	variables = slices.DeleteFunc(variables, func(name string) bool { return name == names.EnvServerAPIVersion })
	ports := []int32{names.DefaultWorkerPort, names.DefaultMasterPort}
	for _, role := range []names.ReplicaType{
		names.ReplicaTypeCoordinator, names.ReplicaTypeCollector, names.ReplicaTypeLearner, names.ReplicaTypeAggregator, names.ReplicaTypeDDPLearner,
	} {
		variables = append(variables, names.PortVariable(role))
		ports = append(ports, names.DefaultPort(role))
	}
	for _, name := range append(variables, names.TokenFile, names.Container, names.Port, names.MasterPort) {
		if !strings.Contains(page, "`"+name+"`") {
			t.Errorf("docs/programs.md lacks %s", name)
		}
	}
	for _, port := range ports {
		if !strings.Contains(page, " "+strconv.Itoa(int(port))) {
			t.Errorf("docs/programs.md lacks port %d", port)
		}
	}
}

// TestTheGuideToSecurityHasEveryRight compares the tables with the roles, right
// by right, in both directions.
func TestTheGuideToSecurityHasEveryRight(t *testing.T) {
	page := read(t, "docs/security.md")
	for program, folder := range rolesOf() {
		documented, granted := documentedRights(page, program), grantedRights(t, folder)
		if len(documented) == 0 {
			t.Errorf("the page has no table of the rights of %s", program)
		}
		for _, right := range granted {
			if !slices.Contains(documented, right) {
				t.Errorf("%s: the page lacks %s", program, right)
			}
		}
		for _, right := range documented {
			if !slices.Contains(granted, right) {
				t.Errorf("%s: the page has, and the roles lack, %s", program, right)
			}
		}
	}
}

// rolesOf returns the folders of config/rbac with the roles, by the programs in the tables.
func rolesOf() map[string]string {
	return map[string]string{"the operator": "operator", "the webhooks": "webhook", "the operator, for a takeover": "takeover", "di-server": "server", "the history": "history"}
}

// documentedRights returns each verb on each resource of a table, with its name and place.
func documentedRights(page, program string) []string {
	_, after, _ := strings.Cut(page, "| "+program+": what | verbs | where | why |\n")
	table, _, _ := strings.Cut(after, "\n\n")
	row := regexp.MustCompile(`(?m)^\| ([^(|]*)(?:\(([^)|]*)\) )?\| ([a-z, ]+) \| (cluster|own) \|`)
	var found []string
	for _, cells := range row.FindAllStringSubmatch(table, -1) {
		// The API groups follow the only resource of several groups.
		what, _, _ := strings.Cut(cells[1], " of ")
		found = append(found, rights(cells[4], inCode(what), inCode(cells[2]), strings.Split(cells[3], ", "))...)
	}
	return found
}

// grantedRights returns the same of the generated roles of a program.
func grantedRights(t *testing.T, folder string) []string {
	t.Helper()
	var found []string
	documents := yaml.NewYAMLOrJSONDecoder(bytes.NewReader([]byte(read(t, filepath.Join("config", "rbac", folder, "role.yaml")))), 4096)
	for {
		var role rbacv1.Role
		err := documents.Decode(&role)
		if errors.Is(err, io.EOF) {
			return found
		}
		expect.NoError(t, err)
		where := "own"
		if role.Kind == "ClusterRole" {
			where = "cluster"
		}
		for _, rule := range role.Rules {
			found = append(found, rights(where, rule.Resources, rule.ResourceNames, rule.Verbs)...)
		}
	}
}

func rights(where string, resources, objects, verbs []string) []string {
	if len(objects) == 0 {
		objects = []string{""}
	}
	var found []string
	for _, resource := range resources {
		for _, object := range objects {
			for _, verb := range verbs {
				found = append(found, strings.Join([]string{verb, resource, object, "in", where}, " "))
			}
		}
	}
	return found
}

// inCode returns the words of a text in code font.
func inCode(text string) []string {
	var found []string
	for _, match := range regexp.MustCompile("`([^`]+)`").FindAllStringSubmatch(text, -1) {
		found = append(found, match[1])
	}
	return found
}

// constants returns the values of a file's string constants with these prefixes.
func constants(t *testing.T, path string, prefixes ...string) []string {
	t.Helper()
	file, err := parser.ParseFile(token.NewFileSet(), filepath.Join(testkit.Root(), path), nil, parser.SkipObjectResolution)
	expect.NoError(t, err)
	var found []string
	ast.Inspect(file, func(node ast.Node) bool {
		spec, isValue := node.(*ast.ValueSpec)
		if !isValue || len(spec.Values) == 0 ||
			!slices.ContainsFunc(prefixes, func(prefix string) bool { return strings.HasPrefix(spec.Names[0].Name, prefix) }) {
			return true
		}
		if literal, isLiteral := spec.Values[0].(*ast.BasicLit); isLiteral {
			value, err := strconv.Unquote(literal.Value)
			expect.NoError(t, err)
			found = append(found, value)
		}
		return true
	})
	return found
}
