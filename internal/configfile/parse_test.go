// Copyright The DI Orchestrator Authors.
// SPDX-License-Identifier: Apache-2.0

package configfile

import (
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"sigs.k8s.io/yaml"

	"opendilab.org/di-orchestrator/apis/config/v1alpha1"
)

const head = "apiVersion: config.diengine.opendilab.org/v1alpha1\nkind: Configuration\n"

func TestAFileWithoutFieldsHasTheDefaults(t *testing.T) {
	t.Parallel()
	for _, rest := range []string{"", "---\n", "# a comment\n", "operator: {}\n", "operator: {shards: null}\ncommon: null\n", "operator: {allocator: {topology: null}}\n"} {
		got, err := Parse([]byte(head + rest))
		if err != nil {
			t.Fatalf("%q: %v", rest, err)
		}
		if diff := cmp.Diff(v1alpha1.Defaults(), got); diff != "" {
			t.Errorf("%q (-defaults +got):\n%s", rest, diff)
		}
	}
}

func TestTheDefaultsAreAValidFile(t *testing.T) {
	t.Parallel()
	content, err := yaml.Marshal(v1alpha1.Defaults())
	if err != nil {
		t.Fatal(err)
	}
	got, err := Parse(content)
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(v1alpha1.Defaults(), got); diff != "" {
		t.Errorf("the defaults change when they are written and read (-want +got):\n%s", diff)
	}
}

func TestGivenFieldsReplaceDefaultsAlsoByZero(t *testing.T) {
	t.Parallel()
	got, err := Parse([]byte(head + `
common: {watchNamespaces: [team-a, team-b], takeover: false, kubeAPIQPS: 12.5}
operator: {probeInterval: 0s, forceDeleteAfter: 10m, autoscaleMaxMemory: 1Ti, autoscaler: {enabled: false}, allocator: {topology: []}}
server: {identity: disabled, limits: {writesPerSecond: 0.5}}
`))
	if err != nil {
		t.Fatal(err)
	}
	want := v1alpha1.Defaults()
	want.Common.WatchNamespaces, want.Common.Takeover, want.Common.KubeAPIQPS = []string{"team-a", "team-b"}, false, 12.5
	want.Operator.ProbeInterval.Duration, want.Operator.ForceDeleteAfter.Duration = 0, 10*time.Minute
	want.Operator.Autoscaler.Enabled, want.Operator.Allocator.Topology = false, []string{}
	want.Server.Identity, want.Server.Limits.WritesPerSecond = v1alpha1.IdentityDisabled, 0.5
	if memory := got.Operator.AutoscaleMaxMemory.String(); memory != "1Ti" {
		t.Errorf("the memory is %s, want 1Ti", memory)
	}
	want.Operator.AutoscaleMaxMemory = got.Operator.AutoscaleMaxMemory
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("got (-want +got):\n%s", diff)
	}
}

