// Copyright The DI Orchestrator Authors.
// SPDX-License-Identifier: Apache-2.0

package resize

import (
	"context"
	"fmt"
	"slices"
	"strings"

	"github.com/spf13/cobra"
	"k8s.io/apimachinery/pkg/api/resource"
	"k8s.io/apimachinery/pkg/util/validation"

	"opendilab.org/di-orchestrator/apis/v2alpha1"
	"opendilab.org/di-orchestrator/cmd/kubectl-di/internal/cli"
	"opendilab.org/di-orchestrator/cmd/kubectl-di/internal/diserver"
	"opendilab.org/di-orchestrator/cmd/kubectl-di/internal/restart"
	"opendilab.org/di-orchestrator/internal/names"
	"opendilab.org/di-orchestrator/internal/quantity"
)

const addLong = `Add collectors or learners to a running job, by asking di-server as the job's
coordinator does.

Each gets the resources of the job's template, or --cpus, --gpus and --memory.
A learner of several GPUs is an aggregator with DDP learners behind it.

A worker-led job's elastic task is resized, which must be of that type; its replicas get
the resources of their template.
` + reachLong

const addExamples = `  # One more collector for job cartpole
  kubectl di add collector cartpole

  # Two more learners of 4 GPUs and 16 GiB each
  kubectl di add learners cartpole --replicas 2 --gpus 4 --memory 16Gi

  # By the name of the coordinator's pod, as ding dist --add has it
  kubectl di add collector --coordinator-name cartpole-coordinator -n rl

  # By a port that you forward yourself
  kubectl -n di-system port-forward service/di-server 8080 &
  kubectl di add collector cartpole --server localhost:8080`

const deleteLong = `Delete replicas of a running job, by asking di-server as the job's
coordinator does.

The newest are deleted first, and learners of several GPUs after the others. They leave
di-server's list at once, and keep running for the drain time so that the coordinator
can disconnect.

A worker-led job's elastic task is resized, which must be of that type.
` + reachLong

const restartLong = `Run a whole job again from its beginning, or replace replicas of it.

Without POD the pods of the job are deleted, and created again when all are gone, as by
suspend and resume. A job that has finished is deleted and created again under its name.
What the job keeps only in its pods is lost.

With POD replicas of a running coordinator-led job are replaced by new ones under new
names, by reporting them to di-server as failed, as the job's coordinator does.

A replica is named by its pod or its URL. A learner of several GPUs is replaced as
a whole, its aggregator too, if any of its pods is named.

POD is for replicas that the coordinator never reached. It disconnects from one that it
is connected to when its URL disappears, and DI-engine's coordinator gives the job up
when it cannot. Delete the pod of such a replica instead: it is replaced too, and its URL
stays listed until the coordinator reports it.

In a worker-led job, too, a pod that is deleted is recreated.
` + reachLong

// resizing are the flags of add and delete.
type resizing struct {
	calling
	replicas           int32
	cpus, gpus, memory string
	// deletes reports whether replicas are deleted.
	deletes bool
	// task is the type of replicas of a command of one type.
	task v2alpha1.TaskType
}

// NewAddCommand returns kubectl di add.
func NewAddCommand(env *cli.Env) *cobra.Command {
	o := &resizing{calling: calling{Env: env}}
	command := o.command("add", cli.Help{Use: "add collector|learner JOB", Short: "Add collectors or learners to a running job", Long: addLong, Example: addExamples})
	const or = "; by default, and for 0, that of the template"
	flags := command.Flags()
	flags.StringVar(&o.cpus, "cpus", "", "CPUs of each, such as 2 or 500m"+or)
	flags.StringVar(&o.gpus, "gpus", "", "GPUs of each, a whole number"+or)
	flags.StringVar(&o.memory, "memory", "", "memory of each, such as 4Gi"+or)
	return command
}

// NewDeleteCommands returns kubectl di delete collector and learner.
func NewDeleteCommands(env *cli.Env) []*cobra.Command {
	var commands []*cobra.Command
	for _, task := range []v2alpha1.TaskType{v2alpha1.TaskTypeCollector, v2alpha1.TaskTypeLearner} {
		o := &resizing{calling: calling{Env: env}, deletes: true, task: task}
		name := string(task)
		command := o.command("delete", cli.Help{
			Use: name + " JOB", Short: "Delete " + name + "s of a running job", Long: deleteLong,
			Example: fmt.Sprintf("  # One %s less for job cartpole\n  kubectl di delete %s cartpole\n\n"+
				"  # Two less\n  kubectl di delete %ss cartpole --replicas 2", name, name, name),
		})
		command.Aliases = []string{name + "s"}
		commands = append(commands, command)
	}
	return commands
}

