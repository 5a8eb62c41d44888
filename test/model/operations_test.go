// Copyright The DI Orchestrator Authors.
// SPDX-License-Identifier: Apache-2.0

package model

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"slices"
	"sync"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"opendilab.org/di-orchestrator/apis/v2alpha1"
)

// size is the maximum number of replicas of a job.
const size = 8

// operation is a failure, or a request of the coordinator.
type operation struct {
	name string
	// weight is the relative probability of the operation.
	weight int
	// possible reports whether the operation can be played now; nil for always.
	possible func(*fixture) bool
	// waits is set if the operation waits for the operator, which must then not be kept down.
	waits bool
	play  func(*fixture, context.Context) error
}

func operations() []operation {
	small := func(t *fixture) bool { return len(t.model.replicas) <= size }
	some := func(t *fixture) bool { return len(t.model.replicas) > 0 }
	return []operation{
		{name: "add", weight: 16, possible: small, play: (*fixture).add},
		{name: "remove", weight: 20, possible: some, play: (*fixture).removeSome},
		{name: "report", weight: 12, possible: some, play: (*fixture).reportSome},
		{name: "report lost ones", weight: 5, possible: (*fixture).hasLost, play: (*fixture).reportLost},
		{name: "report DDP learners", weight: 6, possible: (*fixture).hasUnit, play: (*fixture).reportUnit},
		{name: "lose pods", weight: 14, possible: some, play: (*fixture).losePods},
		{name: "lose pods and report them", weight: 6, possible: some, play: (*fixture).loseAndReport},
		{name: "lose a node", weight: 7, waits: true, play: (*fixture).loseNode},
		{name: "lose services", weight: 4, play: (*fixture).loseServices},
		{name: "restart containers of replicas", weight: 3, possible: some, play: (*fixture).crashSome},
		{name: "restart the coordinator's container", weight: 6, waits: true, play: (*fixture).restartCoordinator},
		{name: "lose the coordinator", weight: 5, waits: true, play: (*fixture).loseCoordinator},
		{name: "delete the Membership", weight: 5, waits: true, play: (*fixture).deleteMembership},
		{name: "ask again", weight: 5, possible: small, play: (*fixture).askAgain},
		{name: "ask both servers at once", weight: 8, possible: small, play: (*fixture).askAtOnce},
		{name: "add and lose what is new", weight: 6, possible: small, waits: true, play: (*fixture).addAndLose},
	}
}

// choose returns a random operation that is possible.
func (t *fixture) choose() operation {
	var possible []operation
	total := 0
	for _, one := range operations() {
		if one.possible == nil || one.possible(t) {
			possible = append(possible, one)
			total += one.weight
		}
	}
	left := t.random.IntN(total)
	for _, one := range possible {
		if left -= one.weight; left < 0 {
			return one
		}
	}
	return possible[0]
}

// some returns between one and most random elements of a list, or all if there are fewer.
func some[T any](t *fixture, list []T, most int) []T {
	list = slices.Clone(list)
	t.random.Shuffle(len(list), func(i, j int) { list[i], list[j] = list[j], list[i] })
	if len(list) == 0 {
		return nil
	}
	return list[:1+t.random.IntN(min(most, len(list)))]
}

func (t *fixture) hasLost() bool { return len(t.lostPods()) > 0 }

func (t *fixture) hasUnit() bool { return slices.ContainsFunc(t.model.replicas, (*replica).isUnit) }

// lostPods returns the lost pods that are still advertised.
func (t *fixture) lostPods() []string {
	var found []string
	for _, one := range t.model.replicas {
		for _, url := range one.lost {
			found = append(found, podOf(url))
		}
	}
	for _, one := range t.model.strays {
		found = append(found, podOf(one.url))
	}
	return found
}

// heads returns the pods whose URLs are advertised.
func (t *fixture) heads() []string {
	var found []string
	for _, one := range t.model.replicas {
		found = append(found, podOf(one.url))
	}
	return found
}

// allPods returns all pods of replicas.
func (t *fixture) allPods() []string {
	var found []string
	for _, one := range t.model.replicas {
		found = append(found, one.pods()...)
	}
	return found
}

