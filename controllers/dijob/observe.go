// Copyright The DI Orchestrator Authors.
// SPDX-License-Identifier: Apache-2.0

package dijob

import (
	"context"
	"fmt"
	"slices"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/log"

	"opendilab.org/di-orchestrator/apis/v2alpha1"
	"opendilab.org/di-orchestrator/controllers"
	"opendilab.org/di-orchestrator/controllers/assume"
	"opendilab.org/di-orchestrator/internal/names"
	"opendilab.org/di-orchestrator/job/lifecycle"
	"opendilab.org/di-orchestrator/job/lifecycle/coordinatorled"
	"opendilab.org/di-orchestrator/job/lifecycle/sizing"
	"opendilab.org/di-orchestrator/job/lifecycle/state"
	"opendilab.org/di-orchestrator/job/lifecycle/upkeep"
	"opendilab.org/di-orchestrator/job/lifecycle/workerled/peers"
	"opendilab.org/di-orchestrator/job/queueing"
	"opendilab.org/di-orchestrator/job/workload"
)

// observe reads a job's objects from the caches. It reads unconfirmed objects live.
func (r *Reconciler) observe(ctx context.Context, job *v2alpha1.DIJob) (lifecycle.Observed, error) {
	observed := lifecycle.Observed{
		Job: job, Now: r.clock.Now(), Settings: r.options.Settings, Drain: r.options.Drain, NoAllocator: r.options.NoAllocator,
		ForceDeleteAfter: r.options.ForceDeleteAfter, History: r.options.History, ShardLabel: r.options.Shards.Label(client.ObjectKeyFromObject(job)),
	}
	var err error
	if observed.Settings.JobVersion, err = r.options.JobVersion(ctx); err != nil {
		return observed, err
	}
	if r.options.Kueue != nil && queueing.ForJob(job).Queue != "" {
		if observed.Kueue, err = r.options.Kueue(ctx); err != nil {
			return observed, err
		}
		observed.NoKueue = !observed.Kueue
	}
	assumed := r.assumed.owned.List(client.ObjectKeyFromObject(job))
	owned := []client.ListOption{
		client.InNamespace(job.Namespace),
		client.MatchingFields{controllers.OwnerIndex: job.Name},
		// A reconcile never changes observed objects.
		client.UnsafeDisableDeepCopy,
	}
	var pods corev1.PodList
	if err := r.client.List(ctx, &pods, owned...); err != nil {
		return observed, fmt.Errorf("listing the pods of job %s/%s: %w", job.Namespace, job.Name, err)
	}
	r.states.observeConflicts(&observed)
	for i := range pods.Items {
		if pod := &pods.Items[i]; isOfJob(pod, job) {
			observed.Pods = append(observed.Pods, pod)
		} else {
			observed.TakenPods[pod.Name] = leftBy(pod)
			observed.LeftBehind = append(observed.LeftBehind, pod)
		}
	}
	r.observeQueue(ctx, &observed)
	var services corev1.ServiceList
	if err := r.client.List(ctx, &services, owned...); err != nil {
		return observed, fmt.Errorf("listing the services of job %s/%s: %w", job.Namespace, job.Name, err)
	}
	for i := range services.Items {
		if service := &services.Items[i]; isOfJob(service, job) {
			observed.Services = append(observed.Services, service)
		} else {
			observed.TakenServices[service.Name] = leftBy(service)
			observed.LeftBehind = append(observed.LeftBehind, service)
		}
	}
	if err := r.observeBudget(ctx, &observed); err != nil {
		return observed, err
	}
	if !state.IsCoordinatorLed(job) {
		return observed, r.observeWorkerLed(ctx, &observed, assumed, owned)
	}
	return observed, r.observeCoordinatorLed(ctx, &observed, assumed)
}

// observeQueue reads what Kueue says about pods that wait. Without it the job says only that they wait.
func (r *Reconciler) observeQueue(ctx context.Context, observed *lifecycle.Observed) {
	if !observed.Kueue || r.workloads == nil {
		return
	}
	pod := queueing.FirstWaiting(observed.Pods)
	if pod == nil {
		return
	}
	var err error
	if observed.QueueWords, err = r.workloads.Words(ctx, pod); err != nil {
		log.FromContext(ctx).Error(err, "Cannot read why pods wait in their queue", "pod", pod.Name)
	}
}

func isOfJob(object client.Object, job *v2alpha1.DIJob) bool {
	return slices.Contains(controllers.OwnerUID(object), string(job.UID))
}

// leftBy describes a name that is still used by an object of an earlier job of the same name.
func leftBy(object client.Object) state.Taken {
	if leaving := object.GetDeletionTimestamp(); leaving != nil {
		return state.Taken{Leaving: leaving.Time}
	}
	return state.Taken{}
}

