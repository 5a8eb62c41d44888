// Copyright The DI Orchestrator Authors.
// SPDX-License-Identifier: Apache-2.0

package programs

import (
	"context"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"testing"
	"time"

	"golang.org/x/sync/errgroup"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"opendilab.org/di-orchestrator/apis/v2alpha1"
	"opendilab.org/di-orchestrator/history/record"
	"opendilab.org/di-orchestrator/internal/names"
	"opendilab.org/di-orchestrator/test/testkit/pace"
	"opendilab.org/di-orchestrator/test/testkit/postgres"
)

var (
	historyKills = flag.Int("history.kills", 10, "how often the history is killed, or its PostgreSQL restarted")
	historySeed  = flag.Uint64("history.seed", 1, "seed of the jobs and of the kills")
)

const (
	// longEnough is how long a job exists that must be recorded.
	longEnough = 10 * time.Second
	// atWork is how long a program records before and after the end of a job whose end it must have seen.
	atWork = 5 * time.Second
	// living is how many jobs exist at a time.
	living = 30
)

// span is when a history recorded.
type span struct{ from, to time.Time }

// fate is what happened to a job.
type fate struct {
	job *v2alpha1.DIJob
	// created and deleted are times of the test; deleted is zero if the job still exists.
	created, deleted time.Time
	// phase is the one that it finished in; empty if it did not.
	phase v2alpha1.Phase
	// held is set if the job waits until its end is recorded.
	held bool
}

// lives creates, runs, finishes and deletes jobs at random.
type lives struct {
	api    client.Client
	chance *rand.Rand
	// held is set if jobs wait until their end is recorded.
	held bool
	all  []*fate
	// alive are those that exist.
	alive []*fate
}

func (l *lives) run(ctx context.Context, until <-chan struct{}) error {
	for {
		select {
		case <-until:
			return nil
		default:
		}
		if err := errors.Join(l.step(ctx), pace.Pause(ctx, 20*time.Millisecond)); err != nil {
			return err
		}
	}
}

func (l *lives) step(ctx context.Context) error {
	if len(l.alive) < living {
		return l.create(ctx)
	}
	at := l.chance.IntN(len(l.alive))
	of := l.alive[at]
	switch chosen := l.chance.IntN(100); {
	case chosen < 60:
		return l.write(ctx, of, v2alpha1.JobRunning)
	case chosen < 75:
		return l.write(ctx, of, []v2alpha1.Phase{v2alpha1.JobSucceeded, v2alpha1.JobFailed}[l.chance.IntN(2)])
	case chosen < 85:
		l.alive[at] = l.alive[len(l.alive)-1]
		l.alive = l.alive[:len(l.alive)-1]
		of.deleted = time.Now()
		return l.api.Delete(ctx, of.job)
	}
	return nil
}

func (l *lives) create(ctx context.Context) error {
	job := &v2alpha1.DIJob{ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: fmt.Sprintf("ppo-%05d", len(l.all))}}
	job.Spec.Lifecycle, job.Spec.Tasks = v2alpha1.LifecycleWorkerLed, []v2alpha1.Task{{Name: "worker", Type: v2alpha1.TaskTypeNone}}
	job.Spec.Tasks[0].Template.Raw = []byte(`{"spec":{"containers":[{"name":"di-container","image":"ding:2"}]}}`)
	if l.held {
		job.Finalizers = []string{names.FinalizerHistory}
	}
	if err := l.api.Create(ctx, job); err != nil {
		return err
	}
	of := &fate{job: job, created: time.Now(), held: l.held}
	l.all, l.alive = append(l.all, of), append(l.alive, of)
	return nil
}

// write writes the phase of a job that has not finished.
func (l *lives) write(ctx context.Context, of *fate, phase v2alpha1.Phase) error {
	if of.phase != "" {
		return nil
	}
	before := of.job.DeepCopy()
	of.job.Status.Phase = phase
	of.job.Status.Restarts++
	if phase != v2alpha1.JobRunning {
		now := metav1.Now()
		of.phase, of.job.Status.CompletionTimestamp = phase, &now
	}
	return l.api.Status().Patch(ctx, of.job, client.MergeFrom(before))
}

// check compares what is recorded of a job with its fate.
func (f *fate) check(found *record.Job, recording []span) error {
	switch {
	case !f.deleted.IsZero():
		return f.checkDeleted(found, recording)
	case f.phase == "" && !found.Ended.IsZero():
		return errors.New("it has not ended")
	case f.phase == "":
		return nil
	}
	if end := f.job.Status.CompletionTimestamp; found.Phase != string(f.phase) || found.Unseen || found.Deleted || !found.Ended.Equal(end.Time) {
		return fmt.Errorf("it finished as %s at %s, and still exists", f.phase, end)
	}
	return nil
}

func (f *fate) checkDeleted(found *record.Job, recording []span) error {
	wasSeen := slices.ContainsFunc(recording, func(of span) bool {
		return of.from.Add(atWork).Before(f.deleted) && f.deleted.Add(atWork).Before(of.to)
	})
	switch {
	case found.Ended.IsZero():
		return errors.New("it is deleted, and recorded as one that has not ended")
	case f.held && found.Unseen:
		return errors.New("it waited for its record, and is recorded as unseen")
	case f.held && f.phase != "" && (found.Deleted || !found.Ended.Equal(f.job.Status.CompletionTimestamp.Time)):
		return fmt.Errorf("it finished at %s, waited for its record, and is recorded as one that did not", f.job.Status.CompletionTimestamp)
	case found.Unseen && wasSeen:
		return errors.New("it was deleted while the history recorded")
	case found.Unseen || found.Deleted || f.phase == "" || found.Phase == string(f.phase):
		return nil
	}
	return fmt.Errorf("it finished as %s, and was deleted then", f.phase)
}

