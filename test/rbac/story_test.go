// Copyright The DI Orchestrator Authors.
// SPDX-License-Identifier: Apache-2.0

package rbac

import (
	"bytes"
	"context"
	"fmt"
	"net/http"
	"slices"
	"strings"
	"time"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	appsv1 "k8s.io/api/apps/v1"
	authorizationv1 "k8s.io/api/authorization/v1"
	corev1 "k8s.io/api/core/v1"
	eventsv1 "k8s.io/api/events/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/util/cert"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/envtest"

	"opendilab.org/di-orchestrator/apis/v2alpha1"
	"opendilab.org/di-orchestrator/internal/names"
	"opendilab.org/di-orchestrator/test/testkit"
	"opendilab.org/di-orchestrator/test/testkit/specs"
	"opendilab.org/di-orchestrator/upgrade/migration"
)

// jobs is the namespace of the jobs.
const jobs = "jobs"

// exceptions returns the necessary grants whose use the audit log does not show.
func exceptions() map[exception]string {
	const restricted = "OpenShift asks for it where the address of a pod is written"
	const bridged = "the names of bridges hold the UIDs of pods"
	const sharded = "with more than one shard it is used for the Leases of shards"
	const repeated = "an Event that repeats is patched, and none of the story does"
	return map[exception]string{
		{"di-orchestrator-operator", "get", "aggregatorconfigs", ""}:                "which one is the cluster's is a setting, common.aggregatorConfig",
		{"di-orchestrator-operator", "patch", "podgroups", ""}:                      "those of Kubernetes can be changed from v1alpha3 on, which this API server does not serve",
		{"di-orchestrator-operator", "get", "leases", ""}:                           sharded,
		{"di-orchestrator-operator", "patch", "events", ""}:                         repeated,
		{"di-orchestrator-webhook", "patch", "events", ""}:                          repeated,
		{"di-orchestrator-operator", "patch", "leases", ""}:                         sharded,
		{"di-orchestrator-operator", "update", "leases", ""}:                        sharded,
		{"di-orchestrator-operator", "get", "configmaps", ""}:                       "one that a pod waits for and the cache lacks is read in the job's namespace, which happens where somebody deletes it",
		{"di-orchestrator-install-crds", "create", "endpointslices/restricted", ""}: restricted,
		{"di-orchestrator-install-crds", "update", "endpointslices/restricted", ""}: restricted,
		{"di-orchestrator-retire-crds", "create", "endpointslices/restricted", ""}:  restricted,
		{"di-orchestrator-retire-crds", "update", "endpointslices/restricted", ""}:  restricted,
		{"di-orchestrator-install-crds", "update", "endpointslices", ""}:            bridged,
		{"di-orchestrator-retire-crds", "update", "endpointslices", ""}:             bridged,
		{"di-orchestrator-operator", "delete", "endpointslices", ""}:                bridged,
		{"di-orchestrator-operator", "update", "dijobs/finalizers", ""}: "the admission plugin OwnerReferencesPermissionEnforcement asks for it where " +
			"pods are created, without a request; it is on in this test, which would see a refusal",
	}
}

var _ = Describe("The audit log", func() {
	It("shows that what the roles grant is what the programs use", func(ctx SpecContext) {
		p := newPlane(ctx)
		objects := chart(ctx, quick, "aggregatorConfig.template.spec.containers[0].name=di-container", "aggregatorConfig.template.spec.containers[0].image=di")
		p.installRights(ctx, objects)
		grants := specs.Must(readGrants(objects))
		Expect(grants).NotTo(BeEmpty())
		p.waitGranted(ctx, grants)

		p.play(ctx, objects)

		p.stop()
		uses := specs.Must(readUses(p.auditLog))
		Expect(strings.Join(findings(grants, uses, exceptions(), system), "\n")).To(BeEmpty())
	}, SpecTimeout(15*time.Minute))
})

var _ = Describe("The audit log with certificates that cert-manager issues", func() {
	It("shows that the operator reads their Secrets, and writes none", func(ctx SpecContext) {
		p := newPlane(ctx)
		objects := chart(ctx, "certManager.enabled=true")
		p.installRights(ctx, objects)
		grants := specs.Must(readGrants(objects))
		p.waitGranted(ctx, grants)
		p.run(ctx, objects, "install-crds")
		p.install(ctx, objects, "Service", "MutatingWebhookConfiguration", "ValidatingWebhookConfiguration")
		p.issue(ctx, "di-orchestrator-webhook-tls", programHost)
		p.issue(ctx, "di-orchestrator-server-tls", "di-server.di-system")

		s := &story{plane: p, objects: objects}
		stop := s.startOperator(ctx)
		server := s.startServer(ctx)
		s.waitTrusted(ctx)
		server.stop()
		stop()

		p.stop()
		uses := specs.Must(readUses(p.auditLog))
		// Another story covers the other grants, also that to create and delete the keys of MPI jobs.
		grants = slices.DeleteFunc(grants, func(g grant) bool { return g.resource != "secrets" || g.namespace == "" })
		Expect(grants).NotTo(BeEmpty())
		Expect(strings.Join(findings(grants, uses, nil, system), "\n")).To(BeEmpty())
	}, SpecTimeout(10*time.Minute))
})

// issue writes a self-signed certificate to a Secret, as cert-manager does.
func (p *plane) issue(ctx context.Context, secret, host string) {
	GinkgoHelper()
	certificate, key, err := cert.GenerateSelfSignedCertKey(host, nil, []string{host})
	Expect(err).NotTo(HaveOccurred())
	authority := certificate[bytes.LastIndex(certificate, []byte("-----BEGIN")):]
	Expect(p.api.Create(ctx, &corev1.Secret{
		ObjectMeta: metav1.ObjectMeta{Namespace: system, Name: secret}, Type: corev1.SecretTypeTLS,
		Data: map[string][]byte{corev1.TLSCertKey: certificate, corev1.TLSPrivateKeyKey: key, "ca.crt": authority},
	})).To(Succeed())
}

// waitTrusted waits until the CA bundle for clients of di-server is published.
func (s *story) waitTrusted(ctx context.Context) {
	GinkgoHelper()
	Eventually(func(g Gomega) {
		var bundle corev1.ConfigMap
		g.Expect(s.api.Get(ctx, client.ObjectKey{Namespace: system, Name: "di-orchestrator-server-ca"}, &bundle)).To(Succeed())
		g.Expect(bundle.Data).To(HaveKeyWithValue("ca.crt", string(s.secret(ctx, "di-orchestrator-server-tls").Data["ca.crt"])))
	}).Should(Succeed())
}

// story runs the programs through all their functions.
type story struct {
	*plane
	objects []*unstructured.Unstructured
	// base is the URL of di-server.
	base string
}

