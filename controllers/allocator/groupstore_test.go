// Copyright The DI Orchestrator Authors.
// SPDX-License-Identifier: Apache-2.0

package allocator

import (
	"strings"
	"testing"
	"time"

	"github.com/go-logr/logr/funcr"
	"sigs.k8s.io/controller-runtime/pkg/log"

	"opendilab.org/di-orchestrator/controllers/allocator/histories"
	"opendilab.org/di-orchestrator/history/record"
	"opendilab.org/di-orchestrator/history/store"
)

func TestAGroupThatIsUnreadableInTheHistoryIsNamedAloneAndAskedForOnce(t *testing.T) {
	t.Parallel()
	history, err := store.OpenSQLite(t.Context(), t.TempDir()+"/history.db")
	if err != nil {
		t.Fatal(err)
	}
	defer func() {
		if err := history.Close(); err != nil {
			t.Error(err)
		}
	}()
	if err := history.KeepGroups(t.Context(), []record.Group{
		{Name: "team/broken", Learned: []byte(`{"name":"team/broken","finished":-1}`)}, {Name: "team/good", Learned: []byte(`{"name":"team/good","finished":3}`)},
	}); err != nil {
		t.Fatal(err)
	}
	var lines []string
	ctx := log.IntoContext(t.Context(), funcr.New(func(_, line string) { lines = append(lines, line) }, funcr.Options{}))
	groups := &groupStore{known: histories.New(), archive: history, unknown: map[string]bool{}}
	for range 2 {
		groups.restore(ctx, []string{"team/broken", "team/absent", "team/good"}, time.Unix(1_000, 0))
	}
	if len(lines) != 1 || !strings.Contains(lines[0], `"group"="team/broken"`) {
		t.Errorf("logged %q, want one line about team/broken", lines)
	}
	if known := groups.known.Groups; len(known) != 1 || known["team/good"] == nil || known["team/good"].Finished != 3 {
		t.Errorf("got %v, want team/good alone", known)
	}
}
