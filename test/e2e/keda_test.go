// Copyright The DI Orchestrator Authors.
// SPDX-License-Identifier: Apache-2.0

//go:build e2e

package e2e

import (
	"context"
	"encoding/json"
	"fmt"
	"net"
	"net/http"
	"net/http/httptest"
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync/atomic"
	"time"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	autoscalingv2 "k8s.io/api/autoscaling/v2"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"opendilab.org/di-orchestrator/apis/v2alpha1"
	"opendilab.org/di-orchestrator/internal/names"
	"opendilab.org/di-orchestrator/test/testkit"
)

const (
	// keda labels specs with the real KEDA, which `cluster keda` installs. CI leaves them out.
	keda          = "keda"
	scaledObjects = "scaledobjects.keda.sh"

	hpaNamespace = "hpa"
	hpaJob       = "autoscaled"

	// autoscalerPatience is the timeout for an autoscaler to converge in a few rounds of 15 s each.
	autoscalerPatience = 2 * patience
)

var _ = Describe("A job that an autoscaler sizes", Ordered, ContinueOnFailure, Serial, Label(keda), func() {
	var queue *atomic.Int64
	var address string
	// follow returns a ScaledObject by which a collector serves ten entries of the queue.
	follow := func(name string, most int) scaledObject {
		return scaledObject{name: name, most: most, trigger: "metrics-api", metadata: map[string]string{
			"url": "http://" + address + "/queue", "valueLocation": "length", "targetValue": "10",
		}}
	}

	BeforeAll(func(ctx SpecContext) {
		if served, _ := callKubectl(ctx, "api-resources", "--api-group=keda.sh", "--output=name"); !strings.Contains(served, scaledObjects) {
			Skip("this cluster has no KEDA: run out/bin/cluster keda, or install it")
		}
		makeNamespace(ctx, hpaNamespace)
		queue, address = serveQueue(ctx)
		submitAutoscaled(ctx)
	})

	BeforeEach(func(ctx SpecContext) {
		kubectlUntilDone(ctx, "scale", dijobs, hpaJob, "--namespace="+hpaNamespace, "--replicas=2")
		autoscaledPods(ctx, 2)
		DeferCleanup(expectUndisturbed)
	})

	AfterEach(func(ctx SpecContext) {
		if CurrentSpecReport().Failed() {
			explain(ctx, hpaNamespace, []string{"get", dijobs, "-o=yaml"}, []string{"describe", "hpa," + scaledObjects},
				[]string{"get", "events", "--sort-by=.lastTimestamp"}, []string{"logs", "--namespace=keda", "deployment/keda-operator", "--tail=100"})
		}
	})

	It("follows the length of a queue by KEDA, and restarts no pod", func(ctx SpecContext) {
		before := autoscaledPods(ctx, 2)
		queue.Store(45)
		follow("queue", 6).create(ctx)
		grown := autoscaledPods(ctx, 5)
		for name, uid := range before {
			Expect(grown).To(HaveKeyWithValue(name, uid))
		}
		expectResized(ctx, "-> 5 replicas of task collector,")
		queue.Store(1)
		Expect(autoscaledPods(ctx, 2)).To(Equal(before))
		expectResized(ctx, "-> 2 replicas of task collector,")
	})

	It("keeps the size at which KEDA is paused", func(ctx SpecContext) {
		queue.Store(45)
		paused := follow("paused", 6)
		paused.annotations = map[string]string{"autoscaling.keda.sh/paused-replicas": "3"}
		paused.create(ctx)
		autoscaledPods(ctx, 3)
		kubectlOutput(ctx, "annotate", scaledObjects, "paused", "--namespace="+hpaNamespace, "autoscaling.keda.sh/paused-replicas-")
		autoscaledPods(ctx, 5)
	})

	It("keeps its bounds, and tells KEDA which", func(ctx SpecContext) {
		queue.Store(1000)
		follow("greedy", 9).create(ctx)
		Eventually(func(g Gomega) {
			g.Expect(kubectlOutputOf(ctx, g, "get", "hpa", "keda-hpa-greedy", `-o=jsonpath={.status.conditions[?(@.type=="AbleToScale")].message}`)).
				To(And(ContainSubstring("spec.elastic"), ContainSubstring("6")))
		}).WithContext(ctx).WithTimeout(autoscalerPatience).WithPolling(time.Second).Should(Succeed())
		Expect(getJob(ctx, Default, hpaNamespace, hpaJob).Spec.Elastic.Replicas).To(HaveValue(BeNumerically("<=", 6)))
	})

	It("has one master beside the ratio rule, which takes over when KEDA leaves", func(ctx SpecContext) {
		queue.Store(35)
		master := follow("master", 6)
		master.create(ctx)
		kubectlOutput(ctx, "patch", dijobs, hpaJob, "--namespace="+hpaNamespace, "--type=merge", `--patch={"spec":{"autoscale":{"ratio":{}}}}`)
		DeferCleanup(func(ctx SpecContext) {
			kubectlUntilDone(ctx, "patch", dijobs, hpaJob, "--namespace="+hpaNamespace, "--type=merge", `--patch={"spec":{"autoscale":null}}`)
		})
		autoscaledPods(ctx, 4)
		expectRule(ctx, v2alpha1.ReasonOtherMaster, "keda-hpa-master")
		master.remove(ctx)
		expectRule(ctx, v2alpha1.ReasonWaitingForReports, "")
	})

	It("follows the CPU of its pods by a HorizontalPodAutoscaler", func(ctx SpecContext) {
		if _, err := core.Discovery().ServerResourcesForGroupVersion("metrics.k8s.io/v1beta1"); err != nil {
			Skip("this cluster serves no metrics of pods: run out/bin/cluster metrics, or install metrics-server: " + err.Error())
		}
		immediately := &autoscalingv2.HPAScalingRules{StabilizationWindowSeconds: ptr.To(int32(0))}
		autoscalers := core.AutoscalingV2().HorizontalPodAutoscalers(hpaNamespace)
		autoscaler, err := autoscalers.Create(ctx, &autoscalingv2.HorizontalPodAutoscaler{
			ObjectMeta: metav1.ObjectMeta{Name: "cpu"},
			Spec: autoscalingv2.HorizontalPodAutoscalerSpec{
				ScaleTargetRef: autoscalingv2.CrossVersionObjectReference{APIVersion: v2alpha1.GroupVersion.String(), Kind: "DIJob", Name: hpaJob},
				MinReplicas:    ptr.To(int32(2)), MaxReplicas: 4,
				Metrics: []autoscalingv2.MetricSpec{{Type: autoscalingv2.ResourceMetricSourceType, Resource: &autoscalingv2.ResourceMetricSource{
					Name: corev1.ResourceCPU, Target: autoscalingv2.MetricTarget{Type: autoscalingv2.AverageValueMetricType, AverageValue: ptr.To(resource.MustParse("100u"))},
				}}},
				Behavior: &autoscalingv2.HorizontalPodAutoscalerBehavior{ScaleUp: immediately, ScaleDown: immediately.DeepCopy()},
			},
		}, metav1.CreateOptions{})
		Expect(err).NotTo(HaveOccurred())
		DeferCleanup(func(ctx SpecContext) { kubectlUntilDone(ctx, "delete", "hpa/cpu", "--namespace="+hpaNamespace) })
		autoscaledPods(ctx, 4)
		kubectlOutput(ctx, "patch", "hpa/cpu", "--namespace="+hpaNamespace, "--type=json",
			`--patch=[{"op":"replace","path":"/spec/metrics/0/resource/target/averageValue","value":"64"}]`)
		autoscaledPods(ctx, *autoscaler.Spec.MinReplicas)
	})
})

