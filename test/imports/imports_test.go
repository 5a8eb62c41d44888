// Copyright The DI Orchestrator Authors.
// SPDX-License-Identifier: Apache-2.0

// Package imports tests the imports of the packages that compute decisions. They must be pure, so
// that their tests are deterministic and need no cluster and no clock.
package imports

import (
	"encoding/json"
	"errors"
	"go/ast"
	"go/parser"
	"go/token"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"sigs.k8s.io/yaml"

	"opendilab.org/di-orchestrator/test/testkit/expect"
)

const module = "opendilab.org/di-orchestrator/"

// pure returns the packages that compute decisions. The linter's rule of the same name in
// .golangci.yml has the only list.
func pure(t *testing.T) []string {
	t.Helper()
	var config struct {
		Linters struct {
			Settings struct {
				Depguard struct {
					Rules map[string]struct {
						Files []string `json:"files"`
					} `json:"rules"`
				} `json:"depguard"`
			} `json:"settings"`
		} `json:"linters"`
	}
	content, err := os.ReadFile(filepath.Join("..", "..", ".golangci.yml"))
	if err == nil {
		err = yaml.Unmarshal(content, &config)
	}
	expect.NoError(t, err)
	var found []string
	for _, pattern := range config.Linters.Settings.Depguard.Rules["pure"].Files {
		if strings.HasPrefix(pattern, "!") {
			continue
		}
		folder, isFolder := strings.CutPrefix(pattern, "**/")
		folder, isPackage := strings.CutSuffix(folder, "/*.go")
		if !isFolder || !isPackage {
			t.Fatalf(".golangci.yml: depguard's rule pure has %q, want **/PACKAGE/*.go", pattern)
		}
		found = append(found, folder)
	}
	if len(found) == 0 {
		t.Fatal(".golangci.yml: depguard's rule pure has no packages")
	}
	return found
}

