// Copyright The DI Orchestrator Authors.
// SPDX-License-Identifier: Apache-2.0

package workload

import (
	"cmp"
	"fmt"
	"path"
	"slices"
	"strconv"
	"strings"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"

	"opendilab.org/di-orchestrator/apis/v2alpha1"
	"opendilab.org/di-orchestrator/internal/limits"
	"opendilab.org/di-orchestrator/internal/names"
)

// The pods of an MPI job get what those of kubeflow's mpi-operator get: the launcher a hostfile and the variables by
// which mpirun finds it, the workers a daemon of ssh, and all the keys of ssh. See
// https://github.com/kubeflow/mpi-operator/blob/master/pkg/controller/mpi_job_controller.go.

const (
	// The files of ssh have the names that images for mpi-operator expect.
	sshPrivateKeyFile     = "id_rsa"
	sshPublicKeyFile      = "id_rsa.pub"
	sshAuthorizedKeysFile = "authorized_keys"
	// SSHPublicKey is the key of the public key in a Secret of type kubernetes.io/ssh-auth.
	SSHPublicKey = "ssh-publickey"
)

// discovery prints what Horovod's elastic driver expects of a host discovery script: a line host:slots for each
// worker. Its first lines, if any, are the launcher's. It asks the workers themselves, so it follows a resize without
// an update of its volume, which takes the kubelet a minute. A worker whose image is still pulled does not answer.
const discovery = `#!/bin/sh
# Prints host:slots of each worker whose daemon of ssh answers.
%sport=$(ssh -G localhost 2>/dev/null | sed -n 's/^port //p')
ssh-keyscan -T 2 -t ecdsa,ed25519 -p "${port:-22}" -f ` + names.MPIDirectory + "/" + names.MPIWorkers + ` 2>/dev/null |
  sed -n -e '/^#/d' -e 's/^\[*\([^] ]*\).*/\1/p' | sort -u
`

// wait keeps the launcher from starting before its workers answer.
const wait = `command -v ssh >/dev/null && command -v ssh-keyscan >/dev/null || {
  echo "the image has no ssh and ssh-keyscan: install OpenSSH's client, by which the launcher reaches the workers" >&2
  exit 127
}
until [ "$(` + names.MPIDirectory + "/" + names.MPIDiscovery + ` | wc -l)" -ge %d ]; do sleep 1; done
`

// MPIVariables returns the names of the variables of all implementations of MPI.
func MPIVariables() []string {
	all := []string{names.EnvMPIRole, "NVIDIA_VISIBLE_DEVICES", "NVIDIA_DRIVER_CAPABILITIES"}
	for _, implementation := range []v2alpha1.MPIImplementation{v2alpha1.MPIImplementationOpenMPI, v2alpha1.MPIImplementationIntel, v2alpha1.MPIImplementationMPICH} {
		for _, variable := range implementationEnv(implementation, 1, "") {
			all = append(all, variable.Name)
		}
	}
	return all
}

// implementationEnv returns the variables by which an implementation's mpirun finds the hosts and calls ssh.
func implementationEnv(implementation v2alpha1.MPIImplementation, slots int32, ssh string) []corev1.EnvVar {
	hostfile := path.Join(names.MPIDirectory, names.MPIHostfile)
	switch implementation {
	case v2alpha1.MPIImplementationIntel:
		return []corev1.EnvVar{
			variable("I_MPI_HYDRA_HOST_FILE", hostfile),
			variable("I_MPI_HYDRA_BOOTSTRAP_EXEC_EXTRA_ARGS", ssh),
			number("I_MPI_PERHOST", slots),
		}
	case v2alpha1.MPIImplementationMPICH:
		// Hydra reads the second name. mpi-operator sets HYDRA_LAUNCH_EXTRA_ARGS, which it does not read.
		return []corev1.EnvVar{
			variable("HYDRA_HOST_FILE", hostfile),
			variable("HYDRA_LAUNCHER_EXTRA_ARGS", ssh),
		}
	default:
		return []corev1.EnvVar{
			variable("OMPI_MCA_orte_keep_fqdn_hostnames", "true"),
			variable("OMPI_MCA_orte_default_hostfile", hostfile),
			variable("OMPI_MCA_plm_rsh_args", ssh),
			number("OMPI_MCA_orte_set_default_slots", slots),
			// Open MPI 5 starts processes by PRRTE, which has names of its own.
			variable("PRTE_MCA_prte_keep_fqdn_hostnames", "true"),
			variable("PRTE_MCA_prte_default_hostfile", hostfile),
			variable("PRTE_MCA_plm_ssh_args", ssh),
		}
	}
}