// play exercises every function of the programs.
func (p *plane) play(ctx context.Context, objects []*unstructured.Unstructured) {
	GinkgoHelper()
	s := &story{plane: p, objects: objects}
	newNode(ctx, p.api, "node-1")
	defer runPods(ctx, p.api)()

	By("installing as Helm does, over what an earlier release left")
	s.leaveEarlierInstallation(ctx)
	defer s.keepEndpoints(ctx)()
	p.run(ctx, objects, "install-crds")
	s.leaveEarlierJobs(ctx)
	s.outdateDefinitions(ctx)
	p.run(ctx, objects, "install-crds")
	Expect(p.api.Delete(ctx, &corev1.Service{ObjectMeta: metav1.ObjectMeta{Namespace: system, Name: names.ServerService}})).To(Succeed())
	p.install(ctx, objects, "ConfigMap", "Service", "MutatingWebhookConfiguration", "ValidatingWebhookConfiguration")
	stop := s.startOperator(ctx)
	p.run(ctx, objects, "probe")
	s.overwriteWebhooks(ctx)
	server := s.startServer(ctx)

	By("trying a job")
	s.tryJob(ctx)

	By("running jobs")
	s.adopt(ctx)
	s.trainWithCoordinator(ctx)
	s.askInVain(ctx)
	s.trainWithWorkers(ctx)
	s.refuseSecrets(ctx)
	s.trainProbed(ctx)
	s.placePreemptible(ctx)
	s.trainGangs(ctx)
	s.waitInQueue(ctx)
	s.conflictOfNames(ctx)
	s.scale(ctx)
	s.trainWithManyWorkers(ctx)
	server.stop()
	stop()

	By("replacing what the certificates rest on, on an API server that cannot send lists by watches")
	p.onlyLists = true
	s.spoil(ctx)
	s.leaveHorizontalAutoscaler(ctx)
	stop = s.startOperator(ctx)
	s.waitReplaced(ctx)
	s.startServer(ctx).stop()
	s.placeAnother(ctx)
	s.expectAutoscaling(ctx, v2alpha1.ReasonOtherMaster)

	By("storing objects in the other version, and back")
	s.migrate(ctx)

	By("uninstalling")
	stop()
	s.leaveEarlierServer(ctx)
	p.run(ctx, objects, "retire-crds")
	p.run(ctx, objects, "retire-crds")
}

// tryJob creates a job in dry run, until the answer is about its pods.
func (s *story) tryJob(ctx context.Context) {
	GinkgoHelper()
	warned := &warnings{}
	config := rest.CopyConfig(s.environment.Config)
	config.WarningHandler = warned
	api := specs.Must(client.New(config, client.Options{}))
	job := specs.Job("v2alpha1", jobs, "tried",
		`spec: {tasks: [{type: learner, template: {spec: {containers: [{name: a, image: di, volumeMounts: [{name: none, mountPath: /a}]}]}}}]}`)
	Eventually(func(g Gomega) {
		g.Expect(api.Create(ctx, job.DeepCopy(), client.DryRunAll)).To(Succeed())
		g.Expect(warned.texts).To(ContainElement(ContainSubstring("volumeMounts[0].name: Not found")))
	}).Should(Succeed())
}

// warnings collects the API server's warnings.
type warnings struct{ texts []string }

// HandleWarningHeader implements rest.WarningHandler.
func (w *warnings) HandleWarningHeader(_ int, _, text string) { w.texts = append(w.texts, text) }

// migrate migrates objects to v1alpha1 and back to v2alpha1, including owner references.
func (s *story) migrate(ctx context.Context) {
	GinkgoHelper()
	jobsToDelete := specs.List[v2alpha1.DIJobList](ctx, s.api, client.InNamespace(jobs))
	for i := range jobsToDelete.Items {
		if len(migration.Misruns(&jobsToDelete.Items[i], migration.ReleaseV0)) > 0 {
			Expect(client.IgnoreNotFound(s.api.Delete(ctx, &jobsToDelete.Items[i]))).To(Succeed())
		}
	}
	s.submit(ctx, `{apiVersion: diengine.opendilab.org/v1alpha1, kind: DIJob, metadata: {name: kept}, spec: {coordinator: {template: `+template+`}}}`)
	s.expectPods(ctx, "kept", 1)
	s.submit(ctx, `{apiVersion: diengine.opendilab.org/v1alpha1, kind: AggregatorConfig, metadata: {name: own}, spec: {aggregator: {template: `+template+`}}}`)
	for _, version := range []string{"v1alpha1", "v2alpha1"} {
		s.annotate(ctx, "storage-version", version)
		for _, name := range []string{"dijobs", "aggregatorconfigs"} {
			Eventually(func(g Gomega) {
				stored, _, err := unstructured.NestedStringSlice(s.definition(ctx, g, name).Object, "status", "storedVersions")
				g.Expect(err).NotTo(HaveOccurred())
				g.Expect(stored).To(Equal([]string{version}), s.migrationRecord(ctx, g))
			}).Should(Succeed())
		}
	}
	Eventually(func(g Gomega) {
		var lists v2alpha1.MembershipList
		g.Expect(s.api.List(ctx, &lists, client.InNamespace(jobs))).To(Succeed())
		g.Expect(lists.Items).NotTo(BeEmpty())
		for i := range lists.Items {
			g.Expect(lists.Items[i].OwnerReferences[0].APIVersion).To(Equal(v2alpha1.GroupVersion.String()))
		}
	}).Should(Succeed())
}

// migrationRecord returns the operator's record of the migration's progress.
func (s *story) migrationRecord(ctx context.Context, g Gomega) string {
	var record corev1.ConfigMap
	g.Expect(s.api.Get(ctx, client.ObjectKey{Namespace: system, Name: migration.RecordName}, &record)).To(Succeed())
	return fmt.Sprint(record.Data)
}

func (s *story) annotate(ctx context.Context, key, value string) {
	GinkgoHelper()
	definition := specs.Definition("dijobs." + v2alpha1.GroupName)
	patch := `{"metadata":{"annotations":{"` + v2alpha1.GroupName + "/" + key + `":"` + value + `"}}}`
	Expect(s.api.Patch(ctx, definition, client.RawPatch("application/merge-patch+json", []byte(patch)))).To(Succeed())
}

func (s *story) definition(ctx context.Context, g Gomega, name string) *unstructured.Unstructured {
	definition := specs.Definition(name + "." + v2alpha1.GroupName)
	g.Expect(s.api.Get(ctx, client.ObjectKeyFromObject(definition), definition)).To(Succeed())
	return definition
}

// runPods runs pods until stop is called.
func runPods(ctx context.Context, api client.WithWatch) (stop func()) {
	running, cancel := context.WithCancel(ctx)
	done := make(chan struct{})
	go func() {
		defer GinkgoRecover()
		defer close(done)
		(&kubelet{api: api}).run(running)
	}()
	return func() {
		cancel()
		<-done
	}
}

// quick are values with which the operator waits for less.
const quick = "configuration.operator.allocator.cycle=1s,configuration.operator.storageMigration.settle=1s,configuration.operator.takeoverSettle=100ms"

// startOperator starts the webhooks, which the API server reaches by a URL, and an operator. It
// returns a function that stops both.
func (s *story) startOperator(ctx context.Context) (stop func()) {
	GinkgoHelper()
	address := freeAddress(ctx)
	hooks := s.start(ctx, s.objects, "di-orchestrator-webhook", "--webhook-address="+address, "--webhook-url=https://"+address)
	operator := s.start(ctx, s.objects, "di-orchestrator-operator")
	return func() {
		GinkgoHelper()
		operator.stop()
		hooks.stop()
	}
}

