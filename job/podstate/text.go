// Copyright The DI Orchestrator Authors.
// SPDX-License-Identifier: Apache-2.0

package podstate

import (
	"fmt"
	"slices"
	"strconv"
	"strings"

	corev1 "k8s.io/api/core/v1"
)

// quotedLength bounds a quoted message of another program, in bytes.
const quotedLength = 240

// LastLine returns the last line of a text that is not empty, quotable and bounded. In a stack
// trace that is the error.
func LastLine(text string) string {
	text = strings.TrimSpace(text)
	return quotable(text[strings.LastIndexByte(text, '\n')+1:])
}

// quotable fits a message of another program into one line in double quotes. Its own quotes become
// single, and its length is bounded. The end is kept because it names the cause.
func quotable(text string) string {
	return tail(strings.ReplaceAll(strings.Join(strings.Fields(text), " "), `"`, "'"), quotedLength)
}

// tail returns at most length bytes from the end of a text, and marks the cut.
func tail(text string, length int) string {
	if len(text) > length {
		text = "..." + text[len(text)-length:]
	}
	return strings.ToValidUTF8(text, "")
}

// LastLines joins texts by line ends, bounded as the message of a failure is. The last text is cut from its
// beginning: its last lines have the error.
func LastLines(texts ...string) string {
	last := len(texts) - 1
	head := strings.Join(texts[:last], "\n")
	if left := failureLength - len(head); texts[last] != "" && left > 0 {
		return head + "\n" + tail(texts[last], left)
	}
	return head
}

// exitText describes how a container terminated. A specific reason, such as
// OOMKilled, precedes the exit code; the kubelet's Error and Completed add nothing.
func exitText(end *corev1.ContainerStateTerminated) string {
	switch end.Reason {
	case "", "Error", "Completed":
		return fmt.Sprintf("exit code %d", end.ExitCode)
	}
	return fmt.Sprintf("%s, exit code %d", end.Reason, end.ExitCode)
}

// times describes a count in steps. An exact count would change the message at each restart.
func times(count int32) string {
	switch step := FloorStep(count); step {
	case 0, 1:
		return "once"
	default:
		return strconv.Itoa(int(step)) + "+ times"
	}
}

// FloorStep rounds a count down to 1, 2, 5, 10, 20, 50, 100 and so on.
func FloorStep(count int32) int32 {
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

// SchedulerMessage returns why no node is available. It omits the numbers of nodes, which change as
// nodes and other pods come and go. A message of another scheduler stays unchanged.
func SchedulerMessage(message string) string {
	_, causes, found := strings.Cut(message, " nodes are available: ")
	if !found {
		message, _, _ = strings.Cut(message, " preemption: ")
		return quotable(strings.TrimSuffix(strings.TrimSpace(message), "."))
	}
	// What follows the sentence is what plugins did about it. Each release has more of that: on preemption,
	// and since 1.34 on claims.
	causes, _, _ = strings.Cut(causes, ". ")
	causes = strings.TrimSuffix(strings.TrimSpace(causes), ".")
	// A cause may itself contain a comma.
	var kept []string
	for part := range strings.SplitSeq(causes, ", ") {
		number, cause, counted := strings.Cut(part, " ")
		switch {
		case counted && strings.Trim(number, "0123456789") == "":
			kept = append(kept, cause)
		case len(kept) > 0:
			kept[len(kept)-1] += ", " + part
		default:
			kept = append(kept, part)
		}
	}
	slices.Sort(kept)
	return quotable("no node is available: " + strings.Join(slices.Compact(kept), ", "))
}

// pullMessage returns why an image cannot be pulled, "" if the kubelet only reports its backoff.
func pullMessage(message string) string {
	if strings.HasPrefix(message, "Back-off pulling image ") {
		_, message, _ = strings.Cut(message, ": ErrImagePull: ")
	}
	if strings.HasPrefix(message, "rpc error: code = ") {
		_, message, _ = strings.Cut(message, " desc = ")
	}
	return LastLine(message)
}
