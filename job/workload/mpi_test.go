// Copyright The DI Orchestrator Authors.
// SPDX-License-Identifier: Apache-2.0

package workload

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"

	"opendilab.org/di-orchestrator/apis/v2alpha1"
	"opendilab.org/di-orchestrator/internal/names"
	"opendilab.org/di-orchestrator/test/testkit/expect"
)

// mpiJob returns a job of a launcher and two workers, whose main containers have GPUs.
func mpiJob(gpus int, edit func(*v2alpha1.DIJobSpec)) *v2alpha1.DIJob {
	job := &v2alpha1.DIJob{
		ObjectMeta: metav1.ObjectMeta{Name: "job", Namespace: "space", UID: "uid"},
		Spec:       v2alpha1.DIJobSpec{ClusterSpec: []v2alpha1.ClusterSpec{v2alpha1.ClusterSpecMPI}},
	}
	for task, container := range map[string]string{
		"launcher": `{"name":"c","image":"i","command":["mpirun"]}`,
		"worker":   fmt.Sprintf(`{"name":"c","image":"i","resources":{"limits":{"nvidia.com/gpu":%d}}}`, gpus),
	} {
		template := v2alpha1.RawObject{}
		template.Raw = []byte(`{"spec":{"containers":[` + container + `]}}`)
		job.Spec.Tasks = append(job.Spec.Tasks, v2alpha1.Task{Type: v2alpha1.TaskTypeNone, Name: task, Template: template})
	}
	slices.SortFunc(job.Spec.Tasks, func(a, b v2alpha1.Task) int { return strings.Compare(a.Name, b.Name) })
	if edit != nil {
		edit(&job.Spec)
	}
	return job
}

// mpiAssignment returns the ranks of a launcher and workers.
func mpiAssignment(workers int32) *Assignment {
	assignment := &Assignment{
		Replicas: []Replica{{Task: 0, Index: 0, Rank: 0, Pod: "job-launcher-0"}}, Nodes: []string{"job-launcher-0"}, Attempt: 1, Reschedule: 2,
	}
	for index := range workers {
		pod := names.WorkerPod("job", "worker", index)
		assignment.Replicas = append(assignment.Replicas, Replica{Task: 1, Index: index, Rank: index + 1, Pod: pod})
		assignment.Nodes = append(assignment.Nodes, pod)
	}
	return assignment
}

// built are the launcher, the first worker and the ConfigMap of a job of two workers.
type built struct {
	launcher, worker *corev1.Pod
	files            map[string]string
}

func buildMPI(t *testing.T, job *v2alpha1.DIJob, workers int32) built {
	t.Helper()
	builder, assignment := NewBuilder(job, Settings{}), mpiAssignment(workers)
	launcher, err := builder.Worker(assignment, &assignment.Replicas[0])
	expect.NoError(t, err)
	worker, err := builder.Worker(assignment, &assignment.Replicas[1])
	expect.NoError(t, err)
	configMap, err := builder.NodesConfigMap(assignment)
	expect.NoError(t, err)
	return built{launcher, worker, configMap.Data}
}

