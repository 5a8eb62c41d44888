package simulator_test

import (
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"opendilab.org/di-orchestrator/allocation/goodput"
	"opendilab.org/di-orchestrator/internal/simulator"
)

func TestGoodput(t *testing.T) {
	dir := os.Getenv("TRACES")
	if d := os.Getenv("CAP"); d != "" {
		fmt.Sscan(d, &goodput.Cap)
	}
	if d := os.Getenv("GD"); d != "" {
		fmt.Sscan(d, &goodput.GuessDrain)
	}
	apps, err := simulator.LoadApplications(dir)
	if err != nil {
		t.Fatal(err)
	}
	var rec map[string]map[string]map[string]int
	b, _ := os.ReadFile(filepath.Join(dir, "recorded-jct.json"))
	if err := json.Unmarshal(b, &rec); err != nil {
		t.Fatal(err)
	}
	loads := []string{"0.5", "1.0", "1.5", "2.0"}
	if l := os.Getenv("LOADS"); l != "" {
		loads = strings.Split(l, ",")
	}
	for _, mode := range strings.Split(os.Getenv("MODES"), ",") {
		for _, load := range loads {
			var ratios float64
			var mine, theirs []int
			var restarts, n int
			var rounds []time.Duration
			line := ""
			start := time.Now()
			for w := 1; w <= 4; w++ {
				wl, err := simulator.LoadWorkload(filepath.Join(dir, "workloads-"+load, fmt.Sprintf("workload-%d.csv", w)), apps)
				if err != nil {
					t.Fatal(err)
				}
				p := simulator.NewGoodput()
				p.Progress = strings.Contains(mode, "p")
				p.History = strings.Contains(mode, "h")
				r, err := simulator.Run(wl, p, simulator.Artifact(), time.Now)
				if err != nil {
					t.Fatal(err)
				}
				sum, rsum := 0, 0
				want := rec["pollux-"+load][fmt.Sprintf("workload-%d", w)]
				for i := range r.Jobs {
					o := &r.Jobs[i]
					sum += o.JCT()
					rsum += want[o.Name]
					mine = append(mine, o.JCT())
					theirs = append(theirs, want[o.Name])
					restarts += o.Restarts
					n++
				}
				rounds = append(rounds, r.Rounds...)
				ratios += float64(sum) / float64(rsum)
				line += fmt.Sprintf(" %.3f", float64(sum)/float64(rsum))
			}
			slices.Sort(mine)
			slices.Sort(theirs)
			slices.Sort(rounds)
			p99 := func(x []int) int { return x[len(x)*99/100] }
			t.Logf("%s %s ratio %.4f (%s) p99 %.3f restarts %.2f round p50 %v p99 %v  %v", mode, load, ratios/4, line, float64(p99(mine))/float64(p99(theirs)), float64(restarts)/float64(n), rounds[len(rounds)/2], rounds[len(rounds)*99/100], time.Since(start).Round(time.Millisecond))
		}
	}
}
