// Copyright The DI Orchestrator Authors.
// SPDX-License-Identifier: Apache-2.0

package jobview

import (
	"strings"
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"opendilab.org/di-orchestrator/apis/v2alpha1"
	"opendilab.org/di-orchestrator/job/queueing"
)

// The messages are those of Kubernetes 1.30 to 1.36, as conditions of jobs quote them.
func TestARemedyFitsItsCause(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		reason, message string
		// remedies are a part of each remedy, in their order.
		remedies []string
	}{
		{v2alpha1.ReasonQuotaExceeded, "exceeded quota: gpus, requested: requests.nvidia.com/gpu=2, limited: requests.nvidia.com/gpu=8", []string{"raises the ResourceQuota"}},
		{v2alpha1.ReasonResourcesMissing, "failed quota: compute: must specify requests.cpu for: di-container", []string{"Set the requests and limits"}},
		{v2alpha1.ReasonResourcesMissing, "failed quota: compute: must specify limits.cpu for: di-container; limits.memory for: di-container,sidecar", []string{"Set the requests and limits"}},
		{v2alpha1.ReasonResourcesMissing, "failed quota: compute: must specify memory for: di-container", []string{"Set the requests and limits"}},
		{v2alpha1.ReasonQuotaExceeded, "status unknown for quota: compute, resources: pods", []string{"Wait"}},
		{v2alpha1.ReasonQuotaExceeded, "insufficient quota to match these scopes: [{PriorityClass In [high]}]", []string{"this priority"}},

		{v2alpha1.ReasonInsufficientCapacity, "insufficient capacity on 1 node; tenant robots holds 2 of its 2 nvidia.com/gpu", []string{"raises its weight"}},
		{v2alpha1.ReasonInsufficientCapacity, "insufficient capacity on 1 node", nil},

		{v2alpha1.ReasonLimitRangeViolation, "[maximum cpu usage per Container is 1, but limit is 2, maximum memory usage per Pod is 1Gi, but limit is 2147483648]", []string{"LimitRange"}},
		{v2alpha1.ReasonLimitRangeViolation, "minimum memory usage per Container is 64Mi, but request is 1Mi", []string{"LimitRange"}},
		{v2alpha1.ReasonLimitRangeViolation, "maximum cpu usage per Container is 1. No limit is specified", []string{"LimitRange"}},
		{v2alpha1.ReasonLimitRangeViolation, "cpu max limit to request ratio per Container is 2, but provided ratio is 4.000000", []string{"LimitRange"}},
		{v2alpha1.ReasonFailedCreate, `error looking up service account rl/trainer: serviceaccount "trainer" not found`, []string{"ServiceAccount"}},
		{v2alpha1.ReasonFailedCreate, "no PriorityClass with name urgent was found", []string{"PriorityClass"}},
		{v2alpha1.ReasonFailedCreate, "unable to create new content in namespace rl because it is being terminated", []string{"another namespace"}},
		{v2alpha1.ReasonFailedCreate, `admission webhook "validate.kyverno.svc-fail" denied the request: no latest tag`, []string{"policy"}},
		{v2alpha1.ReasonFailedCreate, `Internal error occurred: failed calling webhook "x.example.com": context deadline exceeded`, []string{"does not answer"}},
		{v2alpha1.ReasonFailedCreate, `pods "j" is forbidden: pod rejected: RuntimeClass "nvidia" not found`, []string{"RuntimeClass"}},
		{v2alpha1.ReasonFailedCreate, "something that is not known", nil},

		{v2alpha1.ReasonPodSecurityViolation, `violates PodSecurity "restricted:latest": allowPrivilegeEscalation != false`, []string{"ask for less"}},

		{v2alpha1.ReasonImagePull, `failed to pull and unpack image "docker.io/library/nosuch:1": failed to resolve reference: docker.io/library/nosuch:1: not found`, []string{"name and tag."}},
		{v2alpha1.ReasonImagePull, "pull access denied, repository does not exist or may require authorization: server message: insufficient_scope: authorization failed", []string{"private image needs imagePullSecrets"}},
		{v2alpha1.ReasonImagePull, "failed to authorize: failed to fetch oauth token: 401 Unauthorized", []string{"private image needs imagePullSecrets"}},
		{v2alpha1.ReasonImagePull, "dial tcp: lookup registry.example.com: no such host", []string{"reach the registry"}},
		{v2alpha1.ReasonImagePull, "dial tcp 10.0.0.1:443: i/o timeout", []string{"reach the registry"}},
		{v2alpha1.ReasonImagePull, "tls: failed to verify certificate: x509: certificate signed by unknown authority", []string{"reach the registry"}},
		{v2alpha1.ReasonImagePull, "429 Too Many Requests - Server message: toomanyrequests: You have reached your pull rate limit", []string{"limits anonymous pulls"}},
		{v2alpha1.ReasonImagePull, `Container image "trainer:dev" is not present with pull policy of Never`, []string{"Load the image"}},
		{v2alpha1.ReasonImagePull, `couldn't parse image name "My Image": invalid reference format`, []string{"name and tag."}},
		{v2alpha1.ReasonImagePull, "no match for platform in manifest: not found", []string{"platform of the nodes"}},
		{v2alpha1.ReasonImagePull, "no cause is told", []string{"imagePullSecrets"}},

		{v2alpha1.ReasonContainerConfig, `secret "tokens" not found`, []string{"Create the Secret"}},
		{v2alpha1.ReasonContainerConfig, `configmap "settings" not found`, []string{"Create the ConfigMap"}},
		{v2alpha1.ReasonContainerConfig, "couldn't find key TOKEN in Secret rl/tokens", []string{"Add the key"}},
		{v2alpha1.ReasonContainerConfig, "container has runAsNonRoot and image will run as root", []string{"runAsUser"}},
		{v2alpha1.ReasonPodSetup, `MountVolume.SetUp failed for volume "v": configmap "settings" not found`, []string{"Create the ConfigMap"}},
		{v2alpha1.ReasonPodSetup, "the node has not set up its volumes and network", []string{"Check the volumes"}},
		{v2alpha1.ReasonContainerStart, `exec: "trian": executable file not found in $PATH: unknown`, []string{"no such program"}},
		{v2alpha1.ReasonContainerStart, "exec /train: exec format error", []string{"platform of the nodes"}},
		{v2alpha1.ReasonContainerStart, `exec: "/train.py": permission denied`, []string{"executable"}},

		{v2alpha1.ReasonUnschedulable, "no node is available: Insufficient cpu", []string{"request less CPU"}},
		{v2alpha1.ReasonUnschedulable, "no node is available: Insufficient cpu, Insufficient memory", []string{"request less CPU"}},
		{v2alpha1.ReasonUnschedulable, "no node is available: Insufficient nvidia.com/gpu", nil},
		{v2alpha1.ReasonUnschedulable, "no node is available: node(s) had untolerated taint {node-role.kubernetes.io/control-plane: }", []string{"toleration"}},
		{v2alpha1.ReasonUnschedulable, "no node is available: node(s) had untolerated taint(s)", []string{"toleration"}},
		{v2alpha1.ReasonUnschedulable, "no node is available: node(s) didn't match Pod's node affinity/selector", []string{"node selector"}},
		{v2alpha1.ReasonUnschedulable, "no node is available: node(s) didn't match pod anti-affinity rules", []string{"pod affinity"}},
		{v2alpha1.ReasonUnschedulable, "no node is available: node(s) didn't match pod topology spread constraints", []string{"topologySpreadConstraints"}},
		{v2alpha1.ReasonUnschedulable, "no node is available: Insufficient cpu, node(s) had untolerated taint {a: }, node(s) were unschedulable", []string{"request less CPU", "toleration", "uncordons"}},
		{v2alpha1.ReasonUnschedulable, `persistentvolumeclaim "data" not found`, []string{"Create the PersistentVolumeClaim"}},
		{v2alpha1.ReasonUnschedulable, "pod has unbound immediate PersistentVolumeClaims", []string{"Check the PersistentVolumeClaims"}},
		{v2alpha1.ReasonUnschedulable, "no node is available: node(s) didn't have free ports for the requested pod ports", []string{"hostPort"}},
		{v2alpha1.ReasonUnschedulable, "no node is available: cannot allocate all claims", []string{"ResourceClaims"}},
		{v2alpha1.ReasonUnschedulable, `no ResourceClaim was created from ResourceClaimTemplate "gpus": does the template exist?`, []string{"Create the ResourceClaimTemplate"}},
		{v2alpha1.ReasonUnschedulable, `pong-collector-0 (collector): scheduler "volcano" ignores it`, []string{"name of the scheduler"}},
		{v2alpha1.ReasonMainContainerExited, "its main container has exited (exit code 0), but container proxy of its template still runs", []string{"native sidecars"}},
		{"Other", "exceeded quota: of something else", nil},
	} {
		got := ofCause(c.reason, c.message)
		if len(got) != len(c.remedies) {
			t.Errorf("%s %q: got %q, want %q", c.reason, c.message, got, c.remedies)
			continue
		}
		for i := range got {
			if !strings.Contains(got[i], c.remedies[i]) {
				t.Errorf("%s %q: got %q, want %q", c.reason, c.message, got[i], c.remedies[i])
			}
		}
	}
}

