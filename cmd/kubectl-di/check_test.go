// Copyright The DI Orchestrator Authors.
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"strings"
	"testing"
	"time"

	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/wait"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"opendilab.org/di-orchestrator/apis/v2alpha1"
	"opendilab.org/di-orchestrator/cmd/kubectl-di/internal/cli"
	"opendilab.org/di-orchestrator/internal/names"
	"opendilab.org/di-orchestrator/test/testkit"
	"opendilab.org/di-orchestrator/test/testkit/expect"
)

// checkedJob is a job of two tasks; a test replaces a part of the second.
const checkedJob = `apiVersion: diengine.opendilab.org/v2alpha1
kind: DIJob
metadata: {name: pong}
spec:
  volumes: [{name: data, emptyDir: {}}]
  tasks:
  - {type: learner, template: {spec: {containers: [{name: di-container, image: di, env: [{name: DI_RANK, value: "7"}, {name: A, value: b}]}]}}}
  - {type: collector, replicas: 2, template: {spec: {SPEC containers: [{name: di-container, image: di, CONTAINER volumeMounts: [{name: data, mountPath: /data}]}]}}}
`

func checked(spec, container string) string {
	return strings.NewReplacer("SPEC", spec, "CONTAINER", container).Replace(checkedJob)
}

// refuses waits until the API server refuses pods of a namespace with a text. It learns of quotas, labels and
// policies by watches.
func (w *world) refuses(t *testing.T, namespace, text string) {
	t.Helper()
	expect.NoError(t, wait.PollUntilContextTimeout(t.Context(), 10*time.Millisecond, testkit.Patience, true, func(ctx context.Context) (bool, error) {
		err := w.live.Create(ctx, &corev1.Pod{
			ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: "probe"},
			Spec:       corev1.PodSpec{Containers: []corev1.Container{{Name: "probe", Image: "di"}}},
		}, client.DryRunAll)
		if err == nil || !apierrors.IsForbidden(err) && !apierrors.IsInvalid(err) {
			return false, err
		}
		return strings.Contains(err.Error(), text), nil
	}))
}

func TestPodsOfASubmittedJobAreChecked(t *testing.T) {
	t.Parallel()
	w := theWorld(t)
	const at = "    spec.tasks[1].template.spec"
	for name, tc := range map[string]struct {
		manifest string
		wants    []string
	}{
		"a mount without a volume":   {strings.Replace(checked("", ""), "volumeMounts: [{name: data", "volumeMounts: [{name: dta", 1), []string{at + `.containers[0].volumeMounts[0].name: Not found: "dta"`}},
		"a wrong name of a resource": {checked("", "resources: {limits: {gpu: 1}},"), []string{at + `.containers[0].resources.limits[gpu]: Invalid value: "gpu": must be a standard resource`}},
		"an unknown field":           {checked("", "imagee: di,"), []string{at + ".containers[0].imagee: unknown field: pods in this cluster have no such field"}},
		"a missing PriorityClass":    {checked("priorityClassName: gold,", ""), []string{at + ".priorityClassName: no PriorityClass with name gold was found"}},
		"a missing RuntimeClass":     {checked("runtimeClassName: nvidia,", ""), []string{at + `.runtimeClassName: pod rejected: RuntimeClass "nvidia" not found`}},
		"a wrong variable": {
			strings.Replace(checked("", ""), "{name: A, value: b}", `{name: "A=", value: b}`, 1),
			[]string{`    spec.tasks[0].template.spec.containers[0].env[1].name: Invalid value: "A="`},
		},
		"a wrong volume of the job": {
			strings.Replace(checked("", ""), "volumes: [{name: data,", "volumes: [{name: Data, emptyDir: {}}, {name: data,", 1),
			[]string{`  task learner:` + "\n    " + `spec.volumes[0].name: Invalid value: "Data"`, "  task collector:\n    spec.volumes[0].name: "},
		},
	} {
		ns := w.namespace(t)
		got := w.fed(t, ns, tc.manifest, "submit", "--check", "-f", "-")
		if got.code != cli.Failed || got.stdout != "" || !strings.Contains(plain(got.stderr, ns), "stdin: job NS/pong is valid, but its pods would be refused:\n  task ") {
			t.Errorf("%s: got %+v", name, got)
		}
		for _, want := range tc.wants {
			if !strings.Contains(got.stderr, want) {
				t.Errorf("%s: got %s, want %s", name, got.stderr, want)
			}
		}
		w.isEmpty(t, ns)
	}
}

