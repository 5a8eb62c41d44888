// Copyright The DI Orchestrator Authors.
// SPDX-License-Identifier: Apache-2.0

//go:build web

package main

import (
	"flag"
	"fmt"
	"os"
	"os/exec"
	"strconv"
	"testing"

	"golang.org/x/sync/errgroup"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"opendilab.org/di-orchestrator/apis/v2alpha1"
)

var manyJobs = flag.Int("web.jobs", 5000, "how many jobs the page shows")

// TestPageIsUsableInABrowser opens the page in Chromium. web/e2e/page.mjs has what it does there.
func TestPageIsUsableInABrowser(t *testing.T) {
	w := theWorld(t)
	ns := w.namespace(t)
	w.trainer(t, ns, "breakout")
	w.setStatus(t, w.workers(t, ns, "pong", v2alpha1.Task{Type: v2alpha1.TaskTypeCollector}), func(status *v2alpha1.DIJobStatus) {
		status.Phase, status.Summary = v2alpha1.JobPending, &v2alpha1.StatusSummary{Reason: "ImagePull"}
		status.Conditions = []v2alpha1.DIJobCondition{{
			Type: "Stalled", Status: corev1.ConditionTrue, Reason: "ImagePull", Message: "pong-collector-0 cannot pull image di",
		}}
	})
	create, ctx := errgroup.WithContext(t.Context())
	create.SetLimit(16)
	for i := range *manyJobs {
		create.Go(func() error {
			return w.live.Create(ctx, &v2alpha1.DIJob{
				ObjectMeta: metav1.ObjectMeta{Namespace: ns, Name: fmt.Sprintf("many-%04d", i)},
				Spec:       v2alpha1.DIJobSpec{Tasks: []v2alpha1.Task{{Type: v2alpha1.TaskTypeCollector, Template: podTemplate()}}},
			})
		})
	}
	must(t, create.Wait())
	w.grant(t, ns, user("viewer"), rule(v2alpha1.GroupName, "dijobs", "get"), rule(v2alpha1.GroupName, "dijobs", "list"), rule(v2alpha1.GroupName, "dijobs", "watch"))
	command := exec.CommandContext(t.Context(), "node", "e2e/page.mjs",
		w.printedURL(t, ns, "-n", ns).String(), w.printedURL(t, ns, "-n", ns, "--as", "viewer").String(), ns, strconv.Itoa(*manyJobs+2))
	command.Dir, command.Stdout, command.Stderr = "../../web", os.Stdout, os.Stderr
	must(t, command.Run())
}
