// Copyright The DI Orchestrator Authors.
// SPDX-License-Identifier: Apache-2.0

package model

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"sync"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"opendilab.org/di-orchestrator/apis/v2alpha1"
	"opendilab.org/di-orchestrator/internal/names"
	"opendilab.org/di-orchestrator/test/testkit"
	"opendilab.org/di-orchestrator/test/testkit/jobs"
	"opendilab.org/di-orchestrator/test/testkit/proxy"
)

const (
	jobName    = "cartpole"
	configName = "aggregator-config"
	// patience is the timeout for a job to reach the desired state on a loaded machine.
	patience = testkit.Patience
	// recalled is the number of rounds that are printed after a failure.
	recalled = 4
)

// endpoint is a di-server and its address for clients.
type endpoint struct {
	*program
	at *proxy.Proxy
}

// fixture is one job, the programs that reconcile and serve it, and its model.
type fixture struct {
	api       *cluster
	namespace string
	// random makes the choices of a round. It is derived from seed and round, so that a round does
	// not depend on the results of earlier choices.
	seed   uint64
	random *rand.Rand
	model  *model

	machines *machines
	operator *program
	servers  []endpoint
	// coordinator is the coordinator's container.
	coordinator caller
	poller      *poller
	// asked counts the requests for replicas. The count makes each request unique.
	asked int
	// reported contains the bodies of failure reports.
	reported map[string]bool
	// endangered is set while a server will end in a round.
	endangered bool

	// played counts the operations.
	played map[string]int

	group sync.WaitGroup
	// mutex guards what follows.
	mutex   sync.Mutex
	faults  []error
	history [][]string
	// replied are the URLs in the answers of a round.
	replied []string
}

// newFixture submits a job and starts the programs for it.
func newFixture(ctx context.Context, api *cluster, number int, seed uint64) (*fixture, error) {
	namespace := &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{GenerateName: fmt.Sprintf("model-%d-", number)}}
	if err := api.client.Create(ctx, namespace); err != nil {
		return nil, fmt.Errorf("making a namespace: %w", err)
	}
	t := &fixture{
		api: api, namespace: namespace.Name, seed: seed, played: map[string]int{}, reported: map[string]bool{}, model: newModel(), history: [][]string{nil},
		machines: &machines{
			api: api, namespace: namespace.Name, network: 20 + number, down: map[string]bool{}, uids: map[string]types.UID{},
		},
		operator:    newOperator(api, namespace.Name),
		coordinator: caller{namespace: namespace.Name, pod: names.CoordinatorPod(jobName)},
	}
	for i := range 2 {
		at, err := proxy.New(ctx, "127.0.0.1:0")
		if err != nil {
			return nil, err
		}
		t.servers = append(t.servers, endpoint{newServer(api, namespace.Name, i, at), at})
		context.AfterFunc(ctx, func() { _ = at.Close() })
	}
	for _, run := range []func(context.Context) error{t.machines.run, t.operator.run, t.servers[0].run, t.servers[1].run} {
		t.group.Go(func() { t.fail(run(ctx)) })
	}
	return t, t.submit(ctx)
}

// submit creates the job as a user does.
func (t *fixture) submit(ctx context.Context) error {
	template := func(policy, port string) v2alpha1.RawObject {
		return jobs.Raw(fmt.Sprintf(`{"spec":{%s"containers":[{"name":"di-container","image":"di"%s}]}}`, policy, port))
	}
	config := &v2alpha1.AggregatorConfig{ObjectMeta: metav1.ObjectMeta{Namespace: t.namespace, Name: configName}}
	config.Spec.Aggregator.Template = template("", `,"ports":[{"name":"di-port","containerPort":22280}]`)
	job := &v2alpha1.DIJob{ObjectMeta: metav1.ObjectMeta{Namespace: t.namespace, Name: jobName}}
	job.Spec = v2alpha1.DIJobSpec{Lifecycle: v2alpha1.LifecycleCoordinatorLed, Tasks: []v2alpha1.Task{
		// A coordinator may be restarted in place.
		{Type: v2alpha1.TaskTypeCoordinator, Template: template(`"restartPolicy":"OnFailure",`, "")},
		{Type: v2alpha1.TaskTypeCollector, Template: template("", "")},
		{Type: v2alpha1.TaskTypeLearner, Template: template("", "")},
	}}
	for _, object := range []client.Object{config, job} {
		if err := t.api.client.Create(ctx, object); err != nil {
			return fmt.Errorf("submitting the job: %w", err)
		}
	}
	return nil
}

// fail records an error from outside the rounds.
func (t *fixture) fail(err error) {
	t.mutex.Lock()
	defer t.mutex.Unlock()
	if err != nil {
		t.faults = append(t.faults, err)
	}
}

// wait waits until all programs of the job have exited and returns their errors.
func (t *fixture) wait() error {
	t.group.Wait()
	t.mutex.Lock()
	defer t.mutex.Unlock()
	return errors.Join(append(t.faults, t.machines.fault())...)
}

// logf adds a line to the history of the round.
func (t *fixture) logf(format string, arguments ...any) {
	t.mutex.Lock()
	defer t.mutex.Unlock()
	last := len(t.history) - 1
	t.history[last] = append(t.history[last], fmt.Sprintf(format, arguments...))
}

// tail returns the history of the last rounds.
func (t *fixture) tail() string {
	var lines []string
	for _, round := range t.history[max(0, len(t.history)-recalled):] {
		lines = append(lines, round...)
	}
	return strings.Join(lines, "\n")
}

