// Copyright The DI Orchestrator Authors.
// SPDX-License-Identifier: Apache-2.0

package lifecycle

import (
	"slices"
	"testing"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/utils/ptr"

	"opendilab.org/di-orchestrator/apis/v2alpha1"
	"opendilab.org/di-orchestrator/internal/names"
	"opendilab.org/di-orchestrator/job/workload"
)

// mpiWorld returns a running job of a launcher and two workers.
func mpiWorld(t *testing.T) *world {
	t.Helper()
	spec := v2alpha1.DIJobSpec{ClusterSpec: []v2alpha1.ClusterSpec{v2alpha1.ClusterSpecMPI}}
	for _, name := range []string{"launcher", "worker"} {
		spec.Tasks = append(spec.Tasks, v2alpha1.Task{Type: v2alpha1.TaskTypeNone, Name: name, Template: template})
	}
	spec.Tasks[1].Replicas = ptr.To(int32(2))
	w := newWorld(t, spec)
	w.allRun()
	return w
}

func TestTheLauncherDecidesAboutAnMPIJob(t *testing.T) {
	for name, tc := range map[string]struct {
		pod  string
		code int32
		want v2alpha1.Phase
	}{
		"it succeeds":        {"job-launcher-0", 0, v2alpha1.JobSucceeded},
		"it fails":           {"job-launcher-0", 1, v2alpha1.JobFailed},
		"a worker succeeds":  {"job-worker-0", 0, v2alpha1.JobRunning},
		"a worker is killed": {"job-worker-0", 137, v2alpha1.JobFailed},
	} {
		t.Run(name, func(t *testing.T) {
			w := mpiWorld(t)
			w.change(func(job *v2alpha1.DIJob) { job.Spec.BackoffLimit = ptr.To(int32(0)) })
			w.end(tc.pod, tc.code)
			w.settle()
			if w.job.Status.Phase != tc.want {
				t.Errorf("the job is %s: %v", w.job.Status.Phase, w.job.Status.Conditions)
			}
		})
	}
}

func TestEachAttemptOfAnMPIJobHasKeysOfItsOwn(t *testing.T) {
	w := mpiWorld(t)
	first := w.keysOf("job-worker-0")
	if !w.secrets[first] || w.keysOf("job-launcher-0") != first || len(w.secrets) != 1 {
		t.Fatalf("the pods mount %s and %s of %v", first, w.keysOf("job-launcher-0"), w.secrets)
	}
	w.end("job-launcher-0", 1)
	w.allRun()
	second := w.keysOf("job-worker-0")
	if second == first || !w.secrets[second] || len(w.secrets) != 1 {
		t.Fatalf("after a restart the pods mount %s of %v", second, w.secrets)
	}
	w.end("job-launcher-0", 0)
	w.settle()
	if len(w.secrets) > 0 {
		t.Errorf("the finished job leaves %v", w.secrets)
	}
}

func TestASuspendedMPIJobHasNoKeysUntilItIsResumed(t *testing.T) {
	w := mpiWorld(t)
	w.change(func(job *v2alpha1.DIJob) { job.Spec.Suspend = ptr.To(true) })
	w.settle()
	if len(w.secrets) > 0 {
		t.Errorf("the suspended job leaves %v", w.secrets)
	}
	w.change(func(job *v2alpha1.DIJob) { job.Spec.Suspend = nil })
	w.allRun()
	if keys := w.keysOf("job-launcher-0"); !w.secrets[keys] || len(w.secrets) != 1 {
		t.Errorf("the resumed pods mount %s of %v", keys, w.secrets)
	}
}

func TestAReplicaThatIsMadeAgainHasTheKeysOfItsAttempt(t *testing.T) {
	w := mpiWorld(t)
	before := w.keysOf("job-worker-1")
	w.evict("job-worker-1")
	w.allRun()
	if after := w.keysOf("job-worker-1"); after != before || !w.secrets[before] || w.created["job-worker-1"] != 2 || w.created["job-launcher-0"] != 1 {
		t.Errorf("mounts %s after %s; created %v", after, before, w.created)
	}
}

// keysOf returns the Secret that a pod mounts.
func (w *world) keysOf(pod string) string {
	w.t.Helper()
	volumes := w.pod(pod).Spec.Volumes
	at := slices.IndexFunc(volumes, func(volume corev1.Volume) bool { return volume.Name == names.SSHVolume })
	if at < 0 {
		w.t.Fatalf("%s mounts no keys", pod)
	}
	return volumes[at].Secret.SecretName
}

func TestAJobWithoutMPIHasNoKeys(t *testing.T) {
	w := clusterWorld(t, v2alpha1.ClusterSpecTorch)
	w.end("job-chief-0", 1)
	w.allRun()
	if len(w.secrets) > 0 || w.secrets[workload.SSHSecretName(w.job, 0)] {
		t.Errorf("has %v", w.secrets)
	}
}
