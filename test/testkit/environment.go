// Copyright The DI Orchestrator Authors.
// SPDX-License-Identifier: Apache-2.0

package testkit

import (
	"context"
	"fmt"
	"strings"

	corev1 "k8s.io/api/core/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

// Environment returns the variables of a pod's container as a kubelet passes them to a program. It
// resolves references to ConfigMaps and to earlier variables.
func Environment(ctx context.Context, reader client.Reader, pod *corev1.Pod, container int) (map[string]string, error) {
	env := map[string]string{}
	for _, variable := range pod.Spec.Containers[container].Env {
		value := variable.Value
		for before, known := range env {
			value = strings.ReplaceAll(value, "$("+before+")", known)
		}
		if from := variable.ValueFrom; from != nil && from.ConfigMapKeyRef != nil {
			configMap := &corev1.ConfigMap{}
			key := client.ObjectKey{Namespace: pod.Namespace, Name: from.ConfigMapKeyRef.Name}
			if err := reader.Get(ctx, key, configMap); err != nil {
				return nil, fmt.Errorf("reading variable %s of pod %s: %w", variable.Name, pod.Name, err)
			}
			found, has := configMap.Data[from.ConfigMapKeyRef.Key]
			if !has {
				return nil, fmt.Errorf("ConfigMap %s has no key %s for pod %s", key, from.ConfigMapKeyRef.Key, pod.Name)
			}
			value = found
		}
		env[variable.Name] = value
	}
	return env, nil
}
