// Copyright The DI Orchestrator Authors.
// SPDX-License-Identifier: Apache-2.0

package sharding

import (
	"context"
	"testing"
	"time"

	"github.com/go-logr/logr"
	coordinationv1 "k8s.io/api/coordination/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/kubernetes/fake"
	clienttesting "k8s.io/client-go/testing"
	"k8s.io/client-go/tools/record"
	clocktesting "k8s.io/utils/clock/testing"
	"k8s.io/utils/ptr"

	"opendilab.org/di-orchestrator/controllers/shards"
	"opendilab.org/di-orchestrator/test/testkit/expect"
)

const leaderLease = "operator"

// installation is an API server with Leases, and the election of one operator of two shards.
type installation struct {
	*Election
	t     *testing.T
	api   *fake.Clientset
	fake  *clocktesting.FakeClock
	began time.Time
}

func install(t *testing.T) *installation {
	t.Helper()
	api, began := fake.NewClientset(), time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC)
	clock := clocktesting.NewFakeClock(began)
	leases := newLeases(api.CoordinationV1(), record.NewFakeRecorder(10), types.NamespacedName{Namespace: "di-system", Name: leaderLease}, "me", clock)
	return &installation{Election: NewElection(leases, 2, nil, clock, logr.Discard()), t: t, api: api, fake: clock, began: began}
}

// write creates or renews a Lease.
func (i *installation) write(name, holder, charter string) {
	i.t.Helper()
	lease := &coordinationv1.Lease{
		ObjectMeta: metav1.ObjectMeta{Namespace: "di-system", Name: name, Labels: map[string]string{labelLease: leaderLease}, Annotations: map[string]string{annotationCharter: charter}},
		Spec: coordinationv1.LeaseSpec{
			HolderIdentity: &holder, LeaseDurationSeconds: ptr.To(int32(LeaseDuration / time.Second)), RenewTime: ptr.To(metav1.NewMicroTime(i.fake.Now())),
		},
	}
	resource := coordinationv1.SchemeGroupVersion.WithResource("leases")
	err := i.api.Tracker().Create(resource, lease, lease.Namespace)
	if apierrors.IsAlreadyExists(err) {
		err = i.api.Tracker().Update(resource, lease, lease.Namespace)
	}
	expect.NoError(i.t, err)
}

// follows reads the Leases, and returns the wish for a shard.
func (i *installation) follows(shard int) wish {
	i.t.Helper()
	i.follow(i.t.Context())
	return <-i.wishes[shard]
}

func TestAnOperatorTakesTheShardsOfAKilledOneSoonAfterTheirLeasesExpire(t *testing.T) {
	t.Parallel()
	for name, lead := range map[string]string{"the leader is killed": "killed", "another operator leads": "leader"} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			i := install(t)
			i.write(leaderLease, lead, "2 "+lead)
			i.write(shards.LeaseName(leaderLease, 0, 2), "killed", "")
			i.turns.begin(1)
			for {
				if lead != "killed" {
					i.write(leaderLease, lead, "2 "+lead)
				}
				i.write(shards.LeaseName(leaderLease, 1, 2), "me", "")
				made, waited := i.follows(0), i.fake.Since(i.began)
				if made.take && waited <= LeaseDuration {
					t.Fatalf("it takes the shard after %s, before its Lease expires", waited)
				}
				if waited > LeaseDuration+2*interval {
					t.Fatalf("it has not taken the shard after %s", waited)
				}
				if made.take {
					i.takes(0, made)
					return
				}
				i.fake.Step(interval)
			}
		})
	}
}

// takes waits until the shard is taken by a wish.
func (i *installation) takes(shard int, made wish) {
	i.t.Helper()
	ctx, cancel := context.WithCancel(i.t.Context())
	ended := make(chan error, 1)
	go func() { ended <- i.campaign(ctx, shard) }()
	i.wishes[shard] <- made
	<-i.leases.changed
	if term := i.turns.now()[shard]; term == 0 {
		i.t.Error("it has no term")
	}
	cancel()
	if err := <-ended; err != nil {
		i.t.Error(err)
	}
	if term := i.turns.now()[shard]; term != 0 {
		i.t.Error("its term has not ended")
	}
}

func TestALeaseThatItsHolderRenewsMeanwhileIsNotTaken(t *testing.T) {
	t.Parallel()
	i := install(t)
	name := shards.LeaseName(leaderLease, 0, 2)
	i.write(name, "slow", "")
	all, err := i.leases.list(t.Context())
	expect.NoError(t, err)
	of := &lock{Interface: i.leases.lock(name), turns: i.turns, free: shards.Find(all, name)}
	holder := func() string {
		record, _, err := of.Get(t.Context())
		expect.NoError(t, err)
		return record.HolderIdentity
	}
	if got := holder(); got != "" {
		t.Errorf("a Lease that has expired is held by %q, want no one", got)
	}
	i.fake.Step(time.Second)
	i.write(name, "slow", "")
	if got := holder(); got != "slow" {
		t.Errorf("a Lease that was renewed is held by %q, want its holder", got)
	}
	i.write(name, "me", "")
	of.free = shards.Lease{Holder: "me", Renewed: i.fake.Now()}
	if got := holder(); got != "me" {
		t.Errorf("an own Lease is held by %q, want this process", got)
	}
}

func TestATakingWhoseAnswerWasLostIsRepeated(t *testing.T) {
	t.Parallel()
	i := install(t)
	i.write(leaderLease, "leader", "2 leader")
	i.write(shards.LeaseName(leaderLease, 0, 2), "me", "")
	i.write(shards.LeaseName(leaderLease, 1, 2), "other", "")
	made := i.follows(0)
	if !made.take {
		t.Error("it leaves a Lease that names it to expire")
	}
	i.takes(0, made)
}

func TestAnAttemptEndsWhenTheShardIsAnothers(t *testing.T) {
	t.Parallel()
	i := install(t)
	tried := make(chan struct{}, 8)
	i.api.PrependReactor("create", "leases", func(clienttesting.Action) (bool, runtime.Object, error) {
		tried <- struct{}{}
		return true, nil, context.DeadlineExceeded
	})
	ended := make(chan error, 1)
	go func() { ended <- i.term(t.Context(), 0, shards.Lease{}) }()
	<-tried
	i.wishes[0] <- wish{}
	if err := <-ended; err != nil {
		t.Error(err)
	}
}

func TestTheElectionReadsTheLeasesAsSoonAsThisProcessDeclares(t *testing.T) {
	t.Parallel()
	i := install(t)
	i.write(leaderLease, "me", "2 killed")
	taken := make(chan struct{})
	close(taken)
	leader := NewLeader(i.leases, 2, taken, i.fake, logr.Discard())
	expect.NoError(t, leader.Start(t.Context()))
	<-leader.MayAct()
	<-i.leases.changed
}