// gonePods returns the pods that were replaced or removed and are not advertised.
func (t *fixture) gonePods() []string {
	known := slices.Concat(t.allPods(), t.lostPods())
	var gone []string
	for name := range t.model.used {
		if !slices.Contains(known, name) {
			gone = append(gone, name)
		}
	}
	slices.Sort(gone)
	return gone
}

func (t *fixture) add(ctx context.Context) error {
	_, err := t.post(ctx, t.someDemand(), "")
	return err
}

func (t *fixture) removeSome(ctx context.Context) error {
	collectors := t.random.IntN(min(4, len(t.model.of(collector))) + 1)
	learners := t.random.IntN(min(3, len(t.model.of(learner))) + 1)
	return t.delete(ctx, collectors, learners)
}

// reportSome reports running pods, some of them twice, and pods that are gone or lost.
func (t *fixture) reportSome(ctx context.Context) error {
	pods := some(t, t.allPods(), 3)
	if t.random.IntN(2) == 0 {
		pods = append(pods, some(t, pods, 2)...)
	}
	if t.random.IntN(3) == 0 {
		pods = append(pods, some(t, t.gonePods(), 2)...)
	}
	if t.random.IntN(3) == 0 {
		pods = append(pods, some(t, t.lostPods(), 2)...)
	}
	if t.random.IntN(8) == 0 {
		pods = some(t, t.gonePods(), 3)
	}
	return t.report(ctx, pods)
}

func (t *fixture) reportLost(ctx context.Context) error {
	return t.report(ctx, some(t, t.lostPods(), 3))
}

func (t *fixture) reportUnit(ctx context.Context) error {
	var units []*replica
	for _, one := range t.model.replicas {
		if one.isUnit() {
			units = append(units, one)
		}
	}
	unit := some(t, units, 1)[0]
	pods := some(t, unit.learners, 2)
	return t.reportLearners(ctx, unit, append(pods, some(t, pods, 1)...))
}

// losePods loses several pods at once in random ways.
func (t *fixture) losePods(ctx context.Context) error {
	pods := some(t, t.allPods(), 3)
	if err := t.lose(ctx, pods, losses()); err != nil {
		return err
	}
	t.model.lose(pods)
	return nil
}

// lose loses pods at once, each in one of the given ways.
func (t *fixture) lose(ctx context.Context, pods []string, ways []loss) error {
	found, err := t.read(ctx)
	if err != nil {
		return err
	}
	faults := make([]error, len(pods))
	var group sync.WaitGroup
	for i, name := range pods {
		pod, way := found.pod(name), ways[t.random.IntN(len(ways))]
		if pod == nil {
			return fmt.Errorf("pod %s is gone already", name)
		}
		t.logf("  %s is %s", name, way.name)
		group.Go(func() { faults[i] = way.do(t.machines, ctx, pod) })
	}
	group.Wait()
	return errors.Join(faults...)
}

// loseAndReport loses pods while the coordinator reports them.
func (t *fixture) loseAndReport(ctx context.Context) error {
	pods := some(t, t.heads(), 2)
	body, server := t.reportBody(t.coordinator, pods), t.anyServer()
	t.reported[fmt.Sprint(body)] = true
	var replied urls
	var failed error
	var group sync.WaitGroup
	group.Go(func() {
		replied, failed = t.write(ctx, t.coordinator, server, request{http.MethodPost, failedPath, body, ""})
	})
	err := t.lose(ctx, pods, losses())
	group.Wait()
	if err := errors.Join(err, failed); err != nil {
		return err
	}
	return t.acceptReport(pods, replied)
}

// loseNode loses a node, possibly that of the coordinator.
func (t *fixture) loseNode(ctx context.Context) error {
	node := nodeNames()[t.random.IntN(len(nodeNames()))]
	ways := nodeLosses()[t.random.IntN(len(nodeLosses()))]
	if err := t.stopPolling(); err != nil {
		return err
	}
	t.machines.setDown(node, true)
	found, err := t.read(ctx)
	if err != nil {
		return err
	}
	var pods []*corev1.Pod
	var lost []string
	for i := range found.pods {
		if pod := &found.pods[i]; pod.Spec.NodeName == node {
			pods = append(pods, pod)
			lost = append(lost, pod.Name)
		}
	}
	t.logf("  %s is lost, its pods %v are %s", node, lost, ways[0].name)
	err = errors.Join(t.machines.loseNode(ctx, pods, ways), t.machines.comeBack(ctx, node))
	if err != nil {
		return err
	}
	t.model.lose(lost)
	if !slices.Contains(lost, t.coordinator.pod) {
		return nil
	}
	return t.startAgain(ctx)
}

