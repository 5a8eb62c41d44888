// Copyright The DI Orchestrator Authors.
// SPDX-License-Identifier: Apache-2.0

package preflight

import (
	"fmt"
	"path"
	"slices"
	"strings"

	"github.com/dustin/go-humanize/english"
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	"k8s.io/apimachinery/pkg/util/version"
	"k8s.io/utils/ptr"

	"opendilab.org/di-orchestrator/apis/v2alpha1"
	"opendilab.org/di-orchestrator/internal/names"
	"opendilab.org/di-orchestrator/upgrade/crds"
)

// oldestServer is the oldest supported version of Kubernetes.
const oldestServer = "1.30.0"

// labelName is on all that is ours, however it was installed.
const (
	labelName = "app.kubernetes.io/name"
	nameOfAll = "di-orchestrator"
)

// annotationReleased is on objects that Helm owns and names the namespace of their release.
const annotationReleased = "meta.helm.sh/release-namespace"

// World is the state of a cluster without its objects, which are too many to be kept in memory.
type World struct {
	// Server is the version of the API server.
	Server string
	// Namespace is where DI Orchestrator will be installed.
	Namespace string
	// Definitions are the existing definitions of our group.
	Definitions []*apiextensionsv1.CustomResourceDefinition
	// Deployments are the Deployments of earlier releases, in all namespaces.
	Deployments []Deployment
	// Injected are the webhook configurations that cert-manager writes to.
	Injected []string
	// ServerService is the Service di-server of the namespace, and nil if there is none.
	ServerService *corev1.Service
	// Missing are the rights that the caller does not have.
	Missing []Right
}

// Evaluate returns what a World means for an installation. The report does not cover objects yet.
func Evaluate(world *World) *Report {
	report := &Report{Server: world.Server, Namespace: world.Namespace, Release: release(world.Definitions), Deployments: world.Deployments}
	for _, definition := range world.Definitions {
		report.Definitions = append(report.Definitions, describe(definition))
	}
	report.Findings = append(report.Findings, evaluateServer(world.Server)...)
	for _, missing := range world.Missing {
		report.Findings = append(report.Findings, missing.finding())
	}
	for _, definition := range world.Definitions {
		report.Findings = append(report.Findings, evaluateDefinition(definition, world.Namespace)...)
	}
	report.Findings = append(report.Findings, evaluateDeployments(world, report.Release)...)
	report.Findings = append(report.Findings, evaluateInjection(world)...)
	report.Findings = append(report.Findings, evaluateService(world.ServerService)...)
	report.Steps = steps(report.Release)
	return report
}

// Conclude sets Fine if nothing prevents an installation.
func (r *Report) Conclude() { r.Fine = r.Count(Stop) == 0 }

// release returns the release that created the definition of DIJobs.
func release(definitions []*apiextensionsv1.CustomResourceDefinition) crds.Origin {
	for _, definition := range definitions {
		if definition.Spec.Names.Kind == kindJob {
			return crds.OriginOf(definition)
		}
	}
	return crds.OriginNone
}

func describe(definition *apiextensionsv1.CustomResourceDefinition) Definition {
	found := Definition{
		Name: definition.Name, Origin: crds.OriginOf(definition), Storage: crds.StorageOf(definition), Stored: definition.Status.StoredVersions,
	}
	for i := range definition.Spec.Versions {
		found.Versions = append(found.Versions, definition.Spec.Versions[i].Name)
	}
	return found
}

func evaluateServer(server string) []Finding {
	parsed, err := version.ParseGeneric(server)
	if err != nil {
		return []Finding{{Severity: Warning, Message: fmt.Sprintf("the version of the API server, %q, cannot be read", server)}}
	}
	if parsed.LessThan(version.MustParseGeneric(oldestServer)) {
		return []Finding{{Severity: Stop, Message: fmt.Sprintf("Kubernetes %s is older than 1.30", server), Do: "upgrade the cluster first"}}
	}
	return nil
}

