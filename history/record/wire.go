// Copyright The DI Orchestrator Authors.
// SPDX-License-Identifier: Apache-2.0

package record

import "time"

// Root is the path of all that the history answers by HTTP. The answers are a Page; and below it, by
// namespace and name of a job, a Job, a CurvePage and a TailList.
const Root = "/v1alpha1/history/jobs"

// MaxPage bounds the jobs of a page.
const MaxPage = 500

// Summary is one job of a list.
type Summary struct {
	UID       string    `json:"uid"`
	Namespace string    `json:"namespace"`
	Name      string    `json:"name"`
	Group     string    `json:"group,omitempty"`
	Creator   string    `json:"creator,omitempty"`
	Phase     string    `json:"phase,omitempty"`
	Reason    string    `json:"reason,omitempty"`
	Message   string    `json:"message,omitempty"`
	Created   time.Time `json:"created"`
	Started   time.Time `json:"started,omitzero"`
	Ended     time.Time `json:"ended,omitzero"`
	Unseen    bool      `json:"unseen,omitempty"`
	Restarts  int64     `json:"restarts,omitempty"`
}

// Page is a part of a list, the newest jobs first.
type Page struct {
	Jobs []Summary `json:"jobs"`
	// Next is where the next page starts; empty at the end. A page may be short, or even empty, and
	// still have a next one, because only so many jobs are examined for one page.
	Next string `json:"next,omitempty"`
}

// CurvePage is a part of the curves of a job.
type CurvePage struct {
	UID    string   `json:"uid"`
	Series []Series `json:"series"`
	// Next is the time after which there may be more points; zero at the end.
	Next time.Time `json:"next,omitzero"`
}

// TailList has the last lines of the containers of a job that ended badly.
type TailList struct {
	UID   string `json:"uid"`
	Tails []Tail `json:"tails"`
}