// mayImport returns the packages of this module that each pure package may import.
func mayImport() map[string][]string {
	return map[string][]string{
		"conversion":           {"apis/v1alpha1", "apis/v2alpha1", "internal/netlimit", "internal/quantity"},
		"conversion/importers": {"apis/v1alpha1", "apis/v2alpha1"},
		"internal/names":       {"apis/v2alpha1"},
		"internal/limits":      {"apis/v2alpha1", "internal/names"},
		"cmd/kubectl-di/internal/convert/manifests": {},
		"cmd/kubectl-di/internal/history/fields":    {"internal/names"},
		"cmd/kubectl-di/internal/jobs/fromflags":    {"apis/v2alpha1", "internal/names"},
		"internal/conditions":                       {"apis/v2alpha1"},
		"internal/configfile":                       {"apis/config/v1alpha1", "internal/limits"},
		"job/podstate":                              {"apis/v2alpha1", "internal/conditions", "internal/limits", "internal/names"},
		"controllers/allocator/devices":             {"apis/v2alpha1"},
		"controllers/allocator/usage":               {"allocation", "apis/v2alpha1", "internal/conditions", "job/lifecycle/placements"},
		"controllers/allocator/histories":           {"allocation", "allocation/model", "apis/v2alpha1", "controllers/allocator/usage"},
		"controllers/allocator/survey": {
			"allocation", "allocation/profilings", "apis/v2alpha1", "controllers/allocator/devices", "controllers/allocator/usage", "internal/conditions", "internal/limits",
			"internal/names", "job/lifecycle/placements", "job/lifecycle/sizing", "job/podstate", "job/workload",
		},
		"upgrade/migration": {"apis/v1alpha1", "apis/v2alpha1"},
		"job/membership":    {"apis/v2alpha1", "internal/limits", "internal/names", "job/podstate"},
		"job/workload":      {"apis/v2alpha1", "internal/limits", "internal/names", "internal/quantity"},
		"job/queueing":      {"apis/v2alpha1", "internal/conditions", "internal/limits", "job/podstate"},
		"job/gang":          {"internal/conditions"},
		"job/scaling": {
			"apis/v2alpha1", "job/lifecycle/ranks", "job/lifecycle/sizing", "job/lifecycle/state", "internal/limits",
			"job/membership", "internal/names", "job/podstate", "job/workload",
		},
		"internal/quantity": {},
		"webhook/validation": {
			"apis/v1alpha1", "apis/v2alpha1", "conversion", "internal/conditions", "internal/limits", "internal/names", "job/queueing", "job/scaling",
			"webhook/validation/jsontype", "webhook/validation/semantic", "job/workload",
		},
		"webhook/validation/jsontype": {"internal/quantity"},
		"webhook/validation/semantic": {"apis/v2alpha1", "internal/netlimit", "internal/quantity", "webhook/validation/jsontype"},
		"job/lifecycle/gangs": {
			"apis/v2alpha1", "internal/conditions", "job/gang", "job/lifecycle/ranks", "job/lifecycle/state", "internal/names",
			"job/podstate", "job/workload",
		},
		"job/lifecycle/placements": {
			"apis/v2alpha1", "internal/conditions", "job/lifecycle/ranks", "job/lifecycle/sizing", "job/lifecycle/state",
			"internal/limits", "internal/names", "job/podstate",
		},
		"job/lifecycle/workerled/counts": {
			"apis/v2alpha1", "internal/conditions", "job/lifecycle/endings", "job/lifecycle/placements", "job/lifecycle/ranks",
			"job/lifecycle/rightsize", "job/lifecycle/sizing", "job/lifecycle/state", "job/lifecycle/workerled/groups",
			"job/lifecycle/workerled/identity", "job/lifecycle/workerled/indexes", "job/lifecycle/workerled/observed",
			"job/lifecycle/workerled/policy", "internal/limits", "internal/names", "job/podstate", "job/queueing",
			"job/scaling", "job/workload",
		},
		"job/lifecycle/workerled/failures": {
			"apis/v2alpha1", "job/lifecycle/disruptions", "job/lifecycle/handshake", "job/lifecycle/problems",
			"job/lifecycle/rightsize", "job/lifecycle/state", "job/lifecycle/workerled/identity",
			"job/lifecycle/workerled/observed", "job/lifecycle/workerled/policy", "job/lifecycle/workerled/ranked",
			"internal/limits", "internal/names", "job/podstate", "job/workload",
		},
		"job/lifecycle/workerled/observed": {
			"apis/v2alpha1", "job/lifecycle/placements", "job/lifecycle/ranks", "job/lifecycle/rightsize",
			"job/lifecycle/sizing", "job/lifecycle/state", "job/lifecycle/workerled/groups", "job/lifecycle/workerled/identity",
			"job/lifecycle/workerled/indexes", "job/lifecycle/workerled/policy", "internal/names", "job/podstate",
			"job/queueing", "job/workload",
		},
		"job/lifecycle/workerled/peers": {
			"job/lifecycle/state", "job/lifecycle/workerled/observed", "job/lifecycle/workerled/ranked", "job/podstate",
			"job/workload",
		},
		"job/lifecycle/workerled/policy": {
			"apis/v2alpha1", "job/lifecycle/disruptions", "job/lifecycle/endings", "job/lifecycle/state", "internal/names",
			"job/podstate", "job/workload",
		},
		"job/lifecycle/workerled/ranked": {
			"apis/v2alpha1", "job/lifecycle/ranks", "job/lifecycle/state", "job/lifecycle/workerled/groups",
			"job/lifecycle/workerled/indexes", "job/lifecycle/workerled/observed", "internal/limits", "internal/names",
			"job/podstate", "job/queueing", "job/scaling", "job/workload",
		},
		"job/lifecycle/workerled/staffing": {
			"apis/v2alpha1", "job/lifecycle/gangs", "job/lifecycle/handshake", "job/lifecycle/ranks", "job/lifecycle/state",
			"job/lifecycle/workerled/groups", "job/lifecycle/workerled/observed", "job/lifecycle/workerled/peers",
			"job/lifecycle/workerled/ranked", "internal/names", "job/podstate", "job/queueing", "job/workload",
		},
		"job/lifecycle/workerled/summary": {
			"apis/v2alpha1", "job/lifecycle/disruptions", "job/lifecycle/gangs", "job/lifecycle/handshake",
			"job/lifecycle/placements", "job/lifecycle/problems", "job/lifecycle/ranks", "job/lifecycle/rightsize",
			"job/lifecycle/state", "job/lifecycle/upkeep", "job/lifecycle/workerled/failures",
			"job/lifecycle/workerled/identity", "job/lifecycle/workerled/observed", "job/lifecycle/workerled/ranked",
			"internal/names", "job/podstate", "job/scaling", "job/workload",
		},
		"job/lifecycle/disruptions": {
			"apis/v2alpha1", "job/lifecycle/problems", "job/lifecycle/state", "job/podstate",
		},
		"job/lifecycle/endings": {
			"apis/v2alpha1", "job/lifecycle/problems", "job/lifecycle/state", "internal/limits", "job/podstate",
		},
		"job/lifecycle/problems": {
			"apis/v2alpha1", "internal/conditions", "job/lifecycle/state", "internal/names", "job/podstate", "job/queueing",
		},
		"job/lifecycle/upkeep": {
			"apis/v2alpha1", "internal/conditions", "job/lifecycle/state", "internal/names", "job/podstate", "job/queueing",
			"job/workload",
		},
		"job/lifecycle/coordinatorled/slots": {
			"apis/v2alpha1", "job/lifecycle/handshake", "job/lifecycle/state", "internal/limits", "job/membership", "internal/names",
			"job/podstate",
		},
		"job/lifecycle/coordinatorled/observed": {
			"apis/v2alpha1", "job/lifecycle/coordinatorled/slots", "job/lifecycle/handshake", "job/lifecycle/rightsize",
			"job/lifecycle/state", "job/membership", "internal/names", "job/podstate", "job/workload",
		},
		"job/lifecycle/coordinatorled/adopted": {
			"job/lifecycle/coordinatorled/groups", "job/lifecycle/coordinatorled/observed", "job/lifecycle/coordinatorled/slots", "job/lifecycle/endings",
			"job/lifecycle/state", "job/membership", "internal/names",
		},
		"job/lifecycle/coordinatorled/failures": {
			"apis/v2alpha1", "job/lifecycle/coordinatorled/observed", "job/lifecycle/endings", "job/lifecycle/problems",
			"job/lifecycle/rightsize", "job/lifecycle/state", "job/podstate", "job/workload",
		},
		"job/lifecycle/coordinatorled/requested": {
			"apis/v2alpha1", "job/lifecycle/coordinatorled/observed", "job/lifecycle/state", "job/scaling", "job/workload",
		},
		"job/lifecycle/coordinatorled/creation": {
			"job/lifecycle/handshake", "job/lifecycle/state", "internal/names", "job/queueing", "job/workload",
		},
		"job/lifecycle/coordinatorled/coordinator": {
			"apis/v2alpha1", "job/lifecycle/coordinatorled/creation", "job/lifecycle/coordinatorled/failures",
			"job/lifecycle/coordinatorled/observed", "job/lifecycle/disruptions", "job/lifecycle/state", "internal/names",
			"job/podstate",
		},
		"job/lifecycle/coordinatorled/losses": {
			"apis/v2alpha1", "job/lifecycle/coordinatorled/groups", "job/lifecycle/coordinatorled/observed",
			"job/lifecycle/coordinatorled/slots", "job/lifecycle/disruptions", "job/lifecycle/state", "internal/limits",
			"job/membership", "internal/names", "job/podstate", "job/queueing",
		},
		"job/lifecycle/coordinatorled/groups": {
			"apis/v2alpha1", "job/lifecycle/coordinatorled/observed", "job/lifecycle/coordinatorled/slots", "internal/limits",
			"job/membership", "job/podstate", "job/queueing", "job/workload",
		},
		"job/lifecycle/coordinatorled/excess": {
			"job/lifecycle/coordinatorled/observed", "job/lifecycle/coordinatorled/slots", "job/lifecycle/handshake",
			"job/lifecycle/rightsize", "job/lifecycle/state", "internal/names", "job/podstate", "job/scaling",
			"job/workload",
		},
		"job/lifecycle/coordinatorled/staffing": {
			"apis/v2alpha1", "job/lifecycle/coordinatorled/creation", "job/lifecycle/coordinatorled/groups",
			"job/lifecycle/coordinatorled/losses", "job/lifecycle/coordinatorled/observed", "job/lifecycle/coordinatorled/slots", "job/lifecycle/handshake",
			"job/lifecycle/state", "job/membership", "internal/names", "job/podstate",
		},
		"job/lifecycle/coordinatorled/summary": {
			"apis/v2alpha1", "job/lifecycle/coordinatorled/losses", "job/lifecycle/coordinatorled/observed",
			"job/lifecycle/coordinatorled/slots", "job/lifecycle/disruptions", "job/lifecycle/handshake",
			"job/lifecycle/problems", "job/lifecycle/rightsize", "job/lifecycle/state", "job/lifecycle/upkeep",
			"internal/names", "job/podstate", "job/scaling", "job/workload",
		},
		"job/lifecycle/workerled/excess": {
			"apis/v2alpha1", "job/lifecycle/handshake", "job/lifecycle/rightsize", "job/lifecycle/state",
			"job/lifecycle/workerled/failures", "job/lifecycle/workerled/groups", "job/lifecycle/workerled/identity",
			"job/lifecycle/workerled/observed", "job/lifecycle/workerled/peers", "job/lifecycle/workerled/policy",
			"job/lifecycle/workerled/ranked", "internal/names", "job/podstate", "job/queueing", "job/scaling",
			"job/workload",
		},
		"job/lifecycle/workerled/groups": {
			"apis/v2alpha1", "job/lifecycle/ranks", "job/lifecycle/state", "internal/limits", "job/podstate", "job/queueing",
		},
		"job/lifecycle/workerled/identity": {
			"apis/v2alpha1", "job/lifecycle/placements", "job/lifecycle/ranks", "job/lifecycle/rightsize",
			"job/lifecycle/state", "internal/names", "job/podstate", "job/workload",
		},
		"job/lifecycle/workerled/indexes": {
			"apis/v2alpha1", "job/lifecycle/ranks", "internal/names", "job/scaling",
		},
		"job/lifecycle": {
			"apis/v2alpha1", "internal/conditions", "job/lifecycle/coordinatorled", "job/lifecycle/endings", "job/lifecycle/problems",
			"job/lifecycle/sizing", "job/lifecycle/state", "job/lifecycle/upkeep", "job/lifecycle/workerled", "internal/limits",
		},
		"job/lifecycle/coordinatorled": {
			"apis/v2alpha1", "job/lifecycle/coordinatorled/adopted", "job/lifecycle/coordinatorled/coordinator",
			"job/lifecycle/coordinatorled/excess", "job/lifecycle/coordinatorled/failures", "job/lifecycle/coordinatorled/groups",
			"job/lifecycle/coordinatorled/losses",
			"job/lifecycle/coordinatorled/observed", "job/lifecycle/coordinatorled/requested",
			"job/lifecycle/coordinatorled/staffing", "job/lifecycle/coordinatorled/summary", "job/lifecycle/handshake",
			"job/lifecycle/state", "internal/names",
		},
		"job/lifecycle/handshake": {
			"apis/v2alpha1", "job/lifecycle/ranks", "job/lifecycle/state", "internal/names", "job/podstate",
		},
		"job/lifecycle/workerled": {
			"job/lifecycle/handshake", "job/lifecycle/state", "job/lifecycle/workerled/counts",
			"job/lifecycle/workerled/excess", "job/lifecycle/workerled/failures", "job/lifecycle/workerled/observed",
			"job/lifecycle/workerled/ranked", "job/lifecycle/workerled/staffing", "job/lifecycle/workerled/summary",
		},
		"job/lifecycle/ranks": {
			"apis/v2alpha1", "internal/limits", "internal/names", "job/podstate", "job/workload",
		},
		"job/lifecycle/rightsize": {
			"apis/v2alpha1", "internal/conditions", "job/lifecycle/state", "internal/names", "job/podstate", "job/queueing",
			"job/workload",
		},
		"job/lifecycle/sizing": {
			"apis/v2alpha1", "job/lifecycle/state", "internal/limits", "internal/names", "job/podstate",
		},
		"job/lifecycle/state": {
			"apis/v2alpha1", "internal/conditions", "job/gang", "internal/limits", "internal/names", "job/podstate", "job/queueing",
			"job/workload",
		},
		"allocation":                {"allocation/model", "allocation/profilings", "allocation/shares", "allocation/topology", "apis/v2alpha1", "internal/conditions", "job/workload"},
		"allocation/fit":            {"allocation", "allocation/shares", "allocation/tenancy"},
		"allocation/goodput":        {"allocation", "allocation/model", "allocation/profilings", "allocation/shares", "allocation/topology"},
		"allocation/model":          {},
		"allocation/profilings":     {"allocation/model"},
		"allocation/shares":         {},
		"allocation/spread":         {"allocation", "allocation/topology"},
		"allocation/topology":       {},
		"allocation/tenancy":        {"allocation"},
		"autoscale/optimizer":       {"apis/v2alpha1", "internal/names"},
		"autoscale/optimizer/local": {"autoscale/optimizer"},
		"autoscale/ratio":           {"apis/v2alpha1"},
		"history/record":            {},
		"history/brain": {
			"apis/v1alpha1", "apis/v2alpha1", "autoscale/optimizer", "autoscale/optimizer/local", "conversion", "history/record", "internal/names",
		},
		"history/observe": {
			"apis/v1alpha1", "apis/v2alpha1", "conversion", "history/record", "internal/names", "job/podstate", "job/queueing", "job/workload",
		},
		"server/failure": {},
		"server/wire":    {"apis/v2alpha1", "job/membership", "internal/names", "internal/quantity", "server/failure"},
	}
}

