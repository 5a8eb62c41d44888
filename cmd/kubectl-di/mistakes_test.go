// Copyright The DI Orchestrator Authors.
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/wait"
	"k8s.io/utils/clock"
	"k8s.io/utils/ptr"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/config"
	metricsserver "sigs.k8s.io/controller-runtime/pkg/metrics/server"
	"sigs.k8s.io/yaml"

	"opendilab.org/di-orchestrator/apis/v2alpha1"
	"opendilab.org/di-orchestrator/cmd/kubectl-di/internal/cli"
	"opendilab.org/di-orchestrator/controllers"
	"opendilab.org/di-orchestrator/controllers/dijob"
	"opendilab.org/di-orchestrator/controllers/dijob/discover"
	"opendilab.org/di-orchestrator/test/testkit"
	"opendilab.org/di-orchestrator/test/testkit/expect"
	"opendilab.org/di-orchestrator/test/webhooks"
)

// The means that find a mistake.
const (
	foundByCreate = "create"
	foundByCheck  = "check"
	foundByRun    = "run"
)

// mistake is an item of testdata/mistakes.yaml, which documents its fields.
type mistake struct {
	Mistake    string         `json:"mistake"`
	Found      string         `json:"found"`
	APIVersion string         `json:"apiVersion"`
	Kind       string         `json:"kind"`
	Name       string         `json:"name"`
	Namespace  string         `json:"namespace"`
	Spec       map[string]any `json:"spec"`
	Given      string         `json:"given"`
	Says       string         `json:"says"`
	Condition  string         `json:"condition"`
	Reason     string         `json:"reason"`
	Pod        map[string]any `json:"pod"`
}

func readMistakes(t *testing.T) []mistake {
	t.Helper()
	var table struct {
		Mistakes []mistake `json:"mistakes"`
	}
	expect.NoError(t, yaml.UnmarshalStrict([]byte(readFile(t, filepath.Join("testdata", "mistakes.yaml"))), &table))
	for i := range table.Mistakes {
		m := &table.Mistakes[i]
		if !slices.Contains([]string{foundByCreate, foundByCheck, foundByRun}, m.Found) {
			t.Fatalf("%s: found %q", m.Mistake, m.Found)
		}
		for field, initial := range map[*string]string{&m.APIVersion: v2alpha1.GroupVersion.String(), &m.Kind: "DIJob", &m.Name: "j"} {
			if *field == "" {
				*field = initial
			}
		}
	}
	return table.Mistakes
}

// manifest returns the job's manifest.
func (m *mistake) manifest(t *testing.T) string {
	t.Helper()
	written, err := json.Marshal(map[string]any{
		"apiVersion": m.APIVersion, "kind": m.Kind, "metadata": map[string]string{"name": m.Name}, "spec": m.Spec,
	})
	expect.NoError(t, err)
	return string(written)
}

// startOperated starts an API server with the webhooks and the operator of jobs.
func startOperated(t *testing.T) *world {
	t.Helper()
	api, err := webhooks.StartAPIWithWebhooks(t.Context())
	expect.NoError(t, err)
	t.Cleanup(func() {
		if err := api.Stop(); err != nil {
			t.Error(err)
		}
	})
	w := &world{environment: api.API, kubeconfig: filepath.Join(t.TempDir(), "kubeconfig")}
	expect.NoError(t, os.WriteFile(w.kubeconfig, api.KubeConfig, 0o600))
	w.live, err = testkit.NewClient(api.Config)
	expect.NoError(t, err)
	account, err := api.As(testkit.Operator)
	expect.NoError(t, err)
	mgr, err := ctrl.NewManager(account, ctrl.Options{
		Scheme: w.live.Scheme(), Cache: controllers.CacheOptions(), Metrics: metricsserver.Options{BindAddress: "0"},
		Controller: config.Controller{SkipNameValidation: ptr.To(true)},
	})
	expect.NoError(t, err)
	running, stop := context.WithCancel(context.WithoutCancel(t.Context()))
	expect.NoError(t, dijob.Setup(running, mgr, dijob.Options{
		Registerer: prometheus.NewRegistry(), Kueue: discover.NewKueue(mgr.GetRESTMapper(), clock.RealClock{}).IsServed,
	}))
	stopped := make(chan error, 1)
	go func() { stopped <- mgr.Start(running) }()
	t.Cleanup(func() {
		stop()
		if err := <-stopped; err != nil {
			t.Error(err)
		}
	})
	w.onlyImagesOf(t, "registry.example.com/")
	return w
}

