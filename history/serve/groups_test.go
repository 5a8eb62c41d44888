// Copyright The DI Orchestrator Authors.
// SPDX-License-Identifier: Apache-2.0

package serve_test

import (
	"encoding/json"
	"encoding/pem"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	. "github.com/onsi/gomega"
	rbacv1 "k8s.io/api/rbac/v1"

	"opendilab.org/di-orchestrator/history/archive"
	"opendilab.org/di-orchestrator/history/record"
	"opendilab.org/di-orchestrator/internal/service"
)

// archive returns what the allocator asks for groups, with the token of a program.
func (f *fixture) archive(namespace string, rules ...rbacv1.PolicyRule) *archive.Archive {
	return f.archiveBy(f.program(namespace, rules...))
}

func (f *fixture) archiveBy(token string) *archive.Archive {
	f.t.Helper()
	served := httptest.NewTLSServer(f.handler)
	f.t.Cleanup(served.Close)
	folder := f.t.TempDir()
	settings := service.Settings{URL: served.URL, Timeout: 30 * time.Second, TokenFile: filepath.Join(folder, "token"), CAFile: filepath.Join(folder, "ca.crt")}
	f.Expect(os.WriteFile(settings.TokenFile, []byte(token), 0o600)).To(Succeed())
	f.Expect(os.WriteFile(settings.CAFile, pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: served.Certificate().Raw}), 0o600)).To(Succeed())
	asks, err := archive.New(settings)
	f.Expect(err).NotTo(HaveOccurred())
	return asks
}

func TestTheAllocatorReadsGroupsOfNamespacesWhoseJobsItMayList(t *testing.T) {
	f := setUp(t)
	own, digest, other := f.own+"/pong", f.own+"#0123456789abcdef", f.other+"/pong"
	var groups []record.Group
	want := map[string]json.RawMessage{}
	for _, name := range []string{own, digest, other} {
		stored := `{"name":"` + name + `","finished":3}`
		group, err := record.ReadGroup(stored)
		f.Expect(err).NotTo(HaveOccurred())
		groups, want[name] = append(groups, group), json.RawMessage(stored)
	}
	f.Expect(f.database.KeepGroups(t.Context(), groups)).To(Succeed())

	everywhere := f.archive("", onJobs("list"))
	found, err := everywhere.Groups(t.Context(), []string{own, digest, other, f.own + "/unknown", f.own + "/"})
	f.Expect(err).NotTo(HaveOccurred())
	f.Expect(found).To(Equal(want))

	tenant := f.archive(f.own, onJobs("list"))
	found, err = tenant.Groups(t.Context(), []string{own})
	f.Expect(err).NotTo(HaveOccurred())
	f.Expect(found).To(HaveLen(1))
	for name, refused := range map[string]struct {
		by    *archive.Archive
		names []string
		code  string
	}{
		"another namespace":    {tenant, []string{own, other}, "403"},
		"no right":             {f.archive(f.own), []string{own}, "403"},
		"a token of a user":    {f.archiveBy(f.token("", onJobs("list"))), []string{own}, "401"},
		"no token":             {f.archiveBy(""), []string{own}, "401"},
		"no name of a group":   {everywhere, []string{"pong"}, "400"},
		"a name that is long":  {everywhere, []string{"x/" + strings.Repeat("p", record.MaxGroupName)}, "400"},
		"too many groups":      {everywhere, make([]string, record.MaxGroups+1), "400"},
		"a body without bound": {everywhere, []string{strings.Repeat("x", 2<<20)}, "400"},
	} {
		found, err := refused.by.Groups(t.Context(), refused.names)
		f.Expect(err).To(MatchError(ContainSubstring("status "+refused.code)), name)
		f.Expect(found).To(BeEmpty(), name)
	}
}
