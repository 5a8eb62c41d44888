// Copyright The DI Orchestrator Authors.
// SPDX-License-Identifier: Apache-2.0

// Package bugreport implements kubectl di bugreport: one archive of what is known of a job.
package bugreport

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"runtime"
	"strings"
	"time"

	"github.com/spf13/cobra"
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	k8sruntime "k8s.io/apimachinery/pkg/runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"opendilab.org/di-orchestrator/apis/v2alpha1"
	"opendilab.org/di-orchestrator/cmd/kubectl-di/internal/cli"
	"opendilab.org/di-orchestrator/cmd/kubectl-di/internal/cluster"
	"opendilab.org/di-orchestrator/cmd/kubectl-di/internal/document"
	"opendilab.org/di-orchestrator/cmd/kubectl-di/internal/events"
	"opendilab.org/di-orchestrator/cmd/kubectl-di/internal/jobs"
	"opendilab.org/di-orchestrator/cmd/kubectl-di/internal/jobview"
	"opendilab.org/di-orchestrator/internal/names"
)

const (
	// mostPods bounds the archive of a large job, and mostBytes that of each log.
	mostPods  = 100
	mostBytes = 1 << 20
)

// options are the flags of the command.
type options struct {
	*cli.Env
	version string
	file    string
	tail    int64
	logs    bool
}

// NewCommand returns kubectl di bugreport; version is the plugin's own.
func NewCommand(env *cli.Env, version string) *cobra.Command {
	o := &options{Env: env, version: version}
	command := env.NewJobCommand(cli.Help{
		Use: "bugreport JOB", Short: "Write what is known of a job into one archive, for an issue",
		Long: `Write what is known of a job into one archive, for an issue: the job, its pods, plans and
members, the events, the logs, and the versions. What you may not read is left out, and
README.txt of the archive lists it.

Values of Secrets that the job refers to are replaced wherever they occur, also in logs,
and so are those of variables such as WANDB_API_KEY. If you may not read one of the
Secrets, logs and messages of programs are left out, because they might have its values.
Look through the archive all the same before you publish it.`,
		Example: `  # Write di-bugreport-rl-pong.tar.gz
  kubectl di bugreport pong -n rl

  # Without logs, into another file
  kubectl di bugreport pong --logs=false --file /tmp/pong.tar.gz`,
	}, o.run)
	command.SuggestFor = []string{"report", "dump", "must-gather", "debug"}
	flags := command.Flags()
	flags.StringVar(&o.file, "file", "", "archive to write (default di-bugreport-NAMESPACE-JOB.tar.gz)")
	flags.Int64Var(&o.tail, "tail", 5000, "last lines of each log")
	flags.BoolVar(&o.logs, "logs", true, "put the logs of the main containers into the archive")
	cli.Before(command, func() error {
		if o.tail < 1 {
			return cli.Usagef("--tail %d: want 1 or more", o.tail)
		}
		return nil
	})
	return command
}

func (o *options) run(ctx context.Context, name string) (failed error) {
	found, job, err := o.ConnectJob(ctx, name)
	if err != nil {
		return err
	}
	file := o.file
	if file == "" {
		file = fmt.Sprintf("di-bugreport-%s-%s.tar.gz", job.Namespace, job.Name)
	}
	// The archive may have what only its writer may read.
	out, err := os.OpenFile(file, os.O_CREATE|os.O_EXCL|os.O_WRONLY, 0o600)
	if errors.Is(err, os.ErrExist) {
		return fmt.Errorf("%s exists already: name another file by --file", file)
	}
	if err != nil {
		return err
	}
	defer func() {
		if failed = errors.Join(failed, out.Close()); failed != nil {
			failed = errors.Join(failed, os.Remove(file))
		}
	}()
	g := &gathering{
		options: o, cluster: found, job: job, redact: &redactor{values: map[string]bool{}},
		archive: newArchive(out, strings.TrimSuffix("di-bugreport-"+job.Namespace+"-"+job.Name, "-"), time.Now()),
	}
	if err := errors.Join(g.gather(ctx), g.archive.close()); err != nil {
		return err
	}
	for _, lack := range g.lacks {
		fmt.Fprintln(o.ErrOut, "kubectl-di: left out:", strings.ReplaceAll(lack, "\n", "\n  "))
	}
	fmt.Fprintln(o.ErrOut, "kubectl-di: look through the archive before you publish it")
	_, err = fmt.Fprintln(o.Out, file)
	return err
}

