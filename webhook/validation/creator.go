// Copyright The DI Orchestrator Authors.
// SPDX-License-Identifier: Apache-2.0

package validation

import (
	"encoding/json"
	"strings"

	"opendilab.org/di-orchestrator/internal/names"
	"opendilab.org/di-orchestrator/webhook/validation/jsontype"
)

// maxCreator is the maximum length of a recorded user name, in bytes. A longer name is not recorded.
const maxCreator = 1024

// Creator returns the patch that records in an annotation which user creates a job, and that keeps what is recorded.
func Creator(request *Request, user string) Patch {
	if request.Subresource != "" {
		return nil
	}
	recorded := annotationsOf(request.OldRaw)[names.AnnotationCreator]
	if request.Create && user != "" && len(user) <= maxCreator {
		// The encoding of a string does not fail.
		recorded, _ = json.Marshal(user)
	}
	given := annotationsOf(request.Raw)
	var changes Patch
	path := "/metadata/annotations/" + strings.ReplaceAll(names.AnnotationCreator, "/", "~1")
	written, isWritten := given[names.AnnotationCreator]
	switch {
	case recorded == nil && isWritten:
		changes.remove(path)
	case recorded == nil || string(written) == string(recorded):
	case given == nil:
		changes.set("/metadata/annotations", map[string]json.RawMessage{names.AnnotationCreator: recorded})
	default:
		changes.set(path, recorded)
	}
	return changes
}

func annotationsOf(raw []byte) map[string]json.RawMessage {
	return jsontype.Members(jsontype.Members(jsontype.Members(raw)["metadata"])["annotations"])
}