// mpiOf returns the settings of an MPI job, with defaults.
func mpiOf(spec *v2alpha1.DIJobSpec) v2alpha1.MPI {
	mpi := ptr.Deref(spec.MPI, v2alpha1.MPI{})
	mpi.Implementation = cmp.Or(mpi.Implementation, v2alpha1.MPIImplementationOpenMPI)
	mpi.SSHAuthMountPath = path.Clean(cmp.Or(mpi.SSHAuthMountPath, names.SSHDirectory))
	return mpi
}

// mpiHost is a pod that runs processes of an MPI job.
type mpiHost struct {
	name  string
	slots int32
}

// describeMPI adds the hostfile, and how the launcher discovers workers.
func (b *Builder) describeMPI(described *addresses) error {
	if !names.HasMPI(&b.job.Spec) {
		return nil
	}
	hosts, err := b.mpiHosts(described.assignment)
	if err != nil {
		return err
	}
	candidates, err := b.mpiCandidates(described.assignment)
	if err != nil {
		return err
	}
	format := "%s slots=%d\n"
	if mpiOf(&b.job.Spec).Implementation != v2alpha1.MPIImplementationOpenMPI {
		format = "%s:%d\n"
	}
	var hostfile, workers, own strings.Builder
	for _, host := range hosts {
		_, _ = fmt.Fprintf(&hostfile, format, host.name, host.slots)
	}
	for _, host := range candidates {
		// The name that ends with a dot is searched in no domain.
		_, _ = fmt.Fprintf(&workers, "%[1]s. %[1]s:%[2]d\n", host.name, host.slots)
	}
	if mpiOf(&b.job.Spec).RunLauncherAsWorker && len(hosts) > 0 {
		_, _ = fmt.Fprintf(&own, "echo %s:%d\n", hosts[0].name, hosts[0].slots)
	}
	described.data[names.MPIHostfile] = hostfile.String()
	described.data[names.MPIWorkers] = workers.String()
	described.data[names.MPIDiscovery] = fmt.Sprintf(discovery, own.String())
	return nil
}

// mpiHosts returns the hosts of the hostfile: the launcher if it is a worker, and the workers.
func (b *Builder) mpiHosts(assignment *Assignment) ([]mpiHost, error) {
	asWorker := mpiOf(&b.job.Spec).RunLauncherAsWorker
	var hosts []mpiHost
	for i := range assignment.Replicas {
		replica := &assignment.Replicas[i]
		isLauncher := names.IsMPILauncher(&b.job.Spec, &b.job.Spec.Tasks[replica.Task])
		if isLauncher && !asWorker {
			continue
		}
		slots, err := b.slots(replica.Task)
		if err != nil {
			return nil, err
		}
		host := mpiHost{b.mpiName(assignment, replica.Pod), slots}
		if isLauncher {
			hosts = slices.Insert(hosts, 0, host)
		} else {
			hosts = append(hosts, host)
		}
	}
	return hosts, nil
}

// mpiCandidates returns the workers that may run before the next restart: also those that a resize may add.
func (b *Builder) mpiCandidates(assignment *Assignment) ([]mpiHost, error) {
	elastic, most := -1, int32(0)
	if names.HasDynamicWorkers(&b.job.Spec) {
		elastic, most = names.ElasticTask(&b.job.Spec), ptr.Deref(b.job.Spec.Elastic.MaxReplicas, 0)
	}
	pods := map[int][]string{}
	for i := range assignment.Replicas {
		replica := &assignment.Replicas[i]
		if replica.Task == elastic && replica.Index < most || names.IsMPILauncher(&b.job.Spec, &b.job.Spec.Tasks[replica.Task]) {
			continue
		}
		pods[replica.Task] = append(pods[replica.Task], replica.Pod)
	}
	for index := range most {
		pods[elastic] = append(pods[elastic], names.WorkerPod(b.job.Name, names.TaskName(&b.job.Spec.Tasks[elastic]), index))
	}
	var candidates []mpiHost
	for task := range b.job.Spec.Tasks {
		slots, err := b.slots(task)
		if err != nil {
			return nil, err
		}
		for _, pod := range pods[task] {
			candidates = append(candidates, mpiHost{b.mpiName(assignment, pod), slots})
		}
	}
	return candidates, nil
}

func (b *Builder) mpiName(assignment *Assignment, pod string) string {
	return names.HostFQDN(pod, b.subdomain(assignment), b.job.Namespace, b.settings.ServiceDomain)
}

