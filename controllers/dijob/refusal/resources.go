// Copyright The DI Orchestrator Authors.
// SPDX-License-Identifier: Apache-2.0

package refusal

import (
	"cmp"
	"regexp"
	"strings"

	"opendilab.org/di-orchestrator/job/lifecycle/state"
)

// These are the texts of the API server's LimitRanger and ResourceQuota about a pod's resources. A LimitRange joins
// several by commas, a quota by semicolons.
var (
	outsideLimits = regexp.MustCompile(`(maximum|minimum) (\S+) usage per (\w+) is ([^\s,]+?)(?:, but (request|limit) is |\.\s+No (request|limit) is specified)`)
	beyondRatio   = regexp.MustCompile(`(\S+) max limit to request ratio per (\w+) is ([^\s,]+), but `)
	missingOf     = regexp.MustCompile(`^([\w.,/-]+) for: (.+)$`)
)

const (
	// mustSpecify begins what a quota wants a pod to set.
	mustSpecify = "must specify "
	// resources is the field of a container in its template.
	resources = "resources."
	atMost    = "at most"
)

// isOutsideLimits reports whether a LimitRange does not allow the requests or limits of a pod.
func isOutsideLimits(answer string) bool {
	return outsideLimits.MatchString(answer) || beyondRatio.MatchString(answer)
}

// isMissingResources reports whether a quota counts what a pod does not set.
func isMissingResources(answer string) bool {
	return strings.HasPrefix(answer, "failed quota: ") && strings.Contains(answer, mustSpecify)
}

// Advice names the fields of the template that would make the API server accept a pod, and their right values; "" for
// an answer about something else.
func Advice(answer string) string {
	var fields []string
	switch {
	case isMissingResources(answer):
		_, list, _ := strings.Cut(answer, mustSpecify)
		fields = missingFields(list)
	case isOutsideLimits(answer):
		fields = append(fieldsWithin(answer), fieldsInRatio(answer)...)
	}
	if len(fields) == 0 {
		return ""
	}
	return "set in the template " + state.Few(fields, ", ")
}

// missingFields returns the fields that a quota names. Kubernetes before 1.27 does not name the containers.
func missingFields(list string) []string {
	var fields []string
	for part := range strings.SplitSeq(list, ";") {
		names, containers := strings.TrimSpace(part), "each container"
		if found := missingOf.FindStringSubmatch(names); found != nil {
			names, containers = found[1], "container "+found[2]
		}
		for name := range strings.SplitSeq(names, ",") {
			if !strings.HasPrefix(name, "limits.") && !strings.HasPrefix(name, "requests.") {
				name = "requests." + name
			}
			fields = append(fields, resources+name+" of "+containers)
		}
	}
	return fields
}

// fieldsWithin returns the fields that a LimitRange bounds.
func fieldsWithin(answer string) []string {
	var fields []string
	for _, found := range outsideLimits.FindAllStringSubmatch(answer, -1) {
		bound, name, per, amount, field := atMost, found[2], found[3], found[4], cmp.Or(found[5], found[6])
		if found[1] == "minimum" {
			bound = "at least"
		}
		fields = append(fields, resources+field+"s."+name+" of "+ofWhich(per)+" to "+bound+" "+amount)
	}
	return fields
}

// fieldsInRatio returns the fields whose ratio a LimitRange bounds.
func fieldsInRatio(answer string) []string {
	var fields []string
	for _, found := range beyondRatio.FindAllStringSubmatch(answer, -1) {
		name := strings.TrimPrefix(found[1], "[")
		fields = append(fields, resources+"limits."+name+" of "+ofWhich(found[2])+" to "+atMost+" "+found[3]+" times its requests."+name)
	}
	return fields
}

// ofWhich returns whose resources a LimitRange bounds.
func ofWhich(per string) string {
	if per == "Pod" {
		return "all containers together"
	}
	return "each container"
}