func TestAWrongFileIsRefusedByItsField(t *testing.T) {
	t.Parallel()
	for name, tc := range map[string]struct {
		content string
		want    []string
	}{
		"nothing":            {"", []string{"apiVersion: Invalid value", "must be config.diengine.opendilab.org/v1alpha1", "kind: Invalid value"}},
		"no object":          {"[]", []string{"kind", "must be Configuration"}},
		"no YAML":            {head + "operator: [", []string{"no YAML"}},
		"another kind":       {"apiVersion: config.diengine.opendilab.org/v1alpha1\nkind: DIJob\n", []string{`kind: Invalid value: "DIJob": must be Configuration`}},
		"another version":    {"apiVersion: config.diengine.opendilab.org/v1\nkind: Configuration\n", []string{`apiVersion: Invalid value: "config.diengine.opendilab.org/v1"`}},
		"two documents":      {head + "---\noperator: {}\n", []string{"2 documents"}},
		"too many bytes":     {head + "#" + strings.Repeat("x", MaxBytes), []string{"65536 bytes"}},
		"an unknown section": {head + "webhooks: {}\n", []string{"webhooks: Forbidden: there is no such field: must be one of apiVersion, common, history, kind, operator, server"}},
		"an unknown field":   {head + "operator: {allocator: {polcy: fit}}\n", []string{"operator.allocator.polcy: Forbidden", "cycle, deviceLabel, enabled, fairness, history, policy, tenants, topology"}},
		"a field in capitals": {
			head + "operator: {Shards: 2}\n", []string{"operator.Shards: Forbidden"},
		},
		"a repeated field":           {head + "operator: {shards: 1, shards: 2}\n", []string{`"shards" already set`}},
		"a section that is none":     {head + "operator: 5\n", []string{"operator: Invalid value: 5: must be an object"}},
		"a list that is none":        {head + "common: {watchNamespaces: team}\n", []string{`common.watchNamespaces: Invalid value: "team": must be a list`}},
		"a wrong item":               {head + "common: {watchNamespaces: [a, Team]}\n", []string{`common.watchNamespaces[1]: Invalid value: "Team": must be the name of a namespace`}},
		"too many items":             {head + "common: {watchNamespaces: [" + strings.Repeat("a,", 257) + "]}\n", []string{"common.watchNamespaces: Too many: 257"}},
		"a number of shards":         {head + "operator: {shards: 17}\n", []string{"operator.shards: Invalid value: 17: must be from 1 to 16"}},
		"a fraction of a shard":      {head + "operator: {shards: 1.5}\n", []string{"operator.shards: Invalid value: 1.5: must be a whole number"}},
		"a number in quotes":         {head + "operator: {shards: \"2\"}\n", []string{`operator.shards: Invalid value: "2": must be a whole number`}},
		"a value that YAML reads":    {head + "server: {identity: off}\n", []string{"server.identity: Invalid value: false: must be one of enforce, legacy, disabled"}},
		"a number for a string":      {head + "common: {gpuResource: 5}\n", []string{"common.gpuResource: Invalid value: 5: must be a string"}},
		"a string for a bool":        {head + "common: {takeover: \"no\"}\n", []string{`common.takeover: Invalid value: "no": must be true or false`}},
		"a wrong duration":           {head + "operator: {probeInterval: soon}\n", []string{`operator.probeInterval: Invalid value: "soon": must be a duration, such as 90s`}},
		"a duration without unit":    {head + "operator: {probeInterval: 30}\n", []string{"operator.probeInterval: Invalid value: 30: must be a duration"}},
		"a negative duration":        {head + "operator: {probeInterval: -1s}\n", []string{`operator.probeInterval: Invalid value: "-1s": must be at least 0s`}},
		"no cycle":                   {head + "operator: {allocator: {cycle: 0s}}\n", []string{"operator.allocator.cycle", "must be more than 0s"}},
		"force too soon":             {head + "operator: {forceDeleteAfter: 10s}\n", []string{`operator.forceDeleteAfter: Invalid value: "10s": must be 0s, for never, or at least 1m0s`}},
		"a long timeout":             {head + "operator: {autoscaler: {optimizer: {timeout: 1h}}}\n", []string{"must be from 1ms to 1m0s"}},
		"a wrong quantity":           {head + "operator: {autoscaleMaxMemory: much}\n", []string{`operator.autoscaleMaxMemory: Invalid value: "much": must be a quantity`}},
		"an expensive quantity":      {head + "operator: {autoscaleMaxMemory: 1e1000000000}\n", []string{"operator.autoscaleMaxMemory"}},
		"no memory":                  {head + "operator: {autoscaleMaxMemory: \"0\"}\n", []string{"operator.autoscaleMaxMemory", "must be more than 0"}},
		"no pods":                    {head + "common: {maxPodsPerJob: 0}\n", []string{"common.maxPodsPerJob: Invalid value: 0: must be from 1 to 100000"}},
		"a collector of HTTP":        {head + "common: {tracing: {endpoint: \"http://collector:4318/v1/traces\"}}\n", []string{"common.tracing.endpoint", "http://host:port", "gRPC"}},
		"a collector's host alone":   {head + "common: {tracing: {endpoint: \"collector:4317\"}}\n", []string{"common.tracing.endpoint", "http://host:port"}},
		"too many traces":            {head + "common: {tracing: {samplingRatio: 1.5}}\n", []string{"common.tracing.samplingRatio: Invalid value: 1.5: must be from 0 to 1"}},
		"traces of no number":        {head + "common: {tracing: {samplingRatio: .nan}}\n", []string{"no YAML"}},
		"a log format":               {head + "common: {logFormat: xml}\n", []string{`common.logFormat: Invalid value: "xml": must be one of json, console`}},
		"a queue manager":            {head + "operator: {queueing: yunikorn}\n", []string{`operator.queueing: Invalid value: "yunikorn"`, "auto, kueue, none"}},
		"an expression that is none": {head + "history: {logs: {redact: ['a', '(']}}\n", []string{`history.logs.redact[1]: Invalid value: "(": must be a regular expression of up to 256 bytes`}},
		"an expression of nothing":   {head + "history: {logs: {redact: ['a*']}}\n", []string{"that matches no empty text"}},
		"a long expression":          {head + "history: {logs: {redact: [" + strings.Repeat("x", 257) + "]}}\n", []string{"up to 256 bytes"}},
		"too many expressions":       {head + "history: {logs: {redact: [" + strings.Repeat("a,", 33) + "]}}\n", []string{"history.logs.redact: Too many: 33"}},
		"a tenant without a name":    {head + "operator: {allocator: {tenants: [{weight: 3}]}}\n", []string{"operator.allocator.tenants[0].name: Required value: must be a name"}},
		"a tenant's wrong name":      {head + "operator: {allocator: {tenants: [{name: Team A}]}}\n", []string{`operator.allocator.tenants[0].name: Invalid value: "Team A": must be a name of up to 63 lower case letters`}},
		"no weight":                  {head + "operator: {allocator: {tenants: [{name: a, weight: 0}]}}\n", []string{"operator.allocator.tenants[0].weight: Invalid value: 0: must be from 1 to 1000"}},
		"too much weight":            {head + "operator: {allocator: {tenants: [{name: a, weight: 1001}]}}\n", []string{"operator.allocator.tenants[0].weight: Invalid value: 1001: must be from 1 to 1000"}},
		"half a weight":              {head + "operator: {allocator: {tenants: [{name: a, weight: 0.5}]}}\n", []string{"operator.allocator.tenants[0].weight: Invalid value: 0.5: must be a whole number"}},
		"a field of no tenant":       {head + "operator: {allocator: {tenants: [{name: a, share: 3}]}}\n", []string{"operator.allocator.tenants[0].share: Forbidden: there is no such field: must be one of name, namespaces, weight"}},
		"a tenant's wrong namespace": {head + "operator: {allocator: {tenants: [{name: a, namespaces: [b_c]}]}}\n", []string{`operator.allocator.tenants[0].namespaces[0]: Invalid value: "b_c": must be the name of a namespace`}},
		"too many tenants":           {head + "operator: {allocator: {tenants: [" + strings.Repeat("{name: a},", 65) + "]}}\n", []string{"operator.allocator.tenants: Too many: 65"}},
		"too many of a tenant":       {head + "operator: {allocator: {tenants: [{name: a, namespaces: [" + strings.Repeat("b,", 257) + "]}]}}\n", []string{"operator.allocator.tenants[0].namespaces: Too many: 257"}},
		"two tenants of a name":      {head + "operator: {allocator: {tenants: [{name: a}, {name: a}]}}\n", []string{`operator.allocator.tenants[1].name: Invalid value: "a": must be the name of one tenant only`}},
		"a namespace of two tenants": {head + "operator: {allocator: {tenants: [{name: a, namespaces: [c]}, {name: b, namespaces: [c]}]}}\n", []string{`operator.allocator.tenants[1].namespaces[0]: Invalid value: "c"`, "tenant a has it"}},
		"another tenant's namespace": {head + "operator: {allocator: {tenants: [{name: a, namespaces: [b]}, {name: b}]}}\n", []string{`operator.allocator.tenants[0].namespaces[0]: Invalid value: "b"`, "tenant b has it"}},
		"no label of a level":        {head + "operator: {allocator: {topology: ['']}}\n", []string{`operator.allocator.topology[0]: Invalid value: "": must be the key of a label, such as topology.kubernetes.io/zone`}},
		"a level's wrong label":      {head + "operator: {allocator: {topology: [zone, a rack]}}\n", []string{`operator.allocator.topology[1]: Invalid value: "a rack": must be the key of a label`}},
		"a level twice":              {head + "operator: {allocator: {topology: [rack, rack]}}\n", []string{`operator.allocator.topology[1]: Invalid value: "rack": must be the label of one level only`}},
		"too many levels":            {head + "operator: {allocator: {topology: [a, b, c, d, e]}}\n", []string{"operator.allocator.topology: Too many: 5: must have at most 4 items"}},
		"no list of levels":          {head + "operator: {allocator: {topology: rack}}\n", []string{`operator.allocator.topology: Invalid value: "rack": must be a list`}},
		"two faults":                 {head + "operator: {shards: 0, workers: 0}\n", []string{"operator.shards", "operator.workers"}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			_, err := Parse([]byte(tc.content))
			if err == nil {
				t.Fatal("got no error")
			}
			for _, part := range tc.want {
				if !strings.Contains(err.Error(), part) {
					t.Errorf("got error %q, want it to say %s", err, part)
				}
			}
		})
	}
}

