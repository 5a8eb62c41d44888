// Copyright The DI Orchestrator Authors.
// SPDX-License-Identifier: Apache-2.0

// Package reader reads jobs from the history, as the user that a kubeconfig names.
package reader

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"slices"
	"strconv"
	"sync"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"opendilab.org/di-orchestrator/apis/v2alpha1"
	"opendilab.org/di-orchestrator/cmd/kubectl-di/internal/cluster"
	"opendilab.org/di-orchestrator/history/record"
)

const (
	// answerTime bounds one call. The history works on a request for up to 30 seconds.
	answerTime = time.Minute
	// maxAnswer bounds an answer: the samples of one page are the largest. shownAnswer bounds the part
	// that is printed of one that is not the history's.
	maxAnswer   = 256 << 20
	shownAnswer = 200
	// maxPoints bounds the points that are read of one job.
	maxPoints = 20_000_000
)

var (
	// ErrNoLogs says that the user may read the job, and not its logs.
	ErrNoLogs = errors.New("you may not read the logs")
	// errUnanswered says that a connection broke.
	errUnanswered = errors.New("the history did not answer")
)

// Options say where the history is, and who reads it.
type Options struct {
	Cluster *cluster.Cluster
	// Server is the URL of the history, and Authority a file with those that sign its certificate. Without a Server,
	// a port is forwarded to the history of Namespace, which publishes its authority.
	Server, Authority, Namespace string
	// TokenFile has the token of the user, in place of the kubeconfig's. Without either, a token is made for the
	// service account Account of the cluster's namespace.
	TokenFile, Account string
	// MaxAnswer bounds an answer, in bytes; 0 stands for the largest that the history has.
	MaxAnswer int64
	// Shared is set if the connection outlives the call that makes it, until End.
	Shared bool
}

// Reader reads the history. All calls share a connection. It is safe for concurrent use.
type Reader struct {
	Options
	mutex   sync.Mutex
	current *connection
}

// New returns a reader that is not connected yet.
func New(options Options) *Reader { return &Reader{Options: options} }

// Page reads a page of jobs.
func (r *Reader) Page(ctx context.Context, query url.Values) (page record.Page, err error) {
	err = r.get(ctx, record.Root, query, &page)
	return page, r.explainForbidden(err, query.Get("namespace"))
}

// Sums reads what jobs took together.
func (r *Reader) Sums(ctx context.Context, query url.Values) (list record.SumList, err error) {
	err = r.get(ctx, record.PathSums, query, &list)
	return list, r.explainForbidden(err, query.Get("namespace"))
}

// explainForbidden adds the role that a list needs.
func (r *Reader) explainForbidden(err error, namespace string) error {
	if !apierrors.IsForbidden(err) {
		return err
	}
	return fmt.Errorf("%w\n%s", err, r.RoleFor("list", "dijobs", v2alpha1.GroupName, namespace))
}

// Visit is called with the jobs of a page. It reports whether there should be more.
type Visit func([]record.Summary) (more bool, err error)

// Pages visits the jobs of a query page by page. It returns where the next page starts; "" at the end.
func (r *Reader) Pages(ctx context.Context, query url.Values, limit int, see Visit) (string, error) {
	for {
		query.Set("limit", strconv.Itoa(min(limit, record.MaxPage)))
		page, err := r.Page(ctx, query)
		if err != nil {
			return "", err
		}
		limit -= len(page.Jobs)
		more, err := see(page.Jobs)
		if err != nil || !more || page.Next == "" || limit <= 0 {
			return page.Next, err
		}
		query.Set("from", page.Next)
	}
}

// Names returns the distinct names of the newest jobs of a namespace.
func (r *Reader) Names(ctx context.Context, namespace string) ([]string, error) {
	page, err := r.Page(ctx, url.Values{"namespace": {namespace}, "limit": {strconv.Itoa(record.MaxPage)}})
	var found []string
	for i := range page.Jobs {
		found = append(found, page.Jobs[i].Name)
	}
	slices.Sort(found)
	return slices.Compact(found), err
}

// Job reads a job. Without a UID it is the newest of its name.
func (r *Reader) Job(ctx context.Context, namespace, name, uid string) (*record.Job, error) {
	found := &record.Job{}
	return found, r.get(ctx, record.Root+"/"+url.PathEscape(namespace)+"/"+url.PathEscape(name), url.Values{"uid": {uid}}, found)
}

// partOf returns the path of a part of a job.
func partOf(of *record.Job, part string) (string, url.Values) {
	return record.Root + "/" + url.PathEscape(of.Namespace) + "/" + url.PathEscape(of.Name) + "/" + part, url.Values{"uid": {of.UID}}
}

