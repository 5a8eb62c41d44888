// Copyright The DI Orchestrator Authors.
// SPDX-License-Identifier: Apache-2.0

package importers

import (
	"encoding/json"
	"fmt"
	"slices"
	"strconv"
	"strings"

	"k8s.io/utils/ptr"

	"opendilab.org/di-orchestrator/apis/v2alpha1"
)

const (
	// masterPort is the name of the port that the operator uses as MASTER_PORT.
	masterPort = "master-port"
	// pytorchPort is the default number of kubeflow's pytorchjob-port.
	pytorchPort = 23456
)

// pyTorchJob is a PyTorchJob during its import.
type pyTorchJob struct {
	kubeflowJob
	name string
	// hasMaster is set if kubeflow would pass pods the address of a master, their rank and the
	// world size.
	hasMaster bool
	// env lists the variables that kubeflow sets in every pod and the operator does not, in order.
	env []setting
}

// setting is an environment variable and its value. If the manifest sets it, from is the path and
// says the value in the manifest.
type setting struct {
	name, value string
	from        Path
	says        any
}

// importPyTorchJob imports a PyTorchJob of kubeflow's training operator.
func importPyTorchJob(m *manifest) any {
	metadata := m.takeMetadata()
	j := &pyTorchJob{kubeflowJob: kubeflowJob{manifest: m, restartPolicy: "OnFailure"}}
	j.name, _ = metadata["name"].(string)
	j.adapt = j.adaptTemplate
	return j.follow(metadata, j.checkTypes, j.takeProcesses, j.takeElasticPolicy, func() { j.takeReplicas(j.specs()) },
		j.sayCluster, j.takeRunPolicy, j.saySuccess, j.takeRestartPolicies)
}

func (j *pyTorchJob) specs() Path { return Path{"spec", "pytorchReplicaSpecs"} }

// checkTypes fails for replica types that kubeflow does not know.
func (j *pyTorchJob) checkTypes() {
	for _, name := range j.members(j.specs()) {
		switch strings.ToLower(name) {
		case "master":
			j.hasMaster = true
		case "worker":
		default:
			j.failf("%s: is neither Master nor Worker", j.specs().Child(name))
		}
	}
	j.env = []setting{{name: "PYTHONUNBUFFERED", value: "1"}}
}

// takeProcesses imports how many processes torchrun starts in a pod.
func (j *pyTorchJob) takeProcesses() {
	at, older := Path{"spec", "nprocPerNode"}, Path{"spec", "elasticPolicy", "nProcPerNode"}
	count := takeAs[string](j.manifest, at)
	if before := takeAs[int32](j.manifest, older); before != nil {
		text := strconv.Itoa(int(*before))
		if count != nil {
			j.note(older, *before, "left out: spec.nprocPerNode says it", "")
		} else {
			at, count = older, &text
		}
	}
	switch {
	case count != nil:
		j.env = append(j.env, setting{name: "PET_NPROC_PER_NODE", value: *count, from: at, says: *count})
		if processes, err := strconv.Atoi(*count); err == nil && processes > 1 && j.hasMaster {
			j.note(at, *count, "WORLD_SIZE counted processes, and counts pods now, as RANK does", "programs that torchrun starts need no change: it tells each its own")
		}
	case j.hasMaster:
		j.env = append(j.env, setting{name: "PET_NPROC_PER_NODE", value: "auto"})
	}
}

// takeElasticPolicy imports the minimum and the maximum number of workers, and passes them to
// torchrun.
func (j *pyTorchJob) takeElasticPolicy() {
	at := Path{"spec", "elasticPolicy"}
	if _, isObject := j.parent(at)[at[len(at)-1]].(map[string]any); !isObject {
		return
	}
	least := takeTo[int32](j.manifest, at.Child("minReplicas"), Path{"spec", "elastic", "minReplicas"})
	most := takeTo[int32](j.manifest, at.Child("maxReplicas"), Path{"spec", "elastic", "maxReplicas"})
	j.spec.Elastic = &v2alpha1.Elastic{Task: "worker", MinReplicas: least, MaxReplicas: most}
	if j.hasMaster {
		j.lost(at, nil, "workers came and went while the others went on; a resize restarts all replicas now, and PET_NNODES says how many there are, as pods are told of a Master",
			"make the Master a Worker: torchrun's own rendezvous needs none")
	} else {
		j.sayRange(least, most)
	}
	if value := j.take(at.Child("metrics")); value != nil {
		j.lost(at.Child("metrics"), value, "no HorizontalPodAutoscaler is made", "make one whose scaleTargetRef is the DIJob")
	}
	j.takeRendezvous(at)
}

