// Copyright The DI Orchestrator Authors.
// SPDX-License-Identifier: Apache-2.0

package inside

import (
	"context"
	"errors"
	"fmt"
	"strconv"
	"strings"

	"github.com/spf13/cobra"
	corev1 "k8s.io/api/core/v1"

	"opendilab.org/di-orchestrator/cmd/kubectl-di/internal/cli"
)

// The port of TensorBoard, and its name in templates.
const (
	tensorBoard     = 6006
	tensorBoardName = "tensorboard"
)

// opening are the flags of open.
type opening struct {
	*cli.Env
	target
	port string
}

// NewOpenCommand returns kubectl di open.
func NewOpenCommand(env *cli.Env) *cobra.Command {
	o := &opening{Env: env}
	command := cli.Help{
		Use: "open JOB [POD]", Short: "Forward a local port to a replica of a job, such as to its TensorBoard",
		Long: `Forward a local port to a port of a replica, and print its URL. Only this computer can
connect, until the command is interrupted. Without POD it is the first one that runs.

The port is a number, or the name of one of the container. By default it is the one named
tensorboard, or else 6006, TensorBoard's.`,
		Example: `  # The TensorBoard that the first replica of job pong serves
  kubectl di open pong

  # The debugger of a collector
  kubectl di open pong collector-2 --port 5678`,
	}.Command()
	command.Args = func(_ *cobra.Command, args []string) (err error) {
		o.job, o.pod, err = arguments(args)
		return err
	}
	command.RunE = func(command *cobra.Command, _ []string) error { return o.run(command.Context()) }
	command.ValidArgsFunction = complete(env)
	command.SuggestFor = []string{"port-forward", "forward", "tensorboard"}
	command.Flags().StringVar(&o.port, "port", "", "number or name of the port (default tensorboard, or 6006)")
	command.Flags().StringVarP(&o.container, "container", "c", "", "container that names the port; by default di-container, or the first")
	env.CompleteContainerFlag(command, "container")
	_ = command.RegisterFlagCompletionFunc("port", cobra.FixedCompletions([]string{tensorBoardName}, cobra.ShellCompDirectiveNoFileComp))
	cli.Before(command, func() error {
		number, err := strconv.Atoi(o.port)
		if err == nil && (number < 1 || number > 65535) {
			return cli.Usagef("--port %s: want 1 to 65535, or the name of a port", o.port)
		}
		return nil
	})
	return command
}

func (o *opening) run(ctx context.Context) error {
	found, pod, of, err := o.connect(ctx, o.Env)
	if err != nil {
		return err
	}
	port, err := o.number(pod, of)
	if err != nil {
		return err
	}
	address, ended, err := found.In(pod.Namespace).ForwardPod(ctx, pod.Name, port)
	if err != nil {
		return err
	}
	fmt.Fprintf(o.ErrOut, "kubectl-di: port %d of pod %s/%s, until this command is interrupted:\n", port, pod.Namespace, pod.Name)
	if _, err := fmt.Fprintln(o.Out, "http://"+address); err != nil {
		return err
	}
	select {
	case <-ctx.Done():
		<-ended
		return nil
	case <-ended:
		return errors.New("the connection to pod " + pod.Namespace + "/" + pod.Name + " has ended")
	}
}

// number returns the number of the port.
func (o *opening) number(pod *corev1.Pod, of *corev1.Container) (int32, error) {
	if number, err := strconv.ParseInt(o.port, 10, 32); err == nil {
		return int32(number), nil
	}
	var there []string
	for _, port := range of.Ports {
		if port.Name == o.port && o.port != "" || o.port == "" && port.Name == tensorBoardName {
			return port.ContainerPort, nil
		}
		there = append(there, fmt.Sprintf("%s (%d)", port.Name, port.ContainerPort))
	}
	switch {
	case o.port == "":
		return tensorBoard, nil
	case len(there) == 0:
		return 0, fmt.Errorf("--port %s: container %s of pod %s names no ports: give the number", o.port, of.Name, pod.Name)
	}
	return 0, fmt.Errorf("--port %s: container %s of pod %s has no such port, but %s", o.port, of.Name, pod.Name, strings.Join(there, ", "))
}