// overwriteWebhooks configures another endpoint for the webhooks, and waits until an Event reports
// that it is restored.
func (s *story) overwriteWebhooks(ctx context.Context) {
	GinkgoHelper()
	patch := `[{"op":"replace","path":"/webhooks/0/clientConfig/url","value":"https://127.0.0.1:1/other"}]`
	configuration := &admissionregistrationv1.MutatingWebhookConfiguration{ObjectMeta: metav1.ObjectMeta{Name: names.MutatingWebhooks}}
	Expect(s.api.Patch(ctx, configuration, client.RawPatch(types.JSONPatchType, []byte(patch)))).To(Succeed())
	Eventually(func(g Gomega) {
		var events eventsv1.EventList
		g.Expect(s.api.List(ctx, &events)).To(Succeed())
		g.Expect(events.Items).To(ContainElement(HaveField("Reason", v2alpha1.ReasonConversionRestored)))
	}).Should(Succeed())
}

// startServer starts a di-server.
func (s *story) startServer(ctx context.Context) *process {
	GinkgoHelper()
	address := freeAddress(ctx)
	s.base = "http://" + address
	return s.start(ctx, s.objects, "di-orchestrator-server", "--address="+address, "--tls-address="+freeAddress(ctx))
}

// submit creates the object of a manifest in the jobs' namespace.
func (s *story) submit(ctx context.Context, manifest string) {
	GinkgoHelper()
	object := specs.Object(manifest)
	object.SetNamespace(jobs)
	Expect(s.api.Create(ctx, object)).To(Succeed())
}

// template is the pod template of every task of the story's jobs.
const template = `{spec: {serviceAccountName: default, containers: [{name: di-container, image: di, resources: {requests: {cpu: 1}}}]}}`

// templateJSON is the same as JSON.
const templateJSON = `{"spec":{"serviceAccountName":"default","containers":[{"name":"di-container","image":"di","resources":{"requests":{"cpu":1}}}]}}`

// expectPods waits until a job has the given number of pods, all running, and returns them.
func (s *story) expectPods(ctx context.Context, job string, count int) []corev1.Pod {
	GinkgoHelper()
	var pods []corev1.Pod
	Eventually(func(g Gomega) {
		var list corev1.PodList
		g.Expect(s.api.List(ctx, &list, client.InNamespace(jobs))).To(Succeed())
		pods = slices.DeleteFunc(list.Items, func(pod corev1.Pod) bool {
			owner := metav1.GetControllerOf(&pod)
			return owner == nil || owner.Name != job
		})
		var running []string
		for i := range pods {
			if pods[i].DeletionTimestamp == nil && pods[i].Status.Phase == corev1.PodRunning {
				running = append(running, pods[i].Name)
			}
		}
		g.Expect(running).To(HaveLen(count))
		g.Expect(pods).To(HaveLen(count))
	}).Should(Succeed())
	return pods
}

func (s *story) expectPhase(ctx context.Context, name string, phase v2alpha1.Phase) {
	GinkgoHelper()
	Eventually(func(g Gomega) {
		var job v2alpha1.DIJob
		g.Expect(s.api.Get(ctx, client.ObjectKey{Namespace: jobs, Name: name}, &job)).To(Succeed())
		g.Expect(job.Status.Phase).To(Equal(phase))
	}).Should(Succeed())
}

// end finishes a pod.
func (s *story) end(ctx context.Context, pod string, phase corev1.PodPhase, exitCode int32) {
	GinkgoHelper()
	Eventually(func() error {
		var found corev1.Pod
		if err := s.api.Get(ctx, client.ObjectKey{Namespace: jobs, Name: pod}, &found); err != nil {
			return err
		}
		found.Status.Phase, found.Status.Conditions = phase, nil
		found.Status.ContainerStatuses = []corev1.ContainerStatus{{
			Name: names.Container, State: corev1.ContainerState{Terminated: &corev1.ContainerStateTerminated{ExitCode: exitCode}},
		}}
		return s.api.Status().Update(ctx, &found)
	}).Should(Succeed())
}

// patch merges into a job's spec.
func (s *story) patch(ctx context.Context, name, spec string) {
	GinkgoHelper()
	job := &v2alpha1.DIJob{ObjectMeta: metav1.ObjectMeta{Namespace: jobs, Name: name}}
	Expect(s.api.Patch(ctx, job, client.RawPatch("application/merge-patch+json", []byte(`{"spec":`+spec+`}`)))).To(Succeed())
}

// ask sends a call that must succeed.
func (s *story) ask(ctx context.Context, c call) string {
	GinkgoHelper()
	status, answer := c.answer(ctx, s.base)
	Expect(status).To(Equal(http.StatusOK), answer)
	return answer
}

// leaveEarlierInstallation creates the objects of v0.2.2 that a takeover stops or completes, and a
// ready pod of this di-server. Without that pod the takeover does not stop the earlier di-server.
func (s *story) leaveEarlierInstallation(ctx context.Context) {
	GinkgoHelper()
	manifests := []string{`{apiVersion: apiextensions.k8s.io/v1, kind: CustomResourceDefinition, metadata: {name: aggregatorconfigs.diengine.opendilab.org,
  annotations: {cert-manager.io/inject-ca-from: di-system/di-serving-cert}}, spec: {group: diengine.opendilab.org, scope: Namespaced,
  names: {kind: AggregatorConfig, listKind: AggregatorConfigList, plural: aggregatorconfigs, singular: aggregatorconfig}, versions: [{name: v1alpha1, served: true, storage: true,
  additionalPrinterColumns: [{name: Age, type: date, jsonPath: .metadata.creationTimestamp}], schema: {openAPIV3Schema: {type: object, x-kubernetes-preserve-unknown-fields: true}}}]}}`,
		`{apiVersion: v1, kind: Pod, metadata: {namespace: di-system, name: server, labels: {app.kubernetes.io/name: di-orchestrator, app.kubernetes.io/component: server,
  control-plane: di-server}}, spec: {serviceAccountName: di-orchestrator-server, containers: [{name: server, image: di, ports: [{name: tls, containerPort: 8443}]}]}}`}
	for _, name := range []string{"di-server", "di-server-nodeport"} {
		manifests = append(manifests, fmt.Sprintf(`{apiVersion: v1, kind: Service, metadata: {namespace: di-system, name: %s},
  spec: {selector: {control-plane: di-server}, ports: [{port: 8080, targetPort: 8080}]}}`, name))
	}
	for _, kind := range []string{"mutating", "validating"} {
		manifests = append(manifests, fmt.Sprintf(`{apiVersion: admissionregistration.k8s.io/v1, kind: %sWebhookConfiguration, metadata: {name: di-%s-webhook-configuration,
  annotations: {cert-manager.io/inject-ca-from: di-system/di-serving-cert}}}`, strings.ToUpper(kind[:1])+kind[1:], kind))
	}
	for _, name := range []string{"di-operator", "di-webhook", "di-server"} {
		manifests = append(manifests, fmt.Sprintf(`{apiVersion: apps/v1, kind: Deployment, metadata: {namespace: di-system, name: %[1]s}, spec: {replicas: 1,
  selector: {matchLabels: {control-plane: %[1]s}}, template: {metadata: {labels: {control-plane: %[1]s}}, spec: {containers: [{name: main, image: earlier}]}}}}`, name))
	}
	for _, manifest := range manifests {
		Expect(s.api.Create(ctx, specs.Object(manifest))).To(Succeed())
	}
	s.leaveEarlierServer(ctx)
}

