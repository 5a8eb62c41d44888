// Copyright The DI Orchestrator Authors.
// SPDX-License-Identifier: Apache-2.0

package podwire

import (
	"google.golang.org/protobuf/encoding/protowire"
	corev1 "k8s.io/api/core/v1"

	"opendilab.org/di-orchestrator/job/podstate"
)

// message says which fields of a message remain. The numbers are those of generated.proto in
// k8s.io/api/core/v1 and k8s.io/apimachinery/pkg/apis/meta/v1. A published number never changes.
type message struct {
	// drop are fields that do not remain. keep are the only ones that remain, if there are any.
	drop, keep fieldSet
	// within are messages in fields, which lose fields of their own.
	within [fieldLimit]*message
	// named are fields with messages. Those remain whose first field has a wanted name.
	named [fieldLimit]func(name string) bool
}

// fieldLimit is above the numbers of the fields that have rules. Others remain.
const fieldLimit = 64

// fieldSet is a set of field numbers below fieldLimit.
type fieldSet uint64

func fields(numbers ...protowire.Number) fieldSet {
	var set fieldSet
	for _, number := range numbers {
		set |= 1 << number
	}
	return set
}

func (s fieldSet) has(number protowire.Number) bool { return number < fieldLimit && s>>number&1 == 1 }

// object returns what remains of an Unknown with a pod, which has a typeMeta (1) and raw (2), the pod.
func object() *message { return &message{within: [fieldLimit]*message{2: pod()}} }

// pod returns what remains of a pod: what podstate.Trim leaves, and fields that are not worth the work.
func pod() *message {
	container := &message{
		keep:  fields(1, 2, 6, 7, 8, 23, 24), // name, image, ports, env, resources, resizePolicy, restartPolicy
		named: [fieldLimit]func(string) bool{7: podstate.ReadsVariable},
	}
	status := &message{drop: fields(7, 8, 12)} // imageID, containerID, volumeMounts
	return &message{within: [fieldLimit]*message{
		1: {drop: fields(17)}, // metadata: managedFields
		2: { // spec
			drop: fields(
				6, 7, 8, 9, // dnsPolicy, nodeSelector, serviceAccountName, serviceAccount
				14, 15, 16, 18, // securityContext, imagePullSecrets, hostname, affinity
				21, 22, 23, 24, // automountServiceAccountToken, tolerations, hostAliases, priorityClassName
				25, 26, 28, 30, // priority, dnsConfig, readinessGates, enableServiceLinks
				31, 33, 34, // preemptionPolicy, topologySpreadConstraints, ephemeralContainers
			),
			within: [fieldLimit]*message{2: container, 20: container}, // containers, initContainers
			named:  [fieldLimit]func(string) bool{1: podstate.ReadsVolume},
		},
		3: { // status
			drop:   fields(5, 6, 9, 12, 13, 16),                 // hostIP, podIP, qosClass, podIPs, ephemeralContainerStatuses, hostIPs
			within: [fieldLimit]*message{8: status, 10: status}, // containerStatuses, initContainerStatuses
			named: [fieldLimit]func(string) bool{2: func(name string) bool {
				return podstate.ReadsCondition(corev1.PodConditionType(name))
			}},
		},
	}}
}
