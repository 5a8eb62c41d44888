// Copyright The DI Orchestrator Authors.
// SPDX-License-Identifier: Apache-2.0

package jobs

import (
	"context"
	"fmt"
	"strings"

	"github.com/spf13/cobra"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"

	"opendilab.org/di-orchestrator/cmd/kubectl-di/internal/cli"
	"opendilab.org/di-orchestrator/cmd/kubectl-di/internal/code"
	"opendilab.org/di-orchestrator/cmd/kubectl-di/internal/jobs/fromflags"
)

// running are the flags of run.
type running struct {
	creating
	job                fromflags.Flags
	cpu, memory        string
	replicas, min, max int32
	// code is the folder that the replicas get.
	code string
}

// NewRunCommand returns kubectl di run.
func NewRunCommand(env *cli.Env) *cobra.Command {
	o := &running{creating: creating{Env: env, validation: "strict"}}
	command := cli.Help{
		Use: "run NAME --image IMAGE [flags] [-- COMMAND [ARG...]]", Short: "Run a job without a manifest",
		Long: `Run a job without a manifest: a worker-led job whose replicas all run the same image,
and find each other through DI_RANK and DI_NODES, or with --torch as PyTorch expects.

The command of the replicas follows "--"; without one they run that of the image. With
--min and --max the number of replicas may change while the job runs. The job has one
task named worker, or those of --task: the variable DI_<TASK>_NODES, which is set for the
own task only, tells a replica which it has.

--code sends the files of a folder in a ConfigMap, 900 KiB at most. The replicas have them
in /code, and begin there. It is deleted with the job. Files and folders that begin with a
dot are left out.

With --watch the command follows the job as kubectl di submit does, with the log of its
first replica.

With --dry-run=client -o yaml the command prints the manifest, to keep and to extend.

Exit codes: those of kubectl di submit.`,
		Example: `  # Train on one GPU, and follow the job to its end
  kubectl di run pong --image example.com/train:1 --gpus 1 --watch -- python train.py --env Pong

  # The program of a folder, in an image that only has its libraries
  kubectl di run pong --image pytorch/pytorch --code ./src --watch -- python train.py

  # PyTorch on two replicas of four GPUs, with the volume of a PersistentVolumeClaim
  kubectl di run llm --image example.com/train:1 --torch --replicas 2 --gpus 4 --pvc data:/data -- torchrun train.py

  # A learner and four collectors
  kubectl di run pong --image example.com/train:1 --task learner=1 --task collector=4 -- python main.py

  # Four replicas, which may become two to eight
  kubectl di run pong --image example.com/train:1 --replicas 4 --min 2 --max 8 --cpu 2 --memory 4Gi

  # Write the manifest
  kubectl di run pong --image example.com/train:1 --dry-run=client -o yaml > pong.yaml`,
	}.Command()
	command.Args = func(command *cobra.Command, args []string) error {
		return o.readArguments(command.Flags().ArgsLenAtDash(), args)
	}
	command.RunE = func(command *cobra.Command, _ []string) error { return o.run(command.Context()) }
	command.ValidArgsFunction = cobra.NoFileCompletions
	command.SuggestFor = []string{"start", "launch", "train"}
	flags := command.Flags()
	flags.StringVar(&o.job.Image, "image", "", "image of the replicas (required)")
	flags.Int32Var(&o.replicas, "replicas", 1, "number of replicas; by default --min, or 1")
	flags.Int32Var(&o.min, "min", 0, "least number of replicas of an elastic job")
	flags.Int32Var(&o.max, "max", 0, "greatest number of replicas of an elastic job")
	flags.Int32Var(&o.job.GPUs, "gpus", 0, "GPUs of each replica")
	flags.StringVar(&o.cpu, "cpu", "", "CPU that each replica requests, such as 2 or 500m")
	flags.StringVar(&o.memory, "memory", "", "memory that each replica requests, which is also its limit, such as 4Gi")
	flags.StringArrayVar(&o.job.Env, "env", nil, "variable of the replicas, as NAME=VALUE; may be repeated")
	flags.BoolVar(&o.job.Preemptible, "preemptible", false, "let the allocator decide about the placement and the number of replicas")
	flags.StringVar(&o.job.Queue, "queue", "", "queue that the job waits in")
	flags.StringArrayVar(&o.job.Tasks, "task", nil, "task of the job, as NAME=COUNT, such as collector=4; may be repeated")
	flags.StringArrayVar(&o.job.Claims, "pvc", nil, "PersistentVolumeClaim to mount, as NAME:/PATH or NAME:/PATH:ro; may be repeated")
	flags.StringVar(&o.code, "code", "", "folder with the program, which the replicas get in "+fromflags.CodePath)
	flags.BoolVar(&o.job.Torch, "torch", false, "set the variables of PyTorch, such as MASTER_ADDR, and one process for each GPU")
	_ = command.MarkFlagDirname("code")
	_ = command.RegisterFlagCompletionFunc("task", cobra.FixedCompletions([]string{"learner=", "collector=", "evaluator="},
		cobra.ShellCompDirectiveNoFileComp|cobra.ShellCompDirectiveNoSpace))
	_ = command.RegisterFlagCompletionFunc("pvc", env.CompleteClaims)
	_ = command.RegisterFlagCompletionFunc("queue", env.CompleteQueues)
	cli.Before(command, func() error { return o.complete(command) })
	o.bind(command)
	return command
}