func evaluateDefinition(definition *apiextensionsv1.CustomResourceDefinition, namespace string) []Finding {
	object := "customresourcedefinition " + definition.Name
	var findings []Finding
	switch crds.OriginOf(definition) {
	case crds.OriginBeforeTasks:
		findings = append(findings, Finding{
			Severity: Stop, Object: object, Message: "is of v1.0.0, whose v2alpha1 has another schema under the same name",
			Do: "convert its jobs by 'kubectl di convert', delete it, then install",
		})
	case crds.OriginUnknown:
		findings = append(findings, Finding{
			Severity: Stop, Object: object, Message: "is of no known release, so its objects cannot be distinguished from those of v1.0.0",
			Do: "if they are jobs of v1.1.0 or later, apply the definition of v1.1.3 first",
		})
	default:
	}
	if from := crds.NamespaceOf(definition); from != "" && from != namespace {
		findings = append(findings, Finding{
			Severity: Stop, Object: object, Message: fmt.Sprintf("its webhook is in namespace %s, so only an installation there can take the release over, not one in %s", from, namespace),
			Do: "install into namespace " + from,
		})
	}
	if _, injected := definition.Annotations[crds.AnnotationInject]; injected {
		findings = append(findings, injection(object))
	}
	if release := definition.Annotations[crds.AnnotationRelease]; release != "" {
		findings = append(findings, Finding{
			Severity: Note, Object: object,
			Message: fmt.Sprintf("belongs to Helm release %s, which deletes it with every job if a later chart omits it: an annotation prevents that", release),
			Do:      "upgrade that release, and do not uninstall it first",
		})
	}
	return findings
}

func injection(object string) Finding {
	return Finding{
		Severity: Note, Object: object,
		Message: fmt.Sprintf("cert-manager writes its bundle here (annotation %s): the annotation is removed, unless cert-manager issues the new certificates as well", crds.AnnotationInject),
	}
}

func evaluateInjection(world *World) []Finding {
	var findings []Finding
	for _, object := range world.Injected {
		findings = append(findings, injection(object))
	}
	return findings
}

// earlierDeployment describes a Deployment of an earlier release, and returns nil if it belongs to
// none. It recognizes a Deployment by its name or label, by the program in its image, or by the
// program that it starts.
func earlierDeployment(deployment *appsv1.Deployment) *Deployment {
	containers := deployment.Spec.Template.Spec.Containers
	if len(containers) == 0 || deployment.Labels[labelName] == nameOfAll {
		return nil
	}
	found := &Deployment{
		Namespace: deployment.Namespace, Name: deployment.Name, Image: containers[0].Image, Replicas: ptr.Deref(deployment.Spec.Replicas, 1),
		Operator: deployment.Name == names.EarlierOperator || deployment.Labels[controlPlane] == names.EarlierOperator,
	}
	known := isEarlier(deployment.Name) || isEarlier(deployment.Labels[controlPlane])
	for i := range containers {
		program := programIn(&containers[i])
		if program == "" {
			continue
		}
		// Other containers may run beside it, such as a proxy for its metrics.
		known, found.Image = true, containers[i].Image
		found.Operator = found.Operator || program == names.EarlierOperator
	}
	if !known {
		return nil
	}
	return found
}

func isEarlier(name string) bool {
	return slices.Contains([]string{names.EarlierOperator, names.EarlierServer, names.EarlierWebhook}, name)
}

// programIn returns which program of an earlier release a container runs. Up to v0.2.2 each was a
// program of its own; later releases have one program with several commands.
func programIn(container *corev1.Container) string {
	runs := append(slices.Clone(container.Command), container.Args...)
	programs := []string{programOf(container.Image)}
	if len(runs) > 0 {
		programs = append(programs, path.Base(runs[0]))
	}
	for _, program := range programs {
		switch {
		case isEarlier(program):
			return program
		case program == nameOfAll && slices.Contains(runs, "operator"):
			return names.EarlierOperator
		case program == nameOfAll:
			return names.EarlierServer
		}
	}
	return ""
}

// programOf returns the last part of an image's name.
func programOf(image string) string {
	name, _, _ := strings.Cut(image[strings.LastIndex(image, "/")+1:], "@")
	name, _, _ = strings.Cut(name, ":")
	return name
}