// sayRange passes the range of the number of pods to torchrun. The default is the number of
// replicas.
func (j *pyTorchJob) sayRange(least, most *int32) {
	workers := int32(1)
	for _, name := range j.members(j.specs()) {
		// The replicas are imported later.
		specs := j.parent(j.specs().Child(name, "replicas"))
		if count, ok := specs["replicas"].(json.Number); ok {
			number, err := strconv.ParseInt(count.String(), 10, 32)
			if err != nil {
				j.failf("%s: %s is no whole number that fits", j.specs().Child(name, "replicas"), count)
			}
			workers = int32(number)
		}
	}
	if most == nil {
		most = ptr.To(ptr.Deref(least, workers))
	}
	if least == nil {
		least = most
	}
	j.env = append(j.env, setting{name: "PET_NNODES", value: fmt.Sprintf("%d:%d", *least, *most)})
}

// takeRendezvous imports how torchrun's processes find each other.
func (j *pyTorchJob) takeRendezvous(at Path) {
	backend := takeAs[string](j.manifest, at.Child("rdzvBackend"))
	j.env = append(j.env, setting{name: "PET_RDZV_BACKEND", value: ptr.Deref(backend, "c10d")})
	if backend != nil {
		j.env[len(j.env)-1].from, j.env[len(j.env)-1].says = at.Child("rdzvBackend"), *backend
	}
	j.takeEndpoint(at)
	if id := takeAs[string](j.manifest, at.Child("rdzvId")); id != nil {
		j.env = append(j.env, setting{name: "PET_RDZV_ID", value: *id, from: at.Child("rdzvId"), says: *id})
	}
	if restarts := takeAs[int32](j.manifest, at.Child("maxRestarts")); restarts != nil {
		j.env = append(j.env, setting{name: "PET_MAX_RESTARTS", value: strconv.Itoa(int(*restarts)), from: at.Child("maxRestarts"), says: *restarts})
	}
	if standalone := takeAs[bool](j.manifest, at.Child("standalone")); standalone != nil && *standalone {
		j.env = append(j.env, setting{name: "PET_STANDALONE", from: at.Child("standalone"), says: true})
	} else if standalone != nil {
		j.note(at.Child("standalone"), false, "left out: is the default", "")
	}
	j.takeConf(at.Child("rdzvConf"))
}

// takeEndpoint imports the address of the rendezvous, which is the first worker by default.
func (j *pyTorchJob) takeEndpoint(at Path) {
	host := takeAs[string](j.manifest, at.Child("rdzvHost"))
	port := takeAs[int32](j.manifest, at.Child("rdzvPort"))
	if host == nil && j.name == "" {
		j.lost(at.Child("rdzvHost"), nil, "is not set, which is the first worker in kubeflow: how that will be called is not known of a job without a name",
			"set PET_RDZV_ENDPOINT in the template")
		return
	}
	first := j.name + "-worker-0"
	where := ptr.Deref(host, first)
	if where == first || where == j.name+"-master-0" {
		where += ".di-" + j.name
	}
	switch {
	case host != nil && *host != where:
		j.note(at.Child("rdzvHost"), *host, "became part of PET_RDZV_ENDPOINT in the environment, as "+where+": the job's pods are all in one Service", "")
	case host != nil:
		j.note(at.Child("rdzvHost"), *host, "became part of PET_RDZV_ENDPOINT in the environment", "")
	}
	number := int32(pytorchPort)
	if port != nil {
		number = *port
	} else if own := j.portOfWorker(); own > 0 {
		number = own
	}
	j.env = append(j.env, setting{name: "PET_RDZV_ENDPOINT", value: fmt.Sprintf("%s:%d", where, number)})
	if port != nil {
		j.note(at.Child("rdzvPort"), *port, "became part of PET_RDZV_ENDPOINT in the environment", "")
	}
}

// portOfWorker returns the port that the worker's template lists, and 0 if it lists none.
func (j *pyTorchJob) portOfWorker() int32 {
	for _, name := range j.members(j.specs()) {
		if strings.ToLower(name) != "worker" {
			continue
		}
		template, _ := j.parent(j.specs().Child(name, "template"))["template"].(map[string]any)
		for _, container := range containers(template) {
			for _, port := range ports(container) {
				number, ok := port["containerPort"].(json.Number)
				if value, err := strconv.ParseInt(number.String(), 10, 32); ok && err == nil && port["name"] == "pytorchjob-port" {
					return int32(value)
				}
			}
		}
	}
	return 0
}

