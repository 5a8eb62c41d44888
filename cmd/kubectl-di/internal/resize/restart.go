// Copyright The DI Orchestrator Authors.
// SPDX-License-Identifier: Apache-2.0

package resize

import (
	"fmt"
	"slices"
	"strings"

	"github.com/spf13/cobra"
	"k8s.io/apimachinery/pkg/util/validation"

	"opendilab.org/di-orchestrator/apis/v2alpha1"
	"opendilab.org/di-orchestrator/cmd/kubectl-di/internal/cluster"
	"opendilab.org/di-orchestrator/cmd/kubectl-di/internal/diserver"
	"opendilab.org/di-orchestrator/cmd/kubectl-di/internal/exit"
	"opendilab.org/di-orchestrator/internal/names"
)

const restartLong = `Replace replicas of a running coordinator-led job by new ones under new names, by
reporting them to di-server as failed, as the job's coordinator does.

A replica is named by its pod or its URL. A learner of several GPUs is replaced as
a whole, its aggregator too, whichever of its pods is named.

This is for replicas that the coordinator never reached. Of one that it is connected
to it takes leave when its URL disappears, and DI-engine's coordinator gives the
job up when it cannot. Rather delete the pod of such a one: it is replaced too,
and its URL stays listed until the coordinator reports it.

In a worker-led job, too, a pod that is deleted is made again in its place.
` + reachLong

const restartExamples = `  # A new collector in place of one that does not come up
  kubectl di restart cartpole cartpole-collector-x7k2p

  # By the name of the coordinator's pod
  kubectl di restart --coordinator-name cartpole-coordinator cartpole-learner-b8d4c`

// NewRestartCommand returns kubectl di restart.
func NewRestartCommand(flags *cluster.Flags) *cobra.Command {
	options := &callOptions{flags: flags}
	command := &cobra.Command{
		Use:     "restart JOB POD...",
		Short:   "Replace replicas of a running job by new ones",
		Long:    restartLong,
		Example: restartExamples,
		Args: func(_ *cobra.Command, args []string) error {
			_, _, err := options.replicas(args)
			return err
		},
		RunE: func(command *cobra.Command, args []string) error {
			return options.restart(command, args)
		},
		ValidArgsFunction: options.completeReplicas,
	}
	options.bind(command)
	return command
}

func (o *callOptions) restart(command *cobra.Command, args []string) error {
	name, pods, err := o.replicas(args)
	if err != nil {
		return err
	}
	if err := o.check(command); err != nil {
		return err
	}
	talk, err := o.begin(command, name, func(job *v2alpha1.DIJob) error { return restartable(job, pods) })
	if err != nil {
		return err
	}
	answer, err := talk.server.Replace(command.Context(), failedPods(talk, pods))
	if err != nil {
		return talk.explain(err)
	}
	return talk.printReplicas(command, outcome{
		wanted: len(pods), what: "replica", done: "will come in place of what was named",
		none: "has no replica of that name now: nothing was done. It may have been replaced or deleted already",
	}, answer)
}

// replicas reads the job and its replicas from the arguments.
func (o *callOptions) replicas(args []string) (job string, pods []string, err error) {
	job, named, err := o.job(args)
	if err != nil {
		return "", nil, err
	}
	pods, err = podNames(named)
	return job, pods, err
}

// podNames reads which pods are meant: by their names, with or without pod/,
// or by their URLs.
func podNames(args []string) ([]string, error) {
	if len(args) == 0 {
		return nil, exit.Usagef("POD is missing: name a collector, learner or aggregator, see kubectl get pods -l %s=JOB", names.LabelDIJobName)
	}
	var pods []string
	for _, arg := range args {
		pod := names.PodOfURL(strings.TrimPrefix(arg, "pod/"))
		if len(validation.IsDNS1123Label(pod)) > 0 {
			return nil, exit.Usagef("POD %q: want the name of a pod", arg)
		}
		if !slices.Contains(pods, pod) {
			pods = append(pods, pod)
		}
	}
	return pods, nil
}

// restartable says why a job's pods cannot be replaced through di-server.
func restartable(job *v2alpha1.DIJob, pods []string) error {
	if isCoordinatorLed(job) {
		return nil
	}
	return fmt.Errorf("job %s/%s is worker-led, and its protocol knows no restart: delete the pod, and it is made again in its place:\n"+
		"  kubectl -n %s delete pod %s", job.Namespace, job.Name, job.Namespace, strings.Join(pods, " "))
}

// failedPods reports pods as failed, each where its role belongs.
func failedPods(talk *conversation, pods []string) *diserver.Failed {
	failed := &diserver.Failed{Coordinator: talk.of()}
	for _, pod := range pods {
		if strings.HasPrefix(pod, names.ReplicaPod(talk.job.Name, names.ReplicaTypeCollector, "")) {
			failed.Collectors = append(failed.Collectors, pod)
		} else {
			failed.Learners = append(failed.Learners, pod)
		}
	}
	return failed
}
