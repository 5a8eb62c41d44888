// Copyright The DI Orchestrator Authors.
// SPDX-License-Identifier: Apache-2.0

package store

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"slices"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"opendilab.org/di-orchestrator/apis/v2alpha1"
	"opendilab.org/di-orchestrator/internal/names"
	"opendilab.org/di-orchestrator/internal/quantity"
	"opendilab.org/di-orchestrator/job/membership"
)

// Endpoints are the URLs of one job's replicas, for one request. The port comes from the pod if it exists,
// and otherwise from its template.
type Endpoints struct {
	membership.Endpoints
	pods     map[string]*corev1.Pod
	template func(names.ReplicaType) (*corev1.PodSpec, error)
	defaults map[names.ReplicaType]int32
	err      error
}

// EndpointsOf returns the endpoints of a job's replicas.
func (s *Store) EndpointsOf(ctx context.Context, job *v2alpha1.DIJob) (*Endpoints, error) {
	pods, err := s.PodsOf(ctx, job)
	if err != nil {
		return nil, err
	}
	e := &Endpoints{
		pods:     pods,
		defaults: map[names.ReplicaType]int32{},
		template: func(role names.ReplicaType) (*corev1.PodSpec, error) { return s.Template(ctx, job, role) },
	}
	e.Endpoints = membership.Endpoints{Namespace: job.Namespace, Job: job.Name, Ports: e.port}
	return e, nil
}

// Err returns the errors of the templates whose ports were needed.
func (e *Endpoints) Err() error {
	return e.err
}

func (e *Endpoints) port(pod string, role names.ReplicaType) int32 {
	if existing, found := e.pods[pod]; found {
		return names.DIPort(&existing.Spec, role)
	}
	if port, known := e.defaults[role]; known {
		return port
	}
	spec, err := e.template(role)
	if err != nil {
		e.err = errors.Join(e.err, err)
		spec = &corev1.PodSpec{}
	}
	e.defaults[role] = names.DIPort(spec, role)
	return e.defaults[role]
}

// PodURLs returns the URLs of the replicas whose pods exist, oldest first.
func (e *Endpoints) PodURLs() membership.URLs {
	urls := membership.URLs{Collectors: []string{}, Learners: []string{}}
	for _, pod := range e.inOrder() {
		if pod.DeletionTimestamp != nil {
			continue
		}
		role := RoleOf(pod)
		url := names.ReplicaURL(pod.Name, pod.Namespace, e.port(pod.Name, role))
		switch role {
		case names.ReplicaTypeCollector:
			urls.Collectors = append(urls.Collectors, url)
		case names.ReplicaTypeLearner, names.ReplicaTypeAggregator:
			urls.Learners = append(urls.Learners, url)
		case names.ReplicaTypeCoordinator, names.ReplicaTypeDDPLearner:
		}
	}
	return urls
}

// DDPLearners returns the URLs of the DDP learners that an aggregator was created with. The aggregator's
// pod records them. A pod of an earlier release has no record: its URLs follow from its member, or from
// the existing pods once the member is gone. Pod or member may be nil, but not both.
func (e *Endpoints) DDPLearners(name string, pod *corev1.Pod, member *v2alpha1.Member, gpu corev1.ResourceName) []string {
	if pod != nil {
		if unit, recorded := names.UnitOf(pod.Annotations); recorded {
			e.defaults[names.ReplicaTypeDDPLearner] = unit.Port
			return e.DDPURLs(&v2alpha1.Member{DDPGPUs: unit.GPUs}, name)
		}
	}
	if member != nil {
		return e.DDPURLs(member, name)
	}
	return e.ddpPodURLs(pod, gpu)
}

