// Copyright The DI Orchestrator Authors.
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"encoding/json"
	"fmt"
	"net/http"
	"slices"
	"strings"
	"testing"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"opendilab.org/di-orchestrator/apis/v2alpha1"
	"opendilab.org/di-orchestrator/cmd/kubectl-di/internal/cli"
	"opendilab.org/di-orchestrator/cmd/kubectl-di/internal/ui/api"
	"opendilab.org/di-orchestrator/test/testkit/expect"
)

const pastedJob = `apiVersion: diengine.opendilab.org/v2alpha1
kind: DIJob
metadata:
  name: pasted
spec:
  tasks:
  - type: learner
    replicas: 2
    template:
      spec:
        containers:
        - {name: di-container, image: di}
`

// creates posts the YAML of a job like the page.
func (b *browser) creates(t *testing.T, text string, dryRun bool) (int, []byte) {
	t.Helper()
	body, err := json.Marshal(map[string]any{"dryRun": dryRun, "yaml": text})
	expect.NoError(t, err)
	return b.post(t, "/api/v1/jobs/new", string(body))
}

func TestAJobIsCreatedByThePageAfterADryRun(t *testing.T) {
	t.Parallel()
	w, ns := inNamespace(t)
	b := w.browse(t, ns)
	key := client.ObjectKey{Namespace: ns, Name: "pasted"}
	for _, dryRun := range []bool{true, false} {
		code, answer := b.creates(t, pastedJob, dryRun)
		if code != http.StatusOK {
			t.Fatalf("dry run %t: status %d: %s", dryRun, code, answer)
		}
		b.conforms(t, "Created", answer)
		var created api.Created
		expect.NoError(t, json.Unmarshal(answer, &created))
		if created.Done == dryRun || created.Namespace != ns || created.Name != "pasted" || strings.Contains(created.YAML, "uid:") {
			t.Errorf("dry run %t: created %+v", dryRun, created)
		}
		if err := w.live.Get(t.Context(), key, &v2alpha1.DIJob{}); apierrors.IsNotFound(err) != dryRun {
			t.Errorf("after dry run %t the job is read with %v", dryRun, err)
		}
	}
	code, answer := b.creates(t, pastedJob, true)
	b.conforms(t, "Error", answer)
	if code != http.StatusConflict || !strings.Contains(string(answer), `"field":"metadata.name"`) {
		t.Errorf("a job of the same name: status %d: %s", code, answer)
	}
}

func TestARefusalOfAJobNamesTheField(t *testing.T) {
	t.Parallel()
	w, ns := inNamespace(t)
	b := w.browse(t, ns)
	for name, c := range map[string]struct {
		old, new, field string
		code            int
	}{
		"a negative number": {"replicas: 2", "replicas: -2", "spec.tasks[0].replicas", http.StatusUnprocessableEntity},
		"an unknown field":  {"replicas: 2", "replicaz: 2", "spec.tasks[0].replicaz", http.StatusUnprocessableEntity},
		"another kind":      {"DIJob", "Pod", "", http.StatusBadRequest},
		"another namespace": {"name: pasted", "name: pasted\n  namespace: kube-system", "", http.StatusForbidden},
		"two documents":     {"kind: DIJob", "kind: DIJob\n---\nkind: Pod", "", http.StatusBadRequest},
		"no YAML":           {"kind: DIJob", "kind: [", "", http.StatusBadRequest},
		"no job":            {pastedJob, "", "", http.StatusBadRequest},
		"a long text":       {pastedJob, strings.Repeat("# long\n", 7500), "", http.StatusBadRequest},
	} {
		code, answer := b.creates(t, strings.Replace(pastedJob, c.old, c.new, 1), true)
		b.conforms(t, "Error", answer)
		var refusal api.Error
		expect.NoError(t, json.Unmarshal(answer, &refusal))
		isNamed := c.field == "" || slices.ContainsFunc(refusal.Findings, func(one api.Finding) bool { return one.Field == c.field })
		if code != c.code || !isNamed {
			t.Errorf("%s: status %d: %s", name, code, answer)
		}
	}
}

func TestACloneLeavesOutWhatTheServerWrites(t *testing.T) {
	t.Parallel()
	w, ns := inNamespace(t)
	job := w.scalable(t, ns, "pong", nil)
	var clone api.Manifest
	b := w.browse(t, ns)
	b.get(t, jobPath(job)+"/manifest?clean=true", "Manifest", &clone)
	for _, left := range []string{"uid:", "status:", "resourceVersion:", "creationTimestamp:"} {
		if strings.Contains(clone.YAML, left) {
			t.Errorf("the clone has %s\n%s", left, clone.YAML)
		}
	}
	if code, answer := b.creates(t, strings.Replace(clone.YAML, "name: pong", "name: pong-copy", 1), false); code != http.StatusOK {
		t.Errorf("the clone: status %d: %s", code, answer)
	}
}

