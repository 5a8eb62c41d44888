// Copyright The DI Orchestrator Authors.
// SPDX-License-Identifier: Apache-2.0

package ui

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"k8s.io/client-go/rest"
	clientcmdapi "k8s.io/client-go/tools/clientcmd/api"

	"opendilab.org/di-orchestrator/test/testkit/expect"
)

func TestServerInAClusterRefusesRightsOfItsOwn(t *testing.T) {
	t.Parallel()
	mounted, none := filepath.Join(t.TempDir(), "token"), filepath.Join(t.TempDir(), "token")
	expect.NoError(t, os.WriteFile(mounted, []byte("secret"), 0o600))
	if err := refuseOwnRights(&rest.Config{Host: "https://api"}, mounted); err == nil || !strings.Contains(err.Error(), "automountServiceAccountToken: false") {
		t.Errorf("a mounted token: %v", err)
	}
	if err := refuseOwnRights(&rest.Config{Host: "https://api", TLSClientConfig: rest.TLSClientConfig{CAFile: "ca.crt"}}, none); err != nil {
		t.Errorf("no rights: %v", err)
	}
	for name, config := range map[string]*rest.Config{
		"a token": {BearerToken: "x"}, "a file of a token": {BearerTokenFile: "x"}, "a password": {Username: "x"},
		"a certificate": {TLSClientConfig: rest.TLSClientConfig{CertData: []byte("x")}}, "a program": {ExecProvider: &clientcmdapi.ExecConfig{}},
		"another user": {Impersonate: rest.ImpersonationConfig{UserName: "x"}},
	} {
		if err := refuseOwnRights(config, none); err == nil {
			t.Errorf("%s is accepted", name)
		}
	}
}