// ddpPodURLs returns the URLs of an aggregator's DDP learners whose pods exist, the master first. It
// includes terminating pods, because the aggregator was created with them.
func (e *Endpoints) ddpPodURLs(aggregator *corev1.Pod, gpu corev1.ResourceName) []string {
	urls := []string{}
	for _, pod := range e.inOrder() {
		if RoleOf(pod) != names.ReplicaTypeDDPLearner || !membership.IsOwnedBy(pod, aggregator) {
			continue
		}
		gpus := membership.PodGPUs(pod, gpu)
		urls = append(urls, membership.GPUURLs(pod.Name, pod.Namespace, e.port(pod.Name, RoleOf(pod)), gpus)...)
	}
	return urls
}

// inOrder returns all pods. Masters of DDP learners come first, then the oldest.
func (e *Endpoints) inOrder() []*corev1.Pod {
	pods := slices.Collect(maps.Values(e.pods))
	slices.SortFunc(pods, func(a, b *corev1.Pod) int {
		return cmp.Or(
			-cmp.Compare(masterRank(a), masterRank(b)),
			a.CreationTimestamp.Compare(b.CreationTimestamp.Time),
			cmp.Compare(a.Name, b.Name),
		)
	})
	return pods
}

func masterRank(pod *corev1.Pod) int {
	if pod.Labels[names.LabelDDPLearnerType] == string(names.DDPLearnerMaster) {
		return 1
	}
	return 0
}

// Template returns the pod spec of a role's template. It returns an empty spec if the role has none,
// because the ports of existing pods are needed in either case.
func (s *Store) Template(ctx context.Context, job *v2alpha1.DIJob, role names.ReplicaType) (*corev1.PodSpec, error) {
	if role == names.ReplicaTypeAggregator {
		config, err := s.AggregatorConfig(ctx, job, s.Get)
		if err != nil || config == nil {
			return &corev1.PodSpec{}, err
		}
		return podSpec("spec.aggregator.template", config.Spec.Aggregator.Template)
	}
	taskType := v2alpha1.TaskTypeLearner
	if role == names.ReplicaTypeCollector {
		taskType = v2alpha1.TaskTypeCollector
	}
	task := TaskOf(job, taskType)
	if task == nil {
		return &corev1.PodSpec{}, nil
	}
	return podSpec("template of task "+names.TaskName(task), task.Template)
}

// Read reads an object by its key.
type Read func(context.Context, types.NamespacedName, client.Object) error

// AggregatorConfig reads the AggregatorConfig of a job; nil if there is none.
func (s *Store) AggregatorConfig(ctx context.Context, job *v2alpha1.DIJob, read Read) (*v2alpha1.AggregatorConfig, error) {
	key := s.AggregatorConfigKey(job)
	var config v2alpha1.AggregatorConfig
	err := read(ctx, key, &config)
	switch {
	case apierrors.IsNotFound(err):
		return nil, nil
	case err != nil:
		return nil, fmt.Errorf("reading AggregatorConfig %s: %w", key, err)
	case !names.MayNameAggregatorConfig(job.Namespace, &config, key == s.options.AggregatorConfig):
		return nil, nil
	}
	return &config, nil
}

// AggregatorConfigKey returns the namespace and name of a job's AggregatorConfig.
func (s *Store) AggregatorConfigKey(job *v2alpha1.DIJob) types.NamespacedName {
	reference := job.Spec.AggregatorConfig
	if reference == nil {
		return s.options.AggregatorConfig
	}
	return types.NamespacedName{Namespace: cmp.Or(reference.Namespace, job.Namespace), Name: reference.Name}
}

// podSpec decodes the pod spec of a template.
func podSpec(name string, template v2alpha1.RawObject) (*corev1.PodSpec, error) {
	if len(template.Raw) == 0 {
		return &corev1.PodSpec{}, nil
	}
	if err := quantity.CheckTemplate(template.Raw); err != nil {
		return nil, fmt.Errorf("%s: %w", name, err)
	}
	var decoded corev1.PodTemplateSpec
	if err := json.Unmarshal(template.Raw, &decoded); err != nil {
		return nil, fmt.Errorf("%s does not decode: %w", name, err)
	}
	return &decoded.Spec, nil
}
