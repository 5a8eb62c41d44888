// Copyright The DI Orchestrator Authors.
// SPDX-License-Identifier: Apache-2.0

package rbac

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"time"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	authorizationv1 "k8s.io/api/authorization/v1"
	autoscalingv1 "k8s.io/api/autoscaling/v1"
	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/client-go/rest"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"opendilab.org/di-orchestrator/apis/v2alpha1"
	"opendilab.org/di-orchestrator/test/testkit"
	"opendilab.org/di-orchestrator/test/testkit/specs"
)

// permissions are the verbs on each resource that the roles of users grant. A right column adds to the
// left one.
var permissions = []struct{ resource, view, edit string }{
	{"dijobs", "get list watch", "create update patch delete deletecollection"},
	{"scaleplans", "get list watch", "create update patch delete deletecollection"},
	{"aggregatorconfigs", "get list watch", "create update patch delete deletecollection"},
	{"memberships", "get list watch", ""},
	{"dijobs/scale", "get", "update patch"},
	{"dijobs/replicas", "get", "create update delete"},
	{"dijobs/profilings", "", "create"},
	{"dijobs/status", "get", ""},
	{"memberships/status", "get", ""},
	{"scaleplans/status", "get", ""},
	{"dijobs/finalizers", "", ""},
}

var verbs = strings.Fields("get list watch create update patch delete deletecollection")

var _ = Describe("The roles of users", Ordered, func() {
	const namespace = "tenant"
	var (
		admin  client.Client
		config *rest.Config
	)
	as := func(user string) client.Client {
		GinkgoHelper()
		impersonated := rest.CopyConfig(config)
		impersonated.Impersonate.UserName = user
		return specs.Must(testkit.NewClient(impersonated))
	}
	may := func(ctx context.Context, api client.Client, namespace, resource, verb string) bool {
		GinkgoHelper()
		resource, subresource, _ := strings.Cut(resource, "/")
		review := &authorizationv1.SelfSubjectAccessReview{Spec: authorizationv1.SelfSubjectAccessReviewSpec{ResourceAttributes: &authorizationv1.ResourceAttributes{
			Namespace: namespace, Verb: verb, Group: v2alpha1.GroupName, Resource: resource, Subresource: subresource,
		}}}
		Expect(api.Create(ctx, review)).To(Succeed())
		return review.Status.Allowed
	}

	BeforeAll(func(ctx SpecContext) {
		environment := specs.Must(testkit.StartAPI(ctx))
		DeferCleanup(environment.Stop)
		config = environment.Config
		admin = specs.Must(testkit.NewClient(config))
		aggregate(ctx, admin)
		for _, name := range []string{namespace, "another"} {
			Expect(admin.Create(ctx, &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: name}})).To(Succeed())
		}
		for _, role := range []string{"view", "edit", "admin"} {
			Expect(admin.Create(ctx, &rbacv1.RoleBinding{
				ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: role},
				RoleRef:    rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "ClusterRole", Name: role},
				Subjects:   []rbacv1.Subject{{APIGroup: rbacv1.GroupName, Kind: rbacv1.UserKind, Name: role}},
			})).To(Succeed())
			Eventually(func() bool { return may(ctx, as(role), namespace, "dijobs", "get") }).Should(BeTrue())
		}
	}, NodeTimeout(patience))

	DescribeTable("grant each verb to those who need it, in their namespace only",
		func(ctx SpecContext, role string) {
			api := as(role)
			for _, row := range permissions {
				granted := row.view
				if role != "view" {
					granted += " " + row.edit
				}
				for _, verb := range verbs {
					about := fmt.Sprintf("%s %s %s", role, verb, row.resource)
					Expect(may(ctx, api, namespace, row.resource, verb)).To(Equal(slices.Contains(strings.Fields(granted), verb)), about)
				}
				for _, elsewhere := range []string{"another", system} {
					Expect(may(ctx, api, elsewhere, row.resource, "get")).To(BeFalse(), "%s in %s", row.resource, elsewhere)
				}
			}
		},
		Entry(nil, "view", NodeTimeout(time.Minute)),
		Entry(nil, "edit", NodeTimeout(time.Minute)),
		Entry(nil, "admin", NodeTimeout(time.Minute)),
	)

	It("let an editor create, scale, plan and delete a job, and write no status", func(ctx SpecContext) {
		api, job := as("edit"), newJob(namespace)
		Expect(api.Create(ctx, job)).To(Succeed())
		var scale autoscalingv1.Scale
		Expect(api.SubResource("scale").Get(ctx, job, &scale)).To(Succeed())
		scale.Spec.Replicas = 2
		Expect(api.SubResource("scale").Update(ctx, job, client.WithSubResourceBody(&scale))).To(Succeed())
		Expect(api.Get(ctx, client.ObjectKeyFromObject(job), job)).To(Succeed())
		Expect(job.Spec.Elastic.Replicas).To(HaveValue(BeEquivalentTo(2)))
		Expect(api.Create(ctx, newPlan(namespace, job.Name))).To(Succeed())
		written := job.DeepCopy()
		written.Status.Phase = v2alpha1.JobSucceeded
		Expect(api.Status().Patch(ctx, written, client.MergeFrom(job))).To(Satisfy(apierrors.IsForbidden))
		Expect(api.Create(ctx, &v2alpha1.Membership{
			ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: "forged"}, Spec: v2alpha1.MembershipSpec{JobUID: "a"},
		})).To(Satisfy(apierrors.IsForbidden))
		Expect(api.Delete(ctx, job)).To(Succeed())
	}, NodeTimeout(time.Minute))

	It("let a viewer read a job and nothing more", func(ctx SpecContext) {
		job := newJob(namespace)
		Expect(admin.Create(ctx, job)).To(Succeed())
		viewer := as("view")
		Expect(viewer.Get(ctx, client.ObjectKeyFromObject(job), &v2alpha1.DIJob{})).To(Succeed())
		Expect(viewer.List(ctx, &v2alpha1.DIJobList{}, client.InNamespace(namespace))).To(Succeed())
		Expect(viewer.List(ctx, &v2alpha1.DIJobList{})).To(Satisfy(apierrors.IsForbidden))
		Expect(viewer.Delete(ctx, job)).To(Satisfy(apierrors.IsForbidden))
		Expect(viewer.Create(ctx, newPlan(namespace, job.Name))).To(Satisfy(apierrors.IsForbidden))
	}, NodeTimeout(time.Minute))
})

