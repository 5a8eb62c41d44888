// Copyright The DI Orchestrator Authors.
// SPDX-License-Identifier: Apache-2.0

package podcheck

import (
	"errors"
	"fmt"
	"regexp"
	"strings"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
)

// Finding is a part of the API server's answer about a pod.
type Finding struct {
	// Field is the path in the manifest, "" if the answer is about no field.
	Field   string
	Message string
}

// String returns the finding in one line.
func (f Finding) String() string {
	if f.Field == "" {
		return f.Message
	}
	return f.Field + ": " + f.Message
}

// Findings are the API server's answers about the pod of a task.
type Findings struct {
	Task string
	// Refused is why the pod would not be created; Warnings are the API server's warnings.
	Refused, Warnings []Finding
	// Unchecked is why the pod could not be checked, "" if it was.
	Unchecked string
}

// noDryRun is a part of the API server's answer if an admission webhook cannot be called in dry run. It
// says nothing about the pod.
const noDryRun = " does not support dry run"

// refusals returns the findings of a refusal; none if the error is not about the pod.
func (p *Pod) refusals(err error) []Finding {
	var status apierrors.APIStatus
	if !errors.As(err, &status) || IsDenied(err) || !isAnswer(err) {
		return nil
	}
	var findings []Finding
	message := status.Status().Message
	if details := status.Status().Details; details != nil && apierrors.IsInvalid(err) {
		for _, cause := range details.Causes {
			if cause.Field != "" && cause.Field != "<nil>" {
				findings = append(findings, Finding{p.field(cause.Field), cause.Message})
			}
		}
	}
	if len(findings) > 0 {
		return findings
	}
	if _, strict, is := strings.Cut(message, "strict decoding error: "); is {
		return p.strict(strict)
	}
	return p.findings(verdict(message))
}

// isAnswer reports whether an error is the API server's answer about the pod, and no temporary fault.
func isAnswer(err error) bool {
	return apierrors.IsForbidden(err) || apierrors.IsInvalid(err) || apierrors.IsBadRequest(err) || apierrors.IsAlreadyExists(err) ||
		apierrors.IsRequestEntityTooLargeError(err) || strings.Contains(err.Error(), "admission webhook ")
}

var missingRight = regexp.MustCompile(`is forbidden: User ".*" cannot \w+ resource "pods"`)

// IsDenied reports whether the caller may not create pods.
func IsDenied(err error) bool {
	return apierrors.IsUnauthorized(err) || apierrors.IsForbidden(err) && missingRight.MatchString(err.Error())
}

// verdict returns the message of a refusal without the name of the pod, and without what other pods
// use of a quota.
func verdict(message string) string {
	for _, mark := range []string{" is forbidden: ", " is invalid: "} {
		if _, why, found := strings.Cut(message, mark); found {
			message = why
			break
		}
	}
	if before, rest, found := strings.Cut(message, ", used: "); found && strings.HasPrefix(message, "exceeded quota: ") {
		_, limited, _ := strings.Cut(rest, ", limited: ")
		message = before + ", limited: " + limited
	}
	return message
}

var (
	quoted      = regexp.MustCompile(`"([^"]+)"`)
	warnedField = regexp.MustCompile(`^((?:spec|metadata)[.\[][^: ]*): (.*)$`)
	security    = regexp.MustCompile(`^((?:would )?violates? PodSecurity "[^"]+"): (.*)$`)
	container   = regexp.MustCompile(`containers? ((?:"[^"]+",? ?(?:and )?)+)`)
	volume      = regexp.MustCompile(`volumes? ((?:"[^"]+",? ?(?:and )?)+)`)
)

// named are the messages of admission plugins that name no field, and the fields that they mean.
var named = []struct{ start, field string }{
	{"no PriorityClass with name ", "spec.priorityClassName"},
	{"the integer value of priority ", "spec.priority"},
	{"pod rejected: RuntimeClass ", "spec.runtimeClassName"},
	{"error looking up service account ", "spec.serviceAccountName"},
	{"exceeded quota: ", "spec"},
	{"failed quota: ", "spec.containers"},
	{"maximum ", "spec.containers"},
	{"minimum ", "spec.containers"},
}

// strict returns the findings of an answer about unknown and duplicate fields.
func (p *Pod) strict(message string) []Finding {
	var findings []Finding
	for part := range strings.SplitSeq(message, "\", ") {
		kind, field, _ := strings.Cut(strings.TrimSuffix(part, `"`), ` "`)
		if kind == "unknown field" {
			kind += ": pods in this cluster have no such field"
		}
		findings = append(findings, Finding{p.field(field), kind})
	}
	return findings
}

// findings returns the findings of a message of an admission plugin, or of a warning.
func (p *Pod) findings(message string) []Finding {
	if found := warnedField.FindStringSubmatch(message); found != nil {
		return []Finding{{p.field(found[1]), found[2]}}
	}
	if found := security.FindStringSubmatch(message); found != nil {
		return p.violations(found[1], found[2])
	}
	for _, known := range named {
		if strings.HasPrefix(message, known.start) {
			return []Finding{{p.field(known.field), message}}
		}
	}
	return []Finding{{p.field("spec"), message}}
}

// violations returns a finding for each violation of a Pod Security Standard, such as
// `privileged (container "a" must not set securityContext.privileged=true)`.
func (p *Pod) violations(standard, list string) []Finding {
	var findings []Finding
	for _, violation := range strings.SplitAfter(list, "), ") {
		violation = strings.TrimSuffix(strings.TrimSuffix(violation, ", "), ",")
		field := "spec"
		if names := firstNames(container, violation); len(names) > 0 && p.container(names[0]) != "" {
			field = p.container(names[0])
		} else if names := firstNames(volume, violation); len(names) > 0 && p.volume(names[0]) != "" {
			field = p.volume(names[0])
		}
		findings = append(findings, Finding{p.field(field), fmt.Sprintf("%s: %s", standard, violation)})
	}
	return findings
}

// firstNames returns the quoted names of a list that a pattern matches.
func firstNames(pattern *regexp.Regexp, text string) []string {
	found := pattern.FindStringSubmatch(text)
	if found == nil {
		return nil
	}
	var all []string
	for _, name := range quoted.FindAllStringSubmatch(found[1], -1) {
		all = append(all, name[1])
	}
	return all
}