func TestTheHostfileHasTheFormatOfTheImplementation(t *testing.T) {
	t.Parallel()
	for name, tc := range map[string]struct {
		gpus int
		edit func(*v2alpha1.DIJobSpec)
		want string
	}{
		"Open MPI is the default": {want: "job-worker-0.di-job.space.svc.cluster.local slots=1\njob-worker-1.di-job.space.svc.cluster.local slots=1\n"},
		"a slot for each GPU":     {gpus: 4, want: "job-worker-0.di-job.space.svc.cluster.local slots=4\njob-worker-1.di-job.space.svc.cluster.local slots=4\n"},
		"slots of the spec": {gpus: 4, edit: func(spec *v2alpha1.DIJobSpec) { spec.MPI = &v2alpha1.MPI{SlotsPerWorker: ptr.To[int32](2)} },
			want: "job-worker-0.di-job.space.svc.cluster.local slots=2\njob-worker-1.di-job.space.svc.cluster.local slots=2\n"},
		"Intel MPI": {edit: func(spec *v2alpha1.DIJobSpec) {
			spec.MPI = &v2alpha1.MPI{Implementation: v2alpha1.MPIImplementationIntel}
		},
			want: "job-worker-0.di-job.space.svc.cluster.local:1\njob-worker-1.di-job.space.svc.cluster.local:1\n"},
		"MPICH": {gpus: 8, edit: func(spec *v2alpha1.DIJobSpec) {
			spec.MPI = &v2alpha1.MPI{Implementation: v2alpha1.MPIImplementationMPICH}
		},
			want: "job-worker-0.di-job.space.svc.cluster.local:8\njob-worker-1.di-job.space.svc.cluster.local:8\n"},
		"the launcher works too": {gpus: 2, edit: func(spec *v2alpha1.DIJobSpec) { spec.MPI = &v2alpha1.MPI{RunLauncherAsWorker: true} },
			want: "job-launcher-0.di-job.space.svc.cluster.local slots=1\njob-worker-0.di-job.space.svc.cluster.local slots=2\njob-worker-1.di-job.space.svc.cluster.local slots=2\n"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			if diff := cmp.Diff(tc.want, buildMPI(t, mpiJob(tc.gpus, tc.edit), 2).files[names.MPIHostfile]); diff != "" {
				t.Errorf("(-want +got):\n%s", diff)
			}
		})
	}
}

func TestTheLauncherHasTheVariablesOfItsImplementation(t *testing.T) {
	t.Parallel()
	const ssh = "-o ConnectionAttempts=10 -o ConnectTimeout=5 -o ServerAliveInterval=10 -o StrictHostKeyChecking=no -o UserKnownHostsFile=/dev/null -o LogLevel=ERROR -i /root/.ssh/id_rsa"
	for implementation, want := range map[v2alpha1.MPIImplementation]map[string]string{
		v2alpha1.MPIImplementationOpenMPI: {
			"OMPI_MCA_orte_keep_fqdn_hostnames": "true", "OMPI_MCA_orte_default_hostfile": "/etc/mpi/hostfile",
			"OMPI_MCA_plm_rsh_args": ssh, "OMPI_MCA_orte_set_default_slots": "3",
			"PRTE_MCA_prte_keep_fqdn_hostnames": "true", "PRTE_MCA_prte_default_hostfile": "/etc/mpi/hostfile", "PRTE_MCA_plm_ssh_args": ssh,
		},
		v2alpha1.MPIImplementationIntel: {"I_MPI_HYDRA_HOST_FILE": "/etc/mpi/hostfile", "I_MPI_HYDRA_BOOTSTRAP_EXEC_EXTRA_ARGS": ssh, "I_MPI_PERHOST": "3"},
		v2alpha1.MPIImplementationMPICH: {"HYDRA_HOST_FILE": "/etc/mpi/hostfile", "HYDRA_LAUNCHER_EXTRA_ARGS": ssh},
	} {
		t.Run(string(implementation), func(t *testing.T) {
			t.Parallel()
			pods := buildMPI(t, mpiJob(3, func(spec *v2alpha1.DIJobSpec) { spec.MPI = &v2alpha1.MPI{Implementation: implementation} }), 2)
			want["K_MPI_JOB_ROLE"], want["NVIDIA_VISIBLE_DEVICES"], want["NVIDIA_DRIVER_CAPABILITIES"] = "launcher", "", ""
			if diff := cmp.Diff(want, mpiVariablesOf(pods.launcher)); diff != "" {
				t.Errorf("(-want +got):\n%s", diff)
			}
			if diff := cmp.Diff(map[string]string{"K_MPI_JOB_ROLE": "worker"}, mpiVariablesOf(pods.worker)); diff != "" {
				t.Errorf("a worker (-want +got):\n%s", diff)
			}
		})
	}
}

// mpiVariablesOf returns the variables of a pod's main container that are MPI's.
func mpiVariablesOf(pod *corev1.Pod) map[string]string {
	found := map[string]string{}
	for _, variable := range pod.Spec.Containers[0].Env {
		if slices.Contains(MPIVariables(), variable.Name) {
			found[variable.Name] = variable.Value
		}
	}
	return found
}