// aggregate writes the rules of aggregated roles, as kube-controller-manager does.
func aggregate(ctx context.Context, api client.Client) {
	GinkgoHelper()
	for _, name := range []string{"view", "edit", "admin"} {
		Eventually(func(g Gomega) {
			var role rbacv1.ClusterRole
			g.Expect(api.Get(ctx, client.ObjectKey{Name: name}, &role)).To(Succeed())
			g.Expect(role.AggregationRule).NotTo(BeNil())
			var parts rbacv1.ClusterRoleList
			g.Expect(api.List(ctx, &parts)).To(Succeed())
			role.Rules = nil
			for i := range parts.Items {
				part := &parts.Items[i]
				for j := range role.AggregationRule.ClusterRoleSelectors {
					selector, err := metav1.LabelSelectorAsSelector(&role.AggregationRule.ClusterRoleSelectors[j])
					g.Expect(err).NotTo(HaveOccurred())
					if part.Name != name && selector.Matches(labels.Set(part.Labels)) {
						role.Rules = append(role.Rules, part.Rules...)
					}
				}
			}
			g.Expect(api.Update(ctx, &role)).To(Succeed())
		}).WithContext(ctx).Should(Succeed())
	}
}

// newJob returns a worker-led job with one elastic task.
func newJob(namespace string) *v2alpha1.DIJob {
	template := `{"spec":{"containers":[{"name":"di-container","image":"di"}]}}`
	return &v2alpha1.DIJob{
		ObjectMeta: metav1.ObjectMeta{Namespace: namespace, GenerateName: "job-"},
		Spec: v2alpha1.DIJobSpec{
			Lifecycle: v2alpha1.LifecycleWorkerLed,
			Tasks: []v2alpha1.Task{{
				Type: v2alpha1.TaskTypeCollector, Replicas: ptr.To[int32](1), Template: v2alpha1.RawObject{JSON: apiextensionsv1.JSON{Raw: []byte(template)}},
			}},
			Elastic: &v2alpha1.Elastic{Task: "collector", Replicas: ptr.To[int32](1)},
		},
	}
}

// newPlan returns a plan that adds a replica to the job.
func newPlan(namespace, job string) *v2alpha1.ScalePlan {
	return &v2alpha1.ScalePlan{
		ObjectMeta: metav1.ObjectMeta{Namespace: namespace, GenerateName: "plan-"},
		Spec:       v2alpha1.ScalePlanSpec{Job: job, Tasks: []v2alpha1.TaskScale{{Name: "collector", Replicas: ptr.To[int32](2)}}},
	}
}
