// Copyright The DI Orchestrator Authors.
// SPDX-License-Identifier: Apache-2.0

package lifecycle

import (
	"cmp"
	"fmt"
	"slices"
	"strconv"
	"strings"

	corev1 "k8s.io/api/core/v1"

	"opendilab.org/di-orchestrator/apis/v2alpha1"
)

// The kubelet's words for why a container waits, and for how one ended that
// never ran.
const (
	crashLoopBackOff           = "CrashLoopBackOff"
	containerCreating          = "ContainerCreating"
	podInitializing            = "PodInitializing"
	createContainerConfigError = "CreateContainerConfigError"
	invalidImageName           = "InvalidImageName"
	errImageNeverPull          = "ErrImageNeverPull"
	startError                 = "StartError"
	containerCannotRun         = "ContainerCannotRun"
)

// container is a container of a pod: what is wanted and what has become of it.
type container struct {
	pod    *corev1.Pod
	spec   *corev1.Container
	status *corev1.ContainerStatus
	isInit bool
}

// containerStalls are what keeps the containers of a pod from running, and
// those that are told to run from staying.
func containerStalls(pod *corev1.Pod) []stall {
	var stalls []stall
	for _, group := range []struct {
		specs    []corev1.Container
		statuses []corev1.ContainerStatus
		isInit   bool
	}{
		{pod.Spec.InitContainers, pod.Status.InitContainerStatuses, true},
		{pod.Spec.Containers, pod.Status.ContainerStatuses, false},
	} {
		for i := range group.statuses {
			c := container{pod: pod, spec: specOf(group.specs, group.statuses[i].Name), status: &group.statuses[i], isInit: group.isInit}
			if found, stalled := c.stall(); stalled {
				stalls = append(stalls, found)
			}
		}
	}
	return stalls
}

// specOf returns the container of a name; one without more to say where there is none.
func specOf(specs []corev1.Container, name string) *corev1.Container {
	for i := range specs {
		if specs[i].Name == name {
			return &specs[i]
		}
	}
	return &corev1.Container{Name: name}
}

func (c *container) stall() (stall, bool) {
	passing := []string{"", crashLoopBackOff, containerCreating, podInitializing}
	if waiting := c.status.State.Waiting; waiting != nil && !slices.Contains(passing, waiting.Reason) {
		return c.waitingStall(waiting), true
	}
	end := c.lastEnd()
	switch {
	case end == nil:
		return stall{reason: v2alpha1.ReasonCrashLoop, text: c.name() + " crashes again and again"}, c.backsOff()
	case neverRan(end):
		return c.startStall(end.Message), c.status.State.Running == nil && (c.backsOff() || c.isRestarted(end))
	}
	return c.crashStall(end), c.backsOff() || c.isRestarted(end) && c.crashes(end)
}

// waitingStall reads what the kubelet says of a container that it cannot start.
// It takes turns between words for the same: ErrImagePull and ImagePullBackOff.
func (c *container) waitingStall(waiting *corev1.ContainerStateWaiting) stall {
	image := fmt.Sprintf("image %q of %s", cmp.Or(c.spec.Image, c.status.Image), c.name())
	switch waiting.Reason {
	case "ErrImagePull", "ImagePullBackOff", "ImageInspectError", "RegistryUnavailable", "SignatureValidationFailed":
		return stall{reason: v2alpha1.ReasonImagePull, text: image + " cannot be pulled", lastWords: pullWords(waiting.Message)}
	case invalidImageName:
		return stall{reason: v2alpha1.ReasonImagePull, text: image + " is not a valid name"}
	case errImageNeverPull:
		return stall{reason: v2alpha1.ReasonImagePull, text: image + " is not on the node and imagePullPolicy is Never"}
	case createContainerConfigError:
		// The kubelet adds the pod's UID to some of these.
		message, _, _ := strings.Cut(waiting.Message, " (pod: ")
		return stall{reason: v2alpha1.ReasonContainerConfig, text: c.name() + " cannot be configured: " + plain(message)}
	}
	return c.startStall(cmp.Or(waiting.Message, waiting.Reason))
}

func (c *container) startStall(message string) stall {
	return stall{reason: v2alpha1.ReasonContainerStart, text: c.name() + " cannot be started", lastWords: lastLine(message)}
}

// lastEnd is how the container ended last, nil where it never did.
func (c *container) lastEnd() *corev1.ContainerStateTerminated {
	if c.status.State.Terminated != nil {
		return c.status.State.Terminated
	}
	return c.status.LastTerminationState.Terminated
}