func TestPodsMountTheKeysOfTheirAttempt(t *testing.T) {
	t.Parallel()
	job := mpiJob(0, nil)
	pods := buildMPI(t, job, 2)
	for _, pod := range []*corev1.Pod{pods.launcher, pods.worker} {
		volume := volumeOf(pod, names.SSHVolume)
		if volume == nil || volume.Secret == nil || volume.Secret.SecretName != SSHSecretName(job, 3) || *volume.Secret.DefaultMode != 0o400 {
			t.Fatalf("%s has the volume %+v", pod.Name, volume)
		}
		mount := corev1.VolumeMount{Name: names.SSHVolume, MountPath: "/root/.ssh", ReadOnly: true}
		isMount := func(own corev1.VolumeMount) bool { return cmp.Equal(own, mount) }
		if !slices.ContainsFunc(pod.Spec.Containers[0].VolumeMounts, isMount) {
			t.Errorf("%s mounts %+v", pod.Name, pod.Spec.Containers[0].VolumeMounts)
		}
	}
	if SSHSecretName(job, 4) == SSHSecretName(job, 3) {
		t.Error("a restart does not change the keys")
	}
	other := job.DeepCopy()
	other.UID = "another"
	if SSHSecretName(other, 3) == SSHSecretName(job, 3) {
		t.Error("a later job of the name has the same keys")
	}
}

func TestKeysElsewhereAreReadableByAnotherUserThanRoot(t *testing.T) {
	t.Parallel()
	pods := buildMPI(t, mpiJob(0, func(spec *v2alpha1.DIJobSpec) { spec.MPI = &v2alpha1.MPI{SSHAuthMountPath: "/home/mpiuser/.ssh/"} }), 2)
	if mode := *volumeOf(pods.worker, names.SSHVolume).Secret.DefaultMode; mode != 0o444 {
		t.Errorf("mode %o", mode)
	}
	want := []string{"/usr/sbin/sshd", "-De", "-h", "/home/mpiuser/.ssh/id_rsa", "-o", "StrictModes=no", "-o", "AuthorizedKeysFile=/home/mpiuser/.ssh/authorized_keys"}
	if diff := cmp.Diff(want, pods.worker.Spec.Containers[0].Command); diff != "" {
		t.Errorf("the daemon (-want +got):\n%s", diff)
	}
}

func volumeOf(pod *corev1.Pod, name string) *corev1.Volume {
	for i := range pod.Spec.Volumes {
		if pod.Spec.Volumes[i].Name == name {
			return &pod.Spec.Volumes[i]
		}
	}
	return nil
}

func TestOnlyTheLauncherWaitsForTheWorkersAndReadsTheHostfile(t *testing.T) {
	t.Parallel()
	pods := buildMPI(t, mpiJob(0, nil), 3)
	if len(pods.worker.Spec.InitContainers) > 0 || volumeOf(pods.worker, names.MPIVolume) != nil || pods.launcher.Spec.Containers[0].Command[0] != "mpirun" {
		t.Errorf("the worker has %+v", pods.worker.Spec.InitContainers)
	}
	waiting := pods.launcher.Spec.InitContainers[0]
	if waiting.Image != "i" || !strings.Contains(waiting.Command[2], "-ge 3 ]") || waiting.VolumeMounts[0].MountPath != "/etc/mpi" {
		t.Errorf("the launcher waits by %+v", waiting)
	}
	if told := NodesOf(pods.launcher); told == "" || volumeOf(pods.launcher, names.MPIVolume).ConfigMap.Name != told {
		t.Errorf("the launcher mounts %+v and refers to %s", volumeOf(pods.launcher, names.MPIVolume), told)
	}
}

