// Copyright The DI Orchestrator Authors.
// SPDX-License-Identifier: Apache-2.0

package preflight

import (
	"context"
	"errors"
	"fmt"
	"slices"

	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	appsv1 "k8s.io/api/apps/v1"
	authorizationv1 "k8s.io/api/authorization/v1"
	corev1 "k8s.io/api/core/v1"
	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/discovery"
	"k8s.io/client-go/rest"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"opendilab.org/di-orchestrator/apis/v1alpha1"
	"opendilab.org/di-orchestrator/apis/v2alpha1"
	"opendilab.org/di-orchestrator/internal/names"
	"opendilab.org/di-orchestrator/upgrade/crds"
)

// pageSize is how many objects are in memory at a time.
const pageSize = 500

// controlPlane is on the Deployments of earlier releases, and on others.
const controlPlane = "control-plane"

// Inspector inspects a cluster. It only reads.
type Inspector struct {
	// Namespace is where DI Orchestrator will be installed.
	Namespace string
	// Rules are the rules of admission.
	Rules Rules
	// Installing means that the caller will install, and needs the rights for that.
	Installing bool
	// Progress receives how many objects of a kind were inspected, and how many are left if that is
	// known. It may be nil.
	Progress func(kind string, done, left int64)

	reader client.Reader
	// access requests which rights the caller has. It is a POST but changes nothing.
	access func(context.Context, *authorizationv1.SelfSubjectAccessReview) error
	server discovery.ServerVersionInterface
}

// Connect configures the connection to the API server. It sends no request yet.
func (l *Inspector) Connect(config *rest.Config) error {
	scheme, mapper := runtime.NewScheme(), meta.NewDefaultRESTMapper(nil)
	for _, add := range []func(*runtime.Scheme) error{
		corev1.AddToScheme, appsv1.AddToScheme, authorizationv1.AddToScheme, admissionregistrationv1.AddToScheme, apiextensionsv1.AddToScheme,
	} {
		if err := add(scheme); err != nil {
			return fmt.Errorf("registering types: %w", err)
		}
	}
	// The kinds are known, so that no discovery is needed.
	for _, version := range []schema.GroupVersion{v1alpha1.GroupVersion, v2alpha1.GroupVersion} {
		mapper.Add(version.WithKind(kindJob), meta.RESTScopeNamespace)
		mapper.Add(version.WithKind(kindAggregator), meta.RESTScopeNamespace)
	}
	mapper.Add(corev1.SchemeGroupVersion.WithKind("Service"), meta.RESTScopeNamespace)
	mapper.Add(appsv1.SchemeGroupVersion.WithKind("Deployment"), meta.RESTScopeNamespace)
	mapper.Add(authorizationv1.SchemeGroupVersion.WithKind("SelfSubjectAccessReview"), meta.RESTScopeRoot)
	mapper.Add(apiextensionsv1.SchemeGroupVersion.WithKind("CustomResourceDefinition"), meta.RESTScopeRoot)
	for _, kind := range []string{"MutatingWebhookConfiguration", "ValidatingWebhookConfiguration"} {
		mapper.Add(admissionregistrationv1.SchemeGroupVersion.WithKind(kind), meta.RESTScopeRoot)
	}
	api, err := client.New(config, client.Options{Scheme: scheme, Mapper: mapper})
	if err != nil {
		return fmt.Errorf("making a client: %w", err)
	}
	asking, err := discovery.NewDiscoveryClientForConfig(config)
	if err != nil {
		return fmt.Errorf("making a client: %w", err)
	}
	l.reader, l.server = api, asking
	l.access = func(ctx context.Context, review *authorizationv1.SelfSubjectAccessReview) error {
		return api.Create(ctx, review)
	}
	return nil
}

// Inspect inspects the cluster. A missing right to read is a finding. It returns an error if the
// API server does not answer.
func (l *Inspector) Inspect(ctx context.Context) (*Report, error) {
	world, err := l.world(ctx)
	if err != nil {
		return nil, err
	}
	report := Evaluate(world)
	for _, definition := range world.Definitions {
		if kind := definition.Spec.Names.Kind; kind != kindJob && kind != kindAggregator {
			continue
		}
		if err := l.examine(ctx, definition, report); err != nil {
			return nil, err
		}
	}
	report.Conclude()
	return report, nil
}

