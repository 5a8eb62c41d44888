// Copyright The DI Orchestrator Authors.
// SPDX-License-Identifier: Apache-2.0

package dijob

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"testing"
	"time"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	"github.com/prometheus/client_golang/prometheus"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	clientgoscheme "k8s.io/client-go/kubernetes/scheme"
	"k8s.io/client-go/rest"
	"k8s.io/utils/clock"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"
	"sigs.k8s.io/controller-runtime/pkg/log"
	"sigs.k8s.io/controller-runtime/pkg/log/zap"

	"opendilab.org/di-orchestrator/apis/v1alpha1"
	"opendilab.org/di-orchestrator/apis/v2alpha1"
	"opendilab.org/di-orchestrator/controllers"
	"opendilab.org/di-orchestrator/controllers/dijob/jobmetrics"
	"opendilab.org/di-orchestrator/job/lifecycle"
	"opendilab.org/di-orchestrator/job/workload"
	"opendilab.org/di-orchestrator/test/testkit"
	"opendilab.org/di-orchestrator/test/webhooks"
)

func TestDIJobs(t *testing.T) {
	RegisterFailHandler(Fail)
	SetDefaultEventuallyTimeout(patience)
	EnforceDefaultTimeoutsWhenUsingContexts()
	RunSpecs(t, "DIJobs")
}

// suite is the API server that all specs share.
type suite struct {
	scheme *runtime.Scheme
	// config and api have all permissions.
	config *rest.Config
	api    client.WithWatch
	// account is the operator's configuration. operator reads with all permissions, because the deployed
	// operator reads from caches, and writes with the operator's own.
	account  *rest.Config
	operator client.WithWatch
	// kubeConfig is the configuration for kubectl.
	kubeConfig []byte
}

var shared suite

var _ = BeforeSuite(func(ctx SpecContext) {
	log.SetLogger(zap.New(zap.WriteTo(GinkgoWriter)))
	environment, err := webhooks.StartAPIWithWebhooks(ctx, testkit.GangFlags()...)
	Expect(err).NotTo(HaveOccurred())
	DeferCleanup(environment.Stop)

	scheme := runtime.NewScheme()
	Expect(clientgoscheme.AddToScheme(scheme)).To(Succeed())
	Expect(v1alpha1.AddToScheme(scheme)).To(Succeed())
	Expect(v2alpha1.AddToScheme(scheme)).To(Succeed())
	environment.Config.QPS = -1
	api, err := client.NewWithWatch(environment.Config, client.Options{Scheme: scheme})
	Expect(err).NotTo(HaveOccurred())
	account, err := environment.As(testkit.Operator)
	Expect(err).NotTo(HaveOccurred())
	operator, err := client.NewWithWatch(account, client.Options{Scheme: scheme, Cache: &client.CacheOptions{Reader: api, Unstructured: true}})
	Expect(err).NotTo(HaveOccurred())
	shared = suite{
		scheme: scheme, config: environment.Config, api: api, account: account, operator: operator, kubeConfig: environment.KubeConfig,
	}
})

// space is a namespace with one job, and the operator of that job.
type space struct {
	// settings are those of the operator.
	settings workload.Settings
	name     string
	operator *Reconciler

	// mutex guards the fields below, because the operator writes in parallel.
	mutex sync.Mutex
	// created counts the creations of each object.
	created map[string]int
	// ahead is how far the operator's clock is ahead of other clocks.
	ahead time.Duration
	// at is the time of the operator's clock if the spec moves it.
	at *time.Time
	// writes counts all successful writes of the operator.
	writes int
}

// done counts a write if it succeeded.
func (s *space) done(err error, created string) error {
	s.mutex.Lock()
	defer s.mutex.Unlock()
	if err == nil {
		s.writes++
	}
	if err == nil && created != "" {
		s.created[created]++
	}
	return err
}

// newSpace creates a namespace and an operator without a cache, so a spec drives it step by step.
func newSpace(ctx context.Context) *space { return newSpaceWith(ctx, workload.Settings{}) }

// newSharedSpace returns a space where pods refer to a ConfigMap also in a small job.
func newSharedSpace(ctx context.Context) *space {
	return newSpaceWith(ctx, workload.Settings{InlineNodes: -1})
}

func newSpaceWith(ctx context.Context, settings workload.Settings) *space {
	namespace := &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{GenerateName: "spec-"}}
	Expect(shared.api.Create(ctx, namespace)).To(Succeed())
	s := &space{name: namespace.Name, settings: settings, created: map[string]int{}}
	s.operator = s.newOperator(interceptor.Funcs{})
	return s
}

// spaceClock is the operator's clock of a space.
type spaceClock struct {
	clock.PassiveClock
	of *space
}

