// Copyright The DI Orchestrator Authors.
// SPDX-License-Identifier: Apache-2.0

package storagemigration

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	corev1 "k8s.io/api/core/v1"
	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/tools/events"
	"k8s.io/utils/clock"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/log"

	"opendilab.org/di-orchestrator/apis/v2alpha1"
	"opendilab.org/di-orchestrator/controllers"
	"opendilab.org/di-orchestrator/internal/recorder"
	"opendilab.org/di-orchestrator/internal/upgrade/crds"
	"opendilab.org/di-orchestrator/internal/upgrade/migration"
)

// The definitions whose objects are migrated. Memberships have one version.
const (
	jobsDefinition    = "dijobs." + v2alpha1.GroupName
	configsDefinition = "aggregatorconfigs." + v2alpha1.GroupName
)

const (
	// nextStep is when the next step of a migration is taken: at once, though the
	// other definition comes in between.
	nextStep = time.Millisecond
	// ownersDelay is when it is looked again whether owner references are moved, of
	// which a watch tells.
	ownersDelay = 500 * time.Millisecond
	// refusalsToTell is how many probes have to fail one after the other before it is
	// told: an API server learns of the webhooks by a watch.
	refusalsToTell = 3
	// DefaultSettle is how long API servers take to learn by their watches which
	// version is stored, at most, where nothing else is said.
	DefaultSettle = 30 * time.Second
	// defaultMigrationRetry is how long an object is left alone that could not be written.
	defaultMigrationRetry = time.Minute
	// defaultPage is how many objects are listed at a time, after which it is recorded
	// how far it is: each two seconds at the usual rate.
	defaultPage = 100
)

// actionMigrate is what Events say that is done.
const actionMigrate = "Migrate"

// Options are the settings of the migration.
type Options struct {
	// API reads and writes live, at the rate that the migration may have. It knows
	// CustomResourceDefinitions, and what Setup's manager knows. Required.
	API client.Client
	// Cached reads jobs, and what they own, from caches. Required.
	Cached client.Reader
	// Recorder takes the Events, about the definitions. Required.
	Recorder events.EventRecorder
	// Namespace has the record. Required.
	Namespace string
	// TakenOver is closed when nothing of an earlier release acts any more. Required.
	TakenOver <-chan struct{}
	// Probe goes the way through the API server in both versions. Required.
	Probe func(context.Context) error
	// Metrics count what is done; NewMetrics makes them. Required.
	Metrics *Metrics
	// Now tells the time: by default the real one.
	Now func() time.Time
	// Settle is how long API servers take to learn which version is stored.
	Settle time.Duration
	// Retry is how long an object is left alone that could not be written: by default
	// a minute.
	Retry time.Duration
	// Page is how many objects are listed at a time: by default 100.
	Page int64
}

// Reconciler has stored objects be stored, and versions be served, as the
// annotations of the definition of DIJobs say.
type Reconciler struct {
	Options
	// refusals counts the probes that failed one after the other.
	refusals int
}

// New returns the reconciler of definitions; Setup runs it in a
// manager.
func New(options Options) *Reconciler {
	if options.Now == nil {
		options.Now = clock.RealClock{}.Now
	}
	options.Retry = cmp.Or(options.Retry, defaultMigrationRetry)
	options.Page = cmp.Or(options.Page, defaultPage)
	return &Reconciler{Options: options}
}

// state is what is known of a definition, and what to decide by.
type state struct {
	migration.Observed
	definition *apiextensionsv1.CustomResourceDefinition
}

// Reconcile takes one step of the migration of the objects of one definition.
func (m *Reconciler) Reconcile(ctx context.Context, request ctrl.Request) (ctrl.Result, error) {
	s, err := m.observe(ctx, request.Name)
	if s == nil || err != nil {
		return ctrl.Result{}, err
	}
	decision := migration.Decide(&s.Observed)
	m.Metrics.tell(&s.Observed, decision.Step)
	result, err := m.act(ctx, s, decision)
	if err != nil {
		// The queue says when it is tried again.
		return ctrl.Result{}, err
	}
	return result, nil
}

