// Copyright The DI Orchestrator Authors.
// SPDX-License-Identifier: Apache-2.0

package programs

import (
	"context"
	"errors"
	"fmt"
	"io"

	"github.com/dustin/go-humanize/english"
	"github.com/spf13/cobra"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/util/wait"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/controller/controllerutil"

	"opendilab.org/di-orchestrator/apis/v2alpha1"
	"opendilab.org/di-orchestrator/internal/names"
)

// releasePage is how many jobs a list has.
const releasePage = 500

func newReleaseCommand() *cobra.Command {
	return installCommand("release-jobs", "Let jobs go that wait for the history",
		`Removes the finalizer by which jobs stay until the history has recorded their end,
with history.require of the configuration, so that no job stays forever once the
operator is gone. No job is deleted, and no pod is touched. The chart runs it after
it is uninstalled. Run it by hand when no operator runs that would add the
finalizer again.`,
		func(ctx context.Context, api client.Client, _ *installOptions, out io.Writer) error {
			total, last := 0, error(nil)
			err := wait.PollUntilContextCancel(ctx, probeInterval, true, func(ctx context.Context) (bool, error) {
				var released int
				released, last = releaseJobs(ctx, api)
				total += released
				// A job may have been created before the list ended.
				return last == nil && released == 0, nil
			})
			if err != nil {
				return errors.Join(err, last)
			}
			_, err = fmt.Fprintln(out, english.Plural(total, "job no longer waits", "jobs no longer wait"), "for the history")
			return err
		})
}

// releaseJobs removes the finalizer from all jobs, and returns from how many. Of a job that others write
// meanwhile, or that fails, the error tells. Jobs may be served in any version.
func releaseJobs(ctx context.Context, api client.Client) (released int, err error) {
	mapping, err := api.RESTMapper().RESTMapping(schema.GroupKind{Group: v2alpha1.GroupName, Kind: "DIJob"})
	if meta.IsNoMatchError(err) {
		return 0, nil
	}
	if err != nil {
		return 0, fmt.Errorf("looking up the served version of jobs: %w", err)
	}
	page := &metav1.PartialObjectMetadataList{}
	kind := mapping.GroupVersionKind
	kind.Kind += "List"
	page.SetGroupVersionKind(kind)
	var failures []error
	for more := true; more; more = page.Continue != "" {
		if err := api.List(ctx, page, client.Limit(releasePage), client.Continue(page.Continue)); err != nil {
			return released, fmt.Errorf("listing jobs: %w", err)
		}
		for i := range page.Items {
			held := &page.Items[i]
			if !controllerutil.ContainsFinalizer(held, names.FinalizerHistory) {
				continue
			}
			held.SetGroupVersionKind(mapping.GroupVersionKind)
			if err := releaseJob(ctx, api, held); err != nil {
				failures = append(failures, err)
				continue
			}
			released++
		}
	}
	return released, errors.Join(failures[:min(len(failures), 3)]...)
}

func releaseJob(ctx context.Context, api client.Client, held *metav1.PartialObjectMetadata) error {
	free := held.DeepCopy()
	controllerutil.RemoveFinalizer(free, names.FinalizerHistory)
	patch := client.MergeFromWithOptions(held, client.MergeFromWithOptimisticLock{})
	if err := client.IgnoreNotFound(api.Patch(ctx, free, patch)); err != nil {
		return fmt.Errorf("removing finalizer %s from job %s/%s: %w", names.FinalizerHistory, held.Namespace, held.Name, err)
	}
	return nil
}