// slots returns how many processes a replica of a task runs: those of the spec, else one for each GPU, else one.
func (b *Builder) slots(task int) (int32, error) {
	if said := mpiOf(&b.job.Spec).SlotsPerWorker; said != nil {
		return *said, nil
	}
	template, err := b.task(task)
	if err != nil || len(template.Spec.Containers) == 0 {
		return 1, err
	}
	gpus := names.MainContainer(&template.Spec).Resources.Limits[b.settings.GPUResource]
	return int32(min(max(gpus.Value(), 1), limits.SlotsPerWorker)), nil
}

// awaitedWorkers returns for how many hosts the launcher waits: all, but only the minimum of a task that may shrink
// meanwhile.
func (b *Builder) awaitedWorkers(assignment *Assignment) (int, error) {
	hosts, err := b.mpiHosts(assignment)
	if err != nil || !names.HasDynamicWorkers(&b.job.Spec) {
		return len(hosts), err
	}
	elastic, dynamic := names.ElasticTask(&b.job.Spec), 0
	for i := range assignment.Replicas {
		if assignment.Replicas[i].Task == elastic {
			dynamic++
		}
	}
	return len(hosts) - dynamic + min(dynamic, int(ptr.Deref(b.job.Spec.Elastic.MinReplicas, 1))), nil
}

// mpiEnv returns the variables of a replica of an MPI job.
func (b *Builder) mpiEnv(addresses *addresses, replica *Replica) ([]corev1.EnvVar, error) {
	if !names.IsMPILauncher(&b.job.Spec, &b.job.Spec.Tasks[replica.Task]) {
		return []corev1.EnvVar{variable(names.EnvMPIRole, "worker")}, nil
	}
	mpi := mpiOf(&b.job.Spec)
	hosts, err := b.mpiHosts(addresses.assignment)
	if err != nil {
		return nil, err
	}
	slots := int32(1)
	if len(hosts) > 0 {
		slots = hosts[len(hosts)-1].slots
	}
	// A worker has its address before its name resolves, and its host key is made for this attempt. Without the timeouts,
	// ssh tries the address of a worker that was replaced for minutes, and trusts a session with a lost one forever.
	ssh := "-o ConnectionAttempts=10 -o ConnectTimeout=5 -o ServerAliveInterval=10 -o StrictHostKeyChecking=no -o UserKnownHostsFile=/dev/null -o LogLevel=ERROR -i " +
		path.Join(mpi.SSHAuthMountPath, sshPrivateKeyFile)
	env := append([]corev1.EnvVar{variable(names.EnvMPIRole, "launcher")}, implementationEnv(mpi.Implementation, slots, ssh)...)
	template, err := b.task(replica.Task)
	if err != nil {
		return nil, err
	}
	if gpus := names.MainContainer(&template.Spec).Resources.Limits[b.settings.GPUResource]; gpus.IsZero() {
		// Images with CUDA would show the launcher all GPUs of its node.
		env = append(env, variable("NVIDIA_VISIBLE_DEVICES", ""), variable("NVIDIA_DRIVER_CAPABILITIES", ""))
	}
	return env, nil
}

// addMPI adds the files of an MPI job to a pod, the daemon of ssh to a worker without a command, and to the launcher
// a container that waits for the workers.
func (b *Builder) addMPI(pod *corev1.Pod, addresses *addresses, replica *Replica) error {
	if !names.HasMPI(&b.job.Spec) {
		return nil
	}
	searchPeers(&pod.Spec, strings.Join([]string{b.subdomain(addresses.assignment), b.job.Namespace, b.settings.ServiceDomain}, "."))
	main := names.MainContainer(&pod.Spec)
	directory := mpiOf(&b.job.Spec).SSHAuthMountPath
	pod.Spec.Volumes = append(pod.Spec.Volumes, b.sshVolume(addresses.assignment, directory))
	mountOnce(main, corev1.VolumeMount{Name: names.SSHVolume, MountPath: directory, ReadOnly: true})
	if !names.IsMPILauncher(&b.job.Spec, &b.job.Spec.Tasks[replica.Task]) {
		if len(main.Command)+len(main.Args) == 0 {
			main.Command = sshDaemon(directory)
		}
		return nil
	}
	awaited, err := b.awaitedWorkers(addresses.assignment)
	if err != nil {
		return err
	}
	pod.Spec.Volumes = append(pod.Spec.Volumes, mpiVolume(addresses.configMap))
	mountOnce(main, corev1.VolumeMount{Name: names.MPIVolume, MountPath: names.MPIDirectory, ReadOnly: true})
	pod.Spec.InitContainers = append(pod.Spec.InitContainers, waitingContainer(main, awaited))
	return nil
}

// searchPeers lets a pod resolve the short names of its peers, by which Hydra's processes call back.
func searchPeers(spec *corev1.PodSpec, domain string) {
	if spec.DNSConfig == nil {
		spec.DNSConfig = &corev1.PodDNSConfig{}
	}
	if !slices.Contains(spec.DNSConfig.Searches, domain) {
		spec.DNSConfig.Searches = append(spec.DNSConfig.Searches, domain)
	}
}

