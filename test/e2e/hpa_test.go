// Copyright The DI Orchestrator Authors.
// SPDX-License-Identifier: Apache-2.0

//go:build e2e

package e2e

import (
	"context"
	"encoding/json"
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
	authorizationv1 "k8s.io/api/authorization/v1"
	autoscalingv2 "k8s.io/api/autoscaling/v2"
	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"opendilab.org/di-orchestrator/apis/v2alpha1"
	"opendilab.org/di-orchestrator/internal/names"
	"opendilab.org/di-orchestrator/test/testkit"
)

const (
	hpaNamespace = "hpa"
	hpaJob       = "autoscaled"

	// autoscalerPatience is the timeout for an autoscaler to converge in a few rounds of 15 s each.
	autoscalerPatience = 2 * patience
)

var _ = Describe("A HorizontalPodAutoscaler", Label("autoscale"), func() {
	It("resizes the collectors of a job by a metric, and restarts nobody", func(ctx SpecContext) {
		makeNamespace(ctx, hpaNamespace)
		metric := serveMetric(ctx)
		submitAutoscaled(ctx)
		before := autoscaledPods(ctx, 2)

		By("asking for more than may be")
		metric.Store(40)
		createAutoscaler(ctx)
		grown := autoscaledPods(ctx, 5)
		for name, uid := range before {
			Expect(grown).To(HaveKeyWithValue(name, uid))
		}
		expectResized(ctx, "-> 5 replicas of task collector, by kube-controller-manager through /scale")

		By("asking for less than may be")
		metric.Store(1)
		shrunk := autoscaledPods(ctx, 2)
		Expect(shrunk).To(Equal(before))
		expectResized(ctx, "-> 2 replicas of task collector, by kube-controller-manager through /scale")

		job := &v2alpha1.DIJob{}
		Expect(api.Get(ctx, client.ObjectKey{Namespace: hpaNamespace, Name: hpaJob}, job)).To(Succeed())
		Expect(job.Status.Restarts).To(BeZero())
		Expect(job.Status.Reschedules).To(BeZero())
	})
})

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

// expectResized expects an Event of a resize whose note ends with end.
func expectResized(ctx context.Context, end string) {
	GinkgoHelper()
	Eventually(func(g Gomega) {
		list, err := core.EventsV1().Events(hpaNamespace).List(ctx, metav1.ListOptions{FieldSelector: "reason=" + v2alpha1.ReasonResized})
		g.Expect(err).NotTo(HaveOccurred())
		g.Expect(list.Items).To(ContainElement(And(
			HaveField("Regarding.Name", hpaJob), HaveField("Note", HaveSuffix(end)),
		)))
	}).WithContext(ctx).WithTimeout(patience).WithPolling(time.Second).Should(Succeed())
}

// createAutoscaler creates the autoscaler with a target of 10 for the metric. At 10 the desired number of
// collectors is the current number of ready ones.
func createAutoscaler(ctx context.Context) {
	GinkgoHelper()
	immediately := &autoscalingv2.HPAScalingRules{StabilizationWindowSeconds: ptr.To(int32(0))}
	_, err := core.AutoscalingV2().HorizontalPodAutoscalers(hpaNamespace).Create(ctx, &autoscalingv2.HorizontalPodAutoscaler{
		ObjectMeta: metav1.ObjectMeta{Name: hpaJob},
		Spec: autoscalingv2.HorizontalPodAutoscalerSpec{
			ScaleTargetRef: autoscalingv2.CrossVersionObjectReference{APIVersion: v2alpha1.GroupVersion.String(), Kind: "DIJob", Name: hpaJob},
			MinReplicas:    ptr.To(int32(2)), MaxReplicas: 5,
			Metrics: []autoscalingv2.MetricSpec{{Type: autoscalingv2.ExternalMetricSourceType, External: &autoscalingv2.ExternalMetricSource{
				Metric: autoscalingv2.MetricIdentifier{Name: "episodes"},
				Target: autoscalingv2.MetricTarget{Type: autoscalingv2.ValueMetricType, Value: ptr.To(resource.MustParse("10"))},
			}}},
			Behavior: &autoscalingv2.HorizontalPodAutoscalerBehavior{ScaleUp: immediately, ScaleDown: immediately.DeepCopy()},
		},
	}, metav1.CreateOptions{})
	Expect(err).NotTo(HaveOccurred())
	DeferCleanup(func(ctx SpecContext) {
		if CurrentSpecReport().Failed() {
			GinkgoWriter.Println(kubectlOutput(ctx, "-n", hpaNamespace, "describe", "hpa,dijob"))
		}
	})
}

const (
	metricsGroup   = "external.metrics.k8s.io"
	metricsVersion = "v1beta1"
)

// serveMetric serves the external metrics API from this process. Every metric name has one value,
// which the spec sets. The API server reaches it through a Service whose endpoint is this machine.
func serveMetric(ctx context.Context) *atomic.Int64 {
	GinkgoHelper()
	expectAutoscalerMayRead(ctx)
	value := &atomic.Int64{}
	address := addressForCluster(ctx)
	listener, err := (&net.ListenConfig{}).Listen(ctx, "tcp", net.JoinHostPort(address, "0"))
	Expect(err).NotTo(HaveOccurred())
	server := &httptest.Server{Listener: listener, Config: &http.Server{Handler: metricsHandler(value), ReadHeaderTimeout: time.Minute}}
	server.StartTLS()
	DeferCleanup(server.Close)
	tcp, isTCP := listener.Addr().(*net.TCPAddr)
	Expect(isTCP).To(BeTrue())
	createEndpoint(ctx, address, int32(tcp.Port))
	registerAPI(ctx)
	return value
}

