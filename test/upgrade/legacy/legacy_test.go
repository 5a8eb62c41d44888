// Copyright The DI Orchestrator Authors.
// SPDX-License-Identifier: Apache-2.0

package legacy_test

import (
	"fmt"
	"os"
	"testing"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/envtest"

	"opendilab.org/di-orchestrator/internal/testkit"
	"opendilab.org/di-orchestrator/test/upgrade/legacy"
)

// jobs is more than any release has states.
const jobs = 12

var environment *envtest.Environment

func TestMain(m *testing.M) {
	os.Exit(testkit.RunOnBareAPI(m, &environment))
}

// The releases are installed one after the other on one API server, as none
// leaves anything that the next one trips over.
func TestEachReleaseIsInstalledWithItsJobsAndTakenAwayAgain(t *testing.T) {
	t.Parallel()
	api, err := testkit.NewClient(environment.Config)
	if err != nil {
		t.Fatal(err)
	}
	for i, release := range []legacy.Release{legacy.V022(), legacy.V100(), legacy.V111(), legacy.V113()} {
		namespace := fmt.Sprintf("training-%d", i)
		made, err := release.Install(t.Context(), api, namespace, jobs)
		if err != nil {
			t.Fatalf("%s: %v", release.Name, err)
		}
		expectStored(t, api, &release, namespace, made)
		if err := release.Remove(t.Context(), api, namespace); err != nil {
			t.Fatalf("%s: %v", release.Name, err)
		}
	}
}

// expectStored: each job says its phase, and its pods and services live and
// name it as their controller.
func expectStored(t *testing.T, api client.Client, release *legacy.Release, namespace string, made []legacy.Job) {
	t.Helper()
	list := &unstructured.UnstructuredList{}
	list.SetAPIVersion("diengine.opendilab.org/" + release.Version)
	list.SetKind("DIJobList")
	if err := api.List(t.Context(), list, client.InNamespace(namespace)); err != nil {
		t.Fatal(err)
	}
	if len(list.Items) != jobs || len(made) != jobs {
		t.Fatalf("%s: %d jobs are stored and %d told, want %d", release.Name, len(list.Items), len(made), jobs)
	}
	uids := map[string]string{}
	for i := range list.Items {
		phase, _, _ := unstructured.NestedString(list.Items[i].Object, "status", "phase")
		uids[list.Items[i].GetName()] = string(list.Items[i].GetUID()) + " " + phase
	}
	for i := range made {
		job := &made[i]
		for name, uid := range job.Pods {
			pod := &corev1.Pod{}
			if err := api.Get(t.Context(), client.ObjectKey{Namespace: namespace, Name: name}, pod); err != nil {
				t.Fatal(err)
			}
			if pod.UID != uid || string(pod.OwnerReferences[0].UID)+" "+job.Phase != uids[job.Name] {
				t.Errorf("%s: pod %s is not that of job %s in phase %s", release.Name, name, job.Name, job.Phase)
			}
		}
		for name := range job.Services {
			if err := api.Get(t.Context(), client.ObjectKey{Namespace: namespace, Name: name}, &corev1.Service{}); err != nil {
				t.Error(err)
			}
		}
	}
}