// readArguments reads the name and the command; dash is the number of arguments before "--", -1 for
// no such separator.
func (o *running) readArguments(dash int, args []string) error {
	before := args
	if dash >= 0 {
		before, o.job.Command = args[:dash], args[dash:]
	}
	switch {
	case len(before) == 0:
		return cli.Usagef("NAME is missing: name the job, before the command")
	case len(before) > 1:
		return cli.Usagef(`%q: the command follows "--": kubectl di run %s --image IMAGE -- %s`, before[1], before[0], strings.Join(before[1:], " "))
	}
	o.job.Name = before[0]
	return nil
}

// complete reads the other flags.
func (o *running) complete(command *cobra.Command) (err error) {
	for name, flag := range map[string]struct {
		from *int32
		to   **int32
	}{"replicas": {&o.replicas, &o.job.Replicas}, "min": {&o.min, &o.job.Min}, "max": {&o.max, &o.job.Max}} {
		if command.Flags().Changed(name) {
			*flag.to = flag.from
		}
	}
	if o.job.Image == "" {
		return cli.Usagef("--image is missing: name the image of the replicas")
	}
	if o.job.CPU, err = cli.Quantity("cpu", o.cpu); err != nil {
		return err
	}
	o.job.Memory, err = cli.Quantity("memory", o.memory)
	return err
}

func (o *running) run(ctx context.Context) error {
	if o.code != "" {
		packed, keys, err := code.Pack(o.job.Name, o.code)
		if err != nil {
			return cli.Usagef("--code %s: %w", o.code, err)
		}
		o.job.CodeMap, o.job.CodeKeys = packed.Name, keys
		content, err := runtime.DefaultUnstructuredConverter.ToUnstructured(packed)
		if err != nil {
			return fmt.Errorf("--code %s: %w", o.code, err)
		}
		o.others = []manifest{{&unstructured.Unstructured{Object: content}, "kubectl di run"}}
	}
	job, err := o.job.Job()
	if err != nil {
		return cli.With(cli.Usage, err)
	}
	if o.objects.IsLocal() && !o.HasNamespace() {
		// A manifest to keep. It needs no cluster.
		for _, other := range o.others {
			if err := o.objects.PrintObj(other.Unstructured, o.Out); err != nil {
				return err
			}
		}
		return o.objects.PrintObj(job, o.Out)
	}
	o.isOwner = true
	return o.create(ctx, []manifest{{job, "kubectl di run"}})
}