// takeConf imports further settings of the rendezvous.
func (j *pyTorchJob) takeConf(at Path) {
	type entry struct {
		Key   string `json:"key"`
		Value string `json:"value"`
	}
	says := j.parent(at)[at[len(at)-1]]
	entries := takeAs[[]entry](j.manifest, at)
	if entries == nil {
		return
	}
	texts := make([]string, len(*entries))
	for i, entry := range *entries {
		texts[i] = entry.Key + "=" + entry.Value
	}
	j.env = append(j.env, setting{name: "PET_RDZV_CONF", value: strings.Join(texts, ","), from: at, says: says})
}

// adaptTemplate gives the main container and the port of masters the names that the operator
// expects. It adds the variables that the operator does not set.
func (j *pyTorchJob) adaptTemplate(template map[string]any, at Path) {
	renaming{container: "pytorch", port: "pytorchjob-port", toPort: masterPort}.apply(j.manifest, template, at)
	found := containers(template)
	if len(found) == 0 || found[0] == nil {
		return
	}
	main := max(0, slices.IndexFunc(found, func(container map[string]any) bool { return container["name"] == mainContainer }))
	where := at.Child("spec", "containers", strconv.Itoa(main))
	j.addPort(found[main], where)
	j.addEnv(found[main], where)
}

// addPort adds the port that kubeflow adds to a template that has none.
func (j *pyTorchJob) addPort(container map[string]any, at Path) {
	listed, isList := container["ports"].([]any)
	if !isList && container["ports"] != nil || slices.ContainsFunc(ports(container), func(port map[string]any) bool { return port["name"] == masterPort }) {
		return
	}
	container["ports"] = append(listed, map[string]any{"name": masterPort, "containerPort": pytorchPort})
	j.noteAgain(at.Child("ports"), nil, fmt.Sprintf("lists no pytorchjob-port: was given %s %d, kubeflow's default, which MASTER_PORT says", masterPort, pytorchPort), "")
}

// addEnv adds the variables that kubeflow sets in every pod and the operator does not. A variable
// that the template sets keeps its value, although kubeflow overwrote it.
func (j *pyTorchJob) addEnv(container map[string]any, at Path) {
	listed, isList := container["env"].([]any)
	if !isList && container["env"] != nil {
		return
	}
	var added []string
	for _, setting := range j.env {
		isSet := slices.ContainsFunc(listed, func(item any) bool {
			variable, _ := item.(map[string]any)
			return variable["name"] == setting.name
		})
		if isSet {
			j.note(at.Child("env"), nil, "sets "+setting.name+" itself, which kubeflow overwrote by "+strconv.Quote(setting.value), "remove it if that is wanted")
			continue
		}
		listed = append(listed, map[string]any{"name": setting.name, "value": setting.value})
		added = append(added, setting.name)
	}
	container["env"] = listed
	if len(added) > 0 {
		j.noteAgain(at.Child("env"), nil, "was given what kubeflow sets in every pod: "+strings.Join(added, ", "), "")
	}
}

// sayCluster requests the cluster spec that corresponds to what kubeflow passes to pods about their
// master. With torchrun's own rendezvous pods do not need it, and may come and go.
func (j *pyTorchJob) sayCluster() {
	for _, setting := range j.env {
		if setting.from != nil {
			j.note(setting.from, setting.says, "became "+setting.name+" in the environment of every pod", "")
		}
	}
	if j.spec.Elastic != nil && !j.hasMaster {
		return
	}
	j.spec.ClusterSpec = []v2alpha1.ClusterSpec{v2alpha1.ClusterSpecTorch}
	if !j.hasMaster {
		j.note(j.specs(), nil, "has no Master, of which kubeflow tells pods nothing then: the first worker is told of as master now", "")
	}
}

// saySuccess sets which task determines the result of the job: the master as in kubeflow, or all
// workers if there is no master.
func (j *pyTorchJob) saySuccess() {
	leader := j.replica("master")
	if leader == nil {
		j.decides("worker")
		return
	}
	j.decides("master")
	j.note(leader.at, nil, "decides about the job: spec.successPolicy.targetTasks names its task", "")
}
