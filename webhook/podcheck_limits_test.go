// Copyright The DI Orchestrator Authors.
// SPDX-License-Identifier: Apache-2.0

package webhook

import (
	"context"
	"fmt"
	"net/http"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	admissionv1 "k8s.io/api/admission/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/utils/ptr"

	"opendilab.org/di-orchestrator/webhook/podcheck"
)

// refusing returns a finding about every pod.
func refusing(context.Context, *podcheck.Pod, string) (podcheck.Findings, error) {
	return podcheck.Findings{Refused: []podcheck.Finding{{Message: "no"}}}, nil
}

// dryRun returns the review of a dry run.
func dryRun(tb testing.TB, job string) []byte {
	tb.Helper()
	return review(tb, &admissionv1.AdmissionRequest{DryRun: ptr.To(true), Object: runtime.RawExtension{Raw: []byte(job)}}, "")
}

// jobOf returns a job of that many tasks.
func jobOf(count int, image string) string {
	tasks := make([]string, count)
	for i := range tasks {
		tasks[i] = fmt.Sprintf(`{"type":"none","name":"t%d","replicas":1,"template":{"spec":{"containers":[{"name":"a","image":%q}]}}}`, i, image)
	}
	return `{"apiVersion":"diengine.opendilab.org/v2alpha1","kind":"DIJob","metadata":{"name":"j"},"spec":{"tasks":[` + strings.Join(tasks, ",") + `]}}`
}

// tried asks for a check of a job, which must be allowed, and returns the warnings.
func tried(tb testing.TB, handler http.Handler, job string) []string {
	tb.Helper()
	answer := ask(tb, handler, PathCheckPods+"/"+testToken, dryRun(tb, job))
	if !answer.Allowed {
		tb.Errorf("refused: %+v", answer.Result)
	}
	return answer.Warnings
}

const oneIsRefused = "pods would be refused: no"

func TestFourJobsAreCheckedAtATimeAndAFifthIsNotUntilOneIsDone(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		release := make(chan struct{})
		handler := handlerThat(t, func(ctx context.Context, pod *podcheck.Pod, validation string) (podcheck.Findings, error) {
			<-release
			return refusing(ctx, pod, validation)
		})
		job := jobOf(1, "di")
		var first [mostChecks][]string
		var group sync.WaitGroup
		for i := range first {
			group.Go(func() { first[i] = tried(t, handler, job) })
		}
		// All of them are being tried.
		synctest.Wait()
		want := []string{"the pods of this job are not checked: too many jobs are checked at the same time"}
		if got := tried(t, handler, job); !slices.Equal(got, want) {
			t.Errorf("one more: got %q, want %q", got, want)
		}
		close(release)
		group.Wait()
		for i, got := range append(first[:], tried(t, handler, job)) {
			if !slices.Equal(got, []string{oneIsRefused}) {
				t.Errorf("job %d: got %q", i, got)
			}
		}
	})
}

func TestAJobOf256KiBIsCheckedAndALargerOneIsNot(t *testing.T) {
	t.Parallel()
	handler := handlerThat(t, refusing)
	image := strings.Repeat("i", mostCheckedBytes-len(jobOf(1, "")))
	for want, job := range map[string]string{
		oneIsRefused: jobOf(1, image),
		"the pods of this job are not checked: the job has more than 262144 bytes": jobOf(1, image+"i"),
	} {
		if got := tried(t, handler, job); !slices.Equal(got, []string{want}) {
			t.Errorf("%d bytes: got %q, want %q", len(job), got, want)
		}
	}
}

func TestACheckOfPodsEndsAfterFiveSecondsWithWhatItHasFound(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		handler := handlerThat(t, func(ctx context.Context, pod *podcheck.Pod, validation string) (podcheck.Findings, error) {
			if pod.Task != "t0" {
				<-ctx.Done()
				return podcheck.Findings{}, ctx.Err()
			}
			return refusing(ctx, pod, validation)
		})
		started := time.Now()
		got := tried(t, handler, jobOf(3, "di"))
		const untried = "the pods of task %s are not checked: the API server did not try one"
		want := []string{oneIsRefused, fmt.Sprintf(untried, "t1"), fmt.Sprintf(untried, "t2")}
		if took := time.Since(started); took != checkTime || !slices.Equal(got, want) {
			t.Errorf("after %s: got %q, want %q after %s", took, got, want, checkTime)
		}
	})
}