// scaledObject is a ScaledObject of KEDA for the job, which keeps two collectors or more.
type scaledObject struct {
	name, trigger         string
	most                  int
	metadata, annotations map[string]string
}

// create creates it until the spec ends.
func (s scaledObject) create(ctx SpecContext) {
	GinkgoHelper()
	content, err := json.Marshal(map[string]any{
		"apiVersion": "keda.sh/v1alpha1", "kind": "ScaledObject",
		"metadata": map[string]any{"name": s.name, "annotations": s.annotations},
		"spec": map[string]any{
			"scaleTargetRef":  map[string]any{"apiVersion": v2alpha1.GroupVersion.String(), "kind": "DIJob", "name": hpaJob},
			"minReplicaCount": 2, "maxReplicaCount": s.most,
			"advanced": map[string]any{"horizontalPodAutoscalerConfig": map[string]any{"behavior": map[string]any{
				"scaleDown": map[string]any{"stabilizationWindowSeconds": 0},
			}}},
			"triggers": []any{map[string]any{"type": s.trigger, "metadata": s.metadata}},
		},
	})
	Expect(err).NotTo(HaveOccurred())
	DeferCleanup(s.remove)
	applyContent(ctx, hpaNamespace, string(content))
}

// remove deletes it with its autoscaler. KEDA refuses a second autoscaler for the job.
func (s scaledObject) remove(ctx SpecContext) {
	GinkgoHelper()
	kubectlUntilDone(ctx, "delete", scaledObjects, s.name, "--namespace="+hpaNamespace, "--ignore-not-found", waiting())
	kubectlUntilDone(ctx, "wait", "--for=delete", "hpa/keda-hpa-"+s.name, "--namespace="+hpaNamespace, waiting())
}