// isEmpty checks that a namespace has neither jobs nor pods.
func (w *world) isEmpty(t *testing.T, namespace string) {
	t.Helper()
	for _, list := range []client.ObjectList{&v2alpha1.DIJobList{}, &corev1.PodList{}} {
		expect.NoError(t, w.live.List(t.Context(), list, client.InNamespace(namespace)))
		if left := meta.LenList(list); left > 0 {
			t.Errorf("a check left %d objects: %v", left, list)
		}
	}
}

func TestAllMistakesOfAJobAreReportedInOneRound(t *testing.T) {
	t.Parallel()
	w, ns := inNamespace(t)
	// An unknown field, a value of no type, a value that is none, and an unknown field of a pod.
	wrong := strings.NewReplacer("spec:\n  volumes", "spec:\n  bakoffLimit: 1\n  ttlSecondsAfterFinished: 1h\n  volumes", "type: learner", "type: lerner").Replace(checked("", "imagee: di,"))
	for _, tc := range []struct {
		args  []string
		wants []string
	}{
		{nil, []string{`unknown field "spec.bakoffLimit": did you mean backoffLimit?`, "spec.ttlSecondsAfterFinished: ", `spec.tasks[0].type: Unsupported value: "lerner"`}},
		{[]string{"--dry-run=server"}, []string{`unknown field "spec.bakoffLimit"`, `spec.tasks[0].type: Unsupported value: "lerner"`}},
		{[]string{"--check"}, []string{`unknown field "spec.bakoffLimit"`, `spec.tasks[0].type: Unsupported value: "lerner"`}},
	} {
		got := w.fed(t, ns, wrong, append([]string{"submit", "-f", "-"}, tc.args...)...)
		for _, want := range tc.wants {
			if got.code != cli.Failed || strings.Count(got.stderr, want) != 1 {
				t.Errorf("%v: got %+v, want %s once", tc.args, got, want)
			}
		}
	}
	got := w.fed(t, ns, strings.Replace(checked("", "imagee: di,"), "type: learner", "type: lerner", 1), "submit", "--check", "-f", "-")
	for _, want := range []string{`spec.tasks[0].type: Unsupported value: "lerner"`, "    spec.tasks[1].template.spec.containers[0].imagee: unknown field"} {
		if got.code != cli.Failed || strings.Count(got.stderr, want) != 1 {
			t.Errorf("got %+v, want %s once", got, want)
		}
	}
	// The job is right but for an unknown field, so that its pods can be tried.
	got = w.fed(t, ns, strings.Replace(checked("", "imagee: di,"), "spec:\n  volumes", "spec:\n  bakoffLimit: 1\n  volumes", 1), "submit", "--check", "-f", "-")
	for _, want := range []string{"job " + ns + "/pong is refused:\n", "bakoffLimit: did you mean", "pong has pods that would be refused:", ".containers[0].imagee: unknown field"} {
		if got.code != cli.Failed || strings.Count(strings.ReplaceAll(got.stderr, `"spec.bakoffLimit"`, "bakoffLimit"), want) != 1 {
			t.Errorf("got %+v, want %s once", got, want)
		}
	}
	w.isEmpty(t, ns)
}

