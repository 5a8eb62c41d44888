// Copyright The DI Orchestrator Authors.
// SPDX-License-Identifier: Apache-2.0

package preflight

import (
	"context"
	"encoding/json"
	"fmt"
	"strings"
	"testing"

	. "github.com/onsi/gomega"
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"opendilab.org/di-orchestrator/test/testkit/expect"
	"opendilab.org/di-orchestrator/webhook/crdschema"
	"opendilab.org/di-orchestrator/webhook/validation"
)

func rules(t *testing.T) Rules {
	t.Helper()
	schema, err := crdschema.New()
	expect.NoError(t, err)
	return validation.NewRules(schema, validation.Bounds{})
}

const template = `{"spec":{"containers":[{"name":"di-container","image":"image"}]}}`

func jobOf(version, name, spec, rest string) []byte {
	return fmt.Appendf(nil, `{"apiVersion":"diengine.opendilab.org/%s","kind":"DIJob","metadata":{"namespace":"rl","name":%q},"spec":%s%s}`, version, name, spec, rest)
}

func TestAnObjectIsExamined(t *testing.T) {
	t.Parallel()
	coordinator, tasks := `{"coordinator":{"template":`+template+`}`, `{"tasks":[{"type":"learner","template":`+template+`}]`
	hostTemplate := strings.Replace(template, `{"containers"`, `{"hostNetwork":true,"containers"`, 1)
	onNode := `{"coordinator":{"template":` + hostTemplate + `}`
	long := strings.Repeat("x", 50)
	for name, tc := range map[string]struct {
		raw  []byte
		want []string
	}{
		"a job of v0.2.2":                      {jobOf("v1alpha1", "job", coordinator+`}`, `,"status":{"phase":"Created","replicaStatus":{"Coordinator":{"active":1},"Learner":{}}}`), nil},
		"its policy in the seed's letters":     {jobOf("v1alpha1", "job", coordinator+`,"cleanPodPolicy":"ALL"}`, ""), nil},
		"a job of v1.1.3":                      {jobOf("v2alpha1", "job", tasks+`,"backoffLimit":3}`, `,"status":{"phase":"Running","profilings":{},"restarts":1}`), nil},
		"an unknown field":                     {jobOf("v2alpha1", "job", tasks+`,"topology":"star"}`, `,"status":{"generation":3}`), []string{"Stop dijob rl/job: would lose spec.topology, status.generation"}},
		"extended that cannot be kept":         {jobOf("v1alpha1", "job", coordinator+`,"extended":{"nonsense":1}}`, ""), []string{"Stop dijob rl/job: would lose spec.extended.nonsense", "Warning dijob rl/job: a new object like this would be refused: spec.extended.nonsense"}},
		"a job of v1.0.0":                      {jobOf("v2alpha1", "job", `{"template":`+template+`,"minReplicas":2}`, ""), []string{"Stop dijob rl/job: is a job of v1.0.0"}},
		"a name that is too long for v1alpha1": {jobOf("v1alpha1", long, coordinator+`}`, ""), []string{"Warning dijob rl/" + long + ": a new object like this would be refused: metadata.name"}},
		"a name that holds a dot":              {jobOf("v2alpha1", "a.b", tasks+`}`, ""), []string{"Warning dijob rl/a.b: a new object like this would be refused: metadata.name"}},
		"a type that is none":                  {jobOf("v2alpha1", "job", `{"tasks":[{"type":"actor","name":"actor","template":`+template+`}]}`, ""), []string{"Warning dijob rl/job: a new object like this would be refused: spec.tasks[0].type"}},
		"a template that no pod comes of":      {jobOf("v2alpha1", "job", `{"tasks":[{"type":"learner","template":{"spec":{}}}]}`, ""), []string{"Warning dijob rl/job: a new object like this would be refused: spec.tasks[0].template.spec.containers"}},
		"a coordinator on its node's network": {jobOf("v1alpha1", "job", onNode+`}`, `,"status":{"phase":"Running"}`), []string{
			"Warning dijob rl/job: its coordinator is on its node's network: di-server identifies it by the node's address"}},
		"one that has ended": {jobOf("v1alpha1", "job", onNode+`}`, `,"status":{"phase":"Succeeded"}`), nil},
		"one in v2alpha1": {jobOf("v2alpha1", "job", `{"lifecycle":"CoordinatorLed","tasks":[{"type":"coordinator","name":"coordinator","template":`+hostTemplate+`}]}`, `,"status":{"phase":"Running"}`), []string{
			"Warning dijob rl/job: its coordinator is on its node's network"}},
		"workers on their nodes' network": {jobOf("v2alpha1", "job", `{"tasks":[{"type":"learner","template":`+hostTemplate+`}]}`, `,"status":{"phase":"Running"}`), nil},
		"an AggregatorConfig": {[]byte(`{"apiVersion":"diengine.opendilab.org/v1alpha1","kind":"AggregatorConfig","metadata":{"namespace":"di-system","name":"aggregator-config"},` +
			`"spec":{"aggregator":{"template":` + template + `}}}`), nil},
		"an AggregatorConfig that says more": {[]byte(`{"apiVersion":"diengine.opendilab.org/v1alpha1","kind":"AggregatorConfig","metadata":{"namespace":"di-system","name":"aggregator-config"},` +
			`"spec":{"actor":1,"aggregator":{"template":{}}}}`), []string{
			"Stop aggregatorconfig di-system/aggregator-config: would lose spec.actor",
			"Warning aggregatorconfig di-system/aggregator-config: a new object like this would be refused: spec.aggregator.template.spec.containers",
		}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			g := NewWithT(t)
			found := Examine(tc.raw, rules(t))
			g.Expect(found).To(HaveLen(len(tc.want)), "%v", found)
			for i := range found {
				g.Expect(fmt.Sprintf("%s %s: %s", found[i].Severity, found[i].Object, found[i].Message)).To(HavePrefix(tc.want[i]))
			}
		})
	}
}

