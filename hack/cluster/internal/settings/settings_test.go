// Copyright The DI Orchestrator Authors.
// SPDX-License-Identifier: Apache-2.0

package settings

import (
	"net/netip"
	"strings"
	"testing"
)

func good() Settings {
	s, err := FromEnvironment(func(name string) string { return map[string]string{"HOME": "/root"}[name] }, "../..")
	if err != nil {
		panic(err)
	}
	return s
}

func TestTheEnvironmentChangesTheDefaults(t *testing.T) {
	t.Parallel()
	if got, want := good().CacheDir, "/root/.cache/di-orchestrator"; got != want {
		t.Errorf("cache %s, want %s", got, want)
	}
	environment := map[string]string{EnvStateDir: "/state", EnvCacheDir: "/cache", EnvPodCIDR: "10.1.0.0/20", EnvServiceCIDR: "10.2.0.0/20", EnvBridge: "b"}
	s, err := FromEnvironment(func(name string) string { return environment[name] }, ".")
	if err != nil {
		t.Fatal(err)
	}
	for name, got := range map[string]string{
		EnvStateDir: s.StateDir, EnvCacheDir: s.CacheDir, EnvPodCIDR: s.PodCIDR.String(), EnvServiceCIDR: s.ServiceCIDR.String(), EnvBridge: s.Bridge,
	} {
		if got != environment[name] {
			t.Errorf("%s: got %s, want %s", name, got, environment[name])
		}
	}
	environment[EnvPodCIDR] = "nonsense"
	if _, err := FromEnvironment(func(name string) string { return environment[name] }, "."); err == nil {
		t.Error("accepted a network that is none")
	}
}

func TestThePinsAreFoundFromTheRootOfTheCheckoutAndFromTheirFolder(t *testing.T) {
	t.Parallel()
	for _, folder := range []string{"../..", "../../../.."} {
		s, err := FromEnvironment(func(name string) string { return map[string]string{"HOME": "/root"}[name] }, folder)
		if err != nil || !strings.HasSuffix(s.SourceDir, "/hack/cluster") {
			t.Errorf("from %s: got %s (%v)", folder, s.SourceDir, err)
		}
	}
}

func TestEveryWrongSettingIsNamed(t *testing.T) {
	t.Parallel()
	for want, change := range map[string]func(*Settings){
		"state directory \"here\"": func(s *Settings) { s.StateDir = "here" },
		"state directory \"/\"":    func(s *Settings) { s.StateDir = "/" },
		"cache directory":          func(s *Settings) { s.CacheDir = "" },
		"at most 38":               func(s *Settings) { s.StateDir = "/" + strings.Repeat("a", 40) },
		"bridge":                   func(s *Settings) { s.Bridge = "a-name-that-is-too-long" },
		"pod CIDR":                 func(s *Settings) { s.PodCIDR = netip.MustParsePrefix("fd00::/64") },
		"service CIDR":             func(s *Settings) { s.ServiceCIDR = netip.MustParsePrefix("10.0.0.1/20") },
		"overlap":                  func(s *Settings) { s.ServiceCIDR = netip.MustParsePrefix("10.207.8.0/24") },
	} {
		t.Run(want, func(t *testing.T) {
			t.Parallel()
			s := good()
			change(&s)
			if err := s.Validate(); err == nil || !strings.Contains(err.Error(), want) {
				t.Errorf("got %v, want an error about %s", err, want)
			}
		})
	}
}

func TestAddressesFollowFromTheNetworks(t *testing.T) {
	t.Parallel()
	s := good()
	for got, want := range map[string]string{
		s.Gateway().String():    "10.207.0.1",
		s.APIService().String(): "10.207.64.1",
		s.APIServer():           "https://10.207.0.1:6443",
		s.OnGateway(53):         "10.207.0.1:53",
		s.Kubeconfig():          "/var/lib/di-orchestrator-cluster/kubeconfig",
	} {
		if got != want {
			t.Errorf("got %s, want %s", got, want)
		}
	}
}