func TestARemedyFitsItsFailure(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		reason, message string
		code            int32
		// want is a part of the remedy; empty without one.
		want string
	}{
		"out of memory":                   {"OOMKilled", "Killed", 137, "memory limit"},
		"killed, and no reason is told":   {"Error", "", 137, "SIGKILL"},
		"killed by a probe":               {"ProbeFailed", "the kubelet killed container a: Liveness probe failed", 137, "probe"},
		"a shell without the program":     {"Error", "sh: 1: trian: not found", 127, "no such program"},
		"a shell and no executable":       {"Error", "sh: 1: ./train.py: Permission denied", 126, "executable"},
		"a crash in native code":          {"Error", "", 139, "native code"},
		"SIGTERM":                         {"Error", "", 143, "SIGTERM"},
		"a command that is not there":     {"StartError", `exec: "trian": executable file not found in $PATH: unknown`, 128, "no such program"},
		"a command that is not there, v1": {"ContainerCannotRun", "exec /train: exec format error", 128, "platform of the nodes"},
		"an image that cannot be pulled":  {"ImagePull", "docker.io/library/nosuch:1: not found", 0, "name and tag"},
		"an init container":               {"", "init container get: exit code 127: sh: get: not found", 0, "no such program"},
		"memory of a GPU":                 {"", "torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 2.00 GiB", 1, "smaller batches"},
		"a module that is not there":      {"Error", "ModuleNotFoundError: No module named 'gym'", 1, "Install the module"},
		"an error of the program":         {"Error", "ValueError: the shapes (4,) and (5,) differ", 1, ""},
		"the end of all time":             {"DeadlineExceeded", "the job exceeded its deadline", 0, "activeDeadlineSeconds"},
	} {
		var code *int32
		if c.code != 0 {
			code = &c.code
		}
		got := strings.Join(ofFailure(c.reason, c.message, code), "; ")
		if !strings.Contains(got, c.want) || c.want == "" && got != "" {
			t.Errorf("%s: got %q, want %q", name, got, c.want)
		}
	}
}

func TestARemedyNamesTheQueueOfTheLabelOrTheSpec(t *testing.T) {
	t.Parallel()
	for name, job := range map[string]*v2alpha1.DIJob{
		"the label":             {ObjectMeta: metav1.ObjectMeta{Labels: map[string]string{queueing.LabelQueue: "team"}}},
		"the spec":              {Spec: v2alpha1.DIJobSpec{Scheduling: &v2alpha1.Scheduling{Queue: "team"}}},
		"the spec, for Volcano": {Spec: v2alpha1.DIJobSpec{Scheduling: &v2alpha1.Scheduling{Queue: "team", SchedulerName: "volcano"}}},
	} {
		got := ofCondition(job, 0, &v2alpha1.DIJobCondition{Type: v2alpha1.ConditionAdmitted, Reason: v2alpha1.ReasonWaitingInQueue})
		if len(got) != 1 || !strings.Contains(got[0], "queue team becomes free") {
			t.Errorf("%s: got %q, want one that names queue team", name, got)
		}
	}
}
