// Copyright The DI Orchestrator Authors.
// SPDX-License-Identifier: Apache-2.0

//go:build soak

package soak

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"golang.org/x/sync/errgroup"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/wait"
	"k8s.io/client-go/rest"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"opendilab.org/di-orchestrator/apis/v2alpha1"
	"opendilab.org/di-orchestrator/internal/names"
	"opendilab.org/di-orchestrator/test/soak/check"
	"opendilab.org/di-orchestrator/test/soak/history"
	"opendilab.org/di-orchestrator/test/soak/record"
	"opendilab.org/di-orchestrator/test/testkit"
	"opendilab.org/di-orchestrator/test/testkit/controlplane"
	"opendilab.org/di-orchestrator/test/testkit/jobs"
	"opendilab.org/di-orchestrator/test/testkit/kubelet"
	"opendilab.org/di-orchestrator/test/testkit/pace"
	"opendilab.org/di-orchestrator/test/testkit/program"
	"opendilab.org/di-orchestrator/test/testkit/proxy"
	"opendilab.org/di-orchestrator/webhook/admissionprobe"
)

// namespace has the jobs.
const namespace = "soak"

// nodeCount is the number of nodes.
const nodeCount = 8

// options are the parameters of a soak.
type options struct {
	jobs, shards int
	// from is the commit of the earlier version; "" for none.
	from string
	// clocks chooses the clocks of the programs.
	clocks *rand.Rand
}

// world is an installation with its nodes.
type world struct {
	*controlplane.Plane
	options options
	folder  string
	// binaries are the versions of the programs: this checkout's first.
	binaries []string

	log     *history.Log
	checker *check.Checker
	file    *os.File
	// revision is the last one that was recorded.
	revision atomic.Int64
	// calls are counted while the log is locked.
	calls tally

	instances []*instance
	// webhooks and servers are the Services of these programs. collector is the way of the garbage collector to the API
	// servers.
	webhooks, servers, collector *proxy.Proxy
	kubelet                      *kubelet.Kubelet
	manager                      *program.Process
	members                      *members

	mutex sync.Mutex
	down  map[string]bool

	group *errgroup.Group
	end   context.CancelFunc
}

// newWorld starts an installation. The caller stops it.
func newWorld(ctx context.Context, folder string, o options) (_ *world, err error) {
	plane, err := controlplane.Start(&controlplane.Options{
		Folder: folder, Users: []string{testkit.AccountName(testkit.Operator), testkit.AccountName(testkit.Webhook), testkit.AccountName(testkit.Server)},
		Etcd: map[string]string{"unsafe-no-fsync": "true"}, Early: true,
		// Clients that an API server sends away now and then are not all with one of them after the other has crashed.
		APIServer: map[string]string{"service-cluster-ip-range": "10.0.0.0/16", "goaway-chance": "0.01"},
	})
	if err != nil {
		return nil, err
	}
	ctx, end := context.WithCancel(ctx)
	group, ctx := errgroup.WithContext(ctx)
	w := &world{Plane: plane, options: o, folder: folder, checker: check.New(), down: map[string]bool{}, calls: tally{}, group: group, end: end}
	defer func() {
		if err != nil {
			err = errors.Join(err, w.stop())
		}
	}()
	if w.file, err = os.Create(filepath.Join(folder, "history.jsonl")); err != nil {
		return nil, fmt.Errorf("creating the history: %w", err)
	}
	w.log = history.NewLog(w.file, w.seen)
	for _, prepare := range []func(context.Context) error{w.addAPIServer, w.InstallRights, w.InstallWebhooks, w.AddRefusals, w.startRecording, w.addNodes, w.startKubelet, w.startManager, w.startPrograms} {
		if err := prepare(ctx); err != nil {
			return nil, err
		}
	}
	return w, nil
}

// seen passes an entry to the checker.
func (w *world) seen(entry *history.Entry) {
	if entry.Change != nil {
		w.revision.Store(entry.Change.Revision)
	}
	if entry.Call != nil {
		w.calls.add(entry.Call)
	}
	w.checker.See(entry)
}

