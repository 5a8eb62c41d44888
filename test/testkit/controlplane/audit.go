// Copyright The DI Orchestrator Authors.
// SPDX-License-Identifier: Apache-2.0

package controlplane

import (
	"bufio"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"maps"
	"os"
	"slices"
	"strings"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"opendilab.org/di-orchestrator/test/testkit"
)

// Event is the part of an audit log line that tests read.
type Event struct {
	Stage string `json:"stage"`
	Verb  string `json:"verb"`
	User  struct {
		Username string `json:"username"`
	} `json:"user"`
	ObjectRef struct {
		Resource    string `json:"resource"`
		Subresource string `json:"subresource"`
		Namespace   string `json:"namespace"`
		Name        string `json:"name"`
	} `json:"objectRef"`
	ResponseStatus metav1.Status `json:"responseStatus"`
	// RequestObject is the body of a patch of a job's status.
	RequestObject json.RawMessage `json:"requestObject"`
	// Received is the time at which the API server received the request.
	Received metav1.MicroTime `json:"requestReceivedTimestamp"`
}

// What names the request, such as "create pods".
func (e *Event) What() string {
	what := e.Verb + " " + e.ObjectRef.Resource
	if e.ObjectRef.Subresource != "" {
		what += "/" + e.ObjectRef.Subresource
	}
	return what
}

// Requests count requests by verb and resource, such as "create pods".
type Requests map[string]int

// Total returns the number of requests with one of the verbs.
func (r Requests) Total(verbs ...string) int {
	total := 0
	for what, count := range r {
		if verb, _, _ := strings.Cut(what, " "); slices.Contains(verbs, verb) {
			total += count
		}
	}
	return total
}

// All returns the number of requests.
func (r Requests) All() int {
	all := 0
	for _, count := range r {
		all += count
	}
	return all
}

// Without returns the requests for all other resources.
func (r Requests) Without(resource string) Requests {
	others := Requests{}
	for what, count := range r {
		if !strings.HasSuffix(what, " "+resource) {
			others[what] = count
		}
	}
	return others
}

// String lists the requests, most frequent first.
func (r Requests) String() string {
	if len(r) == 0 {
		return "none"
	}
	keys := slices.SortedFunc(maps.Keys(r), func(a, b string) int {
		if r[a] != r[b] {
			return r[b] - r[a]
		}
		return strings.Compare(a, b)
	})
	parts := make([]string, 0, len(keys))
	for _, key := range keys {
		parts = append(parts, fmt.Sprintf("%d %s", r[key], key))
	}
	return strings.Join(parts, ", ")
}

// Mark is a position in the audit log.
type Mark int64

// Mark returns the end of the audit log.
func (p *Plane) Mark() (Mark, error) {
	info, err := os.Stat(p.auditLog())
	if errors.Is(err, os.ErrNotExist) {
		return 0, nil
	}
	if err != nil {
		return 0, fmt.Errorf("audit log: %w", err)
	}
	return Mark(info.Size()), nil
}

// Since counts the requests of users since a mark. A watch counts when it begins.
func (p *Plane) Since(mark Mark) (map[string]Requests, error) {
	counts := map[string]Requests{}
	for _, user := range p.users {
		counts[user] = Requests{}
	}
	err := p.Events(mark, func(event *Event) error {
		if of := counts[event.User.Username]; of != nil {
			of[event.What()]++
		}
		return nil
	})
	return counts, err
}

// Refusals returns an error if a role or a policy of the installation refused a request of the users.
func (p *Plane) Refusals() error {
	return p.Events(0, func(event *Event) error {
		if testkit.IsRefusal(&event.ResponseStatus) {
			return fmt.Errorf("%s of %s is refused: %s", event.What(), event.User.Username, event.ResponseStatus.Message)
		}
		return nil
	})
}

// Events calls each once for every request since a mark: when it was answered, or when its answer
// began if it is a watch.
func (p *Plane) Events(mark Mark, each func(*Event) error) (err error) {
	file, err := os.Open(p.auditLog())
	if err != nil {
		return fmt.Errorf("audit log: %w", err)
	}
	defer func() { err = errors.Join(err, file.Close()) }()
	// The mark may lie within a line that was still being written.
	if _, err := file.Seek(max(int64(mark)-1, 0), io.SeekStart); err != nil {
		return fmt.Errorf("audit log: %w", err)
	}
	lines := bufio.NewReader(file)
	if mark > 0 {
		if _, err := lines.ReadBytes('\n'); err != nil {
			return nil
		}
	}
	for {
		line, err := lines.ReadBytes('\n')
		if err != nil {
			// A line without a newline is still being written.
			return nil
		}
		var event Event
		if err := json.Unmarshal(line, &event); err != nil {
			return fmt.Errorf("audit log: %w", err)
		}
		if event.Verb == "watch" && event.Stage == "ResponseStarted" || event.Verb != "watch" && event.Stage == "ResponseComplete" {
			if err := each(&event); err != nil {
				return err
			}
		}
	}
}
