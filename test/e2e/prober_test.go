// Copyright The DI Orchestrator Authors.
// SPDX-License-Identifier: Apache-2.0

//go:build e2e

package e2e

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"strings"
	"sync"
	"time"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
)

// toldFailures bounds how many failures of a prober are told in full.
const toldFailures = 10

// inFlight bounds how many calls of a prober may wait for their answers: on a
// machine that is too slow for the pace they would pile up until they time out,
// which says nothing of what is probed.
const inFlight = 20

// prober makes the same call again and again, and never repeats one that has failed.
type prober struct {
	name  string
	every time.Duration
	call  func(ctx context.Context) error

	stop    context.CancelFunc
	stopped sync.WaitGroup

	mutex    sync.Mutex
	calls    int
	failed   int
	slowest  time.Duration
	failures []string
}

// startProbers starts probers that run until they are stopped, or the spec ends.
func startProbers(probers ...*prober) {
	GinkgoHelper()
	for _, p := range probers {
		ctx, stop := context.WithCancel(context.Background())
		p.stop = stop
		p.stopped.Go(func() { p.run(ctx) })
	}
	DeferCleanup(func() {
		for _, p := range probers {
			p.stop()
			p.stopped.Wait()
		}
	})
}

func (p *prober) run(ctx context.Context) {
	ticker := time.NewTicker(p.every)
	defer ticker.Stop()
	running := make(chan struct{}, inFlight)
	for {
		select {
		case <-ctx.Done():
			return
		case <-ticker.C:
		}
		select {
		case <-ctx.Done():
			return
		case running <- struct{}{}:
			p.stopped.Go(func() {
				// What has begun is finished: a call that is broken off by the test has not failed.
				p.once(context.WithoutCancel(ctx))
				<-running
			})
		}
	}
}

func (p *prober) once(ctx context.Context) {
	begun := time.Now()
	err := p.call(ctx)
	took := time.Since(begun)
	p.mutex.Lock()
	defer p.mutex.Unlock()
	p.calls++
	p.slowest = max(p.slowest, took)
	if err == nil {
		return
	}
	if p.failed++; p.failed <= toldFailures {
		p.failures = append(p.failures, fmt.Sprintf("%s after %s: %v", begun.Format(time.StampMilli), took, err))
	}
}

// expectNoFailure stops probers, tells what they did, and expects that no call has failed.
func expectNoFailure(during string, probers ...*prober) {
	GinkgoHelper()
	var failures []string
	for _, p := range probers {
		p.stop()
		p.stopped.Wait()
		AddReportEntry(fmt.Sprintf("%s: %s: %d calls, %d failed, the slowest took %s", during, p.name, p.calls, p.failed, p.slowest.Round(time.Millisecond)))
		Expect(p.calls).To(BeNumerically(">", 0), p.name)
		for _, failure := range p.failures {
			failures = append(failures, p.name+": "+failure)
		}
	}
	Expect(strings.Join(failures, "\n")).To(BeEmpty(), during)
}

// send makes one request and reads its answer, which has to be a success.
func send(ctx context.Context, sender *http.Client, method, url string, header http.Header, body any) error {
	encoded, err := json.Marshal(body)
	if err != nil {
		return fmt.Errorf("encoding the request: %w", err)
	}
	request, err := http.NewRequestWithContext(ctx, method, url, bytes.NewReader(encoded))
	if err != nil {
		return fmt.Errorf("making the request: %w", err)
	}
	request.Header = header.Clone()
	response, err := sender.Do(request)
	if err != nil {
		return err
	}
	defer response.Body.Close() //nolint:errcheck // nothing is lost with a body that was read
	answer, err := io.ReadAll(response.Body)
	if err != nil {
		return fmt.Errorf("reading the answer: %w", err)
	}
	if response.StatusCode >= http.StatusBadRequest {
		return fmt.Errorf("status %d: %s", response.StatusCode, answer)
	}
	return nil
}
