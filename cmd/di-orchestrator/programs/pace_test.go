// Copyright The DI Orchestrator Authors.
// SPDX-License-Identifier: Apache-2.0

package programs

import (
	"net/http"
	"net/http/httptest"
	"testing"

	"k8s.io/client-go/rest"
)

func TestPriorityAndFairnessOfTheAPIServerReplacesTheClientsLimit(t *testing.T) {
	t.Parallel()
	fair := startAPI(t).Config
	without := httptest.NewServer(http.NotFoundHandler())
	t.Cleanup(without.Close)
	for name, tc := range map[string]struct {
		config    *rest.Config
		options   processOptions
		want      float32
		wantShare float32
	}{
		"with priority and fairness":    {fair, processOptions{burst: limitedBurst}, -1, 50},
		"without priority and fairness": {&rest.Config{Host: without.URL}, processOptions{burst: limitedBurst}, 200, 50},
		"with a limit that is set":      {fair, processOptions{qps: 20, burst: 40}, 20, 5},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			config := rest.CopyConfig(tc.config)
			if err := tc.options.setPace(t.Context(), config); err != nil {
				t.Fatal(err)
			}
			if config.QPS != tc.want {
				t.Errorf("the client's limit is %v a second, want %v", config.QPS, tc.want)
			}
			if share := withShareOfPace(config, 4); share.QPS != tc.wantShare {
				t.Errorf("a quarter of it is %v a second, want %v", share.QPS, tc.wantShare)
			}
		})
	}
}
