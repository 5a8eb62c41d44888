// Copyright The DI Orchestrator Authors.
// SPDX-License-Identifier: Apache-2.0

package serve

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"net/url"
	"strconv"
	"time"

	"github.com/go-logr/logr"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apiserver/pkg/authentication/authenticator"
	"k8s.io/apiserver/pkg/authentication/user"
	"k8s.io/apiserver/pkg/authorization/authorizer"

	"opendilab.org/di-orchestrator/apis/v2alpha1"
	"opendilab.org/di-orchestrator/autoscale/optimizer/remote"
	"opendilab.org/di-orchestrator/history/record"
	"opendilab.org/di-orchestrator/history/store"
)

// The paths that are served.
const (
	pathList   = record.Root
	pathJob    = record.Root + "/{namespace}/{name}"
	pathSeries = pathJob + "/series"
	pathTails  = pathJob + "/tails"
)

const (
	// defaultPage is how many jobs a page has unless the caller says how many.
	defaultPage = 100
	// sumsTime is the time whose jobs are summed up unless the caller says which.
	sumsTime = 30 * 24 * time.Hour
	// maxQuery bounds the query of a request, in bytes.
	maxQuery = 8 << 10
	// maxReads bounds the reads of samples for one answer with thinned curves. A year of reports needs two.
	maxReads = 8
	// requestTime bounds the time of one request.
	requestTime = 30 * time.Second
)

// Store is the database.
type Store interface {
	List(ctx context.Context, filter store.Filter, from string, limit int) (record.Page, error)
	Job(ctx context.Context, namespace, name, uid string) (record.Job, error)
	Samples(ctx context.Context, uid string, after time.Time) ([]record.Sample, error)
	Tails(ctx context.Context, uid string) ([]record.Tail, error)
	Family(ctx context.Context, namespace, family string) ([]record.Job, error)
	Sums(ctx context.Context, filter store.SumFilter) (record.SumList, error)
	LastSamples(ctx context.Context, uid string, limit int) ([]record.Sample, error)
	Groups(ctx context.Context, names []string) (map[string]json.RawMessage, error)
}

type handler struct {
	store   Store
	access  Access
	metrics *Metrics
	log     logr.Logger
	// optimizing has the requests for plans that are answered now.
	optimizing chan struct{}
}

// NewHandler returns the handler of all paths.
func NewHandler(from Store, access Access, metrics *Metrics, log logr.Logger) http.Handler {
	h := &handler{from, access, metrics, log, make(chan struct{}, atOnce)}
	mux := http.NewServeMux()
	for path, act := range map[string]action{pathList: h.list, pathJob: h.show, pathSeries: h.series, pathTails: h.tails, record.PathSums: h.sums} {
		mux.Handle("GET "+path, h.answer(path, access.Tokens, act))
	}
	mux.Handle("POST "+record.PathGroups, h.answer(record.PathGroups, access.Programs, h.groups))
	mux.Handle("POST "+remote.Path, h.answer(remote.Path, access.Programs, h.optimize))
	return mux
}

// action returns the answer to a request.
type action func(*request) (any, error)

// request is a request of a known caller.
type request struct {
	*http.Request
	caller user.Info
	query  url.Values
}

// answer answers with what an action returns for a known caller.
func (h *handler) answer(path string, by authenticator.Request, act action) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		started := h.metrics.clock.Now()
		ctx, cancel := context.WithTimeout(r.Context(), requestTime)
		defer cancel()
		answer, err := h.identified(r.WithContext(ctx), by, act)
		code := http.StatusOK
		if err != nil {
			answer, code = h.failure(err)
		}
		encoded, failed := json.Marshal(answer)
		if failed != nil {
			h.log.Error(failed, "Cannot encode an answer", "path", r.URL.Path)
			encoded, code = []byte("{}"), http.StatusInternalServerError
		}
		h.metrics.answered(path, code, err, started)
		w.Header().Set("Content-Type", "application/json")
		w.Header().Set("Cache-Control", "no-store")
		w.WriteHeader(code)
		// A caller that is gone needs nothing.
		_, _ = w.Write(encoded)
	})
}

