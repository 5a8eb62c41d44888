// Copyright The DI Orchestrator Authors.
// SPDX-License-Identifier: Apache-2.0

package migration

import (
	"testing"

	. "github.com/onsi/gomega"

	"opendilab.org/di-orchestrator/internal/crds"
	"opendilab.org/di-orchestrator/internal/migration"
)

func TestStoredObjectsComeToBeStoredInTheWantedVersion(t *testing.T) {
	w := newWorld(t, "v1alpha1")
	names := []string{"a", "b", "c", "d", "e", "f", "g", "h", "i"}
	for _, name := range names {
		w.create(w.job(name, "v1alpha1"))
	}
	w.create(w.aggregatorConfig("config"))
	w.Expect(w.storedAs("dijobs", "a")).To(Equal("v1alpha1"))

	w.want("v2alpha1")
	w.Expect(w.migrate(cluster.client)).To(Succeed())

	for _, name := range names {
		w.Expect(w.storedAs("dijobs", name)).To(Equal("v2alpha1"), name)
	}
	w.Expect(w.storedAs("aggregatorconfigs", "config")).To(Equal("v2alpha1"))
	for _, definition := range []string{dijobs, aggregatorconfigs} {
		w.Expect(crds.StorageOf(w.definition(definition))).To(Equal("v2alpha1"))
		w.Expect(w.definition(definition).Status.StoredVersions).To(Equal([]string{"v2alpha1"}))
	}
	record := w.record("dijobs")
	w.Expect(record.Phase).To(Equal(migration.PhaseFinished))
	w.Expect(record.Total).To(BeEquivalentTo(9))
	w.Expect(record.Done).To(BeEquivalentTo(9))
	w.Expect(record.Failed).To(BeEmpty())
}
