// Copyright The DI Orchestrator Authors.
// SPDX-License-Identifier: Apache-2.0

package resize

import (
	"context"
	"fmt"
	"strings"

	"github.com/spf13/cobra"
	"k8s.io/apimachinery/pkg/api/resource"

	"opendilab.org/di-orchestrator/apis/v2alpha1"
	"opendilab.org/di-orchestrator/cmd/kubectl-di/internal/cluster"
	"opendilab.org/di-orchestrator/cmd/kubectl-di/internal/diserver"
	"opendilab.org/di-orchestrator/cmd/kubectl-di/internal/exit"
	"opendilab.org/di-orchestrator/internal/names"
	"opendilab.org/di-orchestrator/internal/quantity"
)

const addLong = `Add collectors or learners to a running job, by asking di-server as the job's
coordinator does.

What each one gets is what the job's template says, or --cpus, --gpus and --memory.
A learner of several GPUs comes as an aggregator with DDP learners behind it.

Of a worker-led job the elastic task is resized, which has to be of that type; its
replicas get what their template says.
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

const deleteLong = `Delete collectors or learners of a running job, by asking di-server as the job's
coordinator does.

Those that were added last go first, and learners of several GPUs after the others.
They leave di-server's list at once, and live on for a while so that the
coordinator can take leave of them.