func (o *resizing) command(verb string, help cli.Help) *cobra.Command {
	command := help.Command()
	command.Args = func(_ *cobra.Command, args []string) error {
		_, _, err := o.arguments(args)
		return err
	}
	command.RunE = func(command *cobra.Command, args []string) error {
		task, name, err := o.arguments(args)
		if err != nil {
			return err
		}
		return o.run(command.Context(), task, name)
	}
	command.ValidArgsFunction = func(command *cobra.Command, args []string, _ string) ([]string, cobra.ShellCompDirective) {
		args = o.withTask(args)
		switch {
		case len(args) == 0:
			return []string{string(v2alpha1.TaskTypeCollector), string(v2alpha1.TaskTypeLearner)}, cobra.ShellCompDirectiveNoFileComp
		case len(args) == 1 && o.coordinator == "":
			return o.CompleteJobs(command, nil)
		}
		return nil, cobra.ShellCompDirectiveNoFileComp
	}
	command.Flags().Int32Var(&o.replicas, "replicas", 1, "how many to "+verb)
	cli.Before(command, func() error { return o.checkResources(command) })
	o.bind(command)
	return command
}

func (o *resizing) run(ctx context.Context, task v2alpha1.TaskType, name string) error {
	call, err := o.begin(ctx, name, func(job *v2alpha1.DIJob) error { return o.checkJob(job, task) })
	if err != nil {
		return err
	}
	if !isCoordinatorLed(call.job) {
		by := o.replicas
		if o.deletes {
			by = -by
		}
		return call.request(ctx, func() error {
			message, err := call.server.Resize(ctx, call.job.Namespace, call.job.Name, by)
			if err != nil {
				return err
			}
			return call.printResized(ctx, by, message)
		}, o.plan(call, task))
	}
	asked := &diserver.Asked{Replicas: o.replicas, CPUs: o.cpus, GPUs: o.gpus, Memory: o.memory}
	demand := &diserver.Demand{Coordinator: call.coordinator(), Collectors: asked}
	if task == v2alpha1.TaskTypeLearner {
		demand.Collectors, demand.Learners = nil, asked
	}
	change, about := call.server.Add, outcome{int(o.replicas), string(task), "will come", "got no " + string(task)}
	if o.deletes {
		change, about.done, about.none = call.server.Delete, "will go", "has no "+string(task)+" to delete"
	}
	return call.request(ctx, func() error {
		answer, err := change(ctx, demand)
		if err != nil {
			return err
		}
		return call.printReplicas(about, answer)
	}, o.plan(call, task))
}

// arguments returns the type of replicas and the job's name.
func (o *resizing) arguments(args []string) (v2alpha1.TaskType, string, error) {
	const want = "want collector or learner"
	args = o.withTask(args)
	if len(args) == 0 {
		return "", "", cli.Usagef("the type of replicas is missing: %s", want)
	}
	task := v2alpha1.TaskType(strings.TrimSuffix(args[0], "s"))
	if task != v2alpha1.TaskTypeCollector && task != v2alpha1.TaskTypeLearner {
		return "", "", cli.Usagef("type of replicas %q: %s", args[0], want)
	}
	job, rest, err := o.jobName(args[1:])
	if err == nil && len(rest) > 0 {
		err = cli.Usagef("%q: one job at a time", rest[0])
	}
	return task, job, err
}

// withTask returns the arguments with the type of replicas, which commands of one type leave out.
func (o *resizing) withTask(args []string) []string {
	if o.task == "" {
		return args
	}
	return append([]string{string(o.task)}, args...)
}

func (o *resizing) checkResources(command *cobra.Command) error {
	if o.replicas < 1 {
		return cli.Usagef("--replicas %d: want 1 or more", o.replicas)
	}
	for _, asked := range []struct {
		flag, value, want string
		whole             bool
	}{
		{"cpus", o.cpus, "a number of CPUs such as 2, 0.5 or 500m", false},
		{"gpus", o.gpus, "a whole number of GPUs", true},
		{"memory", o.memory, "an amount of bytes such as 4Gi or 512Mi", false},
	} {
		if asked.value == "" && !command.Flags().Changed(asked.flag) {
			continue
		}
		if err := quantity.Check(asked.value); err != nil {
			return cli.Usagef("--%s %q: want %s: %s", asked.flag, asked.value, asked.want, err)
		}
		parsed, err := resource.ParseQuantity(asked.value)
		if err != nil || parsed.Sign() < 0 || asked.whole && parsed.MilliValue()%1000 != 0 {
			return cli.Usagef("--%s %q: want %s", asked.flag, asked.value, asked.want)
		}
	}
	return nil
}

