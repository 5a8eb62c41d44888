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
	"opendilab.org/di-orchestrator/internal/crds"
	"opendilab.org/di-orchestrator/internal/migration"
	"opendilab.org/di-orchestrator/internal/names"
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
	// Wanted is the version that objects are to be stored in, Storage the one that
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
	for {
		report, err := o.look(ctx, found)
		if err != nil {
			return err
		}
		if !o.output.IsText() {
			err = o.output.Print(o.streams.Out, report)
		} else {
			err = report.print(o.streams.Out)
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

// look asks the cluster how far it is.
func (o *options) look(ctx context.Context, found *cluster.Cluster) (*Report, error) {
	report := &Report{Done: true}
	var records map[string]migration.Record
	wanted, stopped := v2alpha1.Version, ""
	for _, resource := range []string{"dijobs", "aggregatorconfigs"} {
		definition, err := found.Definition(ctx, resource)
		if err != nil {
			return nil, err
		}
		if definition == nil {
			continue
		}
		if records == nil {
			if records, err = found.MigrationRecords(ctx, cmp.Or(o.namespace, namespaceOf(definition))); err != nil {
				return nil, err
			}
			wanted = cmp.Or(definition.Annotations[crds.AnnotationStorageVersion], wanted)
			stopped = definition.Annotations[crds.AnnotationStopServing]
		}
		one := describe(definition, records, wanted, stopped)
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

// describe says how far one kind of objects is.
func describe(definition *apiextensionsv1.CustomResourceDefinition, records map[string]migration.Record, wanted, stopped string) Resource {
	one := Resource{
		Resource: definition.Spec.Names.Plural, Wanted: wanted,
		Storage: crds.StorageOf(definition), Stored: definition.Status.StoredVersions,
	}
	observed := migration.Observed{Wanted: wanted, Stopped: stopped, Storage: one.Storage, Stored: one.Stored}
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
	one.Done = observed.IsAtRest() || len(observed.Versions) < 2
	if one.Done || one.Record == nil {
		if !one.Done {
			one.Next = "the operator begins"
		}
		return one
	}
	one.Rate = one.Record.Rate()
	if one.Rate > 0 {
		one.SecondsLeft = float64(max(one.Record.Total-one.Record.Done, 0)) / one.Rate
	}
	one.Next = next(&observed)
	return one
}

// next says what comes next.
func next(o *migration.Observed) string {
	record := &o.Record
	switch {
	case record.Blocked != "":
		return "waits: " + record.Blocked
	case o.Storage != o.Wanted:
		return "objects come to be stored in " + o.Wanted
	case record.Phase == migration.PhaseSettling:
		return "the API servers learn that " + o.Wanted + " is stored; then all objects are written once"
	case record.Phase == migration.PhaseRewriting && len(record.Failed) > 0 && record.Listed:
		return "the objects that could not be written are tried again"
	case record.Phase == migration.PhaseRewriting:
		return "the rest of the objects is written"
	case record.Phase == migration.PhaseCleaning:
		return o.Stopped + " is taken from the objects' managedFields"
	}
	return "the operator goes on"
}

// failuresShown is how many objects are named that could not be written.
const failuresShown = 10

// print writes the report for people.
func (r *Report) print(out io.Writer) error {
	var text strings.Builder
	for i := range r.Resources {
		one := &r.Resources[i]
		fmt.Fprintf(&text, "%s: stored in %s, wanted %s, served %s\n",
			one.Resource, strings.Join(one.Stored, " and "), one.Wanted, strings.Join(one.Served, " and "))
		if record := one.Record; record != nil && record.Total > 0 {
			fmt.Fprintf(&text, "  %d of %d objects", record.Done, record.Total)
			if one.Rate > 0 && !one.Done {
				fmt.Fprintf(&text, ", %.1f a second, %s left", one.Rate, time.Duration(one.SecondsLeft*float64(time.Second)).Round(time.Second))
			}
			text.WriteString("\n")
			for _, failure := range slices.Clone(record.Failed)[:min(len(record.Failed), failuresShown)] {
				fmt.Fprintf(&text, "  cannot be written: %s/%s: %s\n", failure.Namespace, failure.Name, failure.Message)
			}
			if more := len(record.Failed) - failuresShown; more > 0 {
				fmt.Fprintf(&text, "  and %d more\n", more)
			}
		}
		if one.Next != "" {
			fmt.Fprintf(&text, "  next: %s\n", one.Next)
		}
	}
	if r.Done {
		text.WriteString("All is done.\n")
	}
	_, err := io.WriteString(out, text.String())
	return err
}
