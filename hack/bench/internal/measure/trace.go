// Copyright The DI Orchestrator Authors.
// SPDX-License-Identifier: Apache-2.0

package measure

import (
	"cmp"
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"io"
	"maps"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"golang.org/x/sync/errgroup"
	"gonum.org/v1/plot"
	"gonum.org/v1/plot/plotter"
	"gonum.org/v1/plot/plotutil"
	"gonum.org/v1/plot/vg"
	"k8s.io/client-go/rest"

	"opendilab.org/di-orchestrator/hack/bench/internal/cluster"
	"opendilab.org/di-orchestrator/test/testkit/controlplane"
)

// ofProcessor is the profile of the processor, for 10 seconds.
const ofProcessor = "profile?seconds=10"

// trace plays one more round of the operator. It writes a processor profile of each program for go tool
// pprof, each request to requests.csv, and their curves to requests.svg.
func (t *Start) trace(ctx context.Context, w *cluster.World, folder string) error {
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
		"operator":       {http.DefaultClient, "http://" + w.Programs.Operators[0].Pprof},
		"webhook":        {http.DefaultClient, "http://" + w.Programs.Pprof.Webhooks},
		"kube-apiserver": {api, strings.TrimSuffix(w.Config().Host, "/")},
		"kube-scheduler": {unverified, "https://" + w.Programs.Pprof.Scheduler},
	} {
		if name == "kube-scheduler" && t.load.Scheduler != cluster.Real {
			continue
		}
		profiling.Go(func() error {
			return writeProfile(reading, from.client, from.address, ofProcessor, filepath.Join(folder, name+".pprof"))
		})
	}
	played, err := t.play(ctx, w, jobsClient{})
	if err = errors.Join(err, profiling.Wait()); err != nil {
		return err
	}
	requests, err := played.requests(w)
	if err != nil {
		return err
	}
	w.Say("profiles and requests are in %s", folder)
	return errors.Join(writeRequests(filepath.Join(folder, "requests.csv"), requests), drawRequests(filepath.Join(folder, "requests.svg"), requests))
}

// writeProfile writes a profile that a program serves.
func writeProfile(ctx context.Context, by *http.Client, address, kind, path string) (err error) {
	request, err := http.NewRequestWithContext(ctx, http.MethodGet, address+"/debug/pprof/"+kind, http.NoBody)
	if err != nil {
		return fmt.Errorf("profile: %w", err)
	}
	response, err := by.Do(request)
	if err != nil {
		return fmt.Errorf("profile: %w", err)
	}
	defer func() { err = errors.Join(err, response.Body.Close()) }()
	raw, err := io.ReadAll(response.Body)
	if err == nil && response.StatusCode != http.StatusOK {
		err = errors.New(response.Status)
	}
	if err = errors.Join(err, os.MkdirAll(filepath.Dir(path), 0o750)); err == nil {
		err = os.WriteFile(path, raw, 0o600)
	}
	if err != nil {
		return fmt.Errorf("profile of %s: %w", request.URL, err)
	}
	return nil
}

// request is one line of the log of requests.
type request struct {
	after      time.Duration
	user, what string
	code       int
}

// requests returns the requests of a round, Leases apart, in their order.
func (r *round) requests(w *cluster.World) ([]request, error) {
	var all []request
	err := w.Events(r.began.Mark, func(event *controlplane.Event) error {
		at := event.Received.Sub(r.began.At)
		if at >= 0 && at <= r.running && event.ObjectRef.Resource != "leases" {
			all = append(all, request{after: at, user: event.User.Username, what: event.What(), code: int(event.ResponseStatus.Code)})
		}
		return nil
	})
	slices.SortStableFunc(all, func(a, b request) int { return cmp.Compare(a.after, b.after) })
	return all, err
}

// writeRequests writes requests: seconds since the round began, user, request and code of the answer.
func writeRequests(path string, requests []request) error {
	var content strings.Builder
	content.WriteString("seconds,user,request,code\n")
	for _, each := range requests {
		fmt.Fprintf(&content, "%.3f,%s,%s,%d\n", each.after.Seconds(), each.user, each.what, each.code)
	}
	if err := os.WriteFile(path, []byte(content.String()), 0o600); err != nil {
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
