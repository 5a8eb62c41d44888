// Copyright The DI Orchestrator Authors.
// SPDX-License-Identifier: Apache-2.0

package jobview

import (
	"cmp"
	"regexp"
	"slices"
	"strconv"

	"k8s.io/utils/ptr"

	"opendilab.org/di-orchestrator/apis/v2alpha1"
)

// rule is the remedy of a cause.
type rule struct {
	reason string
	// cause is what the message contains.
	cause  *regexp.Regexp
	remedy string
}

// rules are the remedies by cause. Kubernetes' texts are no interface: a text that fits no rule has the remedy of its reason.
var rules = []rule{
	{v2alpha1.ReasonQuotaExceeded, regexp.MustCompile(`status unknown for quota`),
		"Wait: Kubernetes still counts what the namespace uses of the new ResourceQuota."},
	{v2alpha1.ReasonQuotaExceeded, regexp.MustCompile(`insufficient quota to match these scopes`),
		"An administrator adds a ResourceQuota for this priority, or the job has another priority."},

	{v2alpha1.ReasonInsufficientCapacity, regexp.MustCompile(`tenant \S+ holds`), "Other jobs of the tenant end, or an administrator raises its weight."},

	{v2alpha1.ReasonFailedCreate, regexp.MustCompile(`violates PodSecurity`), podSecurity},
	{v2alpha1.ReasonFailedCreate, regexp.MustCompile(`(?i)serviceaccount ".*" not found|error looking up service account`),
		"Create the ServiceAccount that the message names, or correct its name in the templates."},
	{v2alpha1.ReasonFailedCreate, regexp.MustCompile(`no PriorityClass with name`),
		"Create the PriorityClass that the message names, or correct its name."},
	{v2alpha1.ReasonFailedCreate, regexp.MustCompile(`RuntimeClass ".*" not found`),
		"Create the RuntimeClass that the message names, or correct its name in the templates."},
	{v2alpha1.ReasonFailedCreate, regexp.MustCompile(`is being terminated`), "Create the job in another namespace: this one is being deleted."},
	{v2alpha1.ReasonFailedCreate, regexp.MustCompile(`admission webhook ".*" denied|ValidatingAdmissionPolicy '.*'`),
		"Change what the policy refuses: the message names it. Its administrator knows the rule."},
	{v2alpha1.ReasonFailedCreate, regexp.MustCompile(`failed calling webhook`),
		"An administrator repairs the webhook that the message names: it does not answer."},

	{v2alpha1.ReasonImagePull, regexp.MustCompile(`(?i)not present with pull policy of Never|ErrImageNeverPull`),
		"Load the image into the nodes, or set another imagePullPolicy."},
	{v2alpha1.ReasonImagePull, regexp.MustCompile(`(?i)couldn't parse image|invalid reference format|InvalidImageName`), imageName},
	{v2alpha1.ReasonImagePull, regexp.MustCompile(`(?i)toomanyrequests|rate limit`),
		"Wait, or add imagePullSecrets to the template: the registry limits anonymous pulls."},
	{v2alpha1.ReasonImagePull, regexp.MustCompile(`(?i)no such host|timeout|connection refused|tls: |x509: |network is unreachable`),
		"Check that the nodes reach the registry: its name, network and certificate."},
	{v2alpha1.ReasonImagePull, regexp.MustCompile(`(?i)no match for platform|exec format`),
		"Build the image for the platform of the nodes, or select other nodes."},
	{v2alpha1.ReasonImagePull, regexp.MustCompile(`(?i)unauthorized|authorization failed|access denied|authentication required|forbidden|no basic auth`),
		imageName + " A private image needs imagePullSecrets."},
	{v2alpha1.ReasonImagePull, regexp.MustCompile(`(?i)no space left`), "An administrator frees disk space on the node."},
	{v2alpha1.ReasonImagePull, regexp.MustCompile(`(?i)not found|manifest unknown`), imageName},

	{v2alpha1.ReasonContainerConfig, regexp.MustCompile(`couldn't find key`), "Add the key that the message names to its Secret or ConfigMap, or correct the key in the template."},
	{v2alpha1.ReasonContainerConfig, regexp.MustCompile(`secret "?.*"? not found`), missingSecret},
	{v2alpha1.ReasonContainerConfig, regexp.MustCompile(`configmap "?.*"? not found`), missingConfigMap},
	{v2alpha1.ReasonContainerConfig, regexp.MustCompile(`runAsNonRoot`),
		"Set runAsUser to the number of a user in the template, or build the image with such a user."},

	{v2alpha1.ReasonContainerStart, regexp.MustCompile(`executable file not found|no such file or directory`), noProgram},
	{v2alpha1.ReasonContainerStart, regexp.MustCompile(`exec format error`), "Build the image for the platform of the nodes, or select other nodes."},
	{v2alpha1.ReasonContainerStart, regexp.MustCompile(`permission denied`), notExecutable},

	{v2alpha1.ReasonError, regexp.MustCompile(`CUDA out of memory|CUDA_ERROR_OUT_OF_MEMORY|torch\.(cuda\.)?OutOfMemoryError`),
		"Use smaller batches or a smaller model for each GPU, or request GPUs with more memory."},
	{v2alpha1.ReasonError, regexp.MustCompile(`ModuleNotFoundError|No module named`), "Install the module that the message names in the image, or correct its name."},

	{v2alpha1.ReasonPodSetup, regexp.MustCompile(`secret "?.*"? not found`), missingSecret},
	{v2alpha1.ReasonPodSetup, regexp.MustCompile(`configmap "?.*"? not found`), missingConfigMap},

	{v2alpha1.ReasonUnschedulable, regexp.MustCompile(`Insufficient (cpu|memory|ephemeral-storage)`),
		"Other pods end, an administrator adds nodes, or the templates request less CPU, memory or storage."},
	{v2alpha1.ReasonUnschedulable, regexp.MustCompile(`Too many pods`), "Other pods end, or an administrator adds nodes: the nodes have as many pods as they may."},
	{v2alpha1.ReasonUnschedulable, regexp.MustCompile(`taint`), "Add a toleration of the taint to the templates, or an administrator removes the taint."},
	{v2alpha1.ReasonUnschedulable, regexp.MustCompile(`(?i)pod's node affinity|node selector|nodeselector`),
		"Correct the node selector or node affinity of the templates, or an administrator labels nodes."},
	{v2alpha1.ReasonUnschedulable, regexp.MustCompile(`pod (anti-)?affinity|anti-affinity rules`), "Relax the pod affinity of the templates, or an administrator adds nodes."},
	{v2alpha1.ReasonUnschedulable, regexp.MustCompile(`topology spread`), "Relax the topologySpreadConstraints of the templates, or an administrator adds nodes."},
	{v2alpha1.ReasonUnschedulable, regexp.MustCompile(`were unschedulable|were unavailable`), "An administrator uncordons nodes, or adds others."},
	{v2alpha1.ReasonUnschedulable, regexp.MustCompile(`free ports`), "Leave out hostPort and hostNetwork, or an administrator adds nodes."},
	{v2alpha1.ReasonUnschedulable, regexp.MustCompile(`persistentvolumeclaim ".*" not found`), "Create the PersistentVolumeClaim that the message names, or correct its name."},
	{v2alpha1.ReasonUnschedulable, regexp.MustCompile(`unbound immediate PersistentVolumeClaims|volume\(s\)|volume node affinity|available persistent volumes`),
		"Check the PersistentVolumeClaims of the job: their volume does not exist yet, or is where the pod may not run."},
	{v2alpha1.ReasonUnschedulable, regexp.MustCompile(`ResourceClaimTemplate`), "Create the ResourceClaimTemplate that the message names, or correct its name in the templates."},
	{v2alpha1.ReasonUnschedulable, regexp.MustCompile(`scheduler ".*" ignores it`), "Correct the name of the scheduler, or an administrator starts it: it does not handle the pods."},
	{v2alpha1.ReasonUnschedulable, regexp.MustCompile(`resourceclaim|allocate all claims`), "Check the ResourceClaims of the templates: no node has such a free device."},
}

