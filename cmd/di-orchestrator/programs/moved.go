// Copyright The DI Orchestrator Authors.
// SPDX-License-Identifier: Apache-2.0

package programs

import (
	"errors"
	"fmt"

	"github.com/spf13/pflag"

	"opendilab.org/di-orchestrator/internal/configfile"
)

// explainMoved adds to the error about an unknown flag where its value belongs now.
func explainMoved(err error) error {
	var unknown *pflag.NotExistError
	if !errors.As(err, &unknown) {
		return err
	}
	name := unknown.GetSpecifiedName()
	switch field, isMoved := configfile.FormerFlags()[name]; {
	case !isMoved:
		return err
	case field == "":
		return fmt.Errorf("--%s is no flag any longer: remove it, the program knows the value", name)
	default:
		return fmt.Errorf("--%s is no flag any longer: in the file of --config, set %s", name, field)
	}
}
