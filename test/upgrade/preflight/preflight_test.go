// Copyright The DI Orchestrator Authors.
// SPDX-License-Identifier: Apache-2.0

// Package preflight tests on a real API server what the preflight reports about earlier releases
// before an upgrade changes anything.
package preflight

import (
	"errors"
	"fmt"
	"io"
	"net/http"
	"os"
	"strings"
	"testing"

	. "github.com/onsi/gomega"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/client-go/rest"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/envtest"

	"opendilab.org/di-orchestrator/test/testkit"
	"opendilab.org/di-orchestrator/test/testkit/expect"
	"opendilab.org/di-orchestrator/test/upgrade/legacy"
	"opendilab.org/di-orchestrator/upgrade/crds"
	"opendilab.org/di-orchestrator/upgrade/preflight"
	"opendilab.org/di-orchestrator/webhook/crdschema"
	"opendilab.org/di-orchestrator/webhook/validation"
)

var environment *envtest.Environment

func TestMain(m *testing.M) {
	os.Exit(testkit.RunOnBareAPI(m, &environment))
}

// readOnly rejects requests that may change anything.
type readOnly struct{ next http.RoundTripper }

// RoundTrip implements http.RoundTripper.
func (r readOnly) RoundTrip(request *http.Request) (*http.Response, error) {
	asks := request.Method == http.MethodPost && strings.HasSuffix(request.URL.Path, "/selfsubjectaccessreviews")
	if request.Method != http.MethodGet && !asks {
		return nil, fmt.Errorf("%s %s may change something", request.Method, request.URL)
	}
	if strings.HasPrefix(request.URL.Path, "/apis/diengine.opendilab.org/") && request.URL.Query().Get("limit") != "500" {
		return nil, errors.New("objects must be read in pages: " + request.URL.String())
	}
	return r.next.RoundTrip(request)
}

// look runs the preflight as a user and rejects writes.
func look(t *testing.T, user string) *preflight.Report {
	t.Helper()
	config := rest.CopyConfig(environment.Config)
	config.Impersonate = rest.ImpersonationConfig{UserName: user}
	config.Wrap(func(next http.RoundTripper) http.RoundTripper { return readOnly{next} })
	schema, err := crdschema.New()
	expect.NoError(t, err)
	inspector := &preflight.Inspector{Namespace: legacy.SystemNamespace, Rules: validation.NewRules(schema, validation.Bounds{}), Installing: true}
	expect.NoError(t, inspector.Connect(config))
	report, err := inspector.Inspect(t.Context())
	expect.NoError(t, err)
	return report
}

// said returns the findings of a severity, one per line.
func said(report *preflight.Report, severity preflight.Severity) []string {
	var lines []string
	for i := range report.Findings {
		if found := &report.Findings[i]; found.Severity == severity {
			lines = append(lines, strings.TrimPrefix(found.Object+": "+found.Message, ": "))
		}
	}
	return lines
}

func text(t *testing.T, report *preflight.Report) string {
	t.Helper()
	var out strings.Builder
	expect.NoError(t, report.Print(&out))
	return out.String()
}

// The releases are installed one after the other on one API server because definitions are
// cluster-scoped.
func TestWhatIsFoundIsSaid(t *testing.T) {
	t.Parallel()
	g := NewWithT(t)
	api, err := testkit.NewClient(environment.Config)
	g.Expect(err).NotTo(HaveOccurred())

	report := look(t, "")
	g.Expect(report.Fine).To(BeTrue(), "%v", report.Findings)
	g.Expect(report.Release).To(Equal(crds.OriginNone))
	g.Expect(report.Objects).To(BeEmpty())
	g.Expect(text(t, report)).To(ContainSubstring("Found: no installation"))

	withRelease(t, api, legacy.V022(), foundV022)
	withRelease(t, api, legacy.V111(), foundV11)
	withRelease(t, api, legacy.V113(), foundV11)
	withRelease(t, api, legacy.V100(), foundV100)
	foundOurs(t, api)
}

// jobs exceeds the number of states of any release.
const jobs = 11

func withRelease(t *testing.T, api client.Client, release legacy.Release, check func(*testing.T, *preflight.Report, []legacy.Job)) {
	t.Helper()
	namespace := "training-" + strings.ReplaceAll(release.Name, ".", "-")
	made, err := release.Install(t.Context(), api, namespace, jobs)
	expect.NoError(t, err)
	check(t, look(t, ""), made)
	expect.NoError(t, release.Remove(t.Context(), api, namespace))
}