func TestTypicalMistakesAreFoundAndExplained(t *testing.T) {
	t.Parallel()
	w := startOperated(t)
	t.Run("each", func(t *testing.T) {
		for _, m := range readMistakes(t) {
			t.Run(m.Mistake, func(t *testing.T) {
				t.Parallel()
				if m.Namespace == "" {
					m.Namespace = w.namespace(t)
				}
				w.give(t, &m)
				switch m.Found {
				case foundByCreate:
					w.refusesJob(t, &m)
				case foundByCheck:
					w.refusesPods(t, &m)
				default:
					w.explains(t, &m)
				}
			})
		}
	})
}

// give creates what the namespace of a mistake has.
func (w *world) give(t *testing.T, m *mistake) {
	t.Helper()
	switch m.Given {
	case "":
	case "quota":
		hard := corev1.ResourceList{corev1.ResourceRequestsCPU: resource.MustParse("4")}
		w.setQuota(t, m.Namespace, hard)
		w.refuses(t, m.Namespace, "failed quota")
	case "limits":
		expect.NoError(t, w.live.Create(t.Context(), &corev1.LimitRange{
			ObjectMeta: metav1.ObjectMeta{Namespace: m.Namespace, Name: "team"},
			Spec: corev1.LimitRangeSpec{Limits: []corev1.LimitRangeItem{{
				Type: corev1.LimitTypeContainer, Max: corev1.ResourceList{corev1.ResourceCPU: resource.MustParse("2")},
			}}},
		}))
	case "restricted":
		w.labelNamespace(t, m.Namespace, "pod-security.kubernetes.io/enforce", "restricted")
		w.refuses(t, m.Namespace, "violates PodSecurity")
	case "policy":
		w.labelNamespace(t, m.Namespace, "policy", "images")
		w.refuses(t, m.Namespace, "denied request: images come from")
	case "taken":
		expect.NoError(t, w.live.Create(t.Context(), &corev1.Pod{
			ObjectMeta: metav1.ObjectMeta{Namespace: m.Namespace, Name: "j-learner-0"},
			Spec:       corev1.PodSpec{Containers: []corev1.Container{{Name: "a", Image: "di"}}},
		}))
	default:
		t.Fatalf("given %q", m.Given)
	}
}

// setQuota creates an unused quota.
func (w *world) setQuota(t *testing.T, namespace string, hard corev1.ResourceList) {
	t.Helper()
	quota := &corev1.ResourceQuota{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: "team"}, Spec: corev1.ResourceQuotaSpec{Hard: hard}}
	expect.NoError(t, w.live.Create(t.Context(), quota))
	used := corev1.ResourceList{}
	for name := range hard {
		used[name] = resource.MustParse("0")
	}
	quota.Status = corev1.ResourceQuotaStatus{Hard: hard, Used: used}
	expect.NoError(t, w.live.Status().Update(t.Context(), quota))
}

// refusesJob submits a job that must be refused.
func (w *world) refusesJob(t *testing.T, m *mistake) {
	t.Helper()
	got := w.fed(t, m.Namespace, m.manifest(t), "submit", "-f", "-")
	m.checkRefused(t, got)
	w.isEmpty(t, m.Namespace)
}

func (m *mistake) checkRefused(t *testing.T, got ran) {
	t.Helper()
	if got.code != cli.Failed || got.stdout != "" || !strings.Contains(plain(got.stderr, m.Namespace), m.Says) {
		t.Errorf("got %+v, want %s", got, m.Says)
	}
}

// refusesPods submits a valid job in dry run, and checks its pods.
func (w *world) refusesPods(t *testing.T, m *mistake) {
	t.Helper()
	if got := w.fed(t, m.Namespace, m.manifest(t), "submit", "-f", "-", "--dry-run=server"); got.code != 0 {
		t.Errorf("the job is refused already: %+v", got)
	}
	var got ran
	// The API server learns of limits by a watch.
	expect.NoError(t, wait.PollUntilContextTimeout(t.Context(), 50*time.Millisecond, testkit.Patience, true, func(context.Context) (bool, error) {
		got = w.fed(t, m.Namespace, m.manifest(t), "submit", "--check", "-f", "-")
		return got.code != 0 || m.Given == "", nil
	}))
	m.checkRefused(t, got)
	w.isEmpty(t, m.Namespace)
}