func TestAClusterIsEvaluated(t *testing.T) {
	t.Parallel()
	definition := func(version, field string) *apiextensionsv1.CustomResourceDefinition {
		definition := &apiextensionsv1.CustomResourceDefinition{}
		definition.Name, definition.Spec.Names.Kind, definition.Spec.Names.Plural = "dijobs.diengine.opendilab.org", "DIJob", "dijobs"
		definition.Spec.Versions = []apiextensionsv1.CustomResourceDefinitionVersion{{
			Name: version, Served: true, Storage: true, Schema: &apiextensionsv1.CustomResourceValidation{OpenAPIV3Schema: &apiextensionsv1.JSONSchemaProps{
				Properties: map[string]apiextensionsv1.JSONSchemaProps{"spec": {Properties: map[string]apiextensionsv1.JSONSchemaProps{field: {}}}},
			}},
		}}
		return definition
	}
	owned := definition("v2alpha1", "tasks")
	owned.Annotations = map[string]string{"meta.helm.sh/release-name": "rl"}
	elsewhere := definition("v1alpha1", "coordinator")
	elsewhere.Spec.Conversion = &apiextensionsv1.CustomResourceConversion{Strategy: apiextensionsv1.WebhookConverter, Webhook: &apiextensionsv1.WebhookConversion{
		ClientConfig: &apiextensionsv1.WebhookClientConfig{Service: &apiextensionsv1.ServiceReference{Namespace: "rl-system", Name: "di-webhook-service"}},
	}}
	for name, tc := range map[string]struct {
		world World
		want  []string
	}{
		"nothing at all":                {World{Server: "v1.36.3"}, nil},
		"an API server that is too old": {World{Server: "v1.29.14"}, []string{"Stop : Kubernetes v1.29.14 is older than 1.30"}},
		"a provider's version":          {World{Server: "v1.30.2-gke.1023000"}, nil},
		"an unknown definition": {
			World{Server: "v1.36.3", Definitions: []*apiextensionsv1.CustomResourceDefinition{definition("v2alpha1", "anything")}},
			[]string{"Stop customresourcedefinition dijobs.diengine.opendilab.org: is of no known release"},
		},
		"a release in another namespace": {
			World{Server: "v1.36.3", Namespace: "di-system", Definitions: []*apiextensionsv1.CustomResourceDefinition{elsewhere}},
			[]string{"Stop customresourcedefinition dijobs.diengine.opendilab.org: its webhook is in namespace rl-system"},
		},
		"a definition that Helm would delete": {
			World{Server: "v1.36.3", Definitions: []*apiextensionsv1.CustomResourceDefinition{owned}},
			[]string{"Note customresourcedefinition dijobs.diengine.opendilab.org: belongs to Helm release rl"},
		},
		"an old operator in another namespace": {
			World{
				Server: "v1.36.3", Namespace: "di-system", Definitions: []*apiextensionsv1.CustomResourceDefinition{definition("v2alpha1", "tasks")},
				Deployments: []Deployment{{"rl", "di-operator", "image", 1, true}, {"rl", "di-server", "image", 1, false}, {"rl", "di-webhook", "image", 0, false}},
			},
			[]string{"Stop deployment rl/di-operator: runs image with 1 replica", "Warning deployment rl/di-server: runs image"},
		},
		"an old operator of another name": {
			World{
				Server: "v1.36.3", Namespace: "di-system", Definitions: []*apiextensionsv1.CustomResourceDefinition{definition("v2alpha1", "tasks")},
				Deployments: []Deployment{{"di-system", "our-operator", "image", 1, true}, {"di-system", "di-server", "image", 1, false}},
			},
			[]string{"Stop deployment di-system/our-operator: runs image with 1 replica", "Note deployment di-system/di-server: runs image"},
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			g := NewWithT(t)
			report := Evaluate(&tc.world)
			g.Expect(report.Findings).To(HaveLen(len(tc.want)), "%v", report.Findings)
			for i := range report.Findings {
				g.Expect(fmt.Sprintf("%s %s: %s", report.Findings[i].Severity, report.Findings[i].Object, report.Findings[i].Message)).To(HavePrefix(tc.want[i]))
			}
			report.Conclude()
			g.Expect(report.Fine).To(Equal(!strings.HasPrefix(strings.Join(tc.want, ""), "Stop")))
		})
	}
}