// leaveEarlierServer creates a running pod of an earlier di-server.
func (s *story) leaveEarlierServer(ctx context.Context) {
	GinkgoHelper()
	pod := &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{
			Namespace: system, Name: "di-server-5d9c-x", Labels: map[string]string{"control-plane": "di-server", "pod-template-hash": "5d9c"},
			OwnerReferences: []metav1.OwnerReference{{APIVersion: "apps/v1", Kind: "ReplicaSet", Name: "di-server-5d9c", UID: "1", Controller: ptr.To(true)}},
		},
		Spec: corev1.PodSpec{ServiceAccountName: "di-orchestrator-server", Containers: []corev1.Container{{Name: "server", Image: "earlier"}}},
	}
	Expect(s.api.Create(ctx, pod)).To(Succeed())
	Eventually(func(g Gomega) {
		g.Expect(s.api.Get(ctx, client.ObjectKeyFromObject(pod), pod)).To(Succeed())
		g.Expect(pod.Status.PodIPs).NotTo(BeEmpty())
	}).Should(Succeed())
}

// keepEndpoints writes EndpointSlices, and ends the earlier di-server when it is scaled to zero,
// until stop is called.
func (s *story) keepEndpoints(ctx context.Context) (stop func()) {
	running, cancel := context.WithCancel(ctx)
	done := make(chan struct{})
	go func() {
		defer close(done)
		ticker := time.NewTicker(100 * time.Millisecond)
		defer ticker.Stop()
		scaled := &appsv1.Deployment{}
		ended := false
		for running.Err() == nil {
			// The next round retries after an error.
			_ = testkit.SyncEndpoints(running, s.api, system)
			err := s.api.Get(running, client.ObjectKey{Namespace: system, Name: "di-server"}, scaled)
			if err == nil && *scaled.Spec.Replicas == 0 && !ended {
				pod := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: system, Name: "di-server-5d9c-x"}}
				ended = s.api.Delete(running, pod, client.GracePeriodSeconds(0)) == nil
			}
			select {
			case <-running.Done():
			case <-ticker.C:
			}
		}
	}()
	return func() {
		cancel()
		<-done
	}
}

// leaveEarlierJobs stores a job of each lifecycle as earlier releases did, with a pod and its
// service.
func (s *story) leaveEarlierJobs(ctx context.Context) {
	GinkgoHelper()
	s.submit(ctx, `{apiVersion: diengine.opendilab.org/v2alpha1, kind: DIJob, metadata: {name: earlier},
  spec: {tasks: [{type: learner, name: learner, replicas: 1, template: `+template+`}]}}`)
	s.leavePod(ctx, "earlier", "earlier-learner-0", "di-earlier", "v2alpha1", map[string]string{
		"diengine/operator": "di-operator", "diengine/job": "earlier", "diengine/pod": "earlier-learner-0",
		"diengine/task-type": "learner", "diengine/task-name": "learner",
	})
	s.submit(ctx, `{apiVersion: diengine.opendilab.org/v2alpha1, kind: DIJob, metadata: {name: old},
  spec: {lifecycle: CoordinatorLed, tasks: [{type: coordinator, template: `+template+`}, {type: collector, replicas: 0, template: `+template+`}]}}`)
	s.leavePod(ctx, "old", "old-coordinator", "old-coordinator", "v1alpha1", map[string]string{
		"group-name": v2alpha1.GroupName, "dijob-name": "old", "controller-name": "di-operator",
		"replica-type": "coordinator", "pod-name": "old-coordinator",
	})
}

// leavePod creates a job's only pod and its service. Their owner references to the job have the
// given version.
func (s *story) leavePod(ctx context.Context, owner, name, service, version string, labels map[string]string) {
	GinkgoHelper()
	var job v2alpha1.DIJob
	Expect(s.api.Get(ctx, client.ObjectKey{Namespace: jobs, Name: owner}, &job)).To(Succeed())
	at := metav1.Now().Rfc3339Copy()
	job.Status.Phase, job.Status.Replicas = v2alpha1.JobRunning, 1
	job.Status.Conditions = []v2alpha1.DIJobCondition{{
		Type: "Running", Status: corev1.ConditionTrue, Reason: "JobRunning", Message: "runs", LastUpdateTime: &at, LastTransitionTime: &at,
	}}
	Expect(s.api.Status().Update(ctx, &job)).To(Succeed())
	meta := metav1.ObjectMeta{Namespace: jobs, Name: service, Labels: labels, OwnerReferences: []metav1.OwnerReference{{
		APIVersion: v2alpha1.GroupName + "/" + version, Kind: "DIJob", Name: owner, UID: job.UID,
		Controller: ptr.To(true), BlockOwnerDeletion: ptr.To(true),
	}}}
	Expect(s.api.Create(ctx, &corev1.Service{ObjectMeta: *meta.DeepCopy(), Spec: corev1.ServiceSpec{
		ClusterIP: corev1.ClusterIPNone, Selector: labels, Ports: []corev1.ServicePort{{Port: 22270}},
	}})).To(Succeed())
	pod := &corev1.Pod{ObjectMeta: meta}
	pod.Name = name
	pod.Annotations = map[string]string{"diengine/replicas": "1", "diengine/rank": "0", "diengine/task-rank": "0", "diengine/node": ""}
	pod.Spec = corev1.PodSpec{Hostname: name, Subdomain: service, RestartPolicy: corev1.RestartPolicyNever, Containers: []corev1.Container{{
		Name: names.Container, Image: "old",
		Env: []corev1.EnvVar{{Name: "DI_RANK", Value: "0"}, {Name: "DI_NODES", Value: name + "." + service + ".jobs.svc.cluster.local"}},
	}}}
	Expect(s.api.Create(ctx, pod)).To(Succeed())
}

// outdateDefinitions removes a part of a definition, as in an earlier release.
func (s *story) outdateDefinitions(ctx context.Context) {
	GinkgoHelper()
	for _, name := range []string{"dijobs", "aggregatorconfigs", "memberships", "scaleplans"} {
		Expect(s.api.Patch(ctx, specs.Definition(name+"."+v2alpha1.GroupName), client.RawPatch("application/json-patch+json",
			[]byte(`[{"op":"remove","path":"/spec/versions/0/additionalPrinterColumns/0"}]`)))).To(Succeed())
	}
}

// adopt waits until the operator has adopted the earlier jobs.
func (s *story) adopt(ctx context.Context) {
	GinkgoHelper()
	Eventually(func(g Gomega) {
		var job v2alpha1.DIJob
		g.Expect(s.api.Get(ctx, client.ObjectKey{Namespace: jobs, Name: "earlier"}, &job)).To(Succeed())
		g.Expect(job.Spec.Elastic).NotTo(BeNil())
		var service corev1.Service
		g.Expect(s.api.Get(ctx, client.ObjectKey{Namespace: jobs, Name: "old-coordinator"}, &service)).To(Succeed())
		g.Expect(service.OwnerReferences[0].APIVersion).To(Equal(v2alpha1.GroupVersion.String()))
	}).Should(Succeed())
}

// askInVain requests a learner whose AggregatorConfig does not exist.
func (s *story) askInVain(ctx context.Context) {
	GinkgoHelper()
	s.submit(ctx, `{apiVersion: diengine.opendilab.org/v2alpha1, kind: DIJob, metadata: {name: vain}, spec: {lifecycle: CoordinatorLed,
  aggregatorConfig: {name: absent}, tasks: [{type: coordinator, template: `+template+`}, {type: learner, replicas: 0, template: `+template+`}]}}`)
	coordinator := s.expectPods(ctx, "vain", 1)[0]
	status, answer := (&call{
		method: http.MethodPost, path: "/v1alpha1/replicas", token: s.token(ctx, jobs, "default", &coordinator, names.ServerAudience),
		body: fmt.Sprintf(`{"namespace":%q,"coordinator":%q,"learners":{"replicas":1,"gpus":"4"}}`, jobs, coordinator.Name),
	}).answer(ctx, s.base)
	Expect(status).To(Equal(http.StatusNotFound), answer)
}