// excepted returns, with reasons, imports that one package needs in spite of the rule.
func excepted() map[string]map[string]string {
	return map[string]map[string]string{
		"conversion": {
			"net/http": "the conversion endpoint is served by the same package",
			"os":       "a body that comes too slowly fails with an error of this package",
			"context":  "a review that waits for room, or for a processor, ends with its request",
		},
		"autoscale/optimizer": {
			"context": "an optimizer may ask a service, and the caller ends that with its reconcile",
		},
		"autoscale/optimizer/local": {
			"context": "the interface has one, for optimizers that ask a service",
		},
		"history/brain": {
			"context": "the interface has one, for optimizers that ask a service",
		},
		"server/failure": {
			"context":  "an expired or cancelled request is one of the failures",
			"net/http": "each failure has a status code",
		},
		"server/wire": {
			"net/url": "the query of a request is one of the inputs",
		},
		"allocation": {
			"k8s.io/klog/v2": "the scheduler's own matching of taints wants a logger, and is given one that says nothing",
		},
	}
}

// bannedEverywhere returns packages that must not be imported, directly or indirectly.
func bannedEverywhere() map[string]string {
	return map[string]string{
		"k8s.io/client-go":               "it talks to a cluster, and a decision rests on what was observed",
		"sigs.k8s.io/controller-runtime": "it talks to a cluster, and a decision rests on what was observed",
		"github.com/gin-gonic/gin":       "HTTP stays in the server package",
		"github.com/prometheus":          "metrics are told after acting, by the controllers",
		"go.uber.org/zap":                "a decision is returned and not logged",
	}
}