// explainedWithin is how soon the status of a job must have the reason.
const explainedWithin = time.Minute

// explains submits a valid job, writes what a kubelet or a scheduler would write into its first pod, and waits
// for the reason in the job's status.
func (w *world) explains(t *testing.T, m *mistake) {
	t.Helper()
	if got := w.fed(t, m.Namespace, m.manifest(t), "submit", "-f", "-"); got.code != 0 {
		t.Fatalf("got %+v", got)
	}
	if m.Pod != nil {
		w.reportPod(t, m)
	}
	job := &v2alpha1.DIJob{}
	err := wait.PollUntilContextTimeout(t.Context(), 20*time.Millisecond, explainedWithin, true, func(ctx context.Context) (bool, error) {
		err := w.live.Get(ctx, client.ObjectKey{Namespace: m.Namespace, Name: m.Name}, job)
		return m.isExplained(&job.Status), err
	})
	if err != nil {
		status, _ := json.Marshal(job.Status)
		t.Errorf("%v: want %s %s %q, got %s", err, m.Condition, m.Reason, m.Says, status)
	}
}

// reportPod writes the status of a job's first pod.
func (w *world) reportPod(t *testing.T, m *mistake) {
	t.Helper()
	var status corev1.PodStatus
	written, err := json.Marshal(m.Pod)
	expect.NoError(t, err)
	expect.NoError(t, json.Unmarshal(written, &status))
	expect.NoError(t, wait.PollUntilContextTimeout(t.Context(), 20*time.Millisecond, testkit.Patience, true, func(ctx context.Context) (bool, error) {
		var pods corev1.PodList
		if err := w.live.List(ctx, &pods, client.InNamespace(m.Namespace)); err != nil || meta.LenList(&pods) == 0 {
			return false, err
		}
		pods.Items[0].Status = status
		err := w.live.Status().Update(ctx, &pods.Items[0])
		return err == nil, ignoreConflict(err)
	}))
}

func ignoreConflict(err error) error {
	if apierrors.IsConflict(err) {
		return nil
	}
	return err
}

// isExplained reports whether a status has the reason of a mistake.
func (m *mistake) isExplained(status *v2alpha1.DIJobStatus) bool {
	if failure := status.LastFailure; m.Condition == "lastFailure" {
		return failure != nil && failure.Reason == m.Reason && strings.Contains(failure.Message, m.Says)
	}
	return slices.ContainsFunc(status.Conditions, func(condition v2alpha1.DIJobCondition) bool {
		return condition.Type == m.Condition && condition.Reason == m.Reason && strings.Contains(condition.Message, m.Says)
	})
}

func TestMistakesAreDocumented(t *testing.T) {
	t.Parallel()
	const head = "| mistake | found by | what you see |\n| --- | --- | --- |\n"
	page := filepath.Join(testkit.Root(), "docs", "validation.md")
	before, rest, found := strings.Cut(readFile(t, page), head)
	rows := rest[:strings.LastIndex(rest, " |\n")+len(" |\n")]
	if !found {
		t.Fatalf("%s has no table that begins with %s", page, head)
	}
	wanted := &strings.Builder{}
	for _, m := range readMistakes(t) {
		if m.Found == foundByCreate {
			continue // The page has the rule.
		}
		fmt.Fprintf(wanted, "| %s | %s | %s |\n", m.Mistake, m.means(), m.seen())
	}
	if *update {
		writeFile(t, page, before+head+wanted.String()+strings.TrimPrefix(rest, rows))
		return
	}
	if rows != wanted.String() {
		t.Errorf("docs/validation.md differs from testdata/mistakes.yaml: run go test ./cmd/kubectl-di -run MistakesAreDocumented -update")
	}
	if count := strings.Count(rows, "\n"); count < 30 {
		t.Errorf("the table has %d mistakes", count)
	}
}

func (m *mistake) means() string {
	return map[string]string{foundByCheck: "`--check`", foundByRun: "status"}[m.Found]
}

func (m *mistake) seen() string {
	if m.Found != foundByRun {
		return "`" + m.Says + "`"
	}
	where := "`" + m.Condition + "`"
	if m.Condition == "lastFailure" {
		where = "`status.lastFailure`"
	}
	if m.Reason != "" && m.Reason != m.Condition {
		where += ", `" + m.Reason + "`"
	}
	if m.Says != "" {
		where += ": `" + m.Says + "`"
	}
	return where
}
