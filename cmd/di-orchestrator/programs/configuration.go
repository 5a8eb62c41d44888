// Copyright The DI Orchestrator Authors.
// SPDX-License-Identifier: Apache-2.0

package programs

import (
	"errors"
	"fmt"
	"io"
	"os"

	configv1alpha1 "opendilab.org/di-orchestrator/apis/config/v1alpha1"
	"opendilab.org/di-orchestrator/internal/configfile"
)

// load reads the configuration.
func (o *processOptions) load() error {
	o.config = configv1alpha1.Defaults()
	if o.configFile != "" {
		content, err := readFile(o.configFile)
		if err != nil {
			return fmt.Errorf("--config: %w", err)
		}
		if o.config, err = configfile.Parse(content); err != nil {
			return o.wrapFault(err)
		}
	}
	return checkProtocol(&o.config.Common.Tracing)
}

// wrapFault names the file of a faulty configuration.
func (o *processOptions) wrapFault(err error) error {
	if err == nil || o.configFile == "" {
		return err
	}
	return fmt.Errorf("--config %s: %w", o.configFile, err)
}

// readFile reads at most what a configuration may have and one byte more.
func readFile(path string) (_ []byte, err error) {
	file, err := os.Open(path)
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, file.Close()) }()
	return io.ReadAll(io.LimitReader(file, configfile.MaxBytes+1))
}