func TestDeploymentsOfEarlierReleasesAreKnownUnderAnyName(t *testing.T) {
	t.Parallel()
	deployment := func(name, image string, labels map[string]string, command ...string) *appsv1.Deployment {
		deployment := &appsv1.Deployment{}
		deployment.Namespace, deployment.Name, deployment.Labels = "rl", name, labels
		deployment.Spec.Template.Spec.Containers = []corev1.Container{{Image: image, Command: command}}
		return deployment
	}
	for words, tc := range map[string]struct {
		deployment *appsv1.Deployment
		want       *Deployment
	}{
		"by its name":         {deployment("di-server", "mirror.example.com/rl:7", nil), &Deployment{"rl", "di-server", "mirror.example.com/rl:7", 1, false}},
		"by its image":        {deployment("our", "example.com:5000/x/di-orchestrator:v1.1.3", nil, "/di-orchestrator", "operator"), &Deployment{"rl", "our", "example.com:5000/x/di-orchestrator:v1.1.3", 1, true}},
		"a server of v1.1":    {deployment("our", "di-orchestrator@sha256:0", nil, "/di-orchestrator", "server"), &Deployment{"rl", "our", "di-orchestrator@sha256:0", 1, false}},
		"an operator of v0.2": {deployment("our", "di-operator", nil), &Deployment{"rl", "our", "di-operator", 1, true}},
		"by its label":        {deployment("our", "mirror.example.com/rl:7", map[string]string{"control-plane": "di-operator"}), &Deployment{"rl", "our", "mirror.example.com/rl:7", 1, true}},
		"by what is started":  {deployment("our", "mirror.example.com/rl:7", nil, "/bin/di-orchestrator", "operator", "--qps=1"), &Deployment{"rl", "our", "mirror.example.com/rl:7", 1, true}},
		"beside a proxy":      {behindProxy(deployment("our", "di-operator:v0.1.0", nil)), &Deployment{"rl", "our", "di-operator:v0.1.0", 1, true}},
		"another project's":   {deployment("controller-manager", "example.com/manager:v1", nil, "/manager"), nil},
		"one of ours":         {deployment("di-server", "di-orchestrator:v2.0.0", map[string]string{"app.kubernetes.io/name": "di-orchestrator"}), nil},
	} {
		t.Run(words, func(t *testing.T) {
			t.Parallel()
			NewWithT(t).Expect(earlierDeployment(tc.deployment)).To(Equal(tc.want))
		})
	}
}