// act does what was decided.
func (m *Reconciler) act(ctx context.Context, s *state, decision migration.Decision) (ctrl.Result, error) {
	next := ctrl.Result{RequeueAfter: nextStep}
	switch decision.Step {
	case migration.StepRest:
		return ctrl.Result{}, nil
	case migration.StepWait:
		return ctrl.Result{RequeueAfter: decision.After}, nil
	case migration.StepBlock:
		return ctrl.Result{RequeueAfter: decision.After}, m.block(ctx, s, decision.Message)
	case migration.StepMoveOwners:
		return ctrl.Result{RequeueAfter: ownersDelay}, m.moveOwners(ctx, s)
	case migration.StepServe:
		return next, m.serve(ctx, s)
	case migration.StepSwitch:
		return next, m.switchStorage(ctx, s)
	case migration.StepBegin:
		return next, m.save(ctx, s, migration.Begin(&s.Observed))
	case migration.StepGoOn:
		return next, m.save(ctx, s, migration.GoOn(&s.Observed))
	case migration.StepRewrite:
		return next, m.rewrite(ctx, s)
	case migration.StepRetry:
		return next, m.retry(ctx, s)
	case migration.StepPrune:
		return next, m.prune(ctx, s)
	case migration.StepStopServing:
		return next, m.stopServing(ctx, s)
	case migration.StepClean:
		return next, m.clean(ctx, s)
	case migration.StepFinish:
		return next, m.finish(ctx, s)
	}
	return ctrl.Result{}, fmt.Errorf("there is no step %q", decision.Step)
}

// block tells why nothing goes on, once.
func (m *Reconciler) block(ctx context.Context, s *state, message string) error {
	if s.Record.Blocked == message {
		return nil
	}
	record := s.Record
	record.Blocked = message
	if err := m.write(ctx, s, record); err != nil {
		return err
	}
	m.tell(s, corev1.EventTypeWarning, v2alpha1.ReasonStorageMigrationBlocked, message)
	return nil
}

// serve serves again what is to be served.
func (m *Reconciler) serve(ctx context.Context, s *state) error {
	changed := s.definition.DeepCopy()
	for i := range changed.Spec.Versions {
		version := &changed.Spec.Versions[i]
		version.Served = version.Served || version.Name != s.Stopped
	}
	if err := m.update(ctx, changed, "serving all versions"); err != nil {
		return err
	}
	m.tell(s, corev1.EventTypeNormal, v2alpha1.ReasonVersionServed, "all versions are served")
	return nil
}

// switchStorage has objects be stored in the wanted version from now on. Just
// before, a job of each version is created without being stored: an object of
// which the API server cannot convert what is stored would be lost to all.
func (m *Reconciler) switchStorage(ctx context.Context, s *state) error {
	if err := m.Probe(ctx); err != nil {
		err = fmt.Errorf("the storage version of %s stays %s: %w", s.definition.Name, s.Storage, err)
		if m.refusals++; m.refusals >= refusalsToTell {
			err = errors.Join(err, m.block(ctx, s, err.Error()))
		}
		return err
	}
	m.refusals = 0
	if err := m.update(ctx, crds.WithStorage(s.definition, s.Wanted), "storing objects in "+s.Wanted); err != nil {
		return err
	}
	m.tell(s, corev1.EventTypeNormal, v2alpha1.ReasonStorageSwitched,
		fmt.Sprintf("objects that are written are stored in %s from now on, and no more in %s", s.Wanted, s.Storage))
	return nil
}

// prune records in the definition that objects are stored in the wanted version
// only. It holds the resource version: what has changed since is looked at first.
func (m *Reconciler) prune(ctx context.Context, s *state) error {
	changed := s.definition.DeepCopy()
	changed.Status.StoredVersions = []string{s.Wanted}
	if err := m.API.Status().Update(ctx, changed); err != nil {
		return fmt.Errorf("pruning the stored versions of %s: %w", changed.Name, err)
	}
	return nil
}

// stopServing has the API server serve a version no more. What is known of the
// objects' managedFields is of before.
func (m *Reconciler) stopServing(ctx context.Context, s *state) error {
	record := s.Record
	record.Cleaned, record.Phase = "", migration.PhaseFinished
	if err := m.save(ctx, s, record); err != nil {
		return err
	}
	if err := m.update(ctx, crds.WithoutServing(s.definition, s.Stopped), "serving "+s.Stopped+" no more"); err != nil {
		return err
	}
	m.tell(s, corev1.EventTypeNormal, v2alpha1.ReasonVersionNotServed, s.Stopped+" is no longer served")
	return nil
}

func (m *Reconciler) finish(ctx context.Context, s *state) error {
	record := s.Record
	rewritten := record.Phase == migration.PhaseRewriting
	record.Target, record.Phase, record.Finished = s.Wanted, migration.PhaseFinished, s.Now
	if s.Stopped == "" {
		record.Cleaned = ""
	}
	if err := m.save(ctx, s, record); err != nil {
		return err
	}
	if rewritten {
		m.tell(s, corev1.EventTypeNormal, v2alpha1.ReasonStorageMigrated,
			fmt.Sprintf("all objects are stored in %s: %d checked", s.Wanted, record.Done))
	}
	return nil
}