// bannedDirectly returns packages that must not be imported directly. Libraries may import them for
// functions that this project does not use.
func bannedDirectly() map[string]string {
	return map[string]string{
		"context":                           "a decision neither waits nor is cancelled",
		"crypto/rand":                       "the same input is to give the same decision",
		"math/rand":                         "the same input is to give the same decision",
		"k8s.io/apimachinery/pkg/util/rand": "the same input is to give the same decision",
		"k8s.io/utils/clock":                "the time of a decision is part of what was observed",
		"log":                               "a decision is returned and not logged",
		"github.com/go-logr":                "a decision is returned and not logged",
		"k8s.io/klog":                       "a decision is returned and not logged",
		"net":                               "a decision rests on what was observed",
		"os":                                "settings are given, not looked up",
		"sync":                              "a decision is made by one goroutine",
		"syscall":                           "a decision rests on what was observed",
		"unsafe":                            "a decision needs no such thing",
	}
}

// listed is the decoded output of `go list` for a package.
type listed struct {
	ImportPath string
	Dir        string
	GoFiles    []string
	Imports    []string
}

// list returns the packages of this module and their dependencies, by path.
func list(t *testing.T) map[string]listed {
	t.Helper()
	command := exec.CommandContext(t.Context(), "go", "list", "-deps", "-json=ImportPath,Dir,GoFiles,Imports", "./cmd/...", "./upgrade/...", "./autoscale/...", "./allocation/...", "./internal/...", "./job/...", "./history/...")
	command.Dir = filepath.Join("..", "..")
	rely(t, command.Dir) // for go.mod
	var complaints strings.Builder
	command.Stderr = &complaints
	output, err := command.Output()
	if err != nil {
		t.Fatalf("go list: %v\n%s", err, complaints.String())
	}
	packages := map[string]listed{}
	for decoder := json.NewDecoder(strings.NewReader(string(output))); ; {
		var one listed
		if err := decoder.Decode(&one); errors.Is(err, io.EOF) {
			return packages
		} else if err != nil {
			t.Fatal(err)
		}
		packages[one.ImportPath] = one
		if strings.HasPrefix(one.ImportPath, module) {
			rely(t, one.Dir)
		}
	}
}

