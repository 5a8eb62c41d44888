// Copyright The DI Orchestrator Authors.
// SPDX-License-Identifier: Apache-2.0

// Package policies judges writes by ValidatingAdmissionPolicies. It evaluates them with the API server's own code,
// and needs no API server.
package policies

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"

	celgo "github.com/google/cel-go/cel"
	celtypes "github.com/google/cel-go/common/types"
	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apiserver/pkg/admission"
	"k8s.io/apiserver/pkg/admission/plugin/cel"
	"k8s.io/apiserver/pkg/admission/plugin/webhook/predicates/rules"
	celconfig "k8s.io/apiserver/pkg/apis/cel"
	"k8s.io/apiserver/pkg/authentication/user"
	"k8s.io/apiserver/pkg/authorization/authorizer"
	"k8s.io/apiserver/pkg/cel/environment"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/yaml"
)

// Set are policies that deny writes.
type Set struct {
	policies   []policy
	authorizer authorizer.AuthorizerFunc
}

// policy is a compiled policy.
type policy struct {
	*admissionregistrationv1.ValidatingAdmissionPolicy
	conditions, validations cel.ConditionEvaluator
	// readsObjects is set if the conditions are about the objects of a write, so that these must be converted first.
	readsObjects bool
}

// Read returns the manifests in folders, in the order of their names.
func Read(folders ...string) ([]string, error) {
	var manifests []string
	for _, folder := range folders {
		paths, err := filepath.Glob(filepath.Join(folder, "*.yaml"))
		if err != nil {
			return nil, fmt.Errorf("listing %s: %w", folder, err)
		}
		for _, path := range paths {
			content, err := os.ReadFile(path)
			if err != nil {
				return nil, fmt.Errorf("reading a manifest: %w", err)
			}
			manifests = append(manifests, string(content))
		}
	}
	return manifests, nil
}

// Compile compiles the policies among manifests of one object each that a binding among them enforces. mayCreatePods
// reports whether the author of a job may create pods.
func Compile(manifests []string, mayCreatePods func(user string) bool) (*Set, error) {
	var declared []*admissionregistrationv1.ValidatingAdmissionPolicy
	enforced := map[string]bool{}
	for _, manifest := range manifests {
		var kind metav1.TypeMeta
		var policy admissionregistrationv1.ValidatingAdmissionPolicy
		var binding admissionregistrationv1.ValidatingAdmissionPolicyBinding
		err := yaml.Unmarshal([]byte(manifest), &kind)
		switch kind.Kind {
		case "ValidatingAdmissionPolicy":
			err = yaml.UnmarshalStrict([]byte(manifest), &policy)
			declared = append(declared, &policy)
		case "ValidatingAdmissionPolicyBinding":
			err = yaml.UnmarshalStrict([]byte(manifest), &binding)
			enforced[binding.Spec.PolicyName] = slices.Contains(binding.Spec.ValidationActions, admissionregistrationv1.Deny)
		}
		if err != nil {
			return nil, fmt.Errorf("decoding a manifest of kind %q: %w", kind.Kind, err)
		}
	}
	set := &Set{authorizer: func(_ context.Context, asked authorizer.Attributes) (authorizer.Decision, string, error) {
		if mayCreatePods(asked.GetUser().GetName()) {
			return authorizer.DecisionAllow, "", nil
		}
		return authorizer.DecisionNoOpinion, "", nil
	}}
	for _, policy := range declared {
		if !enforced[policy.Name] {
			continue
		}
		compiled, err := compile(policy)
		if err != nil {
			return nil, fmt.Errorf("compiling policy %s: %w", policy.Name, err)
		}
		set.policies = append(set.policies, compiled)
	}
	return set, nil
}

// expression is one expression of a policy, with its name or its message.
type expression struct {
	text, name string
	result     *celgo.Type
}

func (e *expression) GetExpression() string      { return e.text }
func (e *expression) GetName() string            { return e.name }
func (e *expression) ReturnTypes() []*celgo.Type { return []*celgo.Type{e.result} }

func compile(declared *admissionregistrationv1.ValidatingAdmissionPolicy) (policy, error) {
	base := environment.MustBaseEnvSet(environment.DefaultCompatibilityVersion())
	compiler, err := cel.NewCompositedCompiler(base)
	if err != nil {
		return policy{}, err
	}
	options := cel.OptionalVariableDeclarations{HasAuthorizer: true}
	for _, variable := range declared.Spec.Variables {
		named := &expression{variable.Expression, variable.Name, celgo.AnyType}
		if compiled := compiler.CompileAndStoreVariable(named, options, environment.StoredExpressions); compiled.Error != nil {
			return policy{}, compiled.Error
		}
	}
	var conditions, validations []cel.ExpressionAccessor
	for _, condition := range declared.Spec.MatchConditions {
		conditions = append(conditions, &expression{condition.Expression, condition.Name, celgo.BoolType})
	}
	for _, validation := range declared.Spec.Validations {
		message := cmp.Or(validation.Message, validation.MessageExpression)
		validations = append(validations, &expression{validation.Expression, message, celgo.BoolType})
	}
	readsObjects := slices.ContainsFunc(declared.Spec.MatchConditions, func(condition admissionregistrationv1.MatchCondition) bool {
		return !strings.HasPrefix(condition.Expression, "request.userInfo.username == '")
	})
	compiled := policy{
		declared, compiler.CompileCondition(conditions, options, environment.StoredExpressions),
		compiler.CompileCondition(validations, options, environment.StoredExpressions), readsObjects,
	}
	return compiled, errors.Join(slices.Concat(compiled.conditions.CompilationErrors(), compiled.validations.CompilationErrors())...)
}