// evaluateDeployments reports running Deployments of earlier releases. The takeover scales those of
// the namespace with their usual names to zero. Nothing stops the others, and an operator among
// them would still act on jobs.
func evaluateDeployments(world *World, release crds.Origin) []Finding {
	var findings []Finding
	for i := range world.Deployments {
		found := &world.Deployments[i]
		if found.Replicas == 0 {
			continue
		}
		runs := fmt.Sprintf("runs %s with %s", found.Image, english.Plural(int(found.Replicas), "replica", ""))
		finding := Finding{
			Severity: Warning, Object: fmt.Sprintf("deployment %s/%s", found.Namespace, found.Name),
			Message: runs + ", and the takeover does not stop it",
			Do:      fmt.Sprintf("kubectl -n %s scale deployment %s --replicas=0", found.Namespace, found.Name),
		}
		switch {
		case found.Namespace == world.Namespace && isEarlier(found.Name) && (release.IsEarlier() || release == crds.OriginOurs):
			finding.Severity, finding.Do = Note, ""
			finding.Message = runs + ": the takeover scales it to 0"
		case found.Operator:
			finding.Severity = Stop
			finding.Message += ": two operators would reconcile the same jobs"
		}
		if found.Namespace != world.Namespace {
			finding.Do = fmt.Sprintf("install into namespace %s, or %s", found.Namespace, finding.Do)
		}
		findings = append(findings, finding)
	}
	return findings
}

// evaluateService reports a Service that Helm refuses to adopt because Helm did not create it.
func evaluateService(service *corev1.Service) []Finding {
	if service == nil || service.Labels[labelName] == nameOfAll {
		return nil
	}
	owner := "no Helm release"
	if name := service.Annotations[crds.AnnotationRelease]; name != "" {
		owner = fmt.Sprintf("Helm release %s in namespace %s", name, service.Annotations[annotationReleased])
	}
	return []Finding{{
		Severity: Note, Object: fmt.Sprintf("service %s/%s", service.Namespace, service.Name),
		Message: "is of " + owner + ", and stays: clients use its name",
		Do:      "let Helm take it over: helm install --take-ownership",
	}}
}

// steps returns what an installation does, in this order.
func steps(release crds.Origin) []string {
	switch {
	case release == crds.OriginNone:
		return []string{
			"the definitions are created, with both versions, stored as v2alpha1",
			"operator and di-server start",
			"a job of v1alpha1 is dry-run-created to check that jobs are admitted",
		}
	case release == crds.OriginOurs:
		return []string{
			"older definitions are updated; the storage version stays",
			"operators and servers are replaced one by one; jobs continue",
		}
	case !release.IsEarlier():
		return nil
	}
	missing := "v1alpha1"
	if release == crds.OriginCoordinatorLed {
		missing = v2alpha1.Version
	}
	taken := []string{
		"annotations of cert-manager are removed from definitions and webhook configurations, if any exist; nothing else changes",
		"the new operators start and serve the conversion, and do nothing else yet",
		missing + " is added to the definitions, in one write with the conversion; stored objects stay unchanged",
		fmt.Sprintf("webhook configurations of %s are deleted, and its operator and webhooks scaled to 0", release),
		"its di-server is scaled to 0 once the new one is ready",
		"the operator adopts the jobs: no pod restarts; owner references name v2alpha1",
		"a job is dry-run-created until the API server admits it",
	}
	if release == crds.OriginCoordinatorLed {
		taken = append(taken, "from then on, objects are stored as v2alpha1, and stored ones are rewritten")
	}
	return taken
}

// Right is a required right.
type Right struct {
	Verb, Group, Resource, Name string
	// Namespace is empty for all namespaces.
	Namespace string
	// Reading means that without it a part of the cluster was not inspected.
	Reading bool
}

func (r *Right) String() string {
	var text strings.Builder
	fmt.Fprintf(&text, "%s %s", r.Verb, r.Resource)
	if r.Group != "" {
		text.WriteString("." + r.Group)
	}
	if r.Name != "" {
		text.WriteString(" " + r.Name)
	}
	if r.Namespace != "" {
		text.WriteString(" in namespace " + r.Namespace)
	}
	return text.String()
}

func (r *Right) finding() Finding {
	if r.Reading {
		return Finding{Severity: Stop, Message: "you may not " + r.String() + ", so this was not checked", Do: "ask an administrator of the cluster to run this"}
	}
	return Finding{Severity: Warning, Message: "you may not " + r.String() + ", as an installation must", Do: "ask an administrator of the cluster to install"}
}
