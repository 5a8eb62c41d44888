// Copyright The DI Orchestrator Authors.
// SPDX-License-Identifier: Apache-2.0

package configfile

import (
	"fmt"
	"maps"
	"math"
	"regexp"
	"slices"
	"strings"
	"time"

	"k8s.io/apimachinery/pkg/api/resource"
	"k8s.io/apimachinery/pkg/util/validation/field"
)

// check returns what is wrong with a decoded value. A null is an absent field.
func (n *node) check(path *field.Path, value any) field.ErrorList {
	switch {
	case value == nil:
		return nil
	case n.kind == object:
		return n.checkObject(path, value)
	case n.kind == list:
		return n.checkList(path, value)
	}
	if want := n.fault(value); want != "" {
		return field.ErrorList{field.Invalid(path, value, want)}
	}
	return nil
}

func (n *node) checkObject(path *field.Path, value any) field.ErrorList {
	given, isObject := value.(map[string]any)
	if !isObject {
		return field.ErrorList{field.Invalid(path, value, "must be "+string(object))}
	}
	var found field.ErrorList
	for _, name := range slices.Sorted(maps.Keys(given)) {
		inner, at := n.fields[name], path.Child(name)
		if path == nil {
			at = field.NewPath(name)
		}
		if inner == nil {
			known := strings.Join(slices.Sorted(maps.Keys(n.fields)), ", ")
			found = append(found, field.Forbidden(at, "there is no such field: must be one of "+known))
			continue
		}
		found = append(found, inner.check(at, given[name])...)
	}
	if name := n.rule.required; name != "" && given[name] == nil {
		found = append(found, field.Required(path.Child(name), n.fields[name].rule.want))
	}
	return found
}

func (n *node) checkList(path *field.Path, value any) field.ErrorList {
	given, isList := value.([]any)
	switch {
	case !isList:
		return field.ErrorList{field.Invalid(path, value, "must be "+string(list))}
	case float64(len(given)) > n.rule.max:
		return field.ErrorList{field.TooMany(path, len(given), int(n.rule.max))}
	}
	var found field.ErrorList
	for i, item := range given {
		found = append(found, n.item.check(path.Index(i), item)...)
	}
	return found
}

// fault returns what the value of a leaf must be, if it is not so.
func (n *node) fault(value any) string {
	if n.kind == text {
		return n.faultOfText(value)
	}
	size, isSize := n.sizeOf(value)
	_, isBool := value.(bool)
	switch {
	case n.kind == boolean && isBool:
		return ""
	case !isSize:
		return "must be " + string(n.kind)
	}
	return n.rule.faultOf(size, n.kind)
}

func (n *node) faultOfText(value any) string {
	given, isText := value.(string)
	switch {
	case len(n.rule.values) > 0 && !slices.Contains(n.rule.values, given):
		return "must be one of " + strings.Join(n.rule.values, ", ")
	case !isText:
		return "must be " + string(text)
	case n.rule.pattern != "" && !regexp.MustCompile(n.rule.pattern).MatchString(given):
		return n.rule.want
	case n.rule.isExpression && !isExpression(given, n.rule.max):
		return n.rule.want
	}
	return ""
}

func isExpression(given string, limit float64) bool {
	if float64(len(given)) > limit {
		return false
	}
	compiled, err := regexp.Compile(given)
	return err == nil && !compiled.MatchString("")
}

// sizeOf returns a number, or a duration in seconds, or a quantity.
func (n *node) sizeOf(value any) (float64, bool) {
	switch given := value.(type) {
	case int64:
		return float64(given), n.kind == integer || n.kind == number || n.kind == quantity
	case float64:
		isWhole := given == math.Trunc(given)
		return given, n.kind == number || n.kind == integer && isWhole
	case string:
		if n.kind == duration {
			parsed, err := time.ParseDuration(given)
			return parsed.Seconds(), err == nil
		}
		if n.kind == quantity {
			// The library computes all digits of 1e1000000000.
			if len(given) > maxQuantity || !regexp.MustCompile(quantityPattern).MatchString(given) {
				return 0, false
			}
			parsed, err := resource.ParseQuantity(given)
			return parsed.AsApproximateFloat64(), err == nil
		}
	}
	return 0, false
}

// faultOf returns what a size must be, if it is not so.
func (r *rule) faultOf(size float64, of kind) string {
	tooLittle := size < r.min || r.above && size == r.min
	tooMuch := r.max > 0 && size > r.max
	if !tooLittle && !tooMuch || r.orZero && size == 0 {
		return ""
	}
	show := func(bound float64) string {
		if of == duration {
			return time.Duration(bound * float64(time.Second)).String()
		}
		return fmt.Sprintf("%.0f", bound)
	}
	switch {
	case r.max > 0:
		return fmt.Sprintf("must be from %s to %s", show(r.min), show(r.max))
	case r.orZero:
		return fmt.Sprintf("must be %s, for never, or at least %s", show(0), show(r.min))
	case r.above:
		return "must be more than " + show(r.min)
	}
	return "must be at least " + show(r.min)
}
