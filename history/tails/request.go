// Copyright The DI Orchestrator Authors.
// SPDX-License-Identifier: Apache-2.0

package tails

import (
	"context"
	"errors"
	"fmt"
	"io"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"opendilab.org/di-orchestrator/history/observe"
	"opendilab.org/di-orchestrator/history/record"
)

const (
	// requestTime bounds one attempt.
	requestTime = 15 * time.Second
	// maxBytes bounds what is read of a log. A kubelet sends the first bytes of the last lines, so that
	// fewer lines are asked for where these are too long.
	maxBytes = 1 << 20
	// noLog begins what a kubelet sends instead of a log that it lacks.
	noLog = "unable to retrieve container logs for "
	// maxNote bounds the cause in a note.
	maxNote = 512
)

// lines are how many are asked for.
func lines() []int64 { return []int64{500, 20, 1} }

var (
	// errOther says that the log was of another run.
	errOther = errors.New("the container has run again since, and this log is gone")
	// errMoved says that the container has run again while its log was read.
	errMoved = errors.New("the container has run again meanwhile")
	errNoLog = errors.New("the kubelet has no log")
)

func isPermanent(err error) bool {
	return apierrors.IsNotFound(err) || apierrors.IsForbidden(err) || errors.Is(err, errOther)
}

func note(err error) string {
	return "[this log could not be read: " + record.Text(err.Error(), maxNote) + "]\n"
}

// tail reads a tail. Names are used again, so that it is of this run only if the pod is still there with it.
func (r *Reader) tail(ctx context.Context, item *wanted) (record.Tail, error) {
	ctx, cancel := context.WithTimeout(ctx, requestTime)
	defer cancel()
	tail := item.ending.Tail
	text, isCut, err := r.log(ctx, item)
	if err != nil {
		return tail, err
	}
	pod, err := r.Pods.Pods(item.namespace).Get(ctx, tail.Pod, metav1.GetOptions{})
	switch {
	case apierrors.IsNotFound(err):
		// It was deleted since.
	case err != nil:
		return tail, fmt.Errorf("reading pod %s: %w", tail.Pod, err)
	default:
		if err := item.compare(pod); err != nil {
			return tail, err
		}
	}
	tail.Text, tail.Truncated = r.Redact.Text(text), isCut
	// What replaces a match may be longer.
	tail.Text = tail.Text[max(len(tail.Text)-maxBytes, 0):]
	return tail, nil
}

// compare returns an error if the log that was read may be of another run.
func (w *wanted) compare(pod *corev1.Pod) error {
	for _, ending := range observe.Endings(pod) {
		isSame := ending.PodUID == w.ending.PodUID && ending.Container == w.ending.Container && ending.Restarts == w.ending.Restarts
		switch {
		case !isSame:
		case ending.Previous == w.ending.Previous:
			return nil
		default:
			w.ending.Previous = ending.Previous
			return errMoved
		}
	}
	return errOther
}

// log returns the last lines, and whether there may be more before them.
func (r *Reader) log(ctx context.Context, item *wanted) (text string, isCut bool, err error) {
	for _, count := range lines() {
		limit := int64(maxBytes)
		options := &corev1.PodLogOptions{Container: item.ending.Container, Previous: item.ending.Previous, TailLines: &count, LimitBytes: &limit}
		if text, err = r.stream(ctx, item, options); err != nil {
			return "", false, err
		}
		isCut = isCut || int64(strings.Count(text, "\n")) >= count
		if len(text) < maxBytes {
			break
		}
		isCut = true
	}
	if strings.HasPrefix(text, noLog) {
		return "", false, errNoLog
	}
	return text, isCut, nil
}

func (r *Reader) stream(ctx context.Context, item *wanted, options *corev1.PodLogOptions) (text string, err error) {
	stream, err := r.Pods.Pods(item.namespace).GetLogs(item.ending.Pod, options).Stream(ctx)
	if err != nil {
		return "", fmt.Errorf("reading the log of pod %s: %w", item.ending.Pod, err)
	}
	defer func() { err = errors.Join(err, stream.Close()) }()
	// The server keeps to the limit, unless it is another one.
	content, err := io.ReadAll(io.LimitReader(stream, maxBytes))
	if err != nil {
		return "", fmt.Errorf("reading the log of pod %s: %w", item.ending.Pod, err)
	}
	return string(content), nil
}
