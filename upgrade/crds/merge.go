// Copyright The DI Orchestrator Authors.
// SPDX-License-Identifier: Apache-2.0

package crds

import (
	"fmt"
	"maps"
	"path"
	"slices"
	"strings"

	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"opendilab.org/di-orchestrator/internal/names"
)

// merge returns the desired definition: the stored one with the versions, schemas and columns of
// the built one. It keeps what was changed since the installation: the conversion stanza, which the
// operator fills, the storage version, and that the stopped version is not served. It returns an
// error if the stored definition cannot be updated.
func merge(built, stored *apiextensionsv1.CustomResourceDefinition, stopped string) (*apiextensionsv1.CustomResourceDefinition, error) {
	if err := checkStored(built, stored); err != nil {
		return nil, err
	}
	merged := stored.DeepCopy()
	built.Spec.DeepCopyInto(&merged.Spec)
	if conversion := stored.Spec.Conversion; isServedByWebhook(conversion) {
		merged.Spec.Conversion = conversion.DeepCopy()
	}
	storage, awaits := StorageOf(stored), AwaitsWebhooks(stored)
	for i := range merged.Spec.Versions {
		version := &merged.Spec.Versions[i]
		version.Storage = version.Name == storage
		// Only the operator stops serving a version, once nothing needs that version. It also serves the
		// version that a takeover adds.
		as := versionOf(stored, version.Name)
		version.Served = version.Served && (as == nil || as.Served || version.Name != stopped && !awaits)
	}
	annotate(merged, built.Annotations)
	delete(merged.Annotations, AnnotationRetired)
	return merged, nil
}

// checkStored rejects a definition that stores, or may store, objects in a version that this
// program does not know.
func checkStored(built, stored *apiextensionsv1.CustomResourceDefinition) error {
	for _, name := range append([]string{StorageOf(stored)}, stored.Status.StoredVersions...) {
		if versionOf(built, name) == nil {
			return fmt.Errorf("customresourcedefinition %s: objects are stored as %s, which this program does not know (it knows %s): a later release has made it",
				stored.Name, name, strings.Join(versionNames(built), ", "))
		}
	}
	return nil
}

// takeOver returns a definition of an earlier release with both versions and the conversion between
// them. The storage version stays, and Serve serves the other one. It returns an error if that is not
// possible.
func takeOver(built, stored *apiextensionsv1.CustomResourceDefinition, conversion *apiextensionsv1.CustomResourceConversion,
) (*apiextensionsv1.CustomResourceDefinition, error) {
	merged, err := merge(built, stored, "")
	if err != nil {
		return nil, err
	}
	merged.Spec.Conversion = built.Spec.Conversion.DeepCopy()
	if isServedByWebhook(built.Spec.Conversion) {
		merged.Spec.Conversion = conversion.DeepCopy()
		withhold(merged, stored)
	}
	if built.Spec.Names.Kind == "DIJob" {
		// The takeover begins again if the earlier release was reinstalled after another takeover.
		annotate(merged, map[string]string{AnnotationTakeover: prepared + "the operator serves the added version once the webhooks that convert to it answer"})
	}
	return merged, nil
}

// removeInjection removes the annotation by which cert-manager overwrites the published bundle with
// its own, and reports whether the annotation was present. If the certificates are not our own, it
// keeps an annotation that does not come from the earlier release.
func removeInjection(object metav1.Object, ownCertificates bool) bool {
	certificate, injected := object.GetAnnotations()[AnnotationInject]
	if !injected || !ownCertificates && path.Base(certificate) != names.EarlierCertificate {
		return false
	}
	kept := maps.Clone(object.GetAnnotations())
	delete(kept, AnnotationInject)
	object.SetAnnotations(kept)
	return true
}

// keep marks a definition that Helm owns, so that Helm keeps it. It reports whether that changed
// the definition. Without the mark, an upgrade to a chart without the definition would delete it,
// and every job with it.
func keep(definition *apiextensionsv1.CustomResourceDefinition) bool {
	if definition.Annotations[AnnotationRelease] == "" || definition.Annotations[annotationPolicy] == policyKeep {
		return false
	}
	annotate(definition, map[string]string{annotationPolicy: policyKeep})
	return true
}

func annotate(definition *apiextensionsv1.CustomResourceDefinition, annotations map[string]string) {
	if definition.Annotations == nil {
		definition.Annotations = map[string]string{}
	}
	maps.Copy(definition.Annotations, annotations)
}

// retire returns a definition that needs no webhook, because only the storage version is served. It
// returns nil if the definition needs none already, and an error if objects may be stored in
// another version.
func retire(stored *apiextensionsv1.CustomResourceDefinition) (*apiextensionsv1.CustomResourceDefinition, error) {
	if !isServedByWebhook(stored.Spec.Conversion) {
		return nil, nil
	}
	retired := stored.DeepCopy()
	for i := range retired.Spec.Versions {
		version := &retired.Spec.Versions[i]
		version.Served = version.Storage
		if !version.Storage && slices.Contains(stored.Status.StoredVersions, version.Name) {
			return nil, fmt.Errorf("customresourcedefinition %s: objects may still be stored as %s, so that it needs its webhook", stored.Name, version.Name)
		}
	}
	retired.Spec.Conversion = &apiextensionsv1.CustomResourceConversion{Strategy: apiextensionsv1.NoneConverter}
	annotate(retired, map[string]string{AnnotationRetired: "true"})
	return retired, nil
}

func isServedByWebhook(conversion *apiextensionsv1.CustomResourceConversion) bool {
	return conversion != nil && conversion.Strategy == apiextensionsv1.WebhookConverter
}

// versionOf returns a version by its name, and nil if there is none.
func versionOf(definition *apiextensionsv1.CustomResourceDefinition, name string) *apiextensionsv1.CustomResourceDefinitionVersion {
	for i := range definition.Spec.Versions {
		if definition.Spec.Versions[i].Name == name {
			return &definition.Spec.Versions[i]
		}
	}
	return nil
}

func versionNames(definition *apiextensionsv1.CustomResourceDefinition) []string {
	found := make([]string, len(definition.Spec.Versions))
	for i := range definition.Spec.Versions {
		found[i] = definition.Spec.Versions[i].Name
	}
	return found
}