// trainWithCoordinator runs a job of v1alpha1 until it finishes. Its coordinator requests replicas
// with each method of authentication.
func (s *story) trainWithCoordinator(ctx context.Context) {
	GinkgoHelper()
	s.submit(ctx, `{apiVersion: diengine.opendilab.org/v1alpha1, kind: DIJob, metadata: {name: v1},
  spec: {coordinator: {template: `+template+`}, collector: {template: `+template+`}, learner: {template: `+template+`}}}`)
	coordinator := s.expectPods(ctx, "v1", 1)[0]
	account := &corev1.ServiceAccount{ObjectMeta: metav1.ObjectMeta{Namespace: jobs, Name: "default"}}
	Expect(s.api.Create(ctx, account)).To(Succeed())
	s.allowReplicas(ctx, "default")
	s.waitAggregatorConfig(ctx)
	body := func(rest string) string {
		return fmt.Sprintf(`{"namespace":%q,"coordinator":%q,%s}`, jobs, coordinator.Name, rest)
	}

	By("adding by the pod's token, reporting by its address, and removing by a user's token")
	bound := s.token(ctx, jobs, "default", &coordinator, names.ServerAudience)
	s.ask(ctx, call{method: http.MethodPost, path: "/v1alpha1/replicas", token: bound, body: body(`"collectors":{"replicas":2},"learners":{"replicas":1,"gpus":"4"}`)})
	pods := s.expectPods(ctx, "v1", 6)
	var collector string
	for i := range pods {
		if strings.Contains(pods[i].Name, "collector") {
			collector = pods[i].Name
		}
	}
	s.ask(ctx, call{method: http.MethodPost, path: "/v1alpha1/replicas/failed", from: coordinator.Status.PodIP, body: body(`"collectors":["` + collector + `"]`)})
	Eventually(func() error {
		return s.api.Get(ctx, client.ObjectKey{Namespace: jobs, Name: collector}, &corev1.Pod{})
	}).Should(Satisfy(apierrors.IsNotFound))
	s.expectPods(ctx, "v1", 6)
	user := s.token(ctx, jobs, "default", nil, names.ServerAudience)
	s.ask(ctx, call{method: http.MethodDelete, path: "/v1alpha1/replicas", token: user, body: body(`"collectors":{"replicas":1}`)})
	s.ask(ctx, call{method: http.MethodGet, path: "/v1alpha1/replicas?namespace=" + jobs + "&coordinator=" + coordinator.Name, token: user})

	By("suspending, resuming, ending, and being deleted for its age")
	s.patch(ctx, "v1", `{"suspend":true}`)
	s.expectPods(ctx, "v1", 0)
	// It is deleted after the pods, and not at all if the job is resumed before.
	Eventually(func() error {
		return s.api.Get(ctx, client.ObjectKey{Namespace: jobs, Name: "v1"}, &v2alpha1.Membership{})
	}).Should(Satisfy(apierrors.IsNotFound))
	s.patch(ctx, "v1", `{"suspend":false}`)
	s.expectPods(ctx, "v1", 1)
	s.patch(ctx, "v1", `{"ttlSecondsAfterFinished":0}`)
	s.end(ctx, coordinator.Name, corev1.PodSucceeded, 0)
	s.expectGone(ctx, "v1")
}

// waitAggregatorConfig waits for the cluster's AggregatorConfig. The operator creates it once the API server
// reaches the webhooks, and di-server refuses learners of several GPUs until then.
func (s *story) waitAggregatorConfig(ctx context.Context) {
	GinkgoHelper()
	Eventually(func() error {
		return s.api.Get(ctx, client.ObjectKey{Namespace: system, Name: names.AggregatorConfig}, &v2alpha1.AggregatorConfig{})
	}).Should(Succeed())
}

// allowReplicas allows a service account to request replicas of all jobs, and waits until the API server knows.
func (s *story) allowReplicas(ctx context.Context, account string) {
	GinkgoHelper()
	Expect(s.api.Create(ctx, &rbacv1.Role{
		ObjectMeta: metav1.ObjectMeta{Namespace: jobs, Name: "caller"},
		Rules: []rbacv1.PolicyRule{{APIGroups: []string{v2alpha1.GroupName}, Resources: []string{"dijobs/replicas", "dijobs/profilings"},
			Verbs: []string{"get", "list", "create", "update", "delete"}}},
	})).To(Succeed())
	Expect(s.api.Create(ctx, &rbacv1.RoleBinding{
		ObjectMeta: metav1.ObjectMeta{Namespace: jobs, Name: "caller"},
		RoleRef:    rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "Role", Name: "caller"},
		Subjects:   []rbacv1.Subject{{Kind: "ServiceAccount", Namespace: jobs, Name: account}},
	})).To(Succeed())
	review := &authorizationv1.SubjectAccessReview{Spec: authorizationv1.SubjectAccessReviewSpec{
		User: "system:serviceaccount:" + jobs + ":" + account,
		ResourceAttributes: &authorizationv1.ResourceAttributes{
			Namespace: jobs, Verb: "create", Group: v2alpha1.GroupName, Resource: "dijobs", Subresource: "replicas",
		},
	}}
	// di-server remembers a refusal for some seconds.
	Eventually(func(g Gomega) {
		g.Expect(s.api.Create(ctx, review)).To(Succeed())
		g.Expect(review.Status.Allowed).To(BeTrue())
	}).Should(Succeed())
}

func (s *story) expectGone(ctx context.Context, job string) {
	GinkgoHelper()
	Eventually(func() error {
		return s.api.Get(ctx, client.ObjectKey{Namespace: jobs, Name: job}, &v2alpha1.DIJob{})
	}).Should(Satisfy(apierrors.IsNotFound))
}