// Write is one write.
type Write struct {
	// User is the account that writes.
	User      string
	Operation admission.Operation
	Resource  schema.GroupVersionResource
	Kind      schema.GroupVersionKind
	// Subresource is the part that is written, "" for the object itself.
	Subresource string
	// Object is the object after the write, and Old the one before it; nil for none.
	Object, Old client.Object
	// DryRun is set if nothing is stored.
	DryRun bool
}

// Refusal returns why a policy refuses a write, and "" if none does.
func (s *Set) Refusal(ctx context.Context, write *Write) (string, error) {
	named := write.Object
	if named == nil {
		named = write.Old
	}
	judged := &admission.VersionedAttributes{VersionedKind: write.Kind}
	judged.Attributes = admission.NewAttributesRecord(write.Object, write.Old, write.Kind, named.GetNamespace(), named.GetName(),
		write.Resource, write.Subresource, write.Operation, nil, write.DryRun, &user.DefaultInfo{Name: write.User})
	for i := range s.policies {
		policy := &s.policies[i]
		if !policy.isMeant(judged) {
			continue
		}
		if !policy.readsObjects && !s.isMatched(ctx, policy, judged) {
			continue
		}
		if err := decode(judged, write); err != nil {
			return "", err
		}
		if message := s.refusal(ctx, policy, judged); message != "" {
			return fmt.Sprintf("ValidatingAdmissionPolicy '%s' denied request: %s", policy.Name, message), nil
		}
	}
	return "", nil
}

// decode adds the objects of a write to its attributes, as the API server holds custom objects.
func decode(judged *admission.VersionedAttributes, write *Write) error {
	for _, each := range []struct {
		from client.Object
		into *admission.LazyObject
	}{{write.Object, &judged.VersionedObject}, {write.Old, &judged.VersionedOldObject}} {
		if each.from == nil || each.into.Object() != nil {
			continue
		}
		content, err := runtime.DefaultUnstructuredConverter.ToUnstructured(each.from)
		if err != nil {
			return fmt.Errorf("converting a %s: %w", write.Kind.Kind, err)
		}
		// The content of an untyped object is the object's own, which others may read.
		untyped := &unstructured.Unstructured{Object: maps.Clone(content)}
		untyped.SetGroupVersionKind(write.Kind)
		each.into.Set(untyped)
	}
	return nil
}

// isMeant reports whether a policy is about the resource and the operation of a write.
func (p *policy) isMeant(write admission.Attributes) bool {
	return slices.ContainsFunc(p.Spec.MatchConstraints.ResourceRules, func(rule admissionregistrationv1.NamedRuleWithOperations) bool {
		matcher := rules.Matcher{Rule: rule.RuleWithOperations, Attr: write}
		return matcher.Matches() && (len(rule.ResourceNames) == 0 || slices.Contains(rule.ResourceNames, write.GetName()))
	})
}

// isMatched reports whether a write may match the conditions of a policy.
func (s *Set) isMatched(ctx context.Context, judge *policy, write *admission.VersionedAttributes) bool {
	unmet, err := s.firstUnmet(ctx, judge.conditions, write)
	return err != nil || unmet == nil
}

// refusal returns why one policy refuses a write.
func (s *Set) refusal(ctx context.Context, judge *policy, write *admission.VersionedAttributes) string {
	unmet, err := s.firstUnmet(ctx, judge.conditions, write)
	if err == nil && unmet != nil {
		return ""
	}
	if err == nil {
		unmet, err = s.firstUnmet(ctx, judge.validations, write)
	}
	switch {
	case err != nil && *judge.Spec.FailurePolicy == admissionregistrationv1.Fail:
		return err.Error()
	case unmet != nil:
		return unmet.name
	}
	return ""
}

// firstUnmet returns the first expression that is not true for a write, nil if all are.
func (s *Set) firstUnmet(ctx context.Context, expressions cel.ConditionEvaluator, write *admission.VersionedAttributes) (*expression, error) {
	request := cel.CreateAdmissionRequest(write, metav1.GroupVersionResource(write.GetResource()), metav1.GroupVersionKind(write.VersionedKind))
	results, _, err := expressions.ForInput(ctx, write, request, cel.OptionalVariableBindings{Authorizer: s.authorizer}, nil, celconfig.RuntimeCELCostBudget)
	if err != nil {
		return nil, err
	}
	for i := range results {
		unmet, isOurs := results[i].ExpressionAccessor.(*expression)
		switch {
		case results[i].Error != nil:
			return nil, results[i].Error
		case results[i].EvalResult != celtypes.True && isOurs:
			return unmet, nil
		}
	}
	return nil, nil
}