func (r *Reconciler) observeWorkerLed(ctx context.Context, observed *lifecycle.Observed, assumed assume.Objects, owned []client.ListOption) error {
	var configMaps corev1.ConfigMapList
	if err := r.client.List(ctx, &configMaps, owned...); err != nil {
		return fmt.Errorf("listing the ConfigMaps of job %s/%s: %w", observed.Job.Namespace, observed.Job.Name, err)
	}
	for i := range configMaps.Items {
		if configMap := &configMaps.Items[i]; isOfJob(configMap, observed.Job) {
			observed.ConfigMaps = append(observed.ConfigMaps, configMap)
		} else {
			// It has another name.
			observed.LeftBehind = append(observed.LeftBehind, configMap)
		}
	}
	if err := r.observeGang(ctx, observed); err != nil {
		return err
	}
	r.complete(observed, assumed)
	if err := r.findMissed(ctx, observed); err != nil {
		return err
	}
	if err := r.confirmNodes(ctx, observed); err != nil {
		return err
	}
	observed.Confirmed = true
	if err := r.observePlans(ctx, observed); err != nil {
		return err
	}
	if err := r.confirmResize(ctx, observed); err != nil {
		return err
	}
	return r.observeRightsizing(ctx, observed)
}

// confirmNodes reads live the ConfigMaps that pods wait for and that are not in the cache.
func (r *Reconciler) confirmNodes(ctx context.Context, observed *lifecycle.Observed) error {
	for _, name := range peers.FindMissingNodes(*observed) {
		key := types.NamespacedName{Namespace: observed.Job.Namespace, Name: name}
		configMap, err := controllers.Find(ctx, r.live, key, &corev1.ConfigMap{})
		if err != nil {
			return err
		}
		if configMap != nil && metav1.IsControlledBy(configMap, observed.Job) {
			observed.ConfigMaps = append(observed.ConfigMaps, configMap)
		}
	}
	return nil
}

func (r *Reconciler) observeCoordinatorLed(ctx context.Context, observed *lifecycle.Observed, assumed assume.Objects) error {
	var err error
	if err = r.observeAggregatorConfig(ctx, observed); err != nil {
		return err
	}
	key := client.ObjectKeyFromObject(observed.Job)
	if observed.Membership, err = controllers.Find(ctx, r.client, key, &v2alpha1.Membership{}); err != nil {
		return err
	}
	r.complete(observed, assumed)
	if err := r.findMissed(ctx, observed); err != nil {
		return err
	}
	if err := r.confirm(ctx, observed); err != nil {
		return err
	}
	if err := r.observePlans(ctx, observed); err != nil {
		return err
	}
	return r.observeRightsizing(ctx, observed)
}

// observeAggregatorConfig reads the job's AggregatorConfig. A config that the job may not use counts as
// missing.
func (r *Reconciler) observeAggregatorConfig(ctx context.Context, observed *lifecycle.Observed) error {
	key := r.configKey(observed.Job)
	config, err := controllers.Find(ctx, r.client, key, &v2alpha1.AggregatorConfig{})
	if err != nil {
		return err
	}
	if config != nil && !names.MayNameAggregatorConfig(observed.Job.Namespace, config, key == r.options.AggregatorConfig) {
		observed.AggregatorConfigNotShared = key.String()
		return nil
	}
	observed.AggregatorConfig = config
	return nil
}

// confirm reads live the objects that the reconcile would treat as lost or excess, or use to build a
// Membership. It reads the Membership first, because the current one decides which pods are unconfirmed.
func (r *Reconciler) confirm(ctx context.Context, observed *lifecycle.Observed) error {
	var err error
	if coordinatorled.FindUnconfirmed(*observed).Membership {
		key := client.ObjectKeyFromObject(observed.Job)
		if observed.Membership, err = controllers.Find(ctx, r.live, key, &v2alpha1.Membership{}); err != nil {
			return err
		}
		if err := r.confirmPods(ctx, observed); err != nil {
			return err
		}
	}
	observed.Confirmed = true
	return nil
}

// maxSingleReads is how many pods are read one by one. For more pods, such as those of a lost node, one
// list is faster.
const maxSingleReads = 8

func (r *Reconciler) confirmPods(ctx context.Context, observed *lifecycle.Observed) error {
	unconfirmed := coordinatorled.FindUnconfirmed(*observed)
	isUnconfirmed := func(pod *corev1.Pod) bool { return slices.Contains(unconfirmed.Pods, pod.Name) }
	if unconfirmed.AllPods {
		observed.Pods = nil
		isUnconfirmed = func(*corev1.Pod) bool { return true }
	}
	if unconfirmed.AllPods || len(unconfirmed.Pods) > maxSingleReads {
		live, err := r.livePods(ctx, observed.Job)
		if err != nil {
			return err
		}
		for _, pod := range live {
			if isUnconfirmed(pod) {
				addLive(observed, pod)
			}
		}
		return nil
	}
	for _, name := range unconfirmed.Pods {
		key := types.NamespacedName{Namespace: observed.Job.Namespace, Name: name}
		pod, err := controllers.Find(ctx, r.live, key, &corev1.Pod{})
		if err != nil {
			return err
		}
		if pod != nil {
			addLive(observed, pod)
		}
	}
	return nil
}

