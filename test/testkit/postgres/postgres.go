// Copyright The DI Orchestrator Authors.
// SPDX-License-Identifier: Apache-2.0

// Package postgres starts a real PostgreSQL for tests. POSTGRES names the folder of its programs, as
// hack/postgres prints it.
package postgres

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"sync/atomic"
	"syscall"

	// The driver "pgx".
	_ "github.com/jackc/pgx/v5/stdlib"
)

// unprivileged is the user who runs the server if root runs the tests, because PostgreSQL refuses root.
const unprivileged = 65534

// Server is a running server with data of its own. Only its socket reaches it.
type Server struct {
	programs, folder string
	databases        atomic.Int32
}

// Start starts a server.
func Start(ctx context.Context) (*Server, error) {
	programs := os.Getenv("POSTGRES")
	if programs == "" {
		return nil, errors.New(`POSTGRES is not set: run tests by make, or export POSTGRES="$(hack/postgres)"`)
	}
	// The paths of sockets are short, and those of tests may be long.
	folder, err := os.MkdirTemp("/tmp", "postgres-")
	if err != nil {
		return nil, err
	}
	server := &Server{programs: programs, folder: folder}
	if os.Getuid() == 0 {
		err = os.Chown(folder, unprivileged, unprivileged)
	}
	if err == nil {
		err = server.run(ctx, "initdb", "--pgdata", server.data(), "--auth", "trust", "--username", "test", "--encoding", "UTF8", "--locale", "C.UTF-8", "--no-sync", "--no-instructions")
	}
	if err == nil {
		err = server.Restart(ctx)
	}
	if err != nil {
		return nil, errors.Join(err, os.RemoveAll(folder))
	}
	return server, nil
}

func (s *Server) data() string {
	return filepath.Join(s.folder, "data")
}

// Restart starts a server that was halted.
func (s *Server) Restart(ctx context.Context) error {
	options := fmt.Sprintf("-c listen_addresses= -c unix_socket_directories=%s -c fsync=off -c max_connections=50 -c shared_buffers=64MB", s.folder)
	return s.run(ctx, "pg_ctl", "start", "--wait", "--silent", "--pgdata", s.data(), "--options", options, "--log", filepath.Join(s.folder, "log"))
}

// Halt stops the server as a crash does, and keeps its data.
func (s *Server) Halt(ctx context.Context) error {
	return s.run(ctx, "pg_ctl", "stop", "--wait", "--silent", "--mode", "immediate", "--pgdata", s.data())
}

// Stop stops the server, if it runs, and removes its data.
func (s *Server) Stop(ctx context.Context) error {
	var err error
	if _, missing := os.Stat(filepath.Join(s.data(), "postmaster.pid")); missing == nil {
		err = s.Halt(ctx)
	}
	return errors.Join(err, os.RemoveAll(s.folder))
}

// Create creates an empty database and returns its connection string.
func (s *Server) Create(ctx context.Context) (connection string, err error) {
	admin, err := sql.Open("pgx", s.connection("postgres"))
	if err != nil {
		return "", err
	}
	defer func() { err = errors.Join(err, admin.Close()) }()
	name := "test" + strconv.Itoa(int(s.databases.Add(1)))
	if _, err := admin.ExecContext(ctx, "CREATE DATABASE "+name); err != nil {
		return "", fmt.Errorf("creating database %s: %w", name, err)
	}
	return s.connection(name), nil
}

func (s *Server) connection(database string) string {
	at := url.URL{Scheme: "postgres", User: url.User("test"), Path: "/" + database, RawQuery: url.Values{"host": {s.folder}}.Encode()}
	return at.String()
}

func (s *Server) run(ctx context.Context, program string, arguments ...string) error {
	command := exec.CommandContext(ctx, filepath.Join(s.programs, program), arguments...)
	command.Dir = s.folder
	if os.Getuid() == 0 {
		command.SysProcAttr = &syscall.SysProcAttr{Credential: &syscall.Credential{Uid: unprivileged, Gid: unprivileged}}
	}
	if output, err := command.CombinedOutput(); err != nil {
		return fmt.Errorf("%s: %w\n%s", program, err, output)
	}
	return nil
}
