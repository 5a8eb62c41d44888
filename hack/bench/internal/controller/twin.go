// Copyright The DI Orchestrator Authors.
// SPDX-License-Identifier: Apache-2.0

package controller

import (
	"context"
	"errors"
	"fmt"
	"strings"

	"golang.org/x/sync/errgroup"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"opendilab.org/di-orchestrator/apis/v2alpha1"
	"opendilab.org/di-orchestrator/hack/bench/internal/harness"
	"opendilab.org/di-orchestrator/internal/names"
)

// plainParallelism is how many pods of one job the plain client writes at a
// time, and pageSize how many objects are read at a time.
const (
	plainParallelism = 16
	pageSize         = 100
)

// twin is a job with all that the operator made of it, to be recreated by the
// plain client: the same bytes but for namespace and UIDs.
type twin struct {
	job     *v2alpha1.DIJob
	service *corev1.Service
	pods    []*corev1.Pod
}

// twinsOf reads what the operator made of jobs.
func (w *world) twinsOf(ctx context.Context, jobs []*v2alpha1.DIJob) ([]*twin, error) {
	w.Say("reading what the operator made")
	byJob := make(map[string]*twin, len(jobs))
	twins := make([]*twin, len(jobs))
	for i, job := range jobs {
		sent := harness.WorkerLedJob(plainNamespace, job.Name, 0)
		sent.Spec.Tasks[0].Replicas = job.Spec.Tasks[0].Replicas
		twins[i] = &twin{job: sent}
		byJob[job.Name] = twins[i]
	}
	same := sharer{}
	err := w.pages(ctx, &corev1.PodList{}, func(list client.ObjectList) error {
		pods, ok := list.(*corev1.PodList)
		if !ok {
			return errors.New("no pods in a list of pods")
		}
		for i := range pods.Items {
			// A pod or service of the warm-up may have been created again by a stale cache.
			if of := byJob[pods.Items[i].Labels[names.LabelJob]]; of != nil {
				of.pods = append(of.pods, same.sentPod(&pods.Items[i]))
			}
		}
		return nil
	})
	if err != nil {
		return nil, err
	}
	return twins, w.pages(ctx, &corev1.ServiceList{}, func(list client.ObjectList) error {
		services, ok := list.(*corev1.ServiceList)
		if !ok {
			return errors.New("no services in a list of services")
		}
		for i := range services.Items {
			if of := byJob[services.Items[i].Labels[names.LabelJob]]; of != nil {
				of.service = sentService(&services.Items[i])
			}
		}
		return nil
	})
}

// pages reads the objects of the operator's namespace, so many at a time.
func (w *world) pages(ctx context.Context, list client.ObjectList, each func(client.ObjectList) error) error {
	page := &client.ListOptions{Namespace: oursNamespace, Limit: pageSize}
	for {
		if err := w.API.List(ctx, list, page); err != nil {
			return fmt.Errorf("reading what the operator made: %w", err)
		}
		if err := each(list); err != nil {
			return err
		}
		if page.Continue = list.GetContinue(); page.Continue == "" {
			return nil
		}
	}
}

// sharer keeps one of equal long texts, as the pods of a large job are the same
// for the most part.
type sharer map[string]string

// sentPod is a pod of the operator as it was sent, with what the API server
// defaulted, in the other namespace.
func (s sharer) sentPod(pod *corev1.Pod) *corev1.Pod {
	sent := &corev1.Pod{ObjectMeta: sentMeta(pod), Spec: pod.Spec}
	for i := range sent.Spec.Containers {
		env := sent.Spec.Containers[i].Env
		for j := range env {
			moved := strings.ReplaceAll(env[j].Value, oursNamespace, plainNamespace)
			if kept, ok := s[moved]; ok {
				moved = kept
			}
			s[moved] = moved
			env[j].Value = moved
		}
	}
	return sent
}

func sentService(service *corev1.Service) *corev1.Service {
	sent := &corev1.Service{ObjectMeta: sentMeta(service)}
	sent.Spec = corev1.ServiceSpec{
		ClusterIP: corev1.ClusterIPNone, Selector: service.Spec.Selector, Ports: service.Spec.Ports,
		PublishNotReadyAddresses: service.Spec.PublishNotReadyAddresses,
	}
	return sent
}

// sentMeta is the part of an object's metadata that is not the API server's.
func sentMeta(object client.Object) metav1.ObjectMeta {
	return metav1.ObjectMeta{
		Namespace: plainNamespace, Name: object.GetName(), Labels: object.GetLabels(),
		Annotations: object.GetAnnotations(), OwnerReferences: object.GetOwnerReferences(),
	}
}

// plainClient writes what the operator writes, as many objects at a time and at
// its rate, and decides nothing.
type plainClient struct{ api client.Client }

func (w *world) newPlainClient(qps float32, burst int) (*plainClient, error) {
	api, err := w.ClientOf(userPlain, qps, burst)
	return &plainClient{api}, err
}

// createAll submits the jobs of twins, and creates the service and the pods of each
// once it exists.
func (p *plainClient) createAll(ctx context.Context, w *world, twins []*twin) error {
	jobs := make([]*v2alpha1.DIJob, len(twins))
	for i := range twins {
		jobs[i] = twins[i].job
	}
	submitted := make(chan int, len(jobs))
	group, ctx := errgroup.WithContext(ctx)
	group.Go(func() error {
		defer close(submitted)
		return w.submitAll(ctx, jobs, func(index int) { submitted <- index })
	})
	for range defaultWorkers {
		group.Go(func() error {
			for index := range submitted {
				if err := p.create(ctx, twins[index]); err != nil {
					return err
				}
			}
			return nil
		})
	}
	return group.Wait()
}

// create creates the service of a job, then its pods.
func (p *plainClient) create(ctx context.Context, of *twin) error {
	own := func(object client.Object) client.Object {
		owners := object.GetOwnerReferences()
		for i := range owners {
			owners[i].UID = of.job.UID
		}
		object.SetOwnerReferences(owners)
		return object
	}
	if err := p.api.Create(ctx, own(of.service)); err != nil {
		return fmt.Errorf("the plain client creating service %s: %w", of.service.Name, err)
	}
	group, ctx := errgroup.WithContext(ctx)
	group.SetLimit(plainParallelism)
	for _, pod := range of.pods {
		group.Go(func() error {
			if err := p.api.Create(ctx, own(pod)); err != nil {
				return fmt.Errorf("the plain client creating pod %s: %w", pod.Name, err)
			}
			return nil
		})
	}
	return group.Wait()
}
