// Copyright The DI Orchestrator Authors.
// SPDX-License-Identifier: Apache-2.0

package plans

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"strings"
	"text/tabwriter"
	"time"

	"github.com/spf13/cobra"
	"k8s.io/apimachinery/pkg/util/duration"
	"k8s.io/cli-runtime/pkg/printers"

	"opendilab.org/di-orchestrator/apis/v2alpha1"
	"opendilab.org/di-orchestrator/cmd/kubectl-di/internal/cli"
	"opendilab.org/di-orchestrator/job/workload"
)

func newHistoryCommand(env *cli.Env) *cobra.Command {
	return env.NewJobCommand(cli.Help{
		Use: "history JOB", Short: "Print the ScalePlans of a job, the newest last",
		Example: `  # What was changed in job pong, and why
  kubectl di plan history pong`,
	}, func(ctx context.Context, name string) error {
		found, err := env.Connect()
		if err != nil {
			return err
		}
		plans, err := found.Plans(ctx, found.Namespace, name)
		switch {
		case err != nil:
			return err
		case len(plans) == 0:
			_, err := found.Job(ctx, name)
			if err == nil {
				fmt.Fprintf(env.ErrOut, "kubectl-di: job %s/%s has no plans\n", found.Namespace, name)
			}
			return err
		}
		now := time.Now()
		aligned := tabwriter.NewWriter(env.Out, 0, 0, 2, ' ', 0)
		fmt.Fprintln(aligned, "AGE\tPLAN\tPHASE\tORIGIN\tCHANGE\tREASON\tMESSAGE")
		for i := range plans {
			fmt.Fprintln(aligned, strings.Join(Row(&plans[i], now), "\t"))
		}
		return aligned.Flush()
	})
}

// Row returns the age, name, phase, origin, change, reason and message of a plan.
func Row(plan *v2alpha1.ScalePlan, now time.Time) []string {
	row := []string{
		duration.HumanDuration(max(0, now.Sub(plan.CreationTimestamp.Time))), plan.Name,
		string(cmp.Or(plan.Status.Phase, v2alpha1.PlanPending)), string(cmp.Or(plan.Spec.Origin, v2alpha1.PlanManual)),
		Change(&plan.Spec), cmp.Or(plan.Spec.Reason, "-"), cmp.Or(plan.Status.Message, "-"),
	}
	for i, cell := range row {
		// Cells have one line and no control sequences.
		row[i] = printers.EscapeTerminal(strings.Join(strings.Fields(cell), " "))
	}
	return row
}

// Change describes what a plan changes.
func Change(spec *v2alpha1.ScalePlanSpec) string {
	var parts []string
	for i := range spec.Tasks {
		task := &spec.Tasks[i]
		text := task.Name
		if task.Replicas != nil {
			text += fmt.Sprintf("=%d", *task.Replicas)
		}
		parts = append(parts, strings.TrimSpace(text+" "+workload.FormatResources(task.Resources)))
	}
	migrations := make([]string, len(spec.Migrate))
	for i := range spec.Migrate {
		migrations[i] = strings.TrimSpace(spec.Migrate[i].Pod + " " + workload.FormatResources(spec.Migrate[i].Resources))
	}
	for _, list := range []struct {
		verb string
		pods []string
	}{{"launch", spec.Launch}, {"remove", spec.Remove}, {"migrate", migrations}} {
		if len(list.pods) > 0 {
			parts = append(parts, list.verb+" "+few(list.pods))
		}
	}
	return few(parts)
}

// few joins texts, and truncates a long list.
func few(all []string) string {
	const most = 5
	if len(all) > most {
		return fmt.Sprintf("%s and %d more", strings.Join(slices.Clone(all[:most]), ", "), len(all)-most)
	}
	return strings.Join(all, ", ")
}
