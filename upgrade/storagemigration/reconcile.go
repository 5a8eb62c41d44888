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
	"opendilab.org/di-orchestrator/upgrade/crds"
	"opendilab.org/di-orchestrator/upgrade/migration"
)

// The CustomResourceDefinitions whose objects are migrated. Memberships have only one version.
const (
	jobsDefinition    = "dijobs." + v2alpha1.GroupName
	configsDefinition = "aggregatorconfigs." + v2alpha1.GroupName
)

const (
	// nextStep is the delay before the next step. It is minimal, but lets the other definition come first.
	nextStep = time.Millisecond
	// ownersDelay is the delay before owner references are checked again through a watch cache.
	ownersDelay = 500 * time.Millisecond
	// probesBeforeEvent is how many consecutive probes must fail before an Event, because an API server
	// learns of webhooks by a watch.
	probesBeforeEvent = 3
	// DefaultSettle is how long API servers may take to learn the storage version by their watches.
	DefaultSettle = 30 * time.Second
	// defaultMigrationRetry is the delay before a failed object is retried.
	defaultMigrationRetry = time.Minute
	// defaultPage is how many objects are listed per page. Progress is recorded after each page: every two
	// seconds at the default rate.
	defaultPage = 100
)

// actionMigrate is the action of Events.
const actionMigrate = "Migrate"

// Options are the settings of the migration.
type Options struct {
	// API reads and writes live, within the rate limit of the migration. Its scheme has
	// CustomResourceDefinitions and the types of Setup's manager. Required.
	API client.Client
	// Cached reads jobs and the objects that they own from caches. Required.
	Cached client.Reader
	// Everything returns when the cache has the pods of all jobs; nil if it always has them.
	Everything func(context.Context) error
	// Recorder records Events about the definitions. Required.
	Recorder events.EventRecorder
	// Namespace is the namespace of the record. Required.
	Namespace string
	// TakenOver is closed when no earlier release acts. Required.
	TakenOver <-chan struct{}
	// Probe creates a job in both versions as a dry run. Required.
	Probe func(context.Context) error
	// Metrics are the metrics, from NewMetrics. Required.
	Metrics *Metrics
	// Clock is the clock: the real one by default.
	Clock clock.PassiveClock
	// Settle is how long API servers may take to learn the storage version.
	Settle time.Duration
	// Retry is the delay before a failed object is retried: by default a minute.
	Retry time.Duration
	// Page is how many objects are listed per page: 100 by default.
	Page int64
}

// Reconciler stores objects in the version, and serves the versions, that the annotations of DIJob's
// CustomResourceDefinition name.
type Reconciler struct {
	Options
	// refusals counts the consecutive failed probes.
	refusals int
}

// New returns the reconciler of definitions. Setup runs it in a manager.
func New(options Options) *Reconciler {
	if options.Clock == nil {
		options.Clock = clock.RealClock{}
	}
	options.Retry = cmp.Or(options.Retry, defaultMigrationRetry)
	options.Page = cmp.Or(options.Page, defaultPage)
	return &Reconciler{Options: options}
}

// state is a definition with the input of the decision about it.
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
	m.Metrics.observe(&s.Observed, decision.Step)
	result, err := m.act(ctx, s, decision)
	if err != nil {
		// The queue applies the backoff.
		return ctrl.Result{}, err
	}
	return result, nil
}

// act carries out a decision.
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
	case migration.StepContinue:
		return next, m.save(ctx, s, migration.Continued(&s.Observed))
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

// block records the reason why the migration is blocked, with one Event.
func (m *Reconciler) block(ctx context.Context, s *state, message string) error {
	if s.Record.Blocked == message {
		return nil
	}
	record := s.Record
	record.Blocked = message
	if err := m.write(ctx, s, record); err != nil {
		return err
	}
	m.recordEvent(s, corev1.EventTypeWarning, v2alpha1.ReasonStorageMigrationBlocked, message)
	return nil
}

// serve makes the API server serve all versions again.
func (m *Reconciler) serve(ctx context.Context, s *state) error {
	changed := s.definition.DeepCopy()
	for i := range changed.Spec.Versions {
		version := &changed.Spec.Versions[i]
		version.Served = version.Served || version.Name != s.Stopped
	}
	if err := m.update(ctx, changed, "serving all versions"); err != nil {
		return err
	}
	m.recordEvent(s, corev1.EventTypeNormal, v2alpha1.ReasonVersionServed, "all versions are served")
	return nil
}

