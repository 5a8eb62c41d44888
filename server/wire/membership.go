// Copyright The DI Orchestrator Authors.
// SPDX-License-Identifier: Apache-2.0

package wire

import (
	"encoding/json"
	"net/url"
	"strconv"
	"strings"

	"k8s.io/apimachinery/pkg/types"

	"opendilab.org/di-orchestrator/server/failure"
)

// MemberState is the state of a member.
type MemberState string

const (
	// MemberJoining is a replica that is not a member yet. Members do not use it.
	MemberJoining MemberState = "joining"
	// MemberActive is a member.
	MemberActive MemberState = "active"
	// MemberLeaving is a member that will be removed or replaced.
	MemberLeaving MemberState = "leaving"
)

// Membership lists the members of a job.
type Membership struct {
	// Version is the version of the list.
	Version int64 `json:"version"`
	// Members are the replicas by rank; null if the version is the one that the caller knows.
	Members []Member `json:"members"`
}

// Member is a replica of a job.
type Member struct {
	// Name is the name of the pod.
	Name string `json:"name"`
	// Task is the name of the task.
	Task string `json:"task"`
	// Rank is the rank in the job, and Index the index in the task. Replicas of a coordinator-led job have no
	// index: it is their rank.
	Rank  int32 `json:"rank"`
	Index int32 `json:"index"`
	// Address is ip:port, or the URL of a replica of a coordinator-led job; empty while the pod has no IP.
	Address string `json:"address"`
	// State is the state of the member.
	State MemberState `json:"state"`
}

// Watch is the query of a GET of the membership.
type Watch struct {
	// IsWatch is set if the answer waits for another version than Version.
	IsWatch bool
	Version int64
}

// ReadWatch parses the query of a GET of the membership.
func ReadWatch(rawQuery string) (Watch, error) {
	query, err := url.ParseQuery(rawQuery)
	if err != nil {
		return Watch{}, failure.New(failure.Invalid, "the query %q is malformed", excerpt(json.RawMessage(rawQuery))).Because(err)
	}
	var wanted Watch
	for key, values := range query {
		value := values[len(values)-1]
		switch key {
		case "watch":
			wanted.IsWatch, err = strconv.ParseBool(value)
		case "version":
			wanted.Version, err = strconv.ParseInt(value, 10, 64)
		default:
			return Watch{}, failure.New(failure.Invalid, "query parameter %q is not known: use watch and version", excerpt(json.RawMessage(key)))
		}
		if err != nil {
			return Watch{}, failure.New(failure.Invalid, "query parameter %s=%q is wrong: use watch=true and version=7", key, excerpt(json.RawMessage(value))).Because(err)
		}
	}
	return wanted, nil
}

// ReadCoordinatorWatch parses the query of a GET of the membership of the job of one coordinator.
func ReadCoordinatorWatch(rawQuery string) (types.NamespacedName, Watch, error) {
	query, err := url.ParseQuery(rawQuery)
	if err != nil {
		return types.NamespacedName{}, Watch{}, failure.New(failure.Invalid, "the query %q is malformed", excerpt(json.RawMessage(rawQuery))).Because(err)
	}
	watch := url.Values{}
	for key, values := range query {
		if lower := strings.ToLower(key); lower == "watch" || lower == "version" {
			watch[lower] = append(watch[lower], values...)
			delete(query, key)
		}
	}
	coordinator, err := ReadCoordinator(query.Encode())
	if err != nil {
		return types.NamespacedName{}, Watch{}, err
	}
	wanted, err := ReadWatch(watch.Encode())
	return coordinator, wanted, err
}

// maxReason bounds the bytes of the reason of a refusal.
const maxReason = 256

// Ack acknowledges a version of the membership.
type Ack struct {
	// Version is the version.
	Version int64
	// Member is the name of the caller's pod; empty for the pod that sends the request.
	Member string
	// Refuse is set if the member refuses the version. Reason describes why.
	Refuse bool
	Reason string
}

// ReadAck parses an acknowledgement.
func ReadAck(content []byte) (*Ack, error) {
	var raw struct {
		Version json.RawMessage `json:"version"`
		Member  json.RawMessage `json:"member"`
		Refuse  json.RawMessage `json:"refuse"`
		Reason  json.RawMessage `json:"reason"`
	}
	if err := decode(content, &raw); err != nil {
		return nil, err
	}
	var fields fieldReader
	var ack Ack
	if isAbsent(raw.Version) || json.Unmarshal(raw.Version, &ack.Version) != nil || ack.Version < 1 {
		fields.mistyped("version", raw.Version, "the version of a membership, such as 7")
	}
	if !isAbsent(raw.Member) {
		ack.Member = fields.required("member", raw.Member)
	}
	if !isAbsent(raw.Refuse) && json.Unmarshal(raw.Refuse, &ack.Refuse) != nil {
		fields.mistyped("refuse", raw.Refuse, "true or false")
	}
	if !isAbsent(raw.Reason) && json.Unmarshal(raw.Reason, &ack.Reason) != nil {
		fields.mistyped("reason", raw.Reason, "a string")
	}
	ack.Reason = strings.ToValidUTF8(ack.Reason[:min(len(ack.Reason), maxReason)], "")
	return &ack, fields.err()
}
