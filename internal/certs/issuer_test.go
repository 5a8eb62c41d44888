// Copyright The DI Orchestrator Authors.
// SPDX-License-Identifier: Apache-2.0

package certs

import (
	"crypto/tls"
	"testing"
	"time"

	"github.com/go-logr/logr/testr"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	clocktesting "k8s.io/utils/clock/testing"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"

	"opendilab.org/di-orchestrator/internal/certs/record"
	"opendilab.org/di-orchestrator/test/testkit/expect"
)

func newIssuer(t *testing.T, api client.Client, clk *clocktesting.FakeClock) *Issuer {
	t.Helper()
	return &Issuer{
		API:       api,
		Authority: secretName(),
		Secret:    types.NamespacedName{Namespace: "di-system", Name: "leaf"},
		Bundle:    types.NamespacedName{Namespace: "di-system", Name: "trust"},
		Hosts:     []string{"di-server.di-system", "di-server.di-system.svc"},
		Clock:     clk,
		Log:       testr.New(t),
	}
}

// keepAuthority creates or replaces the authority like the webhooks.
func keepAuthority(t *testing.T, issuer *Issuer) {
	t.Helper()
	if issuer.Authority.Name == "" {
		return
	}
	if _, err := LoadOrCreate(t.Context(), issuer.API, issuer.Authority, issuer.Clock); err != nil {
		t.Fatal(err)
	}
}

// issued issues once, and returns the serving certificate and the clients' CA bundle.
func issued(t *testing.T, issuer *Issuer) (*tls.Certificate, []byte) {
	t.Helper()
	keepAuthority(t, issuer)
	expect.NoError(t, issuer.Issue(t.Context()))
	reader := &Issued{API: issuer.API, Secret: issuer.Secret, Clock: issuer.Clock, Log: issuer.Log}
	expect.NoError(t, reader.Read(t.Context()))
	served, err := reader.GetCertificate(nil)
	expect.NoError(t, err)
	return served, trusted(t, issuer)
}

func TestClientsThatTrustTheBundleAcceptWhatIsIssuedForItsWholeLife(t *testing.T) {
	t.Parallel()
	clk := newClock()
	issuer := newIssuer(t, fake.NewFakeClient(), clk)
	first, bundle := issued(t, issuer)
	if again, _ := issued(t, issuer); again.Leaf.SerialNumber.Cmp(first.Leaf.SerialNumber) != 0 {
		t.Error("a certificate that is not due was reissued")
	}
	for range 60 {
		clk.Step(12 * time.Hour)
		served, _ := issued(t, issuer)
		expect.NoError(t, verify(served.Leaf, bundle, nil, issuer.Hosts, clk.Now().Add(issueInterval)))
	}
}

func TestACertificateThatIsOfNoUseIsIssuedAnew(t *testing.T) {
	t.Parallel()
	for name, spoil := range map[string]func(*Issuer, *corev1.Secret){
		"other hosts":      func(issuer *Issuer, _ *corev1.Secret) { issuer.Hosts = []string{"other.di-system"} },
		"of others' trust": func(_ *Issuer, secret *corev1.Secret) { secret.Data[BundleKey] = nil },
		"corrupt":          func(_ *Issuer, secret *corev1.Secret) { secret.Data[corev1.TLSPrivateKeyKey] = []byte("x") },
		"empty":            func(_ *Issuer, secret *corev1.Secret) { secret.Data = nil },
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			issuer := newIssuer(t, fake.NewFakeClient(), newClock())
			before, _ := issued(t, issuer)
			var secret corev1.Secret
			expect.NoError(t, issuer.API.Get(t.Context(), issuer.Secret, &secret))
			spoil(issuer, &secret)
			expect.NoError(t, issuer.API.Update(t.Context(), &secret))
			after, bundle := issued(t, issuer)
			if after.Leaf.SerialNumber.Cmp(before.Leaf.SerialNumber) == 0 {
				t.Error("it was left as it was")
			}
			if err := verify(after.Leaf, bundle, nil, issuer.Hosts, issuer.Clock.Now()); err != nil {
				t.Error(err)
			}
		})
	}
}

// Servers and clients read at different times. A client that has read the bundle within the last
// ten minutes must accept the certificate of every server.
func TestNoClientIsCutOffWhileTheAuthorityIsReplaced(t *testing.T) {
	t.Parallel()
	clk := newClock()
	issuer := newIssuer(t, fake.NewFakeClient(), clk)
	_, first := issued(t, issuer)
	clk.Step(24 * time.Hour)
	// One server reads in each minute.
	readers := make([]*Issued, int(readInterval.Minutes()))
	var bundles [][]byte
	const minutes = 90
	for minute := range minutes {
		if minute == 7 {
			requestRotation(t, issuer)
		}
		if minute%int(issueInterval.Minutes()) == 0 {
			issued(t, issuer)
		}
		reader := &Issued{API: issuer.API, Secret: issuer.Secret, Clock: clk, Log: issuer.Log}
		expect.NoError(t, reader.Read(t.Context()))
		readers[minute%len(readers)] = reader
		bundles = append(bundles, trusted(t, issuer))
		for _, bundle := range bundles[max(0, len(bundles)-int(trustTime.Minutes())):] {
			acceptsAll(t, issuer, bundle, readers)
		}
		clk.Step(time.Minute)
	}
	last := bundles[minutes-1]
	if all, err := splitBundle(last); err != nil || len(all) != 1 || string(last) == string(first) {
		t.Errorf("%d authorities are trusted at the end, want the new one alone (%v)", len(all), err)
	}
}