// rely makes go test depend on the files in a directory. Another program reads them, which go test
// does not detect. Without it a cached result would be used for changed code.
func rely(t *testing.T, dir string) {
	t.Helper()
	if _, err := os.ReadDir(dir); err != nil {
		t.Fatal(err)
	}
}

// find returns the existing pure packages, by folder.
func find(t *testing.T, packages map[string]listed) map[string]listed {
	t.Helper()
	found := map[string]listed{}
	for _, name := range pure(t) {
		of, exists := packages[module+name]
		if !exists {
			t.Fatalf(".golangci.yml: depguard's rule pure has %s, and there is no such package", name)
		}
		found[name] = of
	}
	return found
}

// reason returns why a package is banned, or "" if it is not. A ban includes all subpackages, except those with
// an entry of their own.
func reason(path string, banned map[string]string) string {
	longest := ""
	for prefix := range banned {
		if len(prefix) > len(longest) && (path == prefix || strings.HasPrefix(path, prefix+"/")) {
			longest = prefix
		}
	}
	return banned[longest]
}

func TestPurePackagesReachNothingThatActs(t *testing.T) {
	t.Parallel()
	packages := list(t)
	for _, of := range find(t, packages) {
		reachesNoneOf(t, packages, of.ImportPath, bannedEverywhere())
	}
}

