// Copyright The DI Orchestrator Authors.
// SPDX-License-Identifier: Apache-2.0

package lifecycle

import (
	"context"
	"encoding/json"
	"strconv"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apiserver/pkg/admission"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"opendilab.org/di-orchestrator/apis/v2alpha1"
	"opendilab.org/di-orchestrator/test/testkit/expect"
	"opendilab.org/di-orchestrator/test/testkit/policies"
	"opendilab.org/di-orchestrator/webhook/validation"
)

// The accounts of the actors of a world.
const (
	operatorAccount = "system:serviceaccount:di-system:di-orchestrator-operator"
	serverAccount   = "system:serviceaccount:di-system:di-orchestrator-server"
	userAccount     = "user"
)

// change writes the job, past the webhooks and the policies.
func (w *world) change(edit func(*v2alpha1.DIJob)) {
	before := w.job.Spec.DeepCopy()
	edit(w.job)
	w.job.ResourceVersion = w.nextVersion()
	if !equality.Semantic.DeepEqual(before, &w.job.Spec) {
		w.job.Generation++
	}
}

// changeAs writes the job, or a subresource of it, as an account.
func (w *world) changeAs(account, subresource string, edit func(*v2alpha1.DIJob)) {
	w.t.Helper()
	stored, wanted := w.job.DeepCopy(), w.job.DeepCopy()
	edit(wanted)
	if subresource == "" {
		wanted.Status = *stored.Status.DeepCopy()
		wanted = w.defaulted(stored, wanted)
	} else {
		status := wanted.Status
		wanted = stored.DeepCopy()
		wanted.Status = status
	}
	w.admit(account, subresource, wanted, stored)
	w.change(func(job *v2alpha1.DIJob) { *job = *wanted })
}

// changeMembers writes the members of the job as an account.
func (w *world) changeMembers(account string, spec v2alpha1.MembershipSpec) {
	w.t.Helper()
	wanted := w.membership.DeepCopy()
	spec.DeepCopyInto(&wanted.Spec)
	w.admit(account, "", wanted, w.membership)
	w.led.recordMembers(&w.membership.Spec, &wanted.Spec, w.now)
	wanted.ResourceVersion = w.nextVersion()
	w.membership = wanted
}

func (w *world) nextVersion() string {
	w.uids++
	return strconv.Itoa(w.uids)
}

// defaulted returns an update of the job as the webhooks complete it.
func (w *world) defaulted(old, wanted *v2alpha1.DIJob) *v2alpha1.DIJob {
	w.t.Helper()
	request := &validation.Request{Raw: w.encode(wanted), OldRaw: w.encode(old)}
	err := request.Decode()
	var defaults validation.Patch
	if err == nil {
		defaults, err = validation.DefaultV2(request)
	}
	if err == nil && len(defaults) == 0 {
		return wanted
	}
	completed := &v2alpha1.DIJob{}
	if err == nil {
		var content []byte
		if content, err = json.Marshal(defaults); err == nil {
			content, err = applied(request.Raw, "", content)
		}
		if err == nil {
			err = json.Unmarshal(content, completed)
		}
	}
	if err != nil {
		w.t.Fatalf("the webhooks fail: %v", err)
	}
	wanted.Spec = completed.Spec
	return wanted
}

func (w *world) encode(job *v2alpha1.DIJob) []byte {
	job = job.DeepCopy()
	job.SetGroupVersionKind(kindOf(job))
	content, err := json.Marshal(job)
	expect.NoError(w.t, err)
	return content
}

// admit checks that no policy refuses what one of our programs writes. An object that is nil is created, or deleted.
func (w *world) admit(account, subresource string, object, old client.Object) {
	w.t.Helper()
	if w.policies == nil {
		return
	}
	write := &policies.Write{User: account, Operation: admission.Update, Subresource: subresource, Object: object, Old: old}
	switch {
	case old == nil:
		write.Operation, write.Kind = admission.Create, kindOf(object)
	case object == nil:
		write.Operation, write.Kind = admission.Delete, kindOf(old)
	default:
		write.Kind = kindOf(object)
	}
	write.Resource, _ = meta.UnsafeGuessKindToResource(write.Kind)
	refusal, err := w.policies.Refusal(context.Background(), write)
	expect.NoError(w.t, err)
	if refusal != "" {
		w.t.Fatalf("%s %s %s %s: %s", account, write.Operation, write.Resource.Resource, subresource, refusal)
	}
}

func kindOf(object client.Object) schema.GroupVersionKind {
	switch object.(type) {
	case *v2alpha1.DIJob:
		return v2alpha1.GroupVersion.WithKind("DIJob")
	case *v2alpha1.Membership:
		return v2alpha1.GroupVersion.WithKind("Membership")
	case *corev1.Pod:
		return corev1.SchemeGroupVersion.WithKind("Pod")
	case *corev1.Service:
		return corev1.SchemeGroupVersion.WithKind("Service")
	case *corev1.ConfigMap:
		return corev1.SchemeGroupVersion.WithKind("ConfigMap")
	case *corev1.Secret:
		return corev1.SchemeGroupVersion.WithKind("Secret")
	}
	return object.GetObjectKind().GroupVersionKind()
}
