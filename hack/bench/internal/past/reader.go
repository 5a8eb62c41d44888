// Copyright The DI Orchestrator Authors.
// SPDX-License-Identifier: Apache-2.0

package past

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"encoding/json"
	"errors"
	"fmt"
	"math"
	"net/http"
	"net/url"
	"slices"
	"strconv"
	"time"

	"k8s.io/apimachinery/pkg/util/wait"

	"opendilab.org/di-orchestrator/history/record"
)

// patience is the timeout of what is waited for.
const patience = 10 * time.Minute

// Reader reads the history by HTTPS.
type Reader struct {
	client     *http.Client
	url, token string
}

// NewReader returns a reader of an address with a token. The certificate must be of a host, and of the roots.
func NewReader(address, host, token string, roots *x509.CertPool) *Reader {
	transport := &http.Transport{TLSClientConfig: &tls.Config{RootCAs: roots, ServerName: host, MinVersion: tls.VersionTLS12}}
	return &Reader{&http.Client{Transport: transport, Timeout: time.Minute}, "https://" + address + record.Root, token}
}

// Get reads a path below that of all jobs into an object, and returns how long that took.
func (r *Reader) Get(ctx context.Context, path string, query url.Values, into any) (took time.Duration, err error) {
	request, err := http.NewRequestWithContext(ctx, http.MethodGet, r.url+path+"?"+query.Encode(), http.NoBody)
	if err != nil {
		return 0, err
	}
	request.Header.Set("Authorization", "Bearer "+r.token)
	began := time.Now()
	response, err := r.client.Do(request)
	if err != nil {
		return 0, err
	}
	err = json.NewDecoder(response.Body).Decode(into)
	took = time.Since(began)
	if err = errors.Join(err, response.Body.Close()); err == nil && response.StatusCode != http.StatusOK {
		err = fmt.Errorf("GET %s: %s", path, response.Status)
	}
	return took, err
}

// Walk reads the pages of a query, at most so many, and gives each one. It returns the time of each.
func (r *Reader) Walk(ctx context.Context, query url.Values, most int, give func(record.Page)) ([]time.Duration, error) {
	var times []time.Duration
	for {
		var page record.Page
		took, err := r.Get(ctx, "", query, &page)
		if err != nil {
			return times, err
		}
		give(page)
		times = append(times, took)
		if page.Next == "" || len(times) == most {
			return times, nil
		}
		query.Set("from", page.Next)
	}
}

// Await returns when so many jobs are recorded.
func (r *Reader) Await(ctx context.Context, jobs int) error {
	return wait.PollUntilContextTimeout(ctx, 100*time.Millisecond, patience, true, func(ctx context.Context) (bool, error) {
		recorded := 0
		_, err := r.Walk(ctx, Limit(record.MaxPage), math.MaxInt, func(page record.Page) { recorded += len(page.Jobs) })
		return recorded >= jobs, err
	})
}

// AwaitPoint returns when the curve of a job ends in a value.
func (r *Reader) AwaitPoint(ctx context.Context, namespace, name, series string, value float64) error {
	err := wait.PollUntilContextTimeout(ctx, 100*time.Millisecond, patience, true, func(ctx context.Context) (bool, error) {
		var found record.CurvePage
		_, err := r.Get(ctx, "/"+namespace+"/"+name+"/series", nil, &found)
		return err == nil && slices.ContainsFunc(found.Series, func(s record.Series) bool {
			return s.Name == series && len(s.Points) > 0 && s.Points[len(s.Points)-1].Value == value
		}), err
	})
	if err != nil {
		return fmt.Errorf("waiting until job %s/%s has %s %v: %w", namespace, name, series, value, err)
	}
	return nil
}

// Limit returns a query of pages of so many jobs.
func Limit(jobs int) url.Values {
	return url.Values{"limit": {strconv.Itoa(jobs)}}
}
