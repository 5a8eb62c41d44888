// Copyright The DI Orchestrator Authors.
// SPDX-License-Identifier: Apache-2.0

package programs

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"os"
	"strings"
	"sync/atomic"
	"time"

	"github.com/go-logr/logr"
	"github.com/spf13/cobra"
	"github.com/spf13/pflag"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	corev1client "k8s.io/client-go/kubernetes/typed/core/v1"
	"k8s.io/client-go/rest"
	"k8s.io/utils/clock"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/manager"

	"opendilab.org/di-orchestrator/history/events"
	"opendilab.org/di-orchestrator/history/record"
	"opendilab.org/di-orchestrator/history/release"
	"opendilab.org/di-orchestrator/history/serve"
	"opendilab.org/di-orchestrator/history/store"
	"opendilab.org/di-orchestrator/history/tails"
	"opendilab.org/di-orchestrator/history/usage"
	"opendilab.org/di-orchestrator/history/watch"
	"opendilab.org/di-orchestrator/internal/certs"
	"opendilab.org/di-orchestrator/internal/names"
	"opendilab.org/di-orchestrator/internal/scope"
)

const (
	// historyLease is the Lease of the program that records to PostgreSQL; all replicas serve.
	historyLease = "di-orchestrator-history"
	// pingTimeout bounds how long the database may take to answer a probe.
	pingTimeout = 2 * time.Second
)

// historyOptions are the options of the program that remembers jobs.
type historyOptions struct {
	processOptions
	address      string
	sqlite       string
	postgresFile string
	// database is nil until it is open.
	database atomic.Pointer[store.Store]
}

func (o *historyOptions) addFlags(flags *pflag.FlagSet) {
	o.processOptions.addFlags(flags)
	flags.StringVar(&o.address, "address", ":8443", "address to listen on with TLS")
	flags.StringVar(&o.sqlite, "sqlite", "/var/lib/di-history/history.db", "file of the SQLite database")
	flags.StringVar(&o.postgresFile, "postgres-connection-file", "", "file with the connection string of a PostgreSQL, which is used instead of SQLite")
}

// groups names the ConfigMap of the allocator's groups.
func (o *historyOptions) groups() types.NamespacedName {
	return types.NamespacedName{Namespace: o.namespace, Name: names.AllocationGroups}
}

// limits returns how much is remembered.
func (o *historyOptions) limits() store.Limits {
	keep := &o.config.History
	return store.Limits{Age: keep.KeepFor.Duration, Jobs: int64(keep.KeepJobs), Bytes: keep.KeepBytes.Value()}
}

func newHistoryCommand(version string) *cobra.Command {
	options := historyOptions{processOptions: processOptions{version: version}}
	command := &cobra.Command{
		Use:   "history",
		Short: "Remember all jobs in a database",
		Args:  cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			if err := options.load(); err != nil {
				return err
			}
			err := options.run(cmd.Context(), &program{
				name: "di-orchestrator-history", title: "the history", await: awaitServed, newManager: options.newManager,
			})
			if database := options.database.Load(); database != nil {
				err = errors.Join(err, database.Close())
			}
			return err
		},
	}
	options.addFlags(command.Flags())
	return command
}

// open opens the database.
func (o *historyOptions) open(ctx context.Context) (*store.Store, error) {
	if o.postgresFile == "" {
		return store.OpenSQLite(ctx, o.sqlite)
	}
	connection, err := os.ReadFile(o.postgresFile)
	if err != nil {
		return nil, fmt.Errorf("--postgres-connection-file: %w", err)
	}
	return store.OpenPostgres(ctx, strings.TrimSpace(string(connection)))
}

// newManager returns the manager, which reports to the observers.
func (o *historyOptions) newManager(ctx context.Context, config *rest.Config, log logr.Logger, watching observers) (ctrl.Manager, error) {
	if err := registerBuild(watching.metrics, o.version); err != nil {
		return nil, err
	}
	watching.wrap(config)
	namespaces, err := o.scope(types.NamespacedName{})
	if err != nil {
		return nil, err
	}
	scheme, err := newScheme()
	if err != nil {
		return nil, err
	}
	settings := o.managerOptions(scheme, log)
	settings.Cache = namespaces.Cache(watch.CacheOptions(o.groups()))
	// A volume of SQLite has one program. It records at once after a crash, because it waits for no Lease.
	settings.LeaderElection, settings.LeaderElectionReleaseOnCancel = o.postgresFile != "", true
	settings.LeaderElectionID, settings.LeaderElectionNamespace = historyLease, o.namespace
	mgr, err := ctrl.NewManager(config, settings)
	if err != nil {
		return nil, fmt.Errorf("making the manager: %w", err)
	}
	if err := watch.SetupIndexes(ctx, mgr.GetFieldIndexer()); err != nil {
		return nil, err
	}
	issued := &certs.Issued{
		API:    mgr.GetAPIReader(),
		Secret: types.NamespacedName{Namespace: o.namespace, Name: serverCertificate},
		Clock:  clock.RealClock{}, Log: log.WithName("certificate"),
	}
	opening := &opening{options: o, mgr: mgr, issued: issued, namespaces: namespaces, log: log}
	if opening.access, err = serve.NewAccess(mgr.GetConfig(), mgr.GetHTTPClient()); err != nil {
		return nil, err
	}
	if opening.ofReads, err = serve.NewMetrics(watching.metrics, clock.RealClock{}); err != nil {
		return nil, err
	}
	if opening.ofTails, err = tails.NewMetrics(watching.metrics); err != nil {
		return nil, err
	}
	if opening.ofReleases, err = release.NewMetrics(watching.metrics); err != nil {
		return nil, err
	}
	if opening.ofRecords, err = watch.NewMetrics(watching.metrics, o.limits()); err != nil {
		return nil, err
	}
	if err := errors.Join(mgr.Add(issued), mgr.Add(opening)); err != nil {
		return nil, fmt.Errorf("adding what the history runs: %w", err)
	}
	return mgr, addProbes(mgr, opening.ready)
}

