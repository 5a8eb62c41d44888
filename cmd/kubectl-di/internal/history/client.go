// Copyright The DI Orchestrator Authors.
// SPDX-License-Identifier: Apache-2.0

package history

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
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"opendilab.org/di-orchestrator/apis/v2alpha1"
	"opendilab.org/di-orchestrator/cmd/kubectl-di/internal/cluster"
	"opendilab.org/di-orchestrator/cmd/kubectl-di/internal/diserver"
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

// job is what is recorded of a job.
type job = *record.Job

// errUnanswered says that a connection broke.
var errUnanswered = errors.New("the history did not answer")

// reader reads the history. All calls share a connection.
type reader struct {
	login   *reading
	cluster *cluster.Cluster
	way     diserver.Way
	http    *http.Client
	// base is the URL of the history, which works until end is called.
	base string
	end  func()
	// token names the user, or else the service account.
	token, account string
}

// connect connects to the history, in place of an earlier connection, with a new token.
func (r *reader) connect(ctx context.Context) error {
	r.end()
	at, end, err := r.way.Open(ctx)
	if err != nil {
		r.end = func() {}
		return r.login.explain(err)
	}
	r.base, r.end = at, end
	if r.http == nil {
		trust, err := r.login.trust(ctx, r.cluster)
		if err != nil {
			return err
		}
		r.http = &http.Client{
			Timeout: answerTime,
			// Redirects are not followed: only the history may receive the token.
			CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse },
			Transport:     &http.Transport{Proxy: http.ProxyFromEnvironment, TLSClientConfig: trust},
		}
	}
	return r.login.identify(ctx, r)
}

// page reads a page of jobs.
func (r *reader) page(ctx context.Context, query url.Values) (page record.Page, err error) {
	err = r.get(ctx, "", query, &page)
	if apierrors.IsForbidden(err) {
		err = fmt.Errorf("%w\n%s", err, r.roleFor("list", "dijobs", v2alpha1.GroupName, query.Get("namespace")))
	}
	return page, err
}

// names returns the distinct names of the newest jobs in the namespace.
func (r *reader) names(ctx context.Context) ([]string, error) {
	page, err := r.page(ctx, url.Values{"namespace": {r.cluster.Namespace}, "limit": {strconv.Itoa(record.MaxPage)}})
	var found []string
	for i := range page.Jobs {
		found = append(found, page.Jobs[i].Name)
	}
	slices.Sort(found)
	return slices.Compact(found), err
}

// job reads a job of the namespace. Without a UID it is the newest of its name.
func (r *reader) job(ctx context.Context, name, uid string) (job, error) {
	found := &record.Job{}
	err := r.get(ctx, "/"+r.cluster.Namespace+"/"+url.PathEscape(name), url.Values{"uid": {uid}}, found)
	if !apierrors.IsNotFound(err) {
		return found, err
	}
	title := "job " + r.cluster.Namespace + "/" + name
	if uid != "" {
		title += " with UID " + uid
	}
	others, err := r.names(ctx)
	switch near := cluster.Nearest(name, others); {
	case slices.Contains(others, name):
		return nil, fmt.Errorf("the history has no %s: kubectl di history list --text %s -o wide shows those that it has", title, name)
	case near != "":
		return nil, fmt.Errorf("the history has no %s: did you mean %s?", title, near)
	case err == nil:
		return nil, fmt.Errorf("the history has no %s: see kubectl di history list", title)
	}
	return nil, fmt.Errorf("the history has no %s that you may read\n%s", title, r.roleFor("get", "dijobs", v2alpha1.GroupName, r.cluster.Namespace))
}

// recorded reads a job of a list; nil if its record is gone.
func (r *reader) recorded(ctx context.Context, of *record.Summary) (job, error) {
	found := &record.Job{}
	err := r.get(ctx, "/"+of.Namespace+"/"+url.PathEscape(of.Name), url.Values{"uid": {of.UID}}, found)
	if apierrors.IsNotFound(err) {
		return nil, nil
	}
	return found, err
}

// path returns the path of a part of a job.
func path(of job, part string) (string, url.Values) {
	return "/" + of.Namespace + "/" + url.PathEscape(of.Name) + "/" + part, url.Values{"uid": {of.UID}}
}

// curves reads all curves of a job.
func (r *reader) curves(ctx context.Context, of job) ([]record.Series, error) {
	byName, all, points := map[string]int{}, []record.Series{}, 0
	part, query := path(of, "series")
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

// tails reads the last lines of the containers of a job that ended badly.
func (r *reader) tails(ctx context.Context, of job) ([]record.Tail, error) {
	var list record.TailList
	part, query := path(of, "tails")
	err := r.get(ctx, part, query, &list)
	if apierrors.IsNotFound(err) {
		// The job was just read: what is missing is the right.
		return nil, fmt.Errorf("you may not read the logs of job %s/%s\n%s", of.Namespace, of.Name, r.roleFor("get", "pods/log", "", of.Namespace))
	}
	return list.Tails, err
}

// roleFor returns the role of a right, and who it must be bound to.
func (r *reader) roleFor(verb, resource, group, namespace string) string {
	text := cluster.RoleFor(verb, resource, group, namespace, "")
	if r.account != "" {
		text += "\nthe history knows you as service account " + r.account + ", since your kubeconfig has no token: bind it to that, or name another one by --service-account"
	}
	return text
}

// get reads an answer into a value. It connects again once if the pod was replaced, or the token has expired.
func (r *reader) get(ctx context.Context, below string, query url.Values, into any) error {
	err := r.once(ctx, below, query, into)
	if ctx.Err() != nil || !errors.Is(err, errUnanswered) && !apierrors.IsUnauthorized(err) {
		return err
	}
	if failed := r.connect(ctx); failed != nil {
		return fmt.Errorf("%w; connecting again: %w", err, failed)
	}
	return r.once(ctx, below, query, into)
}

func (r *reader) once(ctx context.Context, below string, query url.Values, into any) error {
	for name := range query {
		if query.Get(name) == "" {
			query.Del(name)
		}
	}
	request, err := http.NewRequestWithContext(ctx, http.MethodGet, r.base+record.Root+below+"?"+query.Encode(), http.NoBody)
	if err != nil {
		return fmt.Errorf("making a request: %w", err)
	}
	request.Header.Set("Authorization", "Bearer "+r.token)
	response, err := r.http.Do(request)
	if err != nil {
		return fmt.Errorf("%w: %w", errUnanswered, err)
	}
	defer response.Body.Close() //nolint:errcheck // nothing is lost with a body that was read
	content, err := io.ReadAll(http.MaxBytesReader(nil, response.Body, maxAnswer))
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
		return fmt.Errorf("%s answered with status %d, and not as the history does: %q", r.base, response.StatusCode, content[:min(len(content), shownAnswer)])
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
