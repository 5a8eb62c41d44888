// Copyright The DI Orchestrator Authors.
// SPDX-License-Identifier: Apache-2.0

package testkit

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"time"

	authorizationv1 "k8s.io/api/authorization/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/wait"
	clientgoscheme "k8s.io/client-go/kubernetes/scheme"
	"k8s.io/client-go/rest"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/envtest"
	"sigs.k8s.io/yaml"

	"opendilab.org/di-orchestrator/internal/names"
)

// The programs that have a service account of their own.
const (
	Operator = "operator"
	Server   = "server"
	Webhook  = "webhook"
)

// accountPrefix begins the user names of the programs' service accounts.
const accountPrefix = "system:serviceaccount:" + names.SystemNamespace + ":di-orchestrator-"

// installedAuditPolicy logs the requests of the programs' service accounts. The API server adds the
// status of a refused request at this level.
const installedAuditPolicy = `apiVersion: audit.k8s.io/v1
kind: Policy
omitStages: [RequestReceived, ResponseStarted]
rules:
- level: Metadata
  users: [` + accountPrefix + Operator + `, ` + accountPrefix + Server + `, ` + accountPrefix + Webhook + `]
- level: None
`

// API is a kube-apiserver with the roles, policies and network policies of config/default, which are
// those that the chart installs. Programs use it as their service accounts.
type API struct {
	*envtest.Environment

	// folder contains the audit log; "" if the requests are not logged.
	folder string
}

// AccountName returns the user name of a program's service account.
func AccountName(program string) string { return accountPrefix + program }

// Account returns a user with the name and groups of a program's service account.
func Account(environment *envtest.Environment, program string) (*envtest.AuthenticatedUser, error) {
	user, err := environment.AddUser(envtest.User{
		Name:   AccountName(program),
		Groups: []string{"system:serviceaccounts", "system:serviceaccounts:" + names.SystemNamespace, "system:authenticated"},
	}, &rest.Config{QPS: -1, WarningHandler: rest.NoWarnings{}})
	if err != nil {
		return nil, fmt.Errorf("adding the account of program %s: %w", program, err)
	}
	return user, nil
}

// As returns the configuration of a client that acts as a program.
func (a *API) As(program string) (*rest.Config, error) {
	user, err := Account(a.Environment, program)
	if err != nil {
		return nil, err
	}
	return user.Config(), nil
}

// Stop stops the API server. It returns an error if a role or a policy of the installation refused a
// request of a program.
func (a *API) Stop() error {
	err := a.Environment.Stop()
	if a.folder == "" {
		return err
	}
	return errors.Join(err, a.refusals(), os.RemoveAll(a.folder))
}

// logRequests makes the API server log the requests of the programs.
func (a *API) logRequests() error {
	folder, err := os.MkdirTemp("", "di-audit-")
	if err != nil {
		return fmt.Errorf("making a folder: %w", err)
	}
	a.folder = folder
	policy := filepath.Join(folder, "policy.yaml")
	if err := os.WriteFile(policy, []byte(installedAuditPolicy), 0o600); err != nil {
		return fmt.Errorf("writing the audit policy: %w", err)
	}
	a.ControlPlane.GetAPIServer().Configure().
		Set("audit-policy-file", policy).Set("audit-log-path", a.auditLog()).
		// A log that rotates would lose refusals.
		Set("audit-log-maxsize", "100000")
	return nil
}

func (a *API) auditLog() string { return filepath.Join(a.folder, "audit.log") }

// refusals returns an error that lists the distinct refusals in the log.
func (a *API) refusals() error {
	content, err := os.ReadFile(a.auditLog())
	if err != nil {
		return fmt.Errorf("audit log: %w", err)
	}
	var refused []string
	lines := bufio.NewScanner(bytes.NewReader(content))
	lines.Buffer(nil, 1<<20)
	for lines.Scan() {
		var event struct {
			User           struct{ Username string }
			RequestURI     string
			Verb           string
			ResponseStatus metav1.Status
		}
		if err := json.Unmarshal(lines.Bytes(), &event); err != nil {
			return fmt.Errorf("audit log: %w", err)
		}
		if what := event.User.Username + ": " + event.ResponseStatus.Message; IsRefusal(&event.ResponseStatus) && !slices.Contains(refused, what) {
			refused = append(refused, what)
		}
	}
	if err := lines.Err(); err != nil {
		return fmt.Errorf("audit log: %w", err)
	}
	if len(refused) > 0 {
		return fmt.Errorf("roles or policies of the installation refuse requests of the programs:\n%s", strings.Join(refused, "\n"))
	}
	return nil
}

// IsRefusal reports whether a role or a policy of this project refused a request. Quotas, Pod Security
// levels and policies of others are no part of the installation.
func IsRefusal(status *metav1.Status) bool {
	return status.Reason == metav1.StatusReasonForbidden &&
		(strings.Contains(status.Message, "ValidatingAdmissionPolicy 'di-orchestrator-") || strings.Contains(status.Message, " cannot "))
}

