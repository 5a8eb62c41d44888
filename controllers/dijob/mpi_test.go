// Copyright The DI Orchestrator Authors.
// SPDX-License-Identifier: Apache-2.0

package dijob

import (
	"context"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	"golang.org/x/crypto/ssh"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"opendilab.org/di-orchestrator/apis/v2alpha1"
	"opendilab.org/di-orchestrator/internal/names"
	"opendilab.org/di-orchestrator/test/testkit/specs"
)

var _ = Describe("A job of MPI", func() {
	It("has keys of ssh for each attempt, and none after its end", func(ctx SpecContext) {
		s := newSpace(ctx)
		s.submit(ctx, v2alpha1.DIJobSpec{
			ClusterSpec: []v2alpha1.ClusterSpec{v2alpha1.ClusterSpecMPI},
			Tasks: []v2alpha1.Task{
				{Type: v2alpha1.TaskTypeNone, Name: "launcher", Template: podTemplate()},
				{Type: v2alpha1.TaskTypeNone, Name: "worker", Replicas: ptr.To(int32(2)), Template: podTemplate()},
			},
		})
		s.start(ctx)
		first := s.expectKeys(ctx)

		By("restarting")
		s.end(ctx, "job-launcher-0", 1)
		s.start(ctx)
		second := s.expectKeys(ctx)
		Expect(second.Name).NotTo(Equal(first.Name))
		Expect(second.Data).NotTo(Equal(first.Data))

		By("ending")
		s.end(ctx, "job-launcher-0", 0)
		Expect(s.settle(ctx)).To(Succeed())
		Expect(s.keys(ctx)).To(BeEmpty())
	})
})

// keys returns the Secrets of the job.
func (s *space) keys(ctx context.Context) []corev1.Secret {
	GinkgoHelper()
	var found corev1.SecretList
	Expect(shared.api.List(ctx, &found, client.InNamespace(s.name), client.MatchingLabels(names.WorkerJobLabels("job")))).To(Succeed())
	return found.Items
}

// expectKeys returns the only Secret of the job, which all its pods mount, and whose keys are a pair.
func (s *space) expectKeys(ctx context.Context) corev1.Secret {
	GinkgoHelper()
	found := s.keys(ctx)
	Expect(found).To(HaveLen(1))
	secret := found[0]
	Expect(metav1.IsControlledBy(&secret, s.job(ctx))).To(BeTrue())
	Expect(secret.Type).To(Equal(corev1.SecretTypeSSHAuth))
	private := specs.Must(ssh.ParsePrivateKey(secret.Data[corev1.SSHAuthPrivateKey]))
	Expect(ssh.MarshalAuthorizedKey(private.PublicKey())).To(Equal(secret.Data["ssh-publickey"]))
	for _, pod := range s.pods(ctx) {
		Expect(pod.Spec.Volumes).To(ContainElement(HaveField("VolumeSource.Secret", HaveField("SecretName", secret.Name))), pod.Name)
	}
	return secret
}