// switchStorage changes the storage version. It first creates a job of each version as a dry run, because
// a stored object that the API server cannot convert would be unreadable.
func (m *Reconciler) switchStorage(ctx context.Context, s *state) error {
	if err := m.Probe(ctx); err != nil {
		err = fmt.Errorf("the storage version of %s stays %s: %w", s.definition.Name, s.Storage, err)
		if m.refusals++; m.refusals >= probesBeforeEvent {
			err = errors.Join(err, m.block(ctx, s, err.Error()))
		}
		return err
	}
	m.refusals = 0
	if err := m.update(ctx, crds.WithStorage(s.definition, s.Wanted), "storing objects in "+s.Wanted); err != nil {
		return err
	}
	m.recordEvent(s, corev1.EventTypeNormal, v2alpha1.ReasonStorageSwitched,
		fmt.Sprintf("objects are stored in %s instead of %s from their next write on", s.Wanted, s.Storage))
	return nil
}

// prune records in the definition that objects are stored only in the desired version. The update includes
// the resource version.
func (m *Reconciler) prune(ctx context.Context, s *state) error {
	changed := s.definition.DeepCopy()
	changed.Status.StoredVersions = []string{s.Wanted}
	if err := m.API.Status().Update(ctx, changed); err != nil {
		return fmt.Errorf("pruning the stored versions of %s: %w", changed.Name, err)
	}
	return nil
}

// stopServing makes the API server stop serving a version. It resets the record of cleaned managedFields.
func (m *Reconciler) stopServing(ctx context.Context, s *state) error {
	record := s.Record
	record.Cleaned, record.Phase = "", migration.PhaseFinished
	if err := m.save(ctx, s, record); err != nil {
		return err
	}
	if err := m.update(ctx, crds.WithoutServing(s.definition, s.Stopped), "ending service of "+s.Stopped); err != nil {
		return err
	}
	m.recordEvent(s, corev1.EventTypeNormal, v2alpha1.ReasonVersionNotServed, s.Stopped+" is no longer served")
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
		m.recordEvent(s, corev1.EventTypeNormal, v2alpha1.ReasonStorageMigrated,
			fmt.Sprintf("all objects are stored in %s: %d checked", s.Wanted, record.Done))
	}
	return nil
}

// update writes a definition, unless the definition has changed since it was read.
func (m *Reconciler) update(ctx context.Context, changed *apiextensionsv1.CustomResourceDefinition, purpose string) error {
	if err := m.API.Update(ctx, changed, controllers.FieldOwner); err != nil {
		return fmt.Errorf("updating customresourcedefinition %s: %s: %w", changed.Name, purpose, err)
	}
	return nil
}

// recordEvent records an Event about the definition.
func (m *Reconciler) recordEvent(s *state, kind, reason, message string) {
	about := &metav1.PartialObjectMetadata{ObjectMeta: metav1.ObjectMeta{Name: s.definition.Name, UID: s.definition.UID}}
	about.SetGroupVersionKind(apiextensionsv1.SchemeGroupVersion.WithKind("CustomResourceDefinition"))
	m.Recorder.Eventf(about, nil, kind, reason, actionMigrate, "%s", recorder.Note(message))
}

// observe reads a definition, its desired state and its progress. It returns nil if the definition does
// not exist.
func (m *Reconciler) observe(ctx context.Context, name string) (*state, error) {
	s := &state{definition: &apiextensionsv1.CustomResourceDefinition{}}
	err := m.API.Get(ctx, client.ObjectKey{Name: name}, s.definition)
	if apierrors.IsNotFound(err) {
		return nil, nil
	}
	if err != nil {
		return nil, fmt.Errorf("getting customresourcedefinition %s: %w", name, err)
	}
	annotated := client.Object(s.definition)
	if name != jobsDefinition {
		annotated = newDefinitionMetadata()
		if err := m.API.Get(ctx, client.ObjectKey{Name: jobsDefinition}, annotated); err != nil {
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
		Wanted:     cmp.Or(annotated.GetAnnotations()[crds.AnnotationStorageVersion], v2alpha1.Version),
		Stopped:    annotated.GetAnnotations()[crds.AnnotationStopServing],
		TakenOver:  m.isTakenOver(),
		Now:        m.Clock.Now(), Settle: m.Settle, Retry: m.Retry,
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

// observeJobs finds jobs that an earlier release would run incorrectly, and objects whose owner reference
// has another version.
func (m *Reconciler) observeJobs(ctx context.Context, s *state) error {
	found, err := m.misversioned(ctx, s.Wanted)
	if s.Misversioned = len(found); err != nil {
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

// logStep logs the result of a page.
func logStep(ctx context.Context, s *state, message string, record *migration.Record) {
	log.FromContext(ctx).Info(message, "resource", s.Resource, "version", record.Target,
		"done", record.Done, "total", record.Total, "failed", len(record.Failed))
}