// expectUndisturbed expects that no start of the job was repeated.
func expectUndisturbed(ctx SpecContext) {
	GinkgoHelper()
	job := getJob(ctx, Default, hpaNamespace, hpaJob)
	Expect(job.Status.Restarts).To(BeZero())
	Expect(job.Status.Reschedules).To(BeZero())
}

// expectRule waits until the ratio rule says why it does not decide.
func expectRule(ctx SpecContext, reason, words string) {
	GinkgoHelper()
	Eventually(func(g Gomega) {
		conditions := getJob(ctx, g, hpaNamespace, hpaJob).Status.Conditions
		g.Expect(conditions).To(ContainElement(And(HaveField("Type", v2alpha1.ConditionAutoscaling),
			HaveField("Reason", reason), HaveField("Message", ContainSubstring(words)))))
	}).WithContext(ctx).WithTimeout(autoscalerPatience).WithPolling(time.Second).Should(Succeed())
}

// submitAutoscaled submits the worker-led example with a learner and two collectors. Its rounds are
// so slow that it trains until the spec ends.
func submitAutoscaled(ctx context.Context) {
	GinkgoHelper()
	manifest, err := os.ReadFile(filepath.Join(testkit.Root(), "examples", "cartpole", "v2alpha1.yaml"))
	Expect(err).NotTo(HaveOccurred())
	changed := string(manifest)
	for from, to := range map[string]string{
		"name: cartpole-workers": "name: " + hpaJob,
		"--min-round=500ms":      "--min-round=20s",
		"replicas: 3":            "replicas: 2",
		"  backoffLimit: 3\n":    "  backoffLimit: 0\n  elastic: {task: collector, replicas: 2, minReplicas: 1, maxReplicas: 6}\n",
	} {
		Expect(strings.Count(changed, from)).To(Equal(1), from)
		changed = strings.Replace(changed, from, to, 1)
	}
	applyContent(ctx, hpaNamespace, changed)
}

