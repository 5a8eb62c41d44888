// Copyright The DI Orchestrator Authors.
// SPDX-License-Identifier: Apache-2.0

// Command chart copies generated and other content into the Helm chart: the rules of the generated
// roles, the roles of users, the webhooks, the policies, the former flags of the programs, and the schema of their configuration. `make manifests` runs it.
package main

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"

	rbacv1 "k8s.io/api/rbac/v1"
	utilyaml "k8s.io/apimachinery/pkg/util/yaml"
	"sigs.k8s.io/yaml"

	"opendilab.org/di-orchestrator/internal/configfile"
)

func main() {
	if err := run(os.Args[1:]); err != nil {
		fmt.Fprintln(os.Stderr, "chart:", err)
		os.Exit(1)
	}
}

func run(args []string) error {
	if len(args) != 2 {
		return errors.New("usage: chart CONFIG CHART, the folders that are copied from and into")
	}
	files := filepath.Join(args[1], "files")
	for _, program := range []string{"operator", "webhook", "takeover", "server", "history"} {
		if err := copyRules(filepath.Join(args[0], "rbac", program, "role.yaml"), filepath.Join(files, program+"-rbac.yaml")); err != nil {
			return err
		}
	}
	for into, from := range map[string]string{
		"mutating.yaml": "webhook/mutating.yaml", "validating.yaml": "webhook/validating.yaml",
		"policy.yaml": "policy/policy.yaml", "policy-binding.yaml": "policy/binding.yaml",
		"server-policy.yaml": "policy/server.yaml", "server-policy-binding.yaml": "policy/server-binding.yaml",
		"history-policy.yaml": "policy/history.yaml", "history-policy-binding.yaml": "policy/history-binding.yaml",
		"operator-policy.yaml": "policy/operator.yaml", "operator-policy-binding.yaml": "policy/operator-binding.yaml",
		"webhook-policy.yaml": "policy/webhook.yaml", "webhook-policy-binding.yaml": "policy/webhook-binding.yaml",
		"budgets-policy.yaml": "policy/budgets.yaml", "budgets-policy-binding.yaml": "policy/budgets-binding.yaml",
		"users-rbac.yaml":        "rbac/users/roles.yaml",
		"submitters-policy.yaml": "policy/submitters/policy.yaml", "submitters-policy-binding.yaml": "policy/submitters/binding.yaml",
	} {
		content, err := os.ReadFile(filepath.Join(args[0], from))
		if err != nil {
			return fmt.Errorf("copying webhooks, policies and roles: %w", err)
		}
		if err := write(filepath.Join(files, into), content); err != nil {
			return err
		}
	}
	if err := listFormerFlags(filepath.Join(files, "former-flags.yaml")); err != nil {
		return err
	}
	return describeConfiguration(filepath.Join(args[1], "values.schema.json"))
}

// listFormerFlags writes the flags of earlier builds, which the chart refuses.
func listFormerFlags(file string) error {
	former, err := yaml.Marshal(configfile.FormerFlags())
	if err != nil {
		return fmt.Errorf("listing former flags: %w", err)
	}
	header := []byte("# Written by make manifests, from internal/configfile.\n")
	if err := os.WriteFile(file, append(header, former...), 0o644); err != nil {
		return fmt.Errorf("listing former flags: %w", err)
	}
	return nil
}

// describeConfiguration writes the schema of the value "configuration" into the schema of all values.
func describeConfiguration(file string) error {
	content, err := os.ReadFile(file)
	if err != nil {
		return fmt.Errorf("describing the configuration: %w", err)
	}
	// Only this value is replaced: to encode all would sort the others, which are in the order of values.yaml.
	var schema struct {
		Properties struct {
			Configuration json.RawMessage `json:"configuration"`
		} `json:"properties"`
	}
	if err := json.Unmarshal(content, &schema); err != nil {
		return fmt.Errorf("%s: %w", file, err)
	}
	own, err := json.Marshal(configfile.ChartSchema())
	if err != nil {
		return fmt.Errorf("describing the configuration: %w", err)
	}
	const key = `"configuration": `
	former := append([]byte(key), schema.Properties.Configuration...)
	if !bytes.Contains(content, former) {
		return fmt.Errorf("%s: want a property %s", file, key)
	}
	var indented bytes.Buffer
	if err := json.Indent(&indented, bytes.Replace(content, former, append([]byte(key), own...), 1), "", "  "); err != nil {
		return fmt.Errorf("%s: %w", file, err)
	}
	if err := os.WriteFile(file, indented.Bytes(), 0o644); err != nil {
		return fmt.Errorf("describing the configuration: %w", err)
	}
	return nil
}

// rules are the rules of a program's roles, in the form that the chart's templates read.
type rules struct {
	ClusterRole []rbacv1.PolicyRule `json:"clusterRole"`
	Role        []rbacv1.PolicyRule `json:"role"`
}

func copyRules(from, into string) error {
	content, err := os.ReadFile(from)
	if err != nil {
		return fmt.Errorf("copying rules: %w", err)
	}
	var copied rules
	documents := utilyaml.NewYAMLOrJSONDecoder(bytes.NewReader(content), len(content))
	for {
		// The fields that are read are the same in a Role and a ClusterRole.
		var role rbacv1.ClusterRole
		err := documents.Decode(&role)
		if errors.Is(err, io.EOF) {
			break
		}
		if err != nil {
			return fmt.Errorf("%s: %w", from, err)
		}
		switch role.Kind {
		case "ClusterRole":
			copied.ClusterRole = role.Rules
		case "Role":
			copied.Role = role.Rules
		}
	}
	if len(copied.ClusterRole) == 0 || len(copied.Role) == 0 {
		return fmt.Errorf("%s: want a ClusterRole and a Role, each with rules", from)
	}
	encoded, err := yaml.Marshal(copied)
	if err != nil {
		return fmt.Errorf("%s: %w", from, err)
	}
	return write(into, encoded)
}

func write(file string, content []byte) error {
	header := []byte("# Copied by make manifests; change what it is copied from, in config.\n")
	if err := os.WriteFile(file, append(header, content...), 0o644); err != nil {
		return fmt.Errorf("writing the chart's files: %w", err)
	}
	return nil
}