// Curves reads all points of all curves of a job.
func (r *Reader) Curves(ctx context.Context, of *record.Job) ([]record.Series, error) {
	byName, all, points := map[string]int{}, []record.Series{}, 0
	part, query := partOf(of, "series")
	for {
		var page record.CurvePage
		if err := r.get(ctx, part, query, &page); err != nil {
			return nil, err
		}
		for _, series := range page.Series {
			place, isKnown := byName[series.Name]
			if !isKnown {
				place = len(all)
				byName[series.Name], all = place, append(all, record.Series{Name: series.Name})
			}
			all[place].Points = append(all[place].Points, series.Points...)
			points += len(series.Points)
		}
		if page.Next.IsZero() {
			return all, nil
		}
		if points > maxPoints {
			return nil, fmt.Errorf("job %s/%s has more than %d points: too many to read at once", of.Namespace, of.Name, maxPoints)
		}
		query.Set("after", page.Next.Format(time.RFC3339Nano))
	}
}

// Thinned reads all curves of a job with at most so many points each.
func (r *Reader) Thinned(ctx context.Context, of *record.Job, points int) (page record.CurvePage, err error) {
	part, query := partOf(of, "series")
	query.Set("points", strconv.Itoa(points))
	return page, r.get(ctx, part, query, &page)
}

// Tails reads the last lines of the containers of a job that ended badly.
func (r *Reader) Tails(ctx context.Context, of *record.Job) ([]record.Tail, error) {
	var list record.TailList
	part, query := partOf(of, "tails")
	err := r.get(ctx, part, query, &list)
	if apierrors.IsNotFound(err) {
		// The job was just read: what is missing is the right.
		return nil, fmt.Errorf("%w of job %s/%s\n%s", ErrNoLogs, of.Namespace, of.Name, r.RoleFor("get", "pods/log", "", of.Namespace))
	}
	return list.Tails, err
}

// get reads an answer into a value. It connects again once if the pod was replaced, or the token has expired.
func (r *Reader) get(ctx context.Context, path string, query url.Values, into any) error {
	by, err := r.connected(ctx, nil)
	if err != nil {
		return err
	}
	err = r.once(ctx, by, path, query, into)
	if ctx.Err() != nil || !errors.Is(err, errUnanswered) && !apierrors.IsUnauthorized(err) {
		return err
	}
	by, failed := r.connected(ctx, by)
	if failed != nil {
		return fmt.Errorf("%w; connecting again: %w", err, failed)
	}
	return r.once(ctx, by, path, query, into)
}

func (r *Reader) once(ctx context.Context, by *connection, path string, query url.Values, into any) error {
	for name := range query {
		if query.Get(name) == "" {
			query.Del(name)
		}
	}
	request, err := http.NewRequestWithContext(ctx, http.MethodGet, by.base+path+"?"+query.Encode(), http.NoBody)
	if err != nil {
		return fmt.Errorf("making a request: %w", err)
	}
	request.Header.Set("Authorization", "Bearer "+by.token)
	response, err := by.http.Do(request)
	if err != nil {
		return fmt.Errorf("%w: %w", errUnanswered, err)
	}
	defer response.Body.Close() //nolint:errcheck // nothing is lost with a body that was read
	most := r.MaxAnswer
	if most == 0 {
		most = maxAnswer
	}
	content, err := io.ReadAll(http.MaxBytesReader(nil, response.Body, most))
	if tooLarge := new(http.MaxBytesError); errors.As(err, &tooLarge) {
		return fmt.Errorf("the answer of the history has more than %d bytes: too many to read at once", most)
	}
	if err != nil {
		return fmt.Errorf("%w: reading its answer: %w", errUnanswered, err)
	}
	if response.StatusCode == http.StatusOK {
		err = json.Unmarshal(content, into)
	} else {
		err = refusal(content)
	}
	if errors.As(err, new(apierrors.APIStatus)) {
		return fmt.Errorf("the history refuses: %w", err)
	}
	if err != nil {
		return fmt.Errorf("%s answered with status %d, and not as the history does: %q", by.base, response.StatusCode, content[:min(len(content), shownAnswer)])
	}
	return nil
}

// refusal returns the error of an answer that is a Status.
func refusal(content []byte) error {
	var status metav1.Status
	if err := json.Unmarshal(content, &status); err != nil || status.Kind != "Status" {
		return errors.Join(errors.New("no Status"), err)
	}
	return &apierrors.StatusError{ErrStatus: status}
}
