// Copyright The DI Orchestrator Authors.
// SPDX-License-Identifier: Apache-2.0

package main

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
)

// auditEvent is what is read of a line of the audit log.
type auditEvent struct {
	Stage string `json:"stage"`
	Verb  string `json:"verb"`
	User  struct {
		Username string `json:"username"`
	} `json:"user"`
	ObjectRef struct {
		Resource    string `json:"resource"`
		Subresource string `json:"subresource"`
	} `json:"objectRef"`
}

// requests are numbers of requests by verb and resource, such as "create pods".
type requests map[string]int

// total returns how many requests are of one of the verbs.
func (r requests) total(verbs ...string) int {
	total := 0
	for what, count := range r {
		if verb, _, _ := strings.Cut(what, " "); slices.Contains(verbs, verb) {
			total += count
		}
	}
	return total
}

// String lists the requests, most frequent first.
func (r requests) String() string {
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

// auditMark is a place in the audit log.
type auditMark int64

// mark returns where the audit log ends.
func (p *plane) mark() (auditMark, error) {
	info, err := os.Stat(p.auditLog())
	if errors.Is(err, os.ErrNotExist) {
		return 0, nil
	}
	if err != nil {
		return 0, fmt.Errorf("audit log: %w", err)
	}
	return auditMark(info.Size()), nil
}

// since counts the requests that users have made since a mark. A watch counts
// when it begins.
func (p *plane) since(mark auditMark) (_ map[string]requests, err error) {
	file, err := os.Open(p.auditLog())
	if err != nil {
		return nil, fmt.Errorf("audit log: %w", err)
	}
	defer func() { err = errors.Join(err, file.Close()) }()
	if _, err := file.Seek(int64(mark), io.SeekStart); err != nil {
		return nil, fmt.Errorf("audit log: %w", err)
	}
	counts := map[string]requests{userServer: {}, userOperator: {}, userPlain: {}}
	lines := bufio.NewReader(file)
	for {
		line, err := lines.ReadBytes('\n')
		if err != nil {
			// A line without an end is still being written.
			return counts, nil
		}
		var event auditEvent
		if err := json.Unmarshal(line, &event); err != nil {
			return nil, fmt.Errorf("audit log: %w", err)
		}
		began := event.Verb == "watch" && event.Stage == "ResponseStarted"
		if of := counts[event.User.Username]; of != nil && (began || event.Verb != "watch" && event.Stage == "ResponseComplete") {
			what := event.Verb + " " + event.ObjectRef.Resource
			if event.ObjectRef.Subresource != "" {
				what += "/" + event.ObjectRef.Subresource
			}
			of[what]++
		}
	}
}