// trainWithWorkers runs a worker-led job of MPI, with a restart and a resize, until it finishes.
func (s *story) trainWithWorkers(ctx context.Context) {
	GinkgoHelper()
	s.submit(ctx, `{apiVersion: diengine.opendilab.org/v2alpha1, kind: DIJob, metadata: {name: v2},
  spec: {backoffLimit: 3, cleanPodPolicy: All, elastic: {minReplicas: 1, maxReplicas: 4, task: collector, onResize: Continue}, disruption: {maxUnavailable: 1},
  clusterSpec: [MPI], successPolicy: {targetTasks: [launcher, collector]},
  tasks: [{type: none, name: launcher, replicas: 1, template: `+template+`}, {type: collector, name: collector, replicas: 2, template: `+template+`}]}}`)
	pods := s.expectPods(ctx, "v2", 3)
	s.expectPhase(ctx, "v2", v2alpha1.JobRunning)
	token := s.token(ctx, jobs, "default", &pods[0], names.ServerAudience)
	s.ask(ctx, call{method: http.MethodGet, path: "/v2alpha1/jobs.v2/replicas", token: token})
	s.ask(ctx, call{method: http.MethodPost, path: "/v2alpha1/jobs.v2/profilings", token: token, body: `{"data":{"a":1}}`})

	By("failing")
	s.end(ctx, pods[0].Name, corev1.PodFailed, 1)
	Eventually(func(g Gomega) {
		var job v2alpha1.DIJob
		g.Expect(s.api.Get(ctx, client.ObjectKey{Namespace: jobs, Name: "v2"}, &job)).To(Succeed())
		g.Expect(job.Status.Restarts).To(BeEquivalentTo(1))
	}).Should(Succeed())
	s.expectPods(ctx, "v2", 3)
	s.expectPhase(ctx, "v2", v2alpha1.JobRunning)

	By("growing and shrinking")
	user := s.token(ctx, jobs, "default", nil, names.ServerAudience)
	s.ask(ctx, call{method: http.MethodPost, path: "/v2alpha1/jobs.v2/replicas", token: user, body: `{"replicas":1}`})
	s.expectPods(ctx, "v2", 4)
	s.ask(ctx, call{method: http.MethodDelete, path: "/v2alpha1/jobs.v2/replicas", token: user, body: `{"replicas":2}`})
	pods = s.expectPods(ctx, "v2", 2)

	By("ending")
	for i := range pods {
		s.end(ctx, pods[i].Name, corev1.PodSucceeded, 0)
	}
	s.expectPhase(ctx, "v2", v2alpha1.JobSucceeded)
	Eventually(func(g Gomega) {
		var services corev1.ServiceList
		g.Expect(s.api.List(ctx, &services, client.InNamespace(jobs), client.MatchingLabels{names.LabelJob: "v2"})).To(Succeed())
		g.Expect(services.Items).To(BeEmpty())
		var keys corev1.SecretList
		g.Expect(s.api.List(ctx, &keys, client.InNamespace(jobs), client.MatchingLabels{names.LabelJob: "v2"})).To(Succeed())
		g.Expect(keys.Items).To(BeEmpty())
	}).Should(Succeed())
}

// refuseSecrets tries with the operator's rights what an attacker who controls it would do with Secrets.
func (s *story) refuseSecrets(ctx context.Context) {
	GinkgoHelper()
	config := rest.CopyConfig(s.environment.Config)
	config.Impersonate.UserName = accounts + "di-orchestrator-operator"
	operator := specs.Must(testkit.NewClient(config))
	secret := func(namespace, name string, kind corev1.SecretType, owners ...metav1.OwnerReference) *corev1.Secret {
		return &corev1.Secret{
			ObjectMeta: metav1.ObjectMeta{
				Namespace: namespace, Name: name, OwnerReferences: owners,
				Labels: map[string]string{names.LabelJob: "v2"}, Annotations: map[string]string{corev1.ServiceAccountNameKey: "default"},
			},
			Type: kind, Data: map[string][]byte{corev1.SSHAuthPrivateKey: []byte("key")},
		}
	}
	job := metav1.OwnerReference{APIVersion: v2alpha1.GroupVersion.String(), Kind: "DIJob", Name: "v2", UID: "u", Controller: ptr.To(true)}
	refused := MatchError(ContainSubstring("creates and deletes no Secrets but the keys of ssh of DIJobs"))

	Expect(operator.Create(ctx, secret(jobs, "token", corev1.SecretTypeServiceAccountToken, job))).To(refused)
	Expect(operator.Create(ctx, secret(jobs, "opaque", corev1.SecretTypeOpaque, job))).To(refused)
	Expect(operator.Create(ctx, secret(jobs, "stray", corev1.SecretTypeSSHAuth))).To(refused)
	Expect(operator.Create(ctx, secret(jobs, "di-orchestrator-server-tls", corev1.SecretTypeOpaque))).To(refused)
	password := secret(jobs, "password", corev1.SecretTypeOpaque)
	Expect(s.api.Create(ctx, password)).To(Succeed())
	Expect(operator.Delete(ctx, password)).To(refused)
	deployKey := secret(jobs, "deploy-key", corev1.SecretTypeSSHAuth)
	deployKey.Labels = nil
	Expect(s.api.Create(ctx, deployKey)).To(Succeed())
	Expect(operator.Delete(ctx, deployKey)).To(refused)
}

// trainProbed runs a job whose container has a probe, until it exits with 0. The operator asks the pod's Events
// whether the probe ended it.
func (s *story) trainProbed(ctx context.Context) {
	GinkgoHelper()
	probed := strings.Replace(templateJSON, `"name":"di-container"`, `"name":"di-container","livenessProbe":{"tcpSocket":{"port":9}}`, 1)
	Expect(probed).NotTo(Equal(templateJSON))
	s.submit(ctx, `{apiVersion: diengine.opendilab.org/v2alpha1, kind: DIJob, metadata: {name: probed}, spec: {tasks: [{type: learner, template: `+probed+`}]}}`)
	pods := s.expectPods(ctx, "probed", 1)
	s.expectPhase(ctx, "probed", v2alpha1.JobRunning)
	s.end(ctx, pods[0].Name, corev1.PodSucceeded, 0)
	s.expectPhase(ctx, "probed", v2alpha1.JobSucceeded)
}

// trainWithManyWorkers runs a worker-led job whose pods find their peers in a ConfigMap. It keeps running.
func (s *story) trainWithManyWorkers(ctx context.Context) {
	GinkgoHelper()
	s.submit(ctx, `{apiVersion: diengine.opendilab.org/v2alpha1, kind: DIJob, metadata: {name: wide},
  spec: {tasks: [{type: collector, name: collector, replicas: 30, template: `+template+`}]}}`)
	s.expectPods(ctx, "wide", 30)
	s.patch(ctx, "wide", `{"suspend":true}`)
	s.expectPods(ctx, "wide", 0)
	// The ConfigMap is deleted after the pods, and not at all if the job is resumed before.
	Eventually(func(g Gomega) {
		var lists corev1.ConfigMapList
		g.Expect(s.api.List(ctx, &lists, client.InNamespace(jobs), client.MatchingLabels{names.LabelJob: "wide"})).To(Succeed())
		g.Expect(lists.Items).To(BeEmpty())
	}).Should(Succeed())
	s.patch(ctx, "wide", `{"suspend":false}`)
	s.expectPods(ctx, "wide", 30)
}

// waitInQueue runs jobs of one replica and of two that wait for Kueue, as pods do that its webhook has changed.
func (s *story) waitInQueue(ctx context.Context) {
	GinkgoHelper()
	s.serveDefinitions(testkit.QueueDefinitions())
	waiting := strings.Replace(templateJSON, `{"spec":{`, `{"metadata":{"labels":{"kueue.x-k8s.io/managed":"true"}},"spec":{"schedulingGates":[{"name":"kueue.x-k8s.io/admission"}],`, 1)
	for name, replicas := range map[string]int{"queued-alone": 1, "queued-group": 2} {
		s.submit(ctx, fmt.Sprintf(`{apiVersion: diengine.opendilab.org/v2alpha1, kind: DIJob, metadata: {name: %s, labels: {kueue.x-k8s.io/queue-name: team}},
  spec: {tasks: [{type: none, name: work, replicas: %d, template: %s}]}}`, name, replicas, waiting))
		s.expectReason(ctx, name, v2alpha1.ReasonWaitingInQueue)
		Expect(s.api.Delete(ctx, &v2alpha1.DIJob{ObjectMeta: metav1.ObjectMeta{Namespace: jobs, Name: name}})).To(Succeed())
		s.expectGone(ctx, name)
	}
}