// gathering is the state of a report.
type gathering struct {
	*options
	cluster *cluster.Cluster
	job     *v2alpha1.DIJob
	redact  *redactor
	archive *archive
	// lacks are the parts that are left out, and why.
	lacks []string
	// known are the objects by the names of their files.
	known []object
}

// object is an object to write.
type object struct {
	file    string
	content map[string]any
}

// gather reads everything, and then writes it: a value of a Secret may be in an object that was read before the Secret.
func (g *gathering) gather(ctx context.Context) error {
	observed := &jobview.Observed{Job: g.job, Now: time.Now()}
	if err := g.read(ctx, observed); err != nil {
		return err
	}
	for _, one := range g.known {
		g.redact.takeVariables(one.content)
	}
	if err := g.learnSecrets(ctx); err != nil {
		return err
	}
	for _, one := range g.known {
		g.redact.hideMessages(one.content)
		if err := g.archive.object(one.file, one.content, g.redact); err != nil {
			return err
		}
	}
	if !g.redact.isBlind {
		if err := g.archive.text("describe.txt", g.redact.clean(jobs.Describe(observed))); err != nil {
			return err
		}
		if err := g.writeLogs(ctx, observed.Pods); err != nil {
			return err
		}
	}
	return g.archive.text("README.txt", g.readme(ctx))
}

// read reads the objects.
func (g *gathering) read(ctx context.Context, observed *jobview.Observed) (err error) {
	manifest, err := g.cluster.Manifest(ctx, v2alpha1.GroupVersion.Version, g.job.Name)
	if err != nil {
		return err
	}
	if err := g.add("job.yaml", manifest); err != nil {
		return err
	}
	observed.Pods, err = g.cluster.Pods(ctx, g.job)
	if err := g.permit(err); err != nil {
		return err
	}
	if len(observed.Pods) > mostPods {
		g.lacks = append(g.lacks, fmt.Sprintf("all but %d of %d pods", mostPods, len(observed.Pods)))
		observed.Pods = observed.Pods[:mostPods]
	}
	for _, pod := range observed.Pods {
		if err := g.add("pods/"+pod.Name+".yaml", pod); err != nil {
			return err
		}
	}
	observed.Events, err = events.Of(ctx, g.cluster, observed)
	if err := g.permit(err); err != nil {
		return err
	}
	if err := g.addEvents(observed); err != nil {
		return err
	}
	if err := g.readMembers(ctx, observed); err != nil {
		return err
	}
	plans, err := g.cluster.Plans(ctx, g.job.Namespace, g.job.Name)
	if err := g.permit(err); err != nil && !apierrors.IsNotFound(err) {
		return err
	}
	for i := range plans {
		if err := g.add("plans/"+plans[i].Name+".yaml", &plans[i]); err != nil {
			return err
		}
	}
	return nil
}

// readMembers reads the Membership of a coordinator-led job.
func (g *gathering) readMembers(ctx context.Context, observed *jobview.Observed) (err error) {
	if g.job.Spec.Lifecycle != v2alpha1.LifecycleCoordinatorLed {
		return nil
	}
	observed.Members.List, err = g.cluster.Membership(ctx, g.job)
	observed.Members.IsRead = err == nil
	if err := g.permit(err); err != nil || observed.Members.List == nil {
		return err
	}
	return g.add("membership.yaml", observed.Members.List)
}

// addEvents adds the Events of the job and its pods.
func (g *gathering) addEvents(observed *jobview.Observed) error {
	all := []any{}
	for _, event := range document.Events(jobview.Of(observed).Events) {
		content, err := k8sruntime.DefaultUnstructuredConverter.ToUnstructured(&event)
		if err != nil {
			return fmt.Errorf("encoding an event: %w", err)
		}
		all = append(all, content)
	}
	g.known = append(g.known, object{"events.yaml", map[string]any{"events": all}})
	return nil
}

// add adds an object without its managed fields, and without the copy that kubectl apply keeps.
func (g *gathering) add(file string, of client.Object) error {
	of, isObject := of.DeepCopyObject().(client.Object)
	if !isObject {
		return fmt.Errorf("%s: is no object", file)
	}
	of.SetManagedFields(nil)
	annotations := of.GetAnnotations()
	delete(annotations, corev1.LastAppliedConfigAnnotation)
	of.SetAnnotations(annotations)
	content, err := k8sruntime.DefaultUnstructuredConverter.ToUnstructured(of)
	if err != nil {
		return fmt.Errorf("encoding %s: %w", file, err)
	}
	g.known = append(g.known, object{file, content})
	return nil
}

