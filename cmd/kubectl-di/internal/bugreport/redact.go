// Copyright The DI Orchestrator Authors.
// SPDX-License-Identifier: Apache-2.0

package bugreport

import (
	"cmp"
	"encoding/base64"
	"encoding/json"
	"regexp"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
)

const (
	// redacted takes the place of a secret value.
	redacted = "<redacted>"
	// leastSecret is the length of the shortest value that is a secret: what is shorter would be found everywhere.
	leastSecret = 4
	// leastLine is that of a line of a value with several lines.
	leastLine = 8
)

// secretName matches the names of variables whose values are secrets.
var secretName = regexp.MustCompile(`(?i)token|passw|secret|credential|api_?key|private_?key|access_?key|auth`)

// redactor replaces secret values.
type redactor struct {
	values map[string]bool
	// isBlind is set if a Secret could not be read, so that what programs print is not told.
	isBlind bool
}

// learn takes the values of a Secret.
func (r *redactor) learn(secret *corev1.Secret) {
	for _, value := range secret.Data {
		r.take(string(value))
	}
}

// take takes a value, its lines, and their forms in base64 and JSON.
func (r *redactor) take(value string) {
	value = strings.TrimSpace(value)
	if len(value) < leastSecret {
		return
	}
	r.values[value] = true
	r.values[base64.StdEncoding.EncodeToString([]byte(value))] = true
	if quoted, err := json.Marshal(value); err == nil {
		r.values[strings.Trim(string(quoted), `"`)] = true
	}
	for line := range strings.Lines(value) {
		if line = strings.TrimSpace(line); len(line) >= leastLine {
			r.values[line] = true
		}
	}
}

// takeVariables takes the values of variables whose names are those of secrets, in any object.
func (r *redactor) takeVariables(object any) {
	switch object := object.(type) {
	case map[string]any:
		name, hasName := object["name"].(string)
		value, hasValue := object["value"].(string)
		if hasName && hasValue && secretName.MatchString(name) {
			r.take(value)
			object["value"] = redacted
		}
		for _, inner := range object {
			r.takeVariables(inner)
		}
	case []any:
		for _, inner := range object {
			r.takeVariables(inner)
		}
	}
}

// hideMessages removes what programs said from an object, if their secrets are not known.
func (r *redactor) hideMessages(object any) {
	switch object := object.(type) {
	case map[string]any:
		if _, isText := object["message"].(string); isText && r.isBlind {
			object["message"] = redacted
		}
		for _, inner := range object {
			r.hideMessages(inner)
		}
	case []any:
		for _, inner := range object {
			r.hideMessages(inner)
		}
	}
}

// clean replaces the secret values in a text, the longest first.
func (r *redactor) clean(text string) string {
	values := make([]string, 0, len(r.values))
	for value := range r.values {
		values = append(values, value)
	}
	slices.SortFunc(values, func(a, b string) int { return cmp.Or(cmp.Compare(len(b), len(a)), cmp.Compare(a, b)) })
	for _, value := range values {
		text = strings.ReplaceAll(text, value, redacted)
	}
	return text
}

// cleaned replaces the secret values in all texts of an object, before it is encoded in a form that would hide them.
func (r *redactor) cleaned(object any) any {
	switch object := object.(type) {
	case string:
		return r.clean(object)
	case map[string]any:
		for key, inner := range object {
			object[key] = r.cleaned(inner)
		}
	case []any:
		for i, inner := range object {
			object[i] = r.cleaned(inner)
		}
	}
	return object
}

// secretsOf returns the names of the Secrets that an object, such as a pod or a job, refers to.
func secretsOf(object any) []string {
	var found []string
	add := func(holder any, key string) {
		if of, isMap := holder.(map[string]any); isMap {
			if name, isText := of[key].(string); isText && name != "" && !slices.Contains(found, name) {
				found = append(found, name)
			}
		}
	}
	var walk func(object any)
	walk = func(object any) {
		switch object := object.(type) {
		case map[string]any:
			for key, inner := range object {
				switch key {
				case "secretKeyRef", "secretRef":
					add(inner, "name")
				case "secret":
					add(inner, "secretName")
					add(inner, "name")
				case "imagePullSecrets":
					all, _ := inner.([]any)
					for _, one := range all {
						add(one, "name")
					}
				}
				walk(inner)
			}
		case []any:
			for _, inner := range object {
				walk(inner)
			}
		}
	}
	walk(object)
	slices.Sort(found)
	return found
}
