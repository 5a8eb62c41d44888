// Copyright The DI Orchestrator Authors.
// SPDX-License-Identifier: Apache-2.0

package programs

import (
	"net/http"
	"net/http/httptest"
	"testing"

	"k8s.io/client-go/rest"

	configv1alpha1 "opendilab.org/di-orchestrator/apis/config/v1alpha1"
)

func TestPriorityAndFairnessOfTheAPIServerReplacesTheClientsLimit(t *testing.T) {
	t.Parallel()
	fair := startAPI(t).Config
	without := httptest.NewServer(http.NotFoundHandler())
	t.Cleanup(without.Close)
	for name, tc := range map[string]struct {
		config    *rest.Config
		qps       float64
		want      float32
		wantShare float32
	}{
		"with priority and fairness":    {fair, 0, -1, 50},
		"without priority and fairness": {&rest.Config{Host: without.URL}, 0, 200, 50},
		"with a limit that is set":      {fair, 20, 20, 5},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			config := rest.CopyConfig(tc.config)
			options := processOptions{config: configv1alpha1.Defaults()}
			options.config.Common.KubeAPIQPS = tc.qps
			if err := options.setPace(t.Context(), config); err != nil {
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
