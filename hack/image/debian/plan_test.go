// Copyright The DI Orchestrator Authors.
// SPDX-License-Identifier: Apache-2.0

package debian

import (
	"slices"
	"testing"
)

func TestThePackagesOfASimulatedInstallationAreNamedAsTheirFiles(t *testing.T) {
	t.Parallel()
	packages, err := parsePlan([]byte(`NOTE: This is only a simulation!
Reading package lists...
Inst python3-torch (1.13.1+dfsg-4 Debian:12.11/stable [amd64])
Inst libpython3-stdlib (3.11.2-1+b1 Debian:12.11/stable [amd64]) [python3:amd64 ]
Inst python3-numpy (1:1.24.2-1+deb12u1 Debian:12.11/stable, Debian-Security:12/stable-security [all]) []
Conf python3-torch (1.13.1+dfsg-4 Debian:12.11/stable [amd64])
`))
	if err != nil {
		t.Fatal(err)
	}
	var files, names []string
	for _, p := range packages {
		files, names = append(files, p.file()), append(names, p.String())
	}
	want := []string{"libpython3-stdlib_3.11.2-1+b1_amd64.deb", "python3-numpy_1%3a1.24.2-1+deb12u1_all.deb", "python3-torch_1.13.1+dfsg-4_amd64.deb"}
	if !slices.Equal(files, want) {
		t.Errorf("files are %q, want %q", files, want)
	}
	if names[1] != "python3-numpy=1:1.24.2-1+deb12u1" {
		t.Errorf("package is %q, want its name and version", names[1])
	}
	if _, err := parsePlan([]byte("Reading package lists...\n")); err == nil {
		t.Error("a plan without packages was accepted, want an error")
	}
}