// rooms are the folders of the programs' code, each with those that it may import from.
func rooms() map[string][]string {
	return map[string][]string{
		"apis":        {},
		"config":      {},
		"web":         {},
		"internal":    {"apis"},
		"conversion":  {"apis", "internal"},
		"job":         {"apis", "internal"},
		"allocation":  {"apis", "internal", "job"},
		"autoscale":   {"apis", "internal"},
		"controllers": {"allocation", "apis", "autoscale", "internal", "job"},
		"server":      {"allocation", "apis", "internal", "job"},
		"history":     {"apis", "autoscale", "controllers", "conversion", "internal", "job"},
		"webhook":     {"apis", "config", "conversion", "internal", "job"},
		"upgrade":     {"apis", "config", "controllers", "conversion", "internal", "job"},
	}
}

func TestARoomImportsOnlyRoomsBelowIt(t *testing.T) {
	t.Parallel()
	room := func(path string) string {
		first, _, _ := strings.Cut(strings.TrimPrefix(path, module), "/")
		return first
	}
	found := map[string]bool{}
	for path, of := range list(t) {
		own := room(path)
		below, isRoom := rooms()[own]
		if !isRoom || !strings.HasPrefix(path, module) {
			continue
		}
		found[own] = true
		for _, imported := range of.Imports {
			if !strings.HasPrefix(imported, module) || room(imported) == own || slices.Contains(below, room(imported)) {
				continue
			}
			t.Errorf("%s imports %s: %s may import from %s", path, imported, own, strings.Join(below, ", "))
		}
	}
	if len(found) != len(rooms()) {
		t.Errorf("%d rooms were found, want %d", len(found), len(rooms()))
	}
}

// TestThePluginLinksNoServer verifies that kubectl-di remains a client and links no server.
func TestThePluginLinksNoServer(t *testing.T) {
	t.Parallel()
	banned := map[string]string{
		"github.com/gin-gonic/gin":                       "the plugin serves nothing",
		"sigs.k8s.io/controller-runtime/pkg/webhook":     "the plugin serves nothing",
		"sigs.k8s.io/controller-runtime/pkg/manager":     "the plugin reconciles nothing",
		"sigs.k8s.io/controller-runtime/pkg/certwatcher": "the plugin serves nothing",
	}
	for _, program := range []string{"controllers", "server", "webhook", "cmd/di-orchestrator", "cmd/di-orchestrator/programs"} {
		banned[module+program] = "only the operator's programs link it"
	}
	for _, rules := range []string{"validation", "podcheck", "podschema", "crdschema"} {
		banned[module+"webhook/"+rules] = ""
	}
	packages := list(t)
	reachesNoneOf(t, packages, module+"cmd/kubectl-di", banned)
	for path, one := range packages {
		if strings.HasPrefix(path, module+"cmd/kubectl-di") && slices.Contains(one.Imports, module+"internal/certs") {
			t.Errorf("%s imports internal/certs: it may read internal/certs/record only", path)
		}
	}
}