// opening opens the database, and then adds what uses it to the manager.
type opening struct {
	options    *historyOptions
	mgr        ctrl.Manager
	access     serve.Access
	issued     *certs.Issued
	namespaces scope.Namespaces
	ofReads    *serve.Metrics
	ofRecords  *watch.Metrics
	ofTails    *tails.Metrics
	ofReleases *release.Metrics
	log        logr.Logger
	// served is nil until the database is open.
	served atomic.Pointer[serve.Server]
}

// NeedLeaderElection makes all replicas serve.
func (*opening) NeedLeaderElection() bool { return false }

// Start implements manager.Runnable. It runs until the context ends, and waits for a database that is away.
func (o *opening) Start(ctx context.Context) error {
	retry := &watch.Retry{Metrics: o.ofRecords, Clock: clock.RealClock{}, Log: o.log.WithName("database")}
	permanent := error(nil)
	isOpen := retry.Do(ctx, watch.StepOpen, "Cannot open the database; this program is not ready, and tries again", func(ctx context.Context) error {
		database, err := o.options.open(ctx)
		if errors.Is(err, store.ErrNewer) || errors.Is(err, store.ErrConnection) {
			permanent = err
			return nil
		}
		if err == nil {
			o.options.database.Store(database)
		}
		return err
	})
	if !isOpen || permanent != nil {
		return permanent
	}
	o.log.Info("Opened the database")
	if err := o.add(o.options.database.Load()); err != nil && ctx.Err() == nil {
		return err
	}
	<-ctx.Done()
	return nil
}

// add adds what uses the database.
func (o *opening) add(database *store.Store) error {
	real, log := clock.RealClock{}, o.log
	served := &serve.Server{
		Address: o.options.address, Handler: serve.NewHandler(database, o.access, o.ofReads, log.WithName("serve")),
		GetCertificate: o.issued.GetCertificate, DrainDelay: drainDelay, Log: log.WithName("serve"),
	}
	o.served.Store(served)
	redaction, err := record.NewRedaction(o.options.config.History.Logs.Redact)
	if err != nil {
		return err
	}
	recorder := &watch.Recorder{
		Cache: o.mgr.GetCache(), Namespaces: o.namespaces, Store: database, Redact: redaction,
		GPU: corev1.ResourceName(o.options.config.Common.GPUResource), Metrics: o.ofRecords, Clock: real, Log: log.WithName("record"),
	}
	upkeep := &watch.Upkeep{Store: database, Limits: o.options.limits(), Metrics: o.ofRecords, Clock: real, Log: log.WithName("upkeep")}
	groups := &watch.Groups{
		Cache: o.mgr.GetCache(), ConfigMap: o.options.groups(), Store: database, Metrics: o.ofRecords, Clock: real, Log: log.WithName("groups"),
	}
	used := &usage.Reader{
		Live: o.mgr.GetAPIReader(), Cached: o.mgr.GetCache(), Namespaces: o.namespaces, Clock: real, Log: log.WithName("usage"),
	}
	core, err := corev1client.NewForConfigAndClient(o.mgr.GetConfig(), o.mgr.GetHTTPClient())
	if err != nil {
		return fmt.Errorf("making the client of logs and Events: %w", err)
	}
	noted := &events.Reader{API: core, Cache: o.mgr.GetCache(), Namespaces: o.namespaces, Log: log.WithName("events")}
	released := release.New(o.mgr.GetClient(), o.ofReleases, real, log.WithName("release"))
	recorder.Usage, recorder.Events, recorder.Releases = used, noted, released
	runs := []manager.Runnable{served, recorder, upkeep, groups, used, noted, released}
	if o.options.config.History.Logs.Enabled {
		reader := tails.NewReader(tails.Options{Pods: core, Redact: redaction, Metrics: o.ofTails, Clock: real, Log: log.WithName("tails")})
		recorder.Tails, runs = reader, append(runs, reader)
	}
	for _, run := range runs {
		if err := o.mgr.Add(run); err != nil {
			return fmt.Errorf("adding what uses the database: %w", err)
		}
	}
	return nil
}

// ready reports whether the server listens and the database answers.
func (o *opening) ready(request *http.Request) error {
	served := o.served.Load()
	if served == nil {
		return errors.New("the database is not open")
	}
	if err := served.Ready(request); err != nil {
		return err
	}
	ctx, cancel := context.WithTimeout(request.Context(), pingTimeout)
	defer cancel()
	return o.options.database.Load().Ping(ctx)
}