// addLive adds a pod that was read live to the pods of a job, or to those without an owner that were built for it.
func addLive(observed *lifecycle.Observed, pod *corev1.Pod) {
	switch job := observed.Job; {
	case metav1.IsControlledBy(pod, job), state.IsDisowned(pod, job):
		observed.Pods = append(observed.Pods, pod)
	case isStray(job, pod):
		addStray(observed, pod)
	}
}

// isStray reports whether a pod was built for a job and has no owner.
func isStray(job *v2alpha1.DIJob, pod *corev1.Pod) bool {
	return metav1.GetControllerOf(pod) == nil && workload.IsBuiltFor(job, pod)
}

// addStray adds a pod without an owner. It is looked up again later.
func addStray(observed *lifecycle.Observed, pod *corev1.Pod) {
	if observed.Strays == nil {
		observed.Strays = map[string]state.Taken{}
	}
	message := fmt.Sprintf("pod %s runs for the job and has no owner: delete it, or put back its owner reference", pod.Name)
	observed.Strays[pod.Name] = state.Taken{Message: message, Until: observed.Now.Add(lifecycle.ConflictDelay)}
}

// livePods lists the pods of a job live, and those that were built for it and have no owner. It selects them by label,
// because the API server cannot select by owner.
func (r *Reconciler) livePods(ctx context.Context, job *v2alpha1.DIJob) ([]*corev1.Pod, error) {
	var list corev1.PodList
	selected := names.JobLabels(job.Name)
	if !state.IsCoordinatorLed(job) {
		selected = names.WorkerJobLabels(job.Name)
	}
	err := r.live.List(ctx, &list, client.InNamespace(job.Namespace), client.MatchingLabels(selected))
	if err != nil {
		return nil, fmt.Errorf("listing the pods of job %s/%s live: %w", job.Namespace, job.Name, err)
	}
	var pods []*corev1.Pod
	for i := range list.Items {
		if pod := &list.Items[i]; metav1.IsControlledBy(pod, job) || state.IsDisowned(pod, job) || isStray(job, pod) {
			pods = append(pods, pod)
		}
	}
	return pods, nil
}

// observeNodes reads the nodes of pods whose deletion is stuck. It confirms a missing node live.
func (r *Reconciler) observeNodes(ctx context.Context, observed *lifecycle.Observed) error {
	for _, name := range upkeep.FindStuckNodes(*observed) {
		node, err := controllers.Find(ctx, r.client, types.NamespacedName{Name: name}, &corev1.Node{})
		if err != nil {
			return err
		}
		if node == nil {
			var list corev1.NodeList
			if err := r.live.List(ctx, &list, client.MatchingFields{metav1.ObjectNameField: name}); err != nil {
				return fmt.Errorf("looking up node %s live: %w", name, err)
			}
			if i := slices.IndexFunc(list.Items, func(node corev1.Node) bool { return node.Name == name }); i >= 0 {
				node = &list.Items[i]
			}
		}
		if observed.Nodes == nil {
			observed.Nodes = map[string]*corev1.Node{}
		}
		observed.Nodes[name] = node
	}
	return nil
}

// configKey returns the name of the AggregatorConfig that a job uses.
func (r *Reconciler) configKey(job *v2alpha1.DIJob) types.NamespacedName {
	reference := job.Spec.AggregatorConfig
	if reference == nil {
		return r.options.AggregatorConfig
	}
	key := types.NamespacedName{Namespace: reference.Namespace, Name: reference.Name}
	if key.Namespace == "" {
		key.Namespace = job.Namespace
	}
	return key
}

// confirmResize reads a resized job live, because the cache drops managed fields and the Resized Event
// names the writer. Each resize costs one read, which saves the memory of managed fields.
func (r *Reconciler) confirmResize(ctx context.Context, observed *lifecycle.Observed) error {
	if !sizing.IsResized(*observed) {
		return nil
	}
	job, err := controllers.Find(ctx, r.live, client.ObjectKeyFromObject(observed.Job), &v2alpha1.DIJob{})
	if err != nil {
		return err
	}
	// If the job no longer exists or was recreated, a watch event follows.
	if job != nil && job.UID == observed.Job.UID {
		observed.Job = job
	}
	return nil
}

// writeElastic writes the field of a stored job's spec that the scale subresource reads. The reconcile
// then has nothing else to write.
func (r *Reconciler) writeElastic(ctx context.Context, job *v2alpha1.DIJob, elastic *v2alpha1.Elastic) error {
	if elastic == nil {
		return nil
	}
	wanted := job.DeepCopy()
	wanted.Spec.Elastic = elastic
	patch := client.MergeFromWithOptions(job, client.MergeFromWithOptimisticLock{})
	if err := client.IgnoreNotFound(r.client.Patch(ctx, wanted, patch, controllers.FieldOwner)); err != nil {
		return fmt.Errorf("writing into job %s/%s which task may be resized: %w", job.Namespace, job.Name, err)
	}
	return nil
}
