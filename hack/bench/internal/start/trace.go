// Copyright The DI Orchestrator Authors.
// SPDX-License-Identifier: Apache-2.0

package start

import (
	"cmp"
	"context"
	"crypto/tls"
	"encoding/csv"
	"errors"
	"fmt"
	"io"
	"maps"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"time"

	"golang.org/x/sync/errgroup"
	"gonum.org/v1/plot"
	"gonum.org/v1/plot/plotter"
	"gonum.org/v1/plot/plotutil"
	"gonum.org/v1/plot/vg"
	"k8s.io/client-go/rest"

	"opendilab.org/di-orchestrator/hack/bench/internal/harness"
	"opendilab.org/di-orchestrator/internal/testkit/controlplane"
)

// profiledSeconds is how long the processor is profiled.
const profiledSeconds = 10

// trace plays one more round of the operator. It writes a processor profile of each program for go tool
// pprof and its flame graph, each request to requests.csv, and their curves to requests.svg.
func (w *world) trace(ctx context.Context, folder string) error {
	if err := os.MkdirAll(folder, 0o750); err != nil {
		return fmt.Errorf("profiles: %w", err)
	}
	api, err := rest.HTTPClientFor(w.Config())
	if err != nil {
		return fmt.Errorf("profiles: %w", err)
	}
	// The scheduler signs its own certificate.
	unverified := &http.Client{Transport: &http.Transport{TLSClientConfig: &tls.Config{InsecureSkipVerify: true}}} //nolint:gosec // It is on the loopback interface.
	profiling, reading := errgroup.WithContext(ctx)
	for name, from := range map[string]struct {
		client  *http.Client
		address string
	}{
		"operator":       {http.DefaultClient, "http://" + w.pprof.operator},
		"webhook":        {http.DefaultClient, "http://" + w.pprof.webhooks},
		"kube-apiserver": {api, strings.TrimSuffix(w.Config().Host, "/")},
		"kube-scheduler": {unverified, "https://" + w.pprof.scheduler},
	} {
		profiling.Go(func() error {
			recorded := filepath.Join(folder, name+".pprof")
			if err := writeProfile(reading, from.client, from.address, recorded); err != nil {
				return err
			}
			return drawFlames(recorded)
		})
	}
	played, err := w.play(ctx, "operator, with profiles", w.submitJobs)
	if err = errors.Join(err, profiling.Wait()); err != nil {
		return err
	}
	requests, err := w.requestsOf(played)
	if err != nil {
		return err
	}
	w.Say("profiles, flame graphs and requests are in %s", folder)
	return errors.Join(writeRequests(filepath.Join(folder, "requests.csv"), requests), drawRequests(filepath.Join(folder, "requests.svg"), requests))
}

// writeProfile writes the processor profile that a program serves.
func writeProfile(ctx context.Context, from *http.Client, address, path string) (err error) {
	url := fmt.Sprintf("%s/debug/pprof/profile?seconds=%d", address, profiledSeconds)
	request, err := http.NewRequestWithContext(ctx, http.MethodGet, url, http.NoBody)
	if err != nil {
		return fmt.Errorf("profile: %w", err)
	}
	response, err := from.Do(request)
	if err != nil {
		return fmt.Errorf("profile: %w", err)
	}
	defer func() { err = errors.Join(err, response.Body.Close()) }()
	if response.StatusCode != http.StatusOK {
		return fmt.Errorf("profile of %s: %s", url, response.Status)
	}
	file, err := os.Create(filepath.Clean(path))
	if err != nil {
		return fmt.Errorf("profile: %w", err)
	}
	defer harness.Close(&err, file.Close)
	if _, err := io.Copy(file, response.Body); err != nil {
		return fmt.Errorf("profile of %s: %w", url, err)
	}
	return nil
}

// request is one line of the log of requests.
type request struct {
	after      time.Duration
	user, what string
	code       int
}

// requestsOf returns the requests of a round, Leases apart, in their order.
func (w *world) requestsOf(of *round) ([]request, error) {
	var all []request
	err := w.Events(of.mark, func(event *controlplane.Event) error {
		at := event.Received.Sub(of.began)
		if at >= 0 && at <= of.running && event.ObjectRef.Resource != "leases" {
			all = append(all, request{after: at, user: event.User.Username, what: event.What(), code: int(event.ResponseStatus.Code)})
		}
		return nil
	})
	slices.SortStableFunc(all, func(a, b request) int { return cmp.Compare(a.after, b.after) })
	return all, err
}

// writeRequests writes requests: seconds since the round began, user, request and code of the answer.
func writeRequests(path string, requests []request) (err error) {
	file, err := os.Create(filepath.Clean(path))
	if err != nil {
		return fmt.Errorf("requests: %w", err)
	}
	defer harness.Close(&err, file.Close)
	lines := [][]string{{"seconds", "user", "request", "code"}}
	for _, each := range requests {
		lines = append(lines, []string{strconv.FormatFloat(each.after.Seconds(), 'f', 3, 64), each.user, each.what, strconv.Itoa(each.code)})
	}
	if err := csv.NewWriter(file).WriteAll(lines); err != nil {
		return fmt.Errorf("requests: %w", err)
	}
	return nil
}

// drawnRequests is the minimum number of requests of a kind that are drawn.
const drawnRequests = 20

// drawRequests draws how many requests of each kind were sent until each time.
func drawRequests(path string, requests []request) error {
	curves := map[string]plotter.XYs{}
	for _, each := range requests {
		name := each.user + ": " + each.what
		curves[name] = append(curves[name], plotter.XY{X: each.after.Seconds(), Y: float64(len(curves[name]) + 1)})
	}
	drawing := plot.New()
	drawing.X.Label.Text, drawing.Y.Label.Text = "seconds", "requests"
	drawing.Legend.Top, drawing.Legend.Left = true, true
	drawing.Add(plotter.NewGrid())
	for i, name := range slices.Sorted(maps.Keys(curves)) {
		if len(curves[name]) < drawnRequests {
			continue
		}
		line, err := plotter.NewLine(curves[name])
		if err != nil {
			return fmt.Errorf("drawing requests: %w", err)
		}
		line.Color, line.Dashes, line.Width = plotutil.Color(i), plotutil.Dashes(i), vg.Points(1.5)
		drawing.Add(line)
		drawing.Legend.Add(name, line)
	}
	if err := drawing.Save(30*vg.Centimeter, 18*vg.Centimeter, path); err != nil {
		return fmt.Errorf("drawing requests: %w", err)
	}
	return nil
}