func (c spaceClock) Now() time.Time {
	if c.of.at != nil {
		return *c.of.at
	}
	return c.PassiveClock.Now().Add(c.of.ahead)
}

// newOperator returns an operator with an empty memory.
func (s *space) newOperator(faults interceptor.Funcs) *Reconciler {
	counting := interceptor.NewClient(shared.operator, s.counting())
	faulty := interceptor.NewClient(counting, faults)
	metrics, err := jobmetrics.New(prometheus.NewRegistry())
	Expect(err).NotTo(HaveOccurred())
	return &Reconciler{
		client: faulty, live: faulty, recorder: newCritic(), clock: spaceClock{PassiveClock: clock.RealClock{}, of: s},
		options: Options{
			Settings: s.settings,
			// No client waits for a drain in these specs.
			Drain: time.Nanosecond, AggregatorConfig: client.ObjectKey{Namespace: s.name, Name: "aggregator-config"},
		}.defaults(),
		metrics: metrics,
	}
}

// counting counts the operator's writes.
func (s *space) counting() interceptor.Funcs {
	funcs := intercept(func(verb string, object client.Object, write func() error) error {
		created := ""
		if verb == creates {
			created = fmt.Sprintf("%T %s", object, object.GetName())
		}
		return s.done(write(), created)
	})
	funcs.List = listByController
	return funcs
}

// The verbs of writes.
const (
	creates       = "create"
	deletes       = "delete"
	patches       = "patch"
	updatesStatus = "update status"
	patchesStatus = "patch status"
)

// intercept calls around in place of each write. around may call the write.
func intercept(around func(verb string, object client.Object, write func() error) error) interceptor.Funcs {
	return interceptor.Funcs{
		Create: func(ctx context.Context, next client.WithWatch, object client.Object, options ...client.CreateOption) error {
			return around(creates, object, func() error { return next.Create(ctx, object, options...) })
		},
		Delete: func(ctx context.Context, next client.WithWatch, object client.Object, options ...client.DeleteOption) error {
			return around(deletes, object, func() error { return next.Delete(ctx, object, options...) })
		},
		Patch: func(ctx context.Context, next client.WithWatch, object client.Object, patch client.Patch, options ...client.PatchOption) error {
			return around(patches, object, func() error { return next.Patch(ctx, object, patch, options...) })
		},
		SubResourceUpdate: func(ctx context.Context, next client.Client, name string, object client.Object, options ...client.SubResourceUpdateOption) error {
			return around(updatesStatus, object, func() error { return next.SubResource(name).Update(ctx, object, options...) })
		},
		SubResourcePatch: func(ctx context.Context, next client.Client, name string, object client.Object, patch client.Patch, options ...client.SubResourcePatchOption) error {
			return around(patchesStatus, object, func() error { return next.SubResource(name).Patch(ctx, object, patch, options...) })
		},
	}
}

// onCreate calls before ahead of each creation. An error prevents the creation.
func onCreate(before func(client.Object) error) interceptor.Funcs {
	return intercept(func(verb string, object client.Object, write func() error) error {
		if verb == creates {
			if err := before(object); err != nil {
				return err
			}
		}
		return write()
	})
}

// staleList changes each list of pods that the operator reads.
func staleList(change func(*corev1.PodList)) interceptor.Funcs {
	return interceptor.Funcs{List: func(ctx context.Context, next client.WithWatch, list client.ObjectList, options ...client.ListOption) error {
		err := next.List(ctx, list, options...)
		if pods, ok := list.(*corev1.PodList); ok {
			change(pods)
		}
		return err
	}}
}

// onlyCoordinator drops all pods except the coordinator from a list.
func onlyCoordinator(pods *corev1.PodList) {
	pods.Items = keep(pods.Items, func(pod *corev1.Pod) bool { return pod.Name == "job-coordinator" })
}

// listByController selects objects in the API server's answer as the cache's index does.
func listByController(ctx context.Context, next client.WithWatch, list client.ObjectList, options ...client.ListOption) error {
	var asked client.ListOptions
	asked.ApplyOptions(options)
	if _, isEvents := list.(*corev1.EventList); isEvents || asked.FieldSelector == nil {
		// The API server itself selects Events by fields.
		return next.List(ctx, list, options...)
	}
	if plans, isPlans := list.(*v2alpha1.ScalePlanList); isPlans {
		name, _ := asked.FieldSelector.RequiresExactMatch(controllers.UnfinishedPlanIndex)
		if err := next.List(ctx, list, client.InNamespace(asked.Namespace)); err != nil {
			return err
		}
		plans.Items = keep(plans.Items, func(plan *v2alpha1.ScalePlan) bool {
			return slices.Contains(controllers.JobOfUnfinishedPlan(plan), name)
		})
		return nil
	}
	name, _ := asked.FieldSelector.RequiresExactMatch(controllers.OwnerIndex)
	if err := next.List(ctx, list, client.InNamespace(asked.Namespace)); err != nil {
		return err
	}
	owned := func(object client.Object) bool {
		return slices.Equal(controllers.OwnerName(object), []string{name})
	}
	switch list := list.(type) {
	case *corev1.PodList:
		list.Items = keep(list.Items, func(pod *corev1.Pod) bool { return owned(pod) })
	case *corev1.ServiceList:
		list.Items = keep(list.Items, func(service *corev1.Service) bool { return owned(service) })
	case *corev1.ConfigMapList:
		list.Items = keep(list.Items, func(configMap *corev1.ConfigMap) bool { return owned(configMap) })
	}
	return nil
}