// behindProxy adds a proxy before the container of a Deployment.
func behindProxy(deployment *appsv1.Deployment) *appsv1.Deployment {
	spec := &deployment.Spec.Template.Spec
	spec.Containers = append([]corev1.Container{{Image: "kube-rbac-proxy:v0.8.0"}}, spec.Containers...)
	return deployment
}

// pages is an API server with many jobs. The first list expires before its last page.
type pages struct {
	client.Reader
	total, longest int
	expired        bool
}

// List implements client.Reader.
func (p *pages) List(_ context.Context, list client.ObjectList, opts ...client.ListOption) error {
	asked := &client.ListOptions{}
	asked.ApplyOptions(opts)
	from := 0
	if _, err := fmt.Sscanf(asked.Continue, "from %d", &from); err != nil && asked.Continue != "" {
		return err
	}
	if from > p.total/2 && !p.expired {
		p.expired = true
		expired := apierrors.NewResourceExpired("the list is too old")
		expired.ErrStatus.ListMeta.Continue = asked.Continue
		return expired
	}
	to := min(from+int(asked.Limit), p.total)
	page, isUnstructured := list.(*unstructured.UnstructuredList)
	if !isUnstructured {
		return fmt.Errorf("%T is not what is listed", list)
	}
	for i := from; i < to; i++ {
		job := unstructured.Unstructured{}
		if err := json.Unmarshal(jobOf("v2alpha1", fmt.Sprintf("job-%d", i), `{"tasks":[{"type":"learner","template":`+template+`}]}`, ""), &job.Object); err != nil {
			return err
		}
		page.Items = append(page.Items, job)
	}
	p.longest = max(p.longest, len(page.Items))
	if to < p.total {
		page.SetContinue(fmt.Sprintf("from %d", to))
	}
	return nil
}

func TestManyObjectsAreLookedAtAPageAtATime(t *testing.T) {
	t.Parallel()
	g := NewWithT(t)
	const total = 2_300
	var progress []int64
	cluster := &pages{total: total}
	inspector := &Inspector{reader: cluster, Rules: rules(t), Progress: func(_ string, done, _ int64) { progress = append(progress, done) }}
	definition := &apiextensionsv1.CustomResourceDefinition{}
	definition.Spec.Names.Kind, definition.Spec.Names.Plural = "DIJob", "dijobs"
	definition.Spec.Versions = []apiextensionsv1.CustomResourceDefinitionVersion{{Name: "v2alpha1", Served: true, Storage: true}}
	report := &Report{}
	g.Expect(inspector.examine(t.Context(), definition, report)).To(Succeed())
	g.Expect(report.Objects).To(ConsistOf(Count{Kind: "DIJob", Version: "v2alpha1", Objects: total}))
	g.Expect(report.Findings).To(BeEmpty())
	g.Expect(progress).To(Equal([]int64{500, 1000, 1500, 2000, 2300}))
	g.Expect(cluster.expired).To(BeTrue())
	g.Expect(cluster.longest).To(Equal(500))
}