// trainGangs runs a gang job with each scheduler: first while a foreign object has the name of its
// PodGroup, and then until it finishes.
func (s *story) trainGangs(ctx context.Context) {
	GinkgoHelper()
	s.serveDefinitions(testkit.GangDefinitions())
	versions := map[string]string{
		"default-scheduler": "scheduling.k8s.io/v1alpha2", "volcano": "scheduling.volcano.sh/v1beta1", "scheduler-plugins-scheduler": "scheduling.x-k8s.io/v1alpha1",
	}
	for scheduler, version := range versions {
		s.submit(ctx, `{apiVersion: `+version+`, kind: PodGroup, metadata: {name: di-`+scheduler+`}, spec: {schedulingPolicy: {gang: {minCount: 1}}}}`)
		s.submit(ctx, `{apiVersion: diengine.opendilab.org/v2alpha1, kind: DIJob, metadata: {name: `+scheduler+`},
  spec: {scheduling: {schedulerName: `+scheduler+`, gang: {}}, tasks: [{type: none, name: work, replicas: 1, template: `+template+`}]}}`)
	}
	for scheduler, version := range versions {
		s.expectCondition(ctx, scheduler, v2alpha1.ConditionNameConflict)
		s.freeGroup(ctx, version, scheduler)
	}
	for scheduler, version := range versions {
		s.expectPods(ctx, scheduler, 1)
		pods := 1
		if scheduler != "default-scheduler" {
			s.patch(ctx, scheduler, `{"tasks":[{"type":"none","name":"work","replicas":2,"template":`+templateJSON+`}],"elastic":null}`)
			pods = 2
		}
		for _, pod := range s.expectPods(ctx, scheduler, pods) {
			s.end(ctx, pod.Name, corev1.PodSucceeded, 0)
		}
		s.expectPhase(ctx, scheduler, v2alpha1.JobSucceeded)
		s.waitGroupDeleted(ctx, version, scheduler)
	}
}

// serveDefinitions installs the CRDs of a folder.
func (p *plane) serveDefinitions(folder string) {
	GinkgoHelper()
	_, err := envtest.InstallCRDs(p.environment.Config, envtest.CRDInstallOptions{Paths: []string{folder}, MaxTime: patience, ErrorIfPathMissing: true})
	Expect(err).NotTo(HaveOccurred())
}

// freeGroup deletes a foreign PodGroup with the name of a job's. Kubernetes' own have a protection
// finalizer, and the controller that removes it does not run here.
func (s *story) freeGroup(ctx context.Context, version, job string) {
	GinkgoHelper()
	group := s.podGroup(version, job)
	Expect(s.api.Delete(ctx, group)).To(Succeed())
	err := s.api.Patch(ctx, group, client.RawPatch("application/merge-patch+json", []byte(`{"metadata":{"finalizers":null}}`)))
	Expect(client.IgnoreNotFound(err)).To(Succeed())
}

// waitGroupDeleted waits until the operator has deleted the PodGroup of a job.
func (s *story) waitGroupDeleted(ctx context.Context, version, job string) {
	GinkgoHelper()
	Eventually(func(g Gomega) {
		group := s.podGroup(version, job)
		err := s.api.Get(ctx, client.ObjectKeyFromObject(group), group)
		g.Expect(apierrors.IsNotFound(err) || err == nil && group.GetDeletionTimestamp() != nil).To(BeTrue())
	}).Should(Succeed())
}

func (s *story) podGroup(version, job string) *unstructured.Unstructured {
	group := &unstructured.Unstructured{}
	group.SetAPIVersion(version)
	group.SetKind("PodGroup")
	group.SetNamespace(jobs)
	group.SetName(names.PodGroup(job))
	return group
}

func (s *story) expectCondition(ctx context.Context, name, condition string) {
	GinkgoHelper()
	Eventually(func(g Gomega) {
		var job v2alpha1.DIJob
		g.Expect(s.api.Get(ctx, client.ObjectKey{Namespace: jobs, Name: name}, &job)).To(Succeed())
		g.Expect(job.Status.Conditions).To(ContainElement(And(HaveField("Type", condition), HaveField("Status", corev1.ConditionTrue))))
	}).Should(Succeed())
}

func (s *story) expectReason(ctx context.Context, name, reason string) {
	GinkgoHelper()
	Eventually(func(g Gomega) {
		g.Expect(specs.Get[v2alpha1.DIJob](ctx, s.api, jobs, name).Status.Conditions).To(ContainElement(HaveField("Reason", reason)))
	}).Should(Succeed())
}

// placePreemptible runs a job that the allocator places. di-server changes its range of replicas.
func (s *story) placePreemptible(ctx context.Context) {
	GinkgoHelper()
	s.boundNamespace(ctx)
	s.submit(ctx, `{apiVersion: diengine.opendilab.org/v2alpha1, kind: DIJob, metadata: {name: placed},
  spec: {preemptible: true, elastic: {minReplicas: 1, maxReplicas: 2, task: collector},
  tasks: [{type: collector, name: collector, replicas: 2, template: `+template+`}]}}`)
	s.expectPods(ctx, "placed", 2)
	user := s.token(ctx, jobs, "default", nil, names.ServerAudience)
	s.ask(ctx, call{method: http.MethodPost, path: "/v2alpha1/jobs.placed/replicas", token: user, body: `{"replicas":1}`})
	s.patch(ctx, "placed", `{"suspend":true}`)
	s.expectPods(ctx, "placed", 0)
}

// boundNamespace creates a quota and a limit range, which the allocator reads.
func (s *story) boundNamespace(ctx context.Context) {
	GinkgoHelper()
	s.submit(ctx, `{apiVersion: v1, kind: ResourceQuota, metadata: {name: wide}, spec: {hard: {requests.nvidia.com/gpu: "64"}}}`)
	s.submit(ctx, `{apiVersion: v1, kind: LimitRange, metadata: {name: wide}, spec: {limits: [{type: PersistentVolumeClaim, max: {storage: 1Ti}}]}}`)
}

// placeAnother places another job, which needs devices, by an operator whose caches are filled.
func (s *story) placeAnother(ctx context.Context) {
	GinkgoHelper()
	s.submit(ctx, `{apiVersion: diengine.opendilab.org/v2alpha1, kind: DIJob, metadata: {name: another},
  spec: {preemptible: true, tasks: [{type: collector, name: collector, replicas: 1, template: {spec: {serviceAccountName: default,
    resourceClaims: [{name: device, resourceClaimTemplateName: device}], containers: [{name: di-container, image: di}]}}}]}}`)
	s.expectPods(ctx, "another", 1)
}

