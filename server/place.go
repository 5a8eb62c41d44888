// Copyright The DI Orchestrator Authors.
// SPDX-License-Identifier: Apache-2.0

package server

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
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"opendilab.org/di-orchestrator/apis/v2alpha1"
	"opendilab.org/di-orchestrator/internal/membership"
	"opendilab.org/di-orchestrator/internal/names"
	"opendilab.org/di-orchestrator/internal/quantity"
)

// place knows the ports of one job's pods for one request: of a pod that
// exists its own, else those of the template that it will be made from.
type place struct {
	membership.Place
	pods      map[string]*corev1.Pod
	template  func(names.ReplicaType) (*corev1.PodSpec, error)
	defaults  map[names.ReplicaType]int32
	templates error
}

// placeOf returns the place of a job's pods.
func (s *Server) placeOf(ctx context.Context, job *v2alpha1.DIJob) (*place, error) {
	pods, err := s.podsOf(ctx, job)
	if err != nil {
		return nil, err
	}
	p := &place{
		pods:     pods,
		defaults: map[names.ReplicaType]int32{},
		template: func(role names.ReplicaType) (*corev1.PodSpec, error) { return s.template(ctx, job, role) },
	}
	p.Place = membership.Place{Namespace: job.Namespace, Job: job.Name, Ports: p.port}
	return p, nil
}

// err returns why ports that were asked for could not be told.
func (p *place) err() error {
	return p.templates
}

func (p *place) port(pod string, role names.ReplicaType) int32 {
	if existing, found := p.pods[pod]; found {
		return names.DIPort(&existing.Spec, role)
	}
	if port, known := p.defaults[role]; known {
		return port
	}
	spec, err := p.template(role)
	if err != nil {
		p.templates = errors.Join(p.templates, err)
		spec = &corev1.PodSpec{}
	}
	p.defaults[role] = names.DIPort(spec, role)
	return p.defaults[role]
}

// podURLs returns the addresses of the replicas that exist, oldest first.
func (p *place) podURLs() membership.URLs {
	urls := membership.URLs{Collectors: []string{}, Learners: []string{}}
	for _, pod := range p.existing() {
		role := roleOf(pod)
		url := names.ReplicaURL(pod.Name, pod.Namespace, p.port(pod.Name, role))
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

// ownURLs returns the addresses of the DDP learners of an aggregator as it was
// made to have them, which its pod remembers. One that an earlier release made
// remembers nothing: its member tells, and once it is on no list the pods that
// there are.
func (p *place) ownURLs(aggregator *foundReplica, name string, gpu corev1.ResourceName) []string {
	if aggregator.pod != nil {
		if unit, told := names.UnitOf(aggregator.pod.Annotations); told {
			p.defaults[names.ReplicaTypeDDPLearner] = unit.Port
			return p.DDPURLs(&v2alpha1.Member{DDPGPUs: unit.GPUs}, name)
		}
	}
	if aggregator.member != nil {
		return p.DDPURLs(aggregator.member, name)
	}
	return p.ddpPodURLs(aggregator.pod, gpu)
}

// ddpPodURLs returns the addresses of the DDP learners that exist of an
// aggregator that is not on the list any more, the master first. Those that are
// being deleted count, as the aggregator lives with them.
func (p *place) ddpPodURLs(aggregator *corev1.Pod, gpu corev1.ResourceName) []string {
	urls := []string{}
	for _, pod := range p.inOrder() {
		if roleOf(pod) != names.ReplicaTypeDDPLearner || !isOwnedBy(pod, aggregator) {
			continue
		}
		gpus := membership.PodGPUs(pod, gpu)
		urls = append(urls, membership.GPUURLs(pod.Name, pod.Namespace, p.port(pod.Name, roleOf(pod)), gpus)...)
	}
	return urls
}

// existing returns the pods that are not being deleted, in order.
func (p *place) existing() []*corev1.Pod {
	return slices.DeleteFunc(p.inOrder(), func(pod *corev1.Pod) bool { return pod.DeletionTimestamp != nil })
}

// inOrder returns all pods, masters of DDP learners first, then the oldest.
func (p *place) inOrder() []*corev1.Pod {
	pods := slices.Collect(maps.Values(p.pods))
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

func isOwnedBy(pod, owner *corev1.Pod) bool {
	return slices.ContainsFunc(pod.OwnerReferences, func(reference metav1.OwnerReference) bool {
		return reference.UID == owner.UID
	})
}

// template returns what a role's pods are made from. A role without a template
// has an empty one, as the ports of what exists must be told in any case.
func (s *Server) template(ctx context.Context, job *v2alpha1.DIJob, role names.ReplicaType) (*corev1.PodSpec, error) {
	if role == names.ReplicaTypeAggregator {
		config, err := s.aggregatorConfig(ctx, job, s.store.get)
		if err != nil || config == nil {
			return &corev1.PodSpec{}, err
		}
		return podSpec("spec.aggregator.template", config.Spec.Aggregator.Template)
	}
	taskType := v2alpha1.TaskTypeLearner
	if role == names.ReplicaTypeCollector {
		taskType = v2alpha1.TaskTypeCollector
	}
	task := taskOf(job, taskType)
	if task == nil {
		return &corev1.PodSpec{}, nil
	}
	return podSpec("template of task "+names.TaskName(task), task.Template)
}

// aggregatorConfig returns the AggregatorConfig of a job; nil where there is none.
func (s *Server) aggregatorConfig(ctx context.Context, job *v2alpha1.DIJob, read read) (*v2alpha1.AggregatorConfig, error) {
	key := s.aggregatorConfigKey(job)
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

func (s *Server) aggregatorConfigKey(job *v2alpha1.DIJob) types.NamespacedName {
	reference := job.Spec.AggregatorConfig
	if reference == nil {
		return s.options.AggregatorConfig
	}
	return types.NamespacedName{Namespace: cmp.Or(reference.Namespace, job.Namespace), Name: reference.Name}
}

// taskOf returns the task of a type; nil where the job has none.
func taskOf(job *v2alpha1.DIJob, taskType v2alpha1.TaskType) *v2alpha1.Task {
	for i := range job.Spec.Tasks {
		if job.Spec.Tasks[i].Type == taskType {
			return &job.Spec.Tasks[i]
		}
	}
	return nil
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