func (t *fixture) loseServices(ctx context.Context) error {
	found, err := t.read(ctx)
	if err != nil {
		return err
	}
	for _, service := range some(t, found.services, 3) {
		t.logf("  service %s is deleted", service.Name)
		if err := t.api.client.Delete(ctx, &service); err != nil {
			return fmt.Errorf("deleting a service: %w", err)
		}
	}
	return nil
}

func (t *fixture) crashSome(ctx context.Context) error {
	return t.lose(ctx, some(t, t.allPods(), 2), []loss{{"restarted in place", (*machines).crash}})
}

// stopPolling stops the coordinator's requests for this round.
func (t *fixture) stopPolling() error {
	_, err := t.poller.finish()
	return err
}

func (t *fixture) restartCoordinator(ctx context.Context) error {
	if err := t.stopPolling(); err != nil {
		return err
	}
	if err := t.lose(ctx, []string{t.coordinator.pod}, []loss{{"restarted in place", (*machines).crash}}); err != nil {
		return err
	}
	return t.firstRequest(ctx)
}

func (t *fixture) loseCoordinator(ctx context.Context) error {
	if err := t.stopPolling(); err != nil {
		return err
	}
	if err := t.lose(ctx, []string{t.coordinator.pod}, losses()[:disruptions]); err != nil {
		return err
	}
	return t.startAgain(ctx)
}

// startAgain waits for a new coordinator, which requests its replicas.
func (t *fixture) startAgain(ctx context.Context) error {
	if err := t.settle(ctx); err != nil {
		return err
	}
	return t.firstRequest(ctx)
}

// firstRequest sends the first request of a coordinator's new container.
func (t *fixture) firstRequest(ctx context.Context) error {
	t.model.container++
	around := func(task string) int { return max(0, len(t.model.of(task))+t.random.IntN(4)-2) }
	_, err := t.post(ctx, t.newDemand(around(collector), around(learner)), "")
	return err
}

// deleteMembership deletes the list by hand. The coordinator may request more replicas before the
// list is recreated.
func (t *fixture) deleteMembership(ctx context.Context) error {
	list := &v2alpha1.Membership{ObjectMeta: metav1.ObjectMeta{Namespace: t.namespace, Name: jobName}}
	if err := t.api.client.Delete(ctx, list); err != nil {
		return fmt.Errorf("deleting the Membership: %w", err)
	}
	t.model.rebuild()
	if t.random.IntN(2) == 0 {
		return nil
	}
	_, err := t.post(ctx, t.someDemand(), "")
	// The order of the existing replicas is unknown.
	t.model.settled = 0
	return err
}

// askAgain sends a request twice. di-server executes a repeat once; after a removal it executes the
// request again.
func (t *fixture) askAgain(ctx context.Context) error {
	asked, key := t.someDemand(), ""
	if t.random.IntN(3) == 0 {
		key = fmt.Sprintf("demand %d", t.asked)
	}
	first, err := t.post(ctx, asked, key)
	if err != nil {
		return err
	}
	again, err := t.write(ctx, t.coordinator, t.anyServer(), request{http.MethodPost, replicasPath, asked.body(t.coordinator), key})
	if err != nil {
		return err
	}
	if !slices.Equal(first.all(), again.all()) {
		return fmt.Errorf("the first answer was %v, that to the repeat %v", first, again)
	}
	if t.random.IntN(2) == 0 || key != "" {
		return nil
	}
	if err := t.delete(ctx, 1, 0); err != nil {
		return err
	}
	_, err = t.post(ctx, asked, "")
	return err
}

