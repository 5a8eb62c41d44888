// Copyright The DI Orchestrator Authors.
// SPDX-License-Identifier: Apache-2.0

package upgrade

import (
	"fmt"
	"slices"
	"strings"
	"testing"
)

// jobAs returns a coordinator-led job as stored at v1alpha1.
func jobAs(group, touched string) string {
	return fmt.Sprintf(`{"apiVersion":"diengine.opendilab.org/v1alpha1","kind":"DIJob",
		"metadata":{"name":"a","resourceVersion":%[2]q,"labels":{"team":"rl","touched":%[2]q}},
		"spec":{"group":%[1]q,"coordinator":{"template":{"spec":{"containers":[{"name":"di-container"}]}}}}}`, group, touched)
}

func TestOnlyWhatNobodyChangedOnPurposeIsCompared(t *testing.T) {
	t.Parallel()
	var c comparison
	if err := c.add("a", []byte(jobAs("one", "1")), []byte(jobAs("one", "2"))); err != nil || len(c.changed) != 0 {
		t.Errorf("got %v and error %v, want no change", c.changed, err)
	}
	if err := c.add("a", []byte(jobAs("one", "1")), []byte(jobAs("two", "1"))); err != nil || len(c.changed) != 1 {
		t.Fatalf("got %v and error %v, want a change", c.changed, err)
	}
	if got := c.changed[0]; got != "a: .spec.group was one, is two" {
		t.Errorf("got %q", got)
	}
	if err := c.add("a", []byte(`{`), []byte(jobAs("one", "1"))); err == nil {
		t.Error("a job that cannot be read was compared")
	}
}

func TestWhatIsAddedToAJobIsNotLost(t *testing.T) {
	t.Parallel()
	then := jobAs("one", "")
	with := strings.Replace(then, `"group"`, `"cleanPodPolicy":"Running","group"`, 1)
	var c comparison
	if err := c.addLost("a", []byte(then), []byte(with)); err != nil || len(c.changed) != 0 {
		t.Errorf("got %v and error %v, want no loss", c.changed, err)
	}
	if err := c.addLost("a", []byte(with), []byte(then)); err != nil || len(c.changed) != 1 {
		t.Errorf("got %v and error %v, want a loss", c.changed, err)
	}
	status := func(phase string, more string) []byte {
		return []byte(strings.TrimSuffix(then, "}") + `,"status":{` + more + `"phase":"` + phase + `"}}`)
	}
	if err := c.addLost("b", status("Running", `"conditions":[],`), status("Created", "")); err != nil || len(c.changed) != 1 {
		t.Errorf("got %v and error %v: the status of a job that runs is the operator's", c.changed, err)
	}
	if err := c.addLost("c", status("Succeeded", ""), status("Failed", "")); err != nil || len(c.changed) != 2 {
		t.Errorf("got %v and error %v, want the status of a finished job to stay", c.changed, err)
	}
}

func TestAJobIsStoredInTheVersionThatItSays(t *testing.T) {
	t.Parallel()
	raw := []byte(jobAs("v2alpha1", ""))
	if !storedAs(raw, "v1alpha1") || storedAs(raw, "v2alpha1") || storedAs([]byte("{"), "v1alpha1") {
		t.Error("the version of a stored job is misread")
	}
}

func TestCoordinatorsNoticeWhatIsNoLongerListed(t *testing.T) {
	t.Parallel()
	known := map[string]bool{}
	if gone := learn(known, []string{"a", "b"}); len(gone) != 0 {
		t.Errorf("%v is gone at first", gone)
	}
	if gone := learn(known, []string{"b", "c"}); !slices.Equal(gone, []string{"a"}) {
		t.Errorf("%v is gone, want a", gone)
	}
	if gone := strings.Join(learn(known, nil), ""); gone != "abc" {
		t.Errorf("%v is gone, want all", gone)
	}
}
