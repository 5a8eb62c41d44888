// Copyright The DI Orchestrator Authors.
// SPDX-License-Identifier: Apache-2.0

package migrate

import (
	"cmp"
	"context"
	"fmt"
	"io"
	"slices"
	"strings"
	"time"

	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"

	"opendilab.org/di-orchestrator/apis/v2alpha1"
	"opendilab.org/di-orchestrator/cmd/kubectl-di/internal/cluster"
	"opendilab.org/di-orchestrator/internal/names"
	"opendilab.org/di-orchestrator/internal/upgrade/crds"
	"opendilab.org/di-orchestrator/internal/upgrade/migration"
)

// Report is what kubectl di migrate status -o prints.
type Report struct {
	// Done says that nothing is left to do.
	Done      bool       `json:"done"`
	Resources []Resource `json:"resources"`
}

// Resource is how far one kind of objects is.
type Resource struct {
	Resource string `json:"resource"`
	Done     bool   `json:"done"`
	// Wanted is the version to store objects in, Storage the one that
	// they are written in, and Stored those that any may be stored in.
	Wanted  string   `json:"wanted"`
	Storage string   `json:"storage"`
	Stored  []string `json:"stored"`
	Served  []string `json:"served"`
	// Record is what the operator has recorded of it.
	Record *migration.Record `json:"record,omitempty"`
	// Rate is in objects a second, and SecondsLeft by that; 0 where it is not known.
	Rate        float64 `json:"rate,omitempty"`
	SecondsLeft float64 `json:"secondsLeft,omitempty"`
	// Next says what comes next.
	Next string `json:"next,omitempty"`
}

func (o *options) status(ctx context.Context) error {
	if err := o.output.Check(); err != nil {
		return err
	}
	found, err := o.flags.Connect()
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
			_, err = io.WriteString(o.streams.Out, printed)
		}
		if err != nil || report.Done || !o.watch {
			return err
		}
		select {
		case <-ctx.Done():
			return fmt.Errorf("stopped to watch the storage migration: %w", context.Cause(ctx))
		case <-time.After(watchInterval):
		}
	}
}

// wish is what an administrator wants, and where the operator is that obeys.
type wish struct {
	stored, stopped, namespace string
}

// look asks the cluster how far it is.
func (o *options) look(ctx context.Context, found *cluster.Cluster) (*Report, error) {
	jobs, err := jobsDefinition(ctx, found)
	if err != nil {
		return nil, err
	}
	wanted := wish{
		stored:    cmp.Or(jobs.Annotations[crds.AnnotationStorageVersion], v2alpha1.Version),
		stopped:   jobs.Annotations[crds.AnnotationStopServing],
		namespace: cmp.Or(o.namespace, namespaceOf(jobs)),
	}
	records, err := found.MigrationRecords(ctx, wanted.namespace)
	if err != nil {
		return nil, err
	}
	definitions := []*apiextensionsv1.CustomResourceDefinition{jobs}
	configs, err := found.Definition(ctx, "aggregatorconfigs")
	if err != nil {
		return nil, err
	}
	if configs != nil {
		definitions = append(definitions, configs)
	}
	report := &Report{Done: true}
	for _, definition := range definitions {
		one := describe(definition, records, wanted)
		report.Resources = append(report.Resources, one)
		report.Done = report.Done && one.Done
	}
	return report, nil
}

// namespaceOf returns the namespace of the operator, to whose webhooks the
// definition leads.
func namespaceOf(definition *apiextensionsv1.CustomResourceDefinition) string {
	if conversion := definition.Spec.Conversion; conversion != nil && conversion.Webhook != nil &&
		conversion.Webhook.ClientConfig != nil && conversion.Webhook.ClientConfig.Service != nil {
		return conversion.Webhook.ClientConfig.Service.Namespace
	}
	return names.SystemNamespace
}

// versionsOf returns the names of the versions of a definition.
func versionsOf(definition *apiextensionsv1.CustomResourceDefinition) []string {
	var found []string
	for i := range definition.Spec.Versions {
		found = append(found, definition.Spec.Versions[i].Name)
	}
	return found
}

// describe says how far one kind of objects is.
func describe(definition *apiextensionsv1.CustomResourceDefinition, records map[string]migration.Record, wanted wish) Resource {
	one := Resource{
		Resource: definition.Spec.Names.Plural, Wanted: wanted.stored,
		Storage: crds.StorageOf(definition), Stored: definition.Status.StoredVersions,
	}
	observed := migration.Observed{
		Wanted: wanted.stored, Stopped: wanted.stopped, Storage: one.Storage, Stored: one.Stored,
		Retired: definition.Annotations[crds.AnnotationRetired] != "",
	}
	for i := range definition.Spec.Versions {
		version := &definition.Spec.Versions[i]
		observed.Versions = append(observed.Versions, migration.Version{Name: version.Name, Served: version.Served})
		if version.Served {
			one.Served = append(one.Served, version.Name)
		}
	}
	if record, is := records[one.Resource]; is {
		observed.Record, one.Record = record, &record
	}
	one.Done = observed.IsAtRest() || observed.Retired && isStored(&observed)
	if one.Done {
		return one
	}
	if one.hasProgress() {
		if one.Rate = one.Record.Rate(); one.Rate > 0 {
			one.SecondsLeft = float64(max(one.Record.Total-one.Record.Done, 0)) / one.Rate
		}
	}
	one.Next = next(&observed, one.Record != nil, wanted.namespace)
	return one
}

// hasProgress reports whether the record counts objects of the wanted version, and
// not of a migration before.
func (r *Resource) hasProgress() bool {
	return r.Record != nil && r.Record.Target == r.Wanted && r.Record.Total > 0
}

// isStored reports whether all objects are stored as they are wanted.
func isStored(o *migration.Observed) bool {
	return o.Storage == o.Wanted && slices.Equal(o.Stored, []string{o.Wanted})
}

// next says what comes next.
func next(o *migration.Observed, recorded bool, namespace string) string {
	switch {
	case o.Retired:
		return "it goes on when DI Orchestrator, which was uninstalled, is installed again"
	case !slices.ContainsFunc(o.Versions, func(version migration.Version) bool { return version.Name == o.Wanted }):
		return "an operator of this release adds version " + o.Wanted + ", which the definition has not"
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
		return "objects come to be stored in " + o.Wanted
	case isStored(o):
		return nextOfServing(o)
	}
	return nextOfWriting(o)
}

// nextOfWriting says what comes next while objects may be stored in another
// version.
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

// nextOfServing says what comes next when all objects are stored as wanted.
func nextOfServing(o *migration.Observed) string {
	switch {
	case slices.Contains(o.Versions, migration.Version{Name: o.Stopped, Served: true}):
		return "owner references come to name " + o.Wanted + "; then " + o.Stopped + " ceases to be served"
	case o.Stopped != "" && o.Record.Cleaned != o.Stopped:
		return o.Stopped + " is taken from the objects' managedFields"
	}
	return "owner references come to name " + o.Wanted
}

// failuresShown is how many objects are named that could not be written.
const failuresShown = 10

// print writes the report for people.
func (r *Report) print(text *strings.Builder) {
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
	if r.Done {
		text.WriteString("All is done.\n")
	}
}
