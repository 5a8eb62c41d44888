// Copyright The DI Orchestrator Authors.
// SPDX-License-Identifier: Apache-2.0

package chart

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"sigs.k8s.io/yaml"

	"opendilab.org/di-orchestrator/test/testkit"
)

func TestEveryAlertHasARunbook(t *testing.T) {
	t.Parallel()
	content, err := os.ReadFile(filepath.Join(chart(), "files", "alerts.yaml"))
	if err != nil {
		t.Fatal(err)
	}
	var rules struct {
		Groups []struct {
			Rules []struct {
				Alert       string
				Annotations map[string]string
			}
		}
	}
	if err := yaml.Unmarshal(content, &rules); err != nil {
		t.Fatal(err)
	}
	runbooks, err := os.ReadFile(filepath.Join(testkit.Root(), "docs", "runbooks.md"))
	if err != nil {
		t.Fatal(err)
	}
	alerts := 0
	for _, group := range rules.Groups {
		for _, rule := range group.Rules {
			alerts++
			if !strings.Contains(string(runbooks), "\n## "+rule.Alert+"\n") {
				t.Errorf("%s has no runbook", rule.Alert)
			}
			if url := rule.Annotations["runbook_url"]; !strings.HasSuffix(url, "/docs/runbooks.md#"+strings.ToLower(rule.Alert)) {
				t.Errorf("%s does not lead to its runbook: %q", rule.Alert, url)
			}
		}
	}
	if alerts == 0 {
		t.Error("there are no alerts")
	}
}