func foundV022(t *testing.T, report *preflight.Report, _ []legacy.Job) {
	t.Helper()
	g := NewWithT(t)
	g.Expect(said(report, preflight.Stop)).To(BeEmpty())
	g.Expect(said(report, preflight.Warning)).To(BeEmpty())
	g.Expect(report.Fine).To(BeTrue())
	g.Expect(report.Release).To(Equal(crds.OriginCoordinatorLed))
	g.Expect(report.Objects).To(ConsistOf(
		preflight.Count{Kind: "DIJob", Version: "v1alpha1", Objects: jobs}, preflight.Count{Kind: "AggregatorConfig", Version: "v1alpha1", Objects: 1},
	))
	g.Expect(said(report, preflight.Note)).To(ConsistOf(
		HavePrefix("customresourcedefinition aggregatorconfigs.diengine.opendilab.org: cert-manager writes its bundle here"),
		HavePrefix("customresourcedefinition dijobs.diengine.opendilab.org: cert-manager writes its bundle here"),
		HavePrefix("mutatingwebhookconfiguration di-mutating-webhook-configuration: cert-manager writes its bundle here"),
		HavePrefix("validatingwebhookconfiguration di-validating-webhook-configuration: cert-manager writes its bundle here"),
		Equal("deployment di-system/di-operator: runs diorchestrator/di-operator:v0.2.2 with 1 replica: the takeover scales it to 0"),
		HavePrefix("deployment di-system/di-server: "), HavePrefix("deployment di-system/di-webhook: "),
		Equal("service di-system/di-server: is of no Helm release, and stays: clients use its name"),
	))
	g.Expect(text(t, report)).To(And(
		ContainSubstring("Found: what v0.2.2 has installed"), ContainSubstring("An installation would do this, in this order:"),
		ContainSubstring("Nothing stops an installation. Nothing was changed."),
	))

	nobody := look(t, "nobody")
	g.Expect(nobody.Fine).To(BeFalse())
	g.Expect(said(nobody, preflight.Stop)).To(ContainElement("you may not list dijobs.diengine.opendilab.org, so this was not checked"))
	g.Expect(said(nobody, preflight.Warning)).To(ContainElement("you may not create deployments.apps in namespace di-system, as an installation must"))
}

func foundV11(t *testing.T, report *preflight.Report, _ []legacy.Job) {
	t.Helper()
	g := NewWithT(t)
	g.Expect(said(report, preflight.Stop)).To(BeEmpty())
	g.Expect(said(report, preflight.Warning)).To(BeEmpty())
	g.Expect(report.Fine).To(BeTrue())
	g.Expect(report.Release).To(Equal(crds.OriginWorkerLed))
	g.Expect(report.Objects).To(ConsistOf(preflight.Count{Kind: "DIJob", Version: "v2alpha1", Objects: jobs}))
	g.Expect(report.Deployments).To(HaveLen(2))
	g.Expect(said(report, preflight.Note)).To(ConsistOf(
		HavePrefix("deployment di-system/di-operator: "), HavePrefix("deployment di-system/di-server: "), HavePrefix("service di-system/di-server: "),
	))
}

func foundV100(t *testing.T, report *preflight.Report, made []legacy.Job) {
	t.Helper()
	g := NewWithT(t)
	g.Expect(report.Fine).To(BeFalse())
	g.Expect(report.Release).To(Equal(crds.OriginBeforeTasks))
	stops := said(report, preflight.Stop)
	g.Expect(stops).To(ContainElement(HavePrefix("customresourcedefinition dijobs.diengine.opendilab.org: is of v1.0.0")))
	for i := range made {
		g.Expect(stops).To(ContainElement(HavePrefix(fmt.Sprintf("dijob %s/%s: is a job of v1.0.0", made[i].Namespace, made[i].Name))))
	}
	g.Expect(text(t, report)).To(And(
		ContainSubstring("kubectl di convert"), ContainSubstring("An installation must not begin. Nothing was changed."),
	))
	g.Expect(report.Steps).To(BeEmpty())
}

// foundOurs checks this release: the conversion is not served, and an inspection does not need
// it.
func foundOurs(t *testing.T, api client.Client) {
	t.Helper()
	g := NewWithT(t)
	g.Expect((&crds.Installer{API: api, Namespace: legacy.SystemNamespace, Out: io.Discard}).Install(t.Context())).To(Succeed())
	g.Expect(client.IgnoreAlreadyExists(api.Create(t.Context(), &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: legacy.SystemNamespace}}))).To(Succeed())
	job := &unstructured.Unstructured{Object: map[string]any{
		"apiVersion": "diengine.opendilab.org/v2alpha1", "kind": "DIJob", "metadata": map[string]any{"namespace": "default", "name": "new"},
		"spec": map[string]any{"tasks": []any{map[string]any{"type": "learner", "template": map[string]any{"spec": map[string]any{
			"containers": []any{map[string]any{"name": "learner", "image": "image"}},
		}}}}},
	}}
	g.Expect(api.Create(t.Context(), job)).To(Succeed())
	report := look(t, "")
	g.Expect(report.Fine).To(BeTrue(), "%v", report.Findings)
	g.Expect(report.Findings).To(BeEmpty())
	g.Expect(report.Release).To(Equal(crds.OriginOurs))
	g.Expect(report.Objects).To(ContainElement(preflight.Count{Kind: "DIJob", Version: "v2alpha1", Objects: 1}))
}
