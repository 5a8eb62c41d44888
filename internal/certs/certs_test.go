// Copyright The DI Orchestrator Authors.
// SPDX-License-Identifier: Apache-2.0

package certs

import (
	"context"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	clocktesting "k8s.io/utils/clock/testing"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"

	"opendilab.org/di-orchestrator/test/testkit/expect"
)

func secretName() types.NamespacedName {
	return types.NamespacedName{Namespace: "di-system", Name: "ca"}
}

func newClock() *clocktesting.FakeClock {
	return clocktesting.NewFakeClock(time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC))
}

func load(t *testing.T, api client.Client, clk *clocktesting.FakeClock) *Authority {
	t.Helper()
	authority, err := LoadOrCreate(t.Context(), api, secretName(), clk)
	expect.NoError(t, err)
	return authority
}

func TestWhoeverComesSecondTrustsTheFirst(t *testing.T) {
	t.Parallel()
	api, clk := fake.NewFakeClient(), newClock()
	first, second := load(t, api, clk), load(t, api, clk)
	leaf, err := NewLeaf(second, []string{"a.b.svc", "127.0.0.1"}, clk)
	expect.NoError(t, err)
	if err := leaf.VerifiedBy(first.Bundle()); err != nil {
		t.Error(err)
	}
}

func TestTheLoserOfTheRaceReadsTheWinners(t *testing.T) {
	t.Parallel()
	clk := newClock()
	data, err := newAuthority(clk.Now())
	expect.NoError(t, err)
	raced := false
	api := fake.NewClientBuilder().WithInterceptorFuncs(interceptor.Funcs{
		Create: func(ctx context.Context, api client.WithWatch, object client.Object, options ...client.CreateOption) error {
			if !raced {
				raced = true
				winner := &corev1.Secret{ObjectMeta: metav1.ObjectMeta{Namespace: object.GetNamespace(), Name: object.GetName()}, Data: data}
				if err := api.Create(ctx, winner); err != nil {
					return err
				}
			}
			return api.Create(ctx, object, options...)
		},
	}).Build()
	if got := load(t, api, clk); string(got.Bundle()) != string(data[corev1.TLSCertKey]) {
		t.Error("the loser does not use the winner's authority")
	}
}

func TestAnAuthorityThatNobodyCanUseIsReplaced(t *testing.T) {
	t.Parallel()
	for name, spoil := range map[string]func(*corev1.Secret, *clocktesting.FakeClock){
		"expired":         func(_ *corev1.Secret, clk *clocktesting.FakeClock) { clk.Step(authorityLife + time.Hour) },
		"about to expire": func(_ *corev1.Secret, clk *clocktesting.FakeClock) { clk.Step(authorityLife - leafLife) },
		"corrupt": func(secret *corev1.Secret, _ *clocktesting.FakeClock) {
			secret.Data[corev1.TLSPrivateKeyKey] = []byte("x")
		},
		"empty": func(secret *corev1.Secret, _ *clocktesting.FakeClock) { secret.Data = nil },
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			api, clk := fake.NewFakeClient(), newClock()
			old := load(t, api, clk)
			secret := &corev1.Secret{}
			expect.NoError(t, api.Get(t.Context(), secretName(), secret))
			spoil(secret, clk)
			expect.NoError(t, api.Update(t.Context(), secret))
			replaced := load(t, api, clk)
			if string(replaced.Bundle()) == string(old.Bundle()) {
				t.Error("the unusable authority is kept")
			}
			if string(load(t, api, clk).Bundle()) != string(replaced.Bundle()) {
				t.Error("the new authority is not stored")
			}
		})
	}
}

func TestALeafIsRenewedBeforeItExpires(t *testing.T) {
	t.Parallel()
	clk := newClock()
	authority := load(t, fake.NewFakeClient(), clk)
	leaf, err := NewLeaf(authority, []string{"a.b.svc"}, clk)
	expect.NoError(t, err)
	serial := func() string {
		certificate, err := leaf.GetCertificate(nil)
		expect.NoError(t, err)
		return certificate.Leaf.SerialNumber.String()
	}
	first := serial()
	clk.Step(leafLife / 2)
	if serial() != first {
		t.Error("the leaf was renewed at half its life")
	}
	clk.Step(leafLife / 4)
	if serial() == first {
		t.Error("the leaf was not renewed at three quarters of its life")
	}
	clk.Step(10 * leafLife)
	if err := leaf.VerifiedBy(authority.Bundle()); err != nil {
		t.Errorf("after a long sleep: %v", err)
	}
}

func TestWhatIsIssuedIsValidByAClockThatIsAnHourBehindOrAhead(t *testing.T) {
	t.Parallel()
	clk := newClock()
	authority := load(t, fake.NewFakeClient(), clk)
	leaf, err := NewLeaf(authority, []string{"127.0.0.1"}, clk)
	expect.NoError(t, err)
	for _, offset := range []time.Duration{-time.Hour, time.Hour} {
		other := clocktesting.NewFakeClock(clk.Now().Add(offset))
		reader := &Leaf{authority: authority, hosts: leaf.hosts, clock: other, current: leaf.current, renewAt: leaf.renewAt}
		if err := reader.VerifiedBy(authority.Bundle()); err != nil {
			t.Errorf("by a clock that is %s ahead: %v", offset, err)
		}
	}
}

func TestALeafIsNotVerifiedByAnotherAuthority(t *testing.T) {
	t.Parallel()
	clk := newClock()
	leaf, err := NewLeaf(load(t, fake.NewFakeClient(), clk), []string{"a.b.svc"}, clk)
	expect.NoError(t, err)
	if err := leaf.VerifiedBy(load(t, fake.NewFakeClient(), clk).Bundle()); err == nil {
		t.Error("another authority verifies the leaf")
	}
	if err := leaf.VerifiedBy([]byte("no PEM")); err == nil {
		t.Error("a bundle without a certificate verifies the leaf")
	}
}
