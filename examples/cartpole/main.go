// Copyright The DI Orchestrator Authors.
// SPDX-License-Identifier: Apache-2.0

// Command cartpole is a training program for DI Orchestrator to read and to start from. It balances
// a pole on a cart, alone or as the pods of a DIJob. The first argument is the role: alone,
// coordinator, collector or worker.
package main

import (
	"bytes"
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"net/url"
	"os"
	"os/signal"
	"strconv"
	"strings"
	"syscall"
	"time"
)

// collectors is the number of collectors that a coordinator requests. retryEvery is the pause
// between attempts to reach di-server or another pod.
const (
	collectors = 2
	retryEvery = time.Second
)

// exitTerminated is the exit status of a program that saved its work when it was stopped. It does
// not count as a failure of a preemptible job.
const exitTerminated = 143

// The exit status determines the result of the pod, and thereby of the job.
func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	err := run(ctx, cmp.Or(strings.Join(os.Args[1:], " "), "alone"))
	code := exitCode(ctx, err)
	stop()
	os.Exit(code)
}

func exitCode(ctx context.Context, err error) int {
	if err != nil {
		fmt.Fprintln(os.Stderr, "cartpole:", err)
	}
	switch {
	case err == nil:
		return 0
	case ctx.Err() != nil:
		return exitTerminated
	}
	return 1
}

func run(ctx context.Context, role string) error {
	saved := checkpoint(os.Getenv("CHECKPOINT"))
	switch role {
	case "alone":
		return train(ctx, func(context.Context) []player { return []player{playHere} }, printProgress, saved)
	case "collector":
		return serve(ctx, cmp.Or(os.Getenv("COLLECTOR_PORT"), "22270"))
	case "coordinator":
		return coordinate(ctx, saved)
	case "worker":
		return work(ctx, saved)
	}
	return fmt.Errorf("role %q: want alone, coordinator, collector or worker", role)
}

func printProgress(p progress) {
	fmt.Printf("round=%d reward=%.1f players=%d\n", p.Round, p.Reward, p.Players)
}

// coordinate runs the coordinator of a coordinator-led job. It requests collectors from di-server
// once and trains with those that di-server lists.
func coordinate(ctx context.Context, saved checkpoint) error {
	go serveProbe(ctx, cmp.Or(os.Getenv("COORDINATOR_PORT"), "22273"))
	namespace, pod := os.Getenv("KUBERNETES_POD_NAMESPACE"), os.Getenv("KUBERNETES_POD_NAME")
	replicas := serverURL(os.Getenv("KUBERNETES_SERVER_URL")) + cmp.Or(os.Getenv("KUBERNETES_SERVER_API_VERSION"), "/v1alpha1") + "/replicas"
	demand := map[string]any{
		"namespace": namespace, "coordinator": pod, "collectors": map[string]int{"replicas": collectors}, "learners": map[string]int{"replicas": 0},
	}
	// The request adds replicas, so a restarted coordinator first lists the existing ones.
	list := func(ctx context.Context) ([]string, error) {
		answer, err := call[reply](ctx, http.MethodGet, replicas+"?"+url.Values{"namespace": {namespace}, "coordinator": {pod}}.Encode(), struct{}{})
		return answer.Data.Collectors, err
	}
	err := retry(ctx, func() error {
		listed, err := list(ctx)
		if err == nil && len(listed) == 0 {
			_, err = call[reply](ctx, http.MethodPost, replicas, demand)
		}
		return err
	})
	if err != nil {
		return fmt.Errorf("asking for collectors: %w", err)
	}
	return train(ctx, func(ctx context.Context) []player {
		listed, err := list(ctx)
		if err != nil {
			fmt.Fprintln(os.Stderr, "reading the list of collectors:", err)
		}
		return playersAt(listed)
	}, printProgress, saved)
}

// reply is the part of di-server's answers that a coordinator decodes.
type reply struct {
	Data struct {
		Collectors []string `json:"collectors"`
	} `json:"data"`
}

// work runs a pod of a worker-led job. Rank 0 trains with the other pods, reports its progress, and
// notifies the others when it has finished.
func work(ctx context.Context, saved checkpoint) error {
	rank, err := strconv.Atoi(os.Getenv("DI_RANK"))
	if err != nil {
		return fmt.Errorf("DI_RANK %q: want a number", os.Getenv("DI_RANK"))
	}
	if rank > 0 {
		return serve(ctx, "22270")
	}
	go serveProbe(ctx, "22270")
	nodes, err := nodesOf(os.Getenv("DI_NODES"))
	if err != nil {
		return err
	}
	others := nodes[min(1, len(nodes)):]
	profilings := serverURL(os.Getenv("DI_SERVER_URL")) + "/v2alpha1/job/" + url.PathEscape(os.Getenv("DI_JOB_ID")) + "/profilings"
	err = train(ctx, func(context.Context) []player { return append(playersAt(others), playHere) }, func(p progress) {
		printProgress(p)
		// Training continues without di-server.
		if _, err := call[struct{}](ctx, http.MethodPost, profilings, reportOf(p)); err != nil {
			fmt.Fprintln(os.Stderr, "reporting:", err)
		}
	}, saved)
	if err != nil {
		return err
	}
	// The job succeeds when all of its workers do.
	for _, address := range others {
		err := retry(ctx, func() error {
			_, err := call[struct{}](ctx, http.MethodPost, "http://"+address+"/finish", struct{}{})
			return err
		})
		if err != nil {
			return fmt.Errorf("finishing: %w", err)
		}
	}
	return nil
}