func (l *Inspector) world(ctx context.Context) (*World, error) {
	world := &World{Namespace: l.Namespace}
	info, err := l.server.ServerVersion()
	if err != nil {
		return nil, fmt.Errorf("reading the version of the API server: %w", err)
	}
	world.Server = info.GitVersion
	if world.Missing, err = l.missing(ctx); err != nil {
		return nil, err
	}
	return world, errors.Join(
		l.definitions(ctx, world), l.deployments(ctx, world), l.configurations(ctx, world), l.service(ctx, world),
	)
}

// may reports whether a right required for reading is present.
func (w *World) may(resource string) bool {
	return !slices.ContainsFunc(w.Missing, func(missing Right) bool { return missing.Reading && missing.Resource == resource })
}

// missing returns the required rights that the caller does not have.
func (l *Inspector) missing(ctx context.Context) ([]Right, error) {
	var missing []Right
	for _, right := range l.rights() {
		review := &authorizationv1.SelfSubjectAccessReview{Spec: authorizationv1.SelfSubjectAccessReviewSpec{
			ResourceAttributes: &authorizationv1.ResourceAttributes{
				Verb: right.Verb, Group: right.Group, Resource: right.Resource, Name: right.Name, Namespace: right.Namespace,
			},
		}}
		if err := l.access(ctx, review); err != nil {
			return nil, fmt.Errorf("checking the permission to %s: %w", right.String(), err)
		}
		if !review.Status.Allowed {
			missing = append(missing, right)
		}
	}
	return missing, nil
}

func definitionNames() []string {
	return []string{"aggregatorconfigs." + v2alpha1.GroupName, "dijobs." + v2alpha1.GroupName, "memberships." + v2alpha1.GroupName, "scaleplans." + v2alpha1.GroupName}
}

// rights returns the rights that reading and an installation require.
func (l *Inspector) rights() []Right {
	const extensions, admission = apiextensionsv1.GroupName, admissionregistrationv1.GroupName
	rights := []Right{
		{Verb: "list", Group: v2alpha1.GroupName, Resource: "dijobs", Reading: true},
		{Verb: "list", Group: v2alpha1.GroupName, Resource: "aggregatorconfigs", Reading: true},
		{Verb: "list", Group: appsv1.GroupName, Resource: "deployments", Reading: true},
		{Verb: "get", Group: admission, Resource: "mutatingwebhookconfigurations", Name: names.EarlierMutating, Reading: true},
		{Verb: "get", Group: admission, Resource: "validatingwebhookconfigurations", Name: names.EarlierValidating, Reading: true},
	}
	for _, name := range definitionNames() {
		rights = append(rights, Right{Verb: "get", Group: extensions, Resource: "customresourcedefinitions", Name: name, Reading: true})
	}
	if !l.Installing {
		return rights
	}
	return append(rights,
		Right{Verb: "get", Resource: "services", Namespace: l.Namespace, Name: names.ServerService, Reading: true},
		Right{Verb: "create", Group: extensions, Resource: "customresourcedefinitions"},
		Right{Verb: "update", Group: extensions, Resource: "customresourcedefinitions"},
		Right{Verb: "create", Group: "rbac.authorization.k8s.io", Resource: "clusterroles"},
		Right{Verb: "create", Group: "rbac.authorization.k8s.io", Resource: "clusterrolebindings"},
		Right{Verb: "create", Group: admission, Resource: "mutatingwebhookconfigurations"},
		Right{Verb: "create", Group: admission, Resource: "validatingwebhookconfigurations"},
		Right{Verb: "create", Group: appsv1.GroupName, Resource: "deployments", Namespace: l.Namespace},
		Right{Verb: "create", Group: "batch", Resource: "jobs", Namespace: l.Namespace},
		Right{Verb: "create", Resource: "services", Namespace: l.Namespace},
		Right{Verb: "create", Resource: "serviceaccounts", Namespace: l.Namespace},
	)
}

// get reads an object, and reports whether it exists.
func (l *Inspector) get(ctx context.Context, namespace, name string, object client.Object) (bool, error) {
	err := l.reader.Get(ctx, client.ObjectKey{Namespace: namespace, Name: name}, object)
	if apierrors.IsNotFound(err) {
		return false, nil
	}
	if err != nil {
		return false, fmt.Errorf("reading %s: %w", name, err)
	}
	return true, nil
}

func (l *Inspector) definitions(ctx context.Context, world *World) error {
	if !world.may("customresourcedefinitions") {
		return nil
	}
	for _, name := range definitionNames() {
		definition := &apiextensionsv1.CustomResourceDefinition{}
		found, err := l.get(ctx, "", name, definition)
		if err != nil {
			return err
		}
		if found {
			world.Definitions = append(world.Definitions, definition)
		}
	}
	return nil
}