// stop stops everything, and kills the programs.
func (w *world) stop() error {
	if w.kubelet != nil {
		w.kubelet.Stop()
	}
	w.end()
	err := w.group.Wait()
	if w.manager != nil {
		err = errors.Join(err, w.manager.Kill())
	}
	err = errors.Join(err, w.Plane.Stop())
	if w.file != nil {
		err = errors.Join(err, w.log.Err(), w.file.Close())
	}
	return err
}

// addAPIServer starts the other API server. The users of the load prefer it.
func (w *world) addAPIServer(ctx context.Context) error {
	if err := w.AddAPIServer(ctx); err != nil {
		return err
	}
	config, err := w.through(ctx, 1)
	if err != nil {
		return err
	}
	w.API, err = w.Client(config, -1, 0)
	return err
}

// through returns the configuration of an administrator who reaches the API servers by a proxy.
func (w *world) through(ctx context.Context, preferred int) (*rest.Config, error) {
	way, err := w.turningWay(ctx, preferred)
	if err != nil {
		return nil, err
	}
	config := w.Config()
	config.Host = "https://" + way.Address()
	return config, nil
}

// wayToAPI starts a proxy to the API servers. Connections reach the preferred one, and the other while that refuses
// them.
func (w *world) wayToAPI(ctx context.Context, preferred int) (*proxy.Proxy, error) {
	apis := w.APIAddresses()
	way, err := proxy.New(context.WithoutCancel(ctx), "127.0.0.1:0", apis[preferred], apis[1-preferred])
	if err != nil {
		return nil, err
	}
	w.group.Go(func() error { <-ctx.Done(); return way.Close() })
	return way, nil
}

// turnAfter is after which time the other API server is preferred.
const turnAfter = 5 * time.Second

// turningWay is wayToAPI with an API server that is preferred in turn, so that a client has connections to both.
func (w *world) turningWay(ctx context.Context, preferred int) (*proxy.Proxy, error) {
	way, err := w.wayToAPI(ctx, preferred)
	if err != nil {
		return nil, err
	}
	apis := w.APIAddresses()
	w.group.Go(func() error {
		for turn := 1 - preferred; pace.Pause(ctx, turnAfter) == nil; turn = 1 - turn {
			way.Lead(apis[turn], apis[1-turn])
		}
		return nil
	})
	return way, nil
}

func (w *world) startRecording(ctx context.Context) error {
	from, err := w.Etcd().Revision(ctx)
	if err != nil {
		return err
	}
	recorder := &record.Recorder{Store: w.Etcd(), Namespace: namespace, Log: w.log}
	w.group.Go(func() error { return recorder.Run(ctx, from) })
	return nil
}

func nodeName(number int) string { return fmt.Sprintf("node-%d", number) }

func (w *world) addNodes(ctx context.Context) error {
	if err := w.API.Create(ctx, &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: namespace}}); err != nil {
		return fmt.Errorf("creating the namespace of the jobs: %w", err)
	}
	for i := range nodeCount {
		if err := w.addNode(ctx, nodeName(i)); err != nil {
			return err
		}
	}
	return nil
}

func (w *world) addNode(ctx context.Context, name string) error {
	node := &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: name, Labels: map[string]string{corev1.LabelHostname: name}}}
	if err := client.IgnoreAlreadyExists(w.API.Create(ctx, node)); err != nil {
		return fmt.Errorf("adding node %s: %w", name, err)
	}
	status := `{"status":{"conditions":[{"type":"Ready","status":"True","reason":"Soak"}]}}`
	if err := w.API.Status().Patch(ctx, node, client.RawPatch(types.StrategicMergePatchType, []byte(status))); err != nil {
		return fmt.Errorf("making node %s ready: %w", name, err)
	}
	if err := w.API.Patch(ctx, node, client.RawPatch(types.MergePatchType, []byte(`{"spec":{"taints":null}}`))); err != nil {
		return fmt.Errorf("taking the taint off node %s: %w", name, err)
	}
	return nil
}

func (w *world) isDown(node string) bool {
	w.mutex.Lock()
	defer w.mutex.Unlock()
	return w.down[node]
}