// mountOnce mounts a volume unless the container has another mount at its path.
func mountOnce(container *corev1.Container, mount corev1.VolumeMount) {
	if !slices.ContainsFunc(container.VolumeMounts, func(own corev1.VolumeMount) bool { return path.Clean(own.MountPath) == mount.MountPath }) {
		container.VolumeMounts = append(container.VolumeMounts, mount)
	}
}

// sshDaemon returns the command of a worker that has none. Its host key is the job's, so an image needs none. The
// daemon would reject keys in a folder that others can write, as each folder of a volume looks.
func sshDaemon(directory string) []string {
	return []string{
		"/usr/sbin/sshd", "-De", "-h", path.Join(directory, sshPrivateKeyFile),
		"-o", "StrictModes=no", "-o", "AuthorizedKeysFile=" + path.Join(directory, sshAuthorizedKeysFile),
	}
}

// sshVolume returns the volume of the keys. Only root can use files below /root, and ssh requires that others cannot
// read root's key. Elsewhere another user must be able to read it.
func (b *Builder) sshVolume(assignment *Assignment, directory string) corev1.Volume {
	mode := ptr.To[int32](0o444)
	if strings.HasPrefix(directory+"/", "/root/") {
		mode = ptr.To[int32](0o400)
	}
	return corev1.Volume{Name: names.SSHVolume, VolumeSource: corev1.VolumeSource{Secret: &corev1.SecretVolumeSource{
		SecretName:  SSHSecretName(b.job, assignment.Generation()),
		DefaultMode: mode,
		Items: []corev1.KeyToPath{
			{Key: corev1.SSHAuthPrivateKey, Path: sshPrivateKeyFile},
			{Key: SSHPublicKey, Path: sshPublicKeyFile},
			{Key: SSHPublicKey, Path: sshAuthorizedKeysFile},
		},
	}}}
}

func mpiVolume(configMap string) corev1.Volume {
	return corev1.Volume{Name: names.MPIVolume, VolumeSource: corev1.VolumeSource{ConfigMap: &corev1.ConfigMapVolumeSource{
		LocalObjectReference: corev1.LocalObjectReference{Name: configMap},
		Items: []corev1.KeyToPath{
			{Key: names.MPIHostfile, Path: names.MPIHostfile, Mode: ptr.To[int32](0o444)},
			{Key: names.MPIWorkers, Path: names.MPIWorkers, Mode: ptr.To[int32](0o444)},
			{Key: names.MPIDiscovery, Path: names.MPIDiscovery, Mode: ptr.To[int32](0o555)},
		},
	}}}
}

// waitingContainer returns the container that waits for the workers. It runs the image and the user of the main
// container, and requests as much, so that the requests of the pod stay and a quota is satisfied.
func waitingContainer(main *corev1.Container, awaited int) corev1.Container {
	waiting := corev1.Container{
		Name: names.MPIWait, Image: main.Image, ImagePullPolicy: main.ImagePullPolicy,
		Command: []string{"/bin/sh", "-c", fmt.Sprintf(wait, awaited)},
		Env:     slices.Clone(main.Env), Resources: *main.Resources.DeepCopy(), SecurityContext: main.SecurityContext.DeepCopy(),
		VolumeMounts:             []corev1.VolumeMount{{Name: names.MPIVolume, MountPath: names.MPIDirectory, ReadOnly: true}},
		TerminationMessagePolicy: corev1.TerminationMessageFallbackToLogsOnError,
	}
	return waiting
}

// SSHSecretName returns the name of the Secret with the keys of an attempt, given how often the job was restarted or
// rescheduled before.
func SSHSecretName(job *v2alpha1.DIJob, generation int64) string {
	return names.SSHSecret(job.Name, digestOf(job, map[string]string{"generation": strconv.FormatInt(generation, 10)}))
}

// SSHSecret builds the Secret of an attempt, without the keys. The attempt's pods mount it.
func (b *Builder) SSHSecret(assignment *Assignment) *corev1.Secret {
	return &corev1.Secret{
		ObjectMeta: metav1.ObjectMeta{
			Name:      SSHSecretName(b.job, assignment.Generation()),
			Namespace: b.job.Namespace, Labels: names.WorkerJobLabels(b.job.Name),
			OwnerReferences: []metav1.OwnerReference{*Owner(b.job, b.settings.JobVersion)},
		},
		Type:      corev1.SecretTypeSSHAuth,
		Immutable: ptr.To(true),
	}
}