// deployments finds the Deployments of earlier releases in all namespaces and under any name: the
// names were values of the chart of v1.1.
func (l *Inspector) deployments(ctx context.Context, world *World) error {
	if !world.may("deployments") {
		return nil
	}
	var list appsv1.DeploymentList
	if err := l.reader.List(ctx, &list, client.HasLabels{controlPlane}); err != nil {
		return fmt.Errorf("listing deployments: %w", err)
	}
	for i := range list.Items {
		if found := earlierDeployment(&list.Items[i]); found != nil {
			world.Deployments = append(world.Deployments, *found)
		}
	}
	return nil
}

func (l *Inspector) configurations(ctx context.Context, world *World) error {
	for _, one := range []struct {
		name, resource string
		object         client.Object
	}{
		{names.EarlierMutating, "mutatingwebhookconfigurations", &admissionregistrationv1.MutatingWebhookConfiguration{}},
		{names.EarlierValidating, "validatingwebhookconfigurations", &admissionregistrationv1.ValidatingWebhookConfiguration{}},
	} {
		if !world.may(one.resource) {
			continue
		}
		if _, err := l.get(ctx, "", one.name, one.object); err != nil {
			return err
		}
		if _, injected := one.object.GetAnnotations()[crds.AnnotationInject]; injected {
			world.Injected = append(world.Injected, one.resource[:len(one.resource)-1]+" "+one.name)
		}
	}
	return nil
}

// service reads the only object that Helm adopts on request alone. Helm adopts or refuses it before
// any hook runs.
func (l *Inspector) service(ctx context.Context, world *World) error {
	if !l.Installing || !world.may("services") {
		return nil
	}
	service := &corev1.Service{}
	found, err := l.get(ctx, l.Namespace, names.ServerService, service)
	if found {
		world.ServerService = service
	}
	return err
}

// examine examines all objects of a definition, a page at a time. It reads them in their storage
// version, so that no conversion is needed.
func (l *Inspector) examine(ctx context.Context, definition *apiextensionsv1.CustomResourceDefinition, report *Report) error {
	kind, version := definition.Spec.Names.Kind, readable(definition)
	if version == "" || slices.ContainsFunc(report.Findings, func(one Finding) bool {
		missing := Right{Verb: "list", Group: v2alpha1.GroupName, Resource: definition.Spec.Names.Plural, Reading: true}
		return one == missing.finding()
	}) {
		return nil
	}
	count, next := Count{Kind: kind, Version: version}, ""
	for {
		page := &unstructured.UnstructuredList{}
		page.SetAPIVersion(v2alpha1.GroupName + "/" + version)
		page.SetKind(kind + "List")
		err := l.reader.List(ctx, page, client.Limit(pageSize), client.Continue(next))
		if next = restarted(err); next != "" {
			continue
		}
		if err != nil {
			return fmt.Errorf("listing %s: %w", definition.Name, err)
		}
		for i := range page.Items {
			raw, err := page.Items[i].MarshalJSON()
			if err != nil {
				return fmt.Errorf("encoding %s %s/%s: %w", kind, page.Items[i].GetNamespace(), page.Items[i].GetName(), err)
			}
			report.Findings = append(report.Findings, Examine(raw, l.Rules)...)
		}
		count.Objects += len(page.Items)
		if l.Progress != nil {
			l.Progress(kind, int64(count.Objects), ptr.Deref(page.GetRemainingItemCount(), 0))
		}
		if next = page.GetContinue(); next == "" {
			report.Objects = append(report.Objects, count)
			return nil
		}
	}
}

// restarted returns where to continue a list whose first page has expired, and "" for any other
// error.
func restarted(err error) string {
	status := apierrors.APIStatus(nil)
	if !apierrors.IsResourceExpired(err) || !errors.As(err, &status) {
		return ""
	}
	return status.Status().Continue
}

// readable returns the version in which to read objects: the storage version if it is served.
func readable(definition *apiextensionsv1.CustomResourceDefinition) string {
	stored := crds.StorageOf(definition)
	for _, wanted := range []string{stored, v2alpha1.Version, v1alpha1.Version} {
		for i := range definition.Spec.Versions {
			if version := &definition.Spec.Versions[i]; version.Name == wanted && version.Served && (wanted == v2alpha1.Version || wanted == v1alpha1.Version) {
				return wanted
			}
		}
	}
	return ""
}