func TestALauncherOfWorkersThatComeAndGoWaitsForTheirMinimumAndLooksForTheirMaximum(t *testing.T) {
	t.Parallel()
	pods := buildMPI(t, mpiJob(0, func(spec *v2alpha1.DIJobSpec) {
		spec.Elastic = &v2alpha1.Elastic{Task: "worker", OnResize: v2alpha1.OnResizeContinue, MinReplicas: ptr.To[int32](2), MaxReplicas: ptr.To[int32](5)}
	}), 3)
	if command := pods.launcher.Spec.InitContainers[0].Command[2]; !strings.Contains(command, "-ge 2 ]") {
		t.Error(command)
	}
	lines := strings.Split(strings.TrimSpace(pods.files[names.MPIWorkers]), "\n")
	want := "job-worker-4.di-job.space.svc.cluster.local. job-worker-4.di-job.space.svc.cluster.local:1"
	if len(lines) != 5 || lines[4] != want {
		t.Errorf("looks for %q", lines)
	}
}

// TestTheDiscoveryPrintsTheHostsThatAnswer runs the script beside stand-ins for OpenSSH's clients, which print what
// those of OpenSSH 9.2 do.
func TestTheDiscoveryPrintsTheHostsThatAnswer(t *testing.T) {
	t.Parallel()
	const keys = "# b:22 SSH-2.0-OpenSSH_9.2p1\n%s"
	for name, tc := range map[string]struct{ port, answer, want string }{
		"at the usual port": {"22", "b:2 ecdsa-sha2-nistp521 AAAA\nb:2 ssh-ed25519 AAAA\na:1 ecdsa-sha2-nistp521 AAAA", "l:1\na:1\nb:2\n"},
		"at another port":   {"2222", "[b:2]:2222 ecdsa-sha2-nistp521 AAAA\n[a:1]:2222 ssh-ed25519 AAAA", "l:1\na:1\nb:2\n"},
		"none":              {"22", "", "l:1\n"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			folder := t.TempDir()
			for program, body := range map[string]string{
				"ssh":         "echo host localhost; echo port " + tc.port,
				"ssh-keyscan": `[ "$*" = "-T 2 -t ecdsa,ed25519 -p ` + tc.port + ` -f /etc/mpi/workers" ] || exit 3; cat <<'END'` + "\n" + strings.TrimSuffix(fmt.Sprintf(keys, tc.answer), "\n") + "\nEND",
				"discover":    fmt.Sprintf(discovery, "echo l:1\n"),
			} {
				expect.NoError(t, os.WriteFile(filepath.Join(folder, program), []byte("#!/bin/sh\n"+body+"\n"), 0o700))
			}
			script := exec.CommandContext(t.Context(), "/bin/sh", filepath.Join(folder, "discover"))
			script.Env = []string{"PATH=" + folder + ":" + os.Getenv("PATH")}
			output, err := script.CombinedOutput()
			expect.NoError(t, err)
			if diff := cmp.Diff(tc.want, string(output)); diff != "" {
				t.Errorf("(-want +got):\n%s", diff)
			}
		})
	}
}

func TestAPodResolvesTheShortNamesOfItsPeers(t *testing.T) {
	t.Parallel()
	pods := buildMPI(t, mpiJob(0, nil), 2)
	if diff := cmp.Diff([]string{"di-job.space.svc.cluster.local"}, pods.worker.Spec.DNSConfig.Searches); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
}

func TestTheClusterOfPodsIsToldByTheirVariables(t *testing.T) {
	t.Parallel()
	job := mpiJob(0, nil)
	pods := buildMPI(t, job, 2)
	peers := &Peers{Counts: []int32{1, 2}, Total: 3}
	if told := ToldCluster(&job.Spec, pods.worker, peers); told != "MPI: launcher=1,worker=2" || pods.worker.Annotations[names.AnnotationCluster] != told {
		t.Errorf("%q, annotated %q", told, pods.worker.Annotations[names.AnnotationCluster])
	}
	job.Spec.ClusterSpec = []v2alpha1.ClusterSpec{v2alpha1.ClusterSpecTorch}
	if told := ToldCluster(&job.Spec, pods.worker, peers); told != "" {
		t.Errorf("a job of Torch is told %q", told)
	}
}
