// Copyright The DI Orchestrator Authors.
// SPDX-License-Identifier: Apache-2.0

package events_test

import (
	"context"
	"os"
	"testing"
	"time"

	"github.com/go-logr/logr/testr"
	. "github.com/onsi/gomega"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	corev1client "k8s.io/client-go/kubernetes/typed/core/v1"
	"sigs.k8s.io/controller-runtime/pkg/cache"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"opendilab.org/di-orchestrator/apis/v2alpha1"
	"opendilab.org/di-orchestrator/history/events"
	"opendilab.org/di-orchestrator/internal/scope"
	"opendilab.org/di-orchestrator/test/testkit"
)

var environment *testkit.API

func TestMain(m *testing.M) { os.Exit(testkit.RunOnAPI(m, &environment)) }

// fixture reads the Events of one namespace.
type fixture struct {
	*WithT
	t                *testing.T
	api              client.Client
	namespace, other string
	reader           *events.Reader
}

func setUp(t *testing.T) *fixture {
	t.Helper()
	f := &fixture{WithT: NewWithT(t), t: t}
	f.SetDefaultEventuallyTimeout(testkit.Patience)
	var err error
	f.api, err = client.New(environment.Config, client.Options{})
	f.Expect(err).NotTo(HaveOccurred())
	for _, name := range []*string{&f.namespace, &f.other} {
		namespace := &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{GenerateName: "events-"}}
		f.Expect(f.api.Create(t.Context(), namespace)).To(Succeed())
		*name = namespace.Name
	}
	return f
}

func (f *fixture) start() {
	f.t.Helper()
	pods, err := cache.New(environment.Config, cache.Options{DefaultNamespaces: map[string]cache.Config{f.namespace: {}}})
	f.Expect(err).NotTo(HaveOccurred())
	_, err = pods.GetInformer(f.t.Context(), &corev1.Pod{}, cache.BlockUntilSynced(false))
	f.Expect(err).NotTo(HaveOccurred())
	core, err := corev1client.NewForConfig(environment.Config)
	f.Expect(err).NotTo(HaveOccurred())
	watched, err := scope.New([]string{f.namespace}, types.NamespacedName{})
	f.Expect(err).NotTo(HaveOccurred())
	f.reader = &events.Reader{API: core, Cache: pods, Namespaces: watched, Log: testr.New(f.t)}
	ctx, cancel := context.WithCancel(f.t.Context())
	stopped := make(chan error, 2)
	go func() { stopped <- pods.Start(ctx) }()
	go func() { stopped <- f.reader.Start(ctx) }()
	f.t.Cleanup(func() {
		cancel()
		f.Eventually(stopped).Should(Receive(BeNil()))
		f.Eventually(stopped).Should(Receive(BeNil()))
	})
}

// event creates an Event about an object.
func (f *fixture) event(name, kind string, of metav1.Object, change ...func(*corev1.Event)) {
	f.t.Helper()
	version := "v1"
	if kind == "DIJob" {
		version = v2alpha1.GroupVersion.String()
	}
	event := &corev1.Event{
		ObjectMeta:     metav1.ObjectMeta{Namespace: of.GetNamespace(), Name: name},
		InvolvedObject: corev1.ObjectReference{APIVersion: version, Kind: kind, Namespace: of.GetNamespace(), Name: of.GetName(), UID: of.GetUID()},
		Type:           corev1.EventTypeWarning, Reason: name, Message: "because", FirstTimestamp: metav1.Now(), Count: 1,
	}
	for _, each := range change {
		each(event)
	}
	f.Expect(f.api.Create(f.t.Context(), event)).To(Succeed())
}

// pod creates a pod of a job, or of none.
func (f *fixture) pod(name string, owner *metav1.ObjectMeta) *corev1.Pod {
	f.t.Helper()
	pod := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: f.namespace, Name: name}, Spec: corev1.PodSpec{Containers: []corev1.Container{{Name: "c", Image: "i"}}}}
	if owner != nil {
		pod.OwnerReferences = []metav1.OwnerReference{*metav1.NewControllerRef(owner, v2alpha1.GroupVersion.WithKind("DIJob"))}
	}
	f.Expect(f.api.Create(f.t.Context(), pod)).To(Succeed())
	return pod
}

func TestTheEventsOfAJobAndTheWarningsOfItsPodsAreRead(t *testing.T) {
	f := setUp(t)
	job := &metav1.ObjectMeta{Namespace: f.namespace, Name: "ppo", UID: "job-uid"}
	own, foreign := f.pod("ppo-0", job), f.pod("stranger", nil)
	normal := func(event *corev1.Event) { event.Type = corev1.EventTypeNormal }
	f.event("before", "DIJob", job, normal)
	f.start()
	seen := map[string]string{}
	takes := func() map[string]string {
		for key, noted := range f.reader.Take() {
			for _, event := range noted.Events {
				seen[event.Reason] = key.Name + " " + string(noted.Job) + " " + event.Object
			}
		}
		return seen
	}
	f.Eventually(takes).Should(HaveKey("before"))
	f.event("normal-of-pod", "Pod", own, normal)
	f.event("of-no-job", "Pod", foreign)
	f.event("elsewhere", "DIJob", &metav1.ObjectMeta{Namespace: f.other, Name: "ppo", UID: "other-uid"})
	f.event("of-earlier-pod", "Pod", &metav1.ObjectMeta{Namespace: f.namespace, Name: "ppo-0", UID: "earlier"})
	f.event("series", "Pod", own, func(event *corev1.Event) {
		at := metav1.NewMicroTime(time.Now())
		event.FirstTimestamp, event.Count, event.EventTime = metav1.Time{}, 0, at
		event.ReportingController, event.ReportingInstance, event.Action = "kubelet", "node", "Pulling"
		event.Series = &corev1.EventSeries{Count: 7, LastObservedTime: at}
	})
	f.event("last", "DIJob", job)
	f.Eventually(takes).Should(And(HaveKey("last"), HaveKey("series")))
	f.Expect(seen).To(Equal(map[string]string{
		"before": "ppo job-uid DIJob/ppo", "series": "ppo job-uid Pod/ppo-0", "last": "ppo job-uid DIJob/ppo",
	}))
}
