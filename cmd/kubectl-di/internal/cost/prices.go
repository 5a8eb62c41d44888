// Copyright The DI Orchestrator Authors.
// SPDX-License-Identifier: Apache-2.0

package cost

import (
	"slices"
	"strconv"
	"strings"

	"github.com/spf13/cobra"

	"opendilab.org/di-orchestrator/cmd/kubectl-di/internal/cli"
)

// Prices are those of an hour of gpu, cpu and memory, as far as they are given.
type Prices map[string]float64

// Bind adds flag --price.
func (p *Prices) Bind(command *cobra.Command) {
	var given []string
	command.Flags().StringArrayVar(&given, "price", nil, "price of an hour of a gpu, a cpu or a GiB of memory, such as gpu=2.10; the cost of a job then has its sum (repeatable)")
	cli.Before(command, func() error {
		*p = Prices{}
		for _, one := range given {
			if err := p.add(one); err != nil {
				return err
			}
		}
		return nil
	})
}

// mostPrice bounds a price.
const mostPrice = 1_000_000

func (p *Prices) add(given string) error {
	resource, amount, _ := strings.Cut(given, "=")
	price, err := strconv.ParseFloat(amount, 64)
	isKnown := slices.Contains([]string{"gpu", "cpu", "memory"}, resource)
	isPrice := err == nil && price >= 0 && price <= mostPrice
	if !isKnown || !isPrice {
		return cli.Usagef("--price %q: want gpu, cpu or memory with a price of 0 to %d, such as gpu=2.10", given, mostPrice)
	}
	(*p)[resource] = price
	return nil
}

// Of returns what a cost comes to; nil without prices.
func (p Prices) Of(cost *Cost) *float64 {
	if len(p) == 0 {
		return nil
	}
	sum := cost.GPUHours*p["gpu"] + cost.CPUHours*p["cpu"] + cost.MemoryHours*p["memory"]
	return &sum
}