func TestACollectorMayBeAnAddress(t *testing.T) {
	t.Parallel()
	for _, endpoint := range []string{"", "http://10.0.0.1:4317", "https://collector.monitoring", "http://[::1]:4317/"} {
		if _, err := Parse([]byte(head + "common: {tracing: {endpoint: \"" + endpoint + "\"}}\n")); err != nil {
			t.Error(err)
		}
	}
}

func TestEveryRuleIsOfAField(t *testing.T) {
	t.Parallel()
	used := map[string]*node{}
	var walk func(at *node, path string)
	walk = func(at *node, path string) {
		used[path] = at
		for name, inner := range at.fields {
			walk(inner, strings.TrimPrefix(path+"."+name, "."))
		}
		if at.item != nil {
			walk(at.item, path+"[]")
		}
	}
	walk(describe(), "")
	for path := range rules() {
		if used[path] == nil {
			t.Errorf("there is a rule for %s, which is no field", path)
		}
	}
	for path, at := range used {
		if at.kind == "" {
			t.Errorf("%s has a type of no kind", path)
		}
		if (at.kind == integer || at.kind == list) && at.rule.max == 0 {
			t.Errorf("%s has no maximum", path)
		}
	}
}

func TestTheChartsSchemaHasEveryFieldButTheKind(t *testing.T) {
	t.Parallel()
	properties, _ := ChartSchema()["properties"].(map[string]any)
	if len(properties) != 4 || properties["common"] == nil || properties["history"] == nil || properties["operator"] == nil || properties["server"] == nil {
		t.Errorf("the sections are %v", properties)
	}
	operator, _ := properties["operator"].(map[string]any)["properties"].(map[string]any)
	shards, _ := operator["shards"].(map[string]any)
	want := map[string]any{"type": "integer", "minimum": 1.0, "maximum": 16.0}
	if diff := cmp.Diff(want, shards); diff != "" {
		t.Errorf("shards (-want +got):\n%s", diff)
	}
}
