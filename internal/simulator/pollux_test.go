package simulator_test

import (
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"testing"
	"time"

	"opendilab.org/di-orchestrator/internal/simulator"
	"opendilab.org/di-orchestrator/internal/simulator/baselines"
)

func TestOthers(t *testing.T) {
	dir := os.Getenv("TRACES")
	apps, err := simulator.LoadApplications(dir)
	if err != nil {
		t.Fatal(err)
	}
	var rec map[string]map[string]map[string]int
	b, _ := os.ReadFile(filepath.Join(dir, "recorded-jct.json"))
	if err := json.Unmarshal(b, &rec); err != nil {
		t.Fatal(err)
	}
	for _, load := range []string{"1.0"} {
		for w := 1; w <= 4; w++ {
			wl, err := simulator.LoadWorkload(filepath.Join(dir, "workloads-"+load, fmt.Sprintf("workload-%d.csv", w)), apps)
			if err != nil {
				t.Fatal(err)
			}
			for _, name := range []string{"sia", "pollux"} {
				var p simulator.Policy = simulator.Sia{}
				if name == "pollux" {
					p = baselines.NewPollux(1)
				}
				start := time.Now()
				r, err := simulator.Run(wl, p, simulator.Artifact(), time.Now)
				if err != nil {
					t.Fatal(err)
				}
				sum, rsum, restarts := 0, 0, 0
				want := rec["pollux-"+load][fmt.Sprintf("workload-%d", w)]
				for i := range r.Jobs {
					o := &r.Jobs[i]
					sum += o.JCT()
					rsum += want[o.Name]
					restarts += o.Restarts
				}
				t.Logf("%s %s w%d ratio %.4f restarts %.2f %v", name, load, w, float64(sum)/float64(rsum), float64(restarts)/float64(len(r.Jobs)), time.Since(start).Round(time.Millisecond))
			}
		}
	}
}