func TestAGoodJobPassesTheCheckAndIsNotCreated(t *testing.T) {
	t.Parallel()
	w, ns := inNamespace(t)
	for _, manifest := range []string{checked("", ""), strings.Replace(checked("", ""), "name: pong", "generateName: pong-", 1)} {
		got := w.fed(t, ns, manifest, "submit", "--check", "-f", "-")
		if got.code != 0 || !strings.HasSuffix(got.stderr, ": the pods would be created: learner, collector\n") || !strings.HasSuffix(got.stdout, " checked, and not created\n") {
			t.Errorf("got %+v", got)
		}
	}
	if got := w.fed(t, ns, checked("", ""), "submit", "--check", "-f", "-", "-o", "jsonpath={.spec.tasks[1].replicas}"); got.stdout != "2" || got.stderr != "" {
		t.Errorf("got %+v", got)
	}
	w.isEmpty(t, ns)
}

func TestACheckReportsWhatTheNamespaceForbids(t *testing.T) {
	t.Parallel()
	w := theWorld(t)
	for _, tc := range []struct {
		name, probe string
		forbid      func(namespace string)
		wants       []string
	}{
		{"a quota", "exceeded quota", func(namespace string) {
			hard := corev1.ResourceList{corev1.ResourcePods: resource.MustParse("0")}
			quota := &corev1.ResourceQuota{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: "team"}, Spec: corev1.ResourceQuotaSpec{Hard: hard}}
			expect.NoError(t, w.live.Create(t.Context(), quota))
			quota.Status = corev1.ResourceQuotaStatus{Hard: hard, Used: hard}
			expect.NoError(t, w.live.Status().Update(t.Context(), quota))
		}, []string{"spec.tasks[0].template.spec: exceeded quota: team, requested: pods=1, limited: pods=0\n  task collector:\n    spec.tasks[1].template.spec: exceeded"}},
		{"a Pod Security Standard", "violates PodSecurity", func(namespace string) {
			w.labelNamespace(t, namespace, "pod-security.kubernetes.io/enforce", "restricted")
		}, []string{
			`spec.tasks[1].template.spec.containers[0]: violates PodSecurity "restricted:latest": allowPrivilegeEscalation != false (container "di-container" must set`,
			`spec.tasks[1].template.spec.containers[0]: violates PodSecurity "restricted:latest": runAsNonRoot != true (pod or container "di-container" must set`,
		}},
		{"a policy", "denied request: images come from", func(namespace string) {
			w.labelNamespace(t, namespace, "policy", "images")
			w.onlyImagesOf(t, "registry.example.com/")
		}, []string{"spec.tasks[0].template.spec: ValidatingAdmissionPolicy 'images' with binding 'images' denied request: images come from registry.example.com/"}},
	} {
		ns := w.namespace(t)
		tc.forbid(ns)
		w.refuses(t, ns, tc.probe)
		got := w.fed(t, ns, checked("", ""), "submit", "--check", "-f", "-")
		for _, want := range tc.wants {
			if got.code != cli.Failed || !strings.Contains(got.stderr, want) {
				t.Errorf("%s: got %s, want %s", tc.name, got.stderr, want)
			}
		}
		w.isEmpty(t, ns)
	}
}

func (w *world) labelNamespace(t *testing.T, name, key, value string) {
	t.Helper()
	patch := `{"metadata":{"labels":{"` + key + `":"` + value + `"}}}`
	expect.NoError(t, w.live.Patch(t.Context(), &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: name}}, client.RawPatch("application/merge-patch+json", []byte(patch))))
}