// expectAutoscalerMayRead expects the role that Kubernetes grants to autoscalers.
func expectAutoscalerMayRead(ctx context.Context) {
	GinkgoHelper()
	review, err := core.AuthorizationV1().SubjectAccessReviews().Create(ctx, &authorizationv1.SubjectAccessReview{
		Spec: authorizationv1.SubjectAccessReviewSpec{
			User:               "system:serviceaccount:kube-system:horizontal-pod-autoscaler",
			ResourceAttributes: &authorizationv1.ResourceAttributes{Namespace: hpaNamespace, Verb: "list", Group: metricsGroup, Resource: "episodes"},
		},
	}, metav1.CreateOptions{})
	Expect(err).NotTo(HaveOccurred())
	Expect(review.Status.Allowed).To(BeTrue(), review.Status.Reason)
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

// createEndpoint creates a Service for the address and port.
func createEndpoint(ctx context.Context, address string, port int32) {
	GinkgoHelper()
	_, err := core.CoreV1().Services(hpaNamespace).Create(ctx, &corev1.Service{
		ObjectMeta: metav1.ObjectMeta{Name: "metrics"},
		Spec:       corev1.ServiceSpec{Ports: []corev1.ServicePort{{Name: "https", Port: 443}}},
	}, metav1.CreateOptions{})
	Expect(err).NotTo(HaveOccurred())
	_, err = core.DiscoveryV1().EndpointSlices(hpaNamespace).Create(ctx, &discoveryv1.EndpointSlice{
		ObjectMeta:  metav1.ObjectMeta{Name: "metrics", Labels: map[string]string{discoveryv1.LabelServiceName: "metrics", discoveryv1.LabelManagedBy: "e2e"}},
		AddressType: discoveryv1.AddressTypeIPv4,
		Endpoints:   []discoveryv1.Endpoint{{Addresses: []string{address}, Conditions: discoveryv1.EndpointConditions{Ready: ptr.To(true)}}},
		Ports:       []discoveryv1.EndpointPort{{Name: ptr.To("https"), Port: &port, Protocol: ptr.To(corev1.ProtocolTCP)}},
	}, metav1.CreateOptions{})
	Expect(err).NotTo(HaveOccurred())
}

// registerAPI makes the API server proxy requests for external metrics to the Service, and waits
// until it does. It must be removed before the namespace, whose deletion calls every API.
func registerAPI(ctx context.Context) {
	GinkgoHelper()
	service := &unstructured.Unstructured{Object: map[string]any{"spec": map[string]any{
		"group": metricsGroup, "version": metricsVersion, "groupPriorityMinimum": int64(100), "versionPriority": int64(100),
		"insecureSkipTLSVerify": true,
		"service":               map[string]any{"namespace": hpaNamespace, "name": "metrics", "port": int64(443)},
	}}}
	service.SetGroupVersionKind(schema.GroupVersionKind{Group: "apiregistration.k8s.io", Version: "v1", Kind: "APIService"})
	service.SetName(metricsVersion + "." + metricsGroup)
	Expect(api.Create(ctx, service)).To(Succeed())
	DeferCleanup(func(ctx SpecContext) { Expect(api.Delete(ctx, service)).To(Succeed()) })
	Eventually(func() error {
		return core.CoreV1().RESTClient().Get().
			AbsPath("/apis/" + metricsGroup + "/" + metricsVersion + "/namespaces/" + hpaNamespace + "/episodes").Do(ctx).Error()
	}).WithContext(ctx).WithTimeout(patience).WithPolling(time.Second).Should(Succeed())
}

// metricsHandler serves the discovery of the API and the value of any metric.
func metricsHandler(value *atomic.Int64) http.Handler {
	const root = "/apis/" + metricsGroup + "/" + metricsVersion
	answer := func(w http.ResponseWriter, content map[string]any) {
		w.Header().Set("Content-Type", "application/json")
		// The client may have disconnected.
		_ = json.NewEncoder(w).Encode(content)
	}
	mux := http.NewServeMux()
	mux.HandleFunc("GET "+root, func(w http.ResponseWriter, _ *http.Request) {
		answer(w, map[string]any{
			"kind": "APIResourceList", "apiVersion": "v1", "groupVersion": metricsGroup + "/" + metricsVersion,
			"resources": []any{map[string]any{"name": "episodes", "namespaced": true, "kind": "ExternalMetricValueList", "verbs": []string{"get"}}},
		})
	})
	mux.HandleFunc("GET "+root+"/namespaces/{namespace}/{metric}", func(w http.ResponseWriter, r *http.Request) {
		answer(w, map[string]any{
			"kind": "ExternalMetricValueList", "apiVersion": metricsGroup + "/" + metricsVersion, "metadata": map[string]any{},
			"items": []any{map[string]any{
				"metricName": r.PathValue("metric"), "metricLabels": map[string]any{},
				"timestamp": metav1.Now(), "value": resource.NewQuantity(value.Load(), resource.DecimalSI),
			}},
		})
	})
	return mux
}