// checkJob returns an error if replicas of the type cannot be requested, or if di-server would
// misunderstand the request.
func (o *resizing) checkJob(job *v2alpha1.DIJob, task v2alpha1.TaskType) error {
	if isCoordinatorLed(job) {
		return nil
	}
	for flag, value := range map[string]string{"cpus": o.cpus, "gpus": o.gpus, "memory": o.memory} {
		if value != "" {
			return cli.Usagef("--%s: %s is worker-led: its replicas get the resources of their task's template", flag, title(job))
		}
	}
	elastic := names.ElasticTask(&job.Spec)
	if elastic < 0 || job.Spec.Tasks[elastic].Type == task {
		return nil
	}
	resized := &job.Spec.Tasks[elastic]
	return fmt.Errorf("%s is worker-led and resizes its task %q, which is of type %s and not %s: "+
		"set the number of its replicas by kubectl -n %s scale dijob %s --replicas",
		title(job), names.TaskName(resized), resized.Type, task, job.Namespace, job.Name)
}

// NewRestartCommand returns kubectl di restart.
func NewRestartCommand(env *cli.Env) *cobra.Command {
	o, timeout := &calling{Env: env}, cli.Timeout{}
	command := cli.Help{
		Use: "restart JOB [POD...]", Short: "Run a job again, or replace replicas of it by new ones", Long: restartLong,
		Example: `  # All of job pong, for at most five minutes until its pods are gone
  kubectl di restart pong --timeout 5m

  # A new collector in place of one that does not start
  kubectl di restart cartpole cartpole-collector-x7k2p

  # By the name of the coordinator's pod
  kubectl di restart --coordinator-name cartpole-coordinator cartpole-learner-b8d4c`,
	}.Command()
	command.Args = func(_ *cobra.Command, args []string) error {
		_, _, err := o.replicaNames(args)
		return err
	}
	command.RunE = func(command *cobra.Command, args []string) error {
		name, pods, err := o.replicaNames(args)
		if err != nil {
			return err
		}
		if len(pods) > 0 {
			return o.restart(command.Context(), name, pods)
		}
		found, job, err := o.ConnectJob(command.Context(), name)
		if err != nil {
			return err
		}
		return restart.Job(command.Context(), o.Env, &timeout, found, job)
	}
	command.ValidArgsFunction = func(command *cobra.Command, args []string, _ string) ([]string, cobra.ShellCompDirective) {
		if len(args) == 0 && o.coordinator == "" {
			return o.CompleteJobs(command, nil)
		}
		job, given, err := o.jobName(args)
		if err != nil {
			return nil, cobra.ShellCompDirectiveError
		}
		return o.CompletePods(command, job, append(given, names.CoordinatorPod(job)))
	}
	timeout.Bind(command, "wait no longer than this for the pods of a whole job to go (default as long as it takes)")
	o.bind(command)
	return command
}

func (o *calling) restart(ctx context.Context, name string, pods []string) error {
	call, err := o.begin(ctx, name, func(job *v2alpha1.DIJob) error {
		if isCoordinatorLed(job) {
			return nil
		}
		return fmt.Errorf("%s is worker-led, and its protocol has no restart: delete the pod, and it is recreated:\n  kubectl -n %s delete pod %s",
			title(job), job.Namespace, strings.Join(pods, " "))
	})
	if err != nil {
		return err
	}
	failed := &diserver.Failed{Coordinator: call.coordinator()}
	for _, pod := range pods {
		if strings.HasPrefix(pod, names.ReplicaPod(name, names.ReplicaTypeCollector, "")) {
			failed.Collectors = append(failed.Collectors, pod)
		} else {
			failed.Learners = append(failed.Learners, pod)
		}
	}
	return call.request(ctx, func() error {
		answer, err := call.server.Replace(ctx, failed)
		if err != nil {
			return err
		}
		return call.printReplicas(outcome{len(pods), "replica", "will come in place of what was named",
			"has no replica of that name now: nothing was done. It may have been replaced or deleted already"}, answer)
	}, planReplacement(pods))
}

// replicaNames returns the job and the pods of the arguments: by their names, with or without pod/,
// or by their URLs.
func (o *calling) replicaNames(args []string) (job string, pods []string, err error) {
	job, given, err := o.jobName(args)
	for _, arg := range given {
		pod := names.PodOfURL(strings.TrimPrefix(arg, "pod/"))
		if len(validation.IsDNS1123Label(pod)) > 0 {
			return "", nil, cli.Usagef("POD %q: want the name of a pod", arg)
		}
		if !slices.Contains(pods, pod) {
			pods = append(pods, pod)
		}
	}
	return job, pods, err
}
