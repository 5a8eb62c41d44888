// Copyright The DI Orchestrator Authors.
// SPDX-License-Identifier: Apache-2.0

package certs

import (
	"bytes"
	"slices"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	clocktesting "k8s.io/utils/clock/testing"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"

	"opendilab.org/di-orchestrator/test/testkit/expect"
)

// keptData returns a Secret's data with a certificate for the hosts, signed by an authority of its
// own.
func keptData(t *testing.T, clk *clocktesting.FakeClock, hosts ...string) map[string][]byte {
	t.Helper()
	authority := load(t, fake.NewFakeClient(), clk)
	signed, err := authority.sign(hosts, clk.Now())
	expect.NoError(t, err)
	data, err := encode(signed, authority)
	expect.NoError(t, err)
	return data
}

func TestWhatIsWrongWithASecretIsNamedByItsKey(t *testing.T) {
	t.Parallel()
	clk := newClock()
	good, other := keptData(t, clk, "a.b.svc"), keptData(t, clk, "a.b.svc")
	for name, tc := range map[string]struct {
		key   string
		value []byte
		want  string
	}{
		"nothing is wrong":            {},
		"no certificate":              {key: corev1.TLSCertKey, want: "Secret di-system/tls has nothing under tls.crt"},
		"no key":                      {key: corev1.TLSPrivateKeyKey, want: "Secret di-system/tls has nothing under tls.key"},
		"no authority":                {key: BundleKey, want: "Secret di-system/tls has nothing under ca.crt"},
		"a certificate that is none":  {key: corev1.TLSCertKey, value: []byte("x"), want: "Secret di-system/tls: tls.crt: it holds no certificate"},
		"an authority that is none":   {key: BundleKey, value: []byte("x"), want: "Secret di-system/tls: ca.crt: it holds no certificate"},
		"the key of another":          {key: corev1.TLSPrivateKeyKey, value: other[corev1.TLSPrivateKeyKey], want: "Secret di-system/tls: tls.key is not the key of tls.crt"},
		"the authority of another":    {key: BundleKey, value: other[BundleKey], want: "Secret di-system/tls: tls.crt, by the authority of ca.crt: the serving certificate for a.b.svc"},
		"a certificate of other host": {key: "all", want: "Secret di-system/tls: tls.crt, by the authority of ca.crt: the serving certificate for a.b.svc"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			secret := &corev1.Secret{ObjectMeta: metav1.ObjectMeta{Namespace: "di-system", Name: "tls"}, Data: map[string][]byte{}}
			for key, value := range good {
				secret.Data[key] = value
			}
			switch tc.key {
			case "":
			case "all":
				secret.Data = keptData(t, clk, "c.d.svc")
			default:
				secret.Data[tc.key] = tc.value
			}
			kept := &Kept{
				API: fake.NewClientBuilder().WithObjects(secret).Build(), Secret: types.NamespacedName{Namespace: "di-system", Name: "tls"},
				Hosts: []string{"a.b.svc"}, Clock: clk,
			}
			serving, err := kept.Next(t.Context(), nil)
			switch {
			case tc.want == "" && err != nil:
				t.Errorf("got error %v, want none", err)
			case tc.want == "" && serving.Verify() != nil:
				t.Errorf("what is served does not verify: %v", serving.Verify())
			case tc.want != "" && (err == nil || !strings.Contains(err.Error(), tc.want)):
				t.Errorf("got error %v, want one with %q", err, tc.want)
			}
		})
	}
}

func TestWhatIsPublishedOverAnotherBundle(t *testing.T) {
	t.Parallel()
	clk := newClock()
	expired := load(t, fake.NewFakeClient(), clk).Bundle()
	clk.Step(authorityLife + time.Hour)
	mine, other := load(t, fake.NewFakeClient(), clk).Bundle(), load(t, fake.NewFakeClient(), clk).Bundle()
	both := slices.Concat(mine, other)
	for name, tc := range map[string]struct {
		there []byte
		drop  bool
		gone  []byte
		want  []byte
		joins bool
	}{
		"nothing":                        {want: mine},
		"what is no bundle":              {there: []byte("x"), want: mine},
		"the same":                       {there: mine, want: mine},
		"another's":                      {there: other, want: both, joins: true},
		"both, in whatever order":        {there: slices.Concat(other, mine), want: slices.Concat(other, mine)},
		"one that has expired":           {there: expired, want: mine},
		"mine and one that has expired":  {there: slices.Concat(expired, mine), want: mine},
		"both, others being dropped":     {there: both, drop: true, want: mine},
		"both, the other being given up": {there: both, gone: other, want: mine},
		"the other, which is given up":   {there: other, gone: other, want: mine},
		"mine, given up by mistake":      {there: mine, gone: mine, want: mine},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			trust := &Trust{Bundle: mine, KeepOthers: !tc.drop, Gone: tc.gone, Now: clk.Now()}
			got, stands := trust.over(tc.there)
			if !bytes.Equal(got, tc.want) || stands.joins != tc.joins {
				t.Errorf("got %+v and\n%s\nwant joins %v and\n%s", stands, got, tc.joins, tc.want)
			}
		})
	}
}

func TestOnlyTheBundleIsMadeKnownOfACertificateThatSomebodyElseKeeps(t *testing.T) {
	t.Parallel()
	clk := newClock()
	issuer := newIssuer(t, fake.NewFakeClient(), clk)
	issuer.Authority = types.NamespacedName{}
	if err := issuer.Issue(t.Context()); err == nil || !strings.Contains(err.Error(), "di-system/leaf") {
		t.Errorf("got error %v, want one that names the missing Secret", err)
	}
	data := keptData(t, clk, issuer.Hosts...)
	secret := &corev1.Secret{ObjectMeta: metav1.ObjectMeta{Namespace: issuer.Secret.Namespace, Name: issuer.Secret.Name}, Data: data}
	expect.NoError(t, issuer.API.Create(t.Context(), secret))
	served, bundle := issued(t, issuer)
	if !bytes.Equal(bundle, data[BundleKey]) {
		t.Errorf("the bundle is\n%s\nwant\n%s", bundle, data[BundleKey])
	}
	if err := verify(served.Leaf, bundle, nil, issuer.Hosts, clk.Now()); err != nil {
		t.Error(err)
	}
	var secrets corev1.SecretList
	expect.NoError(t, issuer.API.List(t.Context(), &secrets))
	if len(secrets.Items) != 1 {
		t.Errorf("there are %d Secrets, want only the one that somebody else keeps", len(secrets.Items))
	}
}