func (w *world) setDown(node string, down bool) {
	w.mutex.Lock()
	defer w.mutex.Unlock()
	w.down[node] = down
}

func (w *world) startKubelet(ctx context.Context) error {
	config, err := w.through(ctx, 0)
	if err != nil {
		return err
	}
	w.members = newMembers(ctx, w)
	started := &kubelet.Kubelet{Config: config, Seen: w.members.see, IsDown: w.isDown, Retry: true}
	for i := range nodeCount {
		started.Nodes = append(started.Nodes, nodeName(i))
	}
	if err := started.Start(ctx); err != nil {
		return err
	}
	w.kubelet = started
	return nil
}

// startManager starts Kubernetes' own garbage collector.
func (w *world) startManager(ctx context.Context) error {
	binary, err := program.BuildCluster(ctx, "kube-controller-manager")
	if err != nil {
		return err
	}
	if w.collector, err = w.wayToAPI(ctx, 1); err != nil {
		return err
	}
	kubeconfig, err := w.KubeconfigAt("soak-controller-manager", w.collector.Address())
	if err != nil {
		return err
	}
	_, path, _ := strings.Cut(kubeconfig, "=")
	w.manager, err = program.StartForeign(ctx, w.folder, binary, "--kubeconfig="+path, "--leader-elect=false", "--secure-port=0",
		"--controllers=garbage-collector-controller", "--kube-api-qps=500", "--kube-api-burst=1000")
	return err
}

func (w *world) startPrograms(ctx context.Context) (err error) {
	if w.binaries, err = w.build(ctx); err != nil {
		return err
	}
	for _, service := range []**proxy.Proxy{&w.webhooks, &w.servers} {
		if *service, err = proxy.New(ctx, "127.0.0.1:0"); err != nil {
			return err
		}
		made := *service
		w.group.Go(func() error { <-ctx.Done(); return made.Close() })
	}
	for _, kind := range []string{webhooks, operator, server} {
		for number := range 2 {
			made, err := w.newInstance(ctx, kind, number)
			if err != nil {
				return err
			}
			w.instances = append(w.instances, made)
			w.group.Go(func() error { return made.run(ctx) })
		}
	}
	w.group.Go(func() error { w.lead(ctx, w.webhooks, w.of(webhooks)); return nil })
	w.group.Go(func() error { w.lead(ctx, w.servers, w.of(server)); return nil })
	for _, each := range w.instances {
		if err := each.waitReady(ctx); err != nil {
			return err
		}
	}
	if err := w.addAggregator(ctx); err != nil {
		return err
	}
	return w.eventually(ctx, "jobs are admitted", func(ctx context.Context) error { return admissionprobe.Probe(ctx, w.API, namespace) })
}

// addAggregator creates the AggregatorConfig of the cluster.
func (w *world) addAggregator(ctx context.Context) error {
	config := &v2alpha1.AggregatorConfig{ObjectMeta: metav1.ObjectMeta{Namespace: names.SystemNamespace, Name: names.AggregatorConfig}}
	config.Spec.Aggregator.Template = jobs.Template()
	return w.eventually(ctx, "an AggregatorConfig is admitted", func(ctx context.Context) error {
		return client.IgnoreAlreadyExists(w.API.Create(ctx, config.DeepCopy()))
	})
}

// of returns the programs of a kind.
func (w *world) of(kind string) []*instance {
	var found []*instance
	for _, each := range w.instances {
		if each.kind == kind {
			found = append(found, each)
		}
	}
	return found
}

// eventually waits until holds returns no error. It is repeated while the API server cannot be reached.
func (w *world) eventually(ctx context.Context, what string, holds func(context.Context) error) error {
	var last error
	err := wait.PollUntilContextTimeout(ctx, 200*time.Millisecond, testkit.Patience, true, func(ctx context.Context) (bool, error) {
		last = holds(ctx)
		return last == nil, nil
	})
	if err != nil {
		return fmt.Errorf("waiting until %s: %w", what, errors.Join(err, last))
	}
	return nil
}