// An issuer that renews its authority gives clients no time to learn the new one.
func TestWhoTrustedWhatOthersIssuedBeforeDoesSoUntilItIsFollowed(t *testing.T) {
	t.Parallel()
	clk := newClock()
	others := newIssuer(t, fake.NewFakeClient(), clk)
	_, first := issued(t, others)
	issuer := newIssuer(t, others.API, clk)
	issuer.Authority = types.NamespacedName{}
	clk.Step(24 * time.Hour)

	requestRotation(t, others)
	authority, err := LoadOrCreate(t.Context(), others.API, others.Authority, clk)
	expect.NoError(t, err)
	var secret corev1.Secret
	expect.NoError(t, others.API.Get(t.Context(), others.Secret, &secret))
	expect.NoError(t, others.issueLeaf(t.Context(), true, &secret, authority))
	served, both := issued(t, issuer)
	for _, bundle := range [][]byte{both, authority.Bundle()} {
		if err := verify(served.Leaf, bundle, nil, others.Hosts, clk.Now()); err != nil {
			t.Error(err)
		}
	}
	if all, err := splitBundle(both); err != nil || len(all) != 2 {
		t.Errorf("%d authorities are trusted at first, want both (%v)", len(all), err)
	}
	clk.Step(followTime)
	if _, last := issued(t, issuer); string(last) != string(authority.Bundle()) || string(last) == string(first) {
		t.Error("the authority before is trusted still")
	}
}

// requestRotation requests a rotation.
func requestRotation(t *testing.T, issuer *Issuer) {
	t.Helper()
	var secret corev1.Secret
	expect.NoError(t, issuer.API.Get(t.Context(), issuer.Authority, &secret))
	metav1.SetMetaDataAnnotation(&secret.ObjectMeta, record.AnnotationRotate, "now")
	expect.NoError(t, issuer.API.Update(t.Context(), &secret))
}

// trusted returns the published CA bundle.
func trusted(t *testing.T, issuer *Issuer) []byte {
	t.Helper()
	var trust corev1.ConfigMap
	expect.NoError(t, issuer.API.Get(t.Context(), issuer.Bundle, &trust))
	return []byte(trust.Data[BundleKey])
}

// acceptsAll checks that a client of a bundle accepts the certificate of each reader.
func acceptsAll(t *testing.T, issuer *Issuer, bundle []byte, readers []*Issued) {
	t.Helper()
	for _, reader := range readers {
		if reader == nil {
			continue
		}
		served, err := reader.GetCertificate(nil)
		expect.NoError(t, err)
		if err := verify(served.Leaf, bundle, nil, issuer.Hosts, issuer.Clock.Now()); err != nil {
			t.Fatalf("%s: %v", issuer.Clock.Now(), err)
		}
	}
}

func TestWhatSomebodyElseMadeIsLeftAlone(t *testing.T) {
	t.Parallel()
	issuer := newIssuer(t, fake.NewFakeClient(), newClock())
	meta := func(name types.NamespacedName) metav1.ObjectMeta {
		return metav1.ObjectMeta{Namespace: name.Namespace, Name: name.Name}
	}
	secret := &corev1.Secret{ObjectMeta: meta(issuer.Secret), Data: map[string][]byte{"tls.crt": []byte("theirs")}}
	trust := &corev1.ConfigMap{ObjectMeta: meta(issuer.Bundle), Data: map[string]string{BundleKey: "theirs"}}
	for _, object := range []client.Object{secret, trust} {
		expect.NoError(t, issuer.API.Create(t.Context(), object))
	}
	keepAuthority(t, issuer)
	expect.NoError(t, issuer.Issue(t.Context()))
	for _, object := range []client.Object{secret, trust} {
		version := object.GetResourceVersion()
		expect.NoError(t, issuer.API.Get(t.Context(), client.ObjectKeyFromObject(object), object))
		if object.GetResourceVersion() != version {
			t.Errorf("%T was written", object)
		}
	}
}

func TestNothingIsServedBeforeACertificateIsIssued(t *testing.T) {
	t.Parallel()
	clk := newClock()
	reader := &Issued{API: fake.NewFakeClient(), Secret: secretName(), Clock: clk, Log: testr.New(t)}
	if err := reader.Read(t.Context()); err == nil {
		t.Error("got a certificate from nowhere")
	}
	if _, err := reader.GetCertificate(nil); err == nil {
		t.Error("serves a certificate from nowhere")
	}
}
