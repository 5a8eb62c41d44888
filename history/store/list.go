// Copyright The DI Orchestrator Authors.
// SPDX-License-Identifier: Apache-2.0

package store

import (
	"context"
	"encoding/base64"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"opendilab.org/di-orchestrator/history/record"
)

const (
	// window bounds the jobs that are examined for one page.
	window = 10_000
	// maxNamespaces bounds the namespaces that one query names.
	maxNamespaces = 1_000
)

// ErrInvalid says that a query is not one.
var ErrInvalid = errors.New("invalid query")

// Filter selects jobs. Empty fields select all.
type Filter struct {
	// Since selects jobs that were created then or later.
	Since                                    time.Time
	Namespace, Phase, Group, Creator, Reason string
	// Text selects jobs whose name, group, creator, reason or message has it, in any case.
	Text string
	// Readable are the namespaces that the caller may read; nil for all.
	Readable []string
}

// key is the position of a job in a list.
type key struct {
	created, id int64
}

func (k key) String() string {
	return base64.RawURLEncoding.EncodeToString(fmt.Appendf(nil, "%d.%d", k.created, k.id))
}

func parseKey(text string) (key, error) {
	var k key
	raw, err := base64.RawURLEncoding.DecodeString(text)
	if err == nil {
		_, err = fmt.Sscanf(string(raw), "%d.%d", &k.created, &k.id)
	}
	if err != nil || k.String() != text {
		return k, fmt.Errorf("%w: %q is no start of a page: use next of the page before", ErrInvalid, record.Text(text, record.MaxName))
	}
	return k, nil
}

// conditions are those of a WHERE clause with their arguments.
type conditions struct {
	texts     []string
	arguments []any
}

func (c *conditions) add(text string, arguments ...any) {
	c.texts = append(c.texts, text)
	c.arguments = append(c.arguments, arguments...)
}

func (c *conditions) where() string {
	if len(c.texts) == 0 {
		return ""
	}
	return " WHERE " + strings.Join(c.texts, " AND ")
}

// List returns the jobs of a filter from a position on; an empty one is the start.
func (s *Store) List(ctx context.Context, filter Filter, from string, limit int) (record.Page, error) {
	page := record.Page{Jobs: []record.Summary{}}
	if limit < 1 || limit > record.MaxPage {
		return page, fmt.Errorf("%w: %d jobs on a page: must be from 1 to %d", ErrInvalid, limit, record.MaxPage)
	}
	if filter.Readable != nil && (len(filter.Readable) == 0 || filter.Namespace != "" && !slices.Contains(filter.Readable, filter.Namespace)) {
		return page, nil
	}
	scanned, examined, err := s.split(filter)
	if err != nil {
		return page, err
	}
	if from != "" {
		after, err := parseKey(from)
		if err != nil {
			return page, err
		}
		scanned.add("(created, id) < (?, ?)", after.created, after.id)
	}
	if page, err = s.page(ctx, scanned, examined, limit); err != nil {
		return page, fmt.Errorf("listing jobs: %w", err)
	}
	return page, nil
}

// split returns the conditions that an index finds the jobs by, in their order, and those for which
// each of these jobs is examined.
func (s *Store) split(filter Filter) (scanned, examined conditions, err error) {
	if len(filter.Readable) == 1 {
		filter.Namespace, filter.Readable = filter.Readable[0], nil
	}
	if filter.Namespace != "" {
		filter.Readable = nil
	}
	if len(filter.Readable) > maxNamespaces {
		return scanned, examined, fmt.Errorf("%w: %d namespaces at once: name one", ErrInvalid, len(filter.Readable))
	}
	// The first one, which usually selects the fewest jobs, has the index.
	for _, equal := range []struct{ column, value string }{
		{"creator", filter.Creator},
		{"job_group", filter.Group},
		{"reason", filter.Reason},
		{"namespace", filter.Namespace},
		{"phase", filter.Phase},
	} {
		switch {
		case equal.value == "":
		case len(scanned.texts) == 0:
			scanned.add(equal.column+" = ?", storable(equal.value))
		default:
			examined.add(equal.column+" = ?", storable(equal.value))
		}
	}
	if !filter.Since.IsZero() {
		scanned.add("created >= ?", micros(filter.Since))
	}
	if filter.Text != "" {
		examined.add(s.dialect.position+"(words, ?) > 0", strings.ToLower(storable(filter.Text)))
	}
	if filter.Readable != nil {
		examined.add("namespace IN "+places(len(filter.Readable)), values(filter.Readable, record.MaxText)...)
	}
	return scanned, examined, nil
}

func storable(text string) string {
	return record.Text(text, record.MaxText)
}

// places returns a list of so many values.
func places(count int) string {
	return "(" + strings.TrimSuffix(strings.Repeat("?, ", count), ", ") + ")"
}

// values returns texts of at most so many bytes as arguments.
func values(texts []string, most int) []any {
	all := make([]any, len(texts))
	for i, text := range texts {
		all[i] = record.Text(text, most)
	}
	return all
}

const inOrder = " ORDER BY created DESC, id DESC LIMIT ?"

// page reads one row more than the page has, to know whether there is a next page.
func (s *Store) page(ctx context.Context, scanned, examined conditions, limit int) (record.Page, error) {
	from, arguments := "jobs"+scanned.where(), scanned.arguments
	if len(examined.texts) > 0 {
		from = "(SELECT * FROM jobs" + scanned.where() + inOrder + ") AS scanned" + examined.where()
		arguments = slices.Concat(scanned.arguments, []any{window}, examined.arguments)
	}
	page := record.Page{Jobs: []record.Summary{}}
	var last key
	err := s.query(ctx, s.read, func(scan scan) error {
		job, at, err := scanSummary(scan)
		if err != nil {
			return err
		}
		if len(page.Jobs) == limit {
			page.Next = last.String()
			return nil
		}
		page.Jobs, last = append(page.Jobs, job), at
		return nil
	}, "SELECT "+summaryColumns+" FROM "+from+inOrder, append(arguments, limit+1)...)
	if err == nil && page.Next == "" && len(examined.texts) > 0 {
		page.Next, err = s.endOfWindow(ctx, scanned)
	}
	return page, err
}

// endOfWindow returns the position of the last job that was examined; empty if there are no others.
func (s *Store) endOfWindow(ctx context.Context, scanned conditions) (string, error) {
	next := ""
	err := s.query(ctx, s.read, func(scan scan) error {
		var end key
		var count int64
		if err := scan(&end.created, &end.id, &count); err != nil {
			return err
		}
		if count == window {
			next = end.String()
		}
		return nil
	}, "SELECT created, id, count(*) OVER () FROM (SELECT created, id FROM jobs"+scanned.where()+inOrder+") AS scanned ORDER BY created, id LIMIT 1",
		append(slices.Clone(scanned.arguments), window)...)
	return next, err
}

const summaryColumns = "id, uid, namespace, name, job_group, creator, phase, reason, message, created, started, ended, is_unseen, restarts"

func scanSummary(scan scan) (record.Summary, key, error) {
	var job record.Summary
	var at key
	var started, ended, unseen int64
	err := scan(&at.id, &job.UID, &job.Namespace, &job.Name, &job.Group, &job.Creator, &job.Phase, &job.Reason, &job.Message,
		&at.created, &started, &ended, &unseen, &job.Restarts)
	job.Created, job.Started, job.Ended, job.Unseen = timeOf(at.created), timeOf(started), timeOf(ended), unseen > 0
	return job, at, err
}
