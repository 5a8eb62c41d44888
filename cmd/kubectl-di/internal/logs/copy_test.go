// Copyright The DI Orchestrator Authors.
// SPDX-License-Identifier: Apache-2.0

package logs

import (
	"bytes"
	"fmt"
	"io"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/charmbracelet/colorprofile"
	"github.com/google/go-cmp/cmp"
)

// entry is a line of a container's log as the runtime has it.
type entry struct {
	at   time.Time
	text string
}

// since returns what the API sends of a log from a second on.
func since(log []entry, at position) string {
	var sent strings.Builder
	second, resumed := at.second()
	for _, one := range log {
		if !resumed || !one.at.Before(second) {
			sent.WriteString(one.at.Format(time.RFC3339Nano) + " " + one.text + "\n")
		}
	}
	return sent.String()
}

// TestABrokenLogIsTakenUpWhereItBroke breaks streams of random logs, of which
// some lines are of the same time and some not in order, at random bytes.
func TestABrokenLogIsTakenUpWhereItBroke(t *testing.T) {
	t.Parallel()
	random := rand.New(rand.NewPCG(1, 2))
	for round := range 300 {
		log := randomLog(random)
		var at position
		var printed strings.Builder
		print := func(one line) error { printed.Write(one.text); printed.WriteByte('\n'); return nil }
		for range random.IntN(6) {
			sent := since(log, at)
			broken := io.MultiReader(strings.NewReader(sent[:random.IntN(len(sent)+1)]), failing{})
			if err := newCopying(broken, &at, false, print).run(); err == nil {
				t.Fatal("a broken stream ended as a whole one")
			}
		}
		if err := newCopying(strings.NewReader(since(log, at)), &at, true, print).run(); err != nil {
			t.Fatal(err)
		}
		var want strings.Builder
		for _, one := range log {
			want.WriteString(one.text + "\n")
		}
		if diff := cmp.Diff(want.String(), printed.String()); diff != "" {
			t.Fatalf("round %d (-want +got):\n%s", round, diff)
		}
	}
}

func randomLog(random *rand.Rand) []entry {
	at := time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC)
	var log []entry
	for i := range 1 + random.IntN(30) {
		at = at.Add(time.Duration(random.IntN(4)) * 300 * time.Millisecond)
		log = append(log, entry{at.Add(-time.Duration(random.IntN(2)) * 10 * time.Millisecond), fmt.Sprintf("line %d", i)})
		if random.IntN(8) == 0 {
			log[i].text = ""
		}
	}
	// The times of a second's lines may be out of order, but no line is of a
	// second before one that was printed.
	for i := 1; i < len(log); i++ {
		if log[i].at.Truncate(time.Second).Before(log[i-1].at.Truncate(time.Second)) {
			log[i].at = log[i-1].at
		}
	}
	return log
}

type failing struct{}

// Read implements io.Reader.
func (failing) Read([]byte) (int, error) { return 0, io.ErrUnexpectedEOF }

func TestALineThatIsTooLongIsPrintedInPieces(t *testing.T) {
	t.Parallel()
	const stamp = "2026-01-02T03:04:05.123456789Z "
	long := strings.Repeat("0123456789", longest/4)
	sent := stamp + long + "\n" + stamp + "short\n"
	var at position
	var printed []string
	print := func(one line) error {
		if len(one.text) > longest {
			t.Errorf("%d bytes are printed at once", len(one.text))
		}
		printed = append(printed, string(one.text))
		return nil
	}
	// It breaks in the third piece, of which nothing is printed then.
	if err := newCopying(io.MultiReader(strings.NewReader(sent[:len(long)-100]), failing{}), &at, false, print).run(); err == nil {
		t.Error("a broken stream ended as a whole one")
	}
	if len(printed) != 2 {
		t.Errorf("%d pieces were printed, want 2", len(printed))
	}
	if err := newCopying(strings.NewReader(sent), &at, true, print).run(); err != nil {
		t.Fatal(err)
	}
	if got := strings.Join(printed, ""); got != long+"short" {
		t.Errorf("%d bytes came of %d", len(got), len(long)+5)
	}
}

func TestALastLineWithoutEndIsPrintedWhenTheContainerHasEnded(t *testing.T) {
	t.Parallel()
	for isOver, want := range map[bool]string{true: "whole|kubelet says|rest", false: "whole|kubelet says"} {
		var printed []string
		sent := "2026-01-02T03:04:05Z whole\nkubelet says\n2026-01-02T03:04:06Z rest"
		err := newCopying(strings.NewReader(sent), &position{}, isOver, func(one line) error {
			printed = append(printed, string(one.text))
			return nil
		}).run()
		if got := strings.Join(printed, "|"); got != want || err != nil {
			t.Errorf("over %t: got %s, %v, want %s", isOver, got, err, want)
		}
	}
}

func TestReplicasHaveColoursOfTheirOwn(t *testing.T) {
	t.Parallel()
	printed := func(profile colorprofile.Profile, names ...string) []string {
		var out bytes.Buffer
		p := newPrinter(&out, true, false, profile)
		p.introduce("learner-0")
		for _, name := range names {
			if err := p.print(line{replica: name, text: []byte("text")}); err != nil {
				t.Fatal(err)
			}
		}
		return slices.Collect(strings.Lines(out.String()))
	}
	for _, plain := range []colorprofile.Profile{colorprofile.NoTTY, colorprofile.ASCII} {
		if got := printed(plain, "learner-0"); got[0] != "[learner-0] text\n" {
			t.Errorf("without colours it is %q", got)
		}
	}
	for _, coloured := range []colorprofile.Profile{colorprofile.ANSI, colorprofile.ANSI256, colorprofile.TrueColor} {
		got := printed(coloured, "collector-0", "learner-0", "collector-1", "collector-0")
		alone := printed(coloured, "learner-0")
		if got[1] != alone[0] || got[0] != got[3] {
			t.Errorf("%s: the colour of a replica changes: %q", coloured, got)
		}
		used := map[int]bool{}
		for place, colour := range palette(coloured) {
			if used[colour] {
				t.Errorf("%s: colour %d at place %d is there twice", coloured, colour, place)
			}
			used[colour] = true
		}
	}
}
