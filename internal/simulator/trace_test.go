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

func TestRecorded(t *testing.T) {
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
	for _, load := range []string{"0.5", "1.0", "1.5", "2.0"} {
		for _, pol := range []string{"tiresias", "optimus"} {
			var meanAll, recAll float64
			for w := 1; w <= 4; w++ {
				wl, err := simulator.LoadWorkload(filepath.Join(dir, "workloads-"+load, fmt.Sprintf("workload-%d.csv", w)), apps)
				if err != nil {
					t.Fatal(err)
				}
				var p simulator.Policy = baselines.NewTiresias()
				if pol == "optimus" {
					p = baselines.Optimus{}
				}
				start := time.Now()
				r, err := simulator.Run(wl, p, simulator.Artifact(), time.Now)
				if err != nil {
					t.Fatal(err)
				}
				exact, sum, rsum := 0, 0, 0
				want := rec[pol+"-"+load][fmt.Sprintf("workload-%d", w)]
				for i := range r.Jobs {
					o := &r.Jobs[i]
					if o.JCT() == want[o.Name] {
						exact++
					}
					sum += o.JCT()
					rsum += want[o.Name]
				}
				t.Logf("%s %s w%d exact %d/%d mean %.1f rec %.1f  %v", pol, load, w, exact, len(r.Jobs), float64(sum)/float64(len(r.Jobs)), float64(rsum)/float64(len(want)), time.Since(start).Round(time.Millisecond))
				meanAll += float64(sum) / float64(len(r.Jobs))
				recAll += float64(rsum) / float64(len(want))
			}
			t.Logf("%s %s ratio %.4f", pol, load, meanAll/recAll)
		}
	}
}
