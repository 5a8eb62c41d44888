// Copyright The DI Orchestrator Authors.
// SPDX-License-Identifier: Apache-2.0

package versions

import (
	"context"
	"encoding/json"
	"net/http"
	"net/url"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/rest"

	"opendilab.org/di-orchestrator/test/testkit/specs"
)

// table requests the table of a namespace's jobs of a version as kubectl does.
func table(ctx context.Context, version, namespace string) *metav1.Table {
	GinkgoHelper()
	httpClient := specs.Must(rest.HTTPClientFor(api.Config))
	jobs := specs.Must(url.JoinPath(api.Config.Host, "apis", group, version, "namespaces", namespace, "dijobs"))
	request := specs.Must(http.NewRequestWithContext(ctx, http.MethodGet, jobs, nil))
	request.Header.Set("Accept", "application/json;as=Table;v=v1;g=meta.k8s.io")
	response, err := httpClient.Do(request)
	Expect(err).NotTo(HaveOccurred())
	defer func() { Expect(response.Body.Close()).To(Succeed()) }()
	Expect(response).To(HaveHTTPStatus(http.StatusOK))
	rows := &metav1.Table{}
	Expect(json.NewDecoder(response.Body).Decode(rows)).To(Succeed())
	return rows
}

// columns returns the names of the columns that are always printed, or only in the wide form.
func columns(of *metav1.Table, wide bool) []string {
	var names []string
	for i := range of.ColumnDefinitions {
		if of.ColumnDefinitions[i].Priority > 0 == wide {
			names = append(names, of.ColumnDefinitions[i].Name)
		}
	}
	return names
}

// cells returns the nonempty cells of the only row.
func cells(of *metav1.Table) map[string]any {
	GinkgoHelper()
	Expect(of.Rows).To(HaveLen(1))
	shown := map[string]any{}
	for i := range of.ColumnDefinitions {
		if cell := of.Rows[0].Cells[i]; cell != nil && of.ColumnDefinitions[i].Name != "Age" {
			shown[of.ColumnDefinitions[i].Name] = cell
		}
	}
	return shown
}

const (
	trainingStatus = `
phase: Running
summary: {ready: 4/6, reason: ImagePull, restarts: 0}
readyReplicas: 4
replicas: 6
taskStatus: {coordinator: {Running: 1}, collector: {Running: 2, Pending: 1}, learner: {Running: 2}, aggregator: {Running: 1}}
conditions:
- {type: Running, status: "True", reason: DIJobRunning}
- {type: ReplicasStalled, status: "True", reason: ImagePull, message: m}
- {type: ReplicaFailure, status: "False"}
`
	strugglingStatus = `
phase: Starting
summary: {ready: 0/2, reason: QuotaExceeded, restarts: 1}
replicas: 2
restarts: 1
taskStatus: {main: {Running: 1}, evaluator: {Pending: 1}}
conditions:
- {type: ReplicasStalled, status: "False"}
- {type: ReplicaFailure, status: "True", reason: QuotaExceeded, message: m}
`
)

var _ = DescribeTable("A table shows the counts of each role and what is wrong",
	func(ctx SpecContext, version, of, status string, want map[string]any) {
		namespace := specs.Namespace(ctx, c)
		written := create(ctx, v2, namespace, "j", of)
		written.Object["status"] = specs.Object(status).Object
		Expect(c.Status().Update(ctx, written)).To(Succeed())
		expectSame(want, cells(table(ctx, version, namespace)))
	},
	Entry("v1alpha1, coordinator-led", v1, led, trainingStatus, map[string]any{
		"Name": "j", "Phase": "Running", "Ready": "4/6", "Reason": "ImagePull", "Restarts": 0.0,
		"Coordinator": 1.0, "Collectors": 3.0, "Learners": 2.0, "Aggregators": 1.0,
	}),
	Entry("v2alpha1, coordinator-led", v2, led, trainingStatus, map[string]any{
		"Name": "j", "Phase": "Running", "Ready": "4/6", "Reason": "ImagePull", "Restarts": 0.0,
		"ReadyReplicas": 4.0, "Replicas": 6.0,
		"Coordinator": 1.0, "Collectors": 2.0, "Learners": 2.0, "Aggregators": 1.0,
	}),
	Entry("v1alpha1, worker-led: the learner's counts by its role, not its name", v1, workers, strugglingStatus, map[string]any{
		"Name": "j", "Phase": "Created", "Ready": "0/2", "Reason": "QuotaExceeded", "Restarts": 1.0, "Learners": 1.0,
	}),
	Entry("v2alpha1, worker-led", v2, workers, strugglingStatus, map[string]any{
		"Name": "j", "Phase": "Starting", "Ready": "0/2", "Reason": "QuotaExceeded", "Restarts": 1.0,
		"Replicas": 2.0,
	}),
)

var _ = DescribeTable("A table has the same columns in both versions, and the counts of roles in the wide form",
	func(ctx SpecContext, version string, wide []string) {
		shown := table(ctx, version, specs.Namespace(ctx, c))
		Expect(columns(shown, false)).To(Equal([]string{"Name", "Phase", "Ready", "Reason", "Restarts", "Duration", "Age"}))
		Expect(columns(shown, true)).To(Equal(wide))
	},
	Entry("v1alpha1", v1, []string{"Coordinator", "Collectors", "Learners", "Aggregators"}),
	Entry("v2alpha1", v2, []string{"ReadyReplicas", "Replicas", "Reschedules", "Coordinator", "Collectors", "Learners", "Aggregators", "Evaluators"}),
)