// play runs the rounds and finishes the job.
func (t *fixture) play(ctx context.Context, rounds int) error {
	if err := t.settle(ctx); err != nil {
		return fmt.Errorf("the job does not start: %w", err)
	}
	for number := range rounds {
		t.history = append(t.history, nil)
		if err := t.round(ctx, number); err != nil {
			return fmt.Errorf("round %d: %w", number, err)
		}
	}
	return t.finish(ctx)
}

// round runs one operation, possibly with a disturbance, and waits until the job matches the model.
func (t *fixture) round(ctx context.Context, number int) error {
	before := t.model.listed().all()
	t.replied = nil
	t.random = rand.New(rand.NewPCG(t.seed, uint64(number)))
	played := t.choose()
	t.played[played.name]++
	disturbed := t.disturb(played)
	t.logf("round %d: %s, %s", number, played.name, disturbed.name)
	t.startPolling(ctx)
	disturbed.begin()
	err := played.play(t, ctx)
	disturbed.finish()
	if err == nil {
		err = t.settle(ctx)
	}
	sightings, fault := t.poller.finish()
	err = errors.Join(err, fault, t.machines.fault())
	if err != nil {
		return err
	}
	after := t.model.listed().all()
	t.logf("  listed: %s", strings.Join(after, " "))
	return round{before, after, t.replied}.check(sightings)
}

// settle waits until the job matches the model. It adds to the model the pod names that no client
// knows yet.
func (t *fixture) settle(ctx context.Context) error {
	return eventually(ctx, patience, func(ctx context.Context) error {
		found, err := t.read(ctx)
		if err != nil {
			return err
		}
		next := t.model.clone()
		if err := next.learn(found, t.namespace); err != nil {
			return &finalError{err}
		}
		want, got := next.wanted(jobName, len(t.servers)), found.look()
		lists, units := want.Lists, want.Units
		want.Lists, want.Units = nil, nil
		if diff := difference(want, got); diff != "" {
			return fmt.Errorf("the job differs from the model (-want +got):\n%s", diff)
		}
		t.coordinator.address = found.pod(t.coordinator.pod).Status.PodIP
		want.Lists, want.Units = lists, units
		if err := t.ask(ctx, found, next, &got); err != nil {
			return err
		}
		if diff := difference(want, got); diff != "" {
			return fmt.Errorf("the servers do not answer as expected (-want +got):\n%s", diff)
		}
		t.model = next
		return nil
	})
}

func difference(want, got view) string {
	return cmp.Diff(want, got, cmpopts.EquateEmpty())
}

// ask adds to the view what the servers answer to the coordinator and the aggregators.
func (t *fixture) ask(ctx context.Context, found *state, m *model, got *view) error {
	for server := range t.servers {
		replied, err := t.listFinally(ctx, t.coordinator, server, coordinator)
		if err != nil {
			return err
		}
		got.Lists = append(got.Lists, replied.urls().sorted())
		units := map[string][]string{}
		for _, one := range m.replicas {
			if !one.isUnit() {
				continue
			}
			by := t.callerIn(found, podOf(one.url))
			if replied, err = t.listFinally(ctx, by, server, aggregator); err != nil {
				return err
			}
			units[by.pod] = replied.Learners
		}
		got.Units = append(got.Units, units)
	}
	return nil
}

// listFinally lists from a server. It does not retry after an error status.
func (t *fixture) listFinally(ctx context.Context, by caller, server int, parameter string) (answer, error) {
	replied, err := t.list(ctx, by, server, parameter)
	if refusal(err) != nil {
		return replied, &finalError{fmt.Errorf("GET by %s of server %d: %w", by.pod, server, err)}
	}
	return replied, err
}

// callerIn returns the client in a pod.
func (t *fixture) callerIn(found *state, pod string) caller {
	by := caller{namespace: t.namespace, pod: pod}
	if existing := found.pod(pod); existing != nil {
		by.address = existing.Status.PodIP
	}
	return by
}

// summary returns how often each operation was played.
func (t *fixture) summary() string {
	var starts []string
	for _, one := range []*program{t.operator, t.servers[0].program, t.servers[1].program} {
		_, count := one.running()
		starts = append(starts, fmt.Sprintf("%s %d", one.name, count))
	}
	return fmt.Sprintf("moves: %v; processes: %s; pods: %d", t.played, strings.Join(starts, ", "), len(t.machines.uids))
}

// finish lets the coordinator succeed. The operator then cleans up the job.
func (t *fixture) finish(ctx context.Context) error {
	t.history = append(t.history, []string{"the coordinator succeeds"})
	found, err := t.read(ctx)
	if err != nil {
		return err
	}
	if err := t.machines.succeed(ctx, found.pod(t.coordinator.pod)); err != nil {
		return err
	}
	return eventually(ctx, patience, func(ctx context.Context) error {
		found, err := t.read(ctx)
		if err != nil {
			return err
		}
		var left []string
		for name := range found.look().Pods {
			left = append(left, name)
		}
		if found.job.Status.Phase != v2alpha1.JobSucceeded || len(found.services) > 0 || !slices.Equal(left, []string{t.coordinator.pod}) {
			return fmt.Errorf("the job is %s, and left are pods %v and %d services", found.job.Status.Phase, left, len(found.services))
		}
		return nil
	})
}
