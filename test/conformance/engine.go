// Copyright The DI Orchestrator Authors.
// SPDX-License-Identifier: Apache-2.0

package conformance

import (
	_ "embed"
	"fmt"
	"strings"

	"sigs.k8s.io/yaml"
)

//go:embed testdata/di-engine.yaml
var recorded []byte

// Engine is what DI-engine's programs require of an installation.
type Engine struct {
	// Headers are the headers of requests by the kind of client.
	Headers map[string]map[string]string `json:"headers"`
	// Calls are in the order in which they are played.
	Calls     []EngineCall     `json:"calls"`
	Variables []EngineVariable `json:"variables"`
}

// Origin is where a requirement was recorded from.
type Origin struct {
	// Program is coordinator, collector, learner, aggregator or ddp-learner, or the command line.
	Program string `json:"program"`
	// Since is the first release that has it.
	Since string `json:"since"`
	// Source is the file of DI-engine that has it.
	Source string `json:"source"`
}

// EngineCall is a call of di-server.
type EngineCall struct {
	Origin
	Does    string `json:"does"`
	Headers string `json:"headers"`
	Method  string `json:"method"`
	Path    string `json:"path"`
	Body    string `json:"body"`
	// Collectors and Learners are how many replicas the coordinator sees afterwards.
	Collectors int `json:"collectors"`
	Learners   int `json:"learners"`
	// Replaced is the replica that is replaced.
	Replaced string `json:"replaced"`
}

// EngineVariable is a variable that a program reads.
type EngineVariable struct {
	Origin
	Name string `json:"name"`
	// Value is a regular expression of all that the program accepts.
	Value string `json:"value"`
}

// DIEngine returns what was recorded.
func DIEngine() (*Engine, error) {
	engine := &Engine{}
	if err := yaml.UnmarshalStrict(recorded, engine); err != nil {
		return nil, fmt.Errorf("testdata/di-engine.yaml: %w", err)
	}
	return engine, nil
}

const engineHead = `
## DI-engine

The table below and that of variables were recorded from DI-engine's source, and are in ` + "`test/conformance/testdata/di-engine.yaml`" + `. A release is the first
one that has the call, by DI-engine's changelog. Not every release was read. **No release of
DI-engine was run.** The test sends each request from the pod that would send it, with DI-engine's headers and body and without a token. It reads each answer
by DI-engine's rules. All of it runs on one job, in this order, once for a job written in each version.

| program | release | does | request | source |
| --- | --- | --- | --- | --- |
`

// writeEngine writes the section about DI-engine.
func writeEngine(page *strings.Builder, engine *Engine) {
	page.WriteString(engineHead)
	for i := range engine.Calls {
		call := &engine.Calls[i]
		path, _, _ := strings.Cut(call.Path, "?")
		fmt.Fprintf(page, "| %s | %s | %s | `%s %s` | `%s` |\n", call.Program, call.Since, call.Does, call.Method, path, call.Source)
	}
	page.WriteString("\n| program | release | variable | accepts | source |\n| --- | --- | --- | --- | --- |\n")
	for i := range engine.Variables {
		variable := &engine.Variables[i]
		value := strings.ReplaceAll(variable.Value, "|", `\|`)
		fmt.Fprintf(page, "| %s | %s | `%s` | `%s` | `%s` |\n", variable.Program, variable.Since, variable.Name, value, variable.Source)
	}
	page.WriteString("\nOther tests play the rest. A coordinator and an aggregator as strict as DI-engine's lose every kind of replica in the end-to-end tests. `ditask` reads\n" +
		"`DI_RANK` and `DI_NODES` since v0.3.0, as the row of ranks shows. [DI-engine's installer](install.md#by-di-engine) has a test of its own.\n")
}