Of a worker-led job the elastic task is resized, which has to be of that type.
` + reachLong

const deleteExamples = `  # One collector less for job cartpole
  kubectl di delete collector cartpole

  # Two learners less
  kubectl di delete learners cartpole --replicas 2`

// resizeOptions are the flags of add and delete.
type resizeOptions struct {
	callOptions
	replicas           int32
	cpus, gpus, memory string
	// removes says that replicas are to go.
	removes bool
}

// NewAddCommand returns kubectl di add.
func NewAddCommand(flags *cluster.Flags) *cobra.Command {
	options := &resizeOptions{callOptions: callOptions{flags: flags}}
	command := options.command("add", "Add collectors or learners to a running job")
	command.Long, command.Example = addLong, addExamples
	own := command.Flags()
	own.Int32Var(&options.replicas, "replicas", 1, "how many to add")
	own.StringVar(&options.cpus, "cpus", "", "CPUs of each, such as 2 or 500m; by default, and for 0, what the template says")
	own.StringVar(&options.gpus, "gpus", "", "GPUs of each, a whole number; by default, and for 0, what the template says")
	own.StringVar(&options.memory, "memory", "", "memory of each, such as 4Gi; by default, and for 0, what the template says")
	options.bind(command)
	return command
}

// NewDeleteCommand returns kubectl di delete.
func NewDeleteCommand(flags *cluster.Flags) *cobra.Command {
	options := &resizeOptions{callOptions: callOptions{flags: flags}, removes: true}
	command := options.command("delete", "Delete collectors or learners of a running job")
	command.Long, command.Example = deleteLong, deleteExamples
	command.Flags().Int32Var(&options.replicas, "replicas", 1, "how many to delete")
	options.bind(command)
	return command
}

// command returns the command without its flags.
func (o *resizeOptions) command(verb, short string) *cobra.Command {
	return &cobra.Command{
		Use:   verb + " collector|learner JOB",
		Short: short,
		Args: func(_ *cobra.Command, args []string) error {
			_, _, err := o.arguments(args)
			return err
		},
		RunE: func(command *cobra.Command, args []string) error {
			return o.run(command, args)
		},
		ValidArgsFunction: o.complete,
	}
}

func (o *resizeOptions) run(command *cobra.Command, args []string) error {
	task, name, err := o.arguments(args)
	if err != nil {
		return err
	}
	if err := o.check(command); err != nil {
		return err
	}
	talk, err := o.begin(command, name, func(job *v2alpha1.DIJob) error { return o.checkJob(job, task) })
	if err != nil {
		return err
	}
	ctx := command.Context()
	if !isCoordinatorLed(talk.job) {
		by := o.replicas
		if o.removes {
			by = -by
		}
		message, err := talk.server.Resize(ctx, talk.job.Namespace, talk.job.Name, by)
		if err != nil {
			return talk.explain(err)
		}
		return talk.printResized(command, by, message)
	}
	answer, err := o.ask(ctx, talk, task)
	if err != nil {
		return talk.explain(err)
	}
	return talk.printReplicas(command, o.outcome(task), answer)
}

// ask asks for more replicas of a coordinator-led job, or fewer.
func (o *resizeOptions) ask(ctx context.Context, talk *conversation, task v2alpha1.TaskType) (*diserver.Replicas, error) {
	asked := &diserver.Asked{Replicas: o.replicas, CPUs: o.cpus, GPUs: o.gpus, Memory: o.memory}
	demand := &diserver.Demand{Coordinator: talk.of(), Collectors: asked}
	if task == v2alpha1.TaskTypeLearner {
		demand.Collectors, demand.Learners = nil, asked
	}
	if o.removes {
		return talk.server.Delete(ctx, demand)
	}
	return talk.server.Add(ctx, demand)
}

// arguments reads the type of replicas and the job's name.
func (o *resizeOptions) arguments(args []string) (v2alpha1.TaskType, string, error) {
	const want = "want collector or learner"
	if len(args) == 0 {
		return "", "", exit.Usagef("the type of replicas is missing: %s", want)
	}
	task := v2alpha1.TaskType(strings.TrimSuffix(args[0], "s"))
	if task != v2alpha1.TaskTypeCollector && task != v2alpha1.TaskTypeLearner {
		return "", "", exit.Usagef("type of replicas %q: %s", args[0], want)
	}
	job, rest, err := o.job(args[1:])
	if err == nil && len(rest) > 0 {
		err = exit.Usagef("%q: one job at a time", rest[0])
	}
	return task, job, err
}

// check says what is wrong with the flags.
func (o *resizeOptions) check(command *cobra.Command) error {
	if o.replicas < 1 {
		return exit.Usagef("--replicas %d: want 1 or more", o.replicas)
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
			return exit.Usagef("--%s %q: want %s: %s", asked.flag, asked.value, asked.want, err)
		}
		parsed, err := resource.ParseQuantity(asked.value)
		if err != nil || parsed.Sign() < 0 || asked.whole && parsed.MilliValue()%1000 != 0 {
			return exit.Usagef("--%s %q: want %s", asked.flag, asked.value, asked.want)
		}
	}
	return o.callOptions.check(command)
}

// checkJob says why replicas of the type cannot be asked for, where di-server
// would take the request for another.
func (o *resizeOptions) checkJob(job *v2alpha1.DIJob, task v2alpha1.TaskType) error {
	if isCoordinatorLed(job) {
		return nil
	}
	for flag, value := range map[string]string{"cpus": o.cpus, "gpus": o.gpus, "memory": o.memory} {
		if value != "" {
			return exit.Usagef("--%s: job %s/%s is worker-led: its replicas get what the template of their task says",
				flag, job.Namespace, job.Name)
		}
	}
	elastic := names.ElasticTask(&job.Spec)
	if elastic < 0 || job.Spec.Tasks[elastic].Type == task {
		return nil
	}
	resized := &job.Spec.Tasks[elastic]
	return fmt.Errorf("job %s/%s is worker-led and resizes its task %q, which is of type %s and not %s: "+
		"set the number of its replicas by kubectl -n %s scale dijob %s --replicas",
		job.Namespace, job.Name, names.TaskName(resized), resized.Type, task, job.Namespace, job.Name)
}

// outcome says what the answer to a request is about.
func (o *resizeOptions) outcome(task v2alpha1.TaskType) outcome {
	if o.removes {
		return outcome{wanted: int(o.replicas), what: string(task), done: "will go", none: "has no " + string(task) + " to delete"}
	}
	return outcome{wanted: int(o.replicas), what: string(task), done: "will come", none: "got no " + string(task)}
}