// neverRan tells an end for want of a start from that of a program.
func neverRan(end *corev1.ContainerStateTerminated) bool {
	return end.Reason == startError || end.Reason == containerCannotRun
}

// backsOff tells whether the kubelet itself says that the container crashes
// again and again.
func (c *container) backsOff() bool {
	return c.status.State.Waiting != nil && c.status.State.Waiting.Reason == crashLoopBackOff
}

// isRestarted tells whether the kubelet starts the container again after it
// ended so.
func (c *container) isRestarted(end *corev1.ContainerStateTerminated) bool {
	policy := cmp.Or(c.pod.Spec.RestartPolicy, corev1.RestartPolicyAlways)
	if c.isInit && policy == corev1.RestartPolicyAlways {
		policy = corev1.RestartPolicyOnFailure
	}
	if c.spec.RestartPolicy != nil {
		policy = corev1.RestartPolicy(*c.spec.RestartPolicy)
	}
	return policy == corev1.RestartPolicyAlways || policy == corev1.RestartPolicyOnFailure && end.ExitCode != 0
}

// crashes tells whether an end is one of several in a row. While a container
// runs again, only time can tell that it was the last.
func (c *container) crashes(end *corev1.ContainerStateTerminated) bool {
	switch {
	case end.FinishedAt.Sub(end.StartedAt.Time) >= stableAfter:
		return false
	case c.status.State.Terminated != nil:
		return c.status.RestartCount >= pastCrashes
	}
	return c.status.RestartCount > pastCrashes
}

func (c *container) crashStall(end *corev1.ContainerStateTerminated) stall {
	found := stall{
		reason: v2alpha1.ReasonCrashLoop,
		text: fmt.Sprintf("%s crashes again and again: %s, restarted %s",
			c.name(), exitOf(end), times(c.status.RestartCount)),
		lastWords: lastLine(end.Message),
	}
	if running := c.status.State.Running; running != nil {
		found.until = running.StartedAt.Add(stableAfter)
	}
	return found
}

func (c *container) name() string {
	if c.isInit {
		return "init container " + c.status.Name
	}
	return "container " + c.status.Name
}

// exitOf says how a container ended: a reason of its own, such as OOMKilled,
// says more than the kubelet's Error and Completed.
func exitOf(end *corev1.ContainerStateTerminated) string {
	switch end.Reason {
	case "", "Error", "Completed":
		return fmt.Sprintf("exit code %d", end.ExitCode)
	}
	return fmt.Sprintf("%s, exit code %d", end.Reason, end.ExitCode)
}

// times says how often something was done, in steps, as a count that is told
// exactly would be told anew at each restart.
func times(count int32) string {
	switch step := stepBelow(count); step {
	case 0, 1:
		return "once"
	default:
		return strconv.Itoa(int(step)) + "+ times"
	}
}

// stepBelow returns the largest of 1, 2, 5, 10, 20, 50, 100 and so on that a
// count has reached.
func stepBelow(count int32) int32 {
	var reached int32
	for unit := int64(1); unit <= int64(count); unit *= 10 {
		for _, factor := range []int64{1, 2, 5} {
			if unit*factor <= int64(count) {
				reached = int32(unit * factor)
			}
		}
	}
	return reached
}

// pullWords returns why an image cannot be pulled, "" where the kubelet only
// says that it waits.
func pullWords(message string) string {
	if strings.HasPrefix(message, "Back-off pulling image ") {
		_, message, _ = strings.Cut(message, ": ErrImagePull: ")
	}
	if strings.HasPrefix(message, "rpc error: code = ") {
		_, message, _ = strings.Cut(message, " desc = ")
	}
	return lastLine(message)
}

// wordsLength is how much of somebody's words is kept, in bytes.
const wordsLength = 240

// lastLine returns the last line that says something: an error's, after its trace.
func lastLine(text string) string {
	text = strings.TrimSpace(text)
	return plain(text[strings.LastIndexByte(text, '\n')+1:])
}

// plain makes words of others fit for one line of ours: in single quotes, as
// ours are double, and of a bounded length. What is wrong stands at the end.
func plain(text string) string {
	return ending(strings.ReplaceAll(strings.Join(strings.Fields(text), " "), `"`, "'"), wordsLength)
}

// ending returns as many bytes of a text, from its end, and says where it was cut.
func ending(text string, length int) string {
	if len(text) > length {
		text = "..." + text[len(text)-length:]
	}
	return strings.ToValidUTF8(text, "")
}