func keep[T any](items []T, wanted func(*T) bool) []T {
	var kept []T
	for i := range items {
		if wanted(&items[i]) {
			kept = append(kept, items[i])
		}
	}
	return kept
}

// reconcile runs one reconcile of the operator.
func (s *space) reconcile(ctx context.Context) error {
	_, err := s.pass(ctx)
	return err
}

func (s *space) pass(ctx context.Context) (ctrl.Result, error) {
	result, err := s.operator.Reconcile(ctx, ctrl.Request{NamespacedName: client.ObjectKey{Namespace: s.name, Name: "job"}})
	return result, err
}

// settle reconciles until a reconcile writes nothing.
func (s *space) settle(ctx context.Context) error {
	for range 20 {
		before := s.writes
		result, err := s.pass(ctx)
		if err != nil {
			return err
		}
		switch wait := result.RequeueAfter; {
		case s.writes != before:
		case wait > 0 && wait <= lifecycle.CountsInterval:
			// The operator delays counts.
			s.advance(wait)
		default:
			return nil
		}
	}
	return errors.New("the operator comes to no rest")
}

// advance moves the operator's clock.
func (s *space) advance(by time.Duration) {
	if s.at != nil {
		*s.at = s.at.Add(by)
		return
	}
	s.ahead += by
}

func (s *space) job(ctx context.Context) *v2alpha1.DIJob {
	job := &v2alpha1.DIJob{}
	Expect(shared.api.Get(ctx, client.ObjectKey{Namespace: s.name, Name: "job"}, job)).To(Succeed())
	return job
}

func (s *space) pods(ctx context.Context) []corev1.Pod {
	var list corev1.PodList
	Expect(shared.api.List(ctx, &list, client.InNamespace(s.name))).To(Succeed())
	return list.Items
}

func (s *space) podNames(ctx context.Context) []string {
	var found []string
	for _, pod := range s.pods(ctx) {
		found = append(found, pod.Name)
	}
	return found
}

func (s *space) services(ctx context.Context) []string {
	var list corev1.ServiceList
	Expect(shared.api.List(ctx, &list, client.InNamespace(s.name))).To(Succeed())
	var found []string
	for i := range list.Items {
		found = append(found, list.Items[i].Name)
	}
	return found
}

// configMaps returns the names of the ConfigMaps of worker-led jobs.
func (s *space) configMaps(ctx context.Context) []string {
	var list corev1.ConfigMapList
	Expect(shared.api.List(ctx, &list, client.InNamespace(s.name), client.MatchingLabels{"diengine/operator": "di-operator"})).To(Succeed())
	var found []string
	for i := range list.Items {
		found = append(found, list.Items[i].Name)
	}
	return found
}

// run makes every pending pod running and ready, as a kubelet does.
func (s *space) run(ctx context.Context) {
	for _, pod := range s.pods(ctx) {
		if pod.Status.Phase != corev1.PodPending {
			continue
		}
		pod.Status.Phase = corev1.PodRunning
		pod.Status.Conditions = []corev1.PodCondition{{Type: corev1.PodReady, Status: corev1.ConditionTrue}}
		// The operator may delete a pod meanwhile.
		Expect(client.IgnoreNotFound(shared.api.Status().Update(ctx, &pod))).To(Succeed())
	}
}

// end terminates a pod with an exit code.
func (s *space) end(ctx context.Context, name string, exitCode int32) {
	pod := &corev1.Pod{}
	Expect(shared.api.Get(ctx, client.ObjectKey{Namespace: s.name, Name: name}, pod)).To(Succeed())
	pod.Status.Phase = corev1.PodSucceeded
	if exitCode != 0 {
		pod.Status.Phase = corev1.PodFailed
	}
	pod.Status.Conditions = nil
	pod.Status.ContainerStatuses = []corev1.ContainerStatus{{
		Name:  "di-container",
		State: corev1.ContainerState{Terminated: &corev1.ContainerStateTerminated{ExitCode: exitCode}},
	}}
	Expect(shared.api.Status().Update(ctx, pod)).To(Succeed())
}