const (
	noProgram        = "Correct the command of the container: the image has no such program."
	notExecutable    = "Make the program executable in the image, for the user that runs it."
	imageName        = "Correct the image's name and tag."
	podSecurity      = "The templates ask for less, or an administrator allows it: the message names the fields."
	missingSecret    = "Create the Secret that the message names, or correct its name in the template."
	missingConfigMap = "Create the ConfigMap that the message names, or correct its name in the template."
)

// reasons are the remedies of reasons whose message fits no rule.
var reasons = map[string]string{
	v2alpha1.ReasonQuotaExceeded:        "Other pods of the namespace end, an administrator raises the ResourceQuota, or the job requests less.",
	v2alpha1.ReasonPodSecurityViolation: podSecurity,
	v2alpha1.ReasonResourcesMissing:     "Set the requests and limits that the message names in the templates, or an administrator adds a LimitRange with defaults.",
	v2alpha1.ReasonLimitRangeViolation:  "Set requests and limits within the LimitRange that the message quotes, or an administrator changes it.",
	v2alpha1.ReasonImagePull:            "Correct the image's name, or add imagePullSecrets to the template.",
	v2alpha1.ReasonContainerConfig:      "Create the Secret or ConfigMap that the message names.",
	v2alpha1.ReasonContainerStart:       "Correct the command of the container.",
	v2alpha1.ReasonCrashLoop:            "Read the log of the replica: its program ends soon after each start.",
	v2alpha1.ReasonPodSetup:             "Check the volumes of the templates, and the node's network.",
	v2alpha1.ReasonOOMKilled:            "Raise the memory limit of the task in its template, or let the program keep less in memory.",
	v2alpha1.ReasonProbeFailed:          "Read the log of the replica before it ended. Give the probe more time, or correct it.",
	v2alpha1.ReasonDeadlineExceeded:     "Raise spec.activeDeadlineSeconds of the next job, or let it do less.",
	v2alpha1.ReasonMainContainerExited:  "Let the other containers exit too, or make them native sidecars.",
}