// Install creates what config/default contains except CRDs, programs and what routes requests to
// them: the namespace, roles, policies and network policies. It returns when they are in force. If the
// CRDs are not installed yet, the policies for them are not checked.
func Install(ctx context.Context, config *rest.Config) error {
	scheme := runtime.NewScheme()
	if err := clientgoscheme.AddToScheme(scheme); err != nil {
		return fmt.Errorf("registering kinds: %w", err)
	}
	api, err := client.New(config, client.Options{Scheme: scheme})
	if err != nil {
		return fmt.Errorf("client: %w", err)
	}
	objects, err := Manifests(ctx, filepath.Join("config", "default"))
	if err != nil {
		return err
	}
	objects = slices.DeleteFunc(objects, func(object *unstructured.Unstructured) bool {
		return slices.Contains([]string{
			"CustomResourceDefinition", "Deployment", "PodDisruptionBudget", "Service", "MutatingWebhookConfiguration", "ValidatingWebhookConfiguration",
		}, object.GetKind())
	})
	for _, object := range objects {
		if err := api.Create(ctx, object.DeepCopy()); client.IgnoreAlreadyExists(err) != nil {
			return fmt.Errorf("installing %s %s: %w", object.GetKind(), object.GetName(), err)
		}
	}
	ctx, cancel := context.WithTimeout(ctx, Patience)
	defer cancel()
	return errors.Join(waitGranted(ctx, api, objects), waitEnforced(ctx, api))
}

// Manifests returns the objects of a kustomization, whose path is relative to the checkout.
func Manifests(ctx context.Context, path string) ([]*unstructured.Unstructured, error) {
	kubectl := filepath.Join(os.Getenv(AssetsVariable), "kubectl")
	output, err := exec.CommandContext(ctx, kubectl, "kustomize", filepath.Join(Root(), path)).Output()
	if err != nil {
		return nil, fmt.Errorf("kubectl kustomize %s: %w", path, err)
	}
	return Decode(output)
}

// Decode returns the objects of a YAML text. It leaves out documents without content.
func Decode(text []byte) ([]*unstructured.Unstructured, error) {
	var objects []*unstructured.Unstructured
	for document := range strings.SplitSeq(string(text), "\n---\n") {
		object := &unstructured.Unstructured{}
		if err := yaml.Unmarshal([]byte(document), &object.Object); err != nil {
			return nil, fmt.Errorf("decoding an object: %w", err)
		}
		if len(object.Object) > 0 {
			objects = append(objects, object)
		}
	}
	return objects, nil
}

// waitGranted waits until the API server, which learns of roles by its own watches, grants the first
// rule of each role to the subjects of its binding.
func waitGranted(ctx context.Context, api client.Client, objects []*unstructured.Unstructured) error {
	roles := map[string][]rbacv1.PolicyRule{}
	var bindings []rbacv1.RoleBinding
	for _, object := range objects {
		switch object.GetKind() {
		case "Role", "ClusterRole":
			var role rbacv1.Role
			if err := runtime.DefaultUnstructuredConverter.FromUnstructured(object.Object, &role); err != nil {
				return fmt.Errorf("decoding a role: %w", err)
			}
			roles[object.GetKind()+object.GetName()] = role.Rules
		case "RoleBinding", "ClusterRoleBinding":
			var binding rbacv1.RoleBinding
			if err := runtime.DefaultUnstructuredConverter.FromUnstructured(object.Object, &binding); err != nil {
				return fmt.Errorf("decoding a binding: %w", err)
			}
			bindings = append(bindings, binding)
		}
	}
	for i := range bindings {
		rules := roles[bindings[i].RoleRef.Kind+bindings[i].RoleRef.Name]
		if len(rules) == 0 {
			continue
		}
		for _, subject := range bindings[i].Subjects {
			if err := waitAllowed(ctx, api, &rules[0], bindings[i].Namespace, subject); err != nil {
				return err
			}
		}
	}
	return nil
}

// waitAllowed waits until a subject may do what a rule names first.
func waitAllowed(ctx context.Context, api client.Client, rule *rbacv1.PolicyRule, namespace string, subject rbacv1.Subject) error {
	resource, subresource, _ := strings.Cut(rule.Resources[0], "/")
	asked := authorizationv1.ResourceAttributes{
		Namespace: namespace, Verb: rule.Verbs[0], Group: rule.APIGroups[0], Resource: resource, Subresource: subresource,
	}
	if len(rule.ResourceNames) > 0 {
		asked.Name = rule.ResourceNames[0]
	}
	user := "system:serviceaccount:" + subject.Namespace + ":" + subject.Name
	return wait.PollUntilContextCancel(ctx, 20*time.Millisecond, true, func(ctx context.Context) (bool, error) {
		review := &authorizationv1.SubjectAccessReview{Spec: authorizationv1.SubjectAccessReviewSpec{User: user, ResourceAttributes: &asked}}
		err := api.Create(ctx, review)
		return review.Status.Allowed, err
	})
}

// waitEnforced waits until the API server enforces the policies: it compiles them together.
func waitEnforced(ctx context.Context, api client.Client) error {
	crd := &unstructured.Unstructured{}
	crd.SetAPIVersion("apiextensions.k8s.io/v1")
	crd.SetKind("CustomResourceDefinition")
	crd.SetName("dijobs.diengine.opendilab.org")
	forbidden := client.RawPatch(types.MergePatchType, []byte(`{"spec":{"conversion":{"strategy":"None","webhook":null}}}`))
	return wait.PollUntilContextCancel(ctx, 20*time.Millisecond, true, func(ctx context.Context) (bool, error) {
		err := api.Patch(ctx, crd.DeepCopy(), forbidden, client.DryRunAll)
		if apierrors.IsForbidden(err) || apierrors.IsNotFound(err) {
			return true, nil
		}
		return false, client.IgnoreNotFound(err)
	})
}
