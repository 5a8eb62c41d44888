// Copyright The DI Orchestrator Authors.
// SPDX-License-Identifier: Apache-2.0

package installation

import (
	"cmp"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"slices"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"opendilab.org/di-orchestrator/apis/v2alpha1"
	"opendilab.org/di-orchestrator/cmd/kubectl-di/internal/cluster"
	"opendilab.org/di-orchestrator/internal/names"
	"opendilab.org/di-orchestrator/upgrade/crds"
	"opendilab.org/di-orchestrator/upgrade/migration"
)

// watchInterval is the interval between checks of the progress.
const watchInterval = 2 * time.Second

// Report is the output of kubectl di migrate status -o.
type Report struct {
	// Done reports whether the migration has finished; a takeover may still run.
	Done      bool       `json:"done"`
	Resources []Resource `json:"resources"`
	// Takeover is that of an earlier release.
	Takeover *Shown `json:"takeover,omitempty"`
}

// Resource is the progress of one kind of objects.
type Resource struct {
	Resource string `json:"resource"`
	Done     bool   `json:"done"`
	// Wanted is the desired version, Storage the storage version, and Stored the versions that
	// objects may still be stored in.
	Wanted  string   `json:"wanted"`
	Storage string   `json:"storage"`
	Stored  []string `json:"stored"`
	Served  []string `json:"served"`
	// Record is the operator's record of the migration.
	Record *migration.Record `json:"record,omitempty"`
	// Rate is in objects per second, and SecondsLeft is estimated from it; 0 if unknown.
	Rate        float64 `json:"rate,omitempty"`
	SecondsLeft float64 `json:"secondsLeft,omitempty"`
	// Next is the next step.
	Next string `json:"next,omitempty"`
}

func (o *migrating) status(ctx context.Context) error {
	found, err := o.Connect()
	if err != nil {
		return err
	}
	printed := ""
	for {
		report, err := o.look(ctx, found)
		if err != nil {
			return err
		}
		var text strings.Builder
		if !o.output.IsText() {
			err = o.output.Print(&text, report)
		} else {
			report.print(&text)
		}
		if err == nil && text.String() != printed {
			printed = text.String()
			_, err = io.WriteString(o.Out, printed)
		}
		if err != nil || report.isDone() || !o.watch {
			return err
		}
		select {
		case <-ctx.Done():
			return fmt.Errorf("stopped watching the storage migration: %w", context.Cause(ctx))
		case <-time.After(watchInterval):
		}
	}
}

// Look reads the state of the migration, and of the takeover of an earlier release. An error is that
// of the migration.
func Look(ctx context.Context, found *cluster.Cluster) (*Report, *Takeover, error) {
	jobs, err := jobsDefinition(ctx, found)
	if err != nil {
		return nil, lookTakeover(ctx, found, nil), err
	}
	report, err := lookMigration(ctx, found, jobs, namespaceOf(jobs))
	return report, lookTakeover(ctx, found, jobs), err
}

// String returns the state in one line.
func (r *Resource) String() string {
	text := fmt.Sprintf("stored in %s, wanted %s, served %s", strings.Join(r.Stored, " and "), r.Wanted, strings.Join(r.Served, " and "))
	if r.hasProgress() {
		text += fmt.Sprintf("; %d of %d objects", r.Record.Done, r.Record.Total)
	}
	if r.Next != "" {
		text += "; next: " + r.Next
	}
	return text
}

// look reads the state of the migration and of the takeover.
func (o *migrating) look(ctx context.Context, found *cluster.Cluster) (*Report, error) {
	jobs, err := jobsDefinition(ctx, found)
	if err != nil {
		return nil, err
	}
	report, err := lookMigration(ctx, found, jobs, cmp.Or(o.namespace, namespaceOf(jobs)))
	if err != nil {
		return nil, err
	}
	shown := lookTakeover(ctx, found, jobs).Show(nil, false)
	report.Takeover = &shown
	return report, nil
}

// lookMigration reads the state of the migration, which an operator in the namespace records.
func lookMigration(ctx context.Context, found *cluster.Cluster, jobs *apiextensionsv1.CustomResourceDefinition,
	namespace string) (*Report, error) {
	stored := &corev1.ConfigMap{}
	if err := client.IgnoreNotFound(found.Get(ctx, namespace, migration.RecordName, stored)); err != nil {
		return nil, err
	}
	definitions := []*apiextensionsv1.CustomResourceDefinition{jobs}
	configs := &apiextensionsv1.CustomResourceDefinition{}
	err := found.Get(ctx, "", "aggregatorconfigs."+v2alpha1.GroupName, configs)
	if client.IgnoreNotFound(err) != nil {
		return nil, err
	}
	if err == nil {
		definitions = append(definitions, configs)
	}
	report := &Report{Done: true}
	for _, definition := range definitions {
		one, err := progressOf(definition, jobs, stored, namespace)
		if err != nil {
			return nil, err
		}
		report.Resources = append(report.Resources, *one)
		report.Done = report.Done && one.Done
	}
	return report, nil
}

// namespaceOf returns the namespace of the webhooks that the definition names, which is the
// operator's.
func namespaceOf(definition *apiextensionsv1.CustomResourceDefinition) string {
	if conversion := definition.Spec.Conversion; conversion != nil && conversion.Webhook != nil &&
		conversion.Webhook.ClientConfig != nil && conversion.Webhook.ClientConfig.Service != nil {
		return conversion.Webhook.ClientConfig.Service.Namespace
	}
	return names.SystemNamespace
}

