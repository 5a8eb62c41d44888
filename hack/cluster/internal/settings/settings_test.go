// Copyright The DI Orchestrator Authors.
// SPDX-License-Identifier: Apache-2.0

package settings

import (
	"net/netip"
	"strings"
	"testing"
)

func good() Settings {
	return Settings{
		StateDir: DefaultStateDir, CacheDir: "/root/.cache/di-orchestrator", Bridge: DefaultBridge,
		PodCIDR: netip.MustParsePrefix(DefaultPodCIDR), ServiceCIDR: netip.MustParsePrefix(DefaultServiceCIDR),
		GPUs: DefaultGPUs,
	}
}

func TestTheDefaultsAreValid(t *testing.T) {
	t.Parallel()
	if err := good().Validate(); err != nil {
		t.Error(err)
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
		"gpus":                     func(s *Settings) { s.GPUs = -1 },
		"fake-nodes":               func(s *Settings) { s.FakeNodes = -1 },
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
		s.Kubeconfig():          DefaultStateDir + "/kubeconfig",
	} {
		if got != want {
			t.Errorf("got %s, want %s", got, want)
		}
	}
}