// askAtOnce sends several requests and a failure report to both servers concurrently.
func (t *fixture) askAtOnce(ctx context.Context) error {
	asked := make([]demand, 2+t.random.IntN(2))
	replied := make([][]urls, len(asked))
	faults := make([]error, len(asked)*len(t.servers)+1)
	var group sync.WaitGroup
	pods := some(t, t.heads(), 2)
	body, reported := t.reportBody(t.coordinator, pods), urls{}
	t.reported[fmt.Sprint(body)] = true
	for i := range asked {
		asked[i] = t.newDemand(1+t.random.IntN(2), t.random.IntN(2))
		replied[i] = make([]urls, len(t.servers))
		sent := request{http.MethodPost, replicasPath, asked[i].body(t.coordinator), ""}
		for server := range t.servers {
			group.Go(func() {
				replied[i][server], faults[1+i*len(t.servers)+server] = t.write(ctx, t.coordinator, server, sent)
			})
		}
	}
	group.Go(func() {
		reported, faults[0] = t.write(ctx, t.coordinator, 0, request{http.MethodPost, failedPath, body, ""})
	})
	group.Wait()
	if err := errors.Join(faults...); err != nil {
		return err
	}
	before := len(t.model.replicas)
	if err := t.acceptReport(pods, reported); err != nil {
		return err
	}
	for i := range asked {
		if !slices.Equal(replied[i][0].all(), replied[i][1].all()) {
			return fmt.Errorf("two servers answered one request with %v", replied[i])
		}
		if err := t.accept(asked[i], replied[i][0]); err != nil {
			return err
		}
	}
	t.model.settled = before
	return nil
}

// addAndLose loses some of the new replicas once they run and can be reached. No client reaches a
// pod that has no Service yet, and an operator that restarts then may create another pod with the
// same name.
func (t *fixture) addAndLose(ctx context.Context) error {
	replied, err := t.post(ctx, t.someDemand(), "")
	if err != nil {
		return err
	}
	var pods []string
	for _, url := range some(t, replied.all(), 2) {
		pods = append(pods, podOf(url))
	}
	err = eventually(ctx, patience, func(ctx context.Context) error {
		found, err := t.read(ctx)
		if err != nil {
			return err
		}
		for _, name := range pods {
			if pod := found.pod(name); pod == nil || pod.Status.Phase != corev1.PodRunning {
				return fmt.Errorf("pod %s does not run", name)
			}
			if !found.isReachable(name) {
				return fmt.Errorf("pod %s has no service", name)
			}
		}
		return nil
	})
	if err != nil {
		return err
	}
	if err := t.lose(ctx, pods, losses()); err != nil {
		return err
	}
	t.model.lose(pods)
	return nil
}

// disturbance is the end of a program during an operation.
type disturbance struct {
	name          string
	begin, finish func()
}

// disturb chooses the disturbance of an operation.
func (t *fixture) disturb(played operation) disturbance {
	nothing := disturbance{"undisturbed", func() {}, func() {}}
	t.endangered = false
	switch t.random.IntN(10) {
	case 0, 1:
		return t.endProgram(t.operator, 1+t.random.IntN(8))
	case 2, 3:
		t.endangered = true
		return t.endProgram(t.servers[t.anyServer()].program, 1+t.random.IntN(2))
	case 4:
		one := t.servers[t.anyServer()]
		return disturbance{one.name + " is stopped", func() { go t.terminate(one.program) }, func() {}}
	case 5:
		if played.waits {
			return nothing
		}
		return disturbance{"the operator is down meanwhile", func() {
			t.operator.held.Lock()
			t.operator.kill()
		}, t.operator.held.Unlock}
	}
	return nothing
}

func (t *fixture) terminate(one *program) {
	if current, _ := one.running(); current != nil {
		current.terminate()
	}
}

// endProgram ends a program at one of its writes, after the operation, or not at all.
func (t *fixture) endProgram(one *program, write int) disturbance {
	reaches, anyway := t.random.IntN(2) == 0, t.random.IntN(2) == 0
	var current *process
	return disturbance{
		name: fmt.Sprintf("the %s ends at its write %d, which reaches: %t, else after it: %t", one.name, write, reaches, anyway),
		begin: func() {
			current, _ = one.running()
			current.endAt(write, reaches)
		},
		finish: func() {
			if anyway {
				current.end()
			}
			// A plan that did not take effect applies to this round only.
			current.endAt(-1, false)
		},
	}
}