// update writes a definition as it was read.
func (m *Reconciler) update(ctx context.Context, changed *apiextensionsv1.CustomResourceDefinition, purpose string) error {
	if err := m.API.Update(ctx, changed, controllers.FieldOwner); err != nil {
		return fmt.Errorf("updating customresourcedefinition %s: %s: %w", changed.Name, purpose, err)
	}
	return nil
}

// tell sends an Event about the definition.
func (m *Reconciler) tell(s *state, kind, reason, message string) {
	about := &metav1.PartialObjectMetadata{ObjectMeta: metav1.ObjectMeta{Name: s.definition.Name, UID: s.definition.UID}}
	about.SetGroupVersionKind(apiextensionsv1.SchemeGroupVersion.WithKind("CustomResourceDefinition"))
	m.Recorder.Eventf(about, nil, kind, reason, actionMigrate, "%s", recorder.Note(message))
}

// observe reads a definition, what is wanted of it, and how far it is; nil where
// there is no such definition.
func (m *Reconciler) observe(ctx context.Context, name string) (*state, error) {
	s := &state{definition: &apiextensionsv1.CustomResourceDefinition{}}
	err := m.API.Get(ctx, client.ObjectKey{Name: name}, s.definition)
	if apierrors.IsNotFound(err) {
		return nil, nil
	}
	if err != nil {
		return nil, fmt.Errorf("getting customresourcedefinition %s: %w", name, err)
	}
	wish := client.Object(s.definition)
	if name != jobsDefinition {
		wish = newDefinitionMetadata()
		if err := m.API.Get(ctx, client.ObjectKey{Name: jobsDefinition}, wish); err != nil {
			return nil, fmt.Errorf("getting customresourcedefinition %s: %w", jobsDefinition, err)
		}
	}
	s.Observed = migration.Observed{
		Resource:   s.definition.Spec.Names.Plural,
		Storage:    crds.StorageOf(s.definition),
		Stored:     s.definition.Status.StoredVersions,
		Generation: s.definition.Generation,
		Definition: string(s.definition.UID),
		Retired:    s.definition.Annotations[crds.AnnotationRetired] != "",
		Wanted:     cmp.Or(wish.GetAnnotations()[crds.AnnotationStorageVersion], v2alpha1.Version),
		Stopped:    wish.GetAnnotations()[crds.AnnotationStopServing],
		TakenOver:  m.isTakenOver(),
		Now:        m.Now(), Settle: m.Settle, Retry: m.Retry,
	}
	for i := range s.definition.Spec.Versions {
		version := &s.definition.Spec.Versions[i]
		s.Versions = append(s.Versions, migration.Version{Name: version.Name, Served: version.Served})
	}
	if s.Record, err = m.read(ctx, s.Resource); err != nil {
		return nil, err
	}
	if name == jobsDefinition && s.TakenOver && !s.IsAtRest() {
		return s, m.observeJobs(ctx, s)
	}
	return s, nil
}

func (m *Reconciler) isTakenOver() bool {
	select {
	case <-m.TakenOver:
		return true
	default:
		return false
	}
}

// observeJobs looks for what a release would misrun, and what is owned by a job in
// another version.
func (m *Reconciler) observeJobs(ctx context.Context, s *state) error {
	strangers, err := m.strangers(ctx, s.Wanted)
	if s.Strangers = len(strangers); err != nil {
		return err
	}
	release := migration.ReleaseOf(s.Wanted)
	if s.Storage == s.Wanted || release == "" {
		return nil
	}
	var jobs v2alpha1.DIJobList
	if err := m.Cached.List(ctx, &jobs, client.UnsafeDisableDeepCopy); err != nil {
		return fmt.Errorf("listing the jobs: %w", err)
	}
	for i := range jobs.Items {
		if reasons := migration.Misruns(&jobs.Items[i], release); len(reasons) > 0 {
			s.Misrun = append(s.Misrun, migration.Describe(&jobs.Items[i], reasons))
		}
	}
	slices.Sort(s.Misrun)
	return nil
}

// logStep says what was done with a page.
func logStep(ctx context.Context, s *state, message string, record *migration.Record) {
	log.FromContext(ctx).Info(message, "resource", s.Resource, "version", record.Target,
		"done", record.Done, "total", record.Total, "failed", len(record.Failed))
}