// permit records what the user may not read, and returns other errors.
func (g *gathering) permit(err error) error {
	if cluster.IsDenied(err) {
		g.lacks = append(g.lacks, err.Error())
		return nil
	}
	return err
}

// learnSecrets reads the Secrets that the objects refer to, to know what must not be in the archive.
func (g *gathering) learnSecrets(ctx context.Context) error {
	read := map[string]bool{}
	for _, one := range g.known {
		for _, name := range secretsOf(one.content) {
			if read[name] {
				continue
			}
			read[name] = true
			secret := &corev1.Secret{}
			err := g.cluster.Get(ctx, g.job.Namespace, name, secret)
			switch {
			case err == nil:
				g.redact.learn(secret)
			case cluster.IsDenied(err):
				g.redact.isBlind = true
				g.lacks = append(g.lacks, "the logs and messages of programs, which may have values of Secret "+name+": "+err.Error())
			case !apierrors.IsNotFound(err):
				return err
			}
		}
	}
	return nil
}

// writeLogs writes the logs of the main containers, also of the run before the last.
func (g *gathering) writeLogs(ctx context.Context, pods []*corev1.Pod) error {
	if !g.logs {
		return nil
	}
	for _, pod := range pods {
		container := names.MainContainerOf(pod).Name
		for _, previous := range []bool{false, true} {
			text, err := g.log(ctx, pod.Name, container, previous)
			if apierrors.IsBadRequest(err) || apierrors.IsNotFound(err) || text == "" && err == nil {
				continue // The container has not started, or not twice.
			}
			if err != nil {
				g.lacks = append(g.lacks, err.Error())
				break
			}
			file := "logs/" + pod.Name + map[bool]string{false: ".log", true: ".previous.log"}[previous]
			if err := g.archive.text(file, g.redact.clean(text)); err != nil {
				return err
			}
		}
	}
	return nil
}

// log returns the last lines of a log. A line that is cut at the bound is dropped, as it may end in a part of a secret.
func (g *gathering) log(ctx context.Context, pod, container string, previous bool) (string, error) {
	stream, err := g.cluster.In(g.job.Namespace).Logs(ctx, pod, &corev1.PodLogOptions{Container: container, Previous: previous, TailLines: &g.tail})
	if err != nil {
		return "", err
	}
	defer stream.Close() //nolint:errcheck // It is only read.
	content, err := io.ReadAll(io.LimitReader(stream, mostBytes+1))
	if err != nil {
		return "", fmt.Errorf("reading the log of pod %s: %w", pod, err)
	}
	text := string(content)
	if len(text) > mostBytes {
		text = text[:strings.LastIndex(text, "\n")+1] + "... and more\n"
	}
	return text, nil
}

// readme says what the archive has.
func (g *gathering) readme(ctx context.Context) string {
	var text strings.Builder
	fmt.Fprintf(&text, "Job %s/%s, as kubectl di bugreport found it.\n\nPlugin: %s, %s/%s\n", g.job.Namespace, g.job.Name, g.version, runtime.GOOS, runtime.GOARCH)
	if version, err := g.cluster.Version(); err == nil {
		fmt.Fprintf(&text, "Kubernetes: %s\n", version)
	} else {
		g.lacks = append(g.lacks, err.Error())
	}
	var deployments appsv1.DeploymentList
	err := g.cluster.List(ctx, names.SystemNamespace, &deployments, client.MatchingLabels{"app.kubernetes.io/name": "di-orchestrator"})
	if err != nil {
		g.lacks = append(g.lacks, err.Error())
	}
	for i := range deployments.Items {
		for _, container := range deployments.Items[i].Spec.Template.Spec.Containers {
			fmt.Fprintf(&text, "%s: %s\n", deployments.Items[i].Name, container.Image)
		}
	}
	text.WriteString("\nValues of Secrets are replaced by " + redacted + ".\n")
	for _, lack := range g.lacks {
		text.WriteString("Left out: " + strings.ReplaceAll(lack, "\n", "\n  ") + "\n")
	}
	return text.String()
}