// reachesNoneOf checks that a package imports no banned package, directly or indirectly.
func reachesNoneOf(t *testing.T, packages map[string]listed, root string, banned map[string]string) {
	t.Helper()
	if packages[root].ImportPath == "" {
		t.Fatalf("there is no package %s", root)
	}
	// The map records the importer of each path, to report the whole chain.
	importer := map[string]string{root: ""}
	for queue := []string{root}; len(queue) > 0; queue = queue[1:] {
		for _, path := range packages[queue[0]].Imports {
			if _, seen := importer[path]; seen {
				continue
			}
			importer[path] = queue[0]
			if why := reason(path, banned); why != "" {
				t.Errorf("%s: %s", way(path, importer), why)
				continue
			}
			queue = append(queue, path)
		}
	}
}

// way returns the chain of imports down to a package.
func way(path string, importer map[string]string) string {
	steps := []string{path}
	for by := importer[path]; by != ""; by = importer[by] {
		steps = append(steps, by)
	}
	slices.Reverse(steps)
	return strings.Join(steps, " -> ")
}

func TestPurePackagesImportOnlyWhatDecidingNeeds(t *testing.T) {
	t.Parallel()
	for name, of := range find(t, list(t)) {
		for _, path := range of.Imports {
			if excepted()[name][path] != "" {
				continue
			}
			if why := reason(path, bannedDirectly()); why != "" {
				t.Errorf("%s imports %s: %s", name, path, why)
			}
			if ours, isOurs := strings.CutPrefix(path, module); isOurs && !slices.Contains(mayImport()[name], ours) {
				t.Errorf("%s imports %s, and of this module may import only %s", name, ours, strings.Join(mayImport()[name], ", "))
			}
		}
	}
}

// TestPurePackagesReadNoClock searches for calls because pure packages need the types of package
// time.
func TestPurePackagesReadNoClock(t *testing.T) {
	t.Parallel()
	files := token.NewFileSet()
	for _, of := range find(t, list(t)) {
		for _, name := range of.GoFiles {
			file, err := parser.ParseFile(files, filepath.Join(of.Dir, name), nil, parser.SkipObjectResolution)
			expect.NoError(t, err)
			ast.Inspect(file, func(node ast.Node) bool {
				if call := clockCall(node); call != "" {
					t.Errorf("%s: %s: the time of a decision is part of what was observed", files.Position(node.Pos()), call)
				}
				return true
			})
		}
	}
}

// clockCall returns the clock function that a node names, or "" for none.
func clockCall(node ast.Node) string {
	clocks := map[string][]string{
		"time":   {"After", "AfterFunc", "NewTicker", "NewTimer", "Now", "Since", "Sleep", "Tick", "Until"},
		"metav1": {"Now", "NowMicro"},
	}
	selector, ok := node.(*ast.SelectorExpr)
	if !ok {
		return ""
	}
	of, ok := selector.X.(*ast.Ident)
	if !ok || !slices.Contains(clocks[of.Name], selector.Sel.Name) {
		return ""
	}
	return of.Name + "." + selector.Sel.Name
}

// TestTheGuideNamesThePurePackages compares the map in docs/development.md with the linter's list.
// The table of what decides has the pure packages alone.
func TestTheGuideNamesThePurePackages(t *testing.T) {
	t.Parallel()
	guide, err := os.ReadFile(filepath.Join("..", "..", "docs", "development.md"))
	expect.NoError(t, err)
	_, table, _ := strings.Cut(string(guide), "\n### What decides\n")
	table, _, _ = strings.Cut(table, "\n### ")
	var named []string
	for _, found := range regexp.MustCompile("(?m)^\\| `([^`]+)` \\|").FindAllStringSubmatch(table, -1) {
		named = append(named, found[1])
	}
	want := pure(t)
	slices.Sort(named)
	slices.Sort(want)
	if !slices.Equal(named, want) {
		t.Errorf("docs/development.md calls these packages pure:\n%s\n.golangci.yml has these:\n%s", strings.Join(named, "\n"), strings.Join(want, "\n"))
	}
}