// ofCause returns what would end a cause: all remedies of an Unschedulable pod, because each node may have another cause, and the
// first one of others. It returns none for a cause that it does not know.
func ofCause(reason, message string) []string {
	var found []string
	for _, rule := range rules {
		if rule.reason == reason && rule.cause.MatchString(message) && !slices.Contains(found, rule.remedy) {
			found = append(found, rule.remedy)
		}
	}
	switch {
	case len(found) == 0 && reasons[reason] != "":
		return []string{reasons[reason]}
	case len(found) > 1 && reason != v2alpha1.ReasonUnschedulable:
		return found[:1]
	}
	return found
}

// codes are the remedies of exit codes whose reason does not tell it. Shells use the first two, and 128 and a signal.
var codes = map[int]string{
	126: notExecutable,
	127: noProgram,
	137: "Look at how much memory the program used, and raise its limit: SIGKILL ended it, and the kubelet reports no reason.",
	139: "Check that compiled packages fit one another, CUDA and the driver of the node: the program crashed in native code.",
	143: "Look at the Events for what ended the pod, such as a drain of its node: SIGTERM ended the program. It can save its state before.",
}

// starts are what kubelets call a container that could not be started.
var starts = []string{"ContainerCannotRun", "StartError"}

// exitCode matches the exit code of a container that is not the main one, in the message of a failure.
var exitCode = regexp.MustCompile(`exit code (\d+)`)

// ofFailure returns what would prevent a failure: that of its reason, and else that of its exit code. It returns none for an error
// of a program that it does not know.
func ofFailure(reason, message string, code *int32) []string {
	if slices.Contains(starts, reason) {
		reason = v2alpha1.ReasonContainerStart
	}
	reason = cmp.Or(reason, v2alpha1.ReasonError)
	if found := ofCause(reason, message); len(found) > 0 {
		return found
	}
	number := int(ptr.Deref(code, 0))
	if found := exitCode.FindStringSubmatch(message); code == nil && found != nil {
		number, _ = strconv.Atoi(found[1])
	}
	if remedy := codes[number]; remedy != "" {
		return []string{remedy}
	}
	return nil
}
