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
	"time"

	"github.com/go-logr/logr"
	"github.com/spf13/cobra"
	"github.com/spf13/pflag"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/rest"
	"k8s.io/utils/clock"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/healthz"

	"opendilab.org/di-orchestrator/history/serve"
	"opendilab.org/di-orchestrator/history/store"
	"opendilab.org/di-orchestrator/history/watch"
	"opendilab.org/di-orchestrator/internal/certs"
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
}

func (o *historyOptions) addFlags(flags *pflag.FlagSet) {
	o.processOptions.addFlags(flags)
	flags.StringVar(&o.address, "address", ":8443", "address to listen on with TLS")
	flags.StringVar(&o.sqlite, "sqlite", "/var/lib/di-history/history.db", "file of the SQLite database")
	flags.StringVar(&o.postgresFile, "postgres-connection-file", "", "file with the connection string of a PostgreSQL, which is used instead of SQLite")
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
			database, err := options.open(cmd.Context())
			if err != nil {
				return err
			}
			return errors.Join(options.run(cmd.Context(), &program{
				name: "di-orchestrator-history", title: "the history", await: awaitServed,
				newManager: func(ctx context.Context, config *rest.Config, log logr.Logger, watching observers) (ctrl.Manager, error) {
					return options.newManager(ctx, config, log, watching, database)
				},
			}), database.Close())
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
func (o *historyOptions) newManager(ctx context.Context, config *rest.Config, log logr.Logger, watching observers, database *store.Store) (ctrl.Manager, error) {
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
	settings.Cache = namespaces.Cache(watch.CacheOptions())
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
	access, err := serve.NewAccess(mgr.GetConfig(), mgr.GetHTTPClient())
	if err != nil {
		return nil, err
	}
	issued := &certs.Issued{
		API:    mgr.GetAPIReader(),
		Secret: types.NamespacedName{Namespace: o.namespace, Name: serverCertificate},
		Clock:  clock.RealClock{}, Log: log.WithName("certificate"),
	}
	ofReads, err := serve.NewMetrics(watching.metrics, clock.RealClock{})
	if err != nil {
		return nil, err
	}
	ofRecords, err := watch.NewMetrics(watching.metrics, o.limits())
	if err != nil {
		return nil, err
	}
	served := &serve.Server{
		Address: o.address, Handler: serve.NewHandler(database, access, ofReads, log.WithName("serve")),
		GetCertificate: issued.GetCertificate, DrainDelay: drainDelay, Log: log.WithName("serve"),
	}
	recorder := &watch.Recorder{Cache: mgr.GetCache(), Namespaces: namespaces, Store: database, Metrics: ofRecords, Clock: clock.RealClock{}, Log: log.WithName("record")}
	upkeep := &watch.Upkeep{Store: database, Limits: o.limits(), Metrics: ofRecords, Clock: clock.RealClock{}, Log: log.WithName("upkeep")}
	if err := errors.Join(mgr.Add(issued), mgr.Add(served), mgr.Add(recorder), mgr.Add(upkeep)); err != nil {
		return nil, fmt.Errorf("adding what the history runs: %w", err)
	}
	return mgr, addProbes(mgr, answers(served, database))
}

// answers is ready while the server listens and the database answers.
func answers(served *serve.Server, database *store.Store) healthz.Checker {
	return func(request *http.Request) error {
		if err := served.Ready(request); err != nil {
			return err
		}
		ctx, cancel := context.WithTimeout(request.Context(), pingTimeout)
		defer cancel()
		return database.Ping(ctx)
	}
}
