// Copyright The DI Orchestrator Authors.
// SPDX-License-Identifier: Apache-2.0

package crds

import (
	"fmt"
	"maps"
	"slices"
	"strings"

	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
)

// merge returns a stored definition as it is to become: with the versions,
// schemas and columns of the built one, and with what others have made of it
// since: its conversion stanza, which the operator fills, which version is
// stored, and that the stopped one is not served any more. The error says why it
// cannot become so.
func merge(built, stored *apiextensionsv1.CustomResourceDefinition, stopped string) (*apiextensionsv1.CustomResourceDefinition, error) {
	if err := checkVersions(built, stored); err != nil {
		return nil, err
	}
	merged := stored.DeepCopy()
	built.Spec.DeepCopyInto(&merged.Spec)
	if conversion := stored.Spec.Conversion; isServedByWebhook(conversion) {
		merged.Spec.Conversion = conversion.DeepCopy()
	}
	for i := range merged.Spec.Versions {
		version := &merged.Spec.Versions[i]
		as := versionOf(stored, version.Name)
		version.Storage = as.Storage
		// That a version ceases to be served is the operator's to do, when nothing needs it.
		version.Served = version.Served && (as.Served || version.Name != stopped)
	}
	if merged.Annotations == nil {
		merged.Annotations = map[string]string{}
	}
	maps.Copy(merged.Annotations, built.Annotations)
	delete(merged.Annotations, AnnotationRetired)
	return merged, nil
}

// checkVersions refuses a stored definition that lacks a version that was built,
// which an earlier release has left, and one that has a version which this
// program does not know and which objects may be stored in.
func checkVersions(built, stored *apiextensionsv1.CustomResourceDefinition) error {
	for i := range built.Spec.Versions {
		if name := built.Spec.Versions[i].Name; versionOf(stored, name) == nil {
			return fmt.Errorf("customresourcedefinition %s has versions %s and not %s: an earlier release has made it, and this program cannot take that over yet",
				stored.Name, strings.Join(versionNames(stored), ", "), name)
		}
	}
	for _, name := range stored.Status.StoredVersions {
		if versionOf(built, name) == nil {
			return fmt.Errorf("customresourcedefinition %s: objects are stored as %s, which this program does not know (it knows %s): a later release has made it",
				stored.Name, name, strings.Join(versionNames(built), ", "))
		}
	}
	return nil
}

// retire returns a definition that needs no webhook any more: only the stored
// version is served. It is nil where the definition needs none already, and an
// error where objects may be stored in another version.
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
	if retired.Annotations == nil {
		retired.Annotations = map[string]string{}
	}
	retired.Annotations[AnnotationRetired] = "true"
	return retired, nil
}

func isServedByWebhook(conversion *apiextensionsv1.CustomResourceConversion) bool {
	return conversion != nil && conversion.Strategy == apiextensionsv1.WebhookConverter
}

// versionOf returns a version by its name, nil where there is none.
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
