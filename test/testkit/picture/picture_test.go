// Copyright The DI Orchestrator Authors.
// SPDX-License-Identifier: Apache-2.0

package picture

import (
	"encoding/xml"
	"strings"
	"testing"
)

func TestAPictureHasTheTextAndItsColours(t *testing.T) {
	t.Parallel()
	got := string(Draw("kubectl di top <job>", "a <b>\n\n  \x1b[1;31mred\x1b[m & \x1b[2mfaint\x1b[0m\n"))
	for _, want := range []string{
		`$ kubectl di top &lt;job&gt;</text>`, `xml:space="preserve">a &lt;b&gt;</text>`,
		`xml:space="preserve">  <tspan class="s1 s31">red</tspan> &amp; <tspan class="s2">faint</tspan></text>`,
		`y="86"`, "prefers-color-scheme:dark",
	} {
		if !strings.Contains(got, want) {
			t.Errorf("%s\nlacks %s", got, want)
		}
	}
	if err := xml.Unmarshal([]byte(got), new(struct{})); err != nil {
		t.Error(err)
	}
}

func TestAPictureOfSeveralOutputsShowsThemOneAfterAnother(t *testing.T) {
	t.Parallel()
	got := string(Draw("kubectl di top pong", "first\n", "a longer second\nof two lines\n"))
	for _, want := range []string{
		`<g class="frame" style="animation-delay:0s">`, `<g class="frame" style="animation-delay:2s">`, "animation:frame 4s", "50.000%",
		"prefers-reduced-motion",
	} {
		if strings.Count(got, want) != 1 {
			t.Errorf("%s\nhas %s %d times, want once", got, want, strings.Count(got, want))
		}
	}
	if single := string(Draw("ls", "first")); strings.Contains(single, "frame") {
		t.Errorf("the picture of one output moves: %s", single)
	}
}
