// Copyright The DI Orchestrator Authors.
// SPDX-License-Identifier: Apache-2.0

// Package rbac tests that the programs have exactly the permissions that they need. A real API
// server logs the requests of each service account while the built programs exercise all their
// functions. The test compares these requests with the roles of the chart.
package rbac

import (
	"context"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	authorizationv1 "k8s.io/api/authorization/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/envtest"

	"opendilab.org/di-orchestrator/internal/names"
	"opendilab.org/di-orchestrator/test/testkit"
	"opendilab.org/di-orchestrator/test/testkit/program"
	"opendilab.org/di-orchestrator/test/testkit/specs"
)

const (
	// system is the namespace of the programs.
	system = names.SystemNamespace
	// patience is the timeout of every step under load.
	patience = 5 * time.Minute
)

func TestRBAC(t *testing.T) {
	SetDefaultEventuallyPollingInterval(50 * time.Millisecond)
	specs.Run(t, "The programs use what they may")
}

// plane is an API server that logs the programs' requests.
type plane struct {
	environment *envtest.Environment
	// api has all permissions.
	api      client.WithWatch
	auditLog string
	// binary is the path of the program.
	binary string
	// onlyLists makes programs list without streaming, as from API servers before 1.32.
	onlyLists bool
}

// newPlane starts an API server without any objects of this project, and builds the program.
func newPlane(ctx context.Context) *plane {
	GinkgoHelper()
	Expect(os.Getenv(testkit.AssetsVariable)).NotTo(BeEmpty(), "run the tests by make test, or set "+testkit.AssetsVariable+" to a folder with etcd, kube-apiserver and kubectl")
	folder := GinkgoT().TempDir()
	p := &plane{environment: &envtest.Environment{ControlPlaneStartTimeout: testkit.Patience, ControlPlaneStopTimeout: testkit.Patience}, auditLog: filepath.Join(folder, "audit.log")}
	var err error
	p.binary = specs.Must(program.Build(ctx, folder))

	policy := filepath.Join(folder, "policy.yaml")
	Expect(os.WriteFile(policy, []byte(auditPolicy), 0o600)).To(Succeed())
	p.environment.ControlPlane.GetAPIServer().Configure().
		Set("audit-policy-file", policy).Set("audit-log-path", p.auditLog).
		// With this plugin, setting owner references that block deletion requires a permission.
		Append("enable-admission-plugins", "OwnerReferencesPermissionEnforcement")
	testkit.AddFlags(p.environment, testkit.GangFlags()...)
	err = testkit.Start(p.environment)
	Expect(err).NotTo(HaveOccurred())
	DeferCleanup(p.stop)
	p.api = specs.Must(testkit.NewClient(p.environment.Config))
	for _, name := range []string{system, jobs} {
		Expect(p.api.Create(ctx, &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: name}})).To(Succeed())
	}
	return p
}

// stop stops the API server once. Its log is complete afterwards.
func (p *plane) stop() {
	GinkgoHelper()
	if p.environment != nil {
		Expect(p.environment.Stop()).To(Succeed())
		p.environment = nil
	}
}

// chart returns the objects that the chart installs, including its hooks.
func chart(ctx context.Context, values ...string) []*unstructured.Unstructured {
	GinkgoHelper()
	helm := os.Getenv("HELM")
	Expect(helm).NotTo(BeEmpty(), "run the tests by make test, or set HELM to the program")
	args := []string{"template", "di", filepath.Join(testkit.Root(), "charts", "di-orchestrator"), "--namespace", system, "--kube-version", "1.30.0"}
	for _, value := range values {
		args = append(args, "--set", value)
	}
	output := specs.Must(exec.CommandContext(ctx, helm, args...).Output())
	return specs.Must(testkit.Decode(output))
}

// install creates the objects of the given kinds.
func (p *plane) install(ctx context.Context, objects []*unstructured.Unstructured, kinds ...string) {
	GinkgoHelper()
	for _, object := range objects {
		for _, kind := range kinds {
			if object.GetKind() == kind {
				Expect(p.api.Create(ctx, object.DeepCopy())).To(Succeed(), object.GetKind()+" "+object.GetName())
			}
		}
	}
}

// installRights creates the roles, policies and network policies. The test fails if one of these refuses a
// request of a program.
func (p *plane) installRights(ctx context.Context, objects []*unstructured.Unstructured) {
	GinkgoHelper()
	p.install(ctx, objects, "ServiceAccount", "ClusterRole", "ClusterRoleBinding", "Role", "RoleBinding",
		"ValidatingAdmissionPolicy", "ValidatingAdmissionPolicyBinding", "NetworkPolicy")
}

// waitGranted waits until the API server, which learns of roles by its own watches, allows the
// granted requests.
func (p *plane) waitGranted(ctx context.Context, grants []grant) {
	GinkgoHelper()
	for _, g := range grants {
		resource, subresource, _ := strings.Cut(g.resource, "/")
		review := &authorizationv1.SubjectAccessReview{Spec: authorizationv1.SubjectAccessReviewSpec{
			User: accounts + g.holder,
			ResourceAttributes: &authorizationv1.ResourceAttributes{
				Namespace: g.namespace, Verb: g.verb, Group: g.group, Resource: resource, Subresource: subresource, Name: g.name,
			},
		}}
		Eventually(func() bool {
			Expect(p.api.Create(ctx, review)).To(Succeed())
			return review.Status.Allowed
		}).Should(BeTrue(), g.String())
	}
}
