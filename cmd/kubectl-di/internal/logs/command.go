// Copyright The DI Orchestrator Authors.
// SPDX-License-Identifier: Apache-2.0

package logs

import (
	"fmt"
	"os"
	"slices"
	"strings"
	"time"

	"github.com/charmbracelet/colorprofile"
	"github.com/spf13/cobra"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/clock"

	"opendilab.org/di-orchestrator/cmd/kubectl-di/internal/cli"
)

const long = `Print the logs of all replicas of a job at once.

Each line begins with the name of its replica, which is the pod's without the
job's. With --follow it continues with pods that are created later, that replace others
and whose containers restart, resumes a broken connection where it broke, and ends when
the job and its pods have finished, or with Ctrl-C, either way with 0.`

const example = `  # What all replicas of job cartpole print from now on
  kubectl di logs cartpole -f --tail 0

  # The last 20 lines of each of its collectors
  kubectl di logs cartpole --task collector --tail 20

  # What a replica printed before its container was started again
  kubectl di logs cartpole collector-m4z7t --previous`

// options are the flags of the command.
type options struct {
	*cli.Env
	follow        bool
	tasks, pods   []string
	container     string
	allContainers bool
	tail          int64
	since         time.Duration
	sinceTime     string
	timestamps    bool
	previous      bool
	prefix        bool
	most          int
	colour        string
}

// NewCommand returns kubectl di logs.
func NewCommand(env *cli.Env) *cobra.Command {
	o := options{Env: env}
	command := cli.Help{Use: "logs JOB [POD...]", Short: "Print the logs of all replicas of a job at once", Long: long,
		Example: example}.Command()
	command.RunE = o.run
	command.ValidArgsFunction = func(command *cobra.Command, args []string, _ string) ([]string, cobra.ShellCompDirective) {
		if len(args) == 0 {
			return o.CompleteJobs(command, nil)
		}
		return o.CompletePods(command, strings.TrimPrefix(args[0], "dijob/"), args[1:])
	}
	flags := command.Flags()
	flags.BoolVarP(&o.follow, "follow", "f", false, "Continue with new lines, also of pods that are created later")
	flags.StringSliceVar(&o.tasks, "task", nil, "Only the replicas of this task; may be repeated")
	flags.StringSliceVar(&o.pods, "pod", nil, "Only this pod, by its name or that of the replica; may be repeated")
	flags.StringVarP(&o.container, "container", "c", "", "The container; by default di-container, or the first")
	flags.BoolVar(&o.allContainers, "all-containers", false, "All containers of each pod")
	flags.Int64Var(&o.tail, "tail", -1, "Only this many of the last lines of each container; -1 for all")
	flags.DurationVar(&o.since, "since", 0, "Only lines that are no older than this, such as 5m")
	flags.StringVar(&o.sinceTime, "since-time", "", "Only lines that are no older than this time, such as 2026-01-02T15:04:05Z")
	flags.BoolVar(&o.timestamps, "timestamps", false, "Begin each line with its time")
	flags.BoolVarP(&o.previous, "previous", "p", false, "The logs of the containers before their last restart")
	flags.BoolVar(&o.prefix, "prefix", true, "Begin each line with the name of its replica")
	flags.IntVar(&o.most, "max-log-requests", 100, "Follow no more containers than this at once")
	env.CompleteTaskFlag(command, "task", "")
	env.CompletePodFlag(command, "pod")
	env.CompleteContainerFlag(command, "container")
	cli.Enum(command, &o.colour, "color", "", "auto", "Colour the names of replicas: auto (on a terminal), always or never", "auto",
		"always", "never")
	return command
}

func (o *options) run(command *cobra.Command, args []string) error {
	name, err := o.check(args)
	if err != nil {
		return err
	}
	log, err := o.logOptions()
	if err != nil {
		return err
	}
	found, err := o.Connect()
	if err != nil {
		return err
	}
	job, err := found.Job(command.Context(), name)
	if err != nil {
		return err
	}
	wanted := selection{
		tasks: o.tasks, pods: append(slices.Clone(o.pods), args[1:]...), container: o.container, allContainers: o.allContainers,
	}
	for i, pod := range wanted.pods {
		wanted.pods[i] = strings.TrimPrefix(strings.TrimPrefix(pod, "pods/"), "pod/")
	}
	if err := wanted.checkTasks(job); err != nil {
		return err
	}
	r := &run{
		cluster: found, clock: clock.RealClock{}, job: job, wanted: wanted, log: log, most: o.most,
		printer: newPrinter(o.Out, o.prefix, o.timestamps, o.profile()),
		notices: &notices{report: func(text string) { fmt.Fprintln(o.ErrOut, "kubectl-di:", text) }, printed: map[string]bool{}},
	}
	if o.follow {
		return r.follow(command.Context())
	}
	return r.once(command.Context())
}

// check returns the name of the job, and an error for contradicting flags.
func (o *options) check(args []string) (string, error) {
	switch {
	case o.allContainers && o.container != "":
		return "", cli.Usagef("--container %s: --all-containers takes it too: leave one of them out", o.container)
	case o.follow && o.previous:
		return "", cli.Usagef("--previous: what ran before prints nothing more to --follow: leave one of them out")
	case o.since != 0 && o.sinceTime != "":
		return "", cli.Usagef("--since-time %s: --since is given too: leave one of them out", o.sinceTime)
	case o.since < 0:
		return "", cli.Usagef("--since %s: must be greater than 0", o.since)
	case o.tail < -1:
		return "", cli.Usagef("--tail %d: must be 0 or more, or -1 for all", o.tail)
	case o.most < 1:
		return "", cli.Usagef("--max-log-requests %d: must be 1 or more", o.most)
	}
	return cli.Job(args)
}

// logOptions returns the API options of the flags.
func (o *options) logOptions() (corev1.PodLogOptions, error) {
	log := corev1.PodLogOptions{Previous: o.previous}
	if o.tail >= 0 {
		log.TailLines = &o.tail
	}
	if o.since > 0 {
		// The API supports whole seconds only; round up.
		seconds := int64((o.since + time.Second - 1) / time.Second)
		log.SinceSeconds = &seconds
	}
	if o.sinceTime != "" {
		at, err := time.Parse(time.RFC3339, o.sinceTime)
		if err != nil {
			return log, cli.Usagef("--since-time %s: must be like %s", o.sinceTime, "2026-01-02T15:04:05Z")
		}
		log.SinceTime = &metav1.Time{Time: at}
	}
	return log, nil
}

// profile returns the colour profile of the output.
func (o *options) profile() colorprofile.Profile {
	detected := colorprofile.Detect(o.Out, os.Environ())
	switch {
	case o.colour == "always":
		return max(detected, colorprofile.ANSI256)
	case o.colour == "never", os.Getenv("NO_COLOR") != "":
		return colorprofile.NoTTY
	}
	return detected
}
