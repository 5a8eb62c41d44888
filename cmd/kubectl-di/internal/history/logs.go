// Copyright The DI Orchestrator Authors.
// SPDX-License-Identifier: Apache-2.0

package history

import (
	"bytes"
	"cmp"
	"context"
	"fmt"
	"slices"
	"strings"

	"github.com/spf13/cobra"
	"k8s.io/cli-runtime/pkg/printers"

	"opendilab.org/di-orchestrator/cmd/kubectl-di/internal/cli"
	"opendilab.org/di-orchestrator/cmd/kubectl-di/internal/history/reader"
	"opendilab.org/di-orchestrator/cmd/kubectl-di/internal/history/view"
	"opendilab.org/di-orchestrator/cmd/kubectl-di/internal/replicas"
	"opendilab.org/di-orchestrator/history/record"
)

// lastLines are the flags of history logs.
type lastLines struct {
	reading
	replicas   []string
	containers []string
	attempt    int32
	output     cli.Data
}

func newLogsCommand(env *cli.Env) *cobra.Command {
	o := &lastLines{reading: reading{Env: env}}
	command := o.jobCommand(cli.Help{
		Use: "logs JOB", Short: "Print the last lines of containers of a job that ended badly",
		Long: `Print the last lines of the containers of a job that ended badly, in the order in
which they ended. The history keeps no other logs. It needs the right to read logs of
pods in the namespace.`,
		Example: `  # What the replicas of job pong printed before they failed
  kubectl di history logs pong

  # Only what a collector printed in the second attempt
  kubectl di history logs pong --replica collector-1 --attempt 1`,
	}, o.run)
	flags := command.Flags()
	flags.StringSliceVar(&o.replicas, "replica", nil, "only this replica, by its name or that of its pod; may be repeated")
	flags.Int32Var(&o.attempt, "attempt", -1, "only this attempt: how often the job had restarted before; -1 for all")
	flags.StringSliceVarP(&o.containers, "container", "c", nil, "only this container; may be repeated")
	o.output.Bind(command, "print them")
	o.completeTails(command, map[string]func(job, *record.Tail) string{
		"replica":   func(found job, tail *record.Tail) string { return replicas.Name(found.Name, tail.Pod) },
		"container": func(_ job, tail *record.Tail) string { return tail.Container },
	})
	cli.Before(command, func() error {
		if o.attempt < -1 {
			return cli.Usagef("--attempt %d: must be 0 or more, or -1 for all", o.attempt)
		}
		return nil
	})
	return command
}

// ending is the last output of a container, and the replica that it was of.
type ending struct {
	record.Tail
	// Attempt is that of the pod; nil if the pod is not recorded.
	Attempt *int32 `json:"attempt,omitempty"`
}

func (o *lastLines) run(ctx context.Context, from *reader.Reader, found job) error {
	tails, err := from.Tails(ctx, found)
	if err != nil {
		return err
	}
	endings := o.wanted(found, tails)
	if !o.output.IsText() {
		return o.output.Print(o.Out, endings)
	}
	if len(endings) == 0 {
		such := "no lines of job %s/%s are recorded: none of its containers ended badly, or none could be read"
		if len(tails) > 0 {
			such = "no such lines of job %s/%s are recorded: leave out --replica, --attempt or --container"
		}
		fmt.Fprintf(o.ErrOut, "kubectl-di: "+such+"\n", found.Namespace, found.Name)
		return nil
	}
	var out bytes.Buffer
	for i := range endings {
		if i > 0 {
			out.WriteString("\n")
		}
		write(&out, found.Name, &endings[i])
	}
	_, err = o.Out.Write(out.Bytes())
	return err
}

// wanted returns the endings that the flags select.
func (o *lastLines) wanted(found job, tails []record.Tail) []ending {
	attempts := map[string]int32{}
	for i := range found.Replicas {
		attempts[found.Replicas[i].PodUID] = found.Replicas[i].Attempt
	}
	endings := []ending{}
	for i := range tails {
		one := ending{Tail: tails[i]}
		if attempt, isKnown := attempts[one.PodUID]; isKnown {
			one.Attempt = &attempt
		}
		isReplica := len(o.replicas) == 0 || slices.Contains(o.replicas, one.Pod) || slices.Contains(o.replicas, replicas.Name(found.Name, one.Pod))
		isContainer := len(o.containers) == 0 || slices.Contains(o.containers, one.Container)
		isAttempt := o.attempt < 0 || one.Attempt != nil && *one.Attempt == o.attempt
		if isReplica && isContainer && isAttempt {
			endings = append(endings, one)
		}
	}
	return endings
}

// write writes an ending below a line that says whose it is. A container may have printed anything.
func write(out *bytes.Buffer, job string, one *ending) {
	title := fmt.Sprintf("%s, container %s", replicas.Name(job, one.Pod), one.Container)
	if one.Attempt != nil {
		title += fmt.Sprintf(", attempt %d", *one.Attempt)
	}
	if one.Restarts > 0 {
		title += fmt.Sprintf(", restarts %d", one.Restarts)
	}
	title += fmt.Sprintf(", ended %s with %s", view.Moment(one.Ended), view.ExitCode(&one.ExitCode, one.Reason))
	fmt.Fprintf(out, "==> %s <==\n", printers.EscapeTerminal(cli.OneLine(title)))
	if one.Truncated {
		out.WriteString("...\n")
	}
	out.WriteString(printers.EscapeTerminal(strings.TrimSuffix(cmp.Or(one.Text, "it printed nothing"), "\n")) + "\n")
}
