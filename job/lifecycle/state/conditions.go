// Copyright The DI Orchestrator Authors.
// SPDX-License-Identifier: Apache-2.0

package state

import (
	corev1 "k8s.io/api/core/v1"
)

// UpdateMessage keeps the message of a phase's condition up to date while it is True.
func (p *Plan) UpdateMessage(kind, message string) {
	held := p.Condition(kind)
	if held != nil && held.Status == corev1.ConditionTrue && held.Message != message {
		held.Message, held.LastUpdateTime = message, &p.in.Timestamp
	}
}