// progressOf returns the progress of one kind of objects.
func progressOf(definition, jobs *apiextensionsv1.CustomResourceDefinition, stored *corev1.ConfigMap, namespace string) (*Resource, error) {
	one := &Resource{
		Resource: definition.Spec.Names.Plural, Wanted: cmp.Or(jobs.Annotations[crds.AnnotationStorageVersion], v2alpha1.Version),
		Storage: crds.StorageOf(definition), Stored: definition.Status.StoredVersions,
	}
	observed := migration.Observed{
		Wanted: one.Wanted, Stopped: jobs.Annotations[crds.AnnotationStopServing], Storage: one.Storage, Stored: one.Stored,
		Retired: definition.Annotations[crds.AnnotationRetired] != "",
	}
	for i := range definition.Spec.Versions {
		version := &definition.Spec.Versions[i]
		observed.Versions = append(observed.Versions, migration.Version{Name: version.Name, Served: version.Served})
		if version.Served {
			one.Served = append(one.Served, version.Name)
		}
	}
	if content, is := stored.Data[one.Resource]; is {
		one.Record = &migration.Record{}
		if err := json.Unmarshal([]byte(content), one.Record); err != nil {
			return nil, fmt.Errorf("reading configmap %s/%s: %s: %w", stored.Namespace, stored.Name, one.Resource, err)
		}
		observed.Record = *one.Record
	}
	one.Done = observed.IsAtRest() || observed.Retired && isStored(&observed)
	if one.Done {
		return one, nil
	}
	if one.hasProgress() {
		if one.Rate = one.Record.Rate(); one.Rate > 0 {
			one.SecondsLeft = float64(max(one.Record.Total-one.Record.Done, 0)) / one.Rate
		}
	}
	one.Next = next(&observed, one.Record != nil, namespace)
	return one, nil
}

// isDone reports whether neither the migration nor a takeover runs.
func (r *Report) isDone() bool { return r.Done && (r.Takeover == nil || !r.Takeover.isRunning()) }

// hasProgress reports whether the record is about the desired version, and not about a previous
// migration.
func (r *Resource) hasProgress() bool {
	return r.Record != nil && r.Record.Target == r.Wanted && r.Record.Total > 0
}

// isStored reports whether all objects are stored in the desired version.
func isStored(o *migration.Observed) bool {
	return o.Storage == o.Wanted && slices.Equal(o.Stored, []string{o.Wanted})
}

// next returns the next step.
func next(o *migration.Observed, recorded bool, namespace string) string {
	switch {
	case o.Retired:
		return "it continues when DI Orchestrator, which was uninstalled, is installed again"
	case !slices.ContainsFunc(o.Versions, func(version migration.Version) bool { return version.Name == o.Wanted }):
		return "an operator of this release adds version " + o.Wanted + ", which the definition lacks"
	case o.Record.Blocked != "":
		return "waits: " + o.Record.Blocked
	case !recorded:
		return "an operator in namespace " + namespace + " begins; none has recorded anything yet"
	}
	for _, version := range o.Versions {
		if !version.Served && version.Name != o.Stopped {
			return version.Name + " is served again"
		}
	}
	switch {
	case o.Storage != o.Wanted:
		return "objects will be stored in " + o.Wanted
	case isStored(o):
		return nextOfServing(o)
	}
	return nextOfWriting(o)
}

// nextOfWriting returns the next step while objects may be stored in another version.
func nextOfWriting(o *migration.Observed) string {
	record := &o.Record
	switch {
	case record.Target != o.Wanted:
		return "the operator begins to write all objects once"
	case record.Phase == migration.PhaseSettling:
		return "the API servers learn that " + o.Wanted + " is stored; then all objects are written once"
	case len(record.Failed) > 0 && record.Listed:
		return "the objects that could not be written are tried again"
	}
	return "the rest of the objects is written"
}

// nextOfServing returns the next step when all objects are stored in the desired version.
func nextOfServing(o *migration.Observed) string {
	switch {
	case slices.Contains(o.Versions, migration.Version{Name: o.Stopped, Served: true}):
		return "owner references will name " + o.Wanted + "; then " + o.Stopped + " is no longer served"
	case o.Stopped != "" && o.Record.Cleaned != o.Stopped:
		return o.Stopped + " is removed from the objects' managedFields"
	}
	return "owner references will name " + o.Wanted
}

// failuresShown is the maximum number of named objects that could not be written.
const failuresShown = 10

// print writes the report as text.
func (r *Report) print(text *strings.Builder) {
	if r.Takeover != nil {
		r.Takeover.print(text)
	}
	for i := range r.Resources {
		one := &r.Resources[i]
		fmt.Fprintf(text, "%s: stored in %s, wanted %s, served %s\n",
			one.Resource, strings.Join(one.Stored, " and "), one.Wanted, strings.Join(one.Served, " and "))
		if one.hasProgress() {
			record := one.Record
			fmt.Fprintf(text, "  %d of %d objects", record.Done, record.Total)
			if one.Rate > 0 && !one.Done {
				fmt.Fprintf(text, ", %.1f a second, %s left", one.Rate, time.Duration(one.SecondsLeft*float64(time.Second)).Round(time.Second))
			}
			text.WriteString("\n")
			for _, failure := range record.Failed[:min(len(record.Failed), failuresShown)] {
				fmt.Fprintf(text, "  cannot be written: %s/%s: %s\n", failure.Namespace, failure.Name, failure.Message)
			}
			if more := len(record.Failed) - failuresShown; more > 0 {
				fmt.Fprintf(text, "  and %d more\n", more)
			}
		}
		if one.Next != "" {
			fmt.Fprintf(text, "  next: %s\n", one.Next)
		}
	}
	if r.isDone() {
		text.WriteString("All is done.\n")
	}
}
