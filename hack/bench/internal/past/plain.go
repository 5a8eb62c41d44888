// Copyright The DI Orchestrator Authors.
// SPDX-License-Identifier: Apache-2.0

package past

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"strconv"
	"strings"
	"time"
)

// Plain reads a database by plain SQL, the reference.
type Plain struct {
	DB *sql.DB
	// Numbered says that parameters are $1 and not ?.
	Numbered bool
}

// slowest bounds the time of one query.
const slowest = 20 * time.Second

// Walk reads pages of a query, at most so many, and returns the time of each. It ends at a page that takes too long.
func (p Plain) Walk(ctx context.Context, where string, values []any, limit, most int) ([]time.Duration, error) {
	conditions := []string{"(created, id) < (?, ?)"}
	if where != "" {
		conditions = append(conditions, where)
	}
	query := fmt.Sprintf("SELECT created, id, uid, namespace, name, job_group, creator, phase, reason, message FROM jobs WHERE %s ORDER BY created DESC, id DESC LIMIT %d",
		strings.Join(conditions, " AND "), limit)
	var times []time.Duration
	created, id := int64(1)<<62, int64(1)<<62
	for len(times) < most {
		began, rows := time.Now(), 0
		err := p.rows(ctx, query, append([]any{created, id}, values...), func(row *sql.Rows) error {
			rows++
			var texts [8]string
			return row.Scan(&created, &id, &texts[0], &texts[1], &texts[2], &texts[3], &texts[4], &texts[5], &texts[6], &texts[7])
		})
		times = append(times, time.Since(began))
		isTooSlow := errors.Is(err, context.DeadlineExceeded)
		if err != nil && !isTooSlow {
			return times, err
		}
		if isTooSlow || rows < limit {
			break
		}
	}
	return times, nil
}

// Show reads the record of a job.
func (p Plain) Show(ctx context.Context, uid string) (time.Duration, error) {
	began := time.Now()
	var text string
	err := p.rows(ctx, "SELECT record FROM jobs JOIN records ON records.job = jobs.id WHERE uid = ?", []any{uid}, func(row *sql.Rows) error {
		return row.Scan(&text)
	})
	return time.Since(began), err
}

// Size returns the bytes of the database.
func (p Plain) Size(ctx context.Context) (bytes int64, err error) {
	query := "SELECT page_count * page_size FROM pragma_page_count(), pragma_page_size()"
	if p.Numbered {
		query = "SELECT pg_database_size(current_database())"
	}
	err = p.rows(ctx, query, nil, func(row *sql.Rows) error { return row.Scan(&bytes) })
	return bytes, err
}

func (p Plain) rows(ctx context.Context, query string, values []any, give func(*sql.Rows) error) (err error) {
	ctx, cancel := context.WithTimeout(ctx, slowest)
	defer cancel()
	for i := 1; p.Numbered && strings.Contains(query, "?"); i++ {
		query = strings.Replace(query, "?", "$"+strconv.Itoa(i), 1)
	}
	rows, err := p.DB.QueryContext(ctx, query, values...)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, rows.Close()) }()
	for rows.Next() {
		if err := give(rows); err != nil {
			return err
		}
	}
	return errors.Join(rows.Err(), ctx.Err())
}
