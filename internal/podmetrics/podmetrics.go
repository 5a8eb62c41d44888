// Copyright The DI Orchestrator Authors.
// SPDX-License-Identifier: Apache-2.0

// Package podmetrics reads from the metrics API what pods and nodes use.
package podmetrics

import (
	"context"
	"errors"
	"fmt"
	"strings"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/api/resource"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"opendilab.org/di-orchestrator/internal/quantity"
)

// ErrAbsent says that the cluster does not serve the metrics API.
var ErrAbsent = errors.New("the cluster does not serve metrics.k8s.io: install metrics-server")

// Pod is what a pod uses.
type Pod struct {
	Namespace, Name string
	Containers      map[string]Used
}

// Used is what a container or a node uses: millicores and bytes.
type Used struct {
	CPU, Memory int64
}

// Kind is the kind of a list of pods in the metrics API.
func Kind() schema.GroupVersionKind {
	return schema.GroupVersionKind{Group: "metrics.k8s.io", Version: "v1beta1", Kind: "PodMetricsList"}
}

// NodeKind is the kind of a node in the metrics API, whose resource is nodes.
func NodeKind() schema.GroupVersionKind { return Kind().GroupVersion().WithKind("NodeMetrics") }

// List returns what pods use. The reader has no cache, since nothing can be watched.
func List(ctx context.Context, from client.Reader, options ...client.ListOption) ([]Pod, error) {
	list, err := read(ctx, from, Kind(), options...)
	if err != nil {
		return nil, err
	}
	pods := make([]Pod, 0, len(list.Items))
	for i := range list.Items {
		pod, err := podOf(&list.Items[i])
		if err != nil {
			return nil, fmt.Errorf("reading the PodMetrics of pod %s: %w", list.Items[i].GetName(), err)
		}
		pods = append(pods, pod)
	}
	return pods, nil
}

// ListNodes returns what nodes use, by their names.
func ListNodes(ctx context.Context, from client.Reader) (map[string]Used, error) {
	list, err := read(ctx, from, NodeKind().GroupVersion().WithKind(NodeKind().Kind+"List"))
	if err != nil {
		return nil, err
	}
	nodes := make(map[string]Used, len(list.Items))
	for i := range list.Items {
		item := &list.Items[i]
		usage, _, err := unstructured.NestedStringMap(item.Object, "usage")
		if err != nil {
			return nil, fmt.Errorf("reading the NodeMetrics of node %s: %w", item.GetName(), err)
		}
		nodes[item.GetName()] = usedOf(usage)
	}
	return nodes, nil
}

// read reads a list of the metrics API.
func read(ctx context.Context, from client.Reader, kind schema.GroupVersionKind, options ...client.ListOption) (*unstructured.UnstructuredList, error) {
	list := &unstructured.UnstructuredList{}
	list.SetGroupVersionKind(kind)
	err := from.List(ctx, list, options...)
	switch {
	case meta.IsNoMatchError(err) || apierrors.IsNotFound(err) || apierrors.IsServiceUnavailable(err):
		return nil, ErrAbsent
	case err != nil:
		return nil, fmt.Errorf("listing %s: %w", strings.TrimSuffix(kind.Kind, "List"), err)
	}
	return list, nil
}

func podOf(item *unstructured.Unstructured) (Pod, error) {
	var read struct {
		Containers []struct {
			Name  string            `json:"name"`
			Usage map[string]string `json:"usage"`
		} `json:"containers"`
	}
	if err := runtime.DefaultUnstructuredConverter.FromUnstructured(item.Object, &read); err != nil {
		return Pod{}, err
	}
	pod := Pod{Namespace: item.GetNamespace(), Name: item.GetName(), Containers: map[string]Used{}}
	for _, each := range read.Containers {
		pod.Containers[each.Name] = usedOf(each.Usage)
	}
	return pod, nil
}

func usedOf(usage map[string]string) Used {
	return Used{CPU: amount(usage["cpu"], true), Memory: amount(usage["memory"], false)}
}

// amount parses a quantity; 0 if it is none.
func amount(text string, isMilli bool) int64 {
	if quantity.Check(text) != nil {
		return 0
	}
	parsed, err := resource.ParseQuantity(text)
	switch {
	case err != nil || parsed.Sign() < 0:
		return 0
	case isMilli:
		return parsed.MilliValue()
	}
	return parsed.Value()
}

// Most returns the usage of the container that uses the most memory, which is the main one.
func (p *Pod) Most() Used {
	var most Used
	for _, used := range p.Containers {
		if used.Memory >= most.Memory {
			most = used
		}
	}
	return most
}