// onlyImagesOf creates a policy for the pods of labelled namespaces.
func (w *world) onlyImagesOf(t *testing.T, registry string) {
	t.Helper()
	pods := admissionregistrationv1.NamedRuleWithOperations{RuleWithOperations: admissionregistrationv1.RuleWithOperations{
		Operations: []admissionregistrationv1.OperationType{admissionregistrationv1.Create},
		Rule:       admissionregistrationv1.Rule{APIGroups: []string{""}, APIVersions: []string{"v1"}, Resources: []string{"pods"}},
	}}
	policy := &admissionregistrationv1.ValidatingAdmissionPolicy{
		ObjectMeta: metav1.ObjectMeta{Name: "images"},
		Spec: admissionregistrationv1.ValidatingAdmissionPolicySpec{
			MatchConstraints: &admissionregistrationv1.MatchResources{
				NamespaceSelector: &metav1.LabelSelector{MatchLabels: map[string]string{"policy": "images"}},
				ResourceRules:     []admissionregistrationv1.NamedRuleWithOperations{pods},
			},
			Validations: []admissionregistrationv1.Validation{{
				Expression: "object.spec.containers.all(c, c.image.startsWith('" + registry + "'))", Message: "images come from " + registry,
			}},
		},
	}
	expect.NoError(t, w.live.Create(t.Context(), policy))
	expect.NoError(t, w.live.Create(t.Context(), &admissionregistrationv1.ValidatingAdmissionPolicyBinding{
		ObjectMeta: metav1.ObjectMeta{Name: "images"},
		Spec: admissionregistrationv1.ValidatingAdmissionPolicyBindingSpec{
			PolicyName: "images", ValidationActions: []admissionregistrationv1.ValidationAction{admissionregistrationv1.Deny},
		},
	}))
}

func TestACheckNeedsTheRightToCreatePods(t *testing.T) {
	t.Parallel()
	w, ns := inNamespace(t)
	w.grant(t, ns, user("kim"), rule(v2alpha1.GroupName, "dijobs", "create"))
	got := w.fed(t, ns, checked("", ""), "submit", "--check", "-f", "-", "--as", "kim")
	want := `checking the pods of job NS/pong: pods is forbidden: User "kim" cannot create resource "pods" in API group "" in the namespace "NS"` +
		"\na role of this right, bound to you, allows it:\n  kubectl -n NS create role kubectl-di-create-pods --verb=create --resource=pods\n"
	if got.code != cli.Failed || !strings.Contains(plain(got.stderr, ns), want) {
		t.Errorf("got %+v, want %s", got, want)
	}
	for _, args := range [][]string{{"--watch"}, {"--dry-run=client"}, {"--dry-run=none"}} {
		if got := kubectlDI(t, "", append([]string{"submit", "--check", "-f", "-"}, args...)...); got.code != cli.Usage || !strings.Contains(got.stderr, "--check") {
			t.Errorf("%v: got %+v", args, got)
		}
	}
}

func TestACheckTriesTheAggregatorThatTheJobNames(t *testing.T) {
	t.Parallel()
	w, ns := inNamespace(t)
	config := &v2alpha1.AggregatorConfig{ObjectMeta: metav1.ObjectMeta{Namespace: ns, Name: "own"}}
	config.Spec.Aggregator.Template.Raw = []byte(`{"spec":{"containers":[{"name":"a","image":"di","volumeMounts":[{"name":"none","mountPath":"/a"}]}]}}`)
	expect.NoError(t, w.live.Create(t.Context(), config))
	const led = `apiVersion: diengine.opendilab.org/v2alpha1
kind: DIJob
metadata: {name: pong}
spec:
  lifecycle: CoordinatorLed
  aggregatorConfig: {name: NAME}
  tasks:
  - {type: coordinator, template: {spec: {containers: [{name: di-container, image: di}]}}}
  - {type: learner, template: {spec: {containers: [{name: di-container, image: di}]}}}
`
	got := w.fed(t, ns, strings.Replace(led, "NAME", "own", 1), "submit", "--check", "-f", "-")
	want := "  task aggregator (AggregatorConfig NS/own):\n    spec.aggregator.template.spec.containers[0].volumeMounts[0].name: Not found: \"none\"\n"
	if got.code != cli.Failed || !strings.Contains(plain(got.stderr, ns), want) || strings.Contains(got.stderr, "task learner") {
		t.Errorf("got %+v, want %s", got, want)
	}
	got = w.fed(t, ns, strings.Replace(led, "NAME", names.AggregatorConfig, 1), "submit", "--check", "-f", "-")
	if got.code != 0 || !strings.Contains(got.stderr, "Warning: task aggregator: its pods cannot be checked: reading aggregatorconfig ") {
		t.Errorf("got %+v", got)
	}
}