func TestAMissingRightIsNamedWithTheCommandsThatGiveIt(t *testing.T) {
	t.Parallel()
	w, ns := inNamespace(t)
	b := w.browse(t, ns, "--as", "nina")
	got := b.do(t, http.MethodGet, b.base+"/api/v1/namespaces/"+ns+"/jobs/pong", "", nil)
	var refusal api.Error
	expect.NoError(t, json.Unmarshal(got.body, &refusal))
	want := []string{
		fmt.Sprintf("kubectl -n %s create role kubectl-di-get-dijobs --verb=get --resource=dijobs.diengine.opendilab.org", ns),
		fmt.Sprintf("kubectl -n %s create rolebinding kubectl-di-get-dijobs --role=kubectl-di-get-dijobs --user=nina", ns),
	}
	if got.code != http.StatusForbidden || refusal.Right != "get dijobs in namespace "+ns || !slices.Equal(refusal.Grant, want) {
		t.Errorf("status %d: %+v", got.code, refusal)
	}
}

func TestAJobThatDoesNotExistHasTheNearOne(t *testing.T) {
	t.Parallel()
	w, ns := inNamespace(t)
	w.workers(t, ns, "pong", v2alpha1.Task{Type: v2alpha1.TaskTypeCollector})
	b := w.browse(t, ns)
	got := b.do(t, http.MethodGet, b.base+"/api/v1/namespaces/"+ns+"/jobs/pomg", "", nil)
	var refusal api.Error
	expect.NoError(t, json.Unmarshal(got.body, &refusal))
	if got.code != http.StatusNotFound || !slices.Equal(refusal.Near, []string{"pong"}) {
		t.Errorf("status %d: %+v", got.code, refusal)
	}
}

func TestAnUnknownAddressLeadsToThePage(t *testing.T) {
	t.Parallel()
	w, ns := inNamespace(t)
	b := w.browse(t, ns)
	b.CheckRedirect = func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse }
	if got := b.do(t, http.MethodGet, b.base+"/no/such%20view", "", nil); got.code != http.StatusSeeOther || got.header.Get("Location") != "/#/no/such%20view" {
		t.Errorf("status %d, location %q", got.code, got.header.Get("Location"))
	}
	stranger := &browser{Client: &http.Client{}, base: b.base, spec: b.spec}
	got := stranger.do(t, http.MethodGet, b.base+"/", "", map[string]string{"Accept-Language": "zh-CN"})
	if got.code != http.StatusUnauthorized || !strings.HasPrefix(got.header.Get("Content-Type"), "text/html") || !strings.Contains(string(got.body), "页面未在此打开") {
		t.Errorf("a stranger gets status %d: %s", got.code, got.body)
	}
}

// operatorOf creates the Deployment of an operator of a version.
func (w *world) operatorOf(t *testing.T, namespace, version string) {
	t.Helper()
	labels := map[string]string{"app.kubernetes.io/name": "di-orchestrator", "app.kubernetes.io/component": "operator"}
	expect.NoError(t, w.live.Create(t.Context(), &appsv1.Deployment{
		ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: "di-operator", Labels: labels},
		Spec: appsv1.DeploymentSpec{Selector: &metav1.LabelSelector{MatchLabels: labels}, Template: corev1.PodTemplateSpec{
			ObjectMeta: metav1.ObjectMeta{Labels: labels},
			Spec:       corev1.PodSpec{Containers: []corev1.Container{{Name: "operator", Image: "example.com/di-orchestrator:" + version}}},
		}},
	}))
}

func TestSessionNamesTheVersionOfTheOperatorAndThePrices(t *testing.T) {
	t.Parallel()
	w, ns := inNamespace(t)
	w.operatorOf(t, ns, "v2.7.0")
	var session api.Session
	w.browse(t, ns, "--server-namespace", ns, "--price", "gpu=2.5", "--price", "cpu=0").get(t, "/api/v1/session", "Session", &session)
	if session.Operator != "v2.7.0" || fmt.Sprint(session.Prices) != "map[cpu:0 gpu:2.5]" {
		t.Errorf("the operator is %q, and the prices are %v", session.Operator, session.Prices)
	}
	for _, wrong := range []string{"gpu", "gpu=x", "disk=1", "gpu=-1", "gpu=NaN"} {
		if got := w.run(t, ns, "ui", "--price", wrong); got.code != cli.Usage || !strings.Contains(got.stderr, fmt.Sprintf("--price %q", wrong)) {
			t.Errorf("--price %s: %+v", wrong, got)
		}
	}
}