func (h *handler) identified(r *http.Request, by authenticator.Request, act action) (any, error) {
	found, ok, err := by.AuthenticateRequest(r)
	switch {
	case ok:
	case err != nil && r.Context().Err() != nil:
		return nil, apierrors.NewServiceUnavailable("the API server has not reviewed the token in time")
	default:
		return nil, apierrors.NewUnauthorized("Authorization: must be Bearer and a token of this cluster")
	}
	if len(r.URL.RawQuery) > maxQuery {
		return nil, apierrors.NewBadRequest(fmt.Sprintf("the query has %d bytes: at most %d are read", len(r.URL.RawQuery), maxQuery))
	}
	query, err := url.ParseQuery(r.URL.RawQuery)
	if err != nil {
		return nil, apierrors.NewBadRequest("the query is not one: " + err.Error())
	}
	return act(&request{r, found.User, query})
}

// failure returns the Status of an error. Those of the database are logged, and not told.
func (h *handler) failure(err error) (any, int) {
	status := apierrors.APIStatus(nil)
	if errors.As(err, &status) {
		answer := status.Status()
		answer.TypeMeta = metav1.TypeMeta{APIVersion: "v1", Kind: "Status"}
		return answer, int(answer.Code)
	}
	if errors.Is(err, store.ErrInvalid) {
		return h.failure(apierrors.NewBadRequest(err.Error()))
	}
	h.log.Error(err, "Cannot answer a request")
	return h.failure(apierrors.NewServiceUnavailable("the history cannot be read now: try again later"))
}

// may reports whether the caller has a right.
func (h *handler) may(r *request, wanted authorizer.AttributesRecord) (bool, error) {
	wanted.User, wanted.ResourceRequest = r.caller, true
	decision, _, err := h.access.Rights.Authorize(r.Context(), wanted)
	if err != nil && decision != authorizer.DecisionAllow {
		return false, fmt.Errorf("reviewing what %s may do: %w", r.caller.GetName(), err)
	}
	return decision == authorizer.DecisionAllow, nil
}

func onJobs(verb, namespace, name string) authorizer.AttributesRecord {
	return authorizer.AttributesRecord{
		Verb: verb, APIGroup: v2alpha1.GroupName, APIVersion: v2alpha1.Version, Resource: "dijobs", Namespace: namespace, Name: name,
	}
}

func onLogs(namespace string) authorizer.AttributesRecord {
	return authorizer.AttributesRecord{Verb: "get", APIVersion: corev1.SchemeGroupVersion.Version, Resource: "pods", Subresource: "log", Namespace: namespace}
}

// list answers a page of jobs of one namespace, or of all. The caller needs the right to list them.
func (h *handler) list(r *request) (any, error) {
	filter := store.Filter{
		Namespace: r.query.Get("namespace"), Phase: r.query.Get("phase"), Group: r.query.Get("group"),
		Creator: r.query.Get("creator"), Reason: r.query.Get("reason"), Text: r.query.Get("text"),
	}
	err := h.mayList(r, filter.Namespace)
	if err != nil {
		return nil, err
	}
	if filter.Namespace != "" {
		filter.Readable = []string{filter.Namespace}
	}
	if filter.Since, err = timeIn(r.query, "since"); err != nil {
		return nil, err
	}
	limit, err := numberIn(r.query, "limit", defaultPage, record.MaxPage)
	if err != nil {
		return nil, err
	}
	return h.store.List(r.Context(), filter, r.query.Get("from"), limit)
}

// mayList returns an error unless the caller may list the jobs of a namespace, or of all if it is empty.
func (h *handler) mayList(r *request, namespace string) error {
	allowed, err := h.may(r, onJobs("list", namespace, ""))
	if err != nil || allowed {
		return err
	}
	return apierrors.NewForbidden(schema.GroupResource{Group: v2alpha1.GroupName, Resource: "dijobs"}, "",
		fmt.Errorf("user %q may not list them in namespace %q: name a namespace by ?namespace=, or get a role that allows it", r.caller.GetName(), namespace))
}

// sums answers what the jobs of a namespace, or of all, took together in a time: the last 30 days by default. The
// caller needs the right to list them.
func (h *handler) sums(r *request) (any, error) {
	filter := store.SumFilter{Namespace: r.query.Get("namespace"), By: record.By(r.query.Get("by"))}
	err := h.mayList(r, filter.Namespace)
	if err != nil {
		return nil, err
	}
	if filter.IsDaily, err = flagIn(r.query, "daily"); err != nil {
		return nil, err
	}
	if filter.Until, err = timeIn(r.query, "until"); err != nil {
		return nil, err
	}
	if filter.Until.IsZero() {
		filter.Until = h.metrics.clock.Now()
	}
	if filter.Since, err = timeIn(r.query, "since"); err != nil {
		return nil, err
	}
	if filter.Since.IsZero() {
		filter.Since = filter.Until.Add(-sumsTime)
	}
	return h.store.Sums(r.Context(), filter)
}

