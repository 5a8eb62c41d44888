// Copyright The DI Orchestrator Authors.
// SPDX-License-Identifier: Apache-2.0

package testkit

import (
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"opendilab.org/di-orchestrator/apis/config/v1alpha1"
)

// Configuration writes sections of the programs' configuration, as YAML, to a file in a folder. It returns the flag that names
// the file.
func Configuration(folder, sections string) (flag string, err error) {
	return writeConfiguration(folder, fmt.Sprintf("apiVersion: %s\nkind: %s\n%s\n", v1alpha1.GroupVersion, v1alpha1.Kind, sections))
}

// configFlag is the flag of a program's configuration.
const configFlag = "--config="

// MountConfiguration returns the arguments of a container with its configuration in a folder, and not where its volume would
// be mounted. The configuration is that of a ConfigMap of the chart.
func MountConfiguration(folder string, args []string, configuration map[string]string) ([]string, error) {
	mounted := slices.Clone(args)
	for i, arg := range mounted {
		path, isConfig := strings.CutPrefix(arg, configFlag)
		if !isConfig {
			continue
		}
		content, isThere := configuration[filepath.Base(path)]
		if !isThere {
			return nil, fmt.Errorf("argument %s: the ConfigMap has no such key", arg)
		}
		flag, err := writeConfiguration(folder, content)
		if err != nil {
			return nil, err
		}
		mounted[i] = flag
	}
	return mounted, nil
}

func writeConfiguration(folder, content string) (flag string, err error) {
	file, err := os.CreateTemp(folder, "configuration-*.yaml")
	if err != nil {
		return "", fmt.Errorf("writing a configuration: %w", err)
	}
	if _, err := file.WriteString(content); err != nil {
		return "", fmt.Errorf("writing a configuration: %w", err)
	}
	if err := file.Close(); err != nil {
		return "", fmt.Errorf("writing a configuration: %w", err)
	}
	return configFlag + file.Name(), nil
}
