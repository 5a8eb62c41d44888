// Copyright The DI Orchestrator Authors.
// SPDX-License-Identifier: Apache-2.0

package crds

import (
	"fmt"
	"strings"

	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"

	"opendilab.org/di-orchestrator/apis/v1alpha1"
	"opendilab.org/di-orchestrator/apis/v2alpha1"
	"opendilab.org/di-orchestrator/internal/names"
)

// Origin is the release that created a definition.
type Origin string

const (
	// OriginNone means that the definition does not exist yet.
	OriginNone Origin = "none"
	// OriginOurs means a release of this program.
	OriginOurs Origin = "this program"
	// OriginCoordinatorLed means a release up to v0.2.2, which knows only v1alpha1.
	OriginCoordinatorLed Origin = "v0.2.2"
	// OriginWorkerLed means v1.1.0 to v1.1.3, which know only v2alpha1.
	OriginWorkerLed Origin = "v1.1"
	// OriginBeforeTasks means v1.0.0, whose v2alpha1 is a different schema.
	OriginBeforeTasks Origin = "v1.0.0"
	// OriginUnknown means none of these.
	OriginUnknown Origin = "unknown"
)

// IsEarlier reports whether objects of such a definition can be taken over unchanged.
func (o Origin) IsEarlier() bool {
	return o == OriginCoordinatorLed || o == OriginWorkerLed
}

// OriginOf returns the release that created a definition, which is nil if there is none. It decides
// by the versions and, if these are ambiguous, by the fields of the schemas. No release before this
// program had two versions of a kind.
func OriginOf(definition *apiextensionsv1.CustomResourceDefinition) Origin {
	if definition == nil {
		return OriginNone
	}
	v1, v2 := versionOf(definition, v1alpha1.Version), versionOf(definition, v2alpha1.GroupVersion.Version)
	switch {
	case v1 != nil && v2 != nil, knows(v1, "extended"), knows(v2, "lifecycle"):
		return OriginOurs
	case v1 != nil:
		return OriginCoordinatorLed
	case v2 == nil:
		return OriginUnknown
	case definition.Spec.Names.Kind != "DIJob":
		// No earlier release has other kinds in v2alpha1.
		return OriginOurs
	case knows(v2, "tasks"):
		return OriginWorkerLed
	case knows(v2, "template"), knows(v2, "engineFields"):
		return OriginBeforeTasks
	}
	return OriginUnknown
}

// knows reports whether a version's schema has a field of the spec.
func knows(version *apiextensionsv1.CustomResourceDefinitionVersion, field string) bool {
	if version == nil || version.Schema == nil || version.Schema.OpenAPIV3Schema == nil {
		return false
	}
	_, known := version.Schema.OpenAPIV3Schema.Properties["spec"].Properties[field]
	return known
}

// CheckPublished returns an error if our webhooks do not convert the definition's objects yet. The
// webhooks complete the definition and publish their endpoint and authority in it.
func CheckPublished(definition *apiextensionsv1.CustomResourceDefinition) error {
	if origin := OriginOf(definition); origin != OriginOurs {
		return fmt.Errorf("customresourcedefinition %s is still of %s", definition.Name, origin)
	}
	conversion := definition.Spec.Conversion
	if !isServedByWebhook(conversion) || conversion.Webhook == nil || conversion.Webhook.ClientConfig == nil ||
		len(conversion.Webhook.ClientConfig.CABundle) == 0 {
		return fmt.Errorf("customresourcedefinition %s names no conversion webhook with a CA bundle", definition.Name)
	}
	return nil
}

// checkOrigin rejects a definition whose objects cannot be taken over, or may not be. The error
// advises what to do.
func checkOrigin(definition *apiextensionsv1.CustomResourceDefinition) error {
	switch origin := OriginOf(definition); origin {
	case OriginBeforeTasks:
		return fmt.Errorf("customresourcedefinition %s is of v1.0.0, whose jobs cannot be taken over in place: "+
			"save them, let 'kubectl di convert' map them, delete the definition, and install again", definition.Name)
	case OriginUnknown:
		return fmt.Errorf("customresourcedefinition %s: no release is known whose schema this is, so that its objects cannot be told from those of v1.0.0: "+
			"if they are jobs of v1.1.0 or later, apply the definition of v1.1.3 first, and install again", definition.Name)
	default:
		return nil
	}
}

// NamespaceOf returns the namespace of the webhooks of the earlier release that created a
// definition. It returns "" if the definition does not record it.
func NamespaceOf(definition *apiextensionsv1.CustomResourceDefinition) string {
	conversion := definition.Spec.Conversion
	if !isServedByWebhook(conversion) || conversion.Webhook == nil || conversion.Webhook.ClientConfig == nil {
		return ""
	}
	service := conversion.Webhook.ClientConfig.Service
	if service == nil || service.Name != names.EarlierWebhookService {
		return ""
	}
	return service.Namespace
}

// checkNamespace rejects a definition whose release is in another namespace than this program,
// because the takeover could not stop that release.
func checkNamespace(definition *apiextensionsv1.CustomResourceDefinition, namespace string) error {
	if from := NamespaceOf(definition); from != "" && from != namespace {
		return fmt.Errorf("customresourcedefinition %s: the release that made it is installed in namespace %s, and is taken over only from there, not from %s",
			definition.Name, from, namespace)
	}
	return nil
}

// TakenOver is the prefix of the takeover annotation once the takeover is done.
const TakenOver = "Done:"

// checkTakenOver rejects a definition of an earlier release whose takeover has not begun or has not
// finished. The programs of that release may still change its objects.
func checkTakenOver(definition *apiextensionsv1.CustomResourceDefinition) error {
	progress, begun := definition.Annotations[AnnotationTakeover]
	if !OriginOf(definition).IsEarlier() && (!begun || strings.HasPrefix(progress, TakenOver)) {
		return nil
	}
	return fmt.Errorf("customresourcedefinition %s: an earlier release is not taken over yet, and this operator may not do so: "+
		"set common.takeover (chart: takeover.enabled=true) until the annotation %s begins with %q",
		definition.Name, AnnotationTakeover, TakenOver)
}