// hunted is a history under load.
type hunted struct {
	*remembered
	t     *testing.T
	token string
	flags []string
	lives *lives
	// recording is when a history recorded, as its log says, and was not killed.
	recording []span
}

func newHunted(t *testing.T, flags ...string) *hunted {
	t.Helper()
	r := newRemembered(t)
	chance := rand.New(rand.NewPCG(*historySeed, 0)) //nolint:gosec // the jobs are invented
	return &hunted{remembered: r, t: t, token: r.reader(t), flags: flags, lives: &lives{api: r.api, chance: chance}}
}

var servingLine = regexp.MustCompile(`"Serving the history","address":"([^"]+)"`)

// start starts the program, and returns it with its address once it serves.
func (h *hunted) start() (*process, string) {
	program := start(h.t, h.kubeconfigs, nil, append([]string{"history", "--address=127.0.0.1:0", "--metrics-address=0", "--probe-address=0"}, h.flags...)...)
	var address string
	await(h.t, "the history is served", func(context.Context) error {
		found := servingLine.FindStringSubmatch(program.log())
		if found == nil {
			return errors.New("no line says so")
		}
		address = found[1]
		return nil
	})
	return program, address
}

// checkGone returns an error if a deleted job still exists.
func (h *hunted) checkGone(ctx context.Context, of *fate) error {
	if of.deleted.IsZero() {
		return nil
	}
	found := &v2alpha1.DIJob{}
	if err := h.api.Get(ctx, client.ObjectKeyFromObject(of.job), found); err == nil {
		return fmt.Errorf("it waits although it is recorded: %v", found.Finalizers)
	} else if !apierrors.IsNotFound(err) {
		return err
	}
	return nil
}

// under runs jobs until fault returns.
func (h *hunted) under(fault func(ctx context.Context) error) {
	h.t.Helper()
	over := make(chan struct{})
	group, ctx := errgroup.WithContext(h.t.Context())
	group.Go(func() error { return h.lives.run(ctx, over) })
	group.Go(func() error { defer close(over); return fault(ctx) })
	if err := group.Wait(); err != nil {
		h.t.Fatal(err)
	}
}

// verify waits until all jobs that existed for long enough are recorded as they ended.
func (h *hunted) verify(address string) {
	h.t.Helper()
	checked := 0
	for _, of := range h.lives.all {
		if end := of.deleted; !of.held && !end.IsZero() && end.Sub(of.created) < longEnough {
			continue
		}
		checked++
		await(h.t, "job "+of.job.Name+" is recorded as it ended", func(ctx context.Context) error {
			body, err := h.get(ctx, address, h.token, "/v1alpha1/history/jobs/default/"+of.job.Name+"?uid="+string(of.job.UID))
			if err != nil {
				return err
			}
			var found record.Job
			if err := json.Unmarshal([]byte(body), &found); err != nil {
				return err
			}
			return errors.Join(of.check(&found, h.recording), h.checkGone(ctx, of))
		})
	}
	h.t.Logf("%d of %d jobs existed for %s, and are recorded as they ended", checked, len(h.lives.all), longEnough)
}

func TestTheHistoryThatIsKilledRecordsEachJobOnceAsItEnded_Slow(t *testing.T) {
	h := newHunted(t, "--sqlite="+filepath.Join(t.TempDir(), "history.db"))
	h.outliveKills()
}

func TestTheHistoryThatIsKilledLosesNoJobThatWaitsForIt_Slow(t *testing.T) {
	h := newHunted(t, "--sqlite="+filepath.Join(t.TempDir(), "history.db"))
	h.lives.held = true
	h.outliveKills()
}

// outliveKills kills the program while jobs come and go, and verifies what it recorded.
func (h *hunted) outliveKills() {
	h.t.Helper()
	chance := rand.New(rand.NewPCG(*historySeed, 1)) //nolint:gosec // the times of kills are no secret
	h.under(func(ctx context.Context) error {
		for range *historyKills {
			program, _ := h.start()
			from := time.Now()
			err := pace.Pause(ctx, time.Duration(chance.IntN(8000))*time.Millisecond)
			h.recording = append(h.recording, span{from, time.Now()})
			program.kill(h.t)
			if err != nil {
				return err
			}
		}
		return nil
	})
	_, address := h.start()
	h.verify(address)
}

func TestTheHistoryWhosePostgreSQLCrashesRecordsEachJobOnceAsItEnded_Slow(t *testing.T) {
	database, err := postgres.Start(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := database.Stop(context.Background()); err != nil {
			t.Error(err)
		}
	})
	connection, err := database.Create(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	file := filepath.Join(t.TempDir(), "connection")
	if err := os.WriteFile(file, []byte(connection), 0o600); err != nil {
		t.Fatal(err)
	}
	h := newHunted(t, "--postgres-connection-file="+file)
	chance := rand.New(rand.NewPCG(*historySeed, 2)) //nolint:gosec // the times of crashes are no secret
	_, address := h.start()
	from := time.Now()
	h.under(func(ctx context.Context) error {
		for range *historyKills {
			// The program remembers what it cannot record yet, so that it misses no end.
			if err := errors.Join(pace.Pause(ctx, time.Duration(chance.IntN(4000))*time.Millisecond), database.Halt(ctx),
				pace.Pause(ctx, time.Duration(chance.IntN(4000))*time.Millisecond), database.Restart(ctx)); err != nil {
				return err
			}
		}
		return nil
	})
	h.recording = []span{{from, time.Now()}}
	h.verify(address)
}