// reportOf returns what the allocator reads (docs/profilings.md), and fields of the job's own. A
// rate counts anything: here it is the games of a second.
func reportOf(p progress) map[string]any {
	rate := float64(p.Players) / p.Took.Seconds()
	return map[string]any{
		"version": 1, "reward": p.Reward, "target": target,
		"throughput": []map[string]any{{"nodes": 1, "replicas": p.Players, "per_second": rate}},
		"progress":   map[string]any{"done": p.Round, "unit": "round"},
	}
}

// nodesOf splits DI_NODES: hosts by rank, or the path of a file with them after an @.
func nodesOf(list string) ([]string, error) {
	if path, isFile := strings.CutPrefix(list, "@"); isFile {
		content, err := os.ReadFile(path)
		if err != nil {
			return nil, fmt.Errorf("DI_NODES: %w", err)
		}
		list = string(content)
	}
	var nodes []string
	for node := range strings.SplitSeq(strings.TrimSpace(list), ",") {
		// The entry of a rank is empty during a resize.
		if node != "" {
			nodes = append(nodes, node+":22270")
		}
	}
	return nodes, nil
}

// serve plays games on request until SIGTERM or a request to finish.
func serve(ctx context.Context, port string) error {
	serving, finish := context.WithCancel(ctx)
	defer finish()
	server := &http.Server{Addr: ":" + port, Handler: routes(finish), ReadHeaderTimeout: time.Minute}
	context.AfterFunc(serving, func() { _ = server.Shutdown(context.WithoutCancel(ctx)) })
	if err := server.ListenAndServe(); !errors.Is(err, http.ErrServerClosed) {
		return fmt.Errorf("serving: %w", err)
	}
	return ctx.Err()
}

// serveProbe serves the readiness probe of a pod that trains.
func serveProbe(ctx context.Context, port string) {
	if err := serve(ctx, port); err != nil && ctx.Err() == nil {
		fmt.Fprintln(os.Stderr, "answering the readiness probe:", err)
	}
}

func routes(finish func()) *http.ServeMux {
	mux := http.NewServeMux()
	mux.HandleFunc("GET /healthz", func(http.ResponseWriter, *http.Request) {})
	mux.HandleFunc("POST /finish", func(http.ResponseWriter, *http.Request) { finish() })
	mux.HandleFunc("POST /play", func(w http.ResponseWriter, r *http.Request) {
		var g game
		if err := json.NewDecoder(r.Body).Decode(&g); err != nil {
			http.Error(w, err.Error(), http.StatusBadRequest)
			return
		}
		reward, _ := playHere(r.Context(), g)
		_ = json.NewEncoder(w).Encode(reward) // the caller may have disconnected
	})
	return mux
}

// playersAt returns players that run in other pods.
func playersAt(addresses []string) []player {
	var players []player
	for _, address := range addresses {
		players = append(players, func(ctx context.Context, g game) (float64, error) {
			return call[float64](ctx, http.MethodPost, "http://"+address+"/play", g)
		})
	}
	return players
}

// serverURL adds the scheme that the operator omits.
func serverURL(address string) string {
	if strings.Contains(address, "://") {
		return address
	}
	return "http://" + address
}

// retry repeats a call until it succeeds.
func retry(ctx context.Context, do func() error) error {
	for {
		err := do()
		if err == nil {
			return nil
		}
		fmt.Fprintln(os.Stderr, "retrying:", err)
		select {
		case <-ctx.Done():
			return errors.Join(ctx.Err(), err)
		case <-time.After(retryEvery):
		}
	}
}

// call sends JSON and reads JSON. di-server authenticates the caller by the pod's token.
func call[Answer any](ctx context.Context, method, address string, body any) (answer Answer, err error) {
	ctx, cancel := context.WithTimeout(ctx, time.Minute)
	defer cancel()
	encoded, err := json.Marshal(body)
	if err != nil {
		return answer, fmt.Errorf("encoding: %w", err)
	}
	request, err := http.NewRequestWithContext(ctx, method, address, bytes.NewReader(encoded))
	if err != nil {
		return answer, fmt.Errorf("calling: %w", err)
	}
	if token, err := os.ReadFile("/var/run/secrets/diengine.opendilab.org/token"); err == nil {
		request.Header.Set("Authorization", "Bearer "+strings.TrimSpace(string(token)))
	}
	response, err := http.DefaultClient.Do(request)
	if err != nil {
		return answer, fmt.Errorf("calling: %w", err)
	}
	defer func() { err = errors.Join(err, response.Body.Close()) }()
	if response.StatusCode != http.StatusOK {
		return answer, fmt.Errorf("calling %s: %s", address, response.Status)
	}
	if response.ContentLength != 0 {
		err = json.NewDecoder(response.Body).Decode(&answer)
	}
	return answer, err
}