// autoscaledPods waits until exactly the given number of collectors, a learner and an evaluator are
// ready, and the job, its scale and its selector agree. It returns the pods' UIDs by name.
func autoscaledPods(ctx context.Context, collectors int32) map[string]types.UID {
	GinkgoHelper()
	var found map[string]types.UID
	Eventually(func(g Gomega) {
		found = map[string]types.UID{}
		scale, job := &unstructured.Unstructured{}, &v2alpha1.DIJob{}
		g.Expect(scale.UnmarshalJSON([]byte(kubectlOutputOf(ctx, g, "get", "dijob", hpaJob, "--subresource=scale", "-o=json")))).To(Succeed())
		g.Expect(api.Get(ctx, client.ObjectKey{Namespace: hpaNamespace, Name: hpaJob}, job)).To(Succeed())
		g.Expect(job.Status.ReadyReplicas).To(Equal(collectors + 2))
		replicas, _, _ := unstructured.NestedInt64(scale.Object, "status", "replicas")
		g.Expect(replicas).To(BeEquivalentTo(collectors))
		selector, _, _ := unstructured.NestedString(scale.Object, "status", "selector")
		selected, err := core.CoreV1().Pods(hpaNamespace).List(ctx, metav1.ListOptions{LabelSelector: selector})
		g.Expect(err).NotTo(HaveOccurred())
		g.Expect(selected.Items).To(HaveLen(int(collectors)))
		all, err := core.CoreV1().Pods(hpaNamespace).List(ctx, metav1.ListOptions{
			LabelSelector: labels.SelectorFromSet(names.WorkerJobLabels(hpaJob)).String(),
		})
		g.Expect(err).NotTo(HaveOccurred())
		g.Expect(all.Items).To(HaveLen(int(collectors) + 2))
		for i := range all.Items {
			found[all.Items[i].Name] = all.Items[i].UID
		}
	}).WithContext(ctx).WithTimeout(autoscalerPatience).WithPolling(time.Second).Should(Succeed())
	return found
}

// kubectlOutputOf runs kubectlOutput in the spec's namespace, for polling.
func kubectlOutputOf(ctx context.Context, g Gomega, args ...string) string {
	output, err := exec.CommandContext(ctx, kubectl, append([]string{"-n", hpaNamespace}, args...)...).Output()
	g.Expect(err).NotTo(HaveOccurred())
	return string(output)
}

// expectResized expects an Event of a resize through the subresource, whose note says so.
func expectResized(ctx context.Context, said string) {
	GinkgoHelper()
	Eventually(func(g Gomega) {
		list, err := core.EventsV1().Events(hpaNamespace).List(ctx, metav1.ListOptions{FieldSelector: "reason=" + v2alpha1.ReasonResized})
		g.Expect(err).NotTo(HaveOccurred())
		g.Expect(list.Items).To(ContainElement(And(
			HaveField("Regarding.Name", hpaJob), HaveField("Note", And(ContainSubstring(said), HaveSuffix("through /scale"))),
		)))
	}).WithContext(ctx).WithTimeout(patience).WithPolling(time.Second).Should(Succeed())
}

// serveQueue serves the length of a queue from this process, which the spec sets, as JSON at /queue. It returns the
// address for pods.
func serveQueue(ctx context.Context) (length *atomic.Int64, address string) {
	GinkgoHelper()
	length = &atomic.Int64{}
	listener, err := (&net.ListenConfig{}).Listen(ctx, "tcp", net.JoinHostPort(addressForCluster(ctx), "0"))
	Expect(err).NotTo(HaveOccurred())
	mux := http.NewServeMux()
	// The client may have disconnected.
	mux.HandleFunc("GET /queue", func(w http.ResponseWriter, _ *http.Request) { _, _ = fmt.Fprintf(w, `{"length":%d}`, length.Load()) })
	server := &httptest.Server{Listener: listener, Config: &http.Server{Handler: mux, ReadHeaderTimeout: time.Minute}}
	server.Start()
	DeferCleanup(server.Close)
	return length, listener.Addr().String()
}

// addressForCluster returns this machine's source address for connections to the API server.
func addressForCluster(ctx context.Context) string {
	GinkgoHelper()
	host, err := url.Parse(cluster.Host)
	Expect(err).NotTo(HaveOccurred())
	conn, err := (&net.Dialer{}).DialContext(ctx, "udp", net.JoinHostPort(host.Hostname(), "443"))
	Expect(err).NotTo(HaveOccurred())
	defer func() { Expect(conn.Close()).To(Succeed()) }()
	local, _, err := net.SplitHostPort(conn.LocalAddr().String())
	Expect(err).NotTo(HaveOccurred())
	return local
}