// flagIn returns whether a query sets a flag.
func flagIn(query url.Values, name string) (bool, error) {
	switch text := query.Get(name); text {
	case "", "false":
		return false, nil
	case "true":
		return true, nil
	default:
		return false, apierrors.NewBadRequest(fmt.Sprintf("%s %q: must be true or false", name, record.Text(text, record.MaxName)))
	}
}

func timeIn(query url.Values, name string) (time.Time, error) {
	text := query.Get(name)
	if text == "" {
		return time.Time{}, nil
	}
	at, err := time.Parse(time.RFC3339Nano, text)
	if err != nil {
		return at, apierrors.NewBadRequest(fmt.Sprintf("%s %q: must be a time such as 2026-01-31T15:04:05Z", name, record.Text(text, record.MaxName)))
	}
	return at, nil
}

// numberIn returns a number from 1 to most, or what is usual if the query has none.
func numberIn(query url.Values, name string, usual, most int) (int, error) {
	text := query.Get(name)
	if text == "" && usual > 0 {
		return usual, nil
	}
	number, err := strconv.Atoi(text)
	if err != nil || number < 1 || number > most {
		return 0, apierrors.NewBadRequest(fmt.Sprintf("%s %q: must be a number from 1 to %d", name, record.Text(text, record.MaxName), most))
	}
	return number, nil
}

// job returns the job that a path names, if the caller has the rights. Otherwise it does not exist.
func (h *handler) job(r *request, also ...authorizer.AttributesRecord) (record.Job, error) {
	namespace, name := r.PathValue("namespace"), r.PathValue("name")
	missing := apierrors.NewNotFound(schema.GroupResource{Group: v2alpha1.GroupName, Resource: "dijobs"}, record.Text(name, record.MaxName))
	for _, wanted := range append([]authorizer.AttributesRecord{onJobs("get", namespace, name)}, also...) {
		if allowed, err := h.may(r, wanted); err != nil {
			return record.Job{}, err
		} else if !allowed {
			return record.Job{}, errors.Join(errHidden, missing)
		}
	}
	job, err := h.store.Job(r.Context(), namespace, name, r.query.Get("uid"))
	if errors.Is(err, store.ErrNotFound) {
		return job, missing
	}
	return job, err
}

func (h *handler) show(r *request) (any, error) {
	return h.job(r)
}

// series answers the curves of a job: a page of all points, or with points all curves with at most so many points each.
func (h *handler) series(r *request) (any, error) {
	job, err := h.job(r)
	if err != nil {
		return nil, err
	}
	after, err := timeIn(r.query, "after")
	if err != nil {
		return nil, err
	}
	if r.query.Has("points") {
		points, err := numberIn(r.query, "points", 0, record.MaxPoints)
		if err != nil {
			return nil, err
		}
		return h.reduced(r, &job, after, points)
	}
	samples, err := h.store.Samples(r.Context(), job.UID, after)
	if err != nil {
		return nil, err
	}
	curves := record.CurvePage{UID: job.UID, Series: record.Curves(samples)}
	if len(samples) == store.MaxSamples {
		curves.Next = samples[len(samples)-1].At
	}
	return curves, nil
}

// reduced answers all curves of a job, thinned. It reads a bounded number of samples.
func (h *handler) reduced(r *request, job *record.Job, after time.Time, points int) (any, error) {
	until := job.Ended
	if until.IsZero() {
		until = h.metrics.clock.Now()
	}
	from := job.Created
	if after.After(from) {
		from = after
	}
	reduction := record.NewReduction(from, until, points)
	curves := record.CurvePage{UID: job.UID}
	for reads := 1; ; reads++ {
		samples, err := h.store.Samples(r.Context(), job.UID, after)
		if err != nil {
			return nil, err
		}
		reduction.Add(samples)
		if len(samples) < store.MaxSamples {
			break
		}
		after = samples[len(samples)-1].At
		if reads == maxReads {
			curves.Next = after
			break
		}
	}
	curves.Series = reduction.Series()
	return curves, nil
}

func (h *handler) tails(r *request) (any, error) {
	job, err := h.job(r, onLogs(r.PathValue("namespace")))
	if err != nil {
		return nil, err
	}
	found, err := h.store.Tails(r.Context(), job.UID)
	if err != nil {
		return nil, err
	}
	return record.TailList{UID: job.UID, Tails: append([]record.Tail{}, found...)}, nil
}