// scale executes a user's ScalePlan, which is deleted at once, and then a plan of the optimizer, which
// resizes pods in place and is cancelled.
func (s *story) scale(ctx context.Context) {
	GinkgoHelper()
	s.serveMetrics(ctx)
	s.submit(ctx, `{apiVersion: diengine.opendilab.org/v2alpha1, kind: DIJob, metadata: {name: scaled},
  spec: {elastic: {minReplicas: 1, maxReplicas: 4, task: collector},
  tasks: [{type: learner, name: learner, replicas: 1, template: `+template+`}, {type: collector, name: collector, replicas: 1, template: `+template+`}]}}`)
	s.expectPods(ctx, "scaled", 2)
	s.expectPhase(ctx, "scaled", v2alpha1.JobRunning)

	By("executing a ScalePlan")
	s.submit(ctx, `{apiVersion: diengine.opendilab.org/v2alpha1, kind: ScalePlan, metadata: {name: more},
  spec: {job: scaled, tasks: [{name: collector, replicas: 2}], ttlSecondsAfterFinished: 0}}`)
	pods := s.expectPods(ctx, "scaled", 3)
	Eventually(func() error {
		return s.api.Get(ctx, client.ObjectKey{Namespace: jobs, Name: "more"}, &v2alpha1.ScalePlan{})
	}).Should(Satisfy(apierrors.IsNotFound))

	By("following the ratio rule and the optimizer")
	// Only pods on nodes are resized in place.
	for i := range pods {
		Expect(s.api.SubResource("binding").Create(ctx, &pods[i], &corev1.Binding{Target: corev1.ObjectReference{Kind: "Node", Name: "node-1"}})).To(Succeed())
	}
	s.patch(ctx, "scaled", `{"autoscale":{"ratio":{}}}`)
	s.expectAutoscaling(ctx, v2alpha1.ReasonWaitingForReports)
	s.patch(ctx, "scaled", `{"autoscale":{"optimizer":{"limit":{"memory":"4Gi"}}}}`)
	Eventually(func(g Gomega) {
		var list corev1.PodList
		g.Expect(s.api.List(ctx, &list, client.InNamespace(jobs), client.MatchingLabels{names.LabelJob: "scaled"})).To(Succeed())
		g.Expect(list.Items).To(HaveEach(HaveField("Annotations", HaveKey(names.AnnotationResize))))
	}).Should(Succeed())
	// No kubelet reports the resize, so the plan still executes.
	Expect(s.api.DeleteAllOf(ctx, &v2alpha1.ScalePlan{}, client.InNamespace(jobs))).To(Succeed())
	Eventually(func(g Gomega) {
		var job v2alpha1.DIJob
		g.Expect(s.api.Get(ctx, client.ObjectKey{Namespace: jobs, Name: "scaled"}, &job)).To(Succeed())
		g.Expect(job.Status.Scaling.Plan.Phase).NotTo(Equal(v2alpha1.PlanExecuting))
	}).Should(Succeed())
}

// serveMetrics serves PodMetrics, as metrics-server does, but has none.
func (s *story) serveMetrics(ctx context.Context) {
	GinkgoHelper()
	Expect(s.api.Create(ctx, specs.Object(`{apiVersion: apiextensions.k8s.io/v1, kind: CustomResourceDefinition,
  metadata: {name: pods.metrics.k8s.io, annotations: {api-approved.kubernetes.io: "unapproved, for a test"}},
  spec: {group: metrics.k8s.io, scope: Namespaced, names: {kind: PodMetrics, listKind: PodMetricsList, plural: pods, singular: pod},
  versions: [{name: v1beta1, served: true, storage: true, schema: {openAPIV3Schema: {type: object, x-kubernetes-preserve-unknown-fields: true}}}]}}`))).To(Succeed())
	Eventually(func() error {
		list := &unstructured.UnstructuredList{}
		list.SetAPIVersion("metrics.k8s.io/v1beta1")
		list.SetKind("PodMetricsList")
		return s.api.List(ctx, list)
	}).Should(Succeed())
}

// leaveHorizontalAutoscaler lets a HorizontalPodAutoscaler decide about the job of the ratio rule.
func (s *story) leaveHorizontalAutoscaler(ctx context.Context) {
	GinkgoHelper()
	s.submit(ctx, `{apiVersion: autoscaling/v2, kind: HorizontalPodAutoscaler, metadata: {name: scaled},
  spec: {scaleTargetRef: {apiVersion: diengine.opendilab.org/v2alpha1, kind: DIJob, name: scaled}, maxReplicas: 4}}`)
}

// expectAutoscaling waits until the ratio rule of the job leaves its size alone for a reason.
func (s *story) expectAutoscaling(ctx context.Context, reason string) {
	GinkgoHelper()
	Eventually(func(g Gomega) {
		var job v2alpha1.DIJob
		g.Expect(s.api.Get(ctx, client.ObjectKey{Namespace: jobs, Name: "scaled"}, &job)).To(Succeed())
		g.Expect(job.Status.Conditions).To(ContainElement(And(HaveField("Type", v2alpha1.ConditionAutoscaling), HaveField("Reason", reason))))
	}).Should(Succeed())
}

// conflictOfNames submits a job whose pods', service's and budget's names are taken by foreign objects.
func (s *story) conflictOfNames(ctx context.Context) {
	GinkgoHelper()
	Expect(s.api.Create(ctx, &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{Namespace: jobs, Name: "taken-work-0"},
		Spec:       corev1.PodSpec{Containers: []corev1.Container{{Name: "a", Image: "a"}}},
	})).To(Succeed())
	Expect(s.api.Create(ctx, &corev1.Service{
		ObjectMeta: metav1.ObjectMeta{Namespace: jobs, Name: names.WorkerService("taken")},
		Spec:       corev1.ServiceSpec{Ports: []corev1.ServicePort{{Port: 1}}},
	})).To(Succeed())
	s.submit(ctx, `{apiVersion: policy/v1, kind: PodDisruptionBudget, metadata: {name: taken}, spec: {minAvailable: 0}}`)
	s.submit(ctx, `{apiVersion: diengine.opendilab.org/v2alpha1, kind: DIJob, metadata: {name: taken},
  spec: {disruption: {maxUnavailable: 1}, tasks: [{type: none, name: work, replicas: 1, template: `+template+`}]}}`)
	Eventually(func(g Gomega) {
		var job v2alpha1.DIJob
		g.Expect(s.api.Get(ctx, client.ObjectKey{Namespace: jobs, Name: "taken"}, &job)).To(Succeed())
		g.Expect(fmt.Sprint(job.Status.Conditions)).To(ContainSubstring("NameConflict"))
	}).Should(Succeed())
}

// spoil corrupts the stored certificates.
func (s *story) spoil(ctx context.Context) {
	GinkgoHelper()
	for _, name := range []string{"di-orchestrator-webhook-ca", "di-orchestrator-server-tls"} {
		secret := s.secret(ctx, name)
		secret.Data = map[string][]byte{corev1.TLSCertKey: []byte("spoilt"), corev1.TLSPrivateKeyKey: []byte("spoilt")}
		Expect(s.api.Update(ctx, secret)).To(Succeed())
	}
}

// waitReplaced waits until the certificate of di-server is signed by the authority that the
// operator recreated.
func (s *story) waitReplaced(ctx context.Context) {
	GinkgoHelper()
	Eventually(func(g Gomega) {
		authority := s.secret(ctx, "di-orchestrator-webhook-ca")
		g.Expect(s.secret(ctx, "di-orchestrator-server-tls").Data["ca.crt"]).To(Equal(authority.Data[corev1.TLSCertKey]))
		var bundle corev1.ConfigMap
		g.Expect(s.api.Get(ctx, client.ObjectKey{Namespace: system, Name: "di-orchestrator-server-ca"}, &bundle)).To(Succeed())
		g.Expect(bundle.Data).To(HaveKeyWithValue("ca.crt", HavePrefix(string(authority.Data[corev1.TLSCertKey]))))
	}).Should(Succeed())
}

func (s *story) secret(ctx context.Context, name string) *corev1.Secret {
	GinkgoHelper()
	var found corev1.Secret
	Expect(s.api.Get(ctx, client.ObjectKey{Namespace: system, Name: name}, &found)).To(Succeed())
	return &found
}

// gone reports whether the error is because the object was deleted or changed before the write.
func gone(err error) bool {
	return apierrors.IsNotFound(err) || apierrors.IsConflict(err)
}
